"""N offload cards in RTL that take jobs from queues of their own, over links with faults.

The engine and what a link does to frames are those of `gradnic.sim.offload.cluster`; the golden
twin is `gradnic.models.offload.job_cluster.JobCluster`.
"""

import ctypes
from dataclasses import dataclass, field
from operator import itemgetter

import numpy as np
from amaranth.utils import ceil_log2
from gradnic.hdl.offload.job_window import WindowCore
from gradnic.hdl.thc.hadamard import BLOCKS
from gradnic.models.aggregation.jobs import W_CODES
from gradnic.models.offload.cluster import LinkFaults, addresses
from gradnic.models.offload.codec import Inceptionn
from gradnic.models.offload.plan import Plan
from gradnic.models.offload.thc_job import coded, packets

from gradnic.errors import Unfinished
from gradnic.interface.job import COMPLETION, THC_PACKET, Completion, collective_of
from gradnic.interface.offload import ANSWER_TOS

from ..engine.cluster_library import fitting
from .cards import JOB, LATE, LAYOUT, PAGE, UNIT, Cards, Rules, dead_paths, rest
from .library import build

POLL = 256  # cycles between two looks of a host
FAULTS = ("sound", "errors", "silent")  # of memory


@dataclass
class Ended:
    """A job on one node: when it was posted and when it ended, in cycles, and its completion."""

    posted: int
    done: int
    record: Completion


@dataclass
class Host:
    """What the program on a node does. to_post : jobs, in order. ended : {id: Ended}. posted :
    {id: time}, of those that the card has taken. to_abort : ids of jobs that are aborted as soon as
    they are posted.
    """

    to_post: list = field(default_factory=list)
    posted: dict = field(default_factory=dict)
    to_abort: set = field(default_factory=set)
    ended: dict = field(default_factory=dict)
    overruns: int = 0
    takes_completions: bool = True


SCORE = "threshold"
EVERYTHING = {"bf16": True, "scale": True, "maxima": True, "gives_up": True}
"""Cards without THC that take all jobs: one build for all who need some of it."""


class JobCluster(Cards):
    """Cards with jobs on one topology.

    Parameters
    ----------
    tables : tuple of gradnic.interface.schedule_table.Table
    topology : gradnic.models.schedule.topology.Topology
    n_memory : int
        Bytes that sources and results may lie in, from address 0 on.
    n_elems : int
        Of the largest tensor.
    n_active, n_engines, n_bytes, packet, t_probe, watchdog : int
        Contexts, bytes of a beat, elements of a packet, cycles.
    n_ports, n_ranks : int
        Ports of a card, and contributions to a chunk, at least: one build may serve topologies of
        fewer, too.
    port_bytes : int
        Bytes of a beat at a port; None: `n_bytes`.
    queues : (int, int) or None
        Cards with egress queues: bytes that one holds, and from which on it marks. switches : the
        same of queues of switches, as `gradnic.sim.offload.cluster.OffloadCluster` has them.
    inc, bf16, scale, maxima, gives_up : bool
        Cards with INCEPTIONN, with BF16, with means, with maxima, with jobs that let a share miss.
    at_share : bool
        When those may: see `gradnic.models.transport.reception.Reception`.
    settings : dict, fields of `Inceptionn`.
    skew, rule : int
        As of `gradnic.sim.offload.cluster.OffloadCluster`: unless `skew` is 0, cards spray.
    tags : dict
        Fields of `gradnic.hdl.transport.tagger.TagRules`, and `SCORE`: from which one on packets
        are important. Without any all are.
    thc : dict or None
        Cards with THC: as `gradnic.models.offload.thc_job.coded` takes it. feedback : bool, with
        error feedback. bits : int, 4, or 8 for b of 2 to 8; None: as b needs. pass_bytes : int,
        bytes of a beat in its passes, with addresses as wide as that allows; None: `n_bytes`.

    Attributes
    ----------
    hosts : list of `Host`
    built : what of the above says which jobs are refused, as the golden `JobCard` takes it
    sent : list of (time, node, port, frame), of all frames that left
    given_up : {(tensor, gen): {(node, source): numbers of packets}}
    """

    card, sizes = WindowCore, {}  # class of the circuit, and what else it is given

    def __init__(self, tables, topology, n_memory, n_elems, *, n_active=2, n_engines=0, n_bytes=16,
                 packet=352, t_probe=2000, watchdog=0, inc=True, bf16=False, scale=False,
                 settings=None, thc=None, gives_up=False, feedback=False, at_share=False,
                 maxima=False, bits=None, n_ports=1, n_ranks=1, port_bytes=None,
                 queues=None, switches=None, pass_bytes=None, skew=0, rule=0,
                 tags=None):  # fmt: skip
        self.tables, self.table, self.topology = tables, tables[0], topology
        self.n_bytes, self.port_bytes = n_bytes, port_bytes or n_bytes
        self.n_elems = n_elems
        self.packet, self.t_probe = packet, t_probe
        self.n_active, self.n_engines = n_active, n_engines or n_active
        self.watchdog, self.switches = watchdog, switches or (0, 0)
        self.skew, self.rule, self.tags = skew, rule, tags or {}
        self.egress = [max(1, n // n_bytes) for n in queues] if queues else None
        self.codec = Inceptionn(1, **(settings or {}))
        self.thc, self.at_share = thc, at_share
        self.built = {
            "inc": inc, "bf16": bf16, "scale": scale, "maxima": maxima, "gives_up": gives_up,
            "feedback": feedback, "thc": thc,
        }  # fmt: skip
        self.thc_codecs = [] if thc is None else [coded(thc, t.n_nodes) for t in tables]
        sizes = {one.worker.b for one in self.thc_codecs}
        self.bits = bits or (4 if sizes <= {4} else 8)
        self.n_memory = -(-n_memory // PAGE) * PAGE
        self.books = [{} for _ in range(self.table.n_nodes)]
        for table in tables:
            for book, more in zip(self.books, addresses(table, topology), strict=True):
                book.update(more)
        self.plans = [Plan(table, UNIT * table.n_chunks * table.repeats) for table in tables]
        self._fit(n_ports, n_ranks)
        self.library, self._ports = build(
            LAYOUT,
            card=self.card,
            n_bytes=n_bytes,
            n_ports=self.n_ports,
            n_active=n_active,
            n_tables=self.n_tables,
            depth=self.depth,
            n_chunks=self.n_chunks,
            n_packets=self.n_packets,
            n_ranks=self.n_ranks,
            inc=inc,
            bf16=bf16,
            scale=scale,
            gives_up=gives_up,
            **({} if thc is None else {"thc": True, "block": self.thc_codecs[0].worker.B}),
            **({"feedback": True} if feedback else {}),
            **({"maxima": True} if maxima else {}),
            **({"n_engines": n_engines} if self.n_engines < n_active else {}),
            **({"bits": self.bits} if self.bits > 4 else {}),
            **(
                {"pass_bytes": pass_bytes, "address_width": 23 + ceil_log2(pass_bytes)}
                if pass_bytes
                else {}
            ),
            **({"port_bytes": self.port_bytes} if self.port_bytes < n_bytes else {}),
            **({"queues": 8} if queues else {}),
            **self.sizes,
        )
        self._make_room()
        routes = self._routes()
        self._self = self.library.cluster_new(
            self.table.n_nodes, routes.ctypes.data, self.n_memory + self.scratch_bytes * n_active,
            self.landing_bytes * self.n_engines,
        )  # fmt: skip
        self._join_switches(self.port_bytes)
        self.hosts = [Host() for _ in self.books]
        self._bits = [dict.fromkeys(("posts", "aborts", "takes"), 0) for _ in self.books]
        self.sent, self._n_kept, self._lost, self._n_lost = [], 0, [], 0
        self._to_spoil = []
        for node in range(self.table.n_nodes):
            self._load(node)

    def _fit(self, n_ports, n_ranks):
        """Sizes of a card that the tables fit into, of the few that are built."""
        tables, thc = self.tables, self.thc
        used = 1 + max(a.port for book in self.books for a in book.values())
        self.n_ports = fitting("ports", max(n_ports, used), 1, 2, 4, 8)
        ranks = [
            one.rank
            for plan in self.plans for into in plan.up for d in into.values() for one in d.values()
        ]  # fmt: skip
        n_ranks = max(n_ranks, max(ranks, default=0) + 1)
        self.n_ranks = fitting("contributions to a chunk", n_ranks, 2, 4, 8, 15)
        n_chunks = max(plan.n_chunks for plan in self.plans)
        longest = [Plan(table, self.n_elems, packet=self.packet) for table in tables]
        numbers = [p.n_chunks * p.per_chunk for p in longest]
        if thc is not None:
            numbers += [packets(table, self.n_elems, self.packet, thc) for table in tables]
        self.n_packets = fitting("packets of a job", max(numbers), 1024, 16384)
        rows = max(int(np.bincount(t.rows["node"]).max()) for t in tables)
        self.depth = fitting("rows of a node", rows, 64, 512)
        self.n_chunks = fitting("chunks of a table", n_chunks, 64, 512)
        self.n_tables = fitting("tables", len(tables), 4, 16)

    def _make_room(self):
        """Landing areas of an engine, and scratch of a context."""
        n_elems = self.n_elems
        area, self.scratch_bytes = -(-n_elems * 4 // 64) * 64, 0
        if self.thc is not None:
            n_packets = -(-n_elems // THC_PACKET)
            sums = n_packets * THC_PACKET * max(one.w for one in self.thc_codecs) // 8
            area = max(area, 2 * n_packets * THC_PACKET)  # of 16 bits, as a driver asks for
            norms = -(-n_packets * (THC_PACKET // self.thc_codecs[0].worker.B) // UNIT) * 64
            self.scratch_bytes = (
                2 * norms + n_packets * THC_PACKET * self.thc_codecs[0].worker.b // 8 + sums
            )
            self.scratch_bytes = -(-self.scratch_bytes // PAGE) * PAGE
        self.landing = area * self.n_ranks // self.n_bytes
        self.landing_bytes = -(-area * self.n_ranks // PAGE) * PAGE

    def _load(self, node):
        """Tables and settings of one card."""
        index = self._neighbors(node)
        peers = []
        for number, (table, plan) in enumerate(zip(self.tables, self.plans, strict=True)):
            peers.append(self._table(node, number, table, plan, index))
        n_peers = 2**LAYOUT.peer
        peers += [[]] * (self.n_tables - len(peers))
        self._set(node, "peers", [one + [0] * (n_peers - len(one)) for one in peers])
        head, prescale = self.codec.p
        codec = {"exponent": head & 127, "paper": head >> 7, "prescale": prescale}
        if self.thc_codecs:
            codec |= self._load_thc(node)
        self._set(
            node,
            "round",
            {
                "job": JOB,
                "geometry": {"packet": self.packet // UNIT},
                "codec": codec,
                "t_probe": self.t_probe,
                "tos": ANSWER_TOS,
                "tags": {"back_layer_start": 0}
                | {k: v for k, v in self.tags.items() if k != SCORE},
                "spray": int(self.skew > 0),
                "rule": self.rule,
                "at_share": int(self.at_share),
            },
        )
        n_beats = self.n_memory // self.n_bytes
        self._set(node, "sources", [{"first": 0, "n_beats": n_beats}, {}])
        beats = self.landing_bytes // self.n_bytes
        self._set(node, "landings", [k * beats for k in range(self.n_engines)])
        self._set(node, "landing", self.landing)
        self._set(node, "watchdog", self.watchdog)
        self._set(node, "floor", 28)
        self._queues(node)
        self._tags(node, self.tags.get(SCORE, 0))

    def _load_thc(self, node):
        """Settings of THC; those that are of the codec."""
        worker = self.thc_codecs[0].worker
        rules = {
            "log4": BLOCKS.index(worker.B), "t_fixed": worker.t_fixed, "unit": worker.unit,
            "g": worker.g, "middle": int(worker.table[len(worker.table) // 2]),
            "own_scale": _scale(worker, 1), "bits": worker.b,
        }  # fmt: skip
        self._set(node, "thc_rules", rules)
        for index, (lower, level, gap) in enumerate(worker._cells.tolist()):
            cell = {"lower": lower, "above": index - level // 256, "gap": gap}
            self._write(node, "thc_cell", {"enable": 1, "index": index, "cell": cell})
        self._set(node, "thc_cell", {})
        beats, first = (n // self.n_bytes for n in (self.scratch_bytes, self.n_memory))
        self._set(node, "scratches", [first + k * beats for k in range(self.n_active)])
        self._set(node, "scratch", beats)
        p0, p1 = self.thc_codecs[0].index_p
        levels = [int(level) for level in worker.table]
        codec = {"g": worker.g, "index_p0": p0, "index_p1": p1}
        if self.bits == 4:
            return codec | {"levels": levels}
        for index, level in enumerate(levels):
            self._write(node, "level_write", {"enable": 1, "index": index, "level": level})
        self._set(node, "level_write", {})
        return codec

    def _table(self, node, number, table, plan, index):
        """Load one table; the neighbor of each of its peers."""
        rows = table.of(node)
        self._rows(node, LAYOUT, rows, number * self.depth)
        self._places(node, plan, index, number * self.n_chunks)
        peers = table.peers[table.peers["node"] == node]
        stages = int(rows["repeat"].max(initial=0)) if table.period else 1
        fields = {
            "valid": 1,
            "rows": len(rows),
            "peers": len(peers),
            "chunks": plan.n_chunks,
            "stride": table.n_chunks,
            "repeats": table.repeats,
            "iterations": table.repeats + stages - 1,
            "leaves": plan.n_leaves,
            "collective": collective_of(table),
        }
        if self.thc_codecs:
            codec = self.thc_codecs[number]
            worker, code = codec.worker, W_CODES.index(codec.w)
            fields |= {
                "offset": worker.n * worker.g, "scale": _scale(worker, worker.n), "code": code,
            }  # fmt: skip
        self._write(node, "job_table", {"enable": 1, "index": number, "table": fields})
        self._set(node, "job_table", {})
        return [index[int(p["to"])] for p in sorted(peers, key=lambda p: p["index"])]

    @property
    def now(self):
        """Cycles so far."""
        return int(self.call("now"))

    def memory(self, node):
        """Bytes of a node that jobs may name: a view."""
        return self._memory(node, 0, self.n_memory)

    def spoil(self, node, begin, end, fault, memory=0, at=None):
        """Accesses of these bytes are sound, errors, or not answered, from now on: see `FAULTS`;
        sound without bytes: all. memory 1 : landing areas. at : the cycle from which on, or a
        little later, whatever hosts wait for then; None: now.
        """
        if at is not None:
            self._to_spoil.append((at, (node, begin, end, fault, memory)))
            return
        self.library.cluster_spoil(self._self, node, memory, begin, end, FAULTS.index(fault))

    def post(self, node, job):
        """Hand a job to a node's host, which posts in this order as the queue has room."""
        self.hosts[node].to_post.append(job)

    def post_now(self, node, job):
        """Write a descriptor to the card; False if its queue is full."""
        values = {f: int(getattr(job, f)) for f in job.__dataclass_fields__}
        self._set(node, "job", values)
        self._change(node, "posts")
        full = bool(self._get(node, "overrun"))
        self.hosts[node].overruns += full
        return not full

    def abort(self, node, id=None):
        """Let a card end a job, None: the oldest one; it is looked for in a few cycles."""
        self._set(node, "named", {"id": id or 0, "any": id is None})
        self._change(node, "aborts")
        while self._get(node, "aborting"):
            self._tick(node)

    def withdraw(self, node, id):
        """Let a node's host abort a job: now, or as soon as the card has it."""
        host = self.hosts[node]
        if id in host.posted:
            self.abort(node, id)
        else:
            host.to_abort.add(id)

    def take(self, node):
        """The oldest `Completion` of a card, or None."""
        if not self._get(node, "record_valid"):
            return None
        fields = self._fields(node, "record")
        self._change(node, "takes")
        return Completion(**{f.name: fields[f.name] for f in COMPLETION})

    def _change(self, node, name):
        self._bits[node][name] ^= 1
        self._write(node, name, self._bits[node][name])

    def step(self, faults=None, *, n_cycles=POLL, link_bytes=None, memory_latency=40):
        """Hosts post and take what they can, then the cards run for `n_cycles`."""
        rules = self._rules(faults or LinkFaults(), link_bytes, memory_latency)
        self._advance(rules, 0)
        self._serve()
        self._advance(rules, n_cycles)

    def _rules(self, faults, link_bytes=None, memory_latency=40):
        """What a run goes by."""
        return Rules(
            link_bytes or self.port_bytes, memory_latency, int(faults.loss * 2**32),
            int(faults.duplicate * 2**32), faults.seed, faults.delay, faults.reorder, self.skew,
            dead_paths(faults), *self.switches,
        )  # fmt: skip

    def _serve(self):
        """Hosts post in turns, and take."""
        able = set(range(len(self.hosts)))
        while able:
            for node in sorted(able):
                host = self.hosts[node]
                if host.to_post and self.post_now(node, host.to_post[0]):
                    id = host.to_post.pop(0).id
                    host.posted[id] = self.now
                    if id in host.to_abort:
                        self.abort(node, id)
                else:
                    able.remove(node)
        for node, host in enumerate(self.hosts):
            while host.takes_completions and (completion := self.take(node)) is not None:
                posted = host.posted.get(completion.id, 0)
                host.ended[completion.id] = Ended(posted, posted + completion.cycles, completion)

    def _advance(self, rules, n_cycles):
        """Run, and keep what was sent: before it, while hosts were at work, and in it. Memory fails
        behind it, where that is due.
        """
        done = np.zeros(self.table.n_nodes, np.int64)
        self._keep()
        self.library.cluster_run(
            self._self, ctypes.byref(rules), n_cycles, done.ctypes.data, 0, 0, n_cycles
        )
        self._n_kept = self._n_lost = 0  # it has begun new lists
        self._keep()
        due = [one for one in self._to_spoil if one[0] <= self.now]
        self._to_spoil = [one for one in self._to_spoil if one[0] > self.now]
        for _, arguments in sorted(due, key=itemgetter(0)):
            self.spoil(*arguments)

    def _keep(self):
        given = self._given_up()
        self._lost += given[self._n_lost :]
        self._n_lost = len(given)
        records, frames = self._sent()
        self.sent += [
            (int(r["at"]), int(r["node"]), int(r["port"]), frame)
            for r, frame in zip(records[self._n_kept :], frames[self._n_kept :], strict=True)
        ]
        self._n_kept = len(frames)

    @property
    def given_up(self):
        found = {}
        for node, source, number, *round_ in self._lost:
            found.setdefault(tuple(round_), {}).setdefault((node, source), []).append(number)
        return {
            round_: {key: np.array(numbers) for key, numbers in by_sender.items()}
            for round_, by_sender in found.items()
        }

    def idle(self):
        """Whether all jobs have ended, and the hosts know."""
        return not any(host.to_post or self._waits(v) for v, host in enumerate(self.hosts))

    def _waits(self, node):
        return not self._get(node, "finished") or bool(self._get(node, "record_valid"))

    def run(self, faults=None, *, max_cycles=2_000_000, late=None, share=1.0, **rules):
        """Let hosts and cards work until no job is left; the cycles.

        `Unfinished`, with what waits: at `max_cycles`, if a burst waits for its card, if nothing
        moves for longer than `rest` and the watchdog.

        late : {cycle: function}, called then or a little later. share : of each link that is left
        to the cards. rules : of `step`.
        """
        link_bytes = share * (rules.get("link_bytes") or self.port_bytes)
        late, begin, moved, last = dict(late or {}), self.now, -1, self.now
        n_chunks = max(plan.n_chunks for plan in self.plans)
        quiet = rest(self.t_probe, faults or LinkFaults(), n_chunks=n_chunks, link_bytes=link_bytes)
        longest = self.watchdog + quiet
        while True:
            self.step(faults, **rules)
            if reason := self.waiting(LATE):
                raise Unfinished(reason)
            for time in sorted(t for t in late if t <= self.now - begin):
                late.pop(time)()
            if not late and self.idle():
                return self.now - begin
            if (n := self.call("moved")) != moved or late or self._to_spoil:
                moved, last = n, self.now
            if self.now - begin > max_cycles or self.now - last > longest:
                busy = [v for v in range(len(self.hosts)) if self._waits(v)]
                raise Unfinished(
                    f"cards {busy} are not done after {self.now - begin} cycles, memories at rest "
                    f"for {self.now - last}: {self.waiting(1) or 'no port waits'}"
                )


def _scale(worker, n):
    """C0 of the sums of `n` workers, FP32 bits."""
    return int(np.float32(worker.t_fixed / 256 / (n * worker.g * worker.B)).view(np.uint32))
