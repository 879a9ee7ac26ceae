"""Sends what slots answer: heads, and behind each its sum, cut into beats."""

from amaranth.hdl import Cat, Module, Mux, Signal
from amaranth.lib import data, stream, wiring
from amaranth.lib.wiring import In, Out
from amaranth.utils import ceil_log2

from .fifo import FIFO, chunks
from .pipeline import Room
from .ring import BlockFIFO
from .slot_types import Answer, chosen
from .streams import Beat, Slice

N_ANSWERS = 16
N_SUMS = 4
LARGEST_FIFO = 64


class SlotAnswers(wiring.Component):
    """Holds up to `N_SUMS` sums and `N_ANSWERS` answers until they are taken.

    Parameters
    ----------
    sizes : Sizes

    Members
    -------
    open, takes, with_sum : Out(1), In(1), In(1)
        There is room for one more task; one begins that will answer, and that with a sum. Tasks
        with a sum begin at least 6 cycles apart.
    row_valid, row : In(1), In(sizes.row_bits)
        A row of a sum, lane by lane or word by word.
    answer_valid, answer, is_thc : In(1), In(Answer), In(1)
        An answer; the first of its rows has come before.
    answers, sums : see `gradnic.hdl.aggregate.AggregationUnit`
        A beat leaves 4 cycles after its answer came at the earliest.
    """

    def __init__(self, sizes):
        self.sizes = sizes
        super().__init__(
            {
                "open": Out(1),
                "takes": In(1),
                "with_sum": In(1),
                "row_valid": In(1),
                "row": In(sizes.row_bits),
                "answer_valid": In(1),
                "answer": In(Answer),
                "is_thc": In(1),
                "answers": Out(stream.Signature(Answer)),
                "sums": Out(stream.Signature(Beat(8 * sizes.n_bytes))),
            }
        )

    def elaborate(self, platform):
        m = Module()
        sizes = self.sizes
        n_rows = N_SUMS * sizes.n_rows
        queue = FIFO if n_rows <= LARGEST_FIFO else BlockFIFO
        tail_shape = data.StructLayout({"before_last": 16, "single": 1, "is_thc": 1})
        m.submodules.rows = rows = queue(sizes.row_bits, n_rows)
        m.submodules.tails = tails = FIFO(tail_shape, N_ANSWERS)
        m.submodules.heads = heads = FIFO(Answer, N_ANSWERS)
        m.submodules.out = out = Slice(Beat(8 * sizes.n_bytes))
        m.submodules.room = room = Room(N_ANSWERS)
        wiring.connect(m, heads.o, wiring.flipped(self.answers))
        wiring.connect(m, out.o, wiring.flipped(self.sums))

        held = Signal(range(N_SUMS + 1))
        ends = Signal()
        m.d.sync += held.eq(held + (self.takes & self.with_sum) - ends)
        has_room = Signal()
        m.d.sync += has_room.eq(held != N_SUMS)
        m.d.comb += [
            self.open.eq(room.open & has_room),
            room.take.eq(self.takes),
            room.give.eq(heads.o.valid & heads.o.ready),
            rows.i.valid.eq(self.row_valid),
            rows.i.payload.eq(self.row),
            heads.i.valid.eq(self.answer_valid),
            heads.i.p.eq(self.answer),
            tails.i.valid.eq(self.answer_valid & (self.answer.length != 0)),
            tails.i.p.before_last.eq(((self.answer.length - 1) >> ceil_log2(sizes.n_bytes)) - 1),
            tails.i.p.single.eq(self.answer.length <= sizes.n_bytes),
            tails.i.p.is_thc.eq(self.is_thc),
        ]

        n_beats = sizes.width // 4  # of a row
        number, part, turns = Signal(16), Signal(range(n_beats)), Signal()  # the row's last beat
        first, was_last = Signal(init=1), Signal()
        goes, last = Signal(), Signal()
        tail = tails.o.p
        m.d.comb += [
            out.i.valid.eq(tails.o.valid & rows.o.valid),
            goes.eq(out.i.valid & out.i.ready),
            last.eq(Mux(first, tail.single, was_last)),
            ends.eq(goes & last),
            tails.o.ready.eq(out.i.ready & rows.o.valid & last),
            rows.o.ready.eq(out.i.ready & tails.o.valid & (last | turns)),
            out.i.p.last.eq(last),
        ]
        with m.If(goes):
            m.d.sync += [
                number.eq(Mux(last, 0, number + 1)),
                part.eq(Mux(last | turns, 0, part + 1)),
                turns.eq((part == n_beats - 2) & ~last & ~turns),
                first.eq(last),
                was_last.eq(number == tail.before_last),
            ]
        beats = self._beats(rows.o.payload, tail.is_thc)
        for start, stop in chunks(8 * sizes.n_bytes):
            own = Signal.like(part, name=f"part{start}", attrs={"keep_register": 1})
            with m.If(goes):
                m.d.sync += own.eq(Mux(last | turns, 0, own + 1))
            m.d.comb += out.i.p.data[start:stop].eq(chosen([b[start:stop] for b in beats], own))
        return m

    def _beats(self, row, is_thc):
        """The beats of a row; sums go most significant bit first."""
        sizes, width = self.sizes, self.sizes.width
        if width != 8:  # bytes look the same either way
            lanes = (row[k * width : (k + 1) * width] for k in range(sizes.lanes))
            bits = Cat(lane[::-1] for lane in lanes)
            row = Mux(is_thc, Cat(bits[i ^ 7] for i in range(len(bits))), row)
        size = 8 * sizes.n_bytes
        return [row[k * size : (k + 1) * size] for k in range(width // 4)]
