"""Which contributions are added ahead of their row: those that cannot change any sum's order."""

MANY = 4  # contributions that a row adds as fast as its port sends


class MergeBook:
    """What is known of each chunk's contributions in a round.

    Parameters
    ----------
    ranks : list of int
        Contributions that each chunk gets.

    Members
    -------
    n_merged : list of int
        Of each chunk, those that are in its own words.
    """

    def __init__(self, ranks: list[int]) -> None:
        self.ranks = ranks
        self.n_merged = [0] * len(ranks)
        self._picked = [0] * len(ranks)

    def land(self, chunk: int, rank: int, *, room: bool = True) -> bool:
        """A contribution is in memory. Returns whether it is picked, to be added at once.

        It is if its chunk gets more than `MANY`, all before it were picked, and it is not the last
        one, which is added while the row is sent. room : one more may wait to be added; where none
        may, it is left to the row, and with it all that follow.
        """
        picked = (
            room
            and self.ranks[chunk] > MANY
            and rank == self._picked[chunk]
            and rank + 1 < self.ranks[chunk]
        )
        self._picked[chunk] += picked
        return picked

    def merge(self, chunk: int) -> None:
        """The oldest contribution picked for `chunk`, and not there yet, is in its own words."""
        self.n_merged[chunk] += 1

    def settled(self, chunk: int) -> bool:
        """None of the chunk is picked and not there yet."""
        return self.n_merged[chunk] == self._picked[chunk]
