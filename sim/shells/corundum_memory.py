"""What stands around a card with memory in Corundum's block: port 0, registers, DDR or HBM."""

import logging

import cocotb
from cocotb.clock import Clock
from cocotb.triggers import ClockCycles
from cocotbext.axi import AxiBus, AxiRam

from ..frame import frames as makers
from ..offload import host_round
from . import bench as shell_bench
from .corundum import HOST_TAG

PERIODS = (6.2, 14.6)  # ns of the memories' clocks; the core's is 10


class Memory:
    """A memory of the card over its channels, bursts of 16 beats in turns."""

    def __init__(self, rams):
        self.rams, self.burst = rams, 16 * host_round.CARD.n_bytes

    def _places(self, address, n_bytes):
        for a in range(address, address + n_bytes, self.burst):  # addresses are those of bursts
            number = a // self.burst
            yield self.rams[number % len(self.rams)], number // len(self.rams) * self.burst

    def write(self, address, octets):
        for k, (ram, at) in enumerate(self._places(address, len(octets))):
            ram.write(at, octets[k * self.burst : (k + 1) * self.burst])

    def read(self, address, n_bytes):
        places = list(self._places(address, n_bytes))
        return b"".join(ram.read(at, self.burst) for ram, at in places)[:n_bytes]


class Bench:
    """The block's surroundings: ports, registers, memories that stay in reset, noise elsewhere."""

    def __init__(self, dut, rng, n_channels):
        self.dut, self.rng = dut, rng
        channels = range(n_channels)
        cocotb.start_soon(Clock(dut.clk, 10, "ns").start())
        clocks, self.resets = (
            [getattr(dut, f"ram{k}_{what}") for k in channels] for what in ("clk", "rst")
        )
        for k, clock in enumerate(clocks):
            cocotb.start_soon(Clock(clock, PERIODS[k % 2], "ns").start())
        self.ports = {
            name: make(dut, f"p0_{name}", dut.clk, dut.rst)
            for make, pair in ((shell_bench.source, ("host_tx", "mac_rx")),
                               (shell_bench.sink, ("mac_tx", "host_rx")))
            for name in pair
        }  # fmt: skip
        rams = []
        for k in channels:
            bus = AxiBus.from_prefix(dut, f"ram{k}")
            rams.append(AxiRam(bus, clocks[k], self.resets[k], size=host_round.MEMORY_BYTES))
            for side in (rams[k].write_if, rams[k].read_if):
                side.log.setLevel(logging.WARNING)
        half = max(1, len(rams) // 2)
        self.memories = Memory(rams[:half]), Memory(rams[-half:])
        self.access = shell_bench.registers(dut, "s_axil", dut.clk, dut.rst)

    async def reset(self):
        """Reset all; memories stay in it."""
        dut = self.dut
        dut.noise.value = int(self.rng.integers(1 << 32))
        dut.p0_mac_cpl_valid.value = 0
        for reset in (dut.rst, *self.resets):
            reset.value = 1
        await ClockCycles(dut.clk, 8)
        dut.rst.value = 0

    async def start_memories(self):
        """One after the other, the last one first."""
        for reset in reversed(self.resets):  # what the card has wanted so far has waited
            reset.value = 0
            await ClockCycles(self.dut.clk, 100)

    def foreign(self):
        """Frames of others: (from the host, with tags; from the MAC, with time stamps)."""
        frames = list(makers.foreign_frames(self.rng).values())
        sent = [(f, k == 1, HOST_TAG | k) for k, f in enumerate(frames)]
        stamps = [int(self.rng.integers(1 << 62)) << 34 | k for k in range(len(frames))]
        return sent, [(f, k == 2, stamps[k]) for k, f in enumerate(frames)]
