"""What contexts share is reset while all is quiet, or when the card is stuck, and cards go on."""

import re
from functools import partial

import pytest
from gradnic.hdl.frame.keeper import AGE
from gradnic.hdl.offload.renewal import CALM, Renewal
from gradnic.sim.engine import amaranth_run
from gradnic.sim.offload.job_upsets import Ring, _after

from gradnic.interface.job import JobStatus


def simulate(bench):
    part = Renewal()
    amaranth_run.simulate(part, partial(bench, part=part))


async def until(ctx, flag, most):
    """Cycles until a flag is 1, or `most`."""
    for cycle in range(most):
        if ctx.get(flag):
            return cycle
        await ctx.tick()
    return most


def test_it_is_anew_after_a_calm_and_again_and_never_in_a_busy_card():
    async def bench(ctx, part):
        ctx.set(part.busy, 1)
        assert await until(ctx, part.anew, 2 * CALM) == 2 * CALM
        ctx.set(part.busy, 0)
        for _ in range(2):
            assert CALM <= await until(ctx, part.anew, 2 * CALM) <= CALM + 3
            assert ctx.get(part.closed & ~part.forced)
            await ctx.tick()
            assert not ctx.get(part.anew | part.closed)
        await ctx.tick().repeat(CALM - 20)
        ctx.set(part.busy, 1)  # a beat
        await ctx.tick()
        ctx.set(part.busy, 0)
        assert await until(ctx, part.anew, 2 * CALM) >= CALM

    simulate(bench)


@pytest.mark.parametrize("why", ["wedged", "stalls"])
def test_a_stuck_card_closes_waits_for_what_is_offered_and_is_anew(why):
    async def bench(ctx, part):
        ctx.set(part.busy, 1)
        ctx.set(getattr(part, why), 1)
        if why == "stalls":
            await ctx.tick().repeat(500)  # the watchdog is off
            assert not ctx.get(part.closed)
            ctx.set(part.watchdog, 40)
            ctx.set(part.waits, 1)  # for memory, which is not ours
            await ctx.tick().repeat(500)
            assert not ctx.get(part.closed)
            ctx.set(part.waits, 0)
        ctx.set(part.watchdog, 40)
        assert await until(ctx, part.closed, 100) <= 11 * (AGE + 1)
        await ctx.tick().repeat(8)
        assert ctx.get(part.closed & ~part.anew)
        ctx.set(part.still, 1)
        assert await until(ctx, part.anew, 10) == 1
        assert ctx.get(part.forced & part.closed)
        ctx.set(getattr(part, why), 0)
        await ctx.tick()
        assert not ctx.get(part.anew | part.closed | part.forced)

    simulate(bench)


def test_offers_that_nobody_takes_open_it_again():
    async def bench(ctx, part):
        ctx.set(part.busy, 1)
        ctx.set(part.watchdog, 40)
        ctx.set(part.wedged, 1)
        assert await until(ctx, part.closed, 10) < 10
        ctx.set(part.wedged, 0)
        await ctx.tick().repeat(11 * (AGE + 1))
        assert not ctx.get(part.closed | part.anew)

    simulate(bench)


SHARED = (  # fills of queues that all contexts share: of heads, of owners of payloads, of bursts
    r"core\.gate\.lengths\.occupied", r"core\.steer\.ways\.occupied",
    r"core\.pick\.owners\.occupied", r"core\.landing_writes\.writers\.occupied",
    r"core\.gradient_reads\.owners\.occupied",
)  # fmt: skip


def test_a_wrong_fill_of_a_shared_queue_ends_jobs_and_heals():
    ring = Ring(seed=3)
    usual, exact, _ = ring.round()
    assert exact
    names = [
        ring.cluster.call("state_name", bit).decode()
        for bit in range(ring.cluster.call("state_bits"))
    ]
    hit = set()
    for k, pattern in enumerate(SHARED):
        bit = next(bit for bit, name in enumerate(names) if re.fullmatch(pattern, name))
        cycles, exact, statuses = ring.round((k % 3, bit, usual // 4 + 300 * k))
        hit |= set(statuses.values())
        assert cycles is not None or ring.abort(), names[bit]
        assert _after(ring) in ("", "next"), names[bit]
    assert hit & {JobStatus.MEMORY, JobStatus.STUCK}
