"""Whose turn it is: each that asks in turn, the one behind the last served first."""


class RoundRobin:
    """Serves one of `n` a turn; nobody who keeps asking waits longer than `n` turns."""

    def __init__(self, n: int) -> None:
        self.n = n
        self._next = 0

    def grant(self, asks: list[bool], *, goes: bool = True) -> int | None:
        """Number of the one that is served, None if nobody asks.

        goes : False leaves the turn with the one that is named.
        """
        for k in range(self.n):
            turn = (self._next + k) % self.n
            if asks[turn]:
                if goes:
                    self._next = (turn + 1) % self.n
                return turn
        return None
