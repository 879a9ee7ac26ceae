"""N offload cards in RTL with their memories, over links that lose, copy and reorder frames.

One card becomes a C++ class (Verilator); ``cluster.cpp`` makes as many as there are nodes, a
memory behind each AXI4 port, and carries frames between them, cycle by cycle. What happens to a
frame is a function of (seed, link, number), the same as for the golden cluster.
"""

import ctypes
from dataclasses import dataclass, field
from functools import partial

import numpy as np
from gradnic.models.offload.cluster import LinkFaults, addresses
from gradnic.models.offload.codec import Inceptionn, Norms, Thc
from gradnic.models.offload.plan import Plan
from gradnic.models.schedule.ethernet_cards import probe_time
from gradnic.models.thc import worker as thc
from gradnic.models.transport.tagger import default_dscp

from gradnic.errors import Unfinished
from gradnic.interface.schedule_table import Layout

from ..engine.cluster_library import AT_ONCE, fitting, to_the_end
from .cards import JOB, LATE, LAYOUT, PAGE, UNIT, Cards, Rules, dead_paths, rest
from .library import build

ELEM_BYTES = 4
TENSOR, GEN = 1, 1
MOST, SLOW = 2_000_000, 100  # cycles of a round, and of each of its elements


@dataclass
class Result:
    """What one round of a cluster left behind.

    cycles : until the last card was done; None if some never was. done : int64 (n_nodes,).
    replicas : (n_nodes, n_elems), as `values`, but sums of levels for THC. sent : record array of
    all frames that left, in order. frames : their bytes. status : of the scheduler, a dict a node.
    given_up : {(node, source): numbers of packets}. dropped, marked : frames, by switches.
    """

    cycles: int | None
    done: np.ndarray
    replicas: np.ndarray = field(repr=False)
    sent: np.ndarray = field(repr=False)
    frames: list = field(repr=False)
    status: list = field(repr=False)
    given_up: dict = field(repr=False)
    dropped: int = 0
    marked: int = 0


class OffloadCluster(Cards):
    """Cards that run one table on one topology.

    Parameters
    ----------
    table : gradnic.interface.schedule_table.Table
    topology : gradnic.models.schedule.topology.Topology
    n_elems : int
    codec : of `gradnic.models.offload.codec`: Raw, Inceptionn, Norms, or Thc with b = 4 and w = 8
    p : float
        Share of leaf contributions that may miss, end to end.
    at_share : bool
        When a range may miss: see `gradnic.models.transport.reception.Reception`.
    n_bytes : int
        Of a beat, 16, 32, 64 or 128.
    port_bytes : int or None
        Of a beat at a port, and of its line; None: `n_bytes`. See `OffloadCore`.
    packet : int
        Elements of a packet, a multiple of 16, at most 352.
    t_probe : int or None
        Cycles between PROBEs; None: as `probe_time`, of ports and packets.
    skew : int
        Cycles that each of 8 paths is longer than the one before; unless 0, cards spray.
    rule : int
        Of `gradnic.hdl.transport.spray`, how they choose.
    tags : dict or None
        Fields of `gradnic.hdl.transport.tagger.TagRules`, and ``threshold``; None: all packets are
        important.
    layer : int
        Of the tensor, 0 to 7; layer k is in queue k.
    pace : dict or None
        Fields of `gradnic.hdl.transport.pace.PaceRules`; None: the line's rate.
    queues : (int, int) or None
        Bytes that each of 8 strict-priority queues of a switch's port holds, and from which on it
        drops Not-ECT and marks ECT; before each card that is more than one link away.
    egress : bool
        Those queues are the cards' own instead, on the way out at each port.
    thc, inc : bool
        False: cards without the circuits of THC, of INCEPTIONN.
    """

    def __init__(
        self,
        table,
        topology,
        n_elems,
        codec,
        *,
        p=0.0,
        at_share=False,
        n_bytes=16,
        port_bytes=None,
        packet=352,
        t_probe=None,
        skew=0,
        rule=0,
        tags=None,
        layer=0,
        pace=None,
        queues=None,
        egress=False,
        thc=True,
        inc=True,
    ):
        if isinstance(codec, Thc) and (codec.worker.b, codec.w) != (4, 8):
            raise ValueError(f"cards take b = 4 and w = 8 bits, not {codec.worker.b} and {codec.w}")
        self.table, self.topology, self.n_elems = table, topology, n_elems
        packet = codec.C if isinstance(codec, Thc) else packet
        unit = max(codec.unit, n_bytes // ELEM_BYTES)  # a packet begins with a beat of memory
        self.plan = plan = Plan(table, n_elems, unit=unit, packet=packet)
        self.codec, self.n_bytes, self.port_bytes = codec, n_bytes, port_bytes or n_bytes
        self.t_probe = t_probe or probe_time(n_bytes, self.port_bytes)
        self.skew, self.rule, self.layer, self.pace = skew, rule, layer, pace or {}
        if egress and not queues:
            raise ValueError("egress needs queues: (bytes, threshold)")
        self.queues = (0, 0) if egress or not queues else queues  # of switches
        self.egress = [max(1, n // n_bytes) for n in queues] if egress else None
        self.tags = {"back_layer_start": 0} if tags is None else dict(tags)
        self.threshold = self.tags.pop("threshold", 0)
        self.p_q16, self.at_share = int(p / max(1, plan.depth) * 65536), at_share
        self.books = addresses(table, topology)
        n_ports = 1 + max(a.port for book in self.books for a in book.values())
        n_ranks = max(
            (one.rank for into in plan.up for d in into.values() for one in d.values()), default=0
        )
        chunks = plan.n_chunks
        layout = LAYOUT
        try:
            layout.pack(table.rows)
        except ValueError:  # a periodic table, many peers, or more than 64 nodes
            layout = Layout.fit(table.rows)
        rows = int(np.bincount(table.rows["node"]).max())
        self.n_ranks = fitting("contributions to a chunk", n_ranks + 1, 4, 8, 15)
        self._rounds = [None] * table.n_nodes  # (tensor, gen) of each card
        self.n_ports = fitting("ports", n_ports, 4, 8)
        self.library, self._ports = build(
            layout,
            n_bytes=n_bytes,
            n_ports=self.n_ports,
            depth=fitting("rows of a node", rows, 512, 2048, 16384),
            n_chunks=fitting("chunks", chunks, 64, 1024, 8192),
            n_packets=fitting("packets", chunks * plan.per_chunk, 1024, 16384),
            n_ranks=self.n_ranks,
            thc=thc,
            inc=inc,
            port_bytes=self.port_bytes,
            queues=8 if egress else 0,
        )
        self.elem_bytes = 1 if isinstance(codec, Thc) else ELEM_BYTES
        self.beats = -(-n_elems * self.elem_bytes // n_bytes)
        self.result_at = -(-self.beats * n_bytes // PAGE) * PAGE
        self._layout, self._area = layout, self.result_at // n_bytes
        routes = self._routes()
        self._self = self.library.cluster_new(
            table.n_nodes,
            routes.ctypes.data,
            2 * self.result_at,
            self.result_at * self.n_ranks,
        )
        self._join_switches(self.port_bytes)
        for node in range(table.n_nodes):
            self._load(node)

    def _allow(self, node):
        """What each neighbor may lose of the next round, or must send."""
        plan, others = self.plan, [u for u in self.books[node] if u != node]
        for index, u in enumerate(others):
            contributions = plan.up[node].get(u, {})
            total = sum(
                int(plan.elems[k]) * self.codec.elem_bits // 8 * one.leaves
                for chunk, one in contributions.items()
                for k in plan.packets(chunk, chunk + 1)
            )
            may = total * self.p_q16 >> 16
            entry = {"enable": 1, "index": index, "bytes": total - may if self.at_share else may}
            self._write(node, "allowance", entry)
        self._set(node, "allowance", {})

    def _load(self, node):
        """Tables and settings of one card."""
        table, plan = self.table, self.plan
        rows = table.of(node)
        self._rows(node, self._layout, rows)
        index = self._neighbors(node)
        self._queues(node)
        self._places(node, plan, index)
        peers = table.peers[table.peers["node"] == node]
        word = sum(index[int(p["to"])] << 4 * int(p["index"]) for p in peers)
        self._set(node, "peers", word)
        live = -(-plan.n_elems // plan.chunk)
        stages = int(rows["repeat"].max(initial=0)) if table.period else 1
        self._set(
            node,
            "setup",
            {
                "rows": len(rows),
                "chunks": plan.n_chunks,
                "live": live,
                "peers": len(peers),
                "stride": table.n_chunks,
                "repeats": table.repeats,
                "iterations": table.repeats + stages - 1,
                "watchdog": 0,
            },
        )
        first = self.result_at // self.n_bytes
        self._set(
            node,
            "regions",
            [
                {"first": 0, "n_beats": self.beats},
                {"first": first, "n_beats": self.beats},
                {"first": 0, "n_beats": self._area * self.n_ranks},
            ],
        )
        self._set(node, "area", self._area)
        self._set(node, "pace", self.pace)
        self._tags(node, self.threshold)

    def _codec(self):
        codec = self.codec
        if isinstance(codec, Inceptionn):
            head, prescale = codec.p
            return {"coded": 1, "exponent": head & 127, "paper": head >> 7, "prescale": prescale}
        if isinstance(codec, Norms):
            return {"norm": 1}
        if isinstance(codec, Thc):
            p0, p1 = codec.index_p
            levels = [int(level) for level in codec.worker.table]
            settings = {"n": codec.n, "g": codec.worker.g, "index_p0": p0, "index_p1": p1}
            return {"thc": 1, "levels": levels, **settings}
        return {}

    def _round(self, armed, tensor, gen, before):
        plan = self.plan
        last = (plan.n_elems - 1) // plan.chunk
        rest = plan.n_elems - last * plan.chunk
        last_per_chunk = -(-rest // plan.packet)
        return {
            "armed": armed,
            "over": int(before is not None),
            "last_tensor": before[0] if before else 0,
            "last_gen": before[1] if before else 0,
            "job": JOB,
            "tensor": tensor,
            "gen": gen,
            "geometry": {
                "packet": plan.packet // UNIT,
                "chunk": plan.chunk // UNIT,
                "per_chunk": plan.per_chunk,
                "last_chunk": last,
                "last_per_chunk": last_per_chunk,
                "tail": plan.chunk - (plan.per_chunk - 1) * plan.packet,
                "last_tail": rest - (last_per_chunk - 1) * plan.packet,
            },
            "codec": self._codec(),
            "t_probe": self.t_probe,
            "tos": default_dscp()[self.layer][1] << 2 | 2,  # answers go with their tensor
            "tags": self.tags,
            "layer": self.layer,
            "spray": int(self.skew > 0),
            "rule": self.rule,
            "at_share": int(self.at_share),
        }

    def agree(self, node, norms, block):
        """Set the checks of a node's next round of THC: its agreed norms, of blocks of `block`."""
        for number in range(self.plan.n_packets):
            check = self.plan.check(number, norms, block)
            self._write(node, "check", {"enable": 1, "number": number, "check": check})
        self._set(node, "check", {})

    def abort(self):
        """End the schedules of a round that hangs."""
        for node in range(self.table.n_nodes):
            for bit in (1, 0):
                self._write(node, "abort", bit)

    def run(self, values, faults=None, *, gen=GEN, link_bytes=None, memory_latency=40,
            max_cycles=None):  # fmt: skip
        """One all-reduce of `values`, (n_nodes, n_elems); a `Result`.

        values : what each node adds: float32, uint32 norms, or THC indices. Others : see `advance`.
        """
        n_nodes = self.table.n_nodes
        if values.shape != (n_nodes, self.n_elems):
            raise ValueError(f"values must be ({n_nodes}, {self.n_elems}), not {values.shape}")
        for node, mine in enumerate(values):
            self.start(node, mine, gen)
        cycles, done = self.advance(
            faults, link_bytes=link_bytes, memory_latency=memory_latency, max_cycles=max_cycles
        )
        replicas = [self.replica(node) for node in range(n_nodes)]
        sent, frames = self._sent()
        status = [self._fields(node, "status") for node in range(n_nodes)]
        return Result(
            cycles, done, np.stack(replicas), sent, frames, status, self._given(),
            *self.by_queues(),
        )  # fmt: skip

    @property
    def _kind(self):
        is_thc = isinstance(self.codec, Thc)
        return np.dtype(np.uint8 if is_thc else self.codec.dtype).newbyteorder("<")

    def start(self, node, values, gen, tensor=TENSOR):
        """End a card's round and start its next with `values`, while all others stand still."""
        octets = values.astype(self._kind).tobytes()
        if isinstance(self.codec, Thc):
            octets = thc.pack(values, 4)
        memory = self._memory(node, 0, 2 * self.result_at)
        memory[: len(octets)] = np.frombuffer(octets, np.uint8)
        memory[self.result_at :] = 0xEE
        self._memory(node, 1, self.result_at * self.n_ranks)[:] = 0xDD
        before, self._rounds[node] = self._rounds[node], (tensor, gen)
        self._set(node, "round", self._round(0, tensor, gen, before))
        self._set(node, "clear", 1)
        self._tick(node)
        self._set(node, "clear", 0)
        self._tick(node, 2)
        while self._get(node, "clearing"):
            self._tick(node)
        self._allow(node)
        self._set(node, "round", self._round(1, tensor, gen, before))
        self._tick(node, 4)
        self._set(node, "start", 1)
        self._tick(node)
        self._set(node, "start", 0)

    def advance(self, faults=None, *, link_bytes=None, memory_latency=40, max_cycles=None):
        """Let the cards run until all have finished their rounds, or for `max_cycles`.

        Returns (cycles, or None if some have not finished; int64 (n_nodes,), when each had, or -1).
        `Unfinished` without `max_cycles`, with what waits: at 2,000,000 and `SLOW` an element, if a
        burst waits for its card for `LATE` cycles, if no memory moves a beat for
        longer than `rest`.
        faults : `LinkFaults`, whose times are cycles. link_bytes : a cycle, on each link; None:
        what a port takes.
        """
        faults = faults or LinkFaults()
        rules = Rules(
            link_bytes or self.port_bytes, memory_latency, int(faults.loss * 2**32),
            int(faults.duplicate * 2**32), faults.seed, faults.delay, faults.reorder, self.skew,
            dead_paths(faults), *self.queues,
        )  # fmt: skip
        done = np.zeros(self.table.n_nodes, np.int64)
        limits = (0, 0) if max_cycles else (LATE, rest(self.t_probe, faults))
        begin = self.call("now")
        cycles = self.library.cluster_run(
            self._self,
            ctypes.byref(rules),
            max_cycles or MOST + SLOW * self.n_elems,
            done.ctypes.data,
            *limits,
            AT_ONCE,
        )
        cycles = to_the_end(partial(self.call, "go"), cycles)
        if cycles < 0 and not max_cycles:
            raise Unfinished(
                f"cards {np.flatnonzero(done < 0).tolist()} are not done after "
                f"{self.call('now') - begin} cycles: "
                f"{self.waiting(LATE) or self.waiting(1) or 'no port waits'}"
            )
        return None if cycles < 0 else int(cycles), done

    def replica(self, node):
        """What a card has written into its memory so far, as in `Result`."""
        raw = self._memory(node, 0, 2 * self.result_at)[self.result_at :]
        return raw[: self.n_elems * self.elem_bytes].copy().view(self._kind)

    def _given(self):
        given = {}
        for node, source, number, *_ in self._given_up():
            given.setdefault((node, source), []).append(number)
        return {key: np.array(numbers) for key, numbers in given.items()}
