"""Looks at the oldest job that waits: refuses it, or has its tensor cut and lets it start.

Part of `gradnic.hdl.offload.job_core`, whose golden model it follows.
"""

from amaranth.hdl import Module, Mux, Signal
from amaranth.lib import data, memory, wiring
from amaranth.lib.wiring import In, Out

from gradnic.interface.job import TABLES, JobStatus, Refusal

from ..axi.bursts import Region
from ..primitive.names import signals
from ..primitive.parity import strayed
from ..primitive.setting import setting
from ..primitive.target import one_hot
from ..primitive.zeroed_table import filled
from ..transport.records import Context, Over
from .job_cutter import Cutter
from .job_judge import refusal
from .job_records import STAMP_WIDTH, JobTable, JobTableWrite, Prepared, Record, Waiting

N_REGIONS = 2  # that jobs may name


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
        A context takes `prepared` in a cycle of ``pop`` with ``starts``; with THC only once none of
        `contexts` has its tensor.
    start_soon, prepared, starts : Out(1), Out(Prepared), Out(1)
        ``start_soon``, a strobe, comes 12 cycles before the first one with ``starts``, or more.
    record, record_valid : Out(Record), Out(1)
        How a job ended that did not start: taken in the cycle of ``record_ready``.
    record_ready : In(1)
    """

    def __init__(
        self,
        n_bytes: int,
        address_width: int,
        *,
        n_ranks: int,
        n_packets: int,
        max_elems: int,
        n_tables: int,
        n_contexts: int,
        inc: bool,
        bf16: bool = False,
        scale: bool = False,
        maxima: bool = False,
        thc: bool = False,
        gives_up: bool = False,
        feedback: bool = False,
    ) -> None:
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
                "start_soon": Out(1),
                "prepared": Out(Prepared(n_bytes, address_width)),
                "starts": Out(1),
                "record": Out(Record),
                "record_valid": Out(1),
                "record_ready": In(1),
            }
        )

    def elaborate(self, platform):
        m = Module()
        table, loaded = self._tables(m)
        out = Signal(Prepared(self.n_bytes, self.address_width), reset_less=True)
        cutter = Cutter(m, self, out)
        m.d.comb += [self.prepared.eq(out), self.asked.eq(out.job.tensor)]
        reason, same = refusal(m, self, out, loaded, cutter.long)
        # not beside a job of its tensor that is not armed yet: packets for that would be stale
        free = self.free & ~same.any()
        refused = Signal()
        record = self.record
        m.d.comb += [
            record.id.eq(out.job.id),
            record.status.eq(Mux(refused, JobStatus.REFUSED, JobStatus.ABORTED)),
            record.detail.eq(Mux(refused, reason, 0)),
            record.cycles.eq(self.now - out.posted),
        ]
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
                    out.table.eq(table),
                    refused.eq(0),
                    settles.eq(3),
                ]
                cutter.rests(m, self.oldest.job.elems)
                with m.If(self.present & self.room & ~popped):
                    m.next = "TAKEN"
            with m.State("TAKEN"):
                cutter.measures(m)
                m.next = "DIVIDE"
                with m.If(self.aborted):
                    m.next = "TELL"
            with m.State("DIVIDE"):
                cutter.divides(m)
                m.next = "WAIT"
            with m.State("WAIT"):
                with m.If(cutter.divided):
                    m.next = "DIVIDE"
                    with m.If(cutter.takes(m)):
                        m.next = "CUT"
            with m.State("CUT"):
                m.next = "SETTLE"
                with m.If(cutter.keeps(m)):
                    m.next = "DIVIDE"
            with m.State("SETTLE"):
                m.d.sync += settles.eq(settles - 1)
                cutter.places(m)
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
                    with m.Elif(free):
                        m.d.comb += [self.pop.eq(1), self.starts.eq(1)]
                        m.next = "REST"
            with m.State("TELL"):
                m.d.comb += self.record_valid.eq(self.present)
                with m.If(self.present & self.record_ready):
                    m.d.comb += self.pop.eq(1)
                    m.next = "REST"
        one_hot(fsm)
        return m

    def _tables(self, m):
        """(the oldest job's table, which tables are loaded)."""
        m.submodules.tables = tables = memory.Memory(shape=JobTable, depth=TABLES, init=[])
        loaded = setting(m, TABLES, "loaded")
        write = self.table_write
        read = filled(m, tables, write.enable, write.index, write.table)
        m.d.comb += read.addr.eq(self.oldest.job.table)
        with m.If(write.enable):
            m.d.sync += loaded.bit_select(write.index, 1).eq(write.table.valid)
        return read.data, loaded
