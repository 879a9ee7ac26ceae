"""Parts of an on-board test: tables played as streams, and checkers that compare beat by beat."""

from amaranth.hdl import Cat, Module, Signal, Value
from amaranth.lib import data, memory, stream, wiring
from amaranth.lib.wiring import In, Out


class Player(wiring.Component):
    """Offers the rows of a table in order, once after each ``start``: 1 beat per cycle.

    Two registers follow the memory: a block RAM without its output register takes 5.6 ns on an
    ECP5 of grade 6, so the first must stand close by, and the second may stand near the user.

    Parameters
    ----------
    shape : shape-like, payload of the stream.
    rows : list of initial values of that shape, at least 1; block RAM.

    Members
    -------
    start : In(1). One cycle; rows that were not taken are forgotten.
    stall : In(1). No new row is offered.
    o : Out(stream.Signature(shape))
    played : Out(1). Every row has been taken.
    """

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
        m = Module()
        depth = max(len(self.rows), 2)
        m.submodules.table = table = memory.Memory(shape=self.shape, depth=depth, init=self.rows)
        read = table.read_port()
        row = Signal(range(len(self.rows) + 1), init=len(self.rows))
        fetched = Signal()  # the memory's read register holds a row
        waiting = Signal()  # the first register behind it does
        near = Signal(self.shape, reset_less=True)
        held = Signal(self.shape, reset_less=True)
        remain, pull, load = Signal(), Signal(), Signal()
        m.d.comb += [
            remain.eq(row != len(self.rows)),
            load.eq(waiting & (self.o.ready | ~self.o.valid) & ~self.stall),
            pull.eq(fetched & (load | ~waiting)),
            read.addr.eq(row),
            read.en.eq(pull | ~fetched),
            self.o.p.eq(held),
        ]
        m.d.sync += self.played.eq(~(remain | fetched | waiting | self.o.valid | self.start))
        with m.If(read.en):
            m.d.sync += fetched.eq(remain)
            with m.If(remain):
                m.d.sync += row.eq(row + 1)
        with m.If(pull):
            m.d.sync += [waiting.eq(1), near.eq(read.data)]
        with m.Elif(load):
            m.d.sync += waiting.eq(0)
        with m.If(load):
            m.d.sync += [self.o.valid.eq(1), held.eq(near)]
        with m.Elif(self.o.ready):
            m.d.sync += self.o.valid.eq(0)
        with m.If(self.start):
            m.d.sync += [row.eq(0), fetched.eq(0), waiting.eq(0), self.o.valid.eq(0)]
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
