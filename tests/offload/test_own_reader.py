"""What a card reads of its own: in order through two ports, neither waiting for the other."""

import numpy as np
import pytest
from amaranth.hdl import Module
from amaranth.sim import Simulator
from gradnic.hdl.offload.own_reader import GRADIENT, RESULT, ROOT, OwnReader

N_BYTES, BURST = 16, 16
STARTS = {GRADIENT: 1000, RESULT: 2000, ROOT: 1000}  # first beats of the regions


async def memory(ctx, port, rng, idle):
    """Answers each beat with its address and the port's name."""
    under_way = []
    while True:
        ready = rng.random() >= idle
        ctx.set(port.arready, int(ready))
        has = bool(under_way) and rng.random() >= idle
        ctx.set(port.rvalid, int(has))
        if under_way:
            ctx.set(port.rdata, under_way[0][0])
            ctx.set(port.rlast, under_way[0][1])
        taken = has and ctx.get(port.rready)
        if ctx.get(port.arvalid) and ready:
            first, n = ctx.get(port.araddr) // N_BYTES, ctx.get(port.arlen) + 1
            under_way += [(first + k, int(k == n - 1)) for k in range(n)]
        if taken:
            under_way.pop(0)
        await ctx.tick()


def run(ranges, *, idle, n_cycles):
    """Beats that came, and the cycles of the first and the last."""
    part = OwnReader(N_BYTES, 32)
    m = Module()
    m.submodules.part = part
    simulator = Simulator(m)
    simulator.add_clock(1e-8)
    beats, times = [], []

    async def ask(ctx):
        for k, region in enumerate((GRADIENT, RESULT)):
            ctx.set(part.regions[k], {"first": STARTS[region], "n_beats": 900})
        for region, offset, n in ranges:
            ctx.set(part.ranges.p, {"region": region, "offset": offset, "n_beats": n})
            ctx.set(part.ranges.valid, 1)
            await ctx.tick().until(part.ranges.ready)
        ctx.set(part.ranges.valid, 0)

    async def take(ctx):
        rng = np.random.default_rng(2)
        for cycle in range(n_cycles):
            ready = rng.random() >= idle
            ctx.set(part.beats.ready, int(ready))
            if ctx.get(part.beats.valid) and ready:
                beats.append((ctx.get(part.beats.p.data), ctx.get(part.beats.p.last)))
                times.append(cycle)
            await ctx.tick()

    simulator.add_testbench(ask)
    simulator.add_testbench(take)
    for k, port in enumerate((part.port, part.root_port)):

        async def answer(ctx, port=port, seed=k):
            await memory(ctx, port, np.random.default_rng(seed), idle)

        simulator.add_testbench(answer, background=True)
    simulator.run()
    return beats, times


def wanted(ranges):
    return [
        (STARTS[region] + offset + k, int(k == n - 1))
        for region, offset, n in ranges
        for k in range(n)
    ]


@pytest.mark.parametrize("idle", [0, 0.3])
def test_ranges_of_all_regions_come_out_in_order(idle):
    rng = np.random.default_rng(1)
    ranges = [
        (int(rng.integers(3)), int(rng.integers(800)), int(rng.choice([0, 1, 2, 17, 60])))
        for _ in range(30)
    ]
    beats, _ = run(ranges, idle=idle, n_cycles=1500)
    assert beats == wanted(ranges)


def test_both_ports_together_give_a_beat_a_cycle():
    ranges = [(ROOT if k % 2 else GRADIENT, 16 * k, 48) for k in range(20)]
    beats, times = run(ranges, idle=0, n_cycles=1200)
    assert beats == wanted(ranges)
    assert times[-1] - times[0] < 1.05 * 20 * 48
