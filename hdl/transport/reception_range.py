"""PROBEs and ranges of a reception: what is missing, and what of it may be given up.

Part of `gradnic.hdl.transport.reception`, whose golden model it follows: `r` are the receptions.
"""

from amaranth.hdl import Cat, Const, Mux, Signal

from ..stream.delays import delayed
from .reception_records import (
    BYTES,
    DONE,
    NUMBER,
    OPEN,
    WORD,
)


def probe(m, r, w):
    """A PROBE that needs no look at the bitmap is answered here, the others go to COUNT."""
    probe, kept = w.probe, w.kept
    w.end = Signal(NUMBER)  # last packet of the range
    w.stop = Signal()
    start = Cat(Const(0, 5), probe.first[5:])
    with m.State("PROBE"):
        m.d.sync += w.end.eq(probe.first + probe.count - 1)
        with m.If(w.clock == 2):
            m.d.sync += [kept.eq(w.state), kept.told.eq(1), kept.n_sent.eq(probe.n_important)]
        with m.If(w.clock == 4):
            m.d.sync += [w.word.eq(probe.first[5:]), w.stop.eq(1)]
            w.go("COUNT")
            with m.If(kept.status != OPEN):
                w.go("ANSWER")
            with m.Elif(w.enough):
                r._close(m, w, DONE)
                w.go("ANSWER")
    with m.State("ANSWER"):
        m.d.comb += w.states.write_en.eq(1)
        m.d.sync += [
            r.answers.valid.eq(1),
            r.answers.p.stop.eq(w.stop),
            r.answers.p.first.eq(Mux(w.stop, probe.first, start)),
            r.answers.p.n.eq(Mux(w.stop, probe.count, w.end + 1 - start)),
            w.word.eq(probe.first[5:]),
        ]
        w.go("WORDS")
        with m.If(w.stop):
            w.go("IDLE")


def look_at_range(m, r, w):
    """Count what is missing in a range, weigh it, and give it up or list it."""
    config, kept = w.config, w.kept
    last_word = w.end[5:]
    asked, upto, open_ = asked_for(m, r, w)
    missing, last_is_open = r._count(m, w, open_)
    cost, allowance, fits = Signal(BYTES), Signal(BYTES), Signal()
    size = Signal(16)
    m.d.sync += [
        size.eq(r._size(config, w.end, w.probe.tail)),
        allowance.eq(config.total - config.need - kept.lost),
        fits.eq((w.product.p <= allowance) & w.important),
    ]
    with m.State("WEIGH"):
        m.d.comb += [w.product.a.eq(missing), w.product.b.eq(config.packet_bytes)]
        with m.If(w.clock == 0):
            m.d.sync += w.stop.eq(missing == 0)
        with m.If((w.clock == 1) & (w.stop | config.eager)):
            w.go("ANSWER")
        with m.If(w.clock == 6):
            short = Mux(last_is_open, config.packet_bytes - size, 0)
            m.d.sync += cost.eq(w.product.p - short)
            w.go("JUDGE")
    with m.State("JUDGE"):
        m.d.comb += [w.product.a.eq(cost), w.product.b.eq(w.probe.weight)]
        with m.If(w.clock == 7):
            m.d.sync += [cost.eq(w.product.p), w.stop.eq(fits), w.word.eq(w.probe.first[5:])]
            w.go("ANSWER")
            with m.If(fits):
                w.go("GIVE")
    with m.State("GIVE"), m.If(w.clock == 3):
        m.d.comb += [
            w.bits.write_en.eq(1),
            w.bits.write_data.eq(Cat(w.closed | asked, w.here)),
        ]
        m.d.sync += [w.word.eq(w.word + 1), w.clock.eq(0)]
        with m.If(w.word == last_word):
            m.d.sync += [
                kept.lost.eq(kept.lost + cost),
                kept.n_open.eq(kept.n_open - missing),
            ]
            w.go("GIVEN")
    with m.State("GIVEN"):
        with m.If(kept.n_open == 0):
            r._close(m, w, DONE)
        w.go("ANSWER")
    with m.State("WORDS"):
        with m.If(w.clock == 15):
            m.d.sync += w.clock.eq(3)
        with m.If((w.clock >= 3) & ~r.words.valid):
            m.d.sync += [
                r.words.valid.eq(1),
                r.words.p.data.eq(~open_ & upto),
                r.words.p.last.eq(w.word == last_word),
                w.word.eq(w.word + 1),
                w.clock.eq(0),
            ]
            with m.If(w.word == last_word):
                w.go("IDLE")


def asked_for(m, r, w):
    """Of the word that is read now: bits of the range, bits up to its end, packets not in."""
    seen = delayed(m, w.word, 2, name="seen")
    asked, upto, open_ = Signal(WORD), Signal(WORD), Signal(WORD)
    ones = Const((1 << WORD) - 1, WORD)
    begin = Mux(seen == w.probe.first[5:], (ones << w.probe.first[:5])[:WORD], ones)
    m.d.comb += [
        upto.eq(Mux(seen == w.end[5:], ones >> ~w.end[:5], ones)),
        asked.eq(begin & upto),
        open_.eq(asked & ~w.closed),
    ]
    return asked, upto, open_
