"""One active job: from the clerk's hand to its completion, and how it is ended in the middle.

Part of `gradnic.hdl.offload.job_core`, whose golden model it follows.
"""

from amaranth.hdl import Cat, Module, Mux, Signal
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out

from gradnic.interface.job import JobCodec, JobStatus

from ..primitive.names import signals
from ..primitive.parity import astray, strayed
from ..primitive.target import one_hot
from ..transport.records import BYTES_WIDTH, EPOCH_WIDTH, LEAVES_WIDTH, Context, Over
from .job_records import STAMP_WIDTH, LeavesSeen, Prepared, Record

FLUSH_CYCLES = 8  # of reset
GIVEN_WIDTH = BYTES_WIDTH + 4  # of all neighbors
NORMS, INDICES, DECODE = range(3)  # stages of a job with THC
SETTLE_CYCLES = 8  # until what a round engine holds in registers is seen at the memory ports


class JobContext(wiring.Component):
    """Runs one job in a round engine, and leaves it as after reset.

    Its engine is reset while the clerk cuts a tensor, and again where a job has two rounds; a round
    begins while the engine forgets the packets of the one before, which come out of no job's time
    but that of a long one, and packets are taken from then on.

    A job that ends, however it does, lets the frame that is leaving end, then lets what is under
    way to memory end, then is told, and then resets its engine: about 30 cycles beside those two.
    If those take ``watchdog`` cycles, it is told before, as one whose memory failed; its context
    becomes free when the memory has answered. If a bit of what it knows of the job, or of what it
    counts for its completion, changes by itself, it fails, too; under its own id, of which there
    are two copies.

    Parameters
    ----------
    n_bytes, address_width : int

    Members
    -------
    prepared, take : In(Prepared), In(1)
        ``take`` in a cycle of ``free`` starts a job.
    nears, free : In(1), Out(1)
        A strobe: a job is likely to start in `FLUSH_CYCLES` + 1 cycles or later.
    job : Out(Prepared)
        The one that is active.
    context : Out(Context)
        ``armed`` while its packets are taken. busy : Out(1), a job is active
    stop : In(1)
        A strobe: end it. now : In(48). watchdog : In(32), cycles without progress; 0 is off
    clear, clearing, start : Out(1), In(1), Out(1)
        Of the engine. reset : Out(1), of the engine as a whole
    stage : Out(2)
        Of a job with THC: `NORMS`, `INDICES` or `DECODE`.
    passes, passed, pass_failed, in_pass : Out(1), In(1), In(1), In(1)
        The stage's pass is asked for, until it is done: a strobe. It went wrong, and will not be.
        What it has begun is under way.
    pass_moves : In(1)
        The circuit of that pass moves data, for this job or for one before it.
    overs, over, recorded : Out(1), Out(Over), In(1)
        A round is over, and the job is not: written down in the cycle of ``recorded``.
    finished, failed, progress : In(1)
        Of the engine: all is done; a memory access went wrong, or the table cannot be; something
        moved
    row : In(16)
        The oldest row that is not out.
    leaves : In(LeavesSeen)
    spends, spent : In(1), In(40)
        Bytes were given up, times the leaves that they stood for.
    mute, speaking : Out(1), In(1)
        No new frame may begin; one is leaving.
    renewed, stalls : In(1), Out(1)
        What contexts share is reset, and with it the engine: a job that is active fails. It has
        taken ``watchdog`` cycles to end.
    closed, quiet : Out(1), In(1)
        Memory takes no new burst; none is under way.
    record, tells, told : Out(Record), Out(1), In(1)
        How it ended: taken in the cycle of ``told``.
    """

    def __init__(self, n_bytes, address_width):
        self.prepared_shape = Prepared(n_bytes, address_width)
        super().__init__(
            {
                "prepared": In(self.prepared_shape),
                "take": In(1),
                "nears": In(1),
                "free": Out(1),
                "job": Out(self.prepared_shape),
                "context": Out(Context),
                "busy": Out(1),
                "stop": In(1),
                "now": In(STAMP_WIDTH),
                "watchdog": In(32),
                "clear": Out(1),
                "clearing": In(1),
                "start": Out(1),
                "reset": Out(1),
                "stage": Out(2),
                "passes": Out(1),
                "passed": In(1),
                "pass_failed": In(1),
                "in_pass": In(1),
                "pass_moves": In(1),
                "overs": Out(1),
                "over": Out(Over),
                "recorded": In(1),
                "finished": In(1),
                "failed": In(1),
                "progress": In(1),
                "row": In(16),
                "leaves": In(LeavesSeen),
                "spends": In(1),
                "spent": In(BYTES_WIDTH),
                "mute": Out(1),
                "speaking": In(1),
                "renewed": In(1),
                "stalls": Out(1),
                "closed": Out(1),
                "quiet": In(1),
                "record": Out(Record),
                "tells": Out(1),
                "told": In(1),
            }
        )

    def elaborate(self, platform):
        m = Module()
        job = Signal(self.prepared_shape, reset_less=True)
        id_too = Signal(job.job.id.shape(), reset_less=True)  # inverted, or they would be one
        epoch = Signal(EPOCH_WIDTH)
        status = Signal(JobStatus)
        detail = Signal(16)
        least, most = signals("least most", LEAVES_WIDTH)
        given_up = Signal(GIVEN_WIDTH)
        stopped, failed, spoiled = signals("stopped failed spoiled")
        closes = Signal()  # memory is closed, or about to be
        ends = Signal()
        ended = Signal(2)
        overdue, was_told = signals("overdue was_told")
        idle = Signal(32)
        late = Signal()
        count = Signal(range(max(FLUSH_CYCLES, SETTLE_CYCLES)))
        armed, taken = signals("armed taken")
        record = self.record
        good = (status == JobStatus.DONE) | (status == JobStatus.SHORT)
        stage = Signal(2)
        has_passed = Signal()
        thc = Signal()
        more = good & thc & (stage != DECODE)  # the job goes on
        gen = Signal.like(job.job.gen, reset_less=True)
        m.d.sync += gen.eq(job.job.gen - (thc & (stage == NORMS)))
        m.d.comb += [
            self.job.eq(job),
            self.context.armed.eq(armed),
            self.context.tensor.eq(job.job.tensor),
            self.context.gen.eq(gen),
            thc.eq(job.job.codec == JobCodec.THC),
            self.stage.eq(stage),
            self.over.tensor.eq(job.job.tensor),
            self.over.gen.eq(gen),
            self.over.valid.eq(self.overs),
            self.context.epoch.eq(epoch),
            record.id.eq(Mux(spoiled, ~id_too, job.job.id)),
            record.status.eq(status),
            record.detail.eq(detail),
            record.leaves_least.eq(Mux(good & (most != 0), least, 0)),  # 0: nothing ends here
            record.leaves_most.eq(Mux(good, most, 0)),
            record.given_up.eq(Mux(good, given_up, 0)),
            record.cycles.eq(self.now - job.posted),
        ]
        moves = Mux(armed, self.progress, Mux(self.passes, self.pass_moves, ~(ended[0] | closes)))
        m.d.sync += [
            late.eq((self.watchdog != 0) & (idle >= self.watchdog)),
            # since the last progress, or since it ends
            idle.eq(Mux(moves, 0, idle + 1)),
            ended.eq(Cat(ends, ended)),
        ]
        m.d.comb += self.stalls.eq((ends | closes) & late)
        with m.If(ended[1] & (late | (spoiled & good)) & ~overdue):
            m.d.sync += [overdue.eq(1), status.eq(JobStatus.MEMORY), detail.eq(0)]
        with m.If(self.told):
            m.d.sync += was_told.eq(1)
        m.d.comb += self.tells.eq(overdue & ~was_told)
        with m.If(self.leaves.valid):
            with m.If(self.leaves.leaves < least):
                m.d.sync += least.eq(self.leaves.leaves)
            with m.If(self.leaves.leaves > most):
                m.d.sync += most.eq(self.leaves.leaves)
        with m.If(self.spends & armed):
            m.d.sync += given_up.eq(given_up + self.spent)
        with m.If(self.stop & self.busy):
            m.d.sync += stopped.eq(1)
        with m.If(self.failed & armed):
            m.d.sync += failed.eq(1)
        with m.If(self.pass_failed):
            m.d.sync += failed.eq(1)
        # what the job is, what others hold of it, or what is told of it has changed by itself
        counts = self.leaves.valid | (self.spends & armed) | self.clear | ~taken
        miscounted = astray(m, (least, most, given_up), counts, name="counts")
        with m.If(self.renewed | strayed(m, job, taken) | miscounted):
            m.d.sync += [failed.eq(1), spoiled.eq(1)]
        with m.If(self.passed):
            m.d.sync += has_passed.eq(1)
        with m.FSM() as fsm:
            m.d.sync += taken.eq(self.busy)
            m.d.comb += [
                ends.eq(fsm.ongoing("HUSH") | fsm.ongoing("DRAIN")),
                closes.eq(fsm.ongoing("OVER") | fsm.ongoing("END")),
                self.passes.eq(
                    thc & ~has_passed & (fsm.ongoing("CLEARING") | fsm.ongoing("DECODE"))
                ),
                self.overs.eq(fsm.ongoing("OVER")),
                self.free.eq(fsm.ongoing("FREE")),
                self.busy.eq(~(self.free | fsm.ongoing("RENEW") | fsm.ongoing("FLUSH"))),
                self.reset.eq(
                    fsm.ongoing("RENEW") | fsm.ongoing("FLUSH") | fsm.ongoing("AGAIN")
                ),
                self.mute.eq(fsm.ongoing("HUSH") | self.closed),
                self.closed.eq(
                    fsm.ongoing("DRAIN") | fsm.ongoing("OVER") | fsm.ongoing("DECODE")
                    | fsm.ongoing("END") | self.reset
                ),
            ]  # fmt: skip
            with m.State("FREE"):
                m.d.sync += [
                    *(flag.eq(0) for flag in (stopped, failed, spoiled, overdue, was_told)),
                    *(stage.eq(NORMS), detail.eq(0), given_up.eq(0)),
                ]
                with m.If(self.take):
                    m.d.sync += [job.eq(self.prepared), id_too.eq(~self.prepared.job.id)]
                    m.next = "CLEAR"
                with m.Elif(self.nears):
                    m.d.sync += [count.eq(FLUSH_CYCLES - 1), epoch.eq(epoch + 1)]
                    m.next = "RENEW"
            with m.State("RENEW"):  # before each job: a bit may have changed since the last one
                m.d.sync += count.eq(count - 1)
                with m.If(count == 0):
                    m.next = "FREE"
            with m.State("CLEAR"):
                m.d.sync += [least.eq(-1), most.eq(0), has_passed.eq(0)]
                m.d.comb += self.clear.eq(1)
                m.next = "BEGIN"
            with m.State("BEGIN"):
                m.d.comb += self.start.eq(~thc)
                m.next = "CLEARING"
            with m.State("CLEARING"):
                with m.If(stopped):
                    m.d.sync += [status.eq(JobStatus.ABORTED), count.eq(SETTLE_CYCLES - 1)]
                    m.next = "HUSH"
                with m.Elif(failed | (late & self.passes)):
                    m.d.sync += [status.eq(JobStatus.MEMORY), count.eq(SETTLE_CYCLES - 1)]
                    m.next = "HUSH"
                with m.Elif(~self.clearing & (has_passed | ~thc)):
                    m.d.sync += armed.eq(1)
                    m.next = "ARM"
            with m.State("ARM"):
                m.d.comb += self.start.eq(thc)
                m.next = "RUN"
            with m.State("RUN"):
                with m.If(stopped | failed | late | self.finished):
                    m.d.sync += [armed.eq(0), count.eq(SETTLE_CYCLES - 1)]
                    m.next = "HUSH"
                with m.If(stopped):
                    m.d.sync += status.eq(JobStatus.ABORTED)
                with m.Elif(failed):
                    m.d.sync += status.eq(JobStatus.MEMORY)
                with m.Elif(self.finished):
                    short = (least < job.table.leaves) | (given_up != 0)
                    m.d.sync += status.eq(Mux(short, JobStatus.SHORT, JobStatus.DONE))
                with m.Elif(late):
                    m.d.sync += [status.eq(JobStatus.STUCK), detail.eq(self.row)]
            with m.State("HUSH"):
                with m.If(~self.speaking):
                    m.next = "DRAIN"
            with m.State("DRAIN"):
                with m.If(~self.quiet | self.in_pass):
                    m.d.sync += count.eq(SETTLE_CYCLES - 1)
                with m.Else():
                    m.d.sync += count.eq(count - 1)
                    with m.If(count == 0):
                        m.next = "END"
                        with m.If(more):
                            m.next = "OVER"
            with m.State("OVER"):
                with m.If(self.recorded):
                    m.d.sync += [
                        stage.eq(stage + 1),
                        has_passed.eq(0),
                        count.eq(FLUSH_CYCLES - 1),
                    ]
                    m.next = "DECODE"
                    with m.If(stage == NORMS):
                        m.d.sync += epoch.eq(epoch + 1)
                        m.next = "AGAIN"
            with m.State("AGAIN"):  # between two rounds
                m.d.sync += count.eq(count - 1)
                with m.If(count == 0):
                    m.next = "CLEAR"
            with m.State("DECODE"):
                m.d.sync += count.eq(SETTLE_CYCLES - 1)
                with m.If(stopped):
                    m.d.sync += status.eq(JobStatus.ABORTED)
                    m.next = "HUSH"
                with m.Elif(failed | (late & self.passes)):
                    m.d.sync += status.eq(JobStatus.MEMORY)
                    m.next = "HUSH"
                with m.Elif(has_passed):
                    m.next = "END"
            with m.State("END"):
                m.d.comb += self.tells.eq(~was_told)
                with m.If(self.told | was_told):
                    m.d.sync += [count.eq(FLUSH_CYCLES - 1), epoch.eq(epoch + 1)]
                    m.next = "FLUSH"
            with m.State("FLUSH"):
                m.d.sync += count.eq(count - 1)
                with m.If(count == 0):
                    m.next = "FREE"
        one_hot(fsm)
        return m
