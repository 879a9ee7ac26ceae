"""Hashes of blocks, one a cycle and one at a time, against the golden random source."""

import numpy as np
import pytest
from gradnic.hdl.thc.shared_random import FMIX_LATENCY, BlockHash, Fmix32, SerialBlockHash
from gradnic.models.thc import shared_random as golden
from gradnic.sim.engine import stimulus
from gradnic.sim.engine.amaranth_run import simulate

RANDOM_KEY, SIGN_KEY = golden.key(7, 3, 2), golden.key(7, 3, golden.SIGN_WORKER)
TENSOR = 41


def words(name, n):
    """Words of 32 bits, corners first."""
    noise = stimulus.rng(name).integers(1 << 32, size=n, dtype=np.uint32)
    return np.concatenate([np.array([0, 1, 1 << 31, (1 << 32) - 1], np.uint32), noise])


def wanted(blocks):
    """(h1, h2, first word of signs) of each block."""
    h1, h2 = golden.block_hashes(RANDOM_KEY, TENSOR, blocks)
    first = golden.block_hash(SIGN_KEY, TENSOR, blocks)
    signs = golden.step(np.where(first == 0, golden.GOLDEN, first))
    return list(zip(h1.tolist(), h2.tolist(), signs.tolist(), strict=True))


def set_keys(ctx, part):
    tensor = np.array([TENSOR], np.uint32) + np.uint32(0x7F4A7C15)
    ctx.set(part.random_key, int(RANDOM_KEY[0]))
    ctx.set(part.sign_key, int(SIGN_KEY[0]))
    ctx.set(part.tensor_hash, int(golden.fmix32(tensor)[0]))


def told(ctx, part, signs_only):
    """Hashes, as `wanted` lists them; a decoder's have no dice."""
    hashes = ctx.get(part.hashes)
    return (None, None, hashes.sign_word) if signs_only else (
        hashes.h1, hashes.h2, hashes.sign_word
    )  # fmt: skip


def seen(rows, signs_only):
    return [(None, None, row[2]) for row in rows] if signs_only else rows


def test_fmix():
    values, got = words("fmix", 60), []

    async def bench(ctx):
        for x in [*values.tolist(), *[0] * FMIX_LATENCY]:
            got.append(ctx.get(part.y))
            ctx.set(part.x, x)
            await ctx.tick()

    part = Fmix32()
    simulate(part, bench)
    assert got[FMIX_LATENCY:] == golden.fmix32(values).tolist()


@pytest.mark.parametrize("signs_only", [False, True])
def test_a_block_a_cycle(signs_only):
    blocks = words("block hash", 30)
    comes = stimulus.rng("block hash gaps").random(3 * len(blocks)) < 0.6
    part, got = BlockHash(signs_only=signs_only), []

    async def bench(ctx):
        set_keys(ctx, part)
        waiting = iter(blocks.tolist())
        for valid in [*comes, *[False] * (part.latency + 2)]:
            block = next(waiting, None) if valid else None
            ctx.set(part.valid, int(block is not None))
            ctx.set(part.block, block or 0)
            await ctx.tick()
            if ctx.get(part.done):
                got.append(told(ctx, part, signs_only))

    simulate(part, bench)
    assert got == seen(wanted(blocks), signs_only)


@pytest.mark.parametrize("signs_only", [False, True])
def test_a_block_at_a_time(signs_only):
    blocks = words("serial block hash", 6)
    part, got = SerialBlockHash(signs_only=signs_only), []

    async def bench(ctx):
        set_keys(ctx, part)
        for turn, block in enumerate(blocks.tolist()):
            ctx.set(part.valid, 1)
            ctx.set(part.block, block)
            await ctx.tick()
            ctx.set(part.valid, 0)
            ctx.set(part.block, 0)
            cycles = 1
            while not ctx.get(part.done):
                await ctx.tick()
                cycles += 1
            assert cycles == part.latency
            for _ in range(turn % 3):  # it stands until the next one
                await ctx.tick()
            got.append(told(ctx, part, signs_only))

    simulate(part, bench)
    assert got == seen(wanted(blocks), signs_only)
