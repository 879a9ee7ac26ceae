"""The tap at a MAC that goes away: every access to its registers is answered, and rightly."""

import numpy as np
import pytest
from amaranth.hdl import Module
from amaranth.lib import stream, wiring
from amaranth.lib.wiring import In, Out
from amaranth.sim import Simulator
from gradnic.hdl.axi.axis import Lite
from gradnic.hdl.axi.register_bank import RegisterBank
from gradnic.hdl.shells.common.direct_tap import DirectTap
from gradnic.hdl.stream.beats import FrameBeat
from gradnic.sim.engine import stimulus

from gradnic.interface import inline

CODEC = inline.REGISTERS["codec"].offset
RESET, WRITTEN = 117, 0x7A
PATIENCE = 30  # cycles for an access
CYCLES = 6000


class Wires(wiring.Component):
    """A card that passes all frames, with the registers of one."""

    def __init__(self):
        frames = stream.Signature(FrameBeat(4))
        self.bank = RegisterBank(inline.REGISTERS)
        ways = {"host_tx": In, "mac_tx": Out, "mac_rx": In, "host_rx": Out}
        bus = In(Lite(self.bank.bus.signature.address_width))
        super().__init__({name: way(frames) for name, way in ways.items()} | {"bus": bus})

    def elaborate(self, platform):
        m = Module()
        m.submodules.bank = self.bank
        wiring.connect(m, wiring.flipped(self.bus), self.bank.bus)
        for i, o in ((self.host_tx, self.mac_tx), (self.mac_rx, self.host_rx)):
            wiring.connect(m, wiring.flipped(i), wiring.flipped(o))
        return m


@pytest.mark.parametrize("seed", range(3))
def test_accesses_while_the_mac_comes_and_goes(seed):
    """Resets of 1 cycle to 60 at any time: an answer each, 0 or what the register holds."""
    rng = np.random.default_rng([stimulus.master_seed(), 7, seed])
    tap = DirectTap(Wires(), 4)
    bus, found = tap.bus, []

    async def run(ctx):
        left, waits, quiet, kind, since = 0, 3, 0, None, 0
        held = RESET  # by the register; None: one or the other
        for _ in range(CYCLES):
            taken = {c: ctx.get(getattr(bus, f"{c}valid") & getattr(bus, f"{c}ready"))
                     for c in ("aw", "w", "ar", "b", "r")}  # fmt: skip
            word = ctx.get(bus.rdata)
            ctx.set(tap.clk, 1)
            await ctx.delay(2e-9)
            for c in ("aw", "w", "ar"):
                if taken[c]:
                    ctx.set(getattr(bus, f"{c}valid"), 0)
            since += 1
            assert kind == "write" or not taken["b"], "an answer to nothing"
            assert kind == "read" or not taken["r"], "an answer to nothing"
            if taken["b"] or taken["r"]:
                alone = quiet > PATIENCE  # no reset was near
                if kind == "read":
                    assert word in ((0, RESET, WRITTEN) if not alone or held is None else (held,))
                    found.append(word)
                else:
                    held = WRITTEN if alone else None
                kind, waits = None, int(rng.integers(0, 12))
            assert kind is None or since < PATIENCE, f"{kind} without an answer"
            if kind is None and waits == 0:
                kind, since = str(rng.choice(["read", "write"])), 0
                for c in ("ar",) if kind == "read" else ("aw", "w"):
                    ctx.set(getattr(bus, f"{c}valid"), 1)
            waits = max(0, waits - 1)
            if left:
                left -= 1
                quiet, held = 0, RESET
                if not left:
                    ctx.set(tap.rx_rst, 0)
                    ctx.set(tap.tx_rst, 0)
            else:
                quiet += 1
                if rng.random() < 0.01:
                    left = int(rng.choice([1, 1, 2, 3, 5, 60]))
                    ctx.set(tap.rx_rst if rng.random() < 0.5 else tap.tx_rst, 1)
            ctx.set(tap.clk, 0)
            await ctx.delay(2e-9)

    def ticking(clock, half):
        async def tick(ctx):
            while True:
                ctx.set(clock, 1)
                await ctx.delay(half)
                ctx.set(clock, 0)
                await ctx.delay(half)

        return tick

    async def settings(ctx):
        for address in (bus.awaddr, bus.araddr):
            ctx.set(address, CODEC)
        ctx.set(bus.wdata, WRITTEN)
        ctx.set(bus.wstrb, 15)
        ctx.set(bus.bready, 1)
        ctx.set(bus.rready, 1)

    simulator = Simulator(tap)
    simulator.add_testbench(settings)
    simulator.add_testbench(run)
    simulator.add_testbench(ticking(tap.tx_clk, 1.6e-9), background=True)
    simulator.add_testbench(ticking(tap.rx_clk, 3.1e-9), background=True)
    simulator.run()
    assert {0, RESET, WRITTEN} == set(found)
