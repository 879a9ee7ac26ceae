"""The way out of a pipeline that cannot stall: a queue that is asked before work starts.

Plumbing: no golden model of its own.
"""

from amaranth.hdl import Cat, Module, ShapeLike
from amaranth.lib import stream, wiring
from amaranth.lib.wiring import In, Out

from .admission import credit
from .delays import delayed_flag
from .pair_queue import MOST, PairQueue


class Outlet(wiring.Component):
    """Holds beats on their way out; lets a pipeline start a beat only if there will be room for it.

    Plumbing: no golden model of its own.

    1 beat per cycle; a beat leaves ``latency`` cycles after it came, that of `PairQueue`.

    Parameters
    ----------
    shape : shape-like
        A beat.
    depth : int
        Beats from their start in the pipeline until they have left, 3 to `pair_queue.MOST`. One
        beat per cycle takes as many as there are cycles from ``start`` to ``come``, and 5 and
        ``latency`` more.
    n_free : int
        Registers of ``free``.

    Members
    -------
    free : Out(n_free)
        There is room for one beat more; 0 while fewer than three places are left, a cycle or two
        late. Each bit is a register, far from the queue; all are equal.
    start : In(1)
        A beat starts in this cycle; only where ``free`` is 1.
    come : In(1)
        A beat comes in the *next* cycle: as many cycles after each ``start``.
    beat : In(shape)
        The beat, the cycle after ``come``.
    o : Out(stream.Signature(shape))
    """

    def __init__(self, shape: ShapeLike, depth: int, *, n_free: int = 1) -> None:
        if not 3 <= depth <= MOST:
            raise ValueError(f"depth must be 3 to {MOST}, not {depth!r}")
        self.depth, self.n_free = depth, n_free
        self.queue = PairQueue(shape, depth)
        self.latency = self.queue.latency
        super().__init__(
            {
                "free": Out(n_free),
                "start": In(1),
                "come": In(1),
                "beat": In(shape),
                "o": Out(stream.Signature(shape)),
            }
        )

    def elaborate(self, platform):
        m = Module()
        m.submodules.queue = queue = self.queue
        taken = delayed_flag(m, self.o.valid & self.o.ready, 1, name="taken")
        free = credit(m, self.depth, take=self.start, give=taken, copies=self.n_free)
        m.d.comb += [
            self.free.eq(Cat(free)),
            queue.i.p.eq(self.beat),
        ]
        m.d.sync += queue.i.valid.eq(self.come)
        wiring.connect(m, queue.o, wiring.flipped(self.o))
        return m
