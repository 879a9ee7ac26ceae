"""The queue of jobs against its golden model, and each cycle of it; and the divider beside it."""

import numpy as np
from gradnic.hdl.offload.job_queue import Divider, JobQueue
from gradnic.models.offload.job_queue import JobQueue as Golden
from gradnic.sim.engine import batch
from gradnic.sim.engine.amaranth_run import simulate
from gradnic.sim.mutation import job_queue as campaign

from gradnic.interface.job import Job


def test_each_output_in_each_cycle():
    """Posts, aborts and pops at once, to the brim and down to nothing: what the campaign plays."""
    campaign.test(batch.build(campaign.component()))


def test_division_is_numpys():
    part, rng = Divider(25), np.random.default_rng(1)
    pairs = [(0, 1), (2**25 - 1, 1), (2**25 - 1, 2**25 - 1), (5, 9)]
    # digits in front that are 0, and how long that takes
    steps = {2**10 - 1: 6, 2**10: 10, 2**18 - 1: 10, 2**18: 14}
    pairs += [(a, b) for a in steps for b in (1, 3, a - 1, a, a + 1)]
    pairs += [(int(a), int(b)) for a, b in zip(*rng.integers(1, 2**25, (2, 20)), strict=True)]
    pairs += [(int(a), int(b)) for a, b in zip(*rng.integers(1, 2**9, (2, 20)), strict=True)]

    async def bench(ctx):
        for a, b in pairs:
            ctx.set(part.a, a)
            ctx.set(part.b, b)
            ctx.set(part.start, 1)
            await ctx.tick()
            ctx.set(part.start, 0)
            cycles = 1
            while not ctx.get(part.done):
                await ctx.tick()
                cycles += 1
            assert cycles == steps.get(a, cycles)
            assert (ctx.get(part.quotient), ctx.get(part.remainder)) == divmod(a, b)

    simulate(part, bench)


def test_the_queue_keeps_order_refuses_when_full_and_marks_the_oldest():
    part, rng = JobQueue(), np.random.default_rng(2)
    golden = Golden()

    async def bench(ctx):
        taken = 0
        for turn in range(600):
            full_or_low = 0.8 if turn // 60 % 2 else 0.3
            ctx.set(part.now, turn)
            does = rng.random()
            if does < 0.15:
                id = int(rng.integers(0, 20))
                any_ = int(rng.random() < 0.2)
                ctx.set(part.abort.p, {"id": id, "any": any_})
                ctx.set(part.abort.valid, 1)
                await ctx.tick().until(part.abort.ready)
                ctx.set(part.abort.valid, 0)
                golden.abort(None if any_ else id)
                await ctx.tick()
            elif rng.random() < full_or_low:
                id = int(rng.integers(0, 20))
                ready = ctx.get(part.post.ready)
                assert golden.post(Job(id, 0, turn, 1, 0, 0), turn) == ready
                ctx.set(part.post.p, {"id": id, "gen": turn})
                ctx.set(part.post.valid, 1)
                await ctx.tick()
                ctx.set(part.post.valid, 0)
            elif golden:
                assert ctx.get(part.present)
                oldest, want = ctx.get(part.oldest), golden.pop()
                assert (oldest.job.id, oldest.job.gen) == (want.job.id, want.job.gen)
                assert (oldest.posted, ctx.get(part.aborted)) == (want.posted, want.aborted)
                taken += 1
                ctx.set(part.pop, 1)
                await ctx.tick()
                ctx.set(part.pop, 0)
            assert ctx.get(part.busy) == bool(golden)
        assert taken > 100

    simulate(part, bench)


def test_the_queue_looks_for_no_job_that_begins_right_then():
    part = JobQueue()

    async def bench(ctx):
        for _ in range(2):
            ctx.set(part.post.p, {"id": 5})
            ctx.set(part.post.valid, 1)
            await ctx.tick()
        ctx.set(part.post.valid, 0)
        await ctx.tick()
        ctx.set(part.pop, 1)  # the first one is active now, and is called so a cycle later
        ctx.set(part.abort.p, {"id": 5})
        await ctx.tick()
        ctx.set(part.pop, 0)
        ctx.set(part.abort.valid, 1)
        await ctx.tick()
        ctx.set(part.abort.valid, 0)
        for _ in range(8):
            await ctx.tick()
        assert (ctx.get(part.oldest.job.id), ctx.get(part.aborted)) == (5, 0)

    simulate(part, bench)
