"""A card with jobs on LiteEth's streams, reached by registers, and by frames of its host alone."""

import logging
from functools import cache

import cocotb
import numpy as np
import pytest
from cocotb.clock import Clock
from cocotb.queue import Queue
from cocotb.task import bridge
from cocotb.triggers import ClockCycles
from cocotbext.axi import AxiBus, AxiRam, AxiReadBus, AxiWriteBus
from gradnic.hdl.shells.liteeth.wrapper import STREAMS, LiteEth
from gradnic.sim.engine import drivers, runner
from gradnic.sim.offload import host_jobs
from gradnic.sim.shells import bench as shell_bench
from gradnic.sim.shells import jobs
from gradnic.sim.shells.liteeth import Endpoint, never_stalls


class Bench:
    """Streams, the two memories, registers."""

    def __init__(self, dut, host, rng):
        self.dut, self.rng, self.queues = dut, rng, {}
        cocotb.start_soon(Clock(dut.clk, 8, "ns").start())
        self.ends = {name: Endpoint(dut, name, "_") for name in STREAMS}
        for name, enters in STREAMS.items():
            (self.ends[name].valid if enters else self.ends[name].ready).value = 0
        self.memories = []
        for name in ("gradient", "landing"):
            write = AxiWriteBus.from_prefix(dut, f"{name}_write")
            read = AxiReadBus.from_prefix(dut, f"{name}_read")
            bus, size = AxiBus(write, read), host_jobs.MEMORY_BYTES
            self.memories.append(AxiRam(bus, dut.clk, dut.rst, size=size))
            for side in (self.memories[-1].write_if, self.memories[-1].read_if):
                side.log.setLevel(logging.WARNING)
        self.access = shell_bench.registers(dut, "bus", dut.clk, dut.rst)
        self.opposite = jobs.Opposite(
            host, rng, dut.clk,
            {"host_tx": self._sender("host_tx", 0.9), "mac_rx": self._sender("mac_rx", 1.0)},
            {"mac_tx": self._receiver("mac_tx", False), "host_rx": self._receiver("host_rx", True)},
        )  # fmt: skip

    def _sender(self, name, duty):
        queue = Queue()

        async def play():
            while True:
                await self.ends[name].send([(await queue.get(), False)], self.rng, duty=duty)

        cocotb.start_soon(play())
        return queue.put

    def _receiver(self, name, gaps):
        async def receive():
            ((frame, bad),) = await self.ends[name].receive(1, self.rng, gaps=gaps)
            assert not bad
            return frame

        return receive

    async def reset(self):
        dut = self.dut
        dut.rst.value = 1
        await ClockCycles(dut.clk, 4)
        dut.rst.value = 0
        await ClockCycles(dut.clk, 2)


@cocotb.test()
async def jobs_on_the_bridge(dut):
    rng = np.random.default_rng(cocotb.RANDOM_SEED)
    host = host_jobs.Jobs(rng, thc=drivers.options()["thc"])
    bench = Bench(dut, host, rng)
    driver, memory = host.driver(bench.access, clock=jobs.now), bench.memories[0]
    await bench.reset()
    for job, (mine, _) in zip(host.jobs, host.gradients, strict=True):
        memory.write(job.source, mine.tobytes())
    await bridge(host.prepare)(driver)
    always = cocotb.start_soon(never_stalls(bench.ends["mac_rx"]))
    await bench.opposite.run(driver, memory.read)
    assert not always.done()


@cocotb.test()
async def jobs_by_frames(dut):
    rng = np.random.default_rng(cocotb.RANDOM_SEED)
    bench = Bench(dut, host_jobs.Jobs(rng), rng)
    await bench.reset()
    always = cocotb.start_soon(never_stalls(bench.ends["mac_rx"]))
    await jobs.by_frames(bench.opposite)
    assert not always.done()


@cache
def written(card):
    text = LiteEth(64).files(card)["gradnic_liteeth.v"]
    return text.replace("module gradnic_liteeth(", "module top(")


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::DeprecationWarning:cocotbext")
@pytest.mark.parametrize("thc", [False, True])
def test_jobs_on_the_bridge(thc):
    """Two jobs of 300 and 17 floats; of 1100 with THC and feedback."""
    card = host_jobs.THC_CARD if thc else host_jobs.CARD
    tests, options = ["jobs_on_the_bridge"], {"thc": thc}
    runner.simulate(None, __file__, tests=tests, netlist=written(card), options=options)


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::DeprecationWarning:cocotbext")
def test_jobs_by_frames():
    card = host_jobs.HOST_CARD
    runner.simulate(None, __file__, tests=["jobs_by_frames"], netlist=written(card))
