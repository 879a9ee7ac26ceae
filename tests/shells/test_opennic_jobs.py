"""A card with jobs in OpenNIC's box: by registers and their window on memory, and by frames alone.

At 128 bits a beat, which simulates faster than the shell's 512.
"""

from dataclasses import replace

import cocotb
import numpy as np
import pytest
from cocotb.task import bridge
from cocotbext.axi import AxiStreamFrame
from gradnic.hdl.shells.common import wide_ram
from gradnic.hdl.shells.opennic.wrapper import BASE, OpenNic
from gradnic.hdl.top import verilog
from gradnic.sim.engine import drivers, runner
from gradnic.sim.offload import host_jobs
from gradnic.sim.shells import jobs
from gradnic.sim.shells.opennic import Bench, shell

KIB = 64
MAC_PORT, FUNCTION = 1 << 6, 1 << 0  # of tuser_dst: port 0, on its way out and in


class Shell:
    """Frames at port 0; sizes and destinations are right on every beat."""

    def __init__(self, dut, rng, host):
        self.bench = Bench(dut, 1)
        self.ports = self.bench.ports[0]
        self.opposite = jobs.Opposite(
            host, rng, dut.axis_aclk,
            {"host_tx": self._sender("qdma_h2c"), "mac_rx": self._sender("adap_rx_250mhz")},
            {"mac_tx": self._receiver("adap_tx_250mhz", MAC_PORT),
             "host_rx": self._receiver("qdma_c2h", FUNCTION)},
        )  # fmt: skip

    def _sender(self, name):
        async def send(octets):
            user = 0xDEAD << 32 | 7 << 16 | len(octets)
            await self.ports[name].send(AxiStreamFrame(octets, tuser=[user] * len(octets)))

        return send

    def _receiver(self, name, destination):
        async def receive():
            frame = await self.ports[name].recv(compact=False)
            n_bytes = sum(frame.tkeep)
            (user,) = set(frame.tuser)
            assert (user & 0xFFFF, user >> 32) == (n_bytes, destination)
            return bytes(frame.tdata[:n_bytes])

        return receive

    async def reset(self):
        self.bench.dut.quiet.value = 1
        await self.bench.reset()
        self.bench.dut.quiet.value = 0


@cocotb.test()
async def jobs_in_the_box(dut):
    """Gradients go in and sums come out by the window of words."""
    rng = np.random.default_rng(cocotb.RANDOM_SEED)
    host = host_jobs.Jobs(rng)
    around = Shell(dut, rng, host)
    driver = host.driver(around.bench.access, base=BASE, clock=jobs.now)
    store = bridge(driver.memory.store)
    await around.reset()
    for at, octets in jobs.filled(host):
        await store("gradient", at, octets)
    await bridge(host.prepare)(driver)
    await around.opposite.run(driver, lambda at, n: driver.memory.load("gradient", at, n))
    assert await bridge(driver.memory.counters)() == {"outside": 0, "refused": 0}


@cocotb.test()
async def jobs_by_frames(dut):
    rng = np.random.default_rng(cocotb.RANDOM_SEED)
    around = Shell(dut, rng, host_jobs.Jobs(rng, thc=drivers.options()["thc"]))
    await around.reset()
    await jobs.by_frames(around.opposite)


def simulate(test, card, **options):
    text = verilog.convert(OpenNic(memory_kib=KIB).box(card), "gradnic_250mhz")
    text += wide_ram.VERILOG + shell(card.n_bytes, 1)
    runner.simulate(None, __file__, tests=[test], netlist=text, options=options)


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::DeprecationWarning:cocotbext")
def test_jobs_in_the_box():
    simulate("jobs_in_the_box", host_jobs.CARD)


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::DeprecationWarning:cocotbext")
@pytest.mark.parametrize("thc", [False, True])
def test_jobs_by_frames(thc):
    """With THC and feedback, too: words through the window would take their time."""
    card = host_jobs.THC_CARD if thc else host_jobs.CARD
    simulate("jobs_by_frames", replace(card, host=1), thc=thc)
