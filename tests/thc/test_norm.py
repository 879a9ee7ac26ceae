"""Norms against the golden ones; roots, a bit a stage and a bit a cycle, against integers' own."""

import math

import numpy as np
import pytest
from gradnic.hdl.thc.hadamard import BLOCKS
from gradnic.hdl.thc.norm import SerialRoot, SquareRoot, ThcNorm
from gradnic.models.thc import Worker
from gradnic.models.thc.norm import block_norms
from gradnic.sim.engine import batch, stimulus
from gradnic.sim.engine.amaranth_run import simulate
from gradnic.sim.thc.worker import SEED, SETTLE, blocks_of_floats

LANES, BLOCK = 4, 256
STALLS = [1.0, 0.4]


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


@pytest.mark.parametrize("shape", [{"B": 64}, {"B": 256, "b": 3, "g": 34}], ids=str)
@pytest.mark.parametrize("duty", STALLS)
def test_norms(shape, duty):
    model = batch.build(ThcNorm(LANES, block=BLOCK))
    worker = Worker(1, SEED, **shape)
    x = blocks_of_floats(worker, 30)
    run = model.run(
        {"floats": model.pack("floats", x.reshape(-1, LANES))},
        ["norms"],
        stalls={"floats": (SETTLE, duty), "norms": duty},
        signals={"log4": BLOCKS.index(worker.B)},
    )
    np.testing.assert_array_equal(run.unpack("norms"), block_norms(x))
    if duty == 1.0:
        assert np.ptp(run.taken["floats"]) == x.size // LANES - 1


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: ThcNorm(64), "lanes must be a power of two from 2 to 32, not 64"),
        (lambda: ThcNorm(4.0), "lanes must be a power of two from 2 to 32, not 4.0"),
        (lambda: ThcNorm(4, block=64.0), "block must be 64, 256, 1024 or 4096, not 64.0"),
    ],
)
def test_errors_name_the_value_and_the_limit(call, message):
    with pytest.raises(ValueError, match=message):
        call()
