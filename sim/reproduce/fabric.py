"""Networks packet by packet: ports with queues, packets that cross them, leaves and spines.

Output-queued switches, store and forward; acknowledgments and control are packets among the others.
About 5 us a packet and hop. Times in nanoseconds; events in whole picoseconds, behind each other in
the order in which they were planned, since what a bottleneck paces comes at the same times all
along. `ns3_fabric` has the same networks in ns-3.
"""

import heapq
import math
from bisect import insort
from collections import deque

from gradnic.models.training.constants import value

from gradnic.errors import Unfinished

PAYLOAD = int(value("packet.values"))
FRAME = PAYLOAD + int(value("packet.head"))  # bytes on the wire of a full packet
CONTROL = int(value("packet.control"))  # of one without values
MARK, QUEUE = int(value("dctcp.mark")), int(value("dctcp.queue"))
SHORT_QUEUE, EACH_QUEUE = int(value("pfabric.queue")), int(value("queue.limit"))
HEADS = int(value("trimming.heads"))
MARKS = tuple(min(int(value("queue.mark") + k * value("queue.more")), MARK) for k in range(8))
HOP = value("switch.hop") * 1e9
PS = 1000  # a nanosecond


class Packet:
    """One packet of a flow. path : ports still ahead. queue, important : as the tagger says;
    remaining : packets that the flow had left when it was sent; n_bytes : on the wire.
    """

    __slots__ = (
        "flow",
        "hop",
        "important",
        "marked",
        "n_bytes",
        "number",
        "path",
        "queue",
        "remaining",
        "trimmed",
    )  # fmt: skip

    def __init__(self, flow, number, path, queue, important, remaining, n_bytes=FRAME):
        self.flow, self.number, self.path, self.hop = flow, number, path, 0
        self.queue, self.important, self.marked = queue, important, False
        self.remaining, self.n_bytes, self.trimmed = remaining, n_bytes, False

    first = False

    def arrived(self):
        self.flow.received(self)


class Host:
    """A host's own queue: never drops, a host waits; words of receivers go ahead of packets."""

    def __init__(self):
        self.words, self.packets = deque(), deque()

    def put(self, packet):
        (self.words if packet.first else self.packets).append(packet)
        return True

    def get(self):
        waiting = self.words or self.packets
        return waiting.popleft() if waiting else None


class Word(Packet):
    """A packet of control: where it comes, act(*what) is called. first : goes ahead in its host."""

    __slots__ = ("act", "first", "what")

    def __init__(self, path, queue, act, what, *, first=False):
        super().__init__(None, 0, path, queue, True, 0, CONTROL)
        self.act, self.what, self.first = act, what, first

    def arrived(self):
        self.act(*self.what)


class Fifo:
    """DCTCP's switch (Alizadeh et al., SIGCOMM 2010): one queue, marks above K, drops at a limit.

    threshold, limit : packets.
    """

    def __init__(self, threshold=MARK, limit=QUEUE):
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

    def __init__(self, limit=SHORT_QUEUE):
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
    """Our switch: the rule of `gradnic.models.frame.egress.Egress`, in packets.

    thresholds : of each queue; a packet above it is dropped if it is not important and marked if
    it is. limit : of each queue.
    """

    def __init__(self, thresholds=MARKS, limit=EACH_QUEUE):
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


class Trimming(Priorities):
    """Our switch, trimming as Ultra Ethernet does (specification 1.0): what `Priorities` drops is
    cut to its head, which goes ahead of all queues and tells the receiver what is missing.

    heads : of those at most; more are dropped, as is what has no values.
    """

    def __init__(self, *limits, heads=HEADS, **more):
        super().__init__(*limits, **more)
        self.heads, self.cut = heads, deque()

    def put(self, packet):
        if not packet.trimmed and super().put(packet):
            return True
        if (packet.n_bytes <= CONTROL and not packet.trimmed) or len(self.cut) >= self.heads:
            return False
        packet.trimmed, packet.n_bytes = True, CONTROL
        self.cut.append(packet)
        return True

    def get(self):
        return self.cut.popleft() if self.cut else super().get()


def tick_of(time):
    """The first picosecond that is not before so many nanoseconds."""
    return math.ceil(round(time * PS, 3))


class Network:
    """Hosts behind switches; all links of one rate. Who inherits it says where paths lead.

    n_hosts, per_edge : hosts, and those of one switch. n_links : between switches; each has a port
    at both ends. make : function that gives a port its queues. gbps : of every link.
    """

    def __init__(self, n_hosts, per_edge, n_links, make, *, gbps=100, dead=()):
        self.n_hosts, self.per_edge, self.n_links = n_hosts, per_edge, n_links
        self.time = FRAME * 8 / gbps  # of a packet on a link
        self._bit, self._hop = 8 * PS / gbps, round(HOP * PS)
        self.now, self._tick, self._count, self._events = 0.0, 0, 0, []
        self._last = n_hosts + 2 * n_links  # ports: hosts, switch to switch, switch to host
        n_ports = self._last + n_hosts
        self.queues = [Host() if i < n_hosts else make() for i in range(n_ports)]
        self.busy = [False] * n_ports
        self.dropped = 0
        self.down, self.known = {}, set()  # ports; since which picosecond they are down
        self.epoch = 0  # how often `known` changed
        self._ways = {}
        for link in dead:
            self.down |= dict.fromkeys(self.ports(link), 0)
        self._learn(self.down.keys())

    def ports(self, link):
        """Both ends of a link between switches."""
        raise NotImplementedError

    def ends(self, link):
        """The two switches of a link, the lower first; those of hosts have the first numbers."""
        raise NotImplementedError

    def path(self, source, to, way):
        """Ports from one host to another; way : 0 on, of as many as there are."""
        raise NotImplementedError

    def _n_ways(self, a, b):
        """Between two switches of hosts."""
        raise NotImplementedError

    def ways(self, source, to):
        """Ways from one host to another of which nobody knows that they are down. ValueError if
        there is none.
        """
        key = source // self.per_edge, to // self.per_edge
        if key not in self._ways:
            self._ways[key] = [
                way
                for way in range(self._n_ways(*key))
                if self.known.isdisjoint(self.path(source, to, way))
            ]
        if not self._ways[key]:
            raise ValueError(f"no way is left between hosts {source} and {to}")
        return self._ways[key]

    def fail(self, links, at, known):
        """Links go down, both ways: from time `at` on they lose all; from `known` on all hosts and
        switches take other ways.
        """
        ports = {port for link in links for port in self.ports(link)}
        self.at(at, self._fall, ports)
        self.at(known, self._learn, ports)

    def _fall(self, ports):
        for port in ports:
            self.down.setdefault(port, self._tick)
            while self.queues[port].get() is not None:
                self.dropped += 1

    def _learn(self, ports):
        self.known |= ports
        self.epoch += 1
        self._ways.clear()

    def delay(self, source, to):
        """One way of a small packet, without its bits."""
        return HOP * len(self.path(source, to, 0))

    def answer(self, source, to, queue, act, *what, turn=0):
        """Call act(*what) once a receiver's word has come from host to host, ahead of its data.

        turn : other numbers take other ways.
        """
        ways = self.ways(source, to)
        path = self.path(source, to, ways[(source + to + turn) % len(ways)])
        self.send(Word(path, queue, act, what, first=True))

    def at(self, time, act, *what):
        """Call act(*what) at `time`, or in the picosecond behind it."""
        self._push(max(tick_of(time), self._tick), time, act, what)

    def _push(self, tick, time, act, what):
        self._count += 1
        heapq.heappush(self._events, (tick, self._count, time, act, what))

    def send(self, packet):
        """The packet's host queues it; ``arrived`` is called where its path ends."""
        self._enter(packet)

    def _enter(self, packet):
        port = packet.path[packet.hop]
        if port in self.down or not self.queues[port].put(packet):
            self.dropped += 1
            return
        if not self.busy[port]:
            self._start(port)

    def _start(self, port):
        packet = self.queues[port].get()
        self.busy[port] = packet is not None
        if packet is not None:  # in the order in which ns-3 plans both: it decides between ties
            sent = self._tick + round(self._bit * packet.n_bytes)
            self._push(sent, 0.0, self._start, (port,))
            self._push(sent + self._hop, 0.0, self._arrive, (port, packet))

    def _arrive(self, port, packet):
        packet.hop += 1
        if port in self.down and self.down[port] <= self._tick - self._hop:
            self.dropped += 1  # the link fell before all of it had left
        elif packet.hop == len(packet.path):
            packet.arrived()
        else:
            self._enter(packet)

    def run(self, unfinished, limit=1e9):
        """Until `unfinished`() is 0. `Unfinished` after `limit` nanoseconds."""
        while unfinished():
            if not self._events or self.now > limit:
                raise Unfinished(f"{unfinished()} flows do not end by {self.now / 1e6:.1f} ms")
            self._tick, _, time, act, what = heapq.heappop(self._events)
            self.now = max(time, self._tick / PS)  # nobody wakes early
            act(*what)


class Fabric(Network):
    """Leaves of `per_leaf` hosts, each leaf linked to every spine; all links of one rate.

    make : function that gives a port its queues. gbps : of every link. dead : links that are down,
    both ways, of which all know, leaf * n_spines + spine.
    """

    def __init__(self, n_leaves, per_leaf, n_spines, make, **options):
        self.n_leaves, self.n_spines = n_leaves, n_spines
        super().__init__(n_leaves * per_leaf, per_leaf, n_leaves * n_spines, make, **options)

    def ports(self, link):
        leaf, spine = divmod(link, self.n_spines)
        return self.n_hosts + link, self.n_hosts + self.n_links + spine * self.n_leaves + leaf

    def ends(self, link):
        leaf, spine = divmod(link, self.n_spines)
        return leaf, self.n_leaves + spine

    def _n_ways(self, a, b):
        return 1 if a == b else self.n_spines

    def path(self, source, to, way):
        """Ports from one host to another over spine `way`, which is not used inside a leaf."""
        a, b = source // self.per_edge, to // self.per_edge
        if a == b:
            return (source, self._last + to)
        up, _ = self.ports(a * self.n_spines + way)
        _, down = self.ports(b * self.n_spines + way)
        return (source, up, down, self._last + to)
