"""Golden parts of the card on direct links; its sums are those of `gradnic.models.schedule`."""
