"""Sender: all packets once, then a PROBE, then what the BITMAPs ask for, until STOP.

`Sending` chooses the packets of one tensor and round (or of a range of it) to one receiver,
`Spray` the path of each packet, `Pace` when it may go. Twin of `gradnic.hdl.transport.sender`.

Sources: DLCP (arXiv 2008.08445): send all, probe, selective resend, STOP, per-packet spraying,
AIMD on the marked share after DCTCP; MLT (NSDI 2024): round-trip times after TIMELY. Ours: order of
resending, which BITMAPs are believed, paths by age of their last mark, all constants.
"""

from collections.abc import Sequence
from typing import Any

import numpy as np

from gradnic.interface.params import check_range

DATA, PROBE = "data", "probe"
RETRY = 3  # after NOT_READY: an eighth of t_probe
RENEW = 1 << 30  # time after which answers to PROBEs of before are believed no more
SPRAYS = ("round_robin", "random", "least_marked")
LINE = 1 << 16  # a rate of 1: the line's
GAIN = 4  # alpha moves by 1 / 2**GAIN


class Sending:
    """Packets first .. first + n - 1 to one receiver.

    Parameters
    ----------
    order : sequence of (important, queue), shape (n,)
        Of each packet, for the order in which lost ones are sent again.
    first : int
        Number of the first packet.
    t_probe : int
        Time between PROBEs while nothing else is to be sent.

    Attributes
    ----------
    done : bool
        STOP came. `n_sent`, `n_again`, `n_probes` : packets sent, of them again, and PROBEs.
    path : int
        That its latest packet took, told by whoever sprays it: a PROBE goes the same way, so that
        it does not overtake that packet, which would then be sent again. A PROBE that goes again
        takes another, see `Spray.again`: that of the one before may be dead.

    Where NOT_READY answered a PROBE, the next one leaves after an eighth of that time. A BITMAP is
    believed if the PROBE that it answers left after the last packet did: older ones would ask for
    packets that are still under way. The first PROBE of each `RENEW` is as one behind the
    last packet: stamps have 32 bits, and the other side may be late by more.
    """

    def __init__(
        self, order: Sequence[tuple[int, ...]], *, first: int = 0, t_probe: float = 1000
    ) -> None:
        self.order, self.first, self.t_probe = order, first, t_probe
        self.pending = list(range(len(order)))[::-1]  # sorted, the next one last
        self.sent = np.zeros(len(order), bool)
        self.fresh = True  # packets were sent since the latest PROBE
        self.believed_from: float | None = None  # the first PROBE behind the latest packets left
        self.again = set()  # packets sent since then
        self.probe_at: float | None = None  # None: as soon as nothing is pending
        self.probed_at, self.was_refused = 0.0, False
        self.done = len(order) == 0
        self.n_sent = self.n_again = self.n_probes = self.path = 0

    @property
    def n_important(self) -> int:
        """Important packets of the range, which its PROBEs announce."""
        return sum(important for important, _ in self.order)

    def due(self, now: float) -> bool:
        """Whether `next` has something to send."""
        if self.done:
            return False
        return bool(self.pending) or self.probe_at is None or now >= self.probe_at

    def next(self, now: float) -> tuple[str, Any, int] | None:
        """What to send now: (DATA, number, retx), (PROBE, stamp, retx), or None.

        retx : it was sent before; for a PROBE, without a packet or a NOT_READY since.
        """
        if not self.due(now):
            return None
        if self.pending:
            i = self.pending.pop()
            retx = int(self.sent[i])
            self.sent[i] = True
            self.again.add(i)
            self.fresh, self.probe_at = True, None
            self.n_sent += 1
            self.n_again += retx
            return DATA, self.first + i, retx
        retx = int(not (self.fresh or self.was_refused))
        self.was_refused = False
        old = self.believed_from is None or now // RENEW != self.believed_from // RENEW
        if self.fresh or old:
            self.fresh, self.believed_from, self.again = False, now, set()
        self.probe_at, self.probed_at = now + self.t_probe, now
        self.n_probes += 1
        return PROBE, now, retx

    def bitmap(self, stamp: float, wanted: Sequence[int]) -> bool:
        """Packets that a BITMAP asks for, whose PROBE left at `stamp`. False if not believed."""
        if self.done or self.believed_from is None or stamp < self.believed_from:
            return False
        new = {i - self.first for i in wanted if 0 <= i - self.first < len(self.order)}
        self._wait(new - self.again)
        return True

    def trimmed(self, number: int) -> None:
        """A switch cut this packet down to its head, which the receiver told: it goes again."""
        if not self.done:
            self._wait({number - self.first})

    def _wait(self, new: set[int]) -> None:
        """These go again, important ones first, then low queues."""
        new -= set(self.pending)
        rank = {i: (1 - self.order[i][0], self.order[i][1], i) for i in [*new, *self.pending]}
        self.pending = sorted(rank, key=rank.__getitem__, reverse=True)

    def refused(self) -> None:
        """NOT_READY, to the latest PROBE."""
        if self.probe_at is not None:
            self.probe_at = self.probed_at + self.t_probe / (1 << RETRY)
            self.was_refused = True

    def stop(self) -> None:
        """STOP: what is queued is not sent any more."""
        self.done, self.pending = True, []


class Spray:
    """Path of each packet.

    Parameters
    ----------
    n_paths : int
        1 to 256.
    rule : str
        ``round_robin``; ``random``: a 32-bit xorshift generator, its value modulo n_paths;
        ``least_marked``: the path whose last mark is oldest, of those without any mark the one
        used longest ago.
    seed : int
        Of the random rule, not 0.
    """

    def __init__(self, n_paths: int, rule: str = "round_robin", *, seed: int = 1) -> None:
        check_range("n_paths", n_paths, 1, 256)
        if rule not in SPRAYS:
            raise ValueError(f"rule must be one of {', '.join(SPRAYS)}, not {rule!r}")
        if not 1 <= seed < 1 << 32:
            raise ValueError(f"seed must be 1 to 2**32 - 1, not {seed!r}")
        self.n_paths, self.rule, self.state = n_paths, rule, seed
        self.order = list(range(n_paths))  # unmarked ones by use, then marked ones by age
        self.n_unmarked = n_paths

    def next(self) -> int:
        """The path of the next packet."""
        if self.rule == "random":
            self.state = xorshift(self.state)
            return self.state % self.n_paths
        path = self.order[0]
        turn = self.n_paths if self.rule == "round_robin" else self.n_unmarked
        if turn:
            self.order[:turn] = [*self.order[1:turn], path]
        return path

    def again(self, path: int) -> int:
        """The path of a PROBE that goes again. Nothing came back on `path`, which counts as marked:
        else a dead path, which never marks a packet, would draw all of them. Where that leaves none
        without a mark, all are: lost PROBEs must not end the spraying.
        """
        self.mark(path)
        self.n_unmarked = self.n_unmarked or self.n_paths
        return self.next()

    def mark(self, path: int) -> None:
        """A packet on `path` met congestion. ValueError if there is no such path."""
        at = self.order.index(path)
        if self.rule == "least_marked":
            self.n_unmarked -= at < self.n_unmarked
            self.order.append(self.order.pop(at))


def xorshift(x: int) -> int:
    """Next state of the 32-bit xorshift generator (13, 17, 5)."""
    x ^= x << 13 & 0xFFFFFFFF
    x ^= x >> 17
    return x ^ x << 5 & 0xFFFFFFFF


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
