"""Merges two streams of frames into one.

Plumbing: no golden model of its own.
"""

from amaranth.hdl import Module, Mux, Signal
from amaranth.lib import stream, wiring
from amaranth.lib.wiring import In, Out

from gradnic.interface.params import check_least

from ..stream.beats import FrameBeat
from ..stream.slice import Slice


class FrameArbiter(wiring.Component):
    """Merges foreign and own frames, whole frame by whole frame; foreign frames go first.

    1 cycle of latency, 1 beat per cycle; a change to own frames because no foreign one waits costs
    one cycle, no other change does. A foreign frame waits for one own frame at most. A frame whose
    source pauses in its middle holds the output.

    With `own_beats`, own frames that wait are owed ``floor`` beats for every 256 foreign ones, and
    go first once a frame of `own_beats` is owed: foreign frames that load the line with less than
    256 / (256 + ``floor``) lose nothing by it, and own ones never starve.

    Parameters
    ----------
    n_bytes, meta_width : int
        Shape of the beats, see `FrameBeat`.
    own_beats : int or None
        Of the longest own frame, at least 1. None: own frames go only when no foreign one waits.

    Members
    -------
    foreign, own : In(stream.Signature(FrameBeat(n_bytes, meta_width=meta_width)))
    floor : In(8)
        Only with `own_beats`; 0 is as without.
    o : Out(stream.Signature(FrameBeat(n_bytes, meta_width=meta_width)))
        Comes from registers.
    """

    def __init__(self, n_bytes: int, *, meta_width: int = 0, own_beats: int | None = None) -> None:
        if own_beats is not None:
            check_least("own_beats", own_beats, 1)
        self.own_beats = own_beats
        self.shape = FrameBeat(n_bytes, meta_width=meta_width)
        self.slice = Slice(self.shape)
        frames = stream.Signature(self.shape)
        floor = {} if own_beats is None else {"floor": In(8)}
        super().__init__({"foreign": In(frames), "own": In(frames), **floor, "o": Out(frames)})

    def elaborate(self, platform):
        m = Module()
        m.submodules.slice = slice = self.slice
        wiring.connect(m, slice.o, wiring.flipped(self.o))
        own = Signal()  # whose turn it is; registered, since it selects a whole beat
        inside = Signal()  # between a first and a last beat
        m.d.comb += [
            slice.i.p.eq(Mux(own, self.own.p, self.foreign.p)),
            slice.i.valid.eq(Mux(own, self.own.valid, self.foreign.valid)),
            self.own.ready.eq(own & slice.i.ready),
            self.foreign.ready.eq(~own & slice.i.ready),
        ]
        step = slice.i.valid & slice.i.ready
        due = 0 if self.own_beats is None else self._due(m, step, own)
        with m.If(step):
            m.d.sync += inside.eq(~slice.i.p.last)
            with m.If(slice.i.p.last):
                m.d.sync += own.eq(Mux(own, ~self.foreign.valid, due & self.own.valid))
        with m.Elif(~inside & ~slice.i.valid):
            m.d.sync += own.eq(self.own.valid & ~self.foreign.valid)
        return m

    def _due(self, m, step, own):
        """Whether an own frame is owed by now."""
        frame = 256 * self.own_beats
        owed = Signal(range(2 * frame + 256))  # 1/256 of a beat
        due = Signal()
        m.d.sync += due.eq(owed >= frame)
        with m.If(step):
            with m.If(own):
                m.d.sync += owed.eq(Mux(owed > 256, owed - 256, 0))
            with m.Elif(owed < 2 * frame):
                m.d.sync += owed.eq(owed + self.floor)
        return due
