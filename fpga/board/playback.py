"""Parts of an on-board test: tables played as streams, and checkers that compare beat by beat."""

from amaranth.hdl import Cat, Const, Module, ResetInserter, Shape, Signal, Value
from amaranth.lib import data, stream, wiring
from amaranth.lib.wiring import In, Out
from gradnic.hdl.primitive.block_ram import BlockRAM
from gradnic.hdl.stream.admission import credit
from gradnic.hdl.stream.delays import delayed, delayed_flag
from gradnic.hdl.stream.fifo import FIFO


class Player(wiring.Component):
    """Offers the rows of a table in order, once after each ``start``: 1 beat per cycle.

    The table is block RAM with its output registers: without them it takes 5.6 ns on an ECP5 of
    grade 6, more than half a cycle. Rows on their way wait in a small queue, so that the table
    never stalls.

    Parameters
    ----------
    shape : shape-like, payload of the stream.
    rows : list of initial values of that shape, 1 to 2048.

    Members
    -------
    start : In(1). One cycle; rows that were not taken are forgotten.
    stall : In(1). No new row is fetched; up to 12 that were fetched before still come.
    o : Out(stream.Signature(shape))
    played : Out(1). Every row has been taken, or there was no ``start`` yet.
    """

    AHEAD = 12  # rows fetched and not taken yet: 8 cycles from one credit to the next use of it

    def __init__(self, shape, rows):
        if not rows:
            raise ValueError("rows must be at least 1, not 0")
        self.shape, self.rows = shape, rows
        super().__init__(
            {
                "start": In(1),
                "stall": In(1),
                "o": Out(stream.Signature(shape)),
                "played": Out(1),
            }
        )

    def elaborate(self, platform):
        m, play = Module(), Module()
        n_rows, width = len(self.rows), Shape.cast(self.shape).width
        words = [Const.cast(Const(row, self.shape)).value for row in self.rows]
        table = BlockRAM(width, max(n_rows, 2), init=words)
        queue = FIFO(width, self.AHEAD, never_full=True)
        m.submodules.table = table
        play.submodules.queue = queue
        fetch, taken, started = Signal(), Signal(), Signal()
        row = Signal(range(n_rows + 1))
        left = Signal(range(n_rows + 1), init=n_rows)  # rows not taken
        remain = Signal(init=1)  # there are rows not fetched
        room = credit(play, self.AHEAD, take=fetch, give=taken)
        play.d.comb += [
            fetch.eq(started & remain & room & ~self.stall),
            taken.eq(queue.o.valid & self.o.ready),
            table.read_addr.eq(row),
            queue.i.valid.eq(delayed_flag(play, fetch, 3, name="fetch")),
            queue.i.p.eq(delayed(play, table.read_data, 1, name="row")),
            self.o.valid.eq(queue.o.valid),
            queue.o.ready.eq(self.o.ready),
            Value.cast(self.o.p).eq(queue.o.p),
        ]
        with play.If(fetch):
            play.d.sync += [row.eq(row + 1), remain.eq(row != n_rows - 1)]
        with play.If(taken):
            play.d.sync += left.eq(left - 1)
        m.submodules.play = ResetInserter(self.start)(play)
        with m.If(self.start):
            m.d.sync += started.eq(1)
        m.d.sync += self.played.eq(~self.start & (~started | (left == 0)))
        return m


class Checker(wiring.Component):
    """Compares a stream with an expected one, and hands both on: 1 beat per cycle, latency 1.

    A beat that comes when nothing more is expected is wrong, and goes no further.

    Parameters
    ----------
    shape, golden_shape : layouts of the stream and of what is expected.
    differ : function (beat, golden) -> list of values; a bit that is 1 is a difference.

    Members
    -------
    i : In(stream.Signature(shape)), expected : In(stream.Signature(golden_shape)).
    stall : In(1). No beat is taken.
    over : In(1). Nothing more will be expected.
    o : Out(stream), payload {beat, golden}.
    wrong : Out(1), one cycle per wrong beat, 4 cycles after it was taken.
    """

    CHUNK = 16  # bits compared in one step: a level or two of logic

    def __init__(self, shape, golden_shape, differ):
        self.differ = differ
        self.pair = data.StructLayout({"beat": shape, "golden": golden_shape})
        super().__init__(
            {
                "i": In(stream.Signature(shape)),
                "expected": In(stream.Signature(golden_shape)),
                "stall": In(1),
                "over": In(1),
                "o": Out(stream.Signature(self.pair)),
                "wrong": Out(1),
            }
        )

    def elaborate(self, platform):
        m = Module()
        held = Signal(self.pair, reset_less=True)
        fresh, stray = Signal(), Signal()
        room = Signal()
        m.d.comb += [
            room.eq(~self.stall & (self.o.ready | ~self.o.valid)),
            self.i.ready.eq((self.expected.valid | self.over) & room),
            self.expected.ready.eq(self.i.valid & room),
            self.o.p.eq(held),
        ]
        m.d.sync += [fresh.eq(0), stray.eq(0)]
        with m.If(self.o.ready):
            m.d.sync += self.o.valid.eq(0)
        with m.If(self.i.valid & room):
            with m.If(self.expected.valid):
                m.d.sync += [held.beat.eq(self.i.p), held.golden.eq(self.expected.p)]
                m.d.sync += [self.o.valid.eq(1), fresh.eq(1)]
            with m.Elif(self.over):
                m.d.sync += stray.eq(1)
        bits = Cat(Value.cast(value) for value in self.differ(held.beat, held.golden))
        difference = Signal(len(bits))
        chunks = Signal(-(-len(bits) // self.CHUNK))
        checked, waiting = Signal(2), Signal(2)
        m.d.sync += [
            difference.eq(bits),
            chunks.eq(
                Cat(difference[k : k + self.CHUNK].any() for k in range(0, len(bits), self.CHUNK))
            ),
            checked.eq(Cat(fresh, checked)),
            waiting.eq(Cat(stray, waiting)),
            self.wrong.eq(checked[1] & chunks.any() | waiting[1]),
        ]
        return m
