"""Cuts frames that are too long, or never end.

Plumbing: no golden model of its own.
"""

from amaranth.hdl import Module, Signal
from amaranth.lib import stream, wiring
from amaranth.lib.wiring import In, Out

from gradnic.interface.params import check_least

from ..stream.beats import FrameBeat
from ..stream.slice import Slice


class LengthGuard(wiring.Component):
    """Cuts a frame at `max_bytes`, marks it bad, and swallows the rest: 1 cycle, full rate.

    Shorter frames pass as they came; ``bad`` before the last beat leaves as 0.

    Parameters
    ----------
    n_bytes : int
        Bytes per beat, see `FrameBeat`.
    meta_width : int
        Bits of side band.
    max_bytes : int
        Longest frame, a multiple of n_bytes.

    Members
    -------
    i, o : In, Out(stream.Signature(FrameBeat(n_bytes, meta_width=meta_width)))
        ``o`` comes from registers.
    oversize : Out(1)
        One cycle per frame that was cut.
    """

    def __init__(self, n_bytes: int, *, meta_width: int = 0, max_bytes: int) -> None:
        self.shape = FrameBeat(n_bytes, meta_width=meta_width)
        check_least("max_bytes", max_bytes, n_bytes)
        if max_bytes % n_bytes:
            raise ValueError(
                f"max_bytes must be a multiple of n_bytes = {n_bytes}, not {max_bytes!r}"
            )
        self.max_beats = max_bytes // n_bytes
        self.slice = Slice(self.shape)
        frames = stream.Signature(self.shape)
        super().__init__({"i": In(frames), "o": Out(frames), "oversize": Out(1)})

    def elaborate(self, platform):
        m = Module()
        m.submodules.slice = slice = self.slice
        wiring.connect(m, slice.o, wiring.flipped(self.o))
        index = Signal(range(self.max_beats))
        at_limit = Signal(init=self.max_beats == 1)  # index == max_beats - 1
        swallowing = Signal()
        cut = Signal()
        m.d.comb += [
            cut.eq(at_limit & ~self.i.p.last),
            slice.i.p.eq(self.i.p),
            slice.i.p.last.eq(self.i.p.last | at_limit),
            slice.i.p.bad.eq(cut | (self.i.p.bad & self.i.p.last)),
            slice.i.valid.eq(self.i.valid & ~swallowing),
            self.i.ready.eq(slice.i.ready | swallowing),
        ]
        m.d.sync += self.oversize.eq(0)
        with m.If(self.i.valid & self.i.ready):
            with m.If(swallowing):
                m.d.sync += swallowing.eq(~self.i.p.last)
            with m.Elif(self.i.p.last | at_limit):
                m.d.sync += [
                    index.eq(0),
                    at_limit.eq(self.max_beats == 1),
                    swallowing.eq(cut),
                    self.oversize.eq(cut),
                ]
            with m.Else():
                m.d.sync += [index.eq(index + 1), at_limit.eq(index == self.max_beats - 2)]
        return m
