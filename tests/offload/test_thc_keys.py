"""The keys of THC jobs against a worker's: each in its cycle, and bits of them that change."""

import numpy as np
import pytest
from gradnic.hdl.offload.thc_keys import ThcKeys
from gradnic.models.offload.thc_keys import ORDER, keys
from gradnic.models.thc import shared_random
from gradnic.sim.engine import batch, stimulus
from gradnic.sim.engine.amaranth_run import simulate
from gradnic.sim.mutation import thc_keys as campaign


def test_a_worker_draws_by_these_keys():
    """The model's: rounding bytes and hashes of blocks, as `shared_random` has them at once."""
    seed, gen, node, tensor = 0xDEADBEEF, 65535, 7, 513
    made, blocks = keys(seed, gen, node, tensor), np.arange(5, dtype=np.uint32)
    dice = np.array([made.random_key], np.uint32)
    inner = shared_random.fmix32(blocks ^ np.uint32(made.tensor_hash))
    h1 = shared_random.fmix32(dice ^ inner)
    h2 = shared_random.fmix32(h1 + np.uint32(0x85EBCA77))
    x = shared_random.step(
        shared_random.step(shared_random.lane_keys(dice) + h1[:, None]) + h2[:, None]
    )
    want = shared_random.random_bytes(seed, gen, node, tensor, blocks, 64)
    np.testing.assert_array_equal(shared_random.step(x) >> np.uint32(24), want)
    signs = shared_random.fmix32(np.array([made.sign_key], np.uint32) ^ inner)
    k = shared_random.key(seed, gen, shared_random.SIGN_WORKER)
    np.testing.assert_array_equal(signs, shared_random.block_hash(k, tensor, blocks))


def test_keys_come_in_their_cycles_and_strays_are_told():
    """Turns from reset and broken off, each bit of each key upset: what the campaign plays."""
    campaign.test(batch.build(campaign.component()))


@pytest.mark.parametrize("dice", [True, False])
def test_corners(dice):
    part, rng = ThcKeys(dice=dice), stimulus.rng("thc_keys")
    widths = {name: w for name, w in campaign.WIDTHS.items() if dice or name != "node"}
    jobs = [dict.fromkeys(widths, 0), {name: (1 << w) - 1 for name, w in widths.items()}]
    jobs += [{name: int(rng.integers(1 << w)) for name, w in widths.items()} for _ in range(3)]

    async def bench(ctx):
        for job in jobs:
            for name, value in job.items():
                ctx.set(getattr(part, name), value)
            ctx.set(part.start, 1)
            cycles = 0
            while not ctx.get(part.known):
                await ctx.tick()
                cycles += 1
            assert cycles == campaign.LATENCY
            want = keys(**{"node": 0} | job)
            for name in ORDER[not dice :]:
                assert ctx.get(getattr(part, name)) == getattr(want, name), (name, job)
            ctx.set(part.start, 0)
            await ctx.tick()
            assert not ctx.get(part.known)

    simulate(part, bench)
