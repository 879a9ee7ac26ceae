"""Puts a head and a payload together into one frame.

Plumbing: no golden model of its own.
"""

from collections.abc import Sequence

from amaranth.hdl import Cat, Const, Module, Mux, Signal
from amaranth.lib import data, enum, stream, wiring
from amaranth.lib.wiring import In, Out
from amaranth.utils import ceil_log2

from gradnic.interface.inline import MIN_FRAME
from gradnic.interface.params import check_power

from ..primitive.names import signals
from ..stream.beats import Beat, FrameBeat
from ..stream.slice import Slice
from .realign import rotated, two_offsets

LENGTH_WIDTH = 14  # bytes of a frame, minus 1


def SpliceJob(meta_width):
    """One frame to be put together.

    whole : pass the beats at ``heads`` as they are; else head, then payload.
    second : the payload starts at the second of the two offsets.
    n_less_1 : bytes of the frame, minus 1, without padding.
    bad, meta : of the frame.
    """
    fields = {"whole": 1, "second": 1, "n_less_1": LENGTH_WIDTH, "bad": 1}
    if meta_width:
        fields["meta"] = meta_width
    return data.StructLayout(fields)


class Phase(enum.Enum, shape=3):
    """Where a beat of the frame comes from; one-hot but for ENDED."""

    HEAD = 1  # the head alone
    JOIN = 2  # end of the head and start of the payload
    BODY = 4  # payload alone, or what is left of the beat before and the next one
    ENDED = 0  # what is left of the last beat, then padding


class Splicer(wiring.Component):
    """Joins head and payload at one of two constant offsets: 3 cycles, 1 beat per cycle.

    A frame takes as many cycles as it has beats. Bytes behind the end of a frame are 0; spliced
    frames are padded to 60 bytes.

    Parameters
    ----------
    n_bytes, meta_width : int
        Shape of the frames, see `FrameBeat`; beats of 4 bytes at least.
    offsets : tuple of two ints
        Bytes of head.

    Members
    -------
    jobs : In(stream.Signature(SpliceJob(meta_width)))
    heads : In(stream.Signature(Beat(8 * n_bytes)))
        The whole frame, or ceil(offset / n_bytes) beats of head.
    bodies : In(stream.Signature(Beat(8 * n_bytes)))
        Payload from byte 0 on, at least one byte; ``last`` ends it.
    o : Out(stream.Signature(FrameBeat(n_bytes, meta_width=meta_width)))
    """

    def __init__(self, n_bytes: int, offsets: Sequence[int], *, meta_width: int = 0) -> None:
        check_power("n_bytes", n_bytes, 4, 128)
        self.n_bytes = n_bytes
        self.offsets = two_offsets(offsets)
        self.meta_width = meta_width
        self.shape = FrameBeat(n_bytes, meta_width=meta_width)
        self.slice = Slice(self.shape)
        beats = stream.Signature(Beat(8 * n_bytes))
        super().__init__(
            {
                "jobs": In(stream.Signature(SpliceJob(meta_width))),
                "heads": In(beats),
                "bodies": In(beats),
                "o": Out(stream.Signature(self.shape)),
            }
        )

    def elaborate(self, platform):
        m = Module()
        n = self.n_bytes
        tail_width = ceil_log2(n)
        count_width = LENGTH_WIDTH - tail_width
        fulls = [offset // n for offset in self.offsets]
        fields = {"data": 8 * n, "last": 1, "bad": 1}
        fields |= {"all": 1, "none": 1, "kept": tail_width, "valid": tail_width}
        if self.meta_width:
            fields["meta"] = self.meta_width
        m.submodules.joined = joined = Slice(data.StructLayout(fields))
        m.submodules.masked = masked = self.slice
        wiring.connect(m, masked.o, wiring.flipped(self.o))

        # The frame under way: fetched when the one before ends.
        job = Signal(SpliceJob(self.meta_width), reset_less=True)
        busy = Signal()
        index = Signal(range(max(fulls) + 1))
        kept = Signal(LENGTH_WIDTH, reset_less=True)  # bytes on the wire, minus 1
        to_last, to_valid = signals("to_last to_valid", count_width)  # beats to come
        is_last, is_valid, is_end = signals("is_last is_valid is_end")
        padded = Signal(LENGTH_WIDTH)
        new = self.jobs.p
        go, fetch = signals("go fetch")
        m.d.comb += [
            padded.eq(
                Mux(~new.whole & (new.n_less_1 < MIN_FRAME - 1), MIN_FRAME - 1, new.n_less_1)
            ),
            fetch.eq(~busy | (go & is_last)),
            self.jobs.ready.eq(fetch),
        ]
        with m.If(go):
            m.d.sync += [
                index.eq(index + 1),
                to_last.eq(to_last - 1),
                is_last.eq(to_last == 1),
                to_valid.eq(to_valid - 1),
                is_end.eq(to_valid == 1),
                is_valid.eq(is_valid & ~is_end),
            ]
        with m.If(fetch):
            m.d.sync += [
                busy.eq(self.jobs.valid),
                job.eq(new),
                index.eq(0),
                kept.eq(padded),
                to_last.eq(padded[tail_width:]),
                is_last.eq(padded[tail_width:] == 0),
                to_valid.eq(new.n_less_1[tail_width:]),
                is_end.eq(new.n_less_1[tail_width:] == 0),
                is_valid.eq(1),
            ]

        self._join(m, job, busy, index, go, fetch, joined)
        m.d.comb += [
            joined.i.p.last.eq(is_last),
            joined.i.p.bad.eq(job.bad & is_last),
            joined.i.p.all.eq(is_valid & ~is_end),
            joined.i.p.none.eq(~is_valid),
            joined.i.p.kept.eq(Mux(is_last, kept[:tail_width], Const(-1, tail_width))),
            joined.i.p.valid.eq(job.n_less_1[:tail_width]),
        ]
        self._mask(m, joined, masked)
        if self.meta_width:
            m.d.comb += [joined.i.p.meta.eq(job.meta), masked.i.p.meta.eq(joined.o.p.meta)]
        return m

    def _join(self, m, job, busy, index, go, fetch, joined):
        """Where each byte of the beat comes from, and what comes after it."""
        n, new = self.n_bytes, self.jobs.p
        fulls = [offset // n for offset in self.offsets]
        parts = [offset % n for offset in self.offsets]
        phase = Signal(Phase)
        start_full = Mux(new.second, fulls[1] != 0, fulls[0] != 0)
        start_part = Mux(new.second, parts[1] != 0, parts[0] != 0)
        turned = Signal(8 * n)
        older = Signal(8 * n, reset_less=True)
        m.d.comb += turned.eq(
            Mux(
                job.second,
                rotated(self.bodies.p.data, n, parts[1]),
                rotated(self.bodies.p.data, n, parts[0]),
            )
        )
        needs_head, needs_body = signals("needs_head needs_body")
        # copies for the wide multiplexer
        high_is_head, low_is_head = signals("high_is_head low_is_head")
        next_phase = Signal(Phase)
        m.d.comb += next_phase.eq(phase)
        m.d.sync += [
            phase.eq(next_phase),
            needs_head.eq((next_phase == Phase.HEAD) | (next_phase == Phase.JOIN)),
            needs_body.eq((next_phase == Phase.JOIN) | (next_phase == Phase.BODY)),
            high_is_head.eq(next_phase == Phase.HEAD),
            low_is_head.eq((next_phase == Phase.HEAD) | (next_phase == Phase.JOIN)),
        ]
        m.d.comb += [
            joined.i.valid.eq(
                busy & (self.heads.valid | ~needs_head) & (self.bodies.valid | ~needs_body)
            ),
            go.eq(joined.i.valid & joined.i.ready),
            self.heads.ready.eq(go & needs_head),
            self.bodies.ready.eq(go & needs_body),
        ]
        full = Mux(job.second, fulls[1], fulls[0])
        part = Mux(job.second, parts[1] != 0, parts[0] != 0)
        with m.If(go):
            with m.If((phase == Phase.HEAD) & ~job.whole & (index + 1 == full)):
                m.d.comb += next_phase.eq(Mux(part, Phase.JOIN, Phase.BODY))
            with m.If(needs_body):
                m.d.comb += next_phase.eq(Mux(self.bodies.p.last, Phase.ENDED, Phase.BODY))
        # Wide, so enabled by two registers alone. It may load too early, but not while it counts:
        # in BODY and ENDED an offer and a ready slice make a step.
        with m.If(joined.i.ready & self.bodies.valid):
            m.d.sync += older.eq(turned)
        with m.If(fetch):
            m.d.comb += next_phase.eq(
                Mux(
                    new.whole | start_full,
                    Phase.HEAD,
                    Mux(start_part, Phase.JOIN, Phase.BODY),
                )
            )
        # Low bytes: head or what is left over; high bytes: head alone or the payload.
        for k in range(n):
            at = slice(8 * k, 8 * k + 8)
            low = Mux(low_is_head, self.heads.p.data[at], older[at])
            high = Mux(high_is_head, self.heads.p.data[at], turned[at])
            is_low = Mux(job.second, k < parts[1], k < parts[0])
            m.d.comb += joined.i.p.data[at].eq(Mux(is_low, low, high))

    def _mask(self, m, joined, masked):
        """Bytes behind the end become 0."""
        n = self.n_bytes
        beat = joined.o.p
        keep = Cat(beat.kept >= k for k in range(n))
        valid = [Signal(name=f"valid{k}") for k in range(n)]
        m.d.comb += [
            *(v.eq(~beat.none & (beat.all | (beat.valid >= k))) for k, v in enumerate(valid)),
            masked.i.valid.eq(joined.o.valid),
            joined.o.ready.eq(masked.i.ready),
            masked.i.p.last.eq(beat.last),
            masked.i.p.bad.eq(beat.bad),
            masked.i.p.keep.eq(keep),
            masked.i.p.data.eq(
                Cat(Mux(valid[k], beat.data[8 * k : 8 * k + 8], 0) for k in range(n))
            ),
        ]
