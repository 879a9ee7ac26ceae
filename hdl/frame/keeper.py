"""Keeps frames whole while the circuit between their ends is reset.

Plumbing: no golden model of its own.
"""

from amaranth.hdl import Module, Mux, Signal
from amaranth.lib import stream, wiring
from amaranth.lib.wiring import In, Out

from ..primitive.names import signals
from ..stream.beats import FrameBeat

AGE = 3  # ticks


class _Keeper(wiring.Component):
    """What both directions have in common. Latency 0, full rate.

    Parameters
    ----------
    n_bytes, meta_width : int
        See `FrameBeat`.

    Members
    -------
    i, o : In, Out(stream.Signature(FrameBeat(n_bytes, meta_width=meta_width)))
    anew : In(1)
        The circuit is reset in this cycle.
    tick, excused : In(1)
        Time goes on; whoever is outside makes us wait.
    busy : Out(1)
        A frame is under way.
    starves : Out(1)
        The next beat of a frame has not come.
    wedged : Out(1)
        For 2 to 3 ticks the circuit has let nothing through, and was not excused.
    """

    def __init__(self, n_bytes, *, meta_width=0, **more):
        frames = stream.Signature(FrameBeat(n_bytes, meta_width=meta_width))
        flags = {"anew": In(1), "tick": In(1), "excused": In(1), "busy": Out(1)}
        super().__init__(
            {"i": In(frames), "o": Out(frames), "starves": Out(1), "wedged": Out(1)} | flags | more
        )

    def _track(self, m, end, blocked):
        """(Inside a frame after this cycle), at the end that is outside."""
        inside, after = signals("inside after")
        age = Signal(range(AGE + 1))
        goes = end.valid & end.ready
        m.d.comb += [
            after.eq(Mux(goes, ~end.p.last, inside)),
            self.busy.eq(inside | end.valid),
            self.starves.eq(inside & ~end.valid),
            self.wedged.eq(age == AGE),
        ]
        m.d.sync += inside.eq(after)
        with m.If(~blocked | self.anew | (self.tick & self.excused)):
            m.d.sync += age.eq(0)
        with m.Elif(self.tick & (age != AGE)):
            m.d.sync += age.eq(age + 1)
        return after


class EntryKeeper(_Keeper):
    """On the way in: the rest of a frame that was under way vanishes; a beat that comes in the
    cycle of ``anew`` waits for the next.
    """

    def elaborate(self, platform):
        m = Module()
        rest = Signal()
        m.d.comb += [
            self.o.p.eq(self.i.p),
            self.o.valid.eq(self.i.valid & ~rest & ~self.anew),
            self.i.ready.eq((self.o.ready | rest) & ~self.anew),
        ]
        inside = self._track(m, self.i, self.i.valid & ~self.i.ready)
        m.d.sync += rest.eq((rest | self.anew) & inside)
        return m


class ExitKeeper(_Keeper):
    """On the way out: a frame that was under way ends with a beat that is marked bad.

    closed : In(1)
        No other beat is offered; what is being offered stays. still : Out(1), nothing is offered
        that is not taken.
    """

    def __init__(self, n_bytes: int, *, meta_width: int = 0) -> None:
        super().__init__(n_bytes, meta_width=meta_width, closed=In(1), still=Out(1))

    def elaborate(self, platform):
        m = Module()
        held, ends, passes = signals("held ends passes")
        m.d.comb += [
            passes.eq((held | ~self.closed) & ~ends),
            self.o.p.eq(self.i.p),
            self.o.valid.eq(ends | (self.i.valid & passes)),
            self.i.ready.eq(self.o.ready & passes),
            self.still.eq(~self.o.valid | self.o.ready),
        ]
        with m.If(ends):
            m.d.comb += [self.o.p.keep.eq(1), self.o.p.last.eq(1), self.o.p.bad.eq(1)]
        inside = self._track(m, self.o, self.starves)
        m.d.sync += [
            held.eq(self.o.valid & ~self.o.ready & ~ends),
            ends.eq(Mux(self.anew, inside, ends & inside)),
        ]
        return m
