"""Carries out what the slot rule decided: adds payloads to rows of the store, and sends sums.

Part of `gradnic.hdl.aggregation.unit`, whose golden model it follows.
"""

from amaranth.hdl import Cat, Module, Mux, Signal
from amaranth.lib import data, memory, stream, wiring
from amaranth.lib.wiring import In, Out

from gradnic.interface.formats import Op

from ..primitive.multiplier import Multiplier
from ..primitive.names import signals
from ..primitive.same import same
from ..stream.beats import Beat
from ..stream.credit_queue import CreditQueue
from ..stream.delays import delayed, delayed_flag
from .slot_answers import SlotAnswers
from .slot_lanes import SlotLanes
from .slot_records import Answer, Sizes, Task
from .slot_rows import SlotRows

COLUMN = 16  # lanes that share address registers and block RAMs
N_TASKS = 16  # tasks at work at a time, at most
WHOLE = 7  # cycles from a sum's last order until it may be sent: it leaves with its answer


class SlotAdder(wiring.Component):
    """The data path of an aggregation unit: tasks and payloads in, answers and sums out.

    A row of `sizes.lanes` sums per cycle where the payload brings one, a beat per cycle where it
    does not: a packet of indices of b bits takes C * max(b / 8, 1 / 2) / n_bytes cycles, and a task
    with rows 8 at least.

    Parameters
    ----------
    sizes : Sizes

    Members
    -------
    tasks : In(stream.Signature(Task(sizes.place_width)))
    write_en, write_addr, write_data, values, answers, sums, overflow, overflow_job :
        see `gradnic.hdl.aggregation.unit.AggregationUnit`
    """

    def __init__(self, sizes: Sizes) -> None:
        self.sizes = sizes
        beats = stream.Signature(Beat(8 * sizes.n_bytes))
        super().__init__(
            {
                "tasks": In(stream.Signature(Task(sizes.place_width))),
                "write_en": In(1),
                "write_addr": In(4 + sizes.b_max),
                "write_data": In(8),
                "values": In(beats),
                "answers": Out(stream.Signature(Answer)),
                "sums": Out(beats),
                "overflow": Out(1),
                "overflow_job": Out(4),
            }
        )
        size = min(COLUMN, sizes.lanes)
        self.columns = [SlotLanes(sizes, size, k) for k in range(0, sizes.lanes, size)]

    def elaborate(self, platform):
        m = Module()
        m.submodules.rows = rows = SlotRows(self.sizes, len(self.columns))
        m.submodules.out = out = SlotAnswers(self.sizes)
        wiring.connect(m, wiring.flipped(self.tasks), rows.tasks)
        wiring.connect(m, wiring.flipped(self.values), rows.values)
        wiring.connect(m, out.answers, wiring.flipped(self.answers))
        wiring.connect(m, out.sums, wiring.flipped(self.sums))
        loaded, order = rows.following, rows.orders[0]
        m.d.comb += [
            rows.open.eq(out.open),
            out.takes.eq(rows.loads & (loaded.emits | loaded.tells)),
            out.with_sum.eq(loaded.emits),
            out.length.eq(loaded.answer.length),
            out.is_thc.eq(loaded.answer.op == Op.THC_SUM),
            out.whole.eq(delayed_flag(m, order.final & order.emits, WHOLE, name="whole")),
            out.row_comes.eq(
                delayed_flag(m, order.row & order.emits, SlotLanes.latency - 1, name="emits")
            ),
            out.row.eq(Cat(column.o for column in self.columns)),
        ]
        fill = self._fill(m, rows.task)
        overflows = []
        for number, column in enumerate(self.columns):
            # named by its first bit, so that block RAM of neighbors finds its places together
            m.submodules[f"part{column.first * self.sizes.width}"] = column
            m.d.comb += [
                *same(column, self, "write_en write_addr write_data"),
                column.order.eq(rows.orders[number]),
                column.indices.eq(rows.indices),
                column.row.eq(rows.row),
                column.fill.eq(fill),
            ]
            overflows.append(column.overflows)
        self._answer(m, rows, out, Cat(overflows).any())
        return m

    def _fill(self, m, task):
        """What the root adds for missing leaves, `SlotLanes.FILLS` cycles after the order."""
        width = self.sizes.width
        m.submodules.times = times = Multiplier(8, 8)
        missing, g = signals("missing g", 8, reset_less=True)
        m.d.sync += [
            missing.eq(Mux(task.wanted > task.leaves, task.wanted - task.leaves, 0)),
            g.eq(task.g),
        ]
        m.d.comb += [times.a.eq(missing), times.b.eq(g)]
        fill = Signal(width, reset_less=True)
        half = times.p[1:]
        m.d.sync += fill.eq(half[:width] | half[width:].any().replicate(width))
        # the order comes a cycle after the task, the product has a register on either side
        return delayed(m, fill, SlotLanes.FILLS + 1 - times.latency - 2, name="fill")

    def _answer(self, m, rows, out, over):
        """Add the overflow flag to what is known of a task, once its last row is through."""
        shape = data.StructLayout(
            {"answer": Answer, "place": self.sizes.place_width, "speaks": 1, "adds": 1, "first": 1}
        )
        m.submodules.tails = tails = CreditQueue(shape, N_TASKS)
        loaded, answer = rows.following, tails.i.p
        m.d.comb += [
            tails.i.valid.eq(rows.loads),
            answer.answer.eq(loaded.answer),
            answer.place.eq(loaded.place),
            answer.speaks.eq(loaded.emits | loaded.tells),
            answer.adds.eq(loaded.adds),
            answer.first.eq(loaded.first),
        ]
        m.submodules.flags = flags = memory.Memory(
            shape=1,
            depth=2**self.sizes.place_width,
            init=[],
            attrs={"ram_style": "distributed"},
        )
        read = flags.read_port(domain="comb")
        write = flags.write_port()
        takes = delayed_flag(m, rows.orders[0].final, SlotLanes.OVERFLOWS - 2, name="takes")
        final = delayed_flag(m, takes, 2, name="final")
        seen = Signal()
        total = Signal(reset_less=True)
        m.d.sync += [seen.eq((seen | over) & ~final), total.eq(seen | over)]
        m.d.comb += [tails.take.eq(takes), read.addr.eq(tails.word.place)]
        ends = delayed_flag(m, final, 1, name="ends")
        tail = delayed(m, tails.word, 1, name="tail")
        before = delayed(m, read.data, 1, name="before") & ~(tail.adds & tail.first)
        ovf = Signal()
        answer = tail.answer
        m.d.comb += [
            ovf.eq(before | total | answer.ovf),
            write.addr.eq(tail.place),
            write.data.eq(ovf),
            write.en.eq(ends & tail.adds),
            out.answer_valid.eq(ends & tail.speaks),
            out.answer.eq(answer),
            out.answer.ovf.eq(ovf & (answer.length != 0)),
        ]
        m.d.sync += [
            self.overflow.eq(ends & tail.adds & total & ~before),
            self.overflow_job.eq(answer.job),
        ]
