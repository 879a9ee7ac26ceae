"""N cards of RTL on the flit layer, their links and switches, in one compiled model.

``cluster.cpp`` carries flits and credits between the cards, cycle by cycle: bandwidth,
latency, finite buffers, and switches that forward worms. Python fills tables and memories and
starts the round.
"""

import ctypes
from dataclasses import dataclass, field
from functools import partial

import numpy as np
from amaranth.hdl import Shape
from gradnic.hdl.reduction.reduce import Op
from gradnic.models.direct.card import all_reduce
from gradnic.models.inceptionn.bands import bands
from gradnic.models.schedule.network_model import lanes_of

from gradnic.interface.flit import CHUNK_FLOATS, FLIT_BYTES, Share, contributions
from gradnic.interface.schedule_table import Layout
from gradnic.text_file import apart

from ..engine import encoding
from ..engine.batch_job import ALWAYS
from ..engine.cluster_library import AT_ONCE, fitting, to_the_end
from .library import build

MAX_WORDS = 16384  # of a card's memory


@dataclass(frozen=True)
class Wires:
    """Links as the cards see them: latency in cycles, flits per cycle, credits per neighbor."""

    latency: int = 150
    bytes_per_cycle: float = 16
    credits: int = 318

    def __post_init__(self):
        if self.latency < 1:
            raise ValueError(f"link latency must be 1 or more, not {self.latency}")
        if not 0 < self.bytes_per_cycle <= FLIT_BYTES:
            raise ValueError(
                f"link bytes per cycle must be above 0 and at most {FLIT_BYTES}, not "
                f"{apart(self.bytes_per_cycle, FLIT_BYTES)}"
            )


class _Line(ctypes.Structure):
    _fields_ = [
        *((name, ctypes.c_int32) for name in ("source", "source_port", "to", "to_port")),
        ("latency", ctypes.c_int64),
        ("flits", ctypes.c_double),
        ("n_lanes", ctypes.c_int64),
    ]


_RECORD = np.dtype([(name, "i8") for name in ("flits", "heads", "first", "last")])


@dataclass
class Result:
    """What one all-reduce of a cluster left behind.

    cycles : from the start of all nodes to the last node's done; None if some node never was.
    done : int64 (n_nodes,), -1 where a node was not done.
    replicas : float32 (n_nodes, n_floats).
    links : record array (n_links,) of {flits, heads, first, last}: first and last are cycles.
    speeds : float64 (n_links,), flits a cycle that each link can carry.
    status : per node {name: value} of the scheduler's status, `broken`, `foreign` and `overflow`.
    """

    cycles: int | None
    done: np.ndarray
    replicas: np.ndarray = field(repr=False)
    links: np.ndarray = field(repr=False)
    speeds: np.ndarray = field(repr=False)
    status: list = field(repr=False)

    @property
    def busiest_link_share(self):
        """Share of the time between its first and last flit in which the busiest link carried."""
        needs = self.links["flits"] / self.speeds  # cycles
        busiest = self.links[needs.argmax()]
        span = int(busiest["last"] - busiest["first"]) + 1
        return float(needs.max() / span) if busiest["flits"] else 0.0


class Cluster:
    """Cards that run one table on one topology, for tensors of one size.

    Parameters
    ----------
    table : gradnic.interface.schedule_table.Table
    topology : gradnic.models.schedule.topology.Topology
        Cards need a port for each of their links; paths through nodes are refused, and switches
        forward without virtual channels.
    n_floats : int
    wires : Wires
    n_lanes : int
        8, 16 or 32; 0: the smallest that is 8 times the ports, or 32.
    packets : bool
        A head per 256 bytes, not per message.
    op : gradnic.hdl.reduction.reduce.Op
        What the values are, and how they are added; other than floats they are 32-bit words of
        integers, as float32 by their bits.
    codec : dict or None
        Settings of `gradnic.models.inceptionn` {exponent, mode, prescale}: floats are coded on
        every hop, and the root of a tree keeps the codec's image.
    watchdog : int
        Cycles without progress until a card calls a row stuck.
    """

    def __init__(
        self,
        table,
        topology,
        n_floats,
        *,
        wires=None,
        n_lanes=0,
        packets=False,
        op=Op.FLOAT,
        codec=None,
        watchdog=100_000,
    ):
        wires = wires or Wires()
        if codec and (packets or op != Op.FLOAT):
            raise ValueError("the codec takes floats, in messages whose units have heads anyway")
        if codec:
            bands(**codec)
        self.op, self.codec = Op(op), codec
        n_ports = max(len(topology.out[v]) for v in range(topology.n_nodes))
        if topology.port_limited or n_ports > 8:
            raise ValueError(f"{topology.name}: cards need a port for each of {n_ports} links")
        for path in table.paths:
            inner = topology.links[list(path[1:]), 0]
            if (inner < topology.n_nodes).any():
                raise ValueError(f"{table.name} sends through nodes, and cards never forward")
        self.table, self.topology, self.n_floats = table, topology, n_floats
        n_chunks = table.n_chunks * table.repeats
        n_lanes = n_lanes or lanes_of(topology)
        ranks = contributions(table)
        self.shares = [Share(n_lanes, n_floats, n_chunks, r) for r in ranks]
        share = self.shares[0]
        places = max(n_chunks, *(s.n_places for s in self.shares))
        n_words = fitting("words of a memory", places * share.chunk_words, 1024, MAX_WORDS)
        layout = Layout.for_nodes(
            table.n_nodes, ports=n_ports, chunks=-(-n_chunks // table.n_nodes)
        )
        try:
            layout.pack(table.rows)
        except ValueError:  # a periodic table, or one for other cards
            layout = Layout.fit(table.rows)
        rows = int(np.bincount(table.rows["node"]).max())
        depth = fitting("rows of a node", rows, 64, 512, 2048, 16384)
        self._library, self._ports = build(
            layout,
            n_ports=n_ports,
            n_lanes=n_lanes,
            n_words=n_words,
            depth=depth,
            n_chunks=fitting("chunks", n_chunks, 16, 64, 1024, 8192),
            credits=wires.credits,
            integers=op != Op.FLOAT,
            coded=codec is not None,
        )
        self._self = self._new(wires)
        for node in range(table.n_nodes):
            self._configure(node, layout, packets, watchdog)

    def __del__(self):
        if getattr(self, "_self", None):
            self._library.cluster_delete(self._self)
            self._self = None

    def _new(self, wires):
        t = self.topology
        latency = t.latencies(wires.latency)
        self._speeds = t.bandwidth * wires.bytes_per_cycle / FLIT_BYTES
        of_ports = max(t.bandwidth[(t.links < t.n_nodes).any(axis=1)])
        lines = (_Line * t.n_links)()
        for link, (a, b) in enumerate(t.links.tolist()):
            port = [next_to for _, next_to in t.out[a]].index(b)
            back = [next_to for _, next_to in t.out[b]]
            to_port = back.index(a) if a in back else -1
            if b < t.n_nodes and to_port < 0:
                raise ValueError(f"{t.name}: link {a}-{b} has no link back for its credits")
            flits, n_lanes = self._speeds[link], int(t.bandwidth[link] // of_ports) or 1
            if min(a, b) < t.n_nodes and flits > 1:
                raise ValueError(f"{t.name}: link {a}-{b} is faster than a card's port")
            lines[link] = _Line(a, port, b, to_port, int(latency[link]), flits, n_lanes)
        starts = np.cumsum([0, *map(len, self.table.paths)]).astype(np.int32)
        hops = np.array([link for path in self.table.paths for link in path], np.int32)
        return self._library.cluster_new(
            t.n_nodes, t.n_vertices, t.n_links, ctypes.byref(lines), len(self.table.paths),
            starts.ctypes.data, hops.ctypes.data, wires.credits,
        )  # fmt: skip

    def _set(self, node, name, value=None, **fields):
        number, port = self._ports[name]
        shape = port.shape
        if value is None:
            row = encoding.pack(shape, **{k: np.array([v]) for k, v in fields.items()})
        else:
            width = (Shape.cast(shape).width + 7) // 8
            row = np.frombuffer(int(value).to_bytes(width, "little"), np.uint8)
        row = np.ascontiguousarray(row)
        self._library.cluster_set(self._self, node, number, row.ctypes.data)

    def _write(self, node, kind, rows):
        """Fill one of the card's tables: `rows` of {field: value}, or integers."""
        self._set(node, f"{kind}_en", 1)
        data = "table_data" if kind == "table" else kind
        for at, row in enumerate(rows):
            self._set(node, f"{kind}_addr", at)
            if isinstance(row, dict):
                self._set(node, data, **row)
            else:
                self._set(node, data, row)
            self._library.cluster_tick(self._self, node)
        self._set(node, f"{kind}_en", 0)

    def _configure(self, node, layout, packets, watchdog):
        table, share = self.table, self.shares[node]
        rows = table.of(node)
        image, size = layout.pack(rows), layout.row_bytes
        self._write(
            node,
            "table",
            [int.from_bytes(image[k : k + size], "little") for k in range(0, len(image), size)],
        )
        self._write(
            node,
            "entry",
            [{"base": b, "ranks": r} for b, r in zip(share.base, share.ranks, strict=True)],
        )
        peers = table.peers[table.peers["node"] == node]
        self._write(node, "peer", [{"port": p["port"], "route": p["path"]} for p in peers])
        full, last = share.chunk_flits
        stages = int(rows["repeat"].max(initial=0)) if table.period else 1
        setup = {
            "scheduler": {
                "rows": len(rows),
                "chunks": share.n_chunks,
                "live": share.live,
                "peers": len(peers),
                "stride": table.n_chunks,
                "repeats": table.repeats,
                "iterations": table.repeats + stages - 1,
                "watchdog": watchdog,
            },
            "places": {
                "chunk_words": share.chunk_words,
                "chunk_flits": full,
                "last_flits": last,
                "live": share.live,
            },
            "op": self.op,
            "packets": packets,
        }
        if self.codec:
            exponent, prescale = self.codec["exponent"], self.codec["prescale"] & 0xFF
            paper = self.codec["mode"] == "paper"
            setup["codec"] = {"exponent": exponent, "paper": paper, "prescale": prescale}
        self._set(node, "setup", _packed(self._ports["setup"][1].shape, setup))

    def golden(self, values):
        """What `run` must leave behind: the sums in the order of ranks, through the codec."""
        return all_reduce(self.table, values, op=self.op.name.lower(), codec=self.codec)

    def run(self, gradients, *, starts=None, duty=1.0, seed=1, max_cycles=None):
        """One all-reduce of `gradients`, float32 (n_nodes, n_floats); a `Result`.

        starts : cycle at which each node starts, default 0. duty : chance that a link takes a flit
        in a cycle. max_cycles : default generous. ValueError behind an abort or a fault.
        """
        n_nodes = self.table.n_nodes
        gradients = np.ascontiguousarray(gradients, np.float32)
        if gradients.shape != (n_nodes, self.n_floats):
            raise ValueError(
                f"gradients must be ({n_nodes}, {self.n_floats}), not {gradients.shape}"
            )
        for node in range(n_nodes):
            if self._status(node)["broken"]:
                raise ValueError(
                    f"node {node} takes no start: there was an abort or a fault, so all cards must "
                    "be reset (a new Cluster)"
                )
        for node, values in enumerate(gradients):
            words = self.shares[node].to_words(values)
            self._library.cluster_load(
                self._self, node, len(words), words.itemsize * words.shape[1], words.ctypes.data
            )
        starts = np.zeros(n_nodes, np.int64) if starts is None else np.asarray(starts, np.int64)
        done = np.zeros(n_nodes, np.int64)
        links = np.zeros(self.topology.n_links, _RECORD)
        if max_cycles is None:
            max_cycles = int(starts.max()) + 200_000 + 40 * self.n_floats
        threshold = ALWAYS if duty >= 1 else int(duty * 2.0**64)
        cycles = self._library.cluster_run(
            self._self, starts.ctypes.data, max_cycles, threshold, seed, AT_ONCE
        )
        cycles = to_the_end(partial(self._library.cluster_go, self._self), cycles)
        self._library.cluster_told(self._self, done.ctypes.data, links.ctypes.data)
        replicas = np.stack([self._dump(node) for node in range(n_nodes)])
        status = [self._status(node) for node in range(n_nodes)]
        cycles = None if cycles < 0 else int(done.max())
        return Result(cycles, done, replicas, links, self._speeds, status)

    def _dump(self, node):
        share = self.shares[node]
        words = np.zeros((share.n_chunks * share.chunk_words, share.n_lanes), np.uint32)
        self._library.cluster_dump(
            self._self, node, len(words), 4 * share.n_lanes, words.ctypes.data
        )
        return share.from_words(words)

    def _status(self, node):
        result = {}
        for name in ("status", "broken", "foreign", "overflow"):
            number, port = self._ports[name]
            row = np.zeros((1, port.size), np.uint8)
            self._library.cluster_get(self._self, node, number, row.ctypes.data)
            value = encoding.unpack(Shape.cast(port.shape) if name != "status" else port.shape, row)
            if name == "status":
                result |= {k: int(v[0]) for k, v in value.items()}
            else:
                result[name] = int(value[0])
        return result


def most_floats(table, topology, n_lanes=0):
    """The largest tensor that the cards of a table hold, with what lands, in `MAX_WORDS` words."""
    n_lanes, n_chunks = n_lanes or lanes_of(topology), table.n_chunks * table.repeats
    places = max(n_chunks, *(int(ranks.sum()) for ranks in contributions(table)))
    return MAX_WORDS // places * n_lanes // CHUNK_FLOATS * CHUNK_FLOATS * n_chunks


def _packed(shape, values):
    """Integer of a struct of structs, fields that are not named 0."""
    total = 0
    for name, member in shape:
        value = values.get(name, 0)
        inner = _packed(member.shape, value) if isinstance(value, dict) else int(value)
        total |= inner << member.offset
    return total


@dataclass
class Cosim:
    """An all-reduce by RTL beside the golden one: see `cosim`.

    mismatches : elements of all replicas that differ; first : the first of them in words, or who
    never finished.
    """

    ok: bool
    nodes: int
    cycles: int | None
    bit_exact: bool
    mismatches: int
    first: str | None
    busiest_link_share: float
    flits: int
    result: Result = field(repr=False)

    def summary(self):
        """Everything that fits into JSON."""
        names = ("ok", "nodes", "cycles", "bit_exact", "mismatches", "first", "flits")
        return {name: getattr(self, name) for name in (*names, "busiest_link_share")}


def cosim(table, topology, gradients, *, cluster=None, **options):
    """One all-reduce of `gradients` by RTL, compared bit for bit with `Cluster.golden`.

    cluster : a `Cluster` to run on; else one is built. options : of `Cluster.run`.
    """
    gradients = np.ascontiguousarray(gradients, np.float32)
    cluster = cluster or Cluster(table, topology, gradients.shape[1])
    result = cluster.run(gradients, **options)
    expected = cluster.golden(gradients)
    differs = result.replicas.view(np.uint32) != expected.view(np.uint32)
    first = None
    late = np.flatnonzero(result.done < 0)
    if len(late):
        s = result.status[late[0]]
        first = f"node {late[0]} is not done: row {s['row']}, chunk {s['chunk']}"
        first += ", stuck" if s["stuck"] else ""
    elif differs.any():
        node, at = np.argwhere(differs)[0]
        got, want = (x[node, at].view(np.uint32) for x in (result.replicas, expected))
        first = f"node {node}, element {at}: {got:#010x}, not {want:#010x}"
    bad = [n for n, s in enumerate(result.status) if s["foreign"] or s["overflow"] or s["fault"]]
    if bad and first is None:
        first = f"node {bad[0]}: {result.status[bad[0]]}"
    return Cosim(
        ok=first is None,
        nodes=table.n_nodes,
        cycles=result.cycles,
        bit_exact=not differs.any(),
        mismatches=int(differs.sum()),
        first=first,
        busiest_link_share=result.busiest_link_share,
        flits=int(result.links["flits"].sum()),
        result=result,
    )
