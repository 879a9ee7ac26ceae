"""N cards of RTL, offload cards or cards with jobs, with their memories, as one library.

One card becomes a C++ class (Verilator); ``cluster.cpp`` makes as many as there are nodes, a
memory behind each AXI4 port, and carries frames between them, cycle by cycle. Here is what a bench
does with such cards whatever they run: ports, tables, memory, frames, and counters.
"""

import ctypes

import numpy as np
from amaranth.hdl import Shape
from gradnic.models.schedule.ethernet_cards import FLOAT, EthernetCards
from gradnic.models.transport.tagger import default_dscp

from gradnic.interface.offload import Drop
from gradnic.interface.schedule_table import Layout

from ..engine import encoding
from .pauses import drawn

PAGE = 4096
UNIT = 16
JOB = 7
N_NODES = 64
LAYOUT = Layout.for_nodes(N_NODES, ports=4)  # one library serves most tables
LATE = 2000  # cycles after which a card should have given what a burst under way waits for
MOST_PROBE = (1 << 24) - 1  # what the register takes
PATHS = 8
PROBES = 30  # that may be lost, or their answers, one after the other
PROBE_BYTES = 88  # of a link, for a PROBE or an answer


def rest(t_probe, faults, *, n_chunks=0, link_bytes=1.0):
    """Cycles in which no memory moves a beat, though there is something to do: cards hang.

    n_chunks : of a table, whose PROBEs go once more after `t_probe`, or when the link, of
    `link_bytes` a cycle, has taken those and as many answers.
    """
    return PROBES * again(t_probe, n_chunks, link_bytes) + 2 * (faults.delay + faults.reorder)


def again(t_probe, n_chunks, link_bytes):
    """Cycles from a PROBE to the next one of the same, see `rest`."""
    return max(t_probe, int(2 * n_chunks * PROBE_BYTES / link_bytes))


def probing(tables, faults, skew, n_bytes, port_bytes, link_bytes=None):
    """Cycles between PROBEs that cards are told to keep, as the network model has them.

    skew : cycles that each of 8 paths is longer than the one before. n_bytes, port_bytes : of
    words and of ports. link_bytes : a cycle; None: what a port takes.
    """
    cards = EthernetCards.of(n_bytes // FLOAT, port_bytes // FLOAT)
    hops = max((len(t.paths[one["path"]]) for t in tables for one in t.peers), default=1)
    longest = hops * faults.delay + faults.reorder + (PATHS - 1) * skew
    return min(cards.probing(longest, link_bytes or port_bytes), MOST_PROBE)


class Rules(ctypes.Structure):
    """What links, memories and switches go by, as ``cluster.cpp`` has it."""

    _fields_ = [
        ("link_bytes", ctypes.c_double),
        ("memory_latency", ctypes.c_int64),
        *((name, ctypes.c_uint32) for name in ("loss", "duplicate", "seed")),
        *((name, ctypes.c_int32) for name in ("delay", "reorder", "skew")),
        ("dead", ctypes.c_uint32),
        *((name, ctypes.c_int64) for name in ("limit", "threshold")),
    ]


SENT = np.dtype(
    [
        ("at", "i8"),
        ("node", "i4"),
        ("port", "i4"),
        ("length", "i4"),
        ("copies", "i4"),
        ("start", "i8"),
    ]
)


def dead_paths(faults):
    """``Rules.dead`` of `LinkFaults`."""
    return sum(1 << path for path in set(faults.dead))


class Cards:
    """Cards of one library on one topology; who inherits it builds them.

    Attributes
    ----------
    library, _ports : of `gradnic.sim.offload.library.build`
    table, topology, books : schedule table and its network, and addresses, a dict {node: address} a
        node
    n_ranks, n_ports : int, entries of a place, ports of a card
    egress : (int, int), beats that an egress queue of the cards holds, and marks from; or None
    """

    def __del__(self):
        if getattr(self, "_self", None):
            self.library.cluster_delete(self._self)
            self._self = None

    def _set(self, node, name, value):
        number, port = self._ports[name]
        shape = port.shape
        if isinstance(value, dict | list):
            value = shape.const(value).as_value().value
        width = (Shape.cast(shape).width + 7) // 8
        row = np.frombuffer(int(value).to_bytes(width, "little"), np.uint8)
        self.library.cluster_set(self._self, node, number, row.ctypes.data)

    def _get(self, node, name):
        number, port = self._ports[name]
        row = np.zeros((1, port.size), np.uint8)
        self.library.cluster_get(self._self, node, number, row.ctypes.data)
        return int.from_bytes(row.tobytes(), "little")

    def _fields(self, node, name):
        """Fields of a port: {name: number}."""
        _, port = self._ports[name]
        row = np.frombuffer(self._get(node, name).to_bytes(port.size, "little"), np.uint8)
        return {k: int(v[0]) for k, v in encoding.unpack(port.shape, row[None]).items()}

    def _write(self, node, name, value):
        self._set(node, name, value)
        self._tick(node)

    def _tick(self, node, n=1):
        for _ in range(n):
            self.library.cluster_tick(self._self, node)

    def _rows(self, node, layout, rows, first=0):
        """Load a schedule table, from row `first` on."""
        image, size = layout.pack(rows), layout.row_bytes
        self._set(node, "table_en", 1)
        for at in range(len(rows)):
            word = int.from_bytes(image[at * size : (at + 1) * size], "little")
            self._set(node, "table_addr", first + at)
            self._write(node, "table_data", word)
        self._set(node, "table_en", 0)

    def _neighbors(self, node):
        """Load own address and those of all others; {node: its number as a neighbor}."""
        book, own = self.books[node], self.books[node][node]
        self._set(
            node, "own", {"mac": own.mac, "ip": own.ip, "node": node, "udp_port": own.udp_port}
        )
        index = {u: k for k, u in enumerate(u for u in book if u != node)}
        for u, number in index.items():
            a = book[u]
            entry = {"valid": 1, "node": u, "port": a.port, "mac": a.mac, "ip": a.ip}
            self._write(node, "neighbor", {"enable": 1, "index": number, "neighbor": entry})
        self._set(node, "neighbor", {})
        return index

    def _places(self, node, plan, index, first=0):
        """Who contributes to each chunk, and who sends its sum: entries from `first` on."""
        self._set(node, "place_en", 1)
        for chunk in range(plan.n_chunks):
            up = [{} for _ in range(self.n_ranks)]
            for u, contributions in plan.up[node].items():
                if chunk in contributions:
                    one = contributions[chunk]
                    entry = {"neighbor": index[u], "leaves": one.leaves, "flow": one.flow}
                    up[one.rank] = {"valid": 1, **entry}
            down = [index[u] for u, chunks in plan.down[node].items() if chunk in chunks]
            self._set(node, "place_addr", first + chunk)
            parent = {"valid": len(down), "neighbor": sum(down)}
            self._write(node, "place_data", {"up": up, "down": parent})
        self._set(node, "place_en", 0)

    def _tags(self, node, threshold):
        """Load queue by layer, the default DSCPs, and the score from which on size is important."""
        entries = [{"layer": 1, "address": k, "value": k} for k in range(8)]
        for queue, pair in enumerate(default_dscp()):
            for important, dscp in enumerate(pair):
                entries.append({"dscp": 1, "address": 2 * queue + important, "value": dscp})
        for entry in [*entries, {"threshold": 1, "value": threshold}]:
            self._write(node, "tag_write", entry)
        self._set(node, "tag_write", {})

    def _queues(self, node):
        """Load what egress queues hold, and mark from, if there are any."""
        if self.egress:
            limit, threshold = self.egress
            for address, beats in enumerate([threshold] * 8 + [limit]):
                self._write(node, "queue_write", {"enable": 1, "address": address, "beats": beats})
            self._set(node, "queue_write", {})

    def _ways(self):
        """{(sender, receiver): links that a frame takes}; answers go back as messages came."""
        back, paths = self.topology.reverse, self.table.paths
        there = {(int(one["node"]), int(one["to"])): paths[one["path"]] for one in self.table.peers}
        return {(u, v): back[[*path]][::-1] for (v, u), path in there.items()} | there

    def _routes(self):
        """int32 (n, n, 2): port at which the receiver hears the sender, and links between them."""
        n, ways = self.table.n_nodes, self._ways()
        routes = np.full((n, n, 2), -1, np.int32)
        for v, book in enumerate(self.books):
            for u, address in book.items():
                if u != v:
                    routes[u, v] = address.port, len(ways.get((u, v), (0,)))
        return routes

    def _join_switches(self, port_bytes):
        """Give links between switches the speeds that they have, where a frame takes any."""
        n, inner = self.table.n_nodes, [[] for _ in range(self.table.n_nodes**2)]
        for (v, u), way in self._ways().items():
            inner[v * n + u] = way[1:-1]
        if not any(map(len, inner)):
            return
        speeds = self.topology.behind(port_bytes).bandwidth
        speeds = np.ascontiguousarray(speeds / speeds[self.topology.at_nodes][0], np.float64)
        starts = np.cumsum([0, *map(len, inner)]).astype(np.int32)
        links = np.array([link for way in inner for link in way], np.int32)
        self.library.cluster_fabric(
            self._self, len(speeds), speeds.ctypes.data, starts.ctypes.data, links.ctypes.data
        )

    def _memory(self, node, which, n_bytes):
        at = self.library.cluster_memory(self._self, node, which)
        return np.ctypeslib.as_array((ctypes.c_uint8 * n_bytes).from_address(at))

    def call(self, name, *arguments):
        """A function of the engine, for benches that need more than a run."""
        return getattr(self.library, f"cluster_{name}")(self._self, *arguments)

    def upset(self, node, register, after, bit=0):
        """Let a bit of a card's register change by itself, so many cycles from now."""
        first = self.call("state_first", register.encode())
        if first < 0:
            raise ValueError(f"register must be one of the card, not {register!r}")
        self.call("upset", node, first + bit, after)

    def dram(self, *timings):
        """Make the memories of all cards DRAM, from now on: gradients and results, landings.

        timings : two of `gradnic.sim.offload.dram.timing`. Until then a memory port gives and takes
        a beat in each cycle, after its latency.
        """
        for which, timing in enumerate(timings):
            self.library.cluster_dram(self._self, which, ctypes.byref(timing))

    def pause(self, seed):
        """Make the memories of all cards pause, as `gradnic.sim.offload.pauses.drawn` says; before
        the first run.
        """
        self.library.cluster_pause(self._self, ctypes.byref(drawn(seed)))

    def waits(self, node, n_cycles):
        """What memory waits for at a card's ports, for at least `n_cycles`, as text; or empty."""
        return self.library.cluster_waits(self._self, node, n_cycles).decode()

    def waiting(self, n_cycles):
        """The same of all cards, which it names."""
        nodes = range(self.table.n_nodes)
        return "".join(f"card {v}: {reason}" for v in nodes if (reason := self.waits(v, n_cycles)))

    def send(self, node, port, frame):
        """Queue a frame of this node's host; it leaves in the next run."""
        self.library.cluster_send(self._self, node, port, len(frame), frame)

    def inject(self, node, port, at, frame):
        """Let a frame arrive at a port, `at` cycles after the next run's start."""
        self.library.cluster_inject(self._self, node, port, at, len(frame), frame)

    def to_host(self, node, port, first=0):
        """Frames that went to the host of a port so far, in order, from number `first` on."""
        octets = ctypes.c_void_p()

        def got(index):
            return self.library.cluster_got(self._self, node, port, index, ctypes.byref(octets))

        lengths = ((k, got(k)) for k in range(first, got(-1)))
        return [ctypes.string_at(octets.value, n) for _, n in lengths]

    def counts(self, node):
        """What the card counted in the runs so far: {name: number}."""
        names = [*[drop.name.lower() for drop in Drop][1:], "accepted", "given_up", "outside"]
        names += ["foreign", "oversize", "overrun", "answered", "responses", "switch_dropped"]
        names += ["switch_marked"]
        numbers = (ctypes.c_int64 * len(names))()
        self.library.cluster_counts(self._self, node, numbers)
        return dict(zip(names, numbers, strict=True))

    def queued(self, node):
        """int64 (n_ports, 2, 8, 4): frames that cards with egress queues counted so far, by
        importance, queue, and what became of them: enqueued, and marked, dropped at the threshold,
        at the limit.
        """
        found = np.zeros((self.n_ports, 2, 8, 4), np.int64)
        for port, flat in enumerate(found.reshape(self.n_ports, -1)):
            for count in range(flat.size):
                self._set(node, "queue_shown", {"count": count, "port": port})
                self._tick(node)
                flat[count] = self._get(node, "queue_count")
        return found

    def by_queues(self):
        """Frames that queues dropped, and marked, so far: the cards' own, or those of switches."""
        nodes = range(self.table.n_nodes)
        if self.egress:
            frames = np.array([self.queued(node) for node in nodes]).sum((0, 1, 2, 3))
            return int(frames[2:].sum()), int(frames[1])
        counts = [self.counts(node) for node in nodes]
        return tuple(sum(c[f"switch_{what}"] for c in counts) for what in ("dropped", "marked"))

    def _sent(self):
        records, octets = ctypes.c_void_p(), ctypes.c_void_p()
        n = self.library.cluster_sent(self._self, ctypes.byref(records), ctypes.byref(octets))
        if not n:
            return np.zeros(0, SENT), []
        raw = (ctypes.c_uint8 * (n * SENT.itemsize)).from_address(records.value)
        sent = np.frombuffer(bytes(raw), SENT)
        size = int(sent[-1]["start"] + sent[-1]["length"])
        data = bytes((ctypes.c_uint8 * size).from_address(octets.value))
        return sent, [data[r["start"] : r["start"] + r["length"]] for r in sent]

    def _given_up(self):
        """(node, source, number, tensor, gen) of the packets given up in the last run; the last two
        are 0 on cards of single rounds.
        """
        rows = ctypes.c_void_p()
        n = self.library.cluster_given(self._self, ctypes.byref(rows))
        if not n:
            return []
        raw = (ctypes.c_int32 * (5 * n)).from_address(rows.value)
        others = [[u for u in book if u != node] for node, book in enumerate(self.books)]
        return [
            (node, others[node][neighbor], *fields)
            for node, neighbor, *fields in np.array(raw).reshape(n, 5).tolist()
        ]
