"""Roots of THC's norms, a bit a stage and a bit a cycle, against integers' own."""

import math

import numpy as np
from gradnic.hdl.thc.norm import SerialRoot, SquareRoot
from gradnic.sim.engine import stimulus
from gradnic.sim.engine.amaranth_run import simulate


def squares(n):
    """48-bit values around squares, where a root changes, and any others."""
    rng = stimulus.rng("roots")
    roots = [
        1,
        2,
        3,
        (1 << 23) - 1,
        1 << 23,
        (1 << 24) - 1,
        *rng.integers(1 << 24, size=n).tolist(),
    ]
    around = [root * root + more for root in roots for more in (-1, 0, 1)]
    values = [0, *around, *rng.integers(1 << 48, size=n, dtype=np.int64).tolist()]
    return [x for x in values if 0 <= x < 1 << 48]


def test_a_root_a_cycle():
    values, got = squares(60), []
    part = SquareRoot()

    async def bench(ctx):
        for x in [*values, *[0] * part.latency]:
            got.append(ctx.get(part.root))
            ctx.set(part.x, x)
            await ctx.tick()

    simulate(part, bench)
    assert got[part.latency :] == [math.isqrt(x) for x in values]


def test_a_bit_a_cycle():
    values, got = squares(8), []
    part = SerialRoot()

    async def bench(ctx):
        ctx.set(part.start, 1)
        ctx.set(part.x, values[0])
        for following in [*values[1:], None]:
            await ctx.tick()
            ctx.set(part.start, 0)
            ctx.set(part.x, (1 << 48) - 1)
            for cycle in range(1, 26):
                assert ctx.get(part.done) == (cycle == 25)
                if cycle < 25:
                    await ctx.tick()
            got.append(ctx.get(part.root))
            if following is not None:  # at the earliest
                ctx.set(part.start, 1)
                ctx.set(part.x, following)

    simulate(part, bench)
    assert got == [math.isqrt(x) for x in values]
