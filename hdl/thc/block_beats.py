"""Place of each beat in its block of floats.

Plumbing: no golden model of its own.
"""

from amaranth.hdl import Mux, Signal


def before_last_beat(m, lanes: int, block: int, log4):
    """Beats of a block - 2, a register: blocks of 64 * 4**log4 floats, at most `block`."""
    before_last = Signal(range(max(2, block // lanes)))
    m.d.sync += before_last.eq((64 // lanes << (log4 << 1)) - 2)
    return before_last


def block_beats(m, goes, before_last):
    """(beat, at_first, at_last) of the beat that waits; they move on where `goes`."""
    beat = Signal.like(before_last)
    at_first = Signal(init=1)
    at_last = Signal()
    with m.If(goes):
        m.d.sync += [
            beat.eq(Mux(at_last, 0, beat + 1)),
            at_first.eq(at_last),
            at_last.eq(~at_last & (beat == before_last)),
        ]
    return beat, at_first, at_last
