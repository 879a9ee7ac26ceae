"""The offload card as a host sees it: a round over AXI, driven by its driver, on Icarus."""

import logging
from types import SimpleNamespace

import cocotb
import numpy as np
import pytest
from cocotb.clock import Clock
from cocotb.handle import Force, Release
from cocotb.triggers import ClockCycles, RisingEdge, with_timeout
from cocotbext.axi import (
    AxiLiteBus,
    AxiLiteMaster,
    AxiRamRead,
    AxiRamWrite,
    AxiReadBus,
    AxiStreamBus,
    AxiStreamFrame,
    AxiStreamSink,
    AxiStreamSource,
    AxiWriteBus,
)
from gradnic.hdl.top import catalog as tops
from gradnic.models.frame.ipv4 import gradnic_frame
from gradnic.sim.engine.runner import simulate
from gradnic.sim.frame import frames as makers
from gradnic.sim.offload.recorder import Recorder

from gradnic.host.offload_driver import OffloadDriver
from gradnic.interface import params
from gradnic.interface.formats import GRADNIC, Op
from gradnic.interface.offload import Subtype
from gradnic.interface.schedule_table import REDUCE, ROW, Layout

CARD = params.Offload(n_bytes=16, n_rows=16, n_chunks=4, n_packets=64, n_nodes=4)
N = 300  # elements
N_PACKETS = 11  # of 32 elements at most: chunks of 80 have 3, the last one, of 60, has 2
UNIT, LONGEST = 16, 352  # elements: what sizes count in, and of a packet
GRADIENT, RESULT = 0x1000, 0x4000
OWN = SimpleNamespace(mac=0x020000000001, ip=0x0A000001, udp_port=29440)
OTHER = SimpleNamespace(mac=0x020000000002, ip=0x0A000002, udp_port=29440)


class Bench:
    """Memories, streams and registers around the card."""

    def __init__(self, dut):
        self.dut = dut
        cocotb.start_soon(Clock(dut.clk, 10, "ns").start())

        def bus(kind, name):
            return kind.from_prefix(dut, name, bus_separator="__")

        self.registers = AxiLiteMaster(bus(AxiLiteBus, "s_axil"), dut.clk, dut.rst)
        self.memory = AxiRamRead(
            bus(AxiReadBus, "m_axi_gradient_read"), dut.clk, dut.rst, size=2**16
        )
        self.writer = AxiRamWrite(
            bus(AxiWriteBus, "m_axi_gradient_write"), dut.clk, dut.rst, mem=self.memory.mem
        )
        self.landing = AxiRamRead(
            bus(AxiReadBus, "m_axi_landing_read"), dut.clk, dut.rst, size=2**16
        )
        self.lander = AxiRamWrite(
            bus(AxiWriteBus, "m_axi_landing_write"), dut.clk, dut.rst, mem=self.landing.mem
        )
        self.streams = {
            name: kind(bus(AxiStreamBus, f"{side}_axis_{name}0"), dut.clk, dut.rst)
            for kind, side, names in (
                (AxiStreamSource, "s", ("host_tx", "mac_rx")),
                (AxiStreamSink, "m", ("mac_tx", "host_rx")),
            )
            for name in names
        }
        logs = [self.registers.write_if, self.registers.read_if, *self.streams.values()]
        for part in (*logs, self.memory, self.writer, self.landing, self.lander):
            part.log.setLevel(logging.WARNING)

    async def play(self, recorder):
        """Write what a driver has written since the last time."""
        log, recorder.log = recorder.log, []
        for address, word in log:
            await self.registers.write_dword(address, word)

    async def until(self, driver, name, **wanted):
        """Poll a register until its fields are as wanted."""
        for _ in range(400):
            word = await self.registers.read_dword(driver.map[name].offset)
            fields = driver._split(name, word)
            if all(fields[key] == value for key, value in wanted.items()):
                return
        raise AssertionError(f"{name} is {fields}, not {wanted}")

    async def frame(self, stream):
        received = await with_timeout(self.streams[stream].recv(), 100, "us")
        return bytes(received.tdata)


def table():
    """Rows that make each chunk final here, all by itself."""
    rows = np.zeros(4, ROW)
    rows["op"], rows["sends"] = REDUCE, -1
    rows["first"] = rows["flow"] = rows["step"] = range(4)
    layout = Layout.for_nodes(CARD.n_nodes, ports=4)
    return layout.pack(rows), layout.row_bytes


@cocotb.test()
async def a_round_over_registers(dut):
    bench, recorder = Bench(dut), Recorder()
    sizes = {"n_ports": CARD.n_ports, "n_ranks": CARD.n_ranks, "n_bytes": CARD.n_bytes}
    driver = OffloadDriver(recorder.read, recorder.write, **sizes)
    dut.rst.value = 1
    await ClockCycles(dut.clk, 4)
    dut.rst.value = 0
    await RisingEdge(dut.clk)
    rng = np.random.default_rng(1)
    x = rng.standard_normal(N).astype(np.float32)
    bench.memory.write(GRADIENT, x.tobytes())
    driver.identify(mac=OWN.mac, ip=OWN.ip, node=1, job=5)
    driver.add_neighbor(0, node=2, port=0, mac=OTHER.mac, ip=OTHER.ip)
    driver.load_rows(*table())
    driver.register("gradient", GRADIENT, N)
    driver.register("result", RESULT, N)
    driver.register("landing", 0, N)
    driver.cut(N, n_chunks=4, chunk=80, packet=32)
    driver.set("schedule", rows=4, peers=0, lockstep=0)
    driver.set("interrupts", mask=1)
    await bench.play(recorder)

    # a PROBE before the round is armed, from a neighbor and from a stranger
    claim = {"op": Op.CONTROL, "p0": Subtype.PROBE, "job": 5, "src": 2, "gen": 9, "set": 1}
    claim |= {"tensor": 3, "seq": 1, "elems": 2, "slot": 7, "arg": 0x1234, "imp": 1}
    foreign = next(iter(makers.foreign_frames(rng).values()))
    for frame in (
        gradnic_frame(OTHER, OWN, 2, claim | {"src": 3}, b""),
        gradnic_frame(OTHER, OWN, 2, claim, b""),
        foreign,
    ):
        await bench.streams["mac_rx"].send(AxiStreamFrame(frame))
    answer = GRADNIC.parse(await bench.frame("mac_tx"))
    wanted = {"seq": 1, "elems": 2, "slot": 7, "tensor": 3, "gen": 9, "set": 1, "src": 1}
    refused = wanted | {"p0": Subtype.NOT_READY, "arg": 0}
    assert {name: answer[name] for name in refused} == refused
    assert await bench.frame("host_rx") == foreign
    await bench.streams["host_tx"].send(AxiStreamFrame(foreign))
    assert await bench.frame("mac_tx") == foreign

    recorder.words[driver.map["status"].offset] = 0  # what `start` waits for
    driver.start(3, 9)
    armed, recorder.log = recorder.log[-2:], recorder.log[:-2]
    await bench.play(recorder)
    await bench.until(driver, "status", clearing=0)
    dut.m_axi_gradient_write__bresp.value = Force(2)  # an error is told, and the round goes on
    recorder.log = armed
    await bench.play(recorder)
    await bench.until(driver, "status", finished=1, fault=0, thc=CARD.thc, inc=CARD.inc)
    dut.m_axi_gradient_write__bresp.value = Release()
    await bench.until(driver, "events", finished=1, stuck=0, fault=0, outside=0, failed=1)
    assert dut.interrupt.value == 1
    assert bench.memory.read(RESULT, 4 * N) == x.tobytes()
    told = {"not_ready": 1, "owner": 1, "foreign": 1, "outside": 0, "failed": N_PACKETS, "sent": 0}
    assert told == {
        name: await bench.registers.read_dword(driver.map[name].offset) for name in told
    }
    await bench.registers.write_dword(driver.map["events"].offset, 1)
    await ClockCycles(dut.clk, 10)
    assert dut.interrupt.value == 0

    # packets of more elements than the card was built for: no round, but a fault
    recorder.log = []
    driver.set("control", armed=0, clear=0, start=0, abort=0)
    driver.set("chunk", packet=LONGEST // UNIT + 1)
    driver.set("control", armed=1, clear=1, start=1, abort=0)
    await bench.play(recorder)
    await bench.until(driver, "status", running=0, fault=1, done=0, finished=0)
    driver.set("chunk", packet=32 // UNIT)

    # the same PROBE while the next round, of another tensor, is under way
    driver.set("control", armed=0, clear=0, start=0, abort=0)
    driver.set("round", tensor=4, gen=10)
    driver.set("control", armed=1, clear=0, start=0, abort=0)
    await bench.play(recorder)
    await bench.streams["mac_rx"].send(AxiStreamFrame(gradnic_frame(OTHER, OWN, 2, claim, b"")))
    answer = GRADNIC.parse(await bench.frame("mac_tx"))
    over = wanted | {"p0": Subtype.STOP, "arg": 0x1234}
    assert {name: answer[name] for name in over} == over


@pytest.mark.filterwarnings("ignore::DeprecationWarning:cocotbext")
def test_round_over_registers():
    simulate(tops.build(CARD), __file__)
