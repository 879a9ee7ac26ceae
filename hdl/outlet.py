"""The way out of a pipeline that cannot stall: a queue that is asked before work starts."""

from amaranth.hdl import Module, Shape, Signal, Value
from amaranth.lib import stream, wiring
from amaranth.lib.wiring import In, Out
from amaranth.utils import ceil_log2

from .fifo import chunks
from .memory import BlockRAM
from .pair_queue import PairQueue
from .pipeline import copied, credit, delayed, delayed_flag

SHALLOW = 16  # beats that may wait in LUT RAM
BEHIND = 10  # beats between block RAM and the output; 9 sustain one per cycle
RAM_PIECE = 180  # bits whose block RAM, five DP16KD, has addresses of its own


class Outlet(wiring.Component):
    """Holds beats on their way out; lets a pipeline start a beat only if there will be room for it.

    1 beat per cycle. Up to 16 beats wait in LUT RAM, and leave ``latency`` = 2 cycles after they
    came (`PairQueue`). More wait in block RAM, for 7 cycles; behind it is an outlet of `BEHIND`
    beats, and what is read from the block RAM is what starts there.

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
        (self._shallow if self.depth <= SHALLOW else self._deep)(m)
        return m

    def _shallow(self, m):
        taken = delayed_flag(m, self.o.valid & self.o.ready, 1, name="taken")
        m.d.comb += self.free.eq(credit(m, self.depth, take=self.start, give=taken))
        m.submodules.queue = queue = PairQueue(self.shape, self.depth)
        m.d.sync += queue.i.valid.eq(self.come)
        m.d.comb += queue.i.p.eq(self.beat)
        wiring.connect(m, queue.o, wiring.flipped(self.o))

    def _deep(self, m):
        m.submodules.behind = behind = Outlet(self.shape, BEHIND)
        wiring.connect(m, behind.o, wiring.flipped(self.o))
        go = Signal()
        here = delayed_flag(m, self.come, 1, name="here")
        waiting = credit(m, self.depth, take=go, give=self.come, none=True, name="waiting")
        m.d.comb += [
            self.free.eq(credit(m, self.depth, take=self.start, give=go)),
            go.eq(waiting & behind.free),
            behind.start.eq(go),
            behind.come.eq(delayed_flag(m, go, 3, name="come")),
        ]
        beat, read = Value.cast(self.beat), Value.cast(behind.beat)
        for start, stop in chunks(self.width, RAM_PIECE):
            m.submodules[f"ram{start}"] = ram = BlockRAM(stop - start, 2 ** ceil_log2(self.depth))
            (write_en,) = copied(m, here, 1, name=f"write_en{start}")
            kept = {"keep_register": 1}
            head = Signal.like(ram.write_addr, name=f"head{start}", attrs=kept)
            tail = Signal.like(ram.read_addr, name=f"tail{start}", attrs=kept)
            with m.If(write_en):
                m.d.sync += head.eq(head + 1)
            (reads,) = copied(m, go, 1, name=f"reads{start}")
            with m.If(reads):
                m.d.sync += tail.eq(tail + 1)
            m.d.comb += [
                ram.write_en.eq(write_en),
                ram.write_addr.eq(head),
                ram.write_data.eq(delayed(m, beat[start:stop], 1, name=f"written{start}")),
                ram.read_addr.eq(tail),
                read[start:stop].eq(delayed(m, ram.read_data, 1, name=f"near{start}")),
            ]
