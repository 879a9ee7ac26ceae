"""Ranges cut into bursts: where each begins and ends, which are refused, and how fast they come."""

import pytest
from gradnic.hdl.axi.bursts import BurstSplitter
from gradnic.sim.engine import stimulus
from gradnic.sim.engine.amaranth_run import simulate

REGIONS = [(0x1000, 300), (0x7, 77), (0, 1 << 12)]  # first beat, beats


def bursts_of(region, offset, n_beats, burst_beats):
    """[(beat, n_beats - 1, ends, refused)] of a range."""
    first, size = REGIONS[region]
    refused = offset + n_beats > size
    at, stop, cut = first + offset, first + offset + n_beats, []
    while at < stop:
        n = min(burst_beats - at % burst_beats, stop - at)
        cut.append((at, n - 1, at + n == stop, refused))
        at += n
    return cut


def ranges(rng, n):
    """(region, offset, beats): corners of bursts and of regions first, nothing, and noise."""
    made = [(0, 0, 1), (0, 0, 16), (0, 1, 15), (0, 1, 16), (0, 15, 1), (0, 15, 2), (0, 0, 300)]
    made += [(0, 0, 301), (0, 299, 1), (0, 300, 1), (1, 0, 77), (1, 70, 8), (2, 0, 0), (1, 99, 0)]
    for _ in range(n):
        region = int(rng.integers(3))
        offset = int(rng.integers(REGIONS[region][1] + 5))
        made.append((region, offset, int(rng.integers(1, 60))))
    return made


@pytest.mark.parametrize(("offered", "taken"), [(1.0, 1.0), (0.4, 1.0), (1.0, 0.3), (0.5, 0.5)])
@pytest.mark.parametrize("burst_beats", [2, 16])
def test_bursts(burst_beats, offered, taken):
    rng = stimulus.rng("bursts", burst_beats, offered, taken)
    part = BurstSplitter(16, 40, burst_beats=burst_beats, n_regions=3)
    work, got = ranges(rng, 25), []

    async def send(ctx):
        ctx.set(part.regions, [{"first": first, "n_beats": n} for first, n in REGIONS])
        for region, offset, n_beats in work:
            while rng.random() >= offered:
                await ctx.tick()
            ctx.set(part.ranges.p, {"region": region, "offset": offset, "n_beats": n_beats})
            ctx.set(part.ranges.valid, 1)
            await ctx.tick().until(part.ranges.ready)
            ctx.set(part.ranges.valid, 0)

    wanted = [burst for one in work for burst in bursts_of(*one, burst_beats)]

    async def bench(ctx):
        for _ in range(30 * len(wanted)):
            if len(got) == len(wanted):
                break
            ctx.set(part.bursts.ready, int(rng.random() < taken))
            if ctx.get(part.bursts.valid & part.bursts.ready):
                b = ctx.get(part.bursts.p)
                got.append((b.beat, b.n_less_1, bool(b.ends), bool(b.refused)))
            await ctx.tick()
            assert not ctx.get(part.astray)
        ctx.set(part.bursts.ready, 1)
        for _ in range(20):  # no more come
            assert not ctx.get(part.bursts.valid)
            await ctx.tick()

    simulate(part, bench, send)
    assert got == wanted


def test_a_burst_in_two_cycles():
    """And a range takes one more: of 10 ranges with 10 bursts each all are out in 210 cycles."""
    part, cycles = BurstSplitter(16, 40), []

    async def send(ctx):
        ctx.set(part.regions[0], {"first": 0, "n_beats": 2000})
        for k in range(10):
            ctx.set(part.ranges.p, {"offset": 160 * k, "n_beats": 160})
            ctx.set(part.ranges.valid, 1)
            await ctx.tick().until(part.ranges.ready)
        ctx.set(part.ranges.valid, 0)

    async def bench(ctx):
        ctx.set(part.bursts.ready, 1)
        cycle = 0
        while len(cycles) < 100:
            if ctx.get(part.bursts.valid):
                cycles.append(cycle)
            await ctx.tick()
            cycle += 1

    simulate(part, bench, send)
    assert cycles[0] == 5
    assert cycles[-1] - cycles[0] <= 2 * 100 + 10
