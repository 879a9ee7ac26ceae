"""Merges streams of frames fairly: the sources take turns.

Plumbing: no golden model of its own.
"""

from amaranth.hdl import Array, Cat, Module, Mux, Signal
from amaranth.lib import stream, wiring
from amaranth.lib.wiring import In, Out
from amaranth.utils import ceil_log2

from gradnic.interface.params import check_least

from ..primitive.names import signals
from ..stream.beats import FrameBeat
from ..stream.slice import Slice


def first_of(bits):
    """Number of the lowest bit that is 1; the highest number where none is."""
    chosen = len(bits) - 1
    for k in reversed(range(len(bits) - 1)):
        chosen = Mux(bits[k], k, chosen)
    return chosen


def next_of(m, bits, at, spare):
    """Number of the next bit that is 1 behind bit `at`, and round, 2 cycles later; where no other
    bit than that one is 1, the number `spare`.
    """
    others, above = signals("others above", len(bits))
    after = Signal.like(at)
    m.d.sync += [
        others.eq(bits & Cat(at != k for k in range(len(bits)))),
        above.eq(bits & Cat(at < k for k in range(len(bits)))),
        after.eq(Mux(above.any(), first_of(above), Mux(others.any(), first_of(others), spare))),
    ]
    return after


class RoundRobin(wiring.Component):
    """Merges `n` streams of frames, whole frame by whole frame, each source in its turn.

    After a frame of source k the next source that offers one is asked, from k + 1 upwards and
    round, k last. 1 cycle of latency, and one more where another source begins after a pause; 1
    beat per cycle, across frames too. A frame whose source pauses in its middle holds the output.

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

    def __init__(self, n_bytes: int, n: int) -> None:
        check_least("n", n, 2)
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
        turn = Signal(range(self.n))
        inside = Signal()  # a frame has begun
        offers, later = signals("offers later", self.n)
        chosen = Signal(range(self.n))
        moves, ends = signals("moves ends")
        m.d.comb += [
            # the source whose turn it is may go on by itself
            offers.eq(Cat(source.valid & (turn != k) for k, source in enumerate(self.i))),
            later.eq(Cat(offers[k] & (turn < k) for k in range(self.n))),
            chosen.eq(Mux(later.any(), first_of(later), first_of(offers))),
            slice.i.valid.eq(Array(source.valid for source in self.i)[turn]),
            slice.i.p.meta.eq(turn),
            moves.eq(slice.i.valid & slice.i.ready),
            ends.eq(moves & slice.i.p.last),
            *(source.ready.eq((turn == k) & slice.i.ready) for k, source in enumerate(self.i)),
        ]
        for name in ("data", "keep", "last", "bad"):
            m.d.comb += slice.i.p[name].eq(Array(source.p[name] for source in self.i)[turn])
        with m.If(moves):
            m.d.sync += inside.eq(~slice.i.p.last)
        with m.If((ends | ~(slice.i.valid | inside)) & offers.any()):
            m.d.sync += turn.eq(chosen)
        return m
