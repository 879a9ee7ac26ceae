"""What a card remembers of rounds that are over.

Golden twin of `gradnic.hdl.offload.job_history`.
"""

from gradnic.interface.job import HISTORY

from .parser import ahead


class History:
    """The newest GEN that is over of up to `HISTORY` tensors: one place for each tensor number
    modulo `HISTORY`, so that a tensor displaces another one of its place.
    """

    def __init__(self) -> None:
        self._places: list[tuple[int, int] | None] = [None] * HISTORY

    def last(self, tensor: int) -> int | None:
        """Newest GEN of the tensor that is over; None: nothing is known of it."""
        entry = self._places[tensor % HISTORY]
        return entry[1] if entry and entry[0] == tensor else None

    def over(self, tensor: int, gen: int) -> None:
        """A round is over. One that is older than what is known of its tensor changes nothing."""
        last = self.last(tensor)
        if last is None or ahead(gen, last) > 0:
            self._places[tensor % HISTORY] = tensor, gen
