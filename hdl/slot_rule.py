"""The slot rule: what a contribution may do, decided before anything changes."""

from amaranth.hdl import Cat, Module, Mux, Signal, signed
from amaranth.lib import data, stream, wiring
from amaranth.lib.wiring import In, Out

from ..formats import Op
from .memory import BlockRAM
from .slot_sweep import Record, Sweep
from .slot_types import CLOSE_BOUNDED, CLOSE_N_MIN, EVENTS, Head, JobRegisters, Kind, Task, chosen
from .streams import Slice

STALE = 4  # subtype of a CONTROL packet
N_STAGES = 8  # cycles a packet

Verdict = data.StructLayout(
    {
        "adds": 1,
        "first": 1,  # the slot holds nothing of this generation
        "again": 1,  # the stored sum is the answer
        "ends": 1,  # the slot's time is over
        **{name: 1 for name in EVENTS if name != "partial"},
    }
)


class SlotRule(wiring.Component):
    """Compares a head with its slot's record, writes the record, and says what is to be done.

    One head every 8 cycles, its task `N_STAGES` + 2 cycles after it was taken. The record of each
    (slot, set) has everything but the sums and their overflow flag. The generation is compared
    first: an older one changes nothing, a newer one claims the set, an equal one must agree with
    what the claim said. See `gradnic.hdl.aggregate.AggregationUnit` for the ports.

    Parameters
    ----------
    sizes : Sizes

    Members
    -------
    jobs, clear, clear_job, busy, now, tick, heads, events, event_job : as there
    tasks : Out(stream.Signature(Task(sizes.place_width)))
        One for each head, in order, and one for each slot that is closed without one.
    """

    def __init__(self, sizes):
        self.sizes = sizes
        self.records = BlockRAM(Record.size, 2**sizes.place_width)
        self.sweep = Sweep(sizes.n_jobs, sizes.place_width)
        self.queue = Slice(Task(sizes.place_width))
        super().__init__(
            {
                "jobs": In(data.ArrayLayout(JobRegisters, sizes.n_jobs)),
                "clear": In(1),
                "clear_job": In(4),
                "busy": Out(1),
                "now": In(32),
                "tick": In(1),
                "heads": In(stream.Signature(Head)),
                "tasks": Out(stream.Signature(Task(sizes.place_width))),
                "events": Out(data.StructLayout(dict.fromkeys(EVENTS, 1))),
                "event_job": Out(4),
            }
        )
        self.at = Signal(N_STAGES)  # stage that the packet is in, one-hot
        self.head = Signal(Head, reset_less=True)
        self.closing = Signal()  # no packet, but a slot whose time is over

    def elaborate(self, platform):
        m = Module()
        m.submodules.records = records = self.records
        m.submodules.sweep = sweep = self.sweep
        m.submodules.queue = queue = self.queue
        wiring.connect(m, queue.o, wiring.flipped(self.tasks))
        at, head, closing = self.at, self.head, self.closing
        place = Cat(head.gen[0], head.slot)[: self.sizes.place_width]
        # in the last stage a task goes in: then the one before must have left
        self._start(m, queue.i.ready & (~at[7] | ~queue.o.valid | queue.o.ready))

        # stage 0: the record is asked for; stage 2: it is there
        record, job = Signal(Record, reset_less=True), Signal(JobRegisters, reset_less=True)
        m.d.comb += [
            records.read_addr.eq(Mux(at[0], place, sweep.place)),
            sweep.record.eq(records.read_data),
            sweep.may_read.eq(~at[0] & ~at[7]),
        ]
        with m.If(at[2]):
            m.d.sync += record.eq(records.read_data)
        with m.If(at[0]):
            m.d.sync += job.eq(chosen(self.jobs, head.job))
        with m.If(at[3] & closing):
            m.d.sync += job.eq(chosen(self.jobs, record.job))
        refused = self._refusals(m, job)
        verdict, after = self._verdict(m, refused, record)
        closes, crosses = self._closes(m, verdict, after, job)
        self._tell(m, queue.i, verdict, after, closes, job, place)

        written = Signal(Record)
        m.d.comb += [
            written.eq(after),
            written.closed.eq(closes),
            records.write_en.eq((at[7] & (verdict.adds | closes)) | sweep.wipes),
            records.write_addr.eq(Mux(at[7], place, sweep.place)),
            records.write_data.eq(Mux(at[7], written, 0)),
            sweep.crossed.eq(at[7] & crosses),
        ]
        for name in ("accepted", "claims", "abandoned", "duplicates", "stale", "late",
                     "retransmitted", "collisions", "config", "length"):  # fmt: skip
            m.d.sync += self.events[name].eq(at[7] & verdict[name])
        m.d.sync += self.events.partial.eq(at[7] & closes & (after.count != job.n_children))
        m.d.sync += self.event_job.eq(Mux(closing, after.job, head.job))
        return m

    def _start(self, m, has_room):
        """Take a request to close a slot, or else a head, every `N_STAGES` cycles."""
        at, head, sweep = self.at, self.head, self.sweep
        starts, takes = Signal(), Signal()
        m.d.comb += [
            *(
                getattr(sweep, name).eq(getattr(self, name))
                for name in ("jobs", "now", "tick", "clear", "clear_job")
            ),
            self.busy.eq(sweep.busy),
            sweep.resting.eq(~at.any()),
            starts.eq(~at[:-1].any() & has_room),
            sweep.close.ready.eq(starts),
            self.heads.ready.eq(starts & ~sweep.close.valid & ~sweep.blocks),
            takes.eq(sweep.close.valid | (self.heads.valid & ~sweep.blocks)),
        ]
        m.d.sync += at.eq(Cat(starts & takes, at[:-1]))
        with m.If(starts):
            m.d.sync += [head.eq(self.heads.p), self.closing.eq(sweep.close.valid)]
            with m.If(sweep.close.valid):
                m.d.sync += [
                    head.slot.eq(sweep.close.p.place[1:]),
                    head.gen.eq(sweep.close.p.gen),
                ]

    def _refusals(self, m, job):
        """Stages 1 and 2: whether the head disagrees with its job's registers, as (collides,
        config, length) in stage 3."""
        head, sizes = self.head, self.sizes
        fits, in_table = Signal(reset_less=True), Signal(reset_less=True)
        offset = Signal(signed(15), reset_less=True)
        length = Signal(16, reset_less=True)
        is_words = (head.op == Op.NORM) | (head.op == Op.INT32)
        is_index, is_sum = head.op == Op.THC_IDX, head.op == Op.THC_SUM
        code, sum_bytes = (8, 12, 16).index(sizes.width), sizes.chunk * sizes.width // 8
        m.d.sync += [
            offset.eq(head.slot - job.first_slot),
            fits.eq(
                Mux(is_words, (head.elems != 0) & (head.elems <= sizes.n_words),
                    (head.elems == sizes.chunk) & Mux(
                        is_index,
                        (head.p0 == Cat(job.block, job.p, job.bits)) & (head.p1 == job.g),
                        head.p1[6:] == code))
                & Mux(job.int32, head.op == Op.INT32, is_index | is_sum | (head.op == Op.NORM))
            ),
            in_table.eq(~is_index | (job.bits < sizes.b_max)),
            length.eq(
                Mux(is_words, head.elems << 2,
                    Mux(is_index, (job.bits + 1) * (sizes.chunk // 8), sum_bytes))
            ),
        ]  # fmt: skip
        refused = Signal(data.StructLayout({"collisions": 1, "config": 1, "length": 1}))
        outside = (offset < 0) | (offset >= job.n_slots) | (head.slot >= sizes.n_slots)
        wrong = ~fits | ~in_table
        m.d.sync += [
            refused.collisions.eq(outside),
            refused.config.eq(~outside & wrong),
            refused.length.eq(~outside & ~wrong & (head.length != length)),
        ]
        return refused

    def _verdict(self, m, refused, record):
        """Stages 3 to 5: what the rule says, and the record as it will be, in stage 6."""
        head, closing = self.head, self.closing
        age = Signal(signed(16), reset_less=True)
        bit, seen = Signal(32, reset_less=True), Signal(reset_less=True)
        differs = Signal(4, reset_less=True)
        is_thc = (head.op == Op.THC_IDX) | (head.op == Op.THC_SUM)
        m.d.sync += [
            bit.eq(1 << head.src),
            age.eq(head.gen - record.gen),
            seen.eq((record.bitmap & bit).any()),
            differs.eq(
                Cat(
                    (head.tensor != record.tensor) | (head.op != record.op),
                    (head.seq != record.seq) | (head.lc != record.lc),
                    (head.elems != record.elems) | (head.tree != record.tree),
                    is_thc & (head.arg != record.tag),
                )
            ),
        ]
        claims, same, stale = Signal(), Signal(), Signal()
        good = Signal()
        m.d.sync += [
            good.eq(~refused.as_value().any() & ~closing),
            claims.eq(~record.valid | (age > 0)),
            same.eq(record.valid & (age == 0)),
            stale.eq(record.valid & (age < 0)),
        ]
        fits = Signal()
        m.d.comb += fits.eq(good & same & ~differs.any())
        verdict = Signal(Verdict, reset_less=True)
        adds = (good & claims) | (fits & ~record.closed & ~seen)
        m.d.sync += [
            verdict.adds.eq(adds),
            verdict.first.eq(claims),
            verdict.again.eq(fits & record.closed),
            verdict.ends.eq(closing & same & ~record.closed),
            verdict.accepted.eq(adds),
            verdict.claims.eq(good & claims),
            verdict.abandoned.eq(good & claims & record.valid & ~record.closed),
            verdict.duplicates.eq(fits & ~record.closed & seen),
            verdict.stale.eq(good & stale),
            verdict.late.eq(fits & record.closed & ~seen),
            verdict.retransmitted.eq(fits & record.closed & seen),
            verdict.collisions.eq(refused.collisions & ~closing),
            verdict.config.eq((refused.config & ~closing) | (good & same & differs.any())),
            verdict.length.eq(refused.length & ~closing),
        ]
        return verdict, self._after(m, record, claims, adds, bit)

    def _after(self, m, record, claims, adds, bit):
        """The record as this packet leaves it; ``closed`` and ``opened`` are added later."""
        head = self.head
        after = Signal(Record, reset_less=True)
        brings = Mux((head.op == Op.NORM) | (head.op == Op.THC_SUM), head.p0, 1)
        leaves = Mux(claims, 0, record.leaves) + brings
        m.d.sync += after.eq(record)
        with m.If(adds):
            for name in ("job", "gen", "op", "lc", "tensor", "tree", "seq", "elems"):
                m.d.sync += after[name].eq(head[name])
            m.d.sync += [
                after.valid.eq(1),
                after.tag.eq(head.arg),
                after.bitmap.eq(Mux(claims, 0, record.bitmap) | bit),
                after.count.eq(Mux(claims, 0, record.count) + 1),
                after.leaves.eq(Mux(leaves[8], 255, leaves)),
                after.last.eq(head.last | (record.last & ~claims)),
                after.ecn.eq(head.ecn | (record.ecn & ~claims)),
            ]
            with m.If(claims):
                m.d.sync += [after.closed.eq(0), after.opened.eq(self.now)]
            for kept, new in (("e0", head.p0), ("e1", head.p1)):
                with m.If(claims | (new.as_signed() > record[kept].as_signed())):
                    m.d.sync += after[kept].eq(new)
        return after

    def _closes(self, m, verdict, after, job):
        """Stages 3 to 6: whether the slot closes, and whether with this packet enough has come of
        its tensor, both in stage 7."""
        head, sweep, n_jobs = self.head, self.sweep, self.sizes.n_jobs
        totals = Signal(data.ArrayLayout(40, n_jobs))
        tensors, enough = Signal(data.ArrayLayout(16, n_jobs)), Signal(n_jobs)
        m.d.comb += [sweep.tensors.eq(tensors), sweep.enough.eq(enough)]
        so_far, known = Signal(40, reset_less=True), Signal(reset_less=True)
        total, is_enough = Signal(40, reset_less=True), Signal(reset_less=True)
        before = Signal(reset_less=True)
        same = chosen(tensors, head.job) == head.tensor
        m.d.sync += [
            so_far.eq(Mux(same, chosen(totals, head.job), 0)),
            known.eq(same & chosen(enough, head.job)),
            total.eq(so_far + head.length),
            before.eq(known),
            is_enough.eq(total >= job.need_bytes),
        ]
        partly = after.op != Op.NORM
        bounded = verdict.adds & partly & (job.close == CLOSE_BOUNDED)
        by_count = (job.close == CLOSE_N_MIN) & partly & (after.count >= job.n_min)
        closes, crosses = Signal(), Signal()
        m.d.sync += [
            closes.eq(
                verdict.ends
                | (verdict.adds & ((after.count == job.n_children) | by_count))
                | (bounded & is_enough & before)
            ),
            crosses.eq(bounded & is_enough & ~before),
        ]
        for k in range(n_jobs):
            with m.If(self.at[6] & bounded & (head.job == k)):
                m.d.sync += [
                    tensors[k].eq(head.tensor),
                    totals[k].eq(total),
                    enough[k].eq(is_enough),
                ]
            with m.If(self.clear & (self.clear_job == k)):
                m.d.sync += [totals[k].eq(0), enough[k].eq(0)]
        return closes, crosses

    def _tell(self, m, tasks, verdict, after, closes, job, place):
        """Stages 6 and 7: the task."""
        head, sizes = self.head, self.sizes
        missing = Signal(8, reset_less=True)
        is_words = (after.op == Op.NORM) | (after.op == Op.INT32)
        fills = job.root & ~is_words & (after.leaves < job.leaves)
        m.d.sync += missing.eq(Mux(fills, job.leaves - after.leaves, 0))
        kind = Signal(Kind, reset_less=True)
        with m.Switch(after.op):
            for op, value in (
                (Op.THC_SUM, Kind.SUM),
                (Op.NORM, Kind.NORM),
                (Op.INT32, Kind.INT32),
            ):
                with m.Case(op):
                    m.d.sync += kind.eq(value)
            with m.Default():
                m.d.sync += kind.eq(Kind.INDEX)
        task, answer = tasks.p, tasks.p.answer
        m.d.comb += [
            tasks.valid.eq(self.at[7] & (closes | ~self.closing)),
            task.place.eq(place),
            task.job.eq(after.job),
            task.kind.eq(kind),
            task.bits.eq(job.bits),
            task.overflow.eq(job.overflow),
            task.elems.eq(after.elems),
            task.takes.eq(~self.closing & (head.length != 0)),
            task.adds.eq(verdict.adds),
            task.first.eq(verdict.first),
            task.emits.eq(closes | verdict.again),
            task.tells.eq(verdict.stale),
            task.missing.eq(missing),
            task.g.eq(job.g),
        ]
        for name in ("gen", "lc", "tensor", "tree", "seq"):
            m.d.comb += answer[name].eq(Mux(self.closing, after[name], head[name]))
        m.d.comb += [
            answer.job.eq(Mux(self.closing, after.job, head.job)),
            answer.slot.eq(head.slot),
            answer.ovf.eq(verdict.adds & head.ovf),
        ]
        with m.If(verdict.stale):
            m.d.comb += [
                answer.children.eq(1 << head.src),
                answer.op.eq(Op.CONTROL),
                answer.p0.eq(STALE),
                answer.arg.eq(after.gen),
            ]
        with m.Else():
            everyone = Cat(job.n_children > k for k in range(32))
            code = (8, 12, 16).index(sizes.width)
            is_int = after.op == Op.INT32
            sum_bytes = sizes.chunk * sizes.width // 8
            m.d.comb += [
                answer.children.eq(Mux(verdict.again, 1 << head.src, everyone)),
                answer.op.eq(Mux(after.op == Op.THC_IDX, Op.THC_SUM, after.op)),
                answer.elems.eq(after.elems),
                answer.p0.eq(Mux(is_int, after.e0, after.leaves)),
                answer.p1.eq(Mux(is_int, after.e1, Mux(is_words, 0, code << 6))),
                answer.arg.eq(after.bitmap),
                answer.last.eq(after.last),
                answer.retx.eq(verdict.again),
                answer.ecn.eq(after.ecn),
                answer.part.eq(after.count != job.n_children),
                answer.length.eq(Mux(is_words, after.elems << 2, sum_bytes)),
            ]
