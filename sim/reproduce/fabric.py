"""A leaf-spine network packet by packet: ports with queues, and packets that cross them.

Output-queued switches, store and forward; acknowledgments and control travel beside the data, one
way late and never lost. About 5 us a packet and hop. Times in nanoseconds.
"""

import heapq
from bisect import insort
from collections import deque

from gradnic.models.training.constants import value

FRAME = 1408 + 88  # bytes on the wire of a full packet
HOP = value("switch.hop") * 1e9


class Packet:
    """One packet of a flow. path : ports still ahead. queue, important : as the tagger says;
    remaining : packets that the flow had left when it was sent."""

    __slots__ = ("flow", "number", "path", "hop", "queue", "important", "marked", "remaining")

    def __init__(self, flow, number, path, queue, important, remaining):
        self.flow, self.number, self.path, self.hop = flow, number, path, 0
        self.queue, self.important, self.marked = queue, important, False
        self.remaining = remaining


class Fifo:
    """DCTCP's switch (Alizadeh et al., SIGCOMM 2010): one queue, marks above K, drops at a limit.

    threshold, limit : packets.
    """

    def __init__(self, threshold=65, limit=250):
        self.threshold, self.limit, self.waiting = threshold, limit, deque()

    def put(self, packet):
        """True if the packet was taken."""
        if len(self.waiting) >= self.limit:
            return False
        packet.marked |= len(self.waiting) + 1 > self.threshold
        self.waiting.append(packet)
        return True

    def get(self):
        return self.waiting.popleft() if self.waiting else None


class Shortest:
    """pFabric's switch (Alizadeh et al., SIGCOMM 2013): least remaining first, most dropped first.

    limit : packets, two bandwidth-delay products.
    """

    def __init__(self, limit=134):
        self.limit, self.waiting, self.count = limit, [], 0

    def put(self, packet):
        self.count += 1
        insort(self.waiting, (packet.remaining, self.count, packet))
        if len(self.waiting) <= self.limit:
            return True
        return self.waiting.pop()[2] is not packet

    def get(self):
        return self.waiting.pop(0)[2] if self.waiting else None


class Priorities:
    """Our switch: the rule of `gradnic.models.transport.egress.Egress`, in packets.

    thresholds : of each queue; a packet above it is dropped if it is not important and marked if
    it is. limit : of each queue.
    """

    def __init__(self, thresholds=(40, 45, 50, 55, 60, 65, 65, 65), limit=250):
        self.thresholds, self.limit = thresholds, limit
        self.waiting = [deque() for _ in thresholds]

    def put(self, packet):
        waiting = self.waiting[packet.queue]
        depth = len(waiting) + 1
        if depth > self.limit:
            return False
        if depth > self.thresholds[packet.queue]:
            if not packet.important:
                return False
            packet.marked = True
        waiting.append(packet)
        return True

    def get(self):
        for waiting in self.waiting:
            if waiting:
                return waiting.popleft()
        return None


class Fabric:
    """Leaves of `per_leaf` hosts, each leaf linked to every spine; all links of one rate.

    make : function that gives a port its queues. gbps : of every link. The hosts' own ports never
    drop: a host waits.
    """

    def __init__(self, n_leaves, per_leaf, n_spines, make, *, gbps=100):
        self.n_leaves, self.per_leaf, self.n_spines = n_leaves, per_leaf, n_spines
        self.n_hosts = n_leaves * per_leaf
        self.time = FRAME * 8 / gbps  # of a packet on a link
        self.now, self._count, self._events = 0.0, 0, []
        self._up = self.n_hosts  # ports: hosts, leaf to spine, spine to leaf, leaf to host
        self._down = self._up + n_leaves * n_spines
        self._last = self._down + n_leaves * n_spines
        n_ports = self._last + self.n_hosts
        self.queues = [deque() if i < self.n_hosts else make() for i in range(n_ports)]
        self.busy = [False] * n_ports
        self.dropped = 0

    def path(self, source, to, spine):
        """Ports from one host to another over a spine, which is not used inside a leaf."""
        a, b = source // self.per_leaf, to // self.per_leaf
        if a == b:
            return (source, self._last + to)
        return (source, self._up + a * self.n_spines + spine,
                self._down + spine * self.n_leaves + b, self._last + to)  # fmt: skip

    def delay(self, source, to):
        """One way of a small packet, for what travels beside the data."""
        return HOP * (2 if source // self.per_leaf == to // self.per_leaf else 4)

    def at(self, time, act, *what):
        """Call act(*what) at `time`."""
        self._count += 1
        heapq.heappush(self._events, (time, self._count, act, what))

    def send(self, packet):
        """The packet's host queues it."""
        self._enter(packet)

    def waiting(self, host):
        """Packets in a host's own queue."""
        return len(self.queues[host])

    def _enter(self, packet):
        port = packet.path[packet.hop]
        queue = self.queues[port]
        if port < self.n_hosts:
            queue.append(packet)
        elif not queue.put(packet):
            self.dropped += 1
            return
        if not self.busy[port]:
            self._start(port)

    def _start(self, port):
        queue = self.queues[port]
        packet = (queue.popleft() if queue else None) if port < self.n_hosts else queue.get()
        self.busy[port] = packet is not None
        if packet is not None:
            self.at(self.now + self.time, self._sent, port, packet)

    def _sent(self, port, packet):
        packet.hop += 1
        self.at(self.now + HOP, self._arrive, packet)
        self._start(port)
        if port < self.n_hosts:
            packet.flow.left(packet)

    def _arrive(self, packet):
        if packet.hop == len(packet.path):
            packet.flow.received(packet)
        else:
            self._enter(packet)

    def run(self, unfinished, limit=1e9):
        """Until `unfinished`() is 0. RuntimeError after `limit` nanoseconds."""
        while unfinished():
            if not self._events or self.now > limit:
                raise RuntimeError(f"{unfinished()} flows do not end by {self.now / 1e6:.1f} ms")
            self.now, _, act, what = heapq.heappop(self._events)
            act(*what)
