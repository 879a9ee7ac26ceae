"""BF16 beside float32: beats of one become beats of the other.

Golden model: `gradnic.models.offload.bf16`.
"""

from amaranth.hdl import Cat, Const, Module, Mux, Signal
from amaranth.lib import stream, wiring
from amaranth.lib.wiring import In, Out

from ..primitive.names import signals
from ..stream.beats import Beat

NAN = 0x7FC0


def rounded(word):
    """BF16 of a float32, to nearest even; combinational."""
    is_nan = (word[23:31] == 0xFF) & word[:23].any()
    up = word[15] & (word[:15].any() | word[16])
    return Mux(is_nan, NAN, (word[16:] + up)[:16])


def image(beat):
    """The float32 lanes of a beat, rounded to BF16; combinational."""
    words = [rounded(beat[k : k + 32]) for k in range(0, len(beat), 32)]
    return Cat(Cat(Const(0, 16), word) for word in words)


def halved(m, i, o, on):
    """Connects ranges of float32 beats to those of BF16 beats, half as many; or as they are."""
    m.d.comb += [
        o.p.eq(i.p),
        o.valid.eq(i.valid),
        i.ready.eq(o.ready),
    ]
    with m.If(on):
        m.d.comb += [o.p.offset.eq(i.p.offset >> 1), o.p.n_beats.eq((i.p.n_beats + 1) >> 1)]


class Widen(wiring.Component):
    """A beat of BF16 becomes two of float32, one a cycle, in no time; or all pass as they are.

    Parameters
    ----------
    n_bytes : int
        Of a beat.

    Members
    -------
    on : In(1)
        What comes is BF16. Must not change while anything is under way.
    odd : In(stream.Signature(1))
        While ``on`` one for each range of beats that `last` ends: its last beat gives only one.
    i, o : In, Out(stream.Signature(Beat(8 * n_bytes)))
    """

    def __init__(self, n_bytes: int) -> None:
        beats = stream.Signature(Beat(8 * n_bytes))
        super().__init__(
            {"on": In(1), "odd": In(stream.Signature(1)), "i": In(beats), "o": Out(beats)}
        )

    def elaborate(self, platform):
        m = Module()
        i, o, on = self.i, self.o, self.on
        width = len(i.p.data)
        low, high = (
            Cat(Cat(Const(0, 16), half[k : k + 16]) for k in range(0, width // 2, 16))
            for half in (i.p.data[: width // 2], i.p.data[width // 2 :])
        )
        second, ends = signals("second ends")  # the high half is next; this is the last beat out
        m.d.comb += [
            ends.eq(i.p.last & (second | self.odd.payload)),
            o.valid.eq(i.valid & (~on | self.odd.valid)),
            o.p.data.eq(Mux(on, Mux(second, high, low), i.p.data)),
            o.p.last.eq(Mux(on, ends, i.p.last)),
            i.ready.eq(o.ready & (~on | (self.odd.valid & (second | ends)))),
            self.odd.ready.eq(on & i.valid & o.ready & ends),
        ]
        with m.If(on & o.valid & o.ready):
            m.d.sync += second.eq(~(second | ends))
        return m


class Narrow(wiring.Component):
    """Two beats of float32 become one of BF16, each value rounded; or all pass as they are.

    A beat of BF16 is offered with the second of its two beats, or with `last`.

    Parameters
    ----------
    n_bytes : int
        Of a beat.

    Members
    -------
    on : In(1)
        What leaves is BF16. Must not change while anything is under way.
    i, o : In, Out(stream.Signature(Beat(8 * n_bytes)))
    whole : Out(1)
        Of what is offered, the high half is more than filling.
    """

    def __init__(self, n_bytes: int) -> None:
        beats = stream.Signature(Beat(8 * n_bytes))
        super().__init__({"on": In(1), "i": In(beats), "o": Out(beats), "whole": Out(1)})

    def elaborate(self, platform):
        m = Module()
        i, o, on = self.i, self.o, self.on
        width = len(i.p.data)
        words = Cat(rounded(i.p.data[k : k + 32]) for k in range(0, width, 32))
        kept = Signal(width // 2, reset_less=True)
        second, gives = signals("second gives")
        both = Mux(second, Cat(kept, words), words)
        m.d.comb += [
            gives.eq(~on | second | i.p.last),
            self.whole.eq(~on | second),
            o.valid.eq(i.valid & gives),
            o.p.data.eq(Mux(on, both, i.p.data)),
            o.p.last.eq(i.p.last),
            i.ready.eq(o.ready | ~gives),
        ]
        with m.If(on & i.valid & i.ready):
            m.d.sync += second.eq(~gives)
        with m.If(~second):
            m.d.sync += kept.eq(words)
        return m
