"""The slot rule: reads a slot's record, has it judged, writes it, and says what is to be done.

Twin of `gradnic.models.aggregation.slot_rule`; a part of the aggregation unit.
"""

from amaranth.hdl import Cat, Module, Mux, Signal
from amaranth.lib import data, stream, wiring
from amaranth.lib.wiring import In, Out

from gradnic.interface.formats import Op

from ..primitive.block_ram import BlockRAM
from ..primitive.names import signals
from ..primitive.same import same
from ..stream.delays import copied
from ..stream.slice import Slice
from ..stream.steering import moved
from .slot_records import EVENTS, ContributionHead, JobRegisters, Kind, Record, Sizes, Task, chosen
from .slot_sweep import Sweep
from .slot_verdict import SLICE, SlotVerdict

STALE = 4  # subtype of a CONTROL packet
N_STAGES = 8  # cycles a packet
N_TASKS = 2  # under way or in the queue


class SlotRule(wiring.Component):
    """Compares a head with its slot's record, writes the record, and says what is to be done.

    One head every 8 cycles, its task `N_STAGES` + 1 cycles after it was taken. The record of each
    (slot, set) has everything but the sums and their overflow flag. What may be done to it is
    `SlotVerdict`; a SwitchML packet also clears its sender's bit in the slot's other set. See
    `gradnic.hdl.aggregation.unit.AggregationUnit` for the ports.

    Parameters
    ----------
    sizes : Sizes

    Members
    -------
    jobs, clear, clear_job, busy, now, tick, heads, events, event_job : as there
    tasks : Out(stream.Signature(Task(sizes.place_width)))
        One for each head, in order, and one for each slot that was to be closed without one.
    """

    def __init__(self, sizes: Sizes) -> None:
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
                "heads": In(stream.Signature(ContributionHead)),
                "tasks": Out(stream.Signature(Task(sizes.place_width))),
                "events": Out(data.StructLayout(dict.fromkeys(EVENTS, 1))),
                "event_job": Out(4),
            }
        )
        self.at = Signal(N_STAGES)  # stage that the packet is in, one-hot
        self.may = Signal()  # no packet is in stages 0 to 6
        self.left = Signal(N_TASKS, init=-1)  # bit k: there is room for more than k tasks
        self.given = Signal()  # a task has left a cycle ago
        self.head = Signal(ContributionHead, reset_less=True)
        self.closing = Signal()  # no packet, but a slot whose time is over
        self.clears = Signal()  # the other set's record is being written
        self.verdict = SlotVerdict(sizes)

    def elaborate(self, platform):
        m = Module()
        m.submodules.records = records = self.records
        m.submodules.sweep = sweep = self.sweep
        m.submodules.queue = queue = self.queue
        m.submodules.verdict = judge = self.verdict
        wiring.connect(m, queue.o, wiring.flipped(self.tasks))
        at, head, closing = self.at, self.head, self.closing
        place = Cat(head.gen[0], head.slot)[: self.sizes.place_width]
        going = self._start(m)

        # stages 0 and 1: the records of both sets are asked for; 2 and 3: they are there
        record, other = signals("record other", Record, reset_less=True)
        m.d.comb += [
            records.read_addr.eq(Mux(at[0], place, Mux(at[1], place ^ 1, sweep.place))),
            sweep.record.eq(records.read_data),
            sweep.may_read.eq(~(at[:2].any() | at[6:].any())),
        ]
        starts = range(0, Record.size, SLICE)
        for start, loads in zip(starts, copied(m, at[1], len(starts), name="loads"), strict=True):
            part = slice(start, start + SLICE)
            with m.If(loads):
                m.d.sync += record.as_value()[part].eq(records.read_data[part])
        with m.If(at[3]):
            m.d.sync += other.eq(records.read_data)
        whose, job = self._registers(m, going)
        m.d.comb += [
            judge.head.eq(head),
            judge.closing.eq(closing),
            judge.job.eq(job),
            judge.record.eq(record),
            judge.now.eq(self.now),
        ]
        verdict, after = judge.verdict, judge.after
        closes, crosses = self._closes(m, whose, job)
        self._tell(m, queue.i, record, closes, job, place)

        written, beside = signals("written beside", Record)
        bit = Signal(32, reset_less=True)
        m.d.sync += bit.eq(~(1 << head.src))
        m.d.comb += [
            self.clears.eq(at[6] & verdict.clears),
            written.eq(after),
            written.closed.eq(closes),
            beside.eq(other),
            beside.bitmap.eq(other.bitmap & bit),
            records.write_en.eq((at[7] & (verdict.adds | closes)) | self.clears | sweep.erase),
            records.write_addr.eq(Mux(at[7], place, Mux(at[6], place ^ 1, sweep.erase_place))),
            sweep.crossed.eq(at[7] & crosses),
        ]
        own, else_ = (copied(m, at[k], len(starts), name=f"writes{k}") for k in (6, 5))
        for start, is_own, is_else in zip(starts, own, else_, strict=True):
            part = slice(start, start + SLICE)
            one, two = (r.as_value()[part] & on.replicate(len(r.as_value()[part]))
                        for r, on in ((written, is_own), (beside, is_else)))  # fmt: skip
            m.d.comb += records.write_data[part].eq(one | two)
        for name in ("accepted", "claims", "abandoned", "duplicates", "stale", "late",
                     "retransmitted", "collisions", "config", "length"):  # fmt: skip
            m.d.sync += self.events[name].eq(at[7] & verdict[name])
        partial = closes & (after.count != job.n_children) & ~job.switchml
        m.d.sync += self.events.partial.eq(at[7] & partial)
        m.d.sync += self.event_job.eq(Mux(closing, after.job, head.job))
        return m

    def _start(self, m):
        """Take a request to close a slot, or else a head, every `N_STAGES` cycles."""
        at, head, sweep = self.at, self.head, self.sweep
        starts, going, gone = signals("starts going gone")
        # a task goes in at the end of each: there is room for it from the beginning
        left, given = self.left, self.given
        m.d.sync += [given.eq(gone), left.eq(moved(m, left, given, going))]
        m.d.comb += [
            *same(sweep, self, "jobs now tick clear clear_job"),
            self.busy.eq(sweep.busy),
            sweep.resting.eq(~at.any()),
            starts.eq(self.may & left[0]),
            gone.eq(self.queue.o.valid & self.queue.o.ready),
            sweep.close.ready.eq(starts),
            self.heads.ready.eq(starts & ~sweep.close.valid & ~sweep.blocks),
            going.eq(starts & (sweep.close.valid | (self.heads.valid & ~sweep.blocks))),
        ]
        m.d.sync += [
            at.eq(Cat(going, at[:-1])),
            self.may.eq(~going & ~at[:6].any()),
        ]
        with m.If(starts):
            m.d.sync += [head.eq(self.heads.p), self.closing.eq(sweep.close.valid)]
            with m.If(sweep.close.valid):
                m.d.sync += [
                    head.slot.eq(sweep.close.p.place[1:]),
                    head.gen.eq(sweep.close.p.gen),
                ]
        return starts

    def _registers(self, m, starts):
        """Whose packet it is, and the job's registers: of the head in stages 0 and 1, of a slot
        that is to be closed in stages 3 and 4.
        """
        found = Signal(JobRegisters, reset_less=True)
        numbers = []
        for start in range(0, JobRegisters.size, SLICE):
            number = Signal(4, name=f"number{start}", reset_less=True, attrs={"keep_register": 1})
            with m.If(starts):
                m.d.sync += number.eq(self.heads.p.job)
            with m.Elif(self.at[2] & self.closing):
                m.d.sync += number.eq(data.View(Record, self.records.read_data).job)
            part = slice(start, start + SLICE)
            entries = [entry.as_value()[part] for entry in self.jobs]
            m.d.sync += found.as_value()[part].eq(chosen(entries, number))
            numbers.append(number)
        return numbers[0], found

    def _closes(self, m, whose, job):
        """Whether the slot closes, and whether with this packet enough has come of its tensor,
        both in stage 7.
        """
        head, sweep, n_jobs, verdict = self.head, self.sweep, self.sizes.n_jobs, self.verdict
        # not an array: Yosys may take bit 3 of it for its element 3, by their name
        totals = [Signal(40, name=f"total_of{k}") for k in range(n_jobs)]
        tensors = Signal(data.ArrayLayout(16, n_jobs))
        enough = Signal(n_jobs)
        m.d.comb += [sweep.tensors.eq(tensors), sweep.enough.eq(enough)]
        # stages 0 to 4: its tensor's bytes so far
        tensor = Signal(16, reset_less=True)
        so_far = Signal(40, reset_less=True)
        known, same = signals("known same", reset_less=True)
        base = Signal(40, reset_less=True)
        before = Signal(reset_less=True)
        total = Signal(40, reset_less=True)
        is_enough = Signal(reset_less=True)
        m.d.sync += [
            tensor.eq(chosen(tensors, whose)),
            so_far.eq(chosen(totals, whose)),
            known.eq(chosen(enough, whose)),
            same.eq(tensor == head.tensor),
            base.eq(Mux(same, so_far, 0)),
            before.eq(same & known),
            total.eq(base + head.length),
            is_enough.eq(total >= job.need_bytes),
        ]
        bounded = verdict.bounded & verdict.verdict.adds
        closes, crosses = signals("closes crosses")
        m.d.sync += [
            closes.eq(
                verdict.verdict.ends
                | (verdict.verdict.adds & verdict.verdict.fills)
                | (bounded & is_enough & before)
            ),
            crosses.eq(bounded & is_enough & ~before),
        ]
        for k in range(n_jobs):
            own = Signal(name=f"bytes_of{k}", reset_less=True)
            m.d.sync += own.eq(head.job == k)
            with m.If(self.at[6] & bounded & own):
                m.d.sync += [
                    tensors[k].eq(head.tensor),
                    totals[k].eq(total),
                    enough[k].eq(is_enough),
                ]
            with m.If(self.clear & (self.clear_job == k)):
                m.d.sync += [totals[k].eq(0), enough[k].eq(0)]
        return closes, crosses

    def _tell(self, m, tasks, record, closes, job, place):
        """Stages 4 to 7: the task."""
        head, sizes, verdict, after = (
            self.head,
            self.sizes,
            self.verdict.verdict,
            self.verdict.after,
        )
        closing, closing_copy = copied(m, self.closing, 2, name="closing")
        op = Signal(4, reset_less=True)
        kind = Signal(Kind, reset_less=True)
        wanted = Signal(8, reset_less=True)
        everyone = Signal(32, reset_less=True)
        bit = Signal(32, reset_less=True)
        is_int, is_words = signals("is_int is_words", reset_less=True)
        words = (op == Op.NORM) | (op == Op.INT32)
        m.d.sync += [
            op.eq(Mux(closing, record.op, head.op)),
            is_int.eq(op == Op.INT32),
            is_words.eq(words),
            wanted.eq(Mux(job.root & ~words, job.leaves, 0)),
            everyone.eq(Cat(job.n_children > k for k in range(32))),
            bit.eq(1 << head.src),
        ]
        with m.Switch(op):
            for number, value in (
                (Op.THC_SUM, Kind.SUM),
                (Op.NORM, Kind.NORM),
                (Op.INT32, Kind.INT32),
            ):
                with m.Case(number):
                    m.d.sync += kind.eq(value)
            with m.Default():
                m.d.sync += kind.eq(Kind.INDEX)
        task, answer = tasks.p, tasks.p.answer
        m.d.comb += [
            tasks.valid.eq(self.at[7]),
            task.place.eq(place),
            task.job.eq(after.job),
            task.kind.eq(kind),
            task.bits.eq(job.bits),
            task.overflow.eq(job.overflow),
            task.elems.eq(after.elems),
            task.takes.eq(~closing & (head.length != 0)),
            task.adds.eq(verdict.adds),
            task.first.eq(verdict.first),
            task.emits.eq(closes | verdict.again),
            task.tells.eq(verdict.stale),
            task.leaves.eq(after.leaves),
            task.wanted.eq(wanted),
            task.g.eq(job.g),
        ]
        for name in ("gen", "lc", "tensor", "tree", "seq"):
            m.d.comb += answer[name].eq(Mux(closing_copy, after[name], head[name]))
        m.d.comb += [
            answer.job.eq(Mux(closing, after.job, head.job)),
            answer.slot.eq(head.slot),
            answer.ovf.eq(verdict.adds & head.ovf),
            answer.children.eq(Mux(verdict.single, bit, everyone)),
        ]
        with m.If(verdict.stale):
            m.d.comb += [
                answer.op.eq(Op.CONTROL),
                answer.p0.eq(STALE),
                answer.arg.eq(after.gen),
            ]
        with m.Else():
            code = (8, 12, 16).index(sizes.width)
            sum_bytes = sizes.chunk * sizes.width // 8
            m.d.comb += [
                answer.op.eq(Mux(op == Op.THC_IDX, Op.THC_SUM, op)),
                answer.elems.eq(after.elems),
                answer.p0.eq(Mux(is_int, after.e0, after.leaves)),
                answer.p1.eq(Mux(is_int, after.e1, Mux(is_words, 0, code << 6))),
                answer.arg.eq(Mux(job.switchml, head.arg, after.bitmap)),
                answer.last.eq(after.last),
                answer.retx.eq(verdict.again),
                answer.ecn.eq(after.ecn),
                answer.part.eq(after.count != job.n_children),
                answer.length.eq(Mux(is_words, after.elems << 2, sum_bytes)),
            ]
