"""Where frames wait until all of them was seen: the common part of gates.

Plumbing: no golden model of its own.
"""

from amaranth.hdl import Mux, Signal
from amaranth.lib import data, stream, wiring

from ..stream.delays import delayed, delayed_flag
from ..stream.fifo import FIFO
from ..stream.slice import Slice
from .checksum import FrameCheck, Verdict
from .store import COUNT_WIDTH, FrameStore


def store_and_check(m, parser, *, n_slots: int, n_frames: int, stops: bool = False):
    """Store the frames of `parser`, with streams ``beats`` and ``facts``, and check each whole.

    n_slots : beats that the store holds. n_frames : frames of which the end was seen, but which
    nobody has judged yet. stops : as of `gradnic.hdl.stream.block_fifo.BlockFIFO`.

    Returns (`FrameStore`, stream of {facts, n_beats}, stream of `Verdict`, flag with `stops`: a
    register of the stores changed by itself), one a frame of each stream.
    """
    n = parser.n_bytes
    m.submodules.check = check = FrameCheck(n)
    m.submodules.store = store = FrameStore(8 * n, n_slots, stops=stops)
    m.submodules.known = known = FIFO(parser.facts.p.shape(), n_frames, watched=stops)
    # Never fill: they hold no more lengths and verdicts than there are known frames.
    m.submodules.lengths = lengths = FIFO(COUNT_WIDTH, 2 * n_frames)
    m.submodules.verdicts = verdicts = FIFO(Verdict(n), 2 * n_frames)
    record = data.StructLayout({"facts": parser.facts.p.shape(), "n_beats": COUNT_WIDTH})
    records = stream.Signature(record).create(path=("records",))
    # the parser's queue stands far away: nothing goes there and back in a cycle
    m.submodules.arrived = arrived = Slice(parser.facts.p.shape(), half_rate=True)
    wiring.connect(m, parser.facts, arrived.i)
    beat, facts = parser.beats, arrived.o
    first = Signal(init=1)
    goes = Signal()
    opens = Signal()  # facts of the next frame are in `known`, and `info` waits for its first beat
    info = Signal.like(facts.p.check, reset_less=True)
    n_before = Signal(COUNT_WIDTH)
    m.d.comb += [
        goes.eq(beat.valid & store.i.ready & (~first | opens)),
        beat.ready.eq(goes),
        facts.ready.eq(~opens & known.i.ready),
        store.i.valid.eq(goes),
        store.i.p.eq(beat.p.data),
        known.i.valid.eq(~opens & facts.valid),
        known.i.p.eq(facts.p),
        lengths.i.valid.eq(goes & beat.p.last),
        lengths.i.payload.eq(n_before + 1),
        records.valid.eq(lengths.o.valid),  # then the facts are there, too
        records.p.facts.eq(known.o.p),
        records.p.n_beats.eq(lengths.o.payload),
        lengths.o.ready.eq(records.ready),
        known.o.ready.eq(records.ready & lengths.o.valid),
        check.push.eq(delayed_flag(m, goes, 1, name="checks")),  # it stands far from the queues
        check.first.eq(delayed(m, first, 1, name="check_first")),
        check.info.eq(delayed(m, info, 1, name="check_info")),
        check.last.eq(delayed(m, beat.p.last, 1, name="check_last")),
        check.bad.eq(delayed(m, beat.p.bad, 1, name="check_bad")),
        check.data.eq(delayed(m, beat.p.data, 1, name="check_data")),
        check.keep.eq(delayed(m, beat.p.keep, 1, name="check_keep")),
        verdicts.i.valid.eq(check.done),
        verdicts.i.p.eq(check.verdict),
    ]
    m.d.sync += opens.eq(Mux(opens, ~(goes & first), facts.valid & known.i.ready))
    with m.If(~opens):
        m.d.sync += info.eq(facts.p.check)
    with m.If(goes):
        m.d.sync += [
            first.eq(beat.p.last),
            n_before.eq(Mux(beat.p.last, 0, n_before + 1)),
        ]
    return store, records, verdicts.o, store.beats.stopped | known.astray
