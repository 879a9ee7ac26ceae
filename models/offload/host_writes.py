"""WRITEs of the host: what memory has stored, and when the host is told of it.

Golden twin of `gradnic.hdl.offload.host_writes`. Rules: docs/spec/wire.md.
"""

from gradnic.interface.host_frame import ACK_FRAMES, SILENCE

from .host_judge import SEQS

N_WRITES = 32  # under way, at most


class HostWrites:
    """Memory answers in order, so all before ``next`` is done. Time is in cycles.

    Attributes
    ----------
    next : int, SEQ of the request that is not done yet
    n_under_way : int, WRITEs that memory has not answered
    failed : bool
        One had an error: those behind it are stored or not, and none is told as done.
    n_untold : int, WRITEs done since the last ACK
    """

    def __init__(self) -> None:
        self.next = self.n_under_way = self.n_untold = self.silent_since = 0
        self.failed = False

    @property
    def has_room(self) -> bool:
        """Whether another WRITE may begin."""
        return self.n_under_way < N_WRITES

    @property
    def settled(self) -> bool:
        """Whether all that began is done."""
        return not self.n_under_way and not self.failed

    def opens(self, first: int) -> None:
        """A session's first request has this SEQ."""
        self.next = first

    def advance(self) -> None:
        """A request that is no WRITE is done."""
        self.next = (self.next + 1) % SEQS

    def begin(self) -> None:
        """A WRITE is on its way to memory."""
        self.n_under_way += 1

    def end(self, now: int, *, stored: bool) -> None:
        """Memory has answered the oldest WRITE."""
        self.n_under_way -= 1
        if stored and not self.failed:
            self.advance()
            self.n_untold += 1
            self.silent_since = now
        self.failed |= not stored

    def forgive(self) -> None:
        """The host was told that one failed, and sends again from ``next`` on."""
        self.failed = False

    def tell(self) -> None:
        """An ACK tells of all so far."""
        self.n_untold = 0

    def due(self, now: int) -> bool:
        """Whether an ACK is to be sent: for `ACK_FRAMES`, or for fewer after `SILENCE` cycles."""
        silent = self.n_untold and now - self.silent_since >= SILENCE
        return bool(self.n_untold >= ACK_FRAMES or silent)
