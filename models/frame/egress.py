"""Egress port with strict-priority queues that drop what may be lost and mark what may not.

The switch of the papers, as a model for benches, and the golden twin of
`gradnic.hdl.frame.egress`: a frame that makes its queue longer than the queue's threshold is
dropped if its IP header says Not-ECT, and gets the CE mark if it says ECT; beyond the limit every
frame is dropped.

Sources: DLCP (arXiv 2008.08445), MLT (NSDI 2024): RED with equal minimum and maximum, probability
1, as RFC 3168 lets a router; the thresholds are registers, since the papers' values are unknown.
"""

from collections import Counter, deque
from collections.abc import Callable, Sequence

from gradnic.interface.formats import ETHERNET, ETHERTYPE_IPV4, IPV4

from .ipv4 import retag

N_QUEUES = 8
CE = 3
ENQUEUED, THRESHOLD, LIMIT, MARKED = "enqueued", "threshold", "limit", "marked"


def ecn_of(frame: bytes) -> int:
    """ECN field of an IPv4 frame; CE of any other, which no queue drops early or marks."""
    is_ip = len(frame) >= IPV4.stop and ETHERNET.ethertype.get(frame) == ETHERTYPE_IPV4
    return IPV4.ecn.get(frame) if is_ip else CE


def classify(frame: bytes) -> tuple[int, int]:
    """(queue, important) of a frame: by its class selector, 7 first, and its ECN field."""
    is_ip = ETHERNET.ethertype.get(frame) == ETHERTYPE_IPV4
    return N_QUEUES - 1 - (IPV4.tos.get(frame) >> 5) if is_ip else 0, int(ecn_of(frame) != 0)


class Egress:
    """Queues of one port, queue 0 served first.

    Parameters
    ----------
    thresholds : sequence of int
        K of each queue, in cells, non-decreasing: front layers are cut first. Up to 8.
    limit : int
        Cells of a queue that no frame may exceed; at least every threshold.
    cell : int
        Bytes: a frame takes ceil(bytes / cell) cells. 1 counts bytes.
    largest, most : int or None
        Cells of the largest frame, frames of a queue; what is beyond counts as over the limit.

    Attributes
    ----------
    counters : collections.Counter
        By (what, queue, important): ``enqueued``, ``threshold`` drops, ``limit`` drops, and
        ``marked`` (CE set here; those are enqueued too).
    used : list of int
        Cells taken in each queue.
    """

    def __init__(
        self,
        thresholds: Sequence[int],
        limit: int,
        *,
        cell: int = 1,
        largest: int | None = None,
        most: int | None = None,
    ) -> None:
        if not 1 <= len(thresholds) <= N_QUEUES:
            raise ValueError(f"thresholds must be 1 to {N_QUEUES}, not {len(thresholds)}")
        if list(thresholds) != sorted(thresholds) or thresholds[0] < 0:
            raise ValueError(f"thresholds must not decrease, not {list(thresholds)}")
        if limit < thresholds[-1]:
            raise ValueError(f"limit must be at least {thresholds[-1]}, not {limit!r}")
        self.thresholds, self.limit, self.cell = tuple(thresholds), limit, cell
        self.largest, self.most = largest, most
        self.queues = [deque() for _ in thresholds]
        self.used = [0] * len(thresholds)
        self.counters = Counter()

    def enqueue(self, frame: bytes, queue: int, important: int) -> bool:
        """Take `frame`, or drop it; True if it was taken. What is not IPv4 is not marked."""
        cells = -(-len(frame) // self.cell)
        ecn = ecn_of(frame)
        depth = self.used[queue] + cells
        if depth > self.limit or self._is_too_much(queue, cells):
            self.counters[LIMIT, queue, important] += 1
            return False
        if depth > self.thresholds[queue]:
            if ecn == 0:
                self.counters[THRESHOLD, queue, important] += 1
                return False
            if ecn != CE:
                self.counters[MARKED, queue, important] += 1
                frame = retag(frame, IPV4.tos.get(frame) | CE)
        self.counters[ENQUEUED, queue, important] += 1
        self.queues[queue].append(frame)
        self.used[queue] = depth
        return True

    def _is_too_much(self, queue: int, cells: int) -> bool:
        too_large = self.largest is not None and cells > self.largest
        return too_large or (self.most is not None and len(self.queues[queue]) >= self.most)

    def dequeue(self, queue: int | None = None) -> tuple[int, bytes] | None:
        """The next frame, as (queue, frame), or None if there is none.

        queue : int, to serve this one; None: the lowest that has a frame.
        """
        for k, frames in enumerate(self.queues):
            if frames and queue in (None, k):
                frame = frames.popleft()
                self.used[k] -= -(-len(frame) // self.cell)
                return k, frame
        return None

    def cancel(self, matches: Callable) -> int:
        """Drop the queued frames for which `matches`(frame) holds, as after STOP; how many."""
        dropped = 0
        for queue, frames in enumerate(self.queues):
            kept = deque(frame for frame in frames if not matches(frame))
            dropped += len(frames) - len(kept)
            self.queues[queue] = kept
            self.used[queue] = sum(-(-len(frame) // self.cell) for frame in kept)
        return dropped
