"""Sender: all packets once, then a PROBE, then what the BITMAPs ask for, until STOP.

`Sending` chooses the packets of one tensor and round (or of a range of it) to one receiver; which
path each takes is `spray`'s, when it may go `pace`'s. Twin of `gradnic.hdl.transport.sender`.

Sources: DLCP (arXiv 2008.08445): send all, probe, selective resend, STOP. Ours: order of resending,
which BITMAPs are believed, all constants.
"""

from collections.abc import Sequence
from typing import Any

import numpy as np

DATA, PROBE = "data", "probe"
RETRY = 3  # after NOT_READY: an eighth of t_probe
RENEW = 1 << 30  # time after which answers to PROBEs of before are believed no more


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
        takes another, see `spray.Spray.again`: that of the one before may be dead.

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
