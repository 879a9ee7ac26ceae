"""Cards with jobs in Corundum's application block: by registers, and by frames of their host."""

import itertools

import cocotb
import numpy as np
import pytest
from cocotb.task import bridge
from cocotb.triggers import FallingEdge, RisingEdge
from gradnic.hdl.shells.corundum.wrapper import Corundum
from gradnic.sim.engine import drivers, runner
from gradnic.sim.offload import host_jobs
from gradnic.sim.shells import bench as shell_bench
from gradnic.sim.shells import jobs
from gradnic.sim.shells.corundum import HOST_TAG, shell
from gradnic.sim.shells.corundum_memory import Bench

CPL = ("valid", "tag", "ts")  # a completion


class Shell:
    """Frames at port 0 with their marks, tags and time stamps, and the completions of all that the
    host has sent.
    """

    def __init__(self, bench, host):
        self.dut, self.ports, self.rng = bench.dut, bench.ports, bench.rng
        self.sent, self.left = [], []  # (frame, mark, tag): of the host, at the MAC
        self.arrived, self.passed_on = [], []  # (frame, mark, stamp): of the MAC, at the host
        self.completed = []  # (tag, stamp)
        for name in CPL:
            getattr(self.dut, f"p0_mac_cpl_{name}").value = 0
        cocotb.start_soon(self._completions())
        cocotb.start_soon(self._mac())
        send = {"host_tx": self._from_host, "mac_rx": self._from_mac}
        receive = {"mac_tx": self._to_mac, "host_rx": self._to_host}
        self.opposite = jobs.Opposite(host, bench.rng, self.dut.clk, send, receive)

    def _marked(self, octets, k):
        """Whether it is the frame of others that is marked bad on this way."""
        return octets == self.opposite.foreign[k]

    async def _from_host(self, octets):
        self.sent.append((octets, self._marked(octets, 1), HOST_TAG | len(self.sent) & 0x1FF))
        await shell_bench.send(self.ports["host_tx"], self.sent[-1:])

    async def _from_mac(self, octets):
        stamp = int(self.rng.integers(1 << 62)) << 34 | len(self.arrived)
        self.arrived.append((octets, self._marked(octets, 2), stamp))
        await shell_bench.send(self.ports["mac_rx"], self.arrived[-1:])

    async def _to_mac(self):
        self.left.append(await shell_bench.next_frame(self.ports["mac_tx"]))
        return self.left[-1][0]

    async def _to_host(self):
        self.passed_on.append(await shell_bench.next_frame(self.ports["host_rx"]))
        return self.passed_on[-1][0]

    @staticmethod
    def _stamp(n):
        """Of the MAC's completion `n`."""
        return n + 1 << 80 | n + 1

    async def _mac(self):
        """Tell of each frame that has left, in order."""
        dut, wires = self.dut, {name: getattr(self.dut, f"p0_mac_cpl_{name}") for name in CPL}
        for n in itertools.count():
            while n >= len(self.left):
                await RisingEdge(dut.clk)
            wires["tag"].value, wires["ts"].value = self.left[n][2], self._stamp(n)
            wires["valid"].value = 1
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
                told = (getattr(dut, f"p0_host_cpl_{name}").value for name in ("tag", "ts"))
                self.completed.append(tuple(value.to_unsigned() for value in told))

    def check(self):
        """Frames of others are as they came, marks and side bands, too, in order; the card's have
        none; and the host was told once of each of its frames: by the MAC, with its time stamp, or
        by the card that took it, with 0.
        """
        foreign = self.opposite.foreign
        taken = [jobs.is_taken(octets) for octets, _, _ in self.sent]
        assert [one for one in self.left if one[2] & HOST_TAG] == [
            one for one, ends in zip(self.sent, taken, strict=True) if not ends
        ]
        assert [one for one in self.passed_on if one[0] in foreign] == [
            one for one in self.arrived if one[0] in foreign
        ]
        own = [one for one in self.left if not one[2] & HOST_TAG]
        own += [one for one in self.passed_on if one[0] not in foreign]
        assert {(bad, side) for _, bad, side in own} == {(False, 0)}
        assert [one for one in self.completed if not one[1]] == [
            (tag, 0) for (_, _, tag), ends in zip(self.sent, taken, strict=True) if ends
        ]
        assert [one for one in self.completed if one[1]] == [
            (tag, self._stamp(n)) for n, (_, _, tag) in enumerate(self.left)
        ]
        assert sum(bad for _, bad, _ in self.left + self.passed_on) == 2
        assert self.ports["mac_tx"].empty()
        assert self.ports["host_rx"].empty()


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
