"""A context of a card with jobs: how a job begins, and each way in which it ends."""

from functools import partial

import pytest
from gradnic.hdl.offload.job_context import (
    DECODE,
    FLUSH_CYCLES,
    INDICES,
    NORMS,
    JobContext,
)
from gradnic.sim.engine import amaranth_run

from gradnic.interface.job import JobCodec, JobStatus


def simulate(bench, **options):
    part = JobContext(16, 32, **options)
    amaranth_run.simulate(part, partial(bench, part=part))


def prepare(ctx, part, *, leaves=3, codec=0):
    """Have a job at hand, and all else as it should be."""
    ctx.set(part.now, 100)
    ctx.set(part.prepared.job, {"id": 7, "tensor": 5, "gen": 9, "codec": codec})
    ctx.set(part.prepared.table.leaves, leaves)
    ctx.set(part.prepared.posted, 60)
    ctx.set(part.quiet, 1)
    ctx.set(part.over_ready, 1)
    assert ctx.get(part.free)


async def strobe(ctx, flag):
    """1 for one cycle."""
    ctx.set(flag, 1)
    await ctx.tick()
    ctx.set(flag, 0)


async def near(ctx, part):
    """A job is near: a free context is not for some cycles, so that no card counts as calm."""
    epoch = ctx.get(part.context.epoch)
    await strobe(ctx, part.start_soon)
    for _ in range(FLUSH_CYCLES):
        assert ctx.get(part.reset & part.closed & part.pause & ~part.free & ~part.busy)
        await ctx.tick()
    assert ctx.get(part.context.epoch) == epoch + 1  # what was on its way to it vanishes
    for _ in range(4):
        assert ctx.get(part.free & ~part.reset)
        await ctx.tick()


async def begin(ctx, part, *, leaves=3, codec=0):
    """Give it a job; its engine is reset, and is to clear from then on."""
    prepare(ctx, part, leaves=leaves, codec=codec)
    await near(ctx, part)
    await strobe(ctx, part.take)
    assert not ctx.get(part.reset | part.closed)
    assert ctx.get(part.clear & part.busy & ~part.start)
    await ctx.tick()
    assert ctx.get(part.start) == (codec != JobCodec.THC)  # while the engine forgets
    ctx.set(part.clearing, 1)
    await ctx.tick().repeat(4)
    assert not ctx.get(part.start)
    assert ctx.get(part.busy)
    assert not ctx.get(part.context.armed)


async def run(ctx, part):
    """Let it clear and start."""
    ctx.set(part.clearing, 0)
    await ctx.tick()
    assert ctx.get(part.context.armed & ~part.start)
    assert (ctx.get(part.context.tensor), ctx.get(part.context.gen)) == (5, 9)
    await ctx.tick().repeat(3)


async def end(ctx, part):
    """Its record; then it is reset, and free."""
    epoch = ctx.get(part.context.epoch)
    for _ in range(40):
        if ctx.get(part.record_valid):
            break
        await ctx.tick()
    assert ctx.get(part.record_valid)
    assert ctx.get(part.pause & part.closed)
    record = ctx.get(part.record)
    await strobe(ctx, part.record_ready)
    for _ in range(FLUSH_CYCLES):
        assert ctx.get(part.reset)
        assert not ctx.get(part.busy)
        await ctx.tick()
    assert ctx.get(part.free)
    assert not ctx.get(part.reset | part.pause | part.closed)
    assert ctx.get(part.context.epoch) == epoch + 1
    assert (record.id, record.cycles) == (7, 40)
    return record


@pytest.mark.parametrize(("least", "status"), [(3, JobStatus.DONE), (2, JobStatus.SHORT)])
def test_a_job_that_finishes_says_what_is_in_its_result(least, status):
    async def bench(ctx, part):
        await begin(ctx, part)
        await run(ctx, part)
        for leaves in (3, least, 3):
            ctx.set(part.leaves, {"valid": 1, "leaves": leaves})
            await ctx.tick()
        ctx.set(part.leaves, {"valid": 0, "leaves": 1})
        ctx.set(part.row, 11)
        await ctx.tick().repeat(5)
        assert ctx.get(part.context.armed)
        ctx.set(part.finished, 1)
        record = await end(ctx, part)
        assert (record.status, record.detail) == (status, 0)
        assert (record.leaves_least, record.leaves_most) == (least, 3)

    simulate(bench)


async def passes(ctx, part, stage):
    """A pass of this stage is asked for, and done."""
    await ctx.tick().repeat(30)
    assert (ctx.get(part.passes), ctx.get(part.stage)) == (1, stage)
    assert not ctx.get(part.context.armed | part.record_valid)
    await strobe(ctx, part.passed)
    assert not ctx.get(part.passes)


async def round_(ctx, part, gen):
    """A round of this GEN runs, and is written down at its end."""
    await ctx.tick().until(part.context.armed)
    assert ctx.get(part.context.gen) == gen
    ctx.set(part.leaves, {"valid": 1, "leaves": 3 if gen == 9 else 1})
    await ctx.tick().repeat(3)
    ctx.set(part.leaves, {"valid": 0})
    ctx.set(part.finished, 1)
    ctx.set(part.over_ready, 0)
    await ctx.tick().until(part.over_valid)
    ctx.set(part.finished, 0)
    await ctx.tick().repeat(5)
    assert ctx.get(part.over_valid & ~part.context.armed & part.closed)
    over = ctx.get(part.over)
    assert (over.tensor, over.gen) == (5, gen)
    ctx.set(part.over_ready, 1)
    await ctx.tick()


STEPS = (
    ("norms", passes, NORMS), ("their round", round_, 8), ("indices", passes, INDICES),
    ("sums", round_, 9), ("floats", passes, DECODE),
)  # fmt: skip


@pytest.mark.parametrize("stage", [0, 2, 4])
def test_a_pass_that_does_not_move_ends_its_job_after_the_watchdog(stage):
    async def bench(ctx, part):
        ctx.set(part.watchdog, 50)
        await begin(ctx, part, codec=JobCodec.THC)
        ctx.set(part.clearing, 0)
        for _, step, told in STEPS[:stage]:
            await step(ctx, part, told)
        await ctx.tick().until(part.passes)
        for _ in range(6):  # it does, now and then, and whoever's data it is
            await strobe(ctx, part.pass_moves)
            await ctx.tick().repeat(40)
            assert ctx.get(part.passes)
        ctx.set(part.in_pass, 1)
        await ctx.tick().repeat(20)
        assert not ctx.get(part.passes | part.record_valid)
        ctx.set(part.in_pass, 0)
        assert (await end(ctx, part)).status == JobStatus.MEMORY

    simulate(bench)


@pytest.mark.parametrize("stops", [None, *range(5)])
@pytest.mark.parametrize("fails", [False, True])
def test_a_job_with_thc_has_two_rounds_and_three_passes(stops, fails):
    """It is stopped in the middle of a step, or memory fails there, and leaves at once."""

    async def bench(ctx, part):
        await begin(ctx, part, codec=JobCodec.THC)
        ctx.set(part.clearing, 0)
        for k, (_, step, told) in enumerate(STEPS):
            if k == stops:
                await ctx.tick().repeat(30)
                end_by = (part.pass_failed if k % 2 == 0 else part.failed) if fails else part.stop
                ctx.set(end_by, 1)
                ctx.set(part.in_pass, k % 2 == 0)
                await ctx.tick()
                ctx.set(end_by, 0)
                await ctx.tick().repeat(2)
                assert not ctx.get(part.passes)
                await ctx.tick().repeat(30)
                assert not ctx.get(part.record_valid) or k % 2
                ctx.set(part.in_pass, 0)
                break
            await step(ctx, part, told)
        if stops is None:
            record = await end(ctx, part)
            assert (record.status, record.leaves_least) == (JobStatus.DONE, 3)
            return
        status = JobStatus.MEMORY if fails else JobStatus.ABORTED
        assert (await end(ctx, part)).status == status

    simulate(bench)


@pytest.mark.parametrize("when", ["clearing", "running"])
def test_an_abort_ends_it_without_waiting_for_anybody(when):
    async def bench(ctx, part):
        await begin(ctx, part)
        if when == "running":
            await run(ctx, part)
        await strobe(ctx, part.stop)
        record = await end(ctx, part)
        assert (record.status, record.detail, record.leaves_most) == (JobStatus.ABORTED, 0, 0)
        ctx.set(part.clearing, 0)
        await ctx.tick().repeat(20)
        await begin(ctx, part)  # nothing of the abort is left
        await run(ctx, part)
        await ctx.tick().repeat(20)
        assert ctx.get(part.context.armed)

    simulate(bench)


def test_a_memory_error_and_a_row_that_is_stuck_are_told():
    async def bench(ctx, part):
        await begin(ctx, part)
        await run(ctx, part)
        await strobe(ctx, part.failed)
        assert (await end(ctx, part)).status == JobStatus.MEMORY
        ctx.set(part.watchdog, 50)
        await begin(ctx, part)
        await run(ctx, part)
        ctx.set(part.row, 4)
        for _ in range(3):
            await ctx.tick().repeat(40)
            assert ctx.get(part.context.armed)
            await strobe(ctx, part.progress)
        await ctx.tick().repeat(60)
        record = await end(ctx, part)
        assert (record.status, record.detail) == (JobStatus.STUCK, 4)

    simulate(bench)


def test_the_frame_that_leaves_and_bursts_under_way_end_first():
    async def bench(ctx, part):
        await begin(ctx, part)
        await run(ctx, part)
        ctx.set(part.sending, 1)
        ctx.set(part.quiet, 0)
        await strobe(ctx, part.stop)
        await ctx.tick().repeat(50)
        assert ctx.get(part.pause)
        assert not ctx.get(part.closed | part.record_valid | part.context.armed)
        ctx.set(part.sending, 0)
        await ctx.tick().repeat(50)
        assert ctx.get(part.closed)
        assert not ctx.get(part.record_valid)
        ctx.set(part.quiet, 1)
        assert (await end(ctx, part)).status == JobStatus.ABORTED

    simulate(bench)


@pytest.mark.parametrize("stuck", ["frame", "memory"])
def test_a_job_whose_memory_never_answers_is_told_and_keeps_its_context(stuck):
    async def bench(ctx, part):
        ctx.set(part.watchdog, 50)
        await begin(ctx, part)
        await run(ctx, part)
        ctx.set(part.sending, int(stuck == "frame"))
        ctx.set(part.quiet, 0)
        await ctx.tick().repeat(51)  # no progress
        await ctx.tick().until(part.pause)
        await ctx.tick().repeat(48)
        assert not ctx.get(part.record_valid)
        for _ in range(8):
            if not ctx.get(part.record_valid):
                await ctx.tick()
        record = ctx.get(part.record)
        assert (record.id, record.status, record.detail) == (7, JobStatus.MEMORY, 0)
        assert ctx.get(part.takes_abort)
        await strobe(ctx, part.record_ready)
        assert ctx.get(part.busy & ~part.takes_abort)  # its id may be another job's now
        await ctx.tick().repeat(200)
        assert not ctx.get(
            part.record_valid | part.free | part.reset
        )  # once, and nobody takes its place
        assert ctx.get(part.busy & part.pause)
        ctx.set(part.sending, 0)
        ctx.set(part.quiet, 1)
        for _ in range(40):
            assert not ctx.get(part.record_valid)
            if ctx.get(part.free):
                break
            await ctx.tick()
        assert ctx.get(part.free)
        ctx.set(part.watchdog, 0)
        await begin(ctx, part)  # as after any other end
        await run(ctx, part)
        ctx.set(part.finished, 1)
        for _ in range(40):
            if ctx.get(part.record_valid):
                break
            await ctx.tick()
        assert ctx.get(part.record.status) == JobStatus.DONE

    simulate(bench)


def test_refused_descriptors_do_not_bring_an_epoch_back():
    """Each resets the engine of a context that is free, while a packet may wait for 200 of them."""

    async def bench(ctx, part):
        seen = [ctx.get(part.context.epoch)]
        for _ in range(200):
            await strobe(ctx, part.start_soon)
            await ctx.tick().until(part.free)
            seen.append(ctx.get(part.context.epoch))
        assert len(set(seen)) == len(seen)

    simulate(bench)


async def ask(ctx, part, *, codec=JobCodec.THC):
    """Give a job to a context whose engine comes from a pool, until it asks for one."""
    prepare(ctx, part, codec=codec)
    await near(ctx, part)
    await strobe(ctx, part.take)
    assert ctx.get(part.needs & part.busy & ~part.wants)
    if codec == JobCodec.THC:
        await passes(ctx, part, NORMS)
        assert not ctx.get(part.holds)
    await ctx.tick().repeat(2)
    for _ in range(100):  # however long it takes
        assert ctx.get(part.wants & part.needs & part.holds & ~part.passes)
        assert not ctx.get(part.clear | part.start | part.context.armed)
        await ctx.tick()


async def grant(ctx, part):
    ctx.set(part.granted, 1)
    ctx.set(part.clearing, 1)
    await ctx.tick()
    assert ctx.get(part.clear & part.holds & ~part.wants & ~part.needs)
    await ctx.tick().repeat(5)
    ctx.set(part.clearing, 0)


def test_a_job_asks_the_pool_behind_its_norms_and_gives_back_ahead_of_its_floats():
    async def bench(ctx, part):
        ctx.set(part.watchdog, 50)
        await ask(ctx, part)
        await grant(ctx, part)
        ctx.set(part.progress, 1)
        await round_(ctx, part, 8)
        assert ctx.get(part.reset & part.holds)
        ctx.set(part.granted, 0)  # as long as its engine is being reset
        await ctx.tick().repeat(FLUSH_CYCLES - 1)
        assert ctx.get(part.reset & part.holds)
        ctx.set(part.granted, 1)
        ctx.set(part.pass_moves, 1)
        await passes(ctx, part, INDICES)
        assert ctx.get(part.holds)
        await round_(ctx, part, 9)
        assert not ctx.get(part.holds)
        ctx.set(part.granted, 0)
        await passes(ctx, part, DECODE)
        assert not ctx.get(part.holds)
        assert (await end(ctx, part)).status == JobStatus.DONE
        ctx.set(part.watchdog, 0)
        await ask(ctx, part, codec=JobCodec.RAW32)
        await grant(ctx, part)
        await ctx.tick().until(part.context.armed)
        ctx.set(part.finished, 1)
        await ctx.tick().until(part.record_valid)
        assert not ctx.get(part.holds)

    simulate(bench, pooled=True)


@pytest.mark.parametrize(
    ("when", "fails"),
    [("pass", 0), ("pass", 1), ("ask", 0), ("ask", 1), ("lost", 1), ("stray", 1)],
)
def test_a_job_ends_without_an_engine_or_when_its_own_is_lost(when, fails):
    async def bench(ctx, part):
        if when == "pass":
            prepare(ctx, part, codec=JobCodec.THC)
            await strobe(ctx, part.take)
            await ctx.tick().repeat(5)
        else:
            await ask(ctx, part)
        if when in ("lost", "stray"):
            await grant(ctx, part)
            await ctx.tick().repeat(5)
            ctx.set(part.granted, when != "lost")
            ctx.set(part.stray, when == "stray")
        else:
            ctx.set(part.pass_failed if fails else part.stop, 1)
        ended_by = JobStatus.MEMORY if fails else JobStatus.ABORTED
        await ctx.tick()
        for flag in (part.pass_failed, part.stop, part.stray):
            ctx.set(flag, 0)
        await ctx.tick().repeat(2)
        assert not ctx.get(part.needs | part.wants | part.passes)
        record = await end(ctx, part)
        assert (record.id, record.status) == (7, ended_by)
        assert not ctx.get(part.holds)

    simulate(bench, pooled=True)
