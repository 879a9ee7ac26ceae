"""Cards with jobs in Corundum's application block: by registers, and by frames of their host."""

import itertools

import cocotb
import numpy as np
import pytest
from cocotb.task import bridge
from cocotb.triggers import FallingEdge, RisingEdge
from cocotbext.axi import AxiStreamFrame
from gradnic.hdl.shells.corundum.wrapper import Corundum
from gradnic.sim.engine import drivers, runner
from gradnic.sim.offload import host_jobs
from gradnic.sim.shells import jobs
from gradnic.sim.shells.corundum import HOST_TAG, shell
from gradnic.sim.shells.corundum_memory import Bench

CPL = ("valid", "tag", "ts")  # a completion


class Shell:
    """Frames at port 0 with their tags, and the completions of all that the host has sent."""

    def __init__(self, bench, host):
        self.dut, self.ports = bench.dut, bench.ports
        self.sent, self.left, self.completed = [], [], []  # tags: of the host, at the MAC, told
        for name in CPL:
            getattr(self.dut, f"p0_mac_cpl_{name}").value = 0
        cocotb.start_soon(self._completions())
        cocotb.start_soon(self._mac())
        send = {"host_tx": self._from_host, "mac_rx": self._from_mac}
        receive = {"mac_tx": self._to_mac, "host_rx": self._to_host}
        self.opposite = jobs.Opposite(host, bench.rng, self.dut.clk, send, receive)

    async def _from_host(self, octets):
        tag = HOST_TAG | len(self.sent) & 0x1FF
        self.sent.append(tag)
        await self.ports["host_tx"].send(AxiStreamFrame(octets, tuser=tag << 1))

    async def _from_mac(self, octets):
        await self.ports["mac_rx"].send(AxiStreamFrame(octets, tuser=77 << 1))

    async def _to_mac(self):
        frame = await self.ports["mac_tx"].recv()
        (user,) = {*frame.tuser} if isinstance(frame.tuser, list) else (frame.tuser,)
        assert not user & 1
        self.left.append(user >> 1)
        return bytes(frame.tdata)

    async def _to_host(self):
        frame = await self.ports["host_rx"].recv()
        return bytes(frame.tdata)

    async def _mac(self):
        """Tell of each frame that has left, in order."""
        dut, wires = self.dut, {name: getattr(self.dut, f"p0_mac_cpl_{name}") for name in CPL}
        for n in itertools.count():
            while n >= len(self.left):
                await RisingEdge(dut.clk)
            wires["tag"].value, wires["ts"].value, wires["valid"].value = self.left[n], n + 1, 1
            await FallingEdge(dut.clk)
            while dut.p0_mac_cpl_ready.value == 0:
                await FallingEdge(dut.clk)
            await RisingEdge(dut.clk)
            wires["valid"].value = 0

    async def _completions(self):
        """Note what the host is told: 1 of 4 cycles it does not listen."""
        dut = self.dut
        for k in itertools.count():
            await RisingEdge(dut.clk)
            ready = k % 4 != 0
            dut.p0_host_cpl_ready.value = int(ready)
            await FallingEdge(dut.clk)
            if ready and dut.p0_host_cpl_valid.value == 1:
                self.completed.append(dut.p0_host_cpl_tag.value.to_unsigned())

    def check(self):
        """Every frame of the host was told of once, whoever took it."""
        own = sorted(tag for tag in self.completed if tag & HOST_TAG)
        assert own == sorted(self.sent)
        assert len(self.completed) == len(own) + sum(not tag & HOST_TAG for tag in self.left)


@cocotb.test()
async def jobs_in_the_block(dut):
    """Posted by registers; memory comes out of reset in mid-job."""
    rng, options = np.random.default_rng(cocotb.RANDOM_SEED), drivers.options()
    bench = Bench(dut, rng, options["channels"])
    host = host_jobs.Jobs(rng, thc=options["thc"])
    around = Shell(bench, host)
    driver = host.driver(bench.access, clock=jobs.now)
    await bench.reset()
    for job, (mine, _) in zip(host.jobs, host.gradients, strict=True):
        bench.memories[0].write(job.source, mine.tobytes())
    await bridge(host.prepare)(driver)
    memory = cocotb.start_soon(bench.start_memories())
    await around.opposite.run(driver, bench.memories[0].read)
    assert memory.done()
    around.check()
    assert dut.rests.value == 1


@cocotb.test()
async def jobs_by_frames(dut):
    """From reset on; the register bus rests."""
    rng = np.random.default_rng(cocotb.RANDOM_SEED)
    bench = Bench(dut, rng, drivers.options()["channels"])
    around = Shell(bench, host_jobs.Jobs(rng))
    await bench.reset()
    await bench.start_memories()
    await jobs.by_frames(around.opposite)
    around.check()
    assert dut.rests.value == 1


def simulate(test, card, ram, channels, **options):
    text = Corundum(ram=ram, channels=channels).files(card)["mqnic_app_block.v"]
    text += shell("sync", 2, 512, channels=channels, ram=ram)
    options |= {"channels": channels}
    runner.simulate(None, __file__, tests=[test], netlist=text, options=options)


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::DeprecationWarning:cocotbext")
@pytest.mark.parametrize(
    ("ram", "channels", "thc"),
    [("hbm", 1, False), ("ddr", 2, False), ("ddr", 4, False), ("hbm", 1, True)],
)
def test_jobs_in_the_block(ram, channels, thc):
    """All memory ports at one channel, 15 with THC and feedback; or landing areas apart."""
    card = host_jobs.THC_CARD if thc else host_jobs.CARD
    simulate("jobs_in_the_block", card, ram, channels, thc=thc)


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::DeprecationWarning:cocotbext")
def test_jobs_by_frames():
    simulate("jobs_by_frames", host_jobs.HOST_CARD, "ddr", 2)
