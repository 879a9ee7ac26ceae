"""Receiver: which packets of a tensor came, and when enough of them did.

One `Reception` per (job, tensor, source, round). It counts bytes, not packets, so that a short
last packet weighs as itself. A range of packets closes when all of it is there, or when the
sender says that it has sent it and what is missing still fits the allowance: a share p of all
bytes from this source, whatever range they are in. With p = 0 that is reliable delivery. Over the
whole tensor the rule is "accepted bytes >= need_bytes". Twin of `gradnic.hdl.transport.receiver`,
which closes ranges at PROBEs only (``eager`` False).

Sources: DLCP (arXiv 2008.08445) and MLT (NSDI 2024): bitmaps, STOP at (1 - p) of the bytes, PROBE,
zero fill of gradients. Ours: the datagram forms with retry, the pooled allowance over ranges,
weights, strict_important.
"""

from collections import Counter

import numpy as np

from .allowance_walk import need_bytes
from .probe_scan import bitmap, missing_bytes

OPEN, DONE = "open", "done"
STALE_ROUND, RANGE, LENGTH, DUPLICATE, LATE = "stale", "range", "length", "duplicate", "late"
PAGE_BITS = 8192  # of one BITMAP of form 0: 1024 bytes of payload
RUNS = 128  # of one BITMAP of form 1
ALIGN = (
    32  # a BITMAP of form 0 starts at a multiple: the circuit's memory word, more than asked for
)


def packet_sizes(n_elems: int, elems_per_packet: int, elem_bytes: int = 4) -> np.ndarray:
    """Bytes of each packet of a tensor: int64, shape (ceil(n_elems / elems_per_packet),)."""
    n = -(-n_elems // elems_per_packet)
    sizes = np.full(n, elems_per_packet * elem_bytes, np.int64)
    if n:
        sizes[-1] = (n_elems - (n - 1) * elems_per_packet) * elem_bytes
    return sizes


class Reception:
    """What one source sends of one tensor in one round.

    Parameters
    ----------
    sizes : int array, shape (n_packets,)
        Bytes of each packet; 0 for a number that has no packet.
    p_q16 : int
        Loss bound in 1/2**16.
    round : int
        The GEN that packets must carry.
    weights : int array like `sizes`, or None
        What a byte of each packet counts, such as the leaves below it; None: 1.
    eager : bool
        Complete the whole tensor as soon as enough of it came, without a PROBE. False: close what
        a PROBE covers only, so that no packet under way is given up.
    at_share : bool
        With ``eager`` False, a PROBE closes its range once ``need`` bytes of all came, whatever
        the range lacks; False: if what it lacks fits the allowance.
    strict_important : bool
        Complete only with all important packets, whose number the PROBE says.

    Attributes
    ----------
    status : str
        ``open`` or ``done``.
    here, closed : bool arrays (n_packets,)
        Arrived; arrived or given up. `n_open` : packets not closed.
    n_bytes : int
        Weighted bytes that arrived. `lost` : those given up. `need` : what completes.
    counters : collections.Counter
        Drops by reason: ``stale`` (round), ``range``, ``length``, ``duplicate``, ``late`` (given
        up or complete already).
    """

    def __init__(
        self,
        sizes: np.ndarray,
        *,
        p_q16: int = 0,
        round: int = 0,
        weights: np.ndarray | None = None,
        eager: bool = True,
        at_share: bool = False,
        strict_important: bool = False,
    ) -> None:
        self.sizes = np.asarray(sizes, np.int64)
        weights = np.ones_like(self.sizes) if weights is None else np.asarray(weights, np.int64)
        self.weighed = self.sizes * weights
        self.total = int(self.weighed.sum())
        self.need = need_bytes(self.total, p_q16)
        self.round, self.eager, self.strict = round, eager, strict_important
        self.at_share = at_share
        self.here = np.zeros(len(self.sizes), bool)
        self.closed = self.sizes == 0
        self.n_open = int((~self.closed).sum())
        self.n_bytes = self.lost = self.n_important = 0
        self.important_sent: int | None = None  # as the last PROBE said
        self.counters = Counter()
        self.status = OPEN if self.total else DONE

    @property
    def allowance(self) -> int:
        """Weighted bytes that may still be given up."""
        return self.total - self.need - self.lost

    def data(self, number: int, n_bytes: int, *, round: int, important: int = 0) -> str | None:
        """A packet came: None where its elements are to be taken, else why it was dropped.

        number : int. n_bytes : int, by which its length is checked.
        """
        reason = self._refusal(number, n_bytes, round)
        if reason:
            self.counters[reason] += 1
            return reason
        self.here[number] = self.closed[number] = True
        self.n_open -= 1
        self.n_bytes += int(self.weighed[number])
        self.n_important += important
        self._test()
        return None

    def _refusal(self, number: int, n_bytes: int, round: int) -> str | None:
        if round != self.round:
            return STALE_ROUND
        if not 0 <= number < len(self.sizes):
            return RANGE
        if n_bytes != self.sizes[number] or not n_bytes:
            return LENGTH
        if self.here[number]:
            return DUPLICATE
        return LATE if self.closed[number] or self.status != OPEN else None

    def probe(self, first: int, count: int, *, n_important: int = 0) -> bool:
        """The sender has sent packets first .. first + count - 1: True if they are closed now.

        True asks for STOP, False for BITMAPs of the range. ValueError if it is outside.
        n_important : int, important packets of the whole tensor.
        """
        if not 0 <= first <= first + count <= len(self.sizes):
            raise ValueError(
                f"packets must be within 0 to {len(self.sizes) - 1}, not {first} + {count}"
            )
        self.important_sent = n_important
        self._test()
        part = slice(first, first + count)
        open_ = ~self.closed[part]
        missing = missing_bytes(self.weighed[part], self.closed[part])
        if not missing:
            return True
        may = self.n_bytes >= self.need if self.at_share else missing <= self.allowance
        if self.eager or not may or not self._important_are_in():
            return False
        self.lost += missing
        self.n_open -= int(open_.sum())
        self.closed[part] = True
        self._test()
        return True

    def _important_are_in(self) -> bool:
        if not self.strict:
            return True
        return self.important_sent is not None and self.n_important >= self.important_sent

    def _test(self) -> None:
        """Whether the whole is complete; what is missing then is given up."""
        if self.status != OPEN:
            return
        enough = self.eager and self.n_bytes >= self.need and self._important_are_in()
        if enough or not self.n_open:
            self._close()

    def _close(self) -> None:
        self.status = DONE
        self.lost = self.total - self.n_bytes
        self.n_open, self.closed[:] = 0, True

    def bitmaps(self, first: int, count: int) -> list[tuple[int, int, int, bytes]]:
        """Bodies of the BITMAPs that answer a PROBE of this range: (form, first, n, payload).

        Form 0: n bits from packet `first`, a multiple of 32, lowest bit of each byte first, 0 =
        wanted, within the range only; only pages of `PAGE_BITS` with a 0 are sent. Form 1: n
        entries {first missing u32, run u32}, big-endian. The one with fewer bytes; form 0 in a
        draw.
        """
        start = first - first % ALIGN
        wanted = np.flatnonzero(~self.closed[first : first + count]) + first
        if not len(wanted):
            return []
        pages = np.unique((wanted - start) // PAGE_BITS)
        runs = _runs(wanted)
        begins = [start + int(page) * PAGE_BITS for page in pages]
        sizes = [-(-(min(b + PAGE_BITS, first + count) - b) // 8) for b in begins]
        if 8 * len(runs) < sum(sizes):
            parts = [runs[i : i + RUNS] for i in range(0, len(runs), RUNS)]
            bodies = [np.array(part, ">u4").tobytes() for part in parts]
            return [(1, part[0][0], len(part), b) for part, b in zip(parts, bodies, strict=True)]
        pieces = []
        for begin in begins:
            n = min(begin + PAGE_BITS, first + count) - begin
            inside = slice(max(begin, first), begin + n)
            bits = bitmap(self.closed[inside], inside.start - begin)
            pieces.append((0, begin, n, bits))
        return pieces


def _runs(numbers: np.ndarray) -> list[tuple[int, int]]:
    """[(first, length), ...] of sorted numbers."""
    cuts = np.flatnonzero(np.diff(numbers) != 1) + 1
    return [(int(part[0]), len(part)) for part in np.split(numbers, cuts)]


def wanted_packets(form: int, first: int, n: int, payload: bytes) -> list[int]:
    """Packets that a BITMAP asks for, in order; ValueError if its length is wrong."""
    if form == 1:
        if len(payload) != 8 * n:
            raise ValueError(f"a BITMAP of {n} runs must have {8 * n} bytes, not {len(payload)}")
        entries = np.frombuffer(payload, ">u4").reshape(-1, 2).astype(np.int64)
        return [i for start, run in entries for i in range(start, start + run)]
    if len(payload) != -(-n // 8):
        raise ValueError(f"a BITMAP of {n} bits must have {-(-n // 8)} bytes, not {len(payload)}")
    bits = np.unpackbits(np.frombuffer(payload, np.uint8), count=n, bitorder="little")
    return (first + np.flatnonzero(bits == 0)).tolist()
