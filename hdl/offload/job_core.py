"""Offload card that takes jobs: a queue, contexts side by side, completions.

Each round runs in a `RoundEngine`, of its context or of a pool; ports, gate, framer, codec, memory
ports, lanes that sum, queue and clerk are shared.
Part of `gradnic.hdl.offload.job_card`; golden model: `gradnic.models.offload.job_card`.
"""

from types import SimpleNamespace
from typing import Any

from amaranth.hdl import Cat, Module, Mux, ResetInserter, Signal
from amaranth.lib import data, stream, wiring
from amaranth.lib.wiring import In, Out

from gradnic.interface.job import ACTIVE, RING
from gradnic.interface.params import check_range
from gradnic.interface.schedule_table import Layout

from ..axi.bursts import LENGTH_WIDTH, Region
from ..primitive.names import signals
from ..primitive.same import by_name, same
from ..stream.fifo import FIFO
from ..transport.records import Context
from .context_paths import ArrivalSteer, PacketPick
from .core import OffloadCore
from .gate import PacketGate
from .job_aborts import find_aborted
from .job_clerk import N_REGIONS, JobClerk
from .job_context import JobContext
from .job_engines import run_engine, run_passes, share_lanes, share_memory, users_of
from .job_history import History
from .job_queue import JobQueue
from .job_records import STAMP_WIDTH, Abort, Descriptor, GivenUpBy, JobTableWrite, Record
from .memory_side import memory_ports
from .renewal import Keepers, Renewal
from .round_engine import RoundEngine
from .shared_codec import SharedCompressor, SharedDecompressor
from .thc_pass import ThcCell, ThcRules

THC_FLOATS = 256  # that have as many bytes as the longest packet of sums
_OF_A_ROUND = (
    "start", "abort", "setup", "status", "starting", "clear", "clearing", "drained", "regions",
    "area", "check", "allowance",
)  # fmt: skip


def _any_of(vectors):
    """Bit by bit, whether one of `vectors`, all as long, has a 1 there."""
    return Cat(Cat(bits).any() for bits in zip(*vectors, strict=True))


class JobCore(OffloadCore):
    """A card with a queue of 16 jobs and `n_active` contexts, without its registers.

    A job of a free card asks for its first beat of gradient about 82 cycles after its post, and
    not before its context has forgotten as many packet numbers as the job has, one a cycle, from
    the 30th on. Packets of active jobs leave by class, then age, a beat a cycle in all. Jobs end as
    `JobContext` says.

    Parameters
    ----------
    n_active : int
        Contexts, 1 to 4: jobs side by side.
    n_engines : int
        1 to `n_active`, jobs whose rounds are side by side; 0: as many as contexts. With fewer,
        jobs get one in their order, a job with THC once its norms are made, until its sums are.
    n_tables : int
        Schedule tables that may be loaded, 1 to 16, a power of two; `depth` rows and `n_chunks`
        chunks for each.
    thc, bits : bool, int
        True: jobs with THC, with indices of 4 bits, or with `bits` 8 of 2 to 8, and sums of 8, 12
        or 16 as tables say, and three more memory ports.
    gives_up : bool
        False: jobs that let a share miss are refused.
    block : int
        Largest block of THC, 64, 256 or 1024 elements.
    feedback : bool
        True: with error feedback, and three ports more.
    pass_bytes : int
        As of `gradnic.hdl.offload.thc_passes.ThcPasses`.
    Others as of `OffloadCore`.

    Members
    -------
    As of `OffloadCore`, without those of a single round, and:

    root_read, root_write : Out(ReadPort), Out(WritePort)
        Gradients and results of terminal rows: those of packets are never behind them.
    round : In(Round)
        What jobs share: job (the tenant), t_probe, tos, spray, rule, tags, ``geometry.packet``,
        and settings of INCEPTIONN. Nothing else is looked at.
    post : In(stream.Signature(Descriptor))
        Not ready while the queue is full.
    abort : In(stream.Signature(Abort))
        Ends the oldest such job, active or waiting.
    completions : Out(stream.Signature(Record))
    job_table : In(JobTableWrite)
        Table k has rows from k * depth and places from k * n_chunks on. ``peers`` : of each table.
    sources : In(ArrayLayout(Region, 2))
        Where gradients and results may lie.
    landings, landing : In(ArrayLayout(first beat, n_engines)), In(24)
        Where each engine's landing areas begin; beats that it has for them. unplaced : In(1), one
        has none: no job starts.
    norm_read, encode_read, decode_read, norm_write, encode_write, decode_write : Out
        Of passes, on the memory of the gradient port; with THC alone, as the next ones.
    added_read, kept_read, kept_write : Out
        Of residuals, on the same memory; with feedback alone.
    scratches, scratch : In(ArrayLayout(first beat, n_active)), In(24)
        Where each context's norms, indices and sums may lie; beats for them. scratch_unplaced :
        In(1), one has none: no job with THC starts.
    thc_rules, thc_cell : In(ThcRules), In(ThcCell)
    watchdog : In(32)
        Cycles without progress after which a job ends as stuck; 0 is off.
    finished : Out(1)
        No job waits or is active.
    renewed : Out(1)
        A pulse: what contexts share was reset, and not because all was quiet; see `Renewal`.
    active : Out(n_active)
    given_up, given_up_packet : Out(n_engines), Out(GivenUpBy).array(n_engines)
        As of `OffloadCore`, of each engine.
    """

    roots = True

    def __init__(self, n_bytes: int, n_ports: int, layout: Layout, *, n_active: int = 2,
                 n_engines: int = 0, n_tables: int = 4, thc: bool = False, block: int = 1024,
                 feedback: bool = False, bits: int = 4, pass_bytes: int | None = None,
                 **sizes: Any) -> None:  # fmt: skip
        if n_bytes not in (16, 32, 64):
            raise ValueError(f"n_bytes must be 16, 32 or 64, not {n_bytes!r}")
        check_range("n_active", n_active, 1, ACTIVE)
        if not 0 <= n_engines <= n_active:
            raise ValueError(f"n_engines must be 0 to n_active, {n_active}, not {n_engines!r}")
        self.n_active, self.thc_block, self.passes = n_active, block, bool(thc)
        self.n_engines = n_engines or n_active
        self.pooled = self.n_engines < n_active
        self.feedback, self.pass_bytes = bool(feedback and thc), pass_bytes
        if bits not in (4, 8):
            raise ValueError(f"bits must be 4 or 8, not {bits!r}")
        if thc and sizes.get("max_elems", THC_FLOATS) < THC_FLOATS:
            raise ValueError(
                f"max_elems must be {THC_FLOATS} or more with THC, not {sizes['max_elems']}"
            )
        self.bits = bits if thc else 4
        sizes = {**sizes, "thc": bool(thc), "wide": bool(thc), "n_tables": n_tables}
        sizes["bits"] = self.bits
        inner = {**sizes, "queues": 0}
        self.engines = [
            RoundEngine(n_bytes, n_ports, layout, **inner) for _ in range(self.n_engines)
        ]
        super().__init__(n_bytes, n_ports, layout, **sizes)

    def _make(self, layout, depth):
        """Shapes are those of the engines."""
        one = self.engines[0]
        self.scheduler, self.sender, self.receiver = one.scheduler, one.sender, one.receiver

    def _members(self):
        members = {k: v for k, v in super()._members().items() if k not in _OF_A_ROUND}
        region = Region(self.n_bytes, self.address_width)
        peers = data.ArrayLayout(self.sender.peers.shape(), self.n_tables)
        more = {}
        if self.thc:
            more = memory_ports(
                self.n_bytes, self.address_width, roots=True, passes=True, feedback=self.feedback
            ) | {
                "scratches": In(data.ArrayLayout(region["first"].shape, self.n_active)),
                "scratch": In(LENGTH_WIDTH),
                "scratch_unplaced": In(1),
                "thc_rules": In(ThcRules),
                "thc_cell": In(ThcCell),
            }
        return (
            members
            | more
            | {
                "peers": In(peers),
                "post": In(stream.Signature(Descriptor)),
                "abort": In(stream.Signature(Abort)),
                "completions": Out(stream.Signature(Record)),
                "job_table": In(JobTableWrite),
                "sources": In(data.ArrayLayout(region, N_REGIONS)),
                "landings": In(data.ArrayLayout(region["first"].shape, self.n_engines)),
                "landing": In(LENGTH_WIDTH),
                "unplaced": In(1),
                "watchdog": In(32),
                "renewed": Out(1),
                "active": Out(self.n_active),
                "given_up": Out(self.n_engines),
                "given_up_packet": Out(GivenUpBy).array(self.n_engines),
            }
        )

    def _gate(self):
        return PacketGate(self.n_bytes, self.n_ports, n_contexts=self.n_engines)

    def _clerk(self):
        return JobClerk(
            self.n_bytes, self.address_width, n_ranks=self.n_ranks, n_packets=self.n_packets,
            max_elems=self.max_elems, n_tables=self.n_tables, n_contexts=self.n_active,
            inc=self.inc, bf16=self.bf16, scale=self.scale, maxima=self.maxima, thc=self.thc,
            gives_up=self.gives_up, feedback=self.feedback,
        )  # fmt: skip

    def elaborate(self, platform):
        m = Module()
        n, width = self.n_bytes, self.address_width
        now = Signal(STAMP_WIDTH)
        m.d.sync += now.eq(now + 1)
        m.submodules.history = history = History()
        m.submodules.queue = queue = JobQueue()
        m.submodules.renewal = self.renewal = renewal = Renewal()
        self.keepers = Keepers(renewal)
        clerk = self._clerk()
        m.submodules.clerk = self.with_renewal(clerk)
        runners = [JobContext(n, width, pooled=self.pooled) for _ in range(self.n_active)]
        for k, runner in enumerate(runners):
            m.submodules[f"context{k}"] = runner
        passes = run_passes(m, self, runners, clerk) if self.thc else None
        users = users_of(m, self, runners, clerk, passes)
        contexts = Signal(data.ArrayLayout(Context, self.n_engines))
        m.d.comb += [contexts[k].eq(user.context) for k, user in enumerate(users)]
        gate = self._front(m)
        self.keepers.strays.append(gate.strays)
        steer, pick = ArrivalSteer(n, self.n_engines), PacketPick(n, self.n_engines)
        m.submodules.steer, m.submodules.pick = self.with_renewal(steer), self.with_renewal(pick)
        made = self._codec(m, gate, steer, pick)
        m.d.comb += [
            gate.contexts.eq(contexts),
            history.asked[0].eq(gate.asked),
            gate.over.eq(history.over[0]),
            history.asked[1].eq(clerk.asked),
            clerk.over.eq(history.over[1]),
            steer.place.eq(gate.place),
            steer.contexts.eq(contexts),
            steer.discard.eq(Cat(user.reset for user in users)),
            queue.now.eq(now),
            clerk.now.eq(now),
            *same(clerk, queue, "oldest aborted present"),
            queue.pop.eq(clerk.pop),
            clerk.table_write.eq(self.job_table),
            clerk.packet.eq(self.round.geometry.packet),
            clerk.regions.eq(self.sources),
            clerk.landing.eq(self.landing),
            clerk.unplaced.eq(self.unplaced),
            *(
                clerk.contexts[k].tensor.eq(runner.context.tensor)
                for k, runner in enumerate(runners)
            ),
            *(clerk.contexts[k].armed.eq(runner.busy) for k, runner in enumerate(runners)),
            *(clerk.contexts[k].gen.eq(runner.job.job.gen) for k, runner in enumerate(runners)),
        ]
        wiring.connect(m, wiring.flipped(self.post), queue.post)
        self._ends(m, clerk, runners, history, now)
        find_aborted(m, self, queue, runners)
        share_memory(m, self, users, passes, pick)
        share_lanes(m, self, pick)
        for k, user in enumerate(users):
            run_engine(m, self, k, user, steer, pick)
        free = Signal(self.n_active)
        m.d.comb += [
            free.eq(Cat(runner.free for runner in runners)),
            clerk.free.eq(free.any()),
            *(
                runner.take.eq(clerk.starts & free[k] & ~free[:k].any())
                for k, runner in enumerate(runners)
            ),
            *(runner.start_soon.eq(clerk.start_soon) for runner in runners),
            self.active.eq(Cat(runner.busy for runner in runners)),
        ]
        m.d.sync += self.finished.eq(~(self.active.any() | queue.busy))
        self._transmit(m, made, pick, pick)
        self.keepers.watch(m, runners)
        self._tell(m, passes)
        m.d.comb += [renewal.watchdog.eq(self.watchdog), self.renewed.eq(renewal.forced)]
        m.d.comb += self.dropped.eq(
            _any_of(engine.dropped for engine in self.engines) | gate.dropped
        )
        return m

    def _codec(self, m, gate, steer, pick):
        """What decodes between `gate` and `steer`; returns what leaves, behind what codes."""
        if not self.inc:
            wiring.connect(m, gate.heads, steer.arrivals)
            m.d.comb += [
                steer.values.valid.eq(gate.values.valid),
                *(steer.values.p[name].eq(gate.values.p[name]) for name in ("data", "last")),
                gate.values.ready.eq(steer.values.ready),
            ]
            return pick
        before, behind = (
            kind(self.n_bytes, max_elems=self.max_elems)
            for kind in (SharedDecompressor, SharedCompressor)
        )
        m.submodules.decompressor = self.with_renewal(before)
        m.submodules.compressor = self.with_renewal(behind)
        self.keepers.strays += [before.strays, behind.strays]
        wiring.connect(m, gate.heads, before.heads)
        wiring.connect(m, gate.values, before.payload)
        wiring.connect(m, before.passes, steer.arrivals)
        wiring.connect(m, before.o, steer.values)
        wiring.connect(m, pick.heads, behind.heads)
        wiring.connect(m, pick.payload, behind.payload)
        return SimpleNamespace(heads=behind.o_heads, payload=behind.o)

    def with_renewal(self, part):
        return ResetInserter(self.keepers.reset())(part)

    def _join(self, m, way, *names):
        inner, outer = by_name(way), by_name(self)
        for k in range(self.n_ports):
            for name in names:
                width = self.rx_meta_width if name.endswith("rx") else self.meta_width
                self.keepers.keep_frames(
                    m, f"{name}{k}", inner[name][k], outer[name][k], self.port_bytes, width
                )

    def _ends(self, m, clerk, runners, history, now):
        """Records go into the ring, one a cycle; a place is kept for each job that is active. It
        is reset with what else is shared, unless it has one.
        """
        ring = FIFO(Record, RING)
        empty = Signal(3)
        anew = Signal()
        m.submodules.ring = ResetInserter(anew)(ring)
        m.d.comb += anew.eq(self.renewal.anew & (empty == 7))
        wiring.connect(m, ring.o, wiring.flipped(self.completions))
        n_waiting = Signal(range(RING + 1))
        push, taken = signals("push taken")
        busy = sum(runner.busy for runner in runners)
        m.d.sync += [n_waiting.eq(n_waiting + push - taken), clerk.room.eq(n_waiting + busy < RING)]
        m.d.comb += [
            taken.eq(self.completions.valid & self.completions.ready),
            push.eq(ring.i.valid & ring.i.ready),
        ]
        m.d.sync += empty.eq(Mux(push | ring.o.valid, 0, empty + (empty != 7)))
        with m.If(anew):
            m.d.sync += n_waiting.eq(0)
        with m.Elif(clerk.record_valid & clerk.room):
            m.d.comb += [
                ring.i.valid.eq(1), ring.i.p.eq(clerk.record), clerk.record_ready.eq(ring.i.ready)
            ]  # fmt: skip
        for k, runner in enumerate(runners):
            others = Cat(
                clerk.record_valid & clerk.room, *(r.record_valid for r in runners[:k])
            ).any()
            with m.If(runner.record_valid & ~others & ~anew):
                m.d.comb += [
                    ring.i.valid.eq(1),
                    ring.i.p.eq(runner.record),
                    runner.record_ready.eq(ring.i.ready),
                    history.write.valid.eq(ring.i.ready),
                    history.write.tensor.eq(runner.context.tensor),
                    history.write.gen.eq(runner.job.job.gen),
                ]
            ending = Cat(r.record_valid for r in runners).any()
            with m.If(runner.over_valid & ~ending & ~Cat(r.over_valid for r in runners[:k]).any()):
                m.d.comb += [history.write.eq(runner.over), runner.over_ready.eq(1)]
            m.d.comb += [runner.now.eq(now), runner.watchdog.eq(self.watchdog)]

    def _tell(self, m, passes):
        """Pulses of all engines and passes; of those in one cycle, one counts."""
        m.d.comb += [
            self.refused.eq(_any_of(engine.refused for engine in self.engines)),
            self.failed.eq(
                _any_of(engine.failed for engine in self.engines)
                | (passes.failed.any() if passes else 0)
            ),
            self.sent.eq(_any_of(engine.sent for engine in self.engines)),
            self.retransmitted.eq(_any_of(engine.retransmitted for engine in self.engines)),
            self.probes.eq(_any_of(engine.probes for engine in self.engines)),
            self.answered.eq(_any_of(engine.answered for engine in self.engines)),
            self.responses.eq(_any_of(engine.responses for engine in self.engines)),
            self.given_up.eq(Cat(engine.given_up for engine in self.engines)),
        ]
        for engine, port in zip(self.engines, self.given_up_packet, strict=True):
            # kept, or nothing drives its name where nobody looks at it, as in `JobCard`
            given_up_packet = Signal(GivenUpBy, attrs={"keep": 1})
            m.d.comb += [
                *(
                    given_up_packet[name].eq(engine.given_up_packet[name])
                    for name in ("neighbor", "number")
                ),
                *(given_up_packet[name].eq(engine.round[name]) for name in ("tensor", "gen")),
                port.eq(given_up_packet),
            ]
