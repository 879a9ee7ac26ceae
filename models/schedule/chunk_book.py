"""What a node knows of its chunks, and what events make of it. Twin of
`gradnic.hdl.schedule.chunk_book`.

Source: docs/internals/scheduler.md (events); ours.
"""

from collections import defaultdict

EVENTS = ("added", "finals", "released")


class ChunkBook:
    """State of each chunk of a tensor.

    Parameters
    ----------
    most : int
        Contributions that can be counted.
    n_chunks : int
        Of the tensor; events beyond are foreign, and change nothing.

    Attributes
    ----------
    running : bool
        Events are early, and change nothing, while it is not set.
    """

    def __init__(self, most: int, n_chunks: int) -> None:
        self.most, self.n_chunks, self.running = most, n_chunks, True
        self._states = defaultdict(lambda: [0, 0, 0])

    def state(self, chunk: int) -> tuple[int, int, int]:
        """(contributions added, whether it was released, whether it is final)."""
        added, released, final = self._states[chunk]
        return added, released, final

    def event(self, name: str, chunk: int) -> set[str]:
        """One of `EVENTS` for a chunk; returns what is told of it.

        ``early``, ``foreign`` : see the class. ``grew`` : a contribution was counted. ``finished``
        : the chunk became final. ``extra`` : a contribution came for a chunk that was released, or
        beyond the largest number, or a chunk became final twice.
        """
        if not self.running:
            return {"early"}
        if chunk >= self.n_chunks:
            return {"foreign"}
        state, told = self._states[chunk], set()
        if name == "released":
            state[1] = 1
            return told
        full = state[0] == self.most if name == "added" else state[2]
        if full or (name == "added" and state[1]):
            told.add("extra")
        if full:
            return told
        if name == "added":
            state[0] += 1
            return told | {"grew"}
        state[2] = 1
        return told | {"finished"}
