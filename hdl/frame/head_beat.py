"""Head and payload of a frame in beats of their own, where a beat is twice the head.

Twin of `gradnic.models.frame.head_beat`.
"""

from amaranth.hdl import Cat, Const, Module, Mux, Signal
from amaranth.lib import stream, wiring
from amaranth.lib.wiring import In, Out

from gradnic.interface.params import check_power

from ..stream.beats import FrameBeat
from ..stream.slice import Slice


def _halves(beat, half):
    """Lower and upper half of a beat's data, and of its keep bits."""
    return (beat.data[: 8 * half], beat.data[8 * half :]), (beat.keep[:half], beat.keep[half:])


class _Shifted(wiring.Component):
    """Frames that move by half a beat, behind a register slice."""

    def __init__(self, n_bytes: int, meta_width: int = 0) -> None:
        check_power("n_bytes", n_bytes, 2, 128)
        self.n_bytes, self.meta_width = n_bytes, meta_width
        self.shape = FrameBeat(n_bytes, meta_width=meta_width)
        self.slice = Slice(self.shape)
        frames = stream.Signature(self.shape)
        super().__init__({"i": In(frames), "o": Out(frames)})

    def _open(self, m):
        """Where beats leave, and the half that waits: its data, keep and bad bits."""
        m.submodules.slice = slice = self.slice
        wiring.connect(m, slice.o, wiring.flipped(self.o))
        half = self.n_bytes // 2
        rest = Signal(8 * half, reset_less=True)  # upper half of the beat before
        rest_keep = Signal(half, reset_less=True)
        rest_bad = Signal(reset_less=True)
        return slice.i, rest, rest_keep, rest_bad


class HeadApart(_Shifted):
    """Moves what follows the first half beat of a frame to the next beat: 1 cycle.

    A frame of at least a half beat leaves with zeros behind its head, all kept; a shorter one as
    it came. A frame takes as many cycles as beats come out: one more than go in where its last
    beat is more than half full.

    Parameters
    ----------
    n_bytes : int
        Bytes of a beat, twice those of a head; see `FrameBeat`.

    Members
    -------
    i, o : In, Out(stream.Signature(FrameBeat(n_bytes)))
        ``o`` comes from registers.
    """

    def __init__(self, n_bytes: int) -> None:
        super().__init__(n_bytes)
        self.inside = Signal()  # behind the head
        self.flushes = Signal()  # only the rest is left

    def elaborate(self, platform):
        m = Module()
        out, rest, rest_keep, rest_bad = self._open(m)
        beat, half = self.i.p, self.n_bytes // 2
        (low, high), (low_keep, high_keep) = _halves(beat, half)
        ends = beat.last & ~high_keep[0]  # with this beat
        whole = ~beat.last | low_keep[-1]  # all bytes of the head are there
        m.d.comb += [
            out.valid.eq(self.flushes | self.i.valid),
            self.i.ready.eq(out.ready & ~self.flushes),
            out.p.last.eq(self.flushes | ends),
            out.p.bad.eq(Mux(self.flushes, rest_bad, beat.bad & ends)),
        ]
        with m.If(self.flushes):
            m.d.comb += [out.p.data.eq(rest), out.p.keep.eq(rest_keep)]
        with m.Elif(self.inside):
            m.d.comb += [
                out.p.data.eq(Cat(rest, low)),
                out.p.keep.eq(Cat(Const(-1, half), low_keep)),
            ]
        with m.Else():
            m.d.comb += [
                out.p.data.eq(low),
                out.p.keep.eq(Mux(whole, Const(-1, self.n_bytes), low_keep)),
            ]
        with m.If(out.valid & out.ready):
            m.d.sync += [
                self.flushes.eq(~self.flushes & beat.last & high_keep[0]),
                self.inside.eq(~self.flushes & ~beat.last),
            ]
        with m.If(self.i.valid & self.i.ready):
            m.d.sync += [rest.eq(high), rest_keep.eq(high_keep), rest_bad.eq(beat.bad)]
        return m


class HeadJoined(_Shifted):
    """The way back: what follows the first beat moves up to its half. 1 cycle, 1 beat per cycle.

    Of the first beat of a frame the lower half counts, and all of that is kept. A head waits for
    the first beat of its payload.

    Parameters
    ----------
    n_bytes, meta_width : int
        Bytes of a beat, twice those of a head, and side band; see `FrameBeat`.

    Members
    -------
    i, o : In, Out(stream.Signature(FrameBeat(n_bytes, meta_width=meta_width)))
        ``o`` comes from registers.
    """

    def __init__(self, n_bytes: int, *, meta_width: int = 0) -> None:
        super().__init__(n_bytes, meta_width)
        self.full = Signal()  # a half waits
        self.flushes = Signal()  # it ends its frame

    def elaborate(self, platform):
        m = Module()
        out, rest, rest_keep, rest_bad = self._open(m)
        beat, half = self.i.p, self.n_bytes // 2
        (low, high), (low_keep, high_keep) = _halves(beat, half)
        joins = self.full & ~self.flushes  # with what comes in
        take = Signal()
        m.d.comb += [
            self.i.ready.eq(~self.full | out.ready),
            take.eq(self.i.valid & self.i.ready),
            out.valid.eq(self.flushes | (joins & self.i.valid)),
            out.p.data.eq(Cat(rest, Mux(self.flushes, 0, low))),
            out.p.keep.eq(Cat(rest_keep, Mux(self.flushes, 0, low_keep))),
            out.p.last.eq(self.flushes | (beat.last & ~high_keep[0])),
            out.p.bad.eq(Mux(self.flushes, rest_bad, beat.bad & beat.last & ~high_keep[0])),
        ]
        with m.If(take):
            m.d.sync += [
                rest.eq(Mux(joins, high, low)),
                rest_keep.eq(Mux(joins, high_keep, Const(-1, half))),
                rest_bad.eq(beat.bad),
                self.full.eq(~joins | ~beat.last | high_keep[0]),
                self.flushes.eq(beat.last & (~joins | high_keep[0])),
            ]
        with m.Elif(self.flushes & out.ready):
            m.d.sync += [self.full.eq(0), self.flushes.eq(0)]
        if self.meta_width:
            meta = Signal(self.meta_width, reset_less=True)
            m.d.comb += out.p.meta.eq(meta)
            with m.If(take & ~joins):
                m.d.sync += meta.eq(beat.meta)
        return m
