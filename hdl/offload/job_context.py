"""One active job: from the clerk's hand to its completion, and how it is ended in the middle.

Part of `gradnic.hdl.offload.job_core`, whose golden model it follows.
"""

from amaranth.hdl import Cat, Module, Mux, Signal
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out

from gradnic.interface.job import JobCodec, JobStatus

from ..primitive.names import signals
from ..primitive.parity import astray, strayed
from ..primitive.target import as_coded
from ..transport.records import BYTES_WIDTH, EPOCH_WIDTH, LEAVES_WIDTH, Context, Over
from .job_records import STAMP_WIDTH, LeavesSeen, Prepared, Record

FLUSH_CYCLES = 8  # of reset, by a context or by the pool of its engine
GIVEN_WIDTH = BYTES_WIDTH + 4  # of all neighbors
NORMS, INDICES, DECODE = range(3)  # stages of a job with THC
SETTLE_CYCLES = 8  # until what a round engine holds in registers is seen at the memory ports


class _State:
    """What a context knows of its job, and how far it is."""

    def __init__(self, prepared):
        self.job = Signal(prepared, reset_less=True)
        # inverted, or the two would be one
        self.id_too = Signal(self.job.job.id.shape(), reset_less=True)
        self.gen = Signal.like(self.job.job.gen, reset_less=True)
        self.epoch = Signal(EPOCH_WIDTH)
        self.stage = Signal(2)
        self.thc, self.has_passed, self.armed, self.taken = signals("thc has_passed armed taken")
        self.count = Signal(range(max(FLUSH_CYCLES, SETTLE_CYCLES)))
        # how it ended, or is to end
        self.status = Signal(JobStatus)
        self.detail = Signal(16)
        self.least, self.most = signals("least most", LEAVES_WIDTH)
        self.given_up = Signal(GIVEN_WIDTH)
        self.stopped, self.failed, self.spoiled = signals("stopped failed spoiled")
        self.good = (self.status == JobStatus.DONE) | (self.status == JobStatus.SHORT)
        self.bereft = Signal()  # its engine is another one's
        # of the watchdog; closes: memory is closed, or about to be
        self.idle = Signal(32)
        self.late, self.overdue, self.was_taken = signals("late overdue was_taken")
        self.ends, self.closes = signals("ends closes")
        self.ended = Signal(2)


class JobContext(wiring.Component):
    """Runs one job in a round engine, and leaves it as after reset.

    Its engine is reset while the clerk cuts a tensor, and again where a job has two rounds; a round
    begins while the engine forgets the packets of the one before, which come out of no job's time
    but that of a long one, and packets are taken from then on.

    A job that ends, however it does, lets the frame that is leaving end, then lets what is under
    way to memory end, then gives its record, and then resets its engine: about 30 cycles beside
    those two. If those take ``watchdog`` cycles, the record comes before, as of one whose memory
    failed; its context becomes free when the memory has answered. If a bit of what it knows of the
    job, or of what it counts for its completion, changes by itself, it fails, too; under its own
    id, of which there are two copies.

    With ``pooled`` the engine is one of `EnginePool`: a job asks for it behind the pass over norms,
    and gives it back before that which decodes; the pool resets it then.

    Parameters
    ----------
    n_bytes, address_width : int
    pooled : bool

    Members
    -------
    prepared, take : In(Prepared), In(1)
        ``take`` in a cycle of ``free`` starts a job.
    start_soon, free : In(1), Out(1)
        A strobe: a job is likely to start in `FLUSH_CYCLES` + 1 cycles or later.
    job : Out(Prepared)
        The one that is active.
    context : Out(Context)
        ``armed`` while its packets are taken. busy : Out(1), a job is active
    stop, takes_abort : In(1), Out(1)
        A strobe: end it. It may be asked to: it is active, and how it ends is not told yet.
    now, watchdog : In(48), In(32)
        Cycles, and those without progress that end it; 0 is off.
    clear, clearing, start : Out(1), In(1), Out(1)
        Of the engine. reset : Out(1), of the engine as a whole
    stage : Out(2)
        Of a job with THC: `NORMS`, `INDICES` or `DECODE`.
    passes, passed, pass_failed, in_pass : Out(1), In(1), In(1), In(1)
        The stage's pass is asked for, until it is done: a strobe. It went wrong, and will not be.
        What it has begun is under way.
    pass_moves : In(1)
        The circuit of that pass moves data, for this job or for one before it.
    over_valid, over, over_ready : Out(1), Out(Over), In(1)
        A round is over, and the job is not: written down in the cycle of ``over_ready``.
    finished, failed, progress : In(1)
        Of the engine: all is done; a memory access went wrong, or the table cannot be; something
        moved
    row : In(16)
        The oldest row that is not out.
    leaves : In(LeavesSeen)
    spent_valid, spent : In(1), In(40)
        Bytes were given up, times the leaves that they stood for.
    pause, sending : Out(1), In(1)
        No new frame may begin; one is leaving.
    renewed, stalls : In(1), Out(1)
        What contexts share is reset, and with it the engine: a job that is active fails. It has
        taken ``watchdog`` cycles to end.
    closed, quiet : Out(1), In(1)
        Memory takes no new burst; none is under way.
    record, record_valid, record_ready : Out(Record), Out(1), In(1)
        How it ended: taken in the cycle of ``record_ready``.
    needs, wants, holds, granted, turns, stray : Out(1), Out(1), Out(1), In(1), Out(1), In(1)
        With ``pooled``: see `EnginePool`, where the last is ``strays``.
    """

    def __init__(self, n_bytes: int, address_width: int, *, pooled: bool = False) -> None:
        self.prepared_shape, self.pooled = Prepared(n_bytes, address_width), pooled
        outs = ("needs", "wants", "holds", "turns")
        pool = dict.fromkeys(outs, Out(1)) | {"granted": In(1), "stray": In(1)}
        super().__init__(
            (pool if pooled else {})
            | {
                "prepared": In(self.prepared_shape),
                "take": In(1),
                "start_soon": In(1),
                "free": Out(1),
                "job": Out(self.prepared_shape),
                "context": Out(Context),
                "busy": Out(1),
                "stop": In(1),
                "takes_abort": Out(1),
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
                "over_valid": Out(1),
                "over": Out(Over),
                "over_ready": In(1),
                "finished": In(1),
                "failed": In(1),
                "progress": In(1),
                "row": In(16),
                "leaves": In(LeavesSeen),
                "spent_valid": In(1),
                "spent": In(BYTES_WIDTH),
                "pause": Out(1),
                "sending": In(1),
                "renewed": In(1),
                "stalls": Out(1),
                "closed": Out(1),
                "quiet": In(1),
                "record": Out(Record),
                "record_valid": Out(1),
                "record_ready": In(1),
            }
        )

    def elaborate(self, platform):
        m = Module()
        s = _State(self.prepared_shape)
        for part in self._show, self._watch, self._count, self._note:
            part(m, s)
        asks = (self._ask,) if self.pooled else ()
        with m.FSM() as fsm:
            self._flags(m, s, fsm)
            for states in self._begin, *asks, self._run, self._leave, self._go_on, self._end:
                states(m, s)
        as_coded(fsm)
        with m.If(~Cat(map(fsm.ongoing, fsm.encoding)).any()):  # none of its states: an upset
            m.d.sync += [s.armed.eq(0), s.count.eq(SETTLE_CYCLES - 1)]
            m.d.sync += fsm.state.eq(fsm.encoding["PAUSE"])
        return m

    def _show(self, m, s):
        """The job as others see it, and its record."""
        job, record = s.job.job, self.record
        m.d.sync += s.gen.eq(job.gen - (s.thc & (s.stage == NORMS)))
        m.d.comb += [
            s.thc.eq(job.codec == JobCodec.THC),
            self.job.eq(s.job),
            self.stage.eq(s.stage),
            self.context.armed.eq(s.armed),
            self.context.tensor.eq(job.tensor),
            self.context.gen.eq(s.gen),
            self.context.epoch.eq(s.epoch),
            self.over.tensor.eq(job.tensor),
            self.over.gen.eq(s.gen),
            self.over.valid.eq(self.over_valid),
            record.id.eq(Mux(s.spoiled, ~s.id_too, job.id)),
            record.status.eq(s.status),
            record.detail.eq(s.detail),
            # 0: nothing ends here
            record.leaves_least.eq(Mux(s.good & (s.most != 0), s.least, 0)),
            record.leaves_most.eq(Mux(s.good, s.most, 0)),
            record.given_up.eq(Mux(s.good, s.given_up, 0)),
            record.cycles.eq(self.now - s.job.posted),
        ]

    def _watch(self, m, s):
        """Cycles since the last progress, or since it ends; of one that does not end the record
        comes before its memory has answered.
        """
        others = Mux(self.passes, self.pass_moves, ~(s.ended[0] | s.closes))
        moves = Mux(s.armed, self.progress, others)
        m.d.sync += [
            s.late.eq((self.watchdog != 0) & (s.idle >= self.watchdog)),
            s.idle.eq(Mux(moves, 0, s.idle + 1)),
            s.ended.eq(Cat(s.ends, s.ended)),
        ]
        m.d.comb += self.stalls.eq((s.ends | s.closes) & s.late)
        with m.If(s.ended[1] & (s.late | (s.spoiled & s.good)) & ~s.overdue):
            m.d.sync += [s.overdue.eq(1), s.status.eq(JobStatus.MEMORY), s.detail.eq(0)]
        with m.If(self.record_ready):
            m.d.sync += s.was_taken.eq(1)
        m.d.comb += [
            self.record_valid.eq(s.overdue & ~s.was_taken),
            self.takes_abort.eq(self.busy & ~s.was_taken),
        ]

    def _count(self, m, s):
        """The result, for its record."""
        with m.If(self.leaves.valid):
            with m.If(self.leaves.leaves < s.least):
                m.d.sync += s.least.eq(self.leaves.leaves)
            with m.If(self.leaves.leaves > s.most):
                m.d.sync += s.most.eq(self.leaves.leaves)
        with m.If(self.spent_valid & s.armed):
            m.d.sync += s.given_up.eq(s.given_up + self.spent)

    def _note(self, m, s):
        """Strobes, until the state that looks at them: an abort, faults, a pass that is done."""
        with m.If(self.stop & self.busy):
            m.d.sync += s.stopped.eq(1)
        with m.If((self.failed & s.armed) | self.pass_failed):
            m.d.sync += s.failed.eq(1)
        # what the job is, what others hold of it, or its record has changed by itself
        counts = self.leaves.valid | (self.spent_valid & s.armed) | self.clear | ~s.taken
        miscounted = astray(m, (s.least, s.most, s.given_up), counts, name="counts")
        lost = self.stray | s.bereft if self.pooled else 0
        with m.If(self.renewed | strayed(m, s.job, s.taken) | miscounted | lost):
            m.d.sync += [s.failed.eq(1), s.spoiled.eq(1)]
        with m.If(self.passed):
            m.d.sync += s.has_passed.eq(1)

    def _flags(self, m, s, fsm):
        """What follows from the state alone."""

        def within(*states):
            return Cat(fsm.ongoing(name) for name in states).any()

        m.d.sync += s.taken.eq(self.busy)
        asks = ("PASS",) if self.pooled else ()
        if self.pooled:
            rounds = ("CLEAR", "BEGIN", "CLEARING", "ARM", "RUN")
            m.d.comb += [
                self.needs.eq(within("PASS", "ASK")),
                self.wants.eq(within("ASK")),
                self.holds.eq(within("ASK", *rounds, "PAUSE", "DRAIN", "OVER", "AGAIN")),
                s.bereft.eq(within(*rounds) & ~self.granted),
            ]
        m.d.comb += [
            s.ends.eq(within("PAUSE", "DRAIN")),
            s.closes.eq(within("OVER", "END")),
            self.passes.eq(s.thc & ~s.has_passed & within("CLEARING", "DECODE", *asks)),
            self.over_valid.eq(within("OVER")),
            self.free.eq(within("FREE")),
            self.busy.eq(~within("FREE", "RENEW", "FLUSH")),
            self.reset.eq(within("RENEW", "FLUSH", "AGAIN")),
            self.pause.eq(within("PAUSE") | self.closed),
            self.closed.eq(within("DRAIN", "OVER", "DECODE", "END") | self.reset),
        ]

    def _begin(self, m, s):
        with m.State("FREE"):
            m.d.sync += [
                *(flag.eq(0) for flag in (s.stopped, s.failed, s.spoiled, s.overdue, s.was_taken)),
                *(s.stage.eq(NORMS), s.detail.eq(0), s.given_up.eq(0), s.has_passed.eq(0)),
                s.status.eq(JobStatus.MEMORY),  # where an upset ends it before it is judged
            ]
            with m.If(self.take):
                m.d.sync += [s.job.eq(self.prepared), s.id_too.eq(~self.prepared.job.id)]
                m.next = "PASS" if self.pooled else "CLEAR"
            with m.Elif(self.start_soon):
                m.d.sync += [s.count.eq(FLUSH_CYCLES - 1), s.epoch.eq(s.epoch + 1)]
                m.next = "RENEW"
        # before each job: a bit may have changed since the last one; and the card is not calm
        with m.State("RENEW"):
            self._wait(m, s, "FREE")

    def _ask(self, m, s):
        """What comes before it has an engine."""
        with m.State("PASS"):
            self._unless(m, s)
            with m.Elif(s.has_passed | ~s.thc):
                m.next = "ASK"
        with m.State("ASK"):
            self._unless(m, s)
            with m.Elif(self.granted):
                m.next = "CLEAR"

    def _unless(self, m, s):
        """What ends a job while no packet of it leaves; what else there is to do, as ``Elif``."""
        with m.If(s.stopped):
            m.d.sync += [s.status.eq(JobStatus.ABORTED), s.count.eq(SETTLE_CYCLES - 1)]
            m.next = "PAUSE"
        with m.Elif(s.failed | (s.late & self.passes)):
            m.d.sync += [s.status.eq(JobStatus.MEMORY), s.count.eq(SETTLE_CYCLES - 1)]
            m.next = "PAUSE"

    def _run(self, m, s):
        """One round: its pass, then packets; a job with THC comes here twice."""
        with m.State("CLEAR"):
            m.d.sync += [s.least.eq(-1), s.most.eq(0), s.status.eq(JobStatus.MEMORY)]
            m.d.comb += self.clear.eq(1)
            m.next = "BEGIN"
        with m.State("BEGIN"):
            m.d.comb += self.start.eq(~s.thc)
            m.next = "CLEARING"
        with m.State("CLEARING"):
            self._unless(m, s)
            with m.Elif(~self.clearing & (s.has_passed | ~s.thc)):
                m.d.sync += s.armed.eq(1)
                m.next = "ARM"
        with m.State("ARM"):
            m.d.comb += self.start.eq(s.thc)
            m.next = "RUN"
        with m.State("RUN"):
            with m.If(s.stopped | s.failed | s.late | self.finished):
                m.d.sync += [s.armed.eq(0), s.count.eq(SETTLE_CYCLES - 1)]
                m.next = "PAUSE"
            with m.If(s.stopped):
                m.d.sync += s.status.eq(JobStatus.ABORTED)
            with m.Elif(s.failed):
                m.d.sync += s.status.eq(JobStatus.MEMORY)
            with m.Elif(self.finished):
                short = (s.least < s.job.table.leaves) | (s.given_up != 0)
                m.d.sync += s.status.eq(Mux(short, JobStatus.SHORT, JobStatus.DONE))
            with m.Elif(s.late):
                m.d.sync += [s.status.eq(JobStatus.STUCK), s.detail.eq(self.row)]

    def _leave(self, m, s):
        """The frame that leaves ends, then what is under way to memory."""
        with m.State("PAUSE"):
            with m.If(~self.sending):
                m.next = "DRAIN"
        with m.State("DRAIN"):
            with m.If(~self.quiet | self.in_pass):
                m.d.sync += s.count.eq(SETTLE_CYCLES - 1)
            with m.Else():
                m.d.sync += s.count.eq(s.count - 1)
                with m.If(s.count == 0):
                    m.next = "END"
                    with m.If(s.good & s.thc & (s.stage != DECODE)):
                        m.next = "OVER"

    def _go_on(self, m, s):
        """A job with THC: its second round, and the pass behind it."""
        with m.State("OVER"):
            with m.If(self.over_ready):
                m.d.sync += [s.stage.eq(s.stage + 1), s.has_passed.eq(0)]
                m.d.sync += s.count.eq(FLUSH_CYCLES - 1)
                m.next = "DECODE"
                with m.If(s.stage == NORMS):
                    if self.pooled:
                        m.d.comb += self.turns.eq(1)
                    m.d.sync += s.epoch.eq(s.epoch + 1)
                    m.next = "AGAIN"
        with m.State("AGAIN"):
            self._wait(m, s, "CLEAR")
        with m.State("DECODE"):
            self._unless(m, s)
            with m.Elif(s.has_passed | ~s.thc):  # without THC: an upset brought it here
                m.next = "END"

    def _end(self, m, s):
        with m.State("END"):
            m.d.comb += self.record_valid.eq(~s.was_taken)
            with m.If(self.record_ready | s.was_taken):
                m.d.sync += [s.count.eq(FLUSH_CYCLES - 1), s.epoch.eq(s.epoch + 1)]
                m.next = "FLUSH"
        with m.State("FLUSH"):
            self._wait(m, s, "FREE")

    @staticmethod
    def _wait(m, s, state):
        """Until the engine has been in reset for long enough."""
        m.d.sync += s.count.eq(s.count - 1)
        with m.If(s.count == 0):
            m.next = state
