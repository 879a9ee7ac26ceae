"""The golden card on direct links, and its parts."""
