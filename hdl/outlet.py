"""The way out of a pipeline that cannot stall: a queue that is asked before work starts."""

from amaranth.hdl import Module, Shape, Signal, Value
from amaranth.lib import stream, wiring
from amaranth.lib.wiring import In, Out

from .fifo import FIFO, chunks
from .pipeline import credit
from .ring import BlockFIFO

SHALLOW = 16  # beats that a queue in LUT RAM may hold: deeper ones grow in steps of its size


class Outlet(wiring.Component):
    """Holds beats on their way out; lets a pipeline start a beat only if there will be room for it.

    1 beat per cycle. Up to 16 beats wait in LUT RAM, and leave ``latency`` = 2 cycles after they
    came: a wide beat is cut into pieces of at most `gradnic.hdl.fifo.CHUNK` bits that have a queue
    and a control of their own, all in step, so that ``o.ready`` is the only signal that reaches
    them all. More wait in block RAM, for 7 cycles.

    Parameters
    ----------
    shape : shape-like
        A beat.
    depth : int
        Beats from their start in the pipeline until they have left, 2 to 64. One beat per cycle
        takes as many as there are cycles from ``start`` to ``come``, and ``latency`` + 3.

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
        self.depth = depth
        self.width = Shape.cast(shape).width
        self.latency = 2 if depth <= SHALLOW else 7
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
        taken = self.o.valid & self.o.ready
        m.d.comb += self.free.eq(credit(m, self.depth, take=self.start, give=taken))
        beat, out = Value.cast(self.beat), Value.cast(self.o.p)
        shallow = self.depth <= SHALLOW
        for start, stop in chunks(self.width) if shallow else [(0, self.width)]:
            queue = (FIFO if shallow else BlockFIFO)(stop - start, self.depth)
            m.submodules[f"queue{start}"] = queue
            come = Signal(name=f"come{start}", attrs={"keep_register": 1})
            m.d.sync += come.eq(self.come)
            m.d.comb += [
                queue.i.valid.eq(come),
                queue.i.p.eq(beat[start:stop]),
                out[start:stop].eq(queue.o.p),
                queue.o.ready.eq(self.o.ready),
            ]
            if start == 0:
                m.d.comb += self.o.valid.eq(queue.o.valid)
        return m
