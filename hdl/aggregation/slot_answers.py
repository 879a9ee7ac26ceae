"""Sends what slots answer: heads, and behind each its sum, cut into beats.

Part of `gradnic.hdl.aggregation.unit`, whose golden model it follows.
"""

from amaranth.hdl import Cat, Module, Mux, Signal
from amaranth.lib import data, stream, wiring
from amaranth.lib.wiring import In, Out
from amaranth.utils import ceil_log2

from ..primitive.names import signals
from ..stream.admission import Room, credit
from ..stream.beats import Beat
from ..stream.block_fifo import BlockFIFO
from ..stream.delays import copied, delayed, delayed_flag
from ..stream.fifo import FIFO
from ..stream.steering import chunks, moved
from .slot_records import Answer, Sizes, chosen

N_ANSWERS = 16
N_SUMS = 4
N_BEATS = 16  # on their way out
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
        with a sum begin at least 8 cycles apart.
    length, is_thc : In(16), In(1)
        Of the task that begins: bytes of the sum, and whether it goes most significant bit first.
    row_comes, row : In(1), In(sizes.row_bits)
        A row of a sum, lane by lane or word by word, comes with the next cycle; that row.
    whole : In(1)
        One more sum may be sent: its first beat leaves 5 cycles later at the earliest.
    answer_valid, answer : In(1), In(Answer)
        An answer; it leaves 2 cycles later at the earliest.
    answers, sums : see `gradnic.hdl.aggregation.unit.AggregationUnit`
    """

    def __init__(self, sizes: Sizes) -> None:
        self.sizes = sizes
        self.idle = Signal(init=1)  # no row is under way
        super().__init__(
            {
                "open": Out(1),
                "takes": In(1),
                "with_sum": In(1),
                "length": In(16),
                "is_thc": In(1),
                "row_comes": In(1),
                "row": In(sizes.row_bits),
                "whole": In(1),
                "answer_valid": In(1),
                "answer": In(Answer),
                "answers": Out(stream.Signature(Answer)),
                "sums": Out(stream.Signature(Beat(8 * sizes.n_bytes))),
            }
        )

    def elaborate(self, platform):
        m = Module()
        sizes = self.sizes
        n_rows = N_SUMS * sizes.n_rows
        small = n_rows <= LARGEST_FIFO
        tail_shape = data.StructLayout({"before_last": 16, "single": 1, "is_thc": 1})
        rows = []
        for start, stop in chunks(sizes.row_bits):  # each queue has a control of its own
            if small:
                part = FIFO(stop - start, n_rows, never_full=True)
            else:
                part = BlockFIFO(stop - start, n_rows)
            m.submodules[f"rows{start}"] = part
            (valid,) = copied(m, self.row_comes, 1, name=f"row_valid{start}_")
            m.d.comb += [part.i.valid.eq(valid), part.i.payload.eq(self.row[start:stop])]
            rows.append(part.o)
        m.submodules.tails = tails = FIFO(tail_shape, N_SUMS)
        m.submodules.heads = heads = FIFO(Answer, N_ANSWERS)
        m.submodules.room = room = Room(N_ANSWERS)
        wiring.connect(m, heads.o, wiring.flipped(self.answers))

        held = Signal(range(N_SUMS + 1))
        has_room, took, ended = signals("has_room took ended")
        m.d.sync += [
            took.eq(self.takes & self.with_sum),
            held.eq(held + took - ended),
            has_room.eq(held != N_SUMS),
        ]
        length = delayed(m, self.length, 1, name="length")
        m.d.comb += [
            self.open.eq(room.open & has_room),
            room.take.eq(self.takes),
            room.give.eq(heads.o.valid & heads.o.ready),
            heads.i.valid.eq(self.answer_valid),
            heads.i.p.eq(self.answer),
            tails.i.valid.eq(took),
            tails.i.p.before_last.eq((length - (sizes.n_bytes + 1)) >> ceil_log2(sizes.n_bytes)),
            tails.i.p.single.eq(length <= sizes.n_bytes),
            tails.i.p.is_thc.eq(delayed(m, self.is_thc, 1, name="is_thc")),
        ]
        begins, goes, last = signals("begins goes last")
        ends = goes & last
        may_go = Signal(N_SUMS)  # bit k: more than k sums may be sent
        # rows that their queues offer by the next cycle: counted here, for the queues lie far away
        lag = (FIFO if small else BlockFIFO).latency - 2
        arrived, begun = signals("arrived begun", range(n_rows + 1))
        there = Signal()
        following = Signal.like(begun, init=1)
        with m.If(delayed_flag(m, self.row_comes, lag, name="came")):
            m.d.sync += arrived.eq(arrived + 1)
        with m.If(begins):
            m.d.sync += [begun.eq(following), following.eq(following + 1)]
        m.d.sync += [
            ended.eq(ends),
            may_go.eq(moved(m, may_go, self.whole, ends)),
            there.eq(arrived != Mux(begins, following, begun)),
        ]
        first = Signal(init=1)
        turned, part = self._sequence(m, begins, goes, last, first, tails)
        for k, row in enumerate(rows):
            (pops,) = copied(m, turned, 1, name=f"pops{k}_")
            m.d.comb += row.ready.eq(pops)
        is_thc = Signal()  # of the payload under way
        with m.If(first):
            m.d.sync += is_thc.eq(tails.o.p.is_thc)
        (turns,) = copied(m, Mux(first, tails.o.p.is_thc, is_thc), 1, name="is_thc")
        beats = self._beats(m, Cat(row.payload for row in rows), turns)
        space = self._send(m, beats, begins, goes, last, turned, part)
        m.d.comb += begins.eq(self.idle & there & may_go[0] & space)
        return m

    def _sequence(self, m, begins, goes, last, first, tails):
        """A row at a time, beat by beat. A row takes two cycles or more, so that it leaves its
        queues by registers: (flag that it did so a cycle ago, the next beat's place in its row).
        """
        n_beats = self.sizes.width // 4
        number = Signal(16)
        part = Signal(range(n_beats))
        running, rests = signals("running rests")  # a row is under way; it ended before its time
        was_last = Signal()
        before_last = Signal(16)
        turned = Signal(attrs={"keep_register": 1})
        tail, turns = tails.o.p, turned & ~rests
        # all but the last beat of a row have left; of a row of two that is its first
        leaves = begins if n_beats == 2 else goes & ~turns & (last | (part == n_beats - 2))
        m.d.comb += [
            goes.eq(begins | running),
            last.eq(Mux(first, tail.single, was_last)),
        ]
        taken = delayed_flag(m, begins & first, 1, name="tail_taken")
        m.d.comb += tails.o.ready.eq(taken)
        m.d.sync += [
            rests.eq(goes & last & ~turns),
            running.eq(goes & ~last & ~turns),
            self.idle.eq(~goes | turns),
            turned.eq(leaves),
        ]
        with m.If(first):
            m.d.sync += before_last.eq(tail.before_last)
        with m.If(goes):
            m.d.sync += [
                part.eq(Mux(last | turns, 0, part + 1)),
                number.eq(Mux(last, 0, number + 1)),
                first.eq(last),
                was_last.eq(number == Mux(first, tail.before_last, before_last)),
            ]
        return turned, part

    def _send(self, m, beats, begins, goes, last, turned, part):
        """Choose the beat and queue it; returns the flag that there is room for a row's beats."""
        size = 8 * self.sizes.n_bytes
        shape = data.StructLayout({"beat": Beat(size), "turns": 1})
        m.submodules.out = out = FIFO(shape, N_BEATS, never_full=True)
        for start, stop in chunks(size):
            (place,) = copied(m, part, 1, name=f"part{start}_")
            beat = Signal(stop - start, name=f"beat{start}", reset_less=True)
            m.d.sync += beat.eq(chosen([b[start:stop] for b in beats], place))
            m.d.comb += out.i.p.beat.data[start:stop].eq(beat)
        leaves = self.sums.valid & self.sums.ready & out.o.p.turns
        m.d.comb += [
            out.i.valid.eq(delayed_flag(m, goes, 2, name="goes")),
            out.i.p.beat.last.eq(delayed(m, last, 2, name="ends")),
            out.i.p.turns.eq(delayed(m, last | turned, 2, name="turns")),
            self.sums.valid.eq(out.o.valid),
            self.sums.p.eq(out.o.p.beat),
            out.o.ready.eq(self.sums.ready),
        ]
        return credit(m, N_BEATS // len(beats), take=begins, give=leaves, name="space")

    def _beats(self, m, row, is_thc):
        """The beats of a row; sums go most significant bit first."""
        sizes, width = self.sizes, self.sizes.width
        if width != 8:  # bytes look the same either way
            # signals, not values: each of their bits is used, and would be written out as a whole
            lanes, bits, sent = signals("lanes bits sent", len(row))
            m.d.comb += [
                lanes.eq(row),
                bits.eq(Cat(lanes[k * width :][:width][::-1] for k in range(sizes.lanes))),
                sent.eq(Mux(is_thc, Cat(bits[i ^ 7] for i in range(len(bits))), lanes)),
            ]
            row = sent
        size = 8 * sizes.n_bytes
        return [row[k * size : (k + 1) * size] for k in range(width // 4)]
