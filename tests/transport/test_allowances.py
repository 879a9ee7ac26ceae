"""What neighbors may lose, or still owe, packet by packet."""

import pytest
from gradnic.hdl.transport.allowances import Allowances
from gradnic.models.transport.allowances import Allowance, weighed_bytes
from gradnic.sim.engine import stimulus
from gradnic.sim.engine.amaranth_run import simulate


@pytest.mark.parametrize("any_bits", [0, 1])
def test_what_comes_is_taken_from_what_must_come(any_bits):
    """As often as packets can come; the largest ones with the most leaves; down to 0."""
    part, rng = Allowances(8 if any_bits else 4), stimulus.rng("allowances")
    must = [0, 1, 5000, 1 << 20, 9_000_000, (1 << 40) - 1, *([1 << 22] * 10)]

    async def came(ctx, neighbor, elems, leaves, thc, bits, *, clear=0):
        told = {"neighbor": neighbor, "elems": elems, "leaves": leaves, "thc": thc}
        told |= {"bits": bits} if any_bits else {}
        for name, value in (told | {"comes": 1}).items():
            ctx.set(getattr(part, name), value)
        await ctx.tick()
        ctx.set(part.comes, 0)
        for cycle in range(8):
            ctx.set(part.neighbor, int(rng.integers(16)))
            ctx.set(part.clear, clear and cycle == 0)
            await ctx.tick()
        ctx.set(part.clear, 0)

    async def spend(ctx, golden, neighbor):
        """Once what came is counted: the answer is there in the same cycle, and written in it."""
        await ctx.tick().repeat(2)
        ctx.set(part.neighbor, neighbor)
        assert ctx.get(part.bytes) == golden[neighbor].left
        golden[neighbor].left = int(rng.integers(1 << 40))
        ctx.set(part.left, golden[neighbor].left)
        ctx.set(part.spend, 1)
        await ctx.tick()
        ctx.set(part.spend, 0)
        assert ctx.get(part.bytes) == golden[neighbor].left

    async def bench(ctx):
        golden = [Allowance(n_bytes) for n_bytes in must]
        for k, n_bytes in enumerate(must):
            ctx.set(part.write, {"enable": 1, "index": k, "bytes": n_bytes})
            await ctx.tick()
        ctx.set(part.write, {})
        for k in range(600):
            neighbor, thc, clear = k % 16, int(rng.integers(2)), int(rng.random() < 0.1)
            bits = int(rng.integers(2, 9)) if any_bits else 4
            elems = int(rng.choice([4095, 16, int(rng.integers(1, 4096))])) & ~(15 * thc)
            leaves = int(rng.choice([255, 128, 1, 0, int(rng.integers(1, 256))]))
            await came(ctx, neighbor, elems, leaves, thc, bits, clear=clear)
            if not clear:
                golden[neighbor].came(weighed_bytes(elems, bits if thc else 32, leaves))
            if rng.random() < 0.05:
                await spend(ctx, golden, int(rng.integers(6, 16)))
        await ctx.tick()
        await ctx.tick()
        for k in range(16):
            ctx.set(part.neighbor, k)
            assert ctx.get(part.bytes) == golden[k].left, k
        assert 0 < golden[5].left < must[5]

    simulate(part, bench)
