"""A state that a write starts is there for every later read, 0, 1, 2 cycles after the write too.

Bridges post writes: they do not wait for the answer before they read (Corundum's, for one).
"""

from dataclasses import asdict

import cocotb
import numpy as np
import pytest
from amaranth.hdl import Cat, Module, Signal
from amaranth.lib import wiring
from amaranth.lib.memory import Memory
from amaranth.lib.wiring import In
from amaranth.sim import Simulator
from cocotb.clock import Clock
from cocotb.triggers import ClockCycles, FallingEdge, RisingEdge
from gradnic.hdl.aggregation.aggregator import Aggregator
from gradnic.hdl.axi.axis import Lite
from gradnic.hdl.axi.register_bank import RegisterBank
from gradnic.hdl.offload.card import card as offload_card
from gradnic.hdl.shells.common.crossing import LiteCrossing
from gradnic.hdl.shells.common.fan import LiteFan
from gradnic.hdl.shells.common.host_words import HostWords
from gradnic.sim.engine.runner import simulate

from gradnic.host.offload_driver import OffloadDriver
from gradnic.interface import aggregator, offload, params
from gradnic.interface.register_map import BitField, Register, RegisterMap
from gradnic.interface.schedule_table import NOP, REDUCE, ROW, Layout

GAPS = (0, 1, 2, 3, 5)
CARD = params.Offload(
    n_bytes=16, n_nodes=4, n_rows=4, n_chunks=4, n_packets=64, n_ranks=3, thc=0, inc=0
)
LAYOUT = Layout.for_nodes(CARD.n_nodes, ports=4)


class Posting:
    """A manager that reads `gap` cycles after it has offered a write, answered or not."""

    def __init__(self, dut, registers):
        self.dut, self.map = dut, registers
        self.rises = RisingEdge(dut.clk)
        for name in ("aw", "w", "ar"):
            getattr(dut, f"bus__{name}valid").value = 0
        for name, value in (("bready", 1), ("rready", 1), ("awprot", 0), ("arprot", 0)):
            getattr(dut, f"bus__{name}").value = value
        dut.bus__wstrb.value = 15

    async def start(self):
        cocotb.start_soon(Clock(self.dut.clk, 10, "ns").start())
        self.dut.rst.value = 1
        await ClockCycles(self.dut.clk, 3)
        self.dut.rst.value = 0
        await self.rises

    async def _offer(self, channel):
        valid = getattr(self.dut, f"bus__{channel}valid")
        valid.value = 1
        while True:
            await FallingEdge(self.dut.clk)
            taken = getattr(self.dut, f"bus__{channel}ready").value
            await self.rises
            if taken:
                valid.value = 0
                return

    async def write(self, name, word):
        address = self.map[name].offset if isinstance(name, str) else name
        self.dut.bus__awaddr.value, self.dut.bus__wdata.value = address, word
        both = [cocotb.start_soon(self._offer(channel)) for channel in ("aw", "w")]
        for one in both:
            await one

    async def read(self, name):
        self.dut.bus__araddr.value = self.map[name].offset
        await self._offer("ar")
        while True:
            await FallingEdge(self.dut.clk)
            there, word = self.dut.bus__rvalid.value, self.dut.bus__rdata.value
            await self.rises
            if there:
                return int(word)

    async def posted(self, name, word, gap, status):
        """Fields of `status`, asked for `gap` cycles after the write was offered."""
        writing = cocotb.start_soon(self.write(name, word))
        await ClockCycles(self.dut.clk, gap) if gap else None
        seen = await self.read(status)
        await writing
        return {f.name: (seen & f.mask) >> f.lsb for f in self.map[status].fields}

    async def fields(self, status):
        seen = await self.read(status)
        return {f.name: (seen & f.mask) >> f.lsb for f in self.map[status].fields}

    async def until(self, status, **values):
        for _ in range(400):
            seen = await self.fields(status)
            if all(seen[name] == value for name, value in values.items()):
                return seen
        raise AssertionError(f"{status} is {seen}")


def table(op, **columns):
    """Writes that load a table of one row and set up a round of one empty chunk."""
    writes = []
    driver = OffloadDriver(lambda at: 0, lambda at, word: writes.append((at, word)))
    row = np.zeros(1, ROW)
    row["op"], row["sends"] = op, -1
    for name, value in columns.items():
        row[name] = value
    driver.load_rows(LAYOUT.pack(row), LAYOUT.row_bytes)
    driver.set("schedule", rows=1, peers=0, lockstep=0)
    driver.set("chunks", all=1, live=int(op == REDUCE))
    return writes


ARM, CLEAR, START, ABORT = 1, 2, 4, 8


@cocotb.test(timeout_time=10, timeout_unit="ms")
async def every_strobe_of_the_offload_card(dut):
    bus = Posting(dut, offload.REGISTERS)
    for name in ("gradient_read", "landing_read"):
        getattr(dut, f"{name}__arready").value = 1
        getattr(dut, f"{name}__rvalid").value = 0
    for name in ("gradient_write", "landing_write"):
        for wire in ("awready", "wready"):
            getattr(dut, f"{name}__{wire}").value = 1
        getattr(dut, f"{name}__bvalid").value = 0
    dut.host_tx__0__valid.value = dut.mac_rx__0__valid.value = 0
    dut.mac_tx__0__ready.value = dut.host_rx__0__ready.value = 1
    await bus.start()
    driven = table(NOP, wait=1)
    for at, word in driven:
        await bus.write(at, word)
    await ClockCycles(dut.clk, 20)
    for gap in GAPS:
        # One after the other, posted: clear, armed, start; each shows.
        await bus.write("control", 0)
        seen = await bus.posted("control", CLEAR, gap, "status")
        assert seen["clearing"], f"clear, gap {gap}"
        seen = await bus.posted("control", ARM | START, gap, "status")
        assert seen["clearing"], "the sweep is short"
        assert (seen["running"], seen["done"], seen["finished"]) == (1, 0, 0), f"start, gap {gap}"
        await bus.until("status", finished=1, running=0)
        # Again, without a clear: nothing is left of the round that has finished.
        await bus.write("control", ARM)
        seen = await bus.posted("control", ARM | START, gap, "status")
        assert (seen["running"], seen["done"], seen["finished"]) == (1, 0, 0), f"again, gap {gap}"
        await bus.until("status", finished=1, running=0)
        assert (await bus.fields("events"))["finished"]
        assert not (await bus.posted("events", 1, gap, "events"))["finished"], f"gap {gap}"
        seen = await bus.posted("control", 0, gap, "status")
        assert not seen["finished"], f"armed, gap {gap}"
        # A fault of one round does not show in the next.
        await bus.write("schedule", 0)
        await bus.write("control", ARM | START)
        await bus.until("status", fault=1)
        assert (await bus.fields("position"))["row"] == 0
        # The same fault again is an event again.
        await bus.write("control", 0)
        assert not (await bus.posted("events", 15, gap, "events"))["fault"], f"gap {gap}"
        await bus.write("control", ARM | START)
        await bus.until("events", fault=1)
        await bus.write("schedule", 1)
        await bus.write("control", 0)
        seen = await bus.posted("control", ARM | START, gap, "status")
        assert (seen["running"], seen["fault"]) == (1, 0), f"fault, gap {gap}"
        await bus.until("status", finished=1)
        await bus.write("control", 0)
    # A round that waits for what never comes: stuck, and ended by abort.
    for at, word in table(REDUCE, wait=2, first=0):
        await bus.write(at, word)
    await bus.write("watchdog", 40)
    for gap in GAPS:
        await bus.write("control", 0)
        seen = await bus.posted("control", ARM | START, gap, "status")
        assert (seen["running"], seen["stuck"]) == (1, 0), f"gap {gap}"
        await bus.until("status", stuck=1, running=1)
        seen = await bus.posted("control", ARM | ABORT, gap, "status")
        assert not seen["running"], f"abort, gap {gap}"
    # Start in the same write as clear, and behind it without a look.
    for at, word in table(NOP, wait=1):
        await bus.write(at, word)
    for words in ((CLEAR | ARM | START,), (CLEAR, CLEAR | ARM, CLEAR | ARM | START)):
        await bus.write("control", 0)
        for word in words:
            await bus.write("control", word)
        seen = await bus.fields("status")
        assert (seen["clearing"], seen["running"]) == (1, 1)
        await bus.until("status", finished=1, clearing=0, running=0)


def test_offload_card():
    made = offload_card(**asdict(CARD) | {"thc": False, "inc": False})
    simulate(made, __file__, tests=["every_strobe_of_the_offload_card"])


@cocotb.test(timeout_time=1, timeout_unit="ms")
async def every_strobe_of_the_aggregator(dut):
    bus = Posting(dut, aggregator.REGISTERS)
    for side in ("worker", "network"):
        getattr(dut, f"{side}_rx__0__valid").value = 0
        getattr(dut, f"{side}_tx__0__ready").value = 1
    dut.now.value = dut.tick.value = 0
    await bus.start()
    assert (await bus.fields("status"))["busy"]
    await bus.until("status", busy=0)
    for gap in GAPS:
        assert (await bus.posted("clear", 1 << 31, gap, "status"))["busy"], f"gap {gap}"
        await bus.until("status", busy=0)
        await bus.write("clear", 0)
    # Two jobs, one behind the other: both are cleared, and busy until then.
    times = []
    for jobs in ((0,), (0, 1)):
        for job in jobs:
            await bus.write("clear", job)
            await bus.write("clear", 1 << 31 | job)
        n = 0
        while (await bus.fields("status"))["busy"]:
            n += 1
        times.append(n)
        await bus.write("clear", 0)
    assert times[1] > 1.6 * times[0], times


def test_aggregator():
    made = Aggregator(1, n_bytes=16, n_slots=16, n_jobs=2, n_words=32)
    simulate(made, __file__, tests=["every_strobe_of_the_aggregator"])


SMALL = RegisterMap(
    "small",
    "a word",
    (Register("word", 0x0, "rw", "a word", (BitField("value", 0, 32, "any"),)),),
)


class Path(wiring.Component):
    """Two banks behind a fan, itself behind a crossing of clocks if `crossed`."""

    def __init__(self, crossed):
        self.crossed = crossed
        self.fan = LiteFan([(0, 2), (0x10, 2)], address_width=8)
        self.banks = [RegisterBank(SMALL), RegisterBank(SMALL)]
        super().__init__({"bus": In(Lite(8))})

    def elaborate(self, platform):
        m = Module()
        m.submodules += [self.fan, *self.banks]
        for o, bank in zip(self.fan.outs, self.banks, strict=True):
            wiring.connect(m, o, bank.bus)
        if self.crossed:
            m.submodules.crossing = crossing = LiteCrossing(8, i_domain="host", o_domain="sync")
            wiring.connect(m, wiring.flipped(self.bus), crossing.i)
            wiring.connect(m, crossing.o, self.fan.i)
        else:
            wiring.connect(m, wiring.flipped(self.bus), self.fan.i)
        return m


class Words(wiring.Component):
    """Single words of a small memory."""

    def __init__(self):
        self.host = HostWords(16, 8, 2)
        super().__init__({"bus": In(Lite(8))})

    def elaborate(self, platform):
        m = Module()
        m.submodules.host = host = self.host
        m.submodules.memory = memory = Memory(shape=128, depth=16, init=[])
        write, read = memory.write_port(granularity=8), memory.read_port()
        then = Signal(128)
        wiring.connect(m, wiring.flipped(self.bus), host.bus)
        m.d.sync += then.eq(read.data)
        m.d.comb += [
            write.en.eq(Cat(host.write_en) & host.writes.replicate(16)),
            write.addr.eq(host.write_addr),
            write.data.eq(host.write_data),
            read.addr.eq(host.read_addr),
            host.read_data.eq(then),
        ]
        return m


@pytest.mark.parametrize(
    ("make", "domain", "clocks"),
    [
        (lambda: Path(False), "sync", {"sync": 10.0}),
        (lambda: Path(True), "host", {"host": 8.0, "sync": 4.1}),
        (lambda: Path(True), "host", {"host": 3.3, "sync": 10.0}),
        (Words, "sync", {"sync": 10.0}),
    ],
    ids=["fan", "fast card", "slow card", "words"],
)
def test_a_read_does_not_overtake_on_the_way(make, domain, clocks):
    top = make()
    simulator = Simulator(top)
    for name, ns in clocks.items():
        simulator.add_clock(ns * 1e-9, domain=name)
    waits, read = [], []

    async def offer(ctx, channel, gap):
        await ctx.tick(domain).repeat(gap)
        ctx.set(getattr(top.bus, f"{channel}valid"), 1)
        await ctx.tick(domain).until(getattr(top.bus, f"{channel}ready"))
        ctx.set(getattr(top.bus, f"{channel}valid"), 0)

    cases = [
        (gap, address, 77 * (k + 1)) for k, address in enumerate((0, 0x10)) for gap in range(9)
    ]

    async def reads(ctx):
        for gap, address, _ in cases:
            ctx.set(top.bus.araddr, address)
            ctx.set(top.bus.rready, 1)
            await offer(ctx, "ar", 60 + gap)
            (word,) = await ctx.tick(domain).sample(top.bus.rdata).until(top.bus.rvalid)
            read.append(word)
            await ctx.tick(domain).repeat(40)
            waits.append(1)

    def writes(channel):
        async def run(ctx):
            ctx.set(top.bus.wstrb, 15)
            ctx.set(top.bus.bready, 1)
            for n, (gap, address, data) in enumerate(cases):
                if channel == "aw":
                    ctx.set(top.bus.awaddr, address)
                else:
                    ctx.set(top.bus.wdata, data + gap)
                await offer(ctx, channel, 60)
                while len(waits) <= n:
                    await ctx.tick(domain)

        return run

    simulator.add_testbench(reads)
    simulator.add_testbench(writes("aw"), background=True)
    simulator.add_testbench(writes("w"), background=True)
    simulator.run()
    assert read == [data + gap for gap, _, data in cases]
