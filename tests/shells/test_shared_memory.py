"""Ports of a card that share a channel: beats that come in an order of their own."""

import pytest
from amaranth.hdl import Module
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out
from amaranth.sim import Simulator
from gradnic.hdl.axi.axi4 import ReadPort, WritePort
from gradnic.hdl.shells.common.shared_memory import SharedMemory

N_BYTES = 16
PORTS = ("gradient_read", "gradient_write", "landing_read", "landing_write")
BURST = 16  # beats


class Ports(wiring.Component):
    """Stands for a card: its memory ports are the bench's."""

    def __init__(self):
        kinds = {name: (ReadPort if name.endswith("read") else WritePort)(N_BYTES, 32)
                 for name in PORTS}  # fmt: skip
        outs = {name: Out(port) for name, port in kinds.items()}
        super().__init__(outs | {f"bench_{name}": In(port) for name, port in kinds.items()})

    def elaborate(self, platform):
        m = Module()
        for name in PORTS:
            inner, outer = getattr(self, f"bench_{name}"), getattr(self, name)
            wiring.connect(m, wiring.flipped(inner), wiring.flipped(outer))
        return m


@pytest.mark.parametrize("first", ["gradient_write", "landing_write"])
def test_beats_of_one_port_may_come_behind_those_of_another(first):
    """As packets arrive: all beats of one port, then all of the other, whose address was first."""
    top = SharedMemory(Ports(), one=True)
    second = next(name for name in PORTS if name.endswith("write") and name != first)
    simulator = Simulator(top)
    simulator.add_clock(1e-8)
    n_bursts = {first: 3, second: 2}
    beats = [(name, k * BURST + j) for name in (first, second) for k in range(n_bursts[name])
             for j in range(BURST)]  # fmt: skip
    written, addresses, answered = [], [], dict.fromkeys(n_bursts, 0)

    async def bench(ctx):
        port, asked, at = top.memory_write, dict.fromkeys(n_bursts, 0), 0
        base = {name: k << 20 for k, name in enumerate(n_bursts)}
        ctx.set(port.awready, 1)
        ctx.set(port.wready, 1)
        for _ in range(40 * BURST):
            name, number = beats[at] if at < len(beats) else (None, 0)
            for other in n_bursts:
                mine = getattr(top, f"bench_{other}")
                ctx.set(mine.awvalid, asked[other] < n_bursts[other])
                ctx.set(mine.awaddr, base[other] + asked[other] * BURST * N_BYTES)
                ctx.set(mine.awlen, BURST - 1)
                ctx.set(mine.wvalid, other == name)
                ctx.set(mine.wdata, base[other] + number)
                ctx.set(mine.wlast, number % BURST == BURST - 1)
                ctx.set(mine.bready, 1)
            done = sum(answered.values())
            ctx.set(port.bvalid, len(written) >= (done + 1) * BURST)
            for other in n_bursts:
                mine = getattr(top, f"bench_{other}")
                asked[other] += ctx.get(mine.awvalid) and ctx.get(mine.awready)
                at += ctx.get(mine.wvalid) and ctx.get(mine.wready)
                answered[other] += ctx.get(mine.bvalid) and ctx.get(mine.bready)
            if ctx.get(port.awvalid):
                addresses.append(ctx.get(port.awaddr))
            if ctx.get(port.wvalid):
                written.append(ctx.get(port.wdata))
            await ctx.tick()

    simulator.add_testbench(bench)
    simulator.run()
    assert answered == n_bursts
    assert len(addresses) == sum(n_bursts.values())
    for number, address in enumerate(addresses):  # each burst behind its address, whole
        k, within = divmod(address, 1 << 20)
        start = (k << 20) + within // N_BYTES
        assert written[number * BURST :][:BURST] == list(range(start, start + BURST))
