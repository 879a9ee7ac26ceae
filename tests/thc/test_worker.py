"""THC worker circuits of two lanes against the golden worker; and dice whose seed is 0."""

import numpy as np
import pytest
from gradnic.hdl.thc.decoder import ThcDecoder
from gradnic.hdl.thc.encoder import ThcEncoder
from gradnic.hdl.thc.hadamard import BLOCKS
from gradnic.hdl.thc.norm import ThcNorm
from gradnic.hdl.thc.shared_random import RandomBytes, Signs
from gradnic.models.thc import shared_random as thc_random
from gradnic.models.thc import worker as thc
from gradnic.sim.aggregation.worker import RtlWorker, build_engines
from gradnic.sim.engine import batch
from gradnic.sim.engine.amaranth_run import simulate
from gradnic.sim.thc.worker import (
    SEED,
    SETTLE,
    Encoder,
    blocks_of_floats,
    decode,
)

BLOCK = 256
STALLS = [1.0, 0.4]


@pytest.fixture(scope="module")
def two_lanes():
    return [batch.build(kind(2, block=BLOCK)) for kind in (ThcNorm, ThcEncoder, ThcDecoder)]


SHAPES = (
    {"B": 64},
    {"B": 256, "b": 3, "g": 34},
    {"B": 256, "b": 8, "g": 254, "p": 1 / 128},
    {"B": 64, "b": 1, "g": 1},
    {"B": 256, "b": 2, "g": 6, "norm": "tensor"},
)


@pytest.mark.parametrize("shape", SHAPES, ids=str)
@pytest.mark.parametrize("duty", STALLS)
def test_two_lanes(two_lanes, shape, duty):
    """Roots, reciprocals and seeds of one block at a time, for which blocks of 64 wait."""
    norm_unit, encoder, decoder = two_lanes
    worker = thc.Worker(3, SEED, **shape)
    x = blocks_of_floats(worker, 30)
    run = norm_unit.run(
        {"floats": norm_unit.pack("floats", x.reshape(-1, 2))},
        ["norms"],
        stalls={"floats": (SETTLE, duty), "norms": duty},
        signals={"log4": BLOCKS.index(worker.B)},
    )
    if worker.norm == "block":
        np.testing.assert_array_equal(run.unpack("norms"), worker.norms(x))
    assert duty < 1 or np.ptp(run.taken["floats"]) == x.size // 2 - 1
    stalls = {port: duty for port in ("blocks", "floats", "indices")}
    runs = [Encoder(encoder, 2, worker).play_kinds(24, stalls=stalls)]
    if worker.norm == "block":
        stalls = {port: duty for port in ("blocks", "sums", "floats")}
        width = 16 if worker.n * worker.g > 255 else 8
        runs.append(decode(decoder, 2, worker, width, 24, stalls=stalls))
    for run, longest in zip(runs, (48, 35), strict=False):
        if duty == 1.0:
            most = max(worker.B // 2, longest) * (len(run.taken["floats"]) * 2 // worker.B)
            assert np.ptp(run.taken["floats"]) <= most


def test_a_lane_whose_seed_is_0_draws_as_the_golden_one():
    """Zero is no start for xorshift: `GOLDEN` stands in. Three blocks, one with such a lane;
    beats with and without a gap.
    """
    lanes, n_beats = 16, 8
    part, rng = RandomBytes(lanes), np.random.default_rng(5)
    lane_keys = thc_random.lane_keys(np.array([SEED], np.uint32))
    h1, h2 = rng.integers(0, 1 << 32, (2, 3), np.uint32)
    h2[1] = (-thc_random.step(lane_keys + h1[1]))[37]
    x = thc_random.step(thc_random.step(lane_keys + h1[:, None]) + h2[:, None])
    assert np.count_nonzero(x == 0) == 1
    x[x == 0] = thc_random.GOLDEN
    want, got = [], []
    for _ in range(lanes * n_beats // thc_random.N_LANES):
        x = thc_random.step(x)
        want.append(x >> 24)
    want = np.stack(want, axis=1).reshape(-1, lanes)

    async def bench(ctx):
        async def cycle():
            if ctx.get(part.done):
                got.append(list(ctx.get(part.octets).to_bytes(lanes, "little")))
            await ctx.tick()

        ctx.set(part.key, SEED)
        ctx.set(part.rekey, 1)
        await cycle()
        ctx.set(part.rekey, 0)
        while ctx.get(part.busy):
            await cycle()
        for block in range(3):
            for beat in range(n_beats):
                while rng.random() < 0.2:
                    ctx.set(part.valid, 0)
                    await cycle()
                ctx.set(part.valid, 1)
                ctx.set(part.first, beat == 0)
                ctx.set(part.h1, int(h1[block]))
                ctx.set(part.h2, int(h2[block]))
                await cycle()
        ctx.set(part.valid, 0)
        for _ in range(part.latency + 1):
            await cycle()

    simulate(part, bench)
    np.testing.assert_array_equal(got, want)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: RandomBytes(64), "lanes must be a power of two from 2 to 32, not 64"),
        (lambda: RandomBytes(6), "lanes must be a power of two from 2 to 32, not 6"),
        (lambda: Signs(1), "lanes must be a power of two from 2 to 32, not 1"),
    ],
)
def test_errors_name_the_value_and_the_limit(call, message):
    with pytest.raises(ValueError, match=message):
        call()


def test_engines_give_the_norm_of_a_single_block():
    """The run must not end before a block that was just stored has been worked on."""
    worker = RtlWorker(build_engines(4, 1024), 2, 1, B=1024)
    x = np.random.default_rng(9).standard_normal(1024).astype(np.float32)
    np.testing.assert_array_equal(worker.norms(x), thc.Worker(2, 1, B=1024).norms(x))
