"""Pacing of a sender: a rate that congestion marks or round trips steer, and a credit of bytes.

Twin of `gradnic.hdl.transport.pace`. Sources: DLCP (arXiv 2008.08445), AIMD on the marked share
after DCTCP; MLT (NSDI 2024), round-trip times after TIMELY. Ours: all constants.
"""

from gradnic.interface.params import check_range

LINE = 1 << 16  # a rate of 1: the line's
GAIN = 4  # alpha moves by 1 / 2**GAIN


class Pace:
    """Rate of a sender in 1/65536 of the line's, from floor to 65536.

    Parameters
    ----------
    rule : str
        ``ce``: alpha follows the marked share with gain 1/16; a mark cuts the rate by alpha / 2,
        no mark adds `step`. ``rtt``: above `high` the rate falls by 1/8, below `low`, or while
        round trips do not grow, it gains `step`, else it falls by 1/16. ``off``: the line's.
    floor, step : int, 1/65536 of the line's rate.
    low, high : int, units of time.

    Attributes
    ----------
    rate : int, 1 to 65536. alpha : int, 1/65536. credit : int, bytes * 65536 that may leave.
    """

    def __init__(
        self,
        rule: str = "off",
        *,
        floor: int = LINE // 64,
        step: int = LINE // 256,
        low: int = 0,
        high: int = 0,
    ) -> None:
        if rule not in ("off", "ce", "rtt"):
            raise ValueError(f"rule must be off, ce or rtt, not {rule!r}")
        check_range("floor", floor, 1, LINE)
        self.rule, self.floor, self.step, self.low, self.high = rule, floor, step, low, high
        self.rate, self.alpha, self.credit = LINE, 0, 0
        self.rtt: int | None = None

    def echo(self, ce_share: int, rtt: int) -> None:
        """The receiver answered: share of marked packets in 1/256, and the round trip."""
        if self.rule == "ce":
            self.alpha += (ce_share * 256 >> GAIN) - (self.alpha >> GAIN)
            change = -(self.rate * self.alpha >> 17) if ce_share else self.step
        elif self.rule == "rtt":
            before = rtt if self.rtt is None else self.rtt
            self.rtt = rtt
            if rtt > self.high:
                change = -(self.rate >> 3)
            elif rtt < self.low or rtt <= before:
                change = self.step
            else:
                change = -(self.rate >> 4)
        else:
            return
        self.rate = min(max(self.rate + change, self.floor), LINE)

    def cycle(self, line_bytes: int, burst: int) -> None:
        """One cycle passes, in which the line takes `line_bytes`; at most `burst` bytes wait."""
        self.credit = min(self.credit + line_bytes * self.rate, burst * LINE)

    def spend(self, n_bytes: int) -> bool:
        """A frame of `n_bytes` wants to leave: True, and paid for, if the credit is not negative.

        The credit may fall below 0 by one frame, so that a frame never waits for its own size.
        """
        if self.credit < 0:
            return False
        self.credit -= n_bytes * LINE
        return True
