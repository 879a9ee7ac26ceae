"""A small part in Amaranth's own simulator: nothing is compiled."""

from amaranth.hdl import Module
from amaranth.sim import Simulator


def simulate(part, bench, *beside):
    """Run `part`, whose clock is of domain ``sync``, until `bench` has ended.

    part : component. bench, beside : async functions of a simulator's context, see
    `amaranth.sim.Simulator.add_testbench`; nobody waits for those of `beside`.
    """
    m = Module()
    m.submodules.part = part
    simulator = Simulator(m)
    simulator.add_clock(1e-8)
    simulator.add_testbench(bench)
    for more in beside:
        simulator.add_testbench(more, background=True)
    simulator.run()


async def lite_read(ctx, bus, address):
    """A word of an AXI4-Lite port that nobody else reads."""
    ctx.set(bus.araddr, address)
    ctx.set(bus.arvalid, 1)
    ctx.set(bus.rready, 1)
    await ctx.tick().until(bus.arready)
    ctx.set(bus.arvalid, 0)
    (word,) = await ctx.tick().sample(bus.rdata).until(bus.rvalid)
    return word
