"""Spray and pace circuits against the golden sender's parts."""

import numpy as np
import pytest
from gradnic.hdl.transport.allowances import Allowances
from gradnic.hdl.transport.pace import Pace
from gradnic.hdl.transport.spray import Spray
from gradnic.models.transport import sender
from gradnic.sim.engine import batch, stimulus
from gradnic.sim.engine.amaranth_run import simulate


@pytest.mark.parametrize("n", [2, 8, 32])
@pytest.mark.parametrize("rule", range(3))
@pytest.mark.parametrize("o", [1, 0.4])
@pytest.mark.parametrize("silent", [0, 1])
def test_paths(n, rule, o, silent):
    rng = stimulus.rng("spray", n, rule)
    model = batch.build(Spray(n, seed=77))
    marks = rng.integers(0, n, 400)
    run = model.run(
        {"marks": model.pack("marks", marks)}, signals={"rule": rule, "silent": silent},
        drain=False, stalls={"marks": 0.2, "paths": o}, max_cycles=3000,
    )  # fmt: skip
    golden = sender.Spray(n, sender.SPRAYS[rule], seed=77)
    marked = dict(zip(run.taken["marks"].tolist(), marks.tolist(), strict=False))
    paths, taken = [], set(run.taken["paths"].tolist())
    offered = False
    for cycle in range(1, int(run.taken["paths"][-1]) + 1):  # none is chosen in the first
        if cycle in taken:
            offered = False
        if cycle in marked and rule == 2:
            golden.mark(marked[cycle])
            if silent:
                golden.n_unmarked = golden.n_unmarked or n
        elif not offered and not (cycle - 1 in marked and rule == 2):
            paths.append(golden.next())
            offered = True
    n_taken = len(run.taken["paths"])
    assert n_taken > 900
    assert run.unpack("paths").tolist() == paths[:n_taken]
    assert rule == 2 or set(paths) == set(range(n))


def rules(rule, floor, step, low=0, high=0):
    """The registers as bytes of the port."""
    word = rule | floor << 2 | step << 19 | low << 36 | high << 68
    return np.frombuffer(word.to_bytes(13, "little"), np.uint8)[None]


@pytest.mark.parametrize("rule", range(3))
def test_rate_after_each_echo(rule):
    rng = stimulus.rng("pace", rule)
    model = batch.build(Pace(32))
    n = 600
    share = np.where(rng.random(n) < 0.5, 0, rng.integers(0, 256, n))
    share[:150], share[150:300] = 255, 0
    trip = rng.integers(0, 3000, n)
    trip[:60] = 2999
    settings = {"floor": 900, "step": 700, "low": 300, "high": 2000}
    run = model.run(
        {"echoes": model.pack("echoes", ce_share=share, round_trip=trip)},
        signals={"rules": rules(rule, **settings), "burst": 2000}, trace=("rate",),
        stalls={"echoes": 0.5},
    )  # fmt: skip
    golden = sender.Pace(("off", "ce", "rtt")[rule], **settings)
    want = []
    for s, t in zip(share, trip, strict=True):
        golden.echo(int(s), int(t))
        want.append(golden.rate)
    rates = np.asarray(run.traces["rate"]).astype(int)
    assert [int(rates[t + 1]) for t in run.taken["echoes"]] == want
    if rule:
        assert min(want) == 900


@pytest.mark.parametrize("n_bytes", [16, 64])
def test_credit(n_bytes):
    rng = stimulus.rng("credit", n_bytes)
    model = batch.build(Pace(n_bytes))
    sizes = rng.integers(64, 1500, 1500)
    share = rng.integers(0, 60, 40)
    run = model.run(
        {"frames": model.pack("frames", sizes), "echoes": model.pack("echoes", ce_share=share)},
        signals={"rules": rules(1, 2000, 500), "burst": 3000}, trace=("rate",),
        stalls={"echoes": 0.01, "frames": 0.3}, max_cycles=400_000,
    )  # fmt: skip
    golden = sender.Pace("ce")
    rates, taken = np.asarray(run.traces["rate"]).astype(int), set(run.taken["frames"].tolist())
    number = 0
    for cycle in range(int(run.taken["frames"][-1]) + 1):
        golden.rate = int(rates[max(cycle - 1, 0)])  # a cycle later, the circuit says
        if cycle in taken:
            assert golden.spend(int(sizes[number]))
            number += 1
        golden.cycle(n_bytes, 3000)
    assert number == len(sizes)


def test_a_frame_goes_as_soon_as_it_may():
    model = batch.build(Pace(32))
    run = model.run({"frames": model.pack("frames", [1500] * 40)}, signals={"burst": 64})
    assert set(np.diff(run.taken["frames"])[2:].tolist()) == {46, 47}


def test_parameters():
    with pytest.raises(ValueError, match="n_paths must be a power of two from 2 to 32, not 3"):
        Spray(3)
    with pytest.raises(ValueError, match="n_bytes must be a power of two, not 12"):
        Pace(12)


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

    async def bench(ctx):
        left = list(must)
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
                octets = elems * bits // 8 * leaves if thc else 4 * elems * leaves
                left[neighbor] = max(0, left[neighbor] - octets)
        await ctx.tick()
        await ctx.tick()
        for k in range(16):
            ctx.set(part.neighbor, k)
            assert ctx.get(part.bytes) == left[k], k
        assert 0 < left[5] < must[5]

    simulate(part, bench)
