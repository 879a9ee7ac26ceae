"""The way out of a pipeline that cannot stall: a queue that is asked before work starts."""

from amaranth.hdl import Module, Mux, Shape, Signal, Value
from amaranth.lib import stream, wiring
from amaranth.lib.wiring import In, Out

from .fifo import FIFO, chunks
from .memory import BlockRAM
from .pipeline import credit, delayed, delayed_flag

SHALLOW = 16  # beats that a queue in LUT RAM may hold: deeper ones grow in steps of its size
BEHIND = 8  # beats between block RAM and the output; 7 sustain one per cycle
PIECE = 80  # bits of a wide beat that have a queue and a control of their own


class Turns(wiring.Component):
    """Two registers that take turns: 1 beat per cycle, 1 cycle of latency.

    As a `gradnic.hdl.streams.Slice`, but ``o.ready`` reaches a few flags only and no clock enable:
    at the end of a wide path that is worth 0.5 ns. In exchange ``o.p`` passes a multiplexer.

    Parameters
    ----------
    shape : shape-like

    Members
    -------
    i, o : In, Out(stream.Signature(shape))
        ``i.ready`` is a register, ``o.valid`` comes from two.
    """

    def __init__(self, shape):
        kept = {"keep_register": 1}  # parts of a wide beat work in step, each with its own
        self.full = [Signal(name=f"full{k}", attrs=kept) for k in range(2)]
        self.write, self.read = Signal(attrs=kept), Signal(attrs=kept)  # whose turn it is
        self.free = Signal(init=1, attrs=kept)  # not both are full
        self.beats = [Signal(shape, name=f"beat{k}", reset_less=True) for k in range(2)]
        super().__init__({"i": In(stream.Signature(shape)), "o": Out(stream.Signature(shape))})

    def elaborate(self, platform):
        m = Module()
        i, o = self.i, self.o
        any_full = self.full[0] | self.full[1]
        m.d.comb += [i.ready.eq(self.free), o.valid.eq(any_full)]
        m.d.sync += [
            self.write.eq(self.write ^ (i.valid & self.free)),
            self.read.eq(self.read ^ (o.ready & any_full)),
        ]
        for k, (full, beat) in enumerate(zip(self.full, self.beats, strict=True)):
            mine = self.write == k
            m.d.sync += full.eq(Mux(full, ~(o.ready & (self.read == k)), i.valid & mine))
            with m.If(~full):  # it may follow the input until that is a beat for it
                m.d.sync += beat.eq(i.p)
        fills = (self.full[0] & self.full[1]) | (any_full & i.valid)  # unless one leaves
        m.d.sync += self.free.eq(o.ready | ~fills)
        m.d.comb += o.p.eq(Mux(self.read, *self.beats[::-1]))
        return m


class Outlet(wiring.Component):
    """Holds beats on their way out; lets a pipeline start a beat only if there will be room for it.

    1 beat per cycle. Up to 16 beats wait in LUT RAM, and leave ``latency`` = 2 cycles after they
    came: a wide beat is cut into pieces of at most `PIECE` bits that have a queue and a control of
    their own, all in step, so that ``o.ready`` is the only signal that reaches them all. More wait
    in block RAM, for 6 cycles; behind it is an outlet of `BEHIND` beats, and what is read from the
    block RAM is what starts there.

    Parameters
    ----------
    shape : shape-like
        A beat.
    depth : int
        Beats from their start in the pipeline until they have left, or until they leave the block
        RAM: 2 to 64. One beat per cycle takes as many as there are cycles from ``start`` to
        ``come``, and 6.

    Members
    -------
    free : Out(1)
        A register: there is room for one beat more.
    start : In(1)
        A beat starts in this cycle; only where ``free`` is 1.
    come : In(1)
        A beat comes in the *next* cycle: as many cycles after each ``start``.
    beat : In(shape)
        The beat, the cycle after ``come``.
    o : Out(stream.Signature(shape))
    """

    def __init__(self, shape, depth):
        self.shape = shape
        self.depth = depth
        self.width = Shape.cast(shape).width
        self.latency = 2 if depth <= SHALLOW else 6
        super().__init__(
            {
                "free": Out(1),
                "start": In(1),
                "come": In(1),
                "beat": In(shape),
                "o": Out(stream.Signature(shape)),
            }
        )

    def elaborate(self, platform):
        m = Module()
        (self._shallow if self.depth <= SHALLOW else self._deep)(m)
        return m

    def _shallow(self, m):
        taken = delayed_flag(m, self.o.valid & self.o.ready, 1, name="taken")
        m.d.comb += self.free.eq(credit(m, self.depth, take=self.start, give=taken))
        beat, out = Value.cast(self.beat), Value.cast(self.o.p)
        m.submodules.front = front = Turns(1)  # the flags of all pieces, for what is outside
        m.d.comb += [self.o.valid.eq(front.o.valid), front.o.ready.eq(self.o.ready)]
        for start, stop in chunks(self.width, PIECE):
            m.submodules[f"turns{start}"] = turns = Turns(stop - start)
            m.submodules[f"queue{start}"] = queue = FIFO(
                stop - start, self.depth, never_full=True, direct=True
            )
            come = Signal(name=f"come{start}", attrs={"keep_register": 1})
            m.d.sync += come.eq(self.come)
            m.d.comb += [queue.i.valid.eq(come), queue.i.p.eq(beat[start:stop])]
            wiring.connect(m, queue.o, turns.i)
            if start == 0:
                m.d.comb += front.i.valid.eq(queue.o.valid)
            m.d.comb += [out[start:stop].eq(turns.o.p), turns.o.ready.eq(self.o.ready)]

    def _deep(self, m):
        m.submodules.ram = ram = BlockRAM(self.width, self.depth)
        m.submodules.behind = behind = Outlet(self.shape, BEHIND)
        wiring.connect(m, behind.o, wiring.flipped(self.o))
        go = Signal()
        here = delayed_flag(m, self.come, 1, name="here")
        waiting = credit(m, self.depth, take=go, give=here, none=True, name="waiting")
        addresses = [Signal.like(ram.write_addr), Signal.like(ram.read_addr)]
        for address, moves in zip(addresses, (ram.write_en, go), strict=True):
            with m.If(moves):
                m.d.sync += address.eq(Mux(address == self.depth - 1, 0, address + 1))
        m.d.comb += [
            self.free.eq(credit(m, self.depth, take=self.start, give=go)),
            go.eq(waiting & behind.free),
            ram.write_en.eq(delayed_flag(m, here, 1, name="write_en")),
            ram.write_addr.eq(addresses[0]),
            ram.write_data.eq(delayed(m, Value.cast(self.beat), 1, name="written")),
            ram.read_addr.eq(addresses[1]),
            behind.start.eq(go),
            behind.come.eq(delayed_flag(m, go, 1, name="come")),
            Value.cast(behind.beat).eq(ram.read_data),
        ]
