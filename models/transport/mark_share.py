"""Share of packets that came with congestion marks, from one neighbor, since it was last sent.

Twin of `gradnic.hdl.transport.mark_share`. Source: the echo of DCTCP (SIGCOMM 2010), as DLCP
(arXiv 2008.08445) uses it. Ours: the scale, and counting anew with each answer.
"""

MOST = 4095  # packets that count; those behind them do not


class MarkShare:
    """Counts packets and those with CE.

    Attributes
    ----------
    n_packets, n_marked : int, since the share was last sent, up to `MOST`.
    """

    def __init__(self) -> None:
        self.n_packets = self.n_marked = 0

    def packet(self, marked: bool) -> None:
        """One came."""
        if self.n_packets < MOST:
            self.n_packets += 1
            self.n_marked += marked

    @property
    def share(self) -> int:
        """In 1/256, rounded down, at most 255; 0 without packets."""
        return min(self.n_marked * 256 // self.n_packets, 255) if self.n_packets else 0

    def sent(self) -> None:
        """The share has been sent."""
        self.n_packets = self.n_marked = 0
