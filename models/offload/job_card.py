"""Offload card that takes jobs: a queue of descriptors, contexts side by side, completions.

A job is checked when it is the oldest that waits and a completion has room; it is refused with a
reason, or starts as soon as one of `n_active` contexts is free: jobs start in the order of posting.
Packets of active jobs leave by class, then age. A job that ends, however it does, frees its
context at once; whatever comes for it later is stale. Golden twin of
`gradnic.hdl.offload.job_core`.

Sources: our own composition; the order of posting is that of every collective library (MPI 4.0,
section 6.13: all processes call collectives of a communicator in the same order).
"""

from collections import deque
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np

from gradnic.interface.job import (
    ACTIVE,
    RING,
    TABLES,
    Completion,
    Job,
    JobCodec,
    JobStatus,
    Kind,
    Refusal,
)
from gradnic.interface.params import check_range
from gradnic.interface.schedule_table import Table

from . import bf16
from .card import Card, Settings
from .job_history import History
from .job_judge import JobJudge
from .job_queue import JobQueue
from .job_sums import tensor_of, unit_of
from .plan import SEQ_UNIT, Plan
from .round import Round
from .thc_job import ThcJob


@dataclass(eq=False)
class Context:
    """An active job. place : its number. age : of all jobs that started, which one it is. thc : its
    `ThcJob`, while ``round`` is first that of its norms.
    """

    job: Job
    place: int
    age: int
    posted: int
    round: Round
    progress: tuple = ()
    since: int = 0  # when the progress was first seen
    thc: ThcJob | None = None


class JobCard(Card):
    """A card with a queue of jobs.

    Parameters
    ----------
    settings : card.Settings
        Without tensors; its tagger has a tensor for each context, and no histogram.
    tables : tuple of up to 16 gradnic.interface.schedule_table.Table
    memory : uint8 array
        Of the host: sources and results are byte addresses in it.
    regions : tuple of (first byte, bytes)
        What jobs may name. None: the whole memory.
    n_active : int, 1 to 4
    inceptionn : dict, fields of `codec.Inceptionn`
    limits : as of `job_judge.JobJudge`: what jobs are refused for
    watchdog : int, time without progress after which a job ends as stuck; 0 is off

    Attributes
    ----------
    judge : job_judge.JobJudge
    queue : job_queue.JobQueue
    contexts : list of `Context` or None
    completions : deque of Completion
    overruns : int, posts that found the queue full
    """

    def __init__(
        self,
        settings: Settings,
        tables: Sequence[Table],
        memory: np.ndarray,
        *,
        regions: Iterable[tuple[int, int]] | None = None,
        n_active: int = 2,
        inceptionn: dict | None = None,
        watchdog: int = 0,
        **limits: Any,
    ) -> None:
        check_range("n_active", n_active, 1, ACTIVE)
        if len(tables) > TABLES:
            raise ValueError(f"tables must be at most {TABLES}, not {len(tables)}")
        if settings.tagger.source == "histogram":
            raise ValueError("source must be off or host, not histogram: jobs have no round before")
        super().__init__(settings)
        self.memory, self.inceptionn, self.watchdog = memory, inceptionn or {}, watchdog
        self.judge = JobJudge(tables, ((0, memory.size),) if regions is None else regions, **limits)
        self.queue, self.completions, self.history = JobQueue(), deque(), History()
        self.contexts: list[Any] = [None] * n_active
        self.overruns = self.n_started = self.now = 0

    def post(self, job: Job, now: int | None = None) -> bool:
        """Queue a job; False if the queue is full: nothing is lost, it may be posted again."""
        taken = self.queue.post(job, self.now if now is None else now)
        self.overruns += not taken
        return taken

    def abort(self, id: int | None = None) -> bool:
        """End the oldest job with this id, or of all, active or waiting; False if there is none.

        An active job ends at once. A waiting one keeps its place, and ends when it is the oldest.
        """
        for context in sorted(filter(None, self.contexts), key=lambda c: c.age):
            if id in (None, context.job.id):
                self._end(context, JobStatus.ABORTED)
                return True
        return self.queue.abort(id)

    def take(self) -> Completion | None:
        """The oldest completion, or None; it leaves the ring."""
        return self.completions.popleft() if self.completions else None

    def refusal(self, job: Job) -> Refusal:
        """`Refusal`: why the card would not start this job now, or NONE."""
        gens = [c.job.gen for c in self.contexts if c and c.job.tensor == job.tensor]
        last = self._last(job.tensor)
        return self.judge.refusal(job, gens if last is None else [*gens, last])

    def idle(self) -> bool:
        """Whether no job waits or is active."""
        return not self.queue and not any(self.contexts)

    def tick(self, now: int) -> list[tuple[int, bytes]]:
        """As of `Card`; jobs start before packets leave, and end after."""
        self.now = now
        self._start(now)
        out = super().tick(now)
        for context in filter(None, list(self.contexts)):
            if context.round.done and context.thc and not context.thc.norms:
                self._sum_up(context, now)
            elif context.round.done:
                self._finish(context)
            elif self.watchdog:
                self._watch(context, now)
        return out

    # inside

    def _n_active(self) -> int:
        return sum(context is not None for context in self.contexts)

    def _start(self, now: int) -> None:
        """Start or refuse what waits, oldest first, until one has to wait: for a context, for one
        that it follows, or for a place in the ring beside those that active jobs will need.
        """
        while self.queue and len(self.completions) + self._n_active() < RING:
            waiting = self.queue.oldest
            job, posted, aborted = waiting.job, waiting.posted, waiting.aborted
            reason = Refusal.NONE if aborted else self.refusal(job)
            if not (aborted or reason or (None in self.contexts and not self._follows(job))):
                return
            self.queue.pop()
            if aborted or reason:
                status = JobStatus.ABORTED if aborted else JobStatus.REFUSED
                self._tell(job, status, posted, detail=int(reason))
                continue
            place = self.contexts.index(None)
            thc = self._thc(job) if job.codec == JobCodec.THC else None
            round_ = thc.norm_round() if thc else self._round(job)
            context = Context(job, place, self.n_started, posted, round_, since=now, thc=thc)
            self.contexts[place] = context
            self.n_started += 1
            self.rounds[job.tensor, round_.gen] = round_
            self.changed = True

    def _follows(self, job: Job) -> bool:
        """Whether a job of its tensor is active: what comes for that one before its round begins
        were stale beside the job's GEN.
        """
        return any(c.job.tensor == job.tensor for c in self.contexts if c)

    def _round(self, job: Job) -> Round:
        """The one round of a job without THC."""
        plan = plan_of(self.judge.tables[job.table], job.elems, self.judge.packet, unit_of(job))
        tensor = tensor_of(job, plan, self.inceptionn)
        if job.kind == Kind.BF16:
            values = bf16.widen(self._halves(job.source, job.elems))
        else:
            values = self._words(job.source, job.elems).view(np.float32).copy()
        return Round(tensor, self.settings.node, job.gen, values, at_share=self.settings.at_share)

    def _thc(self, job: Job) -> ThcJob:
        """Steps of a job with THC."""
        if job.kind == Kind.BF16:
            x = bf16.widen(self._halves(job.source, job.elems))
        else:
            x = self._words(job.source, job.elems).view(np.float32).copy()
        if job.feedback:
            with np.errstate(all="ignore"):
                x += self._words(job.residual_at(job.half), job.elems).view(np.float32)
        table = self.judge.tables[job.table]
        return ThcJob(job, table, self.settings.node, x, self.judge.packet, self.judge.thc)

    def _sum_up(self, context: Context, now: int) -> None:
        """The norms of a job are agreed: their round is over, and that of its indices begins, once
        what they lose is known; where the residual of before is, nothing is written.
        """
        norms, job, thc = context.round, context.job, context.thc
        assert thc is not None
        del self.rounds[job.tensor, norms.gen]
        self.history.over(job.tensor, norms.gen)
        context.round = thc.index_round(norms, at_share=self.settings.at_share)
        context.progress, context.since = (), now
        if job.feedback:
            residual = thc.residual().view(np.uint32)
            self._words(job.residual_at(1 - job.half), job.elems)[:] = residual
        self.rounds[job.tensor, job.gen] = context.round
        self.changed = True

    def _words(self, at: int, n: int) -> np.ndarray:
        return self.memory[at : at + 4 * n].view("<u4")

    def _halves(self, at: int, n: int) -> np.ndarray:
        return self.memory[at : at + 2 * n].view("<u2")

    def _finish(self, context: Context) -> None:
        """Its result is in memory, and all neighbors have what they need."""
        job, round_, thc = context.job, context.round, context.thc
        result = thc.result(round_) if thc else round_.result
        plan = round_.tensor.plan
        wanted = plan.wanted[self.settings.node]
        here = np.repeat(wanted, plan.elems)[: job.elems]
        if job.kind == Kind.BF16:
            self._halves(job.result, job.elems)[here] = bf16.narrow(result[here])
        else:
            self._words(job.result, job.elems)[here] = result.view(np.uint32)[here]
        given_up = sum(reception.lost for reception in round_.up.values())
        leaves = round_.leaves[wanted]
        least, most = (int(leaves.min()), int(leaves.max())) if len(leaves) else (0, 0)
        short = (len(leaves) and least < plan.n_leaves) or given_up
        status = JobStatus.SHORT if short else JobStatus.DONE
        self._end(context, status, given_up=given_up, leaves_least=least, leaves_most=most)

    def _watch(self, context: Context, now: int) -> None:
        round_ = context.round
        receptions = [*round_.up.values(), *round_.down.values()]
        open_ = sum(r.n_open for r in receptions), sum(not run.sending.done for run in round_.runs)
        progress = (*open_, len(round_.rows))
        if progress != context.progress:
            context.progress, context.since = progress, now
        elif now - context.since >= self.watchdog:
            self._end(context, JobStatus.STUCK, detail=round_.oldest)

    def renew(self) -> None:
        """The circuit was stuck and has reset what its contexts share (`renewals`): active jobs end
        as those whose memory failed, frames inside are lost, and what waits goes on. A reset in a
        calm has no twin: hosts see nothing of it.
        """
        for context in filter(None, list(self.contexts)):
            self._end(context, JobStatus.MEMORY)

    def _end(self, context: Context, status: JobStatus, **fields: int) -> None:
        job = context.job
        self.contexts[context.place] = None
        del self.rounds[job.tensor, context.round.gen]
        self.history.over(job.tensor, job.gen)
        self.changed = True
        self._tell(job, status, context.posted, **fields)

    def _tell(self, job: Job, status: JobStatus, posted: int, **fields: int) -> None:
        self.completions.append(Completion(job.id, status, cycles=self.now - posted, **fields))

    # what of `Card` depends on it

    def _order(self) -> list[tuple[int, int]]:
        active = sorted(filter(None, self.contexts), key=lambda c: (c.job.layer, c.age))
        return [(context.job.tensor, context.round.gen) for context in active]

    def _takes(self, tensor: int) -> bool:
        return True

    def _last(self, tensor: int) -> int | None:
        return self.history.last(tensor)

    def _place(self, round_: Round) -> int:
        return next(c.place for c in self.contexts if c and c.round is round_)


@lru_cache(maxsize=256)
def plan_of(table: Table, n_elems: int, packet: int, unit: int = SEQ_UNIT) -> Plan:
    """The `Plan` of a tensor, made once for all cards."""
    return Plan(table, n_elems, unit=unit, packet=packet)
