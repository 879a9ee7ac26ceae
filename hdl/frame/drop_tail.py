"""Store-and-forward queue that never waits: a frame that does not fit is lost whole.

Plumbing: no golden model of its own.
"""

from amaranth.hdl import Module, Signal
from amaranth.lib import stream, wiring
from amaranth.lib.wiring import In, Out

from ..stream.block_fifo import Ring


class DropTail(wiring.Component):
    """Keeps whole frames; loses those that do not fit, and never waits.

    A frame leaves once its last beat is in, 7 cycles later; 1 beat per cycle. A frame that finds
    no room for one of its beats vanishes, and so does one whose last beat says `drop`.

    Parameters
    ----------
    shape : data.StructLayout
        With a field ``last``.
    depth : int
        Beats, 4 to 16384, not fewer than the longest frame has.

    Members
    -------
    i : In(stream.Signature(shape))
        ``ready`` is always 1.
    drop : In(1)
        Counts with the last beat.
    o : Out(stream.Signature(shape))
    lost : Out(1)
        One cycle for each frame that did not fit.
    """

    def __init__(self, shape, depth: int) -> None:
        self.shape = shape
        self.ring = Ring(shape, depth)
        super().__init__(
            {
                "i": In(stream.Signature(shape)),
                "drop": In(1),
                "o": Out(stream.Signature(shape)),
                "lost": Out(1),
            }
        )

    def elaborate(self, platform):
        m = Module()
        m.submodules.ring = ring = self.ring
        wiring.connect(m, ring.o, wiring.flipped(self.o))
        losing = Signal()  # the rest of this frame is not stored
        inside = Signal()  # the ring holds beats of a frame that has not ended
        owed = Signal()  # they are to be discarded, with the next beat that the ring takes
        stores = Signal()
        last = self.i.p.last
        m.d.comb += [
            self.i.ready.eq(1),
            stores.eq(self.i.valid & ring.i.ready & ~losing & ~owed),
            ring.i.p.eq(self.i.p),
            ring.i.valid.eq((self.i.valid & ~losing) | owed),
            ring.commit.eq(stores & last & ~self.drop),
            ring.discard.eq(owed | (last & self.drop)),
        ]
        m.d.sync += self.lost.eq(self.i.valid & last & ~stores & ~self.drop)
        with m.If(owed & ring.i.ready):
            m.d.sync += owed.eq(0)
        with m.If(self.i.valid):
            m.d.sync += losing.eq(~last & (losing | ~stores))
            with m.If(stores):
                m.d.sync += inside.eq(~last)
            with m.Elif(inside):
                m.d.sync += [inside.eq(0), owed.eq(1)]
        return m
