"""Stores towards a MAC that neither waits for its receiver nor for its sender.

Plumbing: no golden model of its own.
"""

from amaranth.hdl import Module
from amaranth.lib import data, stream, wiring
from amaranth.lib.wiring import In, Out

from gradnic.interface.inline import MAX_FRAME

from ...frame.length_guard import LengthGuard
from ...frame.packet_fifo import PacketFIFO
from ...stream.beats import FrameBeat

STORE_BYTES = 2 * MAX_FRAME


class MacEntry(wiring.Component):
    """Takes every beat: a frame that finds its store full is lost whole, one of 16 KiB is cut.

    Frames leave once they are whole, 8 cycles after their last beat; 1 beat per cycle.

    Parameters
    ----------
    n_bytes, meta_width : int
        See `FrameBeat`.

    Members
    -------
    i, o : In, Out(stream.Signature(FrameBeat(n_bytes, meta_width=meta_width)))
        ``i.ready`` is always high.
    lost : Out(1)
        High for one cycle per frame that was lost.
    """

    def __init__(self, n_bytes: int, *, meta_width: int = 0) -> None:
        shape = FrameBeat(n_bytes, meta_width=meta_width)
        self.guard = LengthGuard(n_bytes, meta_width=meta_width, max_bytes=MAX_FRAME)
        self.store = PacketFIFO(shape, STORE_BYTES // n_bytes, drop=None, lossy=True)
        frames = stream.Signature(shape)
        super().__init__({"i": In(frames), "o": Out(frames), "lost": Out(1)})

    def elaborate(self, platform):
        m = Module()
        m.submodules.guard, m.submodules.store = self.guard, self.store
        wiring.connect(m, wiring.flipped(self.i), self.guard.i)
        wiring.connect(m, self.guard.o, self.store.i)
        wiring.connect(m, self.store.o, wiring.flipped(self.o))
        m.d.comb += self.lost.eq(self.store.overflow)
        return m


class MacExit(wiring.Component):
    """Offers frames without a gap: each is stored until it is whole; 1 beat per cycle.

    The first beat is offered 7 cycles after the last one came. When the store is full, ``i.ready``
    is low.

    Parameters
    ----------
    n_bytes, meta_width : int
        See `FrameBeat`.
    drop_bad : bool
        Frames marked bad vanish; otherwise they leave with their mark.

    Members
    -------
    i, o : In, Out(stream.Signature(FrameBeat(n_bytes, meta_width=meta_width)))
    """

    def __init__(self, n_bytes: int, *, meta_width: int = 0, drop_bad: bool = False) -> None:
        self.shape = FrameBeat(n_bytes, meta_width=meta_width)
        self.drop_bad = drop_bad
        stored = data.StructLayout({**self.shape.members, "drop": 1})
        self.store = PacketFIFO(stored, STORE_BYTES // n_bytes)
        frames = stream.Signature(self.shape)
        super().__init__({"i": In(frames), "o": Out(frames)})

    def elaborate(self, platform):
        m = Module()
        m.submodules.store = store = self.store
        m.d.comb += [
            store.i.valid.eq(self.i.valid),
            self.i.ready.eq(store.i.ready),
            store.i.p.drop.eq(self.i.p.bad & self.i.p.last if self.drop_bad else 0),
            self.o.valid.eq(store.o.valid),
            store.o.ready.eq(self.o.ready),
        ]
        for name in self.shape.members:
            m.d.comb += [store.i.p[name].eq(self.i.p[name]), self.o.p[name].eq(store.o.p[name])]
        return m
