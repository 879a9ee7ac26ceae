"""The card as others see it: AXI4-Stream and AXI4-Lite, driven by cocotbext-axi on Icarus.

One bench to read: a host sends gradients and other traffic, a wire loops the MAC back, and the host
gets the same frames, coded once on the way. Four-state, so that anything unknown shows.
"""

import logging

import cocotb
import numpy as np
import pytest
from cocotb.clock import Clock
from cocotb.triggers import ClockCycles, RisingEdge, with_timeout
from cocotbext.axi import (
    AxiLiteBus,
    AxiLiteMaster,
    AxiStreamBus,
    AxiStreamFrame,
    AxiStreamSink,
    AxiStreamSource,
)
from gradnic.hdl.axi.ports import Top
from gradnic.hdl.inline.card import InlineCard
from gradnic.hdl.top.catalog import TOPS
from gradnic.models.inline.card import InlineCard as GoldenCard
from gradnic.sim.engine.runner import simulate
from gradnic.sim.frame import frames as makers

from gradnic.interface import params
from gradnic.interface.inline import COUNTERS, REGISTERS

META_WIDTH = 16


class Bench:
    """Clock, reset, register access, and a wire from the MAC side back to it."""

    def __init__(self, dut):
        self.dut = dut
        self.n_bytes = len(dut.s_axis_host_tx__tkeep)
        cocotb.start_soon(Clock(dut.clk, 10, "ns").start())
        self.host = AxiStreamSource(self._axis("s_axis_host_tx"), dut.clk, dut.rst)
        self.to_mac = AxiStreamSink(self._axis("m_axis_mac_tx"), dut.clk, dut.rst)
        self.from_mac = AxiStreamSource(self._axis("s_axis_mac_rx"), dut.clk, dut.rst)
        self.to_host = AxiStreamSink(self._axis("m_axis_host_rx"), dut.clk, dut.rst)
        lite = AxiLiteBus.from_prefix(dut, "s_axil", bus_separator="__")
        self.registers = AxiLiteMaster(lite, dut.clk, dut.rst)
        for port in (self.host, self.to_mac, self.from_mac, self.to_host):
            port.log.setLevel(logging.WARNING)
        for channel in (self.registers.write_if, self.registers.read_if):
            channel.log.setLevel(logging.WARNING)

    def _axis(self, name):
        return AxiStreamBus.from_prefix(self.dut, name, bus_separator="__")

    async def start(self, settings):
        """Reset, then write the settings."""
        self.dut.rst.value = 1
        await ClockCycles(self.dut.clk, 4)
        self.dut.rst.value = 0
        await RisingEdge(self.dut.clk)
        for name, word in settings.words().items():
            await self.registers.write_dword(REGISTERS[name].offset, word)

    async def counters(self):
        """{name: value} of all counters."""
        return {name: await self.registers.read_dword(REGISTERS[name].offset) for name in COUNTERS}

    async def send(self, source, frames):
        """Queue frames: (bytes, bad mark); the side band numbers them."""
        for number, (frame, bad) in enumerate(frames):
            n_beats = -(-len(frame) // self.n_bytes)
            user = [number << 1] * self.n_bytes * (n_beats - 1)
            user += [number << 1 | int(bad)] * (len(frame) - len(user))
            await source.send(AxiStreamFrame(frame, tuser=user))

    async def receive(self, sink, n_frames):
        """{number: (bytes, bad)} and the order of numbers."""
        frames = {}
        for _ in range(n_frames):
            frame = await with_timeout(sink.recv(compact=False), 400, "us")
            keep = list(frame.tkeep)
            octets = bytes(frame.tdata[: sum(keep)])
            user = frame.tuser[-1]
            frames[user >> 1] = octets, bool(user & 1)
        return frames


def pauses(rng, share):
    while True:
        yield bool(rng.random() < share)


@cocotb.test()
@cocotb.parametrize(share=[0, 0.4])
async def loop_through_a_wire(dut, share):
    rng = np.random.default_rng(cocotb.RANDOM_SEED)
    bench, golden = Bench(dut), GoldenCard(makers.SETTINGS)
    await bench.start(makers.SETTINGS)
    if share:
        for port in (bench.host, bench.to_mac, bench.to_host):
            port.set_pause_generator(pauses(rng, share))
    frames = [*makers.foreign_frames(rng).values(), *makers.own_frames(rng, 24).values()]
    frames = [(frames[k], bool(rng.random() < 0.1)) for k in rng.permutation(len(frames))]
    await bench.send(bench.host, frames)
    sent = await bench.receive(bench.to_mac, len(frames))
    wanted = {number: golden.transmit(*frame) for number, frame in enumerate(frames)}
    assert sent == wanted

    back = [wanted[number] for number in range(len(frames))]
    restored = {n: golden.receive(*frame) for n, frame in enumerate(back)}
    restored = {n: frame for n, frame in restored.items() if frame is not None}
    await bench.send(bench.from_mac, back)
    assert await bench.receive(bench.to_host, len(restored)) == restored
    await ClockCycles(dut.clk, 100)
    assert bench.to_mac.empty()
    assert bench.to_host.empty()
    assert await bench.counters() == golden.counters


@cocotb.test()
async def paper_mode_is_off_after_reset(dut):
    bench = Bench(dut)
    frame = makers.paper_frame(np.zeros(40))
    await bench.start(makers.InlineSettings())
    await bench.send(bench.host, [(frame, False)])
    assert await bench.receive(bench.to_mac, 1) == {0: (frame, False)}
    assert (await bench.counters())["tx_foreign"] == 1


@pytest.mark.filterwarnings("ignore::DeprecationWarning:cocotbext")
@pytest.mark.parametrize("n_lanes", [4, pytest.param(16, marks=pytest.mark.slow)])
def test_card_on_axi(n_lanes):
    card = InlineCard(n_lanes, meta_width=META_WIDTH)
    simulate(Top(card, TOPS[params.Inline].members), __file__)
