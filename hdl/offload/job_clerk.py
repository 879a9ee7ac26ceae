"""Looks at the oldest job that waits: refuses it, or cuts its tensor and lets it start.

Part of `gradnic.hdl.offload.job_core`, whose golden model it follows; how a tensor is cut is
`gradnic.models.offload.plan.Plan`.
"""

from amaranth.hdl import Const, Module, Mux, Signal
from amaranth.lib import data, memory, wiring
from amaranth.lib.wiring import In, Out
from amaranth.utils import ceil_log2

from gradnic.interface.job import (
    TABLES,
    JobCodec,
    JobStatus,
    Kind,
    Refusal,
)

from ..axi.bursts import Region
from ..primitive.names import signals
from ..primitive.parity import strayed
from ..primitive.setting import setting
from ..primitive.target import one_hot
from ..transport.records import Context, Geometry, Over
from .job_judge import refusal
from .job_queue import Divider
from .job_records import STAMP_WIDTH, JobTable, JobTableWrite, Prepared, Record, Waiting

N_REGIONS = 2  # that jobs may name
UNITS_WIDTH = 25  # 16 elements each
THC_UNITS = 6  # log2 of those that chunks of THC are multiples of: a packet of sums of 8 bits


class JobClerk(wiring.Component):
    """About 30 cycles a job of up to 16,384 elements, 55 of a long one, most of them for four
    divisions, two of them at a time; twice as many for THC, whose norms are cut, too.

    Parameters
    ----------
    n_bytes, address_width, n_ranks, n_packets : int
        Of the core.
    max_elems : int
        Floats of a packet; jobs are refused while ``packet`` is more, or 0.
    n_tables : int
        That can be loaded; jobs that name others are refused.
    n_contexts : int
    inc, bf16, thc : bool
        False: INCEPTIONN is refused; so is BF16, in memory and as a codec; so is THC.
    scale, maxima, gives_up, feedback : bool
        False: means are refused; so are maxima; so are shares that may miss; so is error feedback.

    Members
    -------
    oldest, aborted, present, pop : In(Waiting), In(1), In(1), Out(1)
        Of the queue.
    now : In(48)
    table_write : In(JobTableWrite)
    packet : In(8)
        Units of 16 elements of a packet.
    regions : In(ArrayLayout(Region, 2))
        Where sources and results may lie. landing : In(24), beats of each context's landing areas.
    unplaced, scratch_unplaced : In(1)
        A context has no landing areas, or no scratch: no job starts, or none with THC.
    scratch, log4, bits, odd : In(24), In(2), In(4), In(1)
        Of THC: beats of each context's scratch, log4(B) - 3, bits of an index; g is odd.
    contexts : In(ArrayLayout(Context, n_contexts))
        Those that are busy.
    asked, over : Out(16), In(Over)
        A tensor, and what is over of it.
    room : In(1)
        A completion has room, whoever ends; known a cycle after what was popped last.
    free : In(1)
        A context takes `prepared` in a cycle of ``pop`` with ``starts``.
    nears, prepared, starts : Out(1), Out(Prepared), Out(1)
        ``nears``, a strobe, comes 12 cycles before the first one with ``starts``, or more.
    record, tells : Out(Record), Out(1)
        How a job ended that did not start: taken in the cycle of ``told``.
    told : In(1)
    """

    def __init__(self, n_bytes, address_width, *, n_ranks, n_packets, max_elems, n_tables,
                 n_contexts, inc, bf16=False, scale=False, maxima=False, thc=False, gives_up=False,
                 feedback=False):  # fmt: skip
        self.n_bytes, self.address_width = n_bytes, address_width
        self.n_ranks, self.n_packets = n_ranks, n_packets
        self.n_tables, self.n_contexts, self.inc, self.bf16 = n_tables, n_contexts, inc, bf16
        self.scale, self.thc, self.gives_up, self.feedback = scale, thc, gives_up, feedback
        self.maxima, self.max_elems = maxima, max_elems
        super().__init__(
            {
                "oldest": In(Waiting),
                "aborted": In(1),
                "present": In(1),
                "pop": Out(1),
                "now": In(STAMP_WIDTH),
                "table_write": In(JobTableWrite),
                "packet": In(8),
                "regions": In(data.ArrayLayout(Region(n_bytes, address_width), N_REGIONS)),
                "landing": In(24),
                "unplaced": In(1),
                "scratch_unplaced": In(1),
                "scratch": In(24),
                "log4": In(2),
                "bits": In(4),
                "odd": In(1),
                "contexts": In(data.ArrayLayout(Context, n_contexts)),
                "asked": Out(16),
                "over": In(Over),
                "room": In(1),
                "free": In(1),
                "nears": Out(1),
                "prepared": Out(Prepared(n_bytes, address_width)),
                "starts": Out(1),
                "record": Out(Record),
                "tells": Out(1),
                "told": In(1),
            }
        )

    def elaborate(self, platform):
        m = Module()
        m.submodules.tables = tables = memory.Memory(shape=JobTable, depth=TABLES, init=[])
        write, read = tables.write_port(), tables.read_port(domain="comb")
        loaded = setting(m, TABLES, "loaded")
        m.d.comb += [
            write.en.eq(self.table_write.enable),
            write.addr.eq(self.table_write.index),
            write.data.eq(self.table_write.table),
            read.addr.eq(self.oldest.job.table),
        ]
        with m.If(self.table_write.enable):
            m.d.sync += loaded.bit_select(self.table_write.index, 1).eq(
                self.table_write.table.valid
            )

        out = Signal(Prepared(self.n_bytes, self.address_width), reset_less=True)
        job = out.job
        cut = Signal(Geometry, reset_less=True)
        table = out.table
        halves = Signal()  # two values lie in a word somewhere: chunks are multiples of 32
        n_elems, low = out.job.elems, self._low
        n_beats = Mux(
            job.kind == Kind.BF16,
            (n_elems + (self.n_bytes // 2 - 1)) >> low - 1,
            (n_elems + (self.n_bytes // 4 - 1)) >> low - 2,
        )
        if self.bf16:
            is_half = (job.kind == Kind.BF16) & (job.codec != JobCodec.THC)
            m.d.comb += halves.eq(is_half | (job.codec == JobCodec.RAW16))
        units = Signal(UNITS_WIDTH, reset_less=True)  # less one
        live = Signal(14, reset_less=True)
        coarse = Signal(reset_less=True)
        rest_units = Signal(4, reset_less=True)  # elements of the last unit, less one
        of_norms = Signal(reset_less=True)
        thc = (job.codec == JobCodec.THC) if self.thc else Const(0)
        n_packets = (job.elems + 1023)[10:]  # of 1,024 elements
        m.d.comb += [self.prepared.eq(out), self.asked.eq(job.tensor)]
        m.submodules.divider = divider = Divider(UNITS_WIDTH)
        m.submodules.second = second = Divider(UNITS_WIDTH)  # at the same time
        a, b = signals("a b", UNITS_WIDTH, reset_less=True)
        m.d.comb += [divider.a.eq(a), divider.b.eq(b), second.a.eq(units), second.b.eq(cut.chunk)]
        quotient, rest = divider.quotient, divider.remainder
        long = Signal()  # more packets in a chunk than can be counted
        reason = refusal(m, self, out, loaded, long)

        refused = Signal()
        record = self.record
        m.d.comb += [
            record.id.eq(job.id),
            record.status.eq(Mux(refused, JobStatus.REFUSED, JobStatus.ABORTED)),
            record.detail.eq(Mux(refused, reason, 0)),
            record.cycles.eq(self.now - out.posted),
        ]
        step = Signal(range(3))
        settles = Signal(range(4))
        waits = Signal()  # for a context
        strays, popped = signals("strays popped")
        m.d.sync += [strays.eq(strayed(m, out, waits)), popped.eq(self.pop)]
        with m.FSM() as fsm:
            m.d.comb += waits.eq(fsm.ongoing("OFFER"))
            with m.State("REST"):
                m.d.sync += [
                    out.job.eq(self.oldest.job),
                    out.posted.eq(self.oldest.posted),
                    out.table.eq(read.data),
                    units.eq((self.oldest.job.elems + 15)[4:] - 1),
                    refused.eq(0),
                    step.eq(0),
                    settles.eq(3),
                    long.eq(0),
                    of_norms.eq(0),
                ]
                with m.If(self.present & self.room & ~popped):
                    m.next = "TAKEN"
            with m.State("TAKEN"):
                m.d.sync += [
                    a.eq(Mux(halves, units >> 1, units)),
                    b.eq(table.chunks),
                    cut.packet.eq(self.packet),
                    coarse.eq(0),
                    rest_units.eq(n_elems - 1),
                    out.n_beats.eq(n_beats),
                    out.area.eq((units + 1) << 6 - self._low),
                    out.source.eq(job.source[self._low :]),
                    out.result.eq(job.result[self._low :]),
                ]
                if self.thc:
                    with m.If(thc):
                        m.d.sync += [
                            a.eq(n_packets - 1),
                            units.eq((n_packets << THC_UNITS) - 1),
                            rest_units.eq(15),
                            coarse.eq(1),
                            cut.packet.eq(Mux(table.code != 0, 1 << THC_UNITS - 1, 1 << THC_UNITS)),
                            out.area.eq(n_packets * (table.code + 2) << 9 - self._low),
                            out.n_blocks.eq(n_packets << (4 - (self.log4 << 1))[:3]),
                        ]
                m.next = "DIVIDE"
                with m.If(self.aborted):
                    m.next = "TELL"
            with m.State("DIVIDE"):
                m.d.comb += [
                    divider.start.eq(1),
                    second.start.eq(step == 1),
                    self.nears.eq((step == 2) & (of_norms | ~thc)),
                ]
                m.next = "WAIT"
            with m.State("WAIT"):
                with m.If(divider.done & second.done):
                    m.d.sync += step.eq(step + 1)
                    m.next = "DIVIDE"
                    with m.Switch(step):
                        with m.Case(0):  # units of a chunk
                            more = Mux(coarse, (1 << THC_UNITS) - 1, halves)
                            chunk = Mux(coarse, quotient << THC_UNITS, quotient << halves) | more
                            m.d.sync += [cut.chunk.eq(chunk + 1), a.eq(chunk), b.eq(cut.packet)]
                        with m.Case(1):  # packets of a chunk; the last chunk that is not empty
                            last, of_last = second.quotient, second.remainder
                            m.d.sync += [
                                cut.per_chunk.eq(quotient + 1),
                                cut.tail.eq((rest + 1) << 4),
                                long.eq(long | (quotient >= self.n_packets)),
                                cut.last_chunk.eq(last),
                                live.eq(last + 1),
                                a.eq(of_last),
                            ]
                            with m.If(~of_norms):
                                m.d.sync += out.last_elems.eq((of_last << 4) + rest_units + 1)
                        with m.Case(2):
                            m.d.sync += [
                                cut.last_per_chunk.eq(quotient + 1),
                                cut.last_tail.eq((rest << 4) + rest_units + 1),
                            ]
                            m.next = "CUT"
            with m.State("CUT"):
                m.next = "SETTLE"
                with m.If(of_norms):
                    m.d.sync += [out.norms.eq(cut), out.norms_live.eq(live)]
                with m.Else():
                    m.d.sync += [out.geometry.eq(cut), out.live.eq(live)]
                if self.thc:
                    with m.If(thc & ~of_norms):
                        n_units = Signal(UNITS_WIDTH)
                        m.d.comb += n_units.eq((out.n_blocks + 15) >> 4)
                        m.d.sync += [
                            of_norms.eq(1),
                            step.eq(0),
                            coarse.eq(0),
                            cut.packet.eq(self.packet),
                            units.eq(n_units - 1),
                            rest_units.eq(out.n_blocks - 1),
                            a.eq(n_units - 1),
                            b.eq(table.chunks),
                            out.at_norms.eq(n_units << 6 - self._low),
                        ]
                        m.next = "DIVIDE"
            with m.State("SETTLE"):
                m.d.sync += settles.eq(settles - 1)
                if self.thc:
                    m.d.sync += [
                        out.at_indices.eq(out.at_norms << 1),
                        out.at_sums.eq(
                            (out.at_norms << 1) + (n_packets * self.bits << 7 - self._low)
                        ),
                    ]
                with m.If(settles == 0):
                    m.next = "OFFER"
                    m.d.sync += refused.eq(reason != Refusal.NONE)
            with m.State("OFFER"):
                with m.If(strays):
                    m.next = "REST"
                with m.Elif(self.present):
                    with m.If(self.aborted | refused):
                        m.d.sync += refused.eq(~self.aborted)
                        m.next = "TELL"
                    with m.Elif(self.free):
                        m.d.comb += [self.pop.eq(1), self.starts.eq(1)]
                        m.next = "REST"
            with m.State("TELL"):
                m.d.comb += self.tells.eq(self.present)
                with m.If(self.present & self.told):
                    m.d.comb += self.pop.eq(1)
                    m.next = "REST"
        one_hot(fsm)
        return m

    @property
    def _low(self):
        return ceil_log2(self.n_bytes)
