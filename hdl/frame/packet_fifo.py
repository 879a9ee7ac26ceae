"""Store-and-forward FIFO that drops a frame after the fact.

Plumbing: no golden model of its own.
"""

from amaranth.hdl import Module, Signal
from amaranth.lib import data, stream, wiring
from amaranth.lib.wiring import In, Out

from ..stream.block_fifo import Ring


class PacketFIFO(wiring.Component):
    """Keeps a frame until its last beat was taken; then offers all of it, or none.

    A frame whose last beat has its drop field set vanishes. A frame of more than ``depth`` beats
    vanishes too: its first ``depth`` beats are given up, ``overflow`` is high for one cycle, and
    the rest is swallowed up to its ``last``. The first beat of a frame is offered 7 cycles after
    its last beat was taken; 1 beat per cycle in and out, which takes a store of two frames if
    frames follow each other without a gap. When full, ``i.ready`` is low until beats have left;
    since no frame may be longer than the store, it never waits for itself.

    Parameters
    ----------
    shape : data.StructLayout
        Payload of both streams, with a field ``last`` and the one named by ``drop``, 1 bit each.
    depth : int
        Beats of the longest frame, 1 to 16384; the store is rounded up to a power of two, at
        least 4.
    drop : str
        Field that drops the frame if it is 1 on the last beat; it has no meaning on others.

    Members
    -------
    i, o : In, Out(stream.Signature(shape))
        Frames leave as they came; the drop field of a last beat is 0.
    overflow : Out(1)
        High for one cycle per frame that was longer than ``depth``.
    """

    def __init__(self, shape, depth: int, *, drop: str = "drop") -> None:
        if not isinstance(shape, data.StructLayout):
            raise ValueError(f"shape must be a StructLayout, not {shape!r}")
        for field in ("last", drop):
            if field not in shape.members:
                raise ValueError(f"shape must have a field {field!r}, not only {[*shape.members]}")
        self.shape = shape
        self.depth = depth
        self.drop = drop
        self.ring = Ring(shape, depth)
        self.n_taken = Signal(range(depth))  # beats of the current frame in the store
        self.at_limit = Signal(init=int(depth == 1))  # n_taken == depth - 1
        self.swallowing = Signal()  # rest of a frame that was too long
        super().__init__(
            {
                "i": In(stream.Signature(shape)),
                "o": Out(stream.Signature(shape)),
                "overflow": Out(1),
            }
        )

    def elaborate(self, platform):
        m = Module()
        m.submodules.ring = ring = self.ring
        wiring.connect(m, wiring.flipped(self.i), ring.i)
        wiring.connect(m, ring.o, wiring.flipped(self.o))

        last, drop = self.i.p.last, self.i.p[self.drop]
        too_long = self.at_limit & ~last & ~self.swallowing
        m.d.comb += [
            ring.commit.eq(last & ~drop & ~self.swallowing),
            ring.discard.eq((last & drop) | self.swallowing | too_long),
        ]
        m.d.sync += self.overflow.eq(0)
        with m.If(self.i.valid & self.i.ready):
            m.d.sync += self.overflow.eq(too_long)
            with m.If(last):
                m.d.sync += [
                    self.n_taken.eq(0),
                    self.at_limit.eq(self.depth == 1),
                    self.swallowing.eq(0),
                ]
            with m.Elif(~self.at_limit):
                m.d.sync += [
                    self.n_taken.eq(self.n_taken + 1),
                    self.at_limit.eq(self.n_taken == self.depth - 2),
                ]
            with m.Else():
                m.d.sync += self.swallowing.eq(1)
        return m
