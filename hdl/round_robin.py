"""Merges streams of frames fairly: the sources take turns.

Plumbing: no golden model of its own.
"""

from amaranth.hdl import Array, Cat, Module, Mux, Signal
from amaranth.lib import stream, wiring
from amaranth.lib.wiring import In, Out
from amaranth.utils import ceil_log2

from .streams import FrameBeat, Slice


def first_of(bits):
    """Number of the lowest bit that is 1; the highest number where none is."""
    chosen = len(bits) - 1
    for k in reversed(range(len(bits) - 1)):
        chosen = Mux(bits[k], k, chosen)
    return chosen


class RoundRobin(wiring.Component):
    """Merges `n` streams of frames, whole frame by whole frame, each source in its turn.

    After a frame of source k the next source that offers one is asked, from k + 1 upwards and
    round, k last. 1 cycle of latency, 1 beat per cycle; a frame that follows one of the same
    source comes a cycle later. A frame whose source pauses in its middle holds the output.

    Parameters
    ----------
    n_bytes : int
        Bytes of a beat, see `FrameBeat`.
    n : int
        Sources, at least 2.

    Members
    -------
    i : In(stream.Signature(FrameBeat(n_bytes))).array(n)
    o : Out(stream.Signature(FrameBeat(n_bytes, meta_width=ceil_log2(n))))
        ``meta`` is the source.
    """

    def __init__(self, n_bytes, n):
        if n < 2:
            raise ValueError(f"n must be at least 2, not {n!r}")
        self.n = n
        self.shape = FrameBeat(n_bytes, meta_width=ceil_log2(n))
        self.slice = Slice(self.shape)
        super().__init__(
            {
                "i": In(stream.Signature(FrameBeat(n_bytes))).array(n),
                "o": Out(stream.Signature(self.shape)),
            }
        )

    def elaborate(self, platform):
        m = Module()
        m.submodules.slice = slice = self.slice
        wiring.connect(m, slice.o, wiring.flipped(self.o))
        turn, busy = Signal(range(self.n), init=self.n - 1), Signal()
        offers, later = Signal(self.n), Signal(self.n)
        chosen, ends = Signal(range(self.n)), Signal()
        m.d.comb += [
            # the source under way may have nothing more: that is known a cycle after its frame
            offers.eq(Cat(source.valid & ~(busy & (turn == k)) for k, source in enumerate(self.i))),
            later.eq(Cat(offers[k] & (turn < k) for k in range(self.n))),
            chosen.eq(Mux(later.any(), first_of(later), first_of(offers))),
            slice.i.valid.eq(busy & Array(source.valid for source in self.i)[turn]),
            slice.i.p.meta.eq(turn),
            ends.eq(slice.i.valid & slice.i.ready & slice.i.p.last),
            *(
                source.ready.eq(busy & (turn == k) & slice.i.ready)
                for k, source in enumerate(self.i)
            ),
        ]
        for name in ("data", "keep", "last", "bad"):
            m.d.comb += slice.i.p[name].eq(Array(source.p[name] for source in self.i)[turn])
        with m.If(~busy | ends):
            m.d.sync += busy.eq(offers.any())
            with m.If(offers.any()):
                m.d.sync += turn.eq(chosen)
        return m
