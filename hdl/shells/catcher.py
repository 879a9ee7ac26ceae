"""Entry for a MAC that cannot wait."""

from amaranth.hdl import Module, Mux, Signal
from amaranth.lib import data, stream, wiring
from amaranth.lib.wiring import In, Out

from ..packet_fifo import PacketFIFO


class Catcher(wiring.Component):
    """Takes every beat, whatever happens behind it: a frame without room is lost as a whole.

    ``i.ready`` is always high. Frames are stored before they leave, 8 cycles after their last beat.
    A frame that finds the store full at any of its beats, or is longer than the store, never
    leaves; `lost` counts it. Others leave as they came.

    Parameters
    ----------
    shape : data.StructLayout
        Payload of both streams, with a field ``last``.
    depth : int
        Beats of the store, see `PacketFIFO`.

    Members
    -------
    i, o : In, Out(stream.Signature(shape))
    lost : Out(1)
        High for one cycle per frame that was lost.
    """

    def __init__(self, shape, depth):
        inner = data.StructLayout({**shape.members, "drop": 1})
        self.store = PacketFIFO(inner, depth)
        self.depth = depth
        self.names = list(shape.members)
        super().__init__(
            {
                "i": In(stream.Signature(shape)),
                "o": Out(stream.Signature(shape)),
                "lost": Out(1),
            }
        )

    def elaborate(self, platform):
        m = Module()
        m.submodules.store = store = self.store
        first = Signal(init=1)
        n_put = Signal(range(self.depth + 1))  # beats of this frame in the store
        losing = Signal()  # the rest of this frame is not stored
        owed = Signal()  # a last beat is to discard what was stored of it
        going, room, put = Signal(), Signal(), Signal()
        m.d.comb += [
            self.i.ready.eq(1),
            going.eq(self.i.valid & (first | ~losing)),
            room.eq(store.i.ready & ~owed & (self.i.p.last | (n_put < self.depth - 1))),
            put.eq(going & room),
            store.i.valid.eq(put | owed),
            *(store.i.p[name].eq(self.i.p[name]) for name in self.names if name != "last"),
            store.i.p.last.eq(self.i.p.last | owed),
            store.i.p.drop.eq(owed),
            *(self.o.p[name].eq(store.o.p[name]) for name in self.names),
            self.o.valid.eq(store.o.valid),
            store.o.ready.eq(self.o.ready),
        ]
        m.d.sync += self.lost.eq(going & ~room)
        with m.If(store.i.ready):
            m.d.sync += owed.eq(0)
        with m.If(self.i.valid):
            m.d.sync += [first.eq(self.i.p.last), n_put.eq(Mux(self.i.p.last, 0, n_put + put))]
            with m.If(going):
                m.d.sync += losing.eq(~room)
                with m.If(~room & ~first):
                    m.d.sync += owed.eq(1)
        return m
