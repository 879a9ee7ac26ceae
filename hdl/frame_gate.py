"""Where frames wait until all of them was seen: the common part of gates.

Plumbing: no golden model of its own.
"""

from amaranth.hdl import Mux, Signal
from amaranth.lib import data

from .checksum import FrameCheck, Verdict
from .fifo import FIFO
from .frame_store import COUNT_WIDTH, FrameStore


def store_and_check(m, parser, *, n_slots, n_frames):
    """Store the frames of `parser`, with streams ``beats`` and ``facts``, and check each whole.

    n_slots : beats that the store holds. n_frames : frames of which the end was seen, but which
    nobody has judged yet.

    Returns (`FrameStore`, stream of {facts, n_beats}, stream of `Verdict`), one of each a frame.
    """
    n = parser.n_bytes
    m.submodules.check = check = FrameCheck(n)
    m.submodules.store = store = FrameStore(8 * n, n_slots)
    record = data.StructLayout({"facts": parser.facts.p.shape(), "n_beats": COUNT_WIDTH})
    m.submodules.records = records = FIFO(record, n_frames)
    # Never fills: it holds no more verdicts than there are records and their output.
    m.submodules.verdicts = verdicts = FIFO(Verdict(n), 2 * n_frames)
    beat, facts = parser.beats, parser.facts
    first, goes = Signal(init=1), Signal()
    n_before = Signal(COUNT_WIDTH)
    m.d.comb += [
        goes.eq(beat.valid & facts.valid & store.i.ready & records.i.ready),
        beat.ready.eq(goes),
        facts.ready.eq(goes & beat.p.last),
        store.i.valid.eq(goes),
        store.i.p.eq(beat.p.data),
        records.i.valid.eq(goes & beat.p.last),
        records.i.p.facts.eq(facts.p),
        records.i.p.n_beats.eq(n_before + 1),
        check.push.eq(goes),
        check.first.eq(first),
        check.info.eq(facts.p.check),
        *(getattr(check, name).eq(beat.p[name]) for name in ("last", "bad", "data", "keep")),
        verdicts.i.valid.eq(check.done),
        verdicts.i.p.eq(check.verdict),
    ]
    with m.If(goes):
        m.d.sync += [
            first.eq(beat.p.last),
            n_before.eq(Mux(beat.p.last, 0, n_before + 1)),
        ]
    return store, records.o, verdicts.o
