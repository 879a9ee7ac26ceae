"""The size of a frame, known with its first beat.

Plumbing: no golden model of its own.
"""

from amaranth.hdl import Cat, Module, Mux, Signal
from amaranth.lib import data, stream, wiring
from amaranth.lib.wiring import In, Out

from ...frame.packet_fifo import PacketFIFO
from ...stream.beats import FrameBeat
from ...stream.block_fifo import BlockFIFO
from ...stream.slice import Slice

SIZE_BITS = 16


def SizedBeat(n_bytes, *, meta_width: int = 0):
    """Shape of a beat of a frame whose ``size`` in bytes goes with every beat; no bad frames."""
    fields = {"data": 8 * n_bytes, "keep": n_bytes, "last": 1, "size": SIZE_BITS}
    if meta_width:
        fields["meta"] = meta_width
    return data.StructLayout(fields)


class Sizer(wiring.Component):
    """Stores a frame, counts it, and offers it with its size: 1 beat per cycle in and out.

    The first beat leaves 9 cycles after the last one came. Frames marked bad, and those longer
    than the store, do not leave; neither do their sizes, so the two never get out of step. When the
    store is full, ``i.ready`` is low.

    Parameters
    ----------
    n_bytes : int
        Bytes per beat, see `FrameBeat`.
    depth : int
        Beats of the longest frame; the store should hold two such frames for the full rate.
    meta_width : int

    Members
    -------
    i : In(stream.Signature(FrameBeat(n_bytes, meta_width=meta_width)))
    o : Out(stream.Signature(SizedBeat(n_bytes, meta_width=meta_width)))
        Comes from registers.
    dropped : Out(1)
        High for one cycle per frame that does not leave.
    """

    def __init__(self, n_bytes: int, depth: int, *, meta_width: int = 0) -> None:
        frame = FrameBeat(n_bytes, meta_width=meta_width)
        self.n_bytes = n_bytes
        self.depth = depth
        self.meta_width = meta_width
        self.exit = Slice(SizedBeat(n_bytes, meta_width=meta_width))
        super().__init__(
            {
                "i": In(stream.Signature(frame)),
                "o": Out(self.exit.o.signature),
                "dropped": Out(1),
            }
        )

    def elaborate(self, platform):
        m = Module()
        n = self.n_bytes
        m.submodules.entry = entry = Slice(self.i.p.shape())
        m.submodules.store = store = PacketFIFO(self.i.p.shape(), self.depth, drop="bad")
        # Frames of one beat: as many sizes as beats.
        m.submodules.sizes = sizes = BlockFIFO(SIZE_BITS, self.depth)
        m.submodules.exit = exit = self.exit
        wiring.connect(m, wiring.flipped(self.i), entry.i)
        wiring.connect(m, exit.o, wiring.flipped(self.o))

        beat = entry.o.p
        take = Signal()
        before = Signal(SIZE_BITS)  # bytes of the frame so far
        n_beats = Signal(range(self.depth + 1))  # beats so far, up to depth
        edge = beat.keep & ~Cat(beat.keep[1:], 0)  # one-hot: the highest kept byte
        kept = Signal(range(n + 1))
        for k in range(n):
            with m.If(edge[k]):
                m.d.comb += kept.eq(k + 1)
        sound = beat.last & ~beat.bad & (n_beats < self.depth)
        m.d.comb += [
            take.eq(entry.o.valid & store.i.ready & sizes.i.ready),
            entry.o.ready.eq(store.i.ready & sizes.i.ready),
            store.i.valid.eq(take),
            store.i.p.eq(beat),
            sizes.i.valid.eq(take & sound),
            sizes.i.p.eq(before + kept),
            *(exit.i.p[name].eq(store.o.p[name]) for name in ("data", "keep", "last")),
            exit.i.p.size.eq(sizes.o.p),
            exit.i.valid.eq(store.o.valid & sizes.o.valid),
            store.o.ready.eq(exit.i.ready & sizes.o.valid),
            sizes.o.ready.eq(exit.i.ready & store.o.valid & store.o.p.last),
        ]
        if self.meta_width:
            m.d.comb += exit.i.p.meta.eq(store.o.p.meta)
        m.d.sync += self.dropped.eq(take & beat.last & ~sound)
        with m.If(take):
            m.d.sync += [
                before.eq(Mux(beat.last, 0, before + n)),
                n_beats.eq(Mux(beat.last, 0, n_beats + (n_beats < self.depth))),
            ]
        return m
