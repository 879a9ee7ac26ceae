"""A register bus of two managers: whose answers go where, whatever each does with its channels."""

import pytest
from amaranth.hdl import Module
from amaranth.lib import wiring
from amaranth.sim import Simulator
from gradnic.hdl.axi.lite_share import LiteShare
from gradnic.hdl.axi.register_bank import RegisterBank
from gradnic.sim.engine.amaranth_run import lite_read
from gradnic.sim.offload.host_bench import MAP


@pytest.mark.parametrize("late", [0, 1, 5, 30])
@pytest.mark.parametrize("begin", [0, 3, 6, 9, 12])
def test_writes_that_follow_each_other_keep_their_answers(late, begin):
    """Two writes of the first, which takes answers late; a read of the second comes in between."""
    m = Module()
    m.submodules.share = share = LiteShare(MAP.address_width)
    m.submodules.bank = bank = RegisterBank(MAP)
    wiring.connect(m, share.o, bank.bus)
    first, second, got = share.first, share.second, {"first": 0, "second": [], "strays": 0}

    async def writer(ctx):
        for k in range(2):
            ctx.set(first.awaddr, 4 * k)
            ctx.set(first.wdata, 100 + k)
            ctx.set(first.wstrb, 15)
            left = {"aw": first.awready, "w": first.wready}
            for name in left:
                ctx.set(getattr(first, f"{name}valid"), 1)
            while left:
                taken = [name for name, ready in left.items() if ctx.get(ready)]
                await ctx.tick()
                for name in taken:
                    ctx.set(getattr(first, f"{name}valid"), 0)
                    del left[name]

    async def answers(ctx):
        for cycle in range(200):
            ctx.set(first.bready, cycle >= late)
            got["first"] += ctx.get(first.bvalid & first.bready)
            got["strays"] += ctx.get(second.bvalid | first.rvalid)
            await ctx.tick()

    async def reader(ctx):
        await ctx.tick().repeat(1 + begin)
        for k in range(3):
            got["second"].append(await lite_read(ctx, second, 4 * (k % 2)))

    simulator = Simulator(m)
    simulator.add_clock(1e-6)
    for process in (writer, answers, reader):
        simulator.add_testbench(process)
    simulator.run_until(250e-6)
    assert (got["first"], got["strays"], len(got["second"])) == (2, 0, 3)
    assert set(got["second"]) <= {0, 100, 101}
