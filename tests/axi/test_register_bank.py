# amaranth: UnusedElaboratable=no
# (a component that refuses its parameters is never used)
"""Register bank on AXI4-Lite: cocotbext-axi's manager, then wires by hand, against a dict."""

import logging

import cocotb
import numpy as np
import pytest
from cocotb.clock import Clock
from cocotb.triggers import ClockCycles, FallingEdge, RisingEdge, with_timeout
from cocotbext.axi import AxiLiteBus, AxiLiteMaster, AxiResp
from gradnic.hdl.axi.register_bank import SETTLE, RegisterBank
from gradnic.sim.engine.runner import simulate

from gradnic.interface.register_map import BitField, Register, RegisterMap

ADDRESS_WIDTH = 10  # more than the map needs: what lies above must not alias


def whole(name, offset, access="rw", reset=0):
    fields = (BitField("value", 0, 32, "any", reset=reset),)
    return Register(name, offset, access, "a whole word", fields)


MAP = RegisterMap(
    "bench",
    "every access, gaps, and more words than one group of the read tree",
    (
        whole("identity", 0x00, "ro"),
        Register(
            "status",
            0x04,
            "ro",
            "narrow fields",
            (BitField("level", 3, 7, "signed", signed=True), BitField("full", 31, 1, "flag")),
        ),
        Register(
            "control",
            0x08,
            "rw",
            "fields across bytes",
            (
                BitField("enable", 0, 1, "bit", reset=1),
                BitField("exponent", 4, 7, "over two bytes", reset=117),
                BitField("prescale", 12, 8, "over two bytes", reset=-2, signed=True),
                BitField("top", 31, 1, "highest bit", reset=1),
            ),
        ),
        whole("scratch", 0x10, reset=0x89ABCDEF),
        Register(
            "events",
            0x14,
            "w1c",
            "sticky",
            (BitField("low", 0, 2, "bits"), BitField("causes", 14, 4, "over two bytes")),
        ),
        Register("frames", 0x18, "counter", "pulses"),
        Register("octets", 0x20, "counter", "bytes", width=64, step_width=32),
        Register("parts", 0x28, "counter", "amounts", step_width=32),
        *(whole(f"word_{n}", 0x2C + 4 * n) for n in range(6)),
        whole("tail", 0x80),
    ),
)
WRITABLE = {r.offset: sum(f.mask for f in r.fields) for r in MAP if r.access == "rw"}
STRIDE = 0xFFFFFFB  # a prime: sums of it name their number


def masked(value, mask, data, strobes):
    """`value` after a write of `data` under byte strobes to the bits of `mask`."""
    lanes = sum(0xFF << 8 * k for k in range(4) if strobes >> k & 1)
    return value & ~(mask & lanes) | data & mask & lanes


class Bench:
    """Clock, reset, idle inputs, and a check of every answer channel in every cycle."""

    def __init__(self, dut):
        self.dut = dut
        self.rng = np.random.default_rng(cocotb.RANDOM_SEED)
        self.words = {r.offset: r.reset for r in MAP if r.access == "rw"}
        self.rises = RisingEdge(dut.clk)
        cocotb.start_soon(Clock(dut.clk, 10, "ns").start())
        for name in ("identity", "status", "events", "frames", "octets", "parts"):
            getattr(dut, name).value = 0
        for name in ("aw", "w", "ar"):
            getattr(dut, f"bus__{name}valid").value = 0
        for name in ("bus__bready", "bus__rready", "bus__awprot", "bus__arprot"):
            getattr(dut, name).value = 0

    async def reset(self, n_cycles=2):
        self.dut.rst.value = 1
        await ClockCycles(self.dut.clk, n_cycles)
        self.dut.rst.value = 0
        await self.rises

    async def start(self):
        await self.reset()
        cocotb.start_soon(self._watch())

    async def _watch(self):
        dut, held = self.dut, {}
        channels = {
            "b": (dut.bus__bvalid, dut.bus__bready, (dut.bus__bresp,)),
            "r": (dut.bus__rvalid, dut.bus__rready, (dut.bus__rresp, dut.bus__rdata)),
        }
        while True:
            await FallingEdge(dut.clk)
            for ready in (dut.bus__awready, dut.bus__wready, dut.bus__arready):
                assert ready.value.is_resolvable
            for name, (valid, ready, payload) in channels.items():
                assert valid.value.is_resolvable
                now = [str(part.value) for part in payload] if valid.value else None
                assert not valid.value or all(part.value.is_resolvable for part in payload)
                if name in held and not dut.rst.value:
                    assert now == held[name], f"{name} changed before it was taken"
                held.pop(name, None)
                if valid.value and not ready.value and not dut.rst.value:
                    held[name] = now

    def manager(self, duty=1.0):
        """cocotbext-axi's manager; every channel is stalled where duty < 1."""
        lite = AxiLiteBus.from_prefix(self.dut, "bus", bus_separator="__")
        manager = AxiLiteMaster(lite, self.dut.clk, self.dut.rst)
        for half in (manager.write_if, manager.read_if):
            half.log.setLevel(logging.WARNING)
        for channel in (
            manager.write_if.aw_channel,
            manager.write_if.w_channel,
            manager.write_if.b_channel,
            manager.read_if.ar_channel,
            manager.read_if.r_channel,
        ):
            if duty < 1:
                channel.set_pause_generator(iter(lambda: self.rng.random() > duty, None))
        return manager

    async def send(self, channel, **payload):
        """Offer on aw, w or ar until taken; returns after the edge that took it."""
        for name, value in payload.items():
            getattr(self.dut, f"bus__{channel}{name}").value = value
        valid = getattr(self.dut, f"bus__{channel}valid")
        valid.value = 1
        while True:
            await FallingEdge(self.dut.clk)
            taken = getattr(self.dut, f"bus__{channel}ready").value
            await self.rises
            if taken:
                break
        valid.value = 0

    async def answer(self, channel, wait=0):
        """Take an answer on b or r after `wait` cycles; returns the payload of r."""
        await ClockCycles(self.dut.clk, wait) if wait else None
        ready = getattr(self.dut, f"bus__{channel}ready")
        ready.value = 1
        while True:
            await FallingEdge(self.dut.clk)
            taken = getattr(self.dut, f"bus__{channel}valid").value
            data = self.dut.bus__rdata.value
            await self.rises
            if taken:
                break
        ready.value = 0
        return int(data) if channel == "r" else None

    async def write(self, address, data, strobes=0xF):
        await self.send("aw", addr=address)
        await self.send("w", data=data, strb=strobes)
        await self.answer("b")

    async def read(self, address):
        await self.send("ar", addr=address)
        return await self.answer("r")


@cocotb.test(timeout_time=200, timeout_unit="us")
async def every_word_after_reset(dut):
    bench = Bench(dut)
    await bench.start()
    dut.identity.value = 0x67726164
    dut.status.value = 1 << 7 | 0x55
    expected = bench.words | {0x00: 0x67726164, 0x04: 1 << 31 | 0x55 << 3}
    for address in range(0, 1 << ADDRESS_WIDTH, 4):
        assert await bench.read(address) == expected.get(address, 0)
    assert dut.control.value == 1 | 117 << 1 | 0xFE << 8 | 1 << 16
    assert dut.scratch.value == 0x89ABCDEF


@cocotb.test(timeout_time=200, timeout_unit="us")
@cocotb.parametrize(duty=[1.0, 0.4])
async def random_accesses(dut, duty):
    """Any address, length within a word, hence any contiguous strobes; half of them reserved."""
    bench = Bench(dut)
    manager = bench.manager(duty)
    await bench.start()
    live = {r.offset for r in MAP if r.access in ("rw", "ro")}
    for _ in range(250):
        word = int(bench.rng.choice([*live, *bench.words, 4 * bench.rng.integers(0, 256)]))
        start = int(bench.rng.integers(0, 4))
        n_bytes = int(bench.rng.integers(1, 5 - start))
        if bench.rng.random() < 0.5:
            data = bench.rng.bytes(n_bytes)
            done = await with_timeout(manager.write(word + start, data), 10, "us")
            if word in WRITABLE:
                bench.words[word] = masked(
                    bench.words[word],
                    WRITABLE[word],
                    int.from_bytes(data, "little") << 8 * start,
                    ((1 << n_bytes) - 1) << start,
                )
        else:
            done = await with_timeout(manager.read(word + start, n_bytes), 10, "us")
            value = bench.words.get(word, 0) >> 8 * start & (1 << 8 * n_bytes) - 1
            assert int.from_bytes(done.data, "little") == value
        assert done.resp == AxiResp.OKAY
    bursts = [manager.init_write(0x2C + 4 * k, bytes([k] * 4)) for k in range(6)]
    for event in bursts:  # one after another, without a pause between them
        await with_timeout(event.wait(), 10, "us")
    done = await with_timeout(manager.read(0x2C, 24), 10, "us")
    assert done.data == bytes(k for k in range(6) for _ in range(4))


@cocotb.test(timeout_time=200, timeout_unit="us")
async def every_strobe(dut):
    bench = Bench(dut)
    await bench.start()
    for strobes in range(16):
        for address in (0x08, 0x10):
            data = int(bench.rng.integers(0, 1 << 32))
            await bench.write(address, data, strobes)
            bench.words[address] = masked(bench.words[address], WRITABLE[address], data, strobes)
            assert await bench.read(address) == bench.words[address]
    for address in (0x00, 0x04, 0x18, 0x20, 0x24, 0x0C, 0x7C, 0x84, 0x110, 0x210, 0x3FC):
        await bench.write(address, 0xFFFFFFFF)
        assert await bench.read(address) == 0
    for address, value in bench.words.items():
        assert await bench.read(address) == value


@cocotb.test(timeout_time=200, timeout_unit="us")
async def halves_in_any_order(dut):
    """Address first, data first, both at once; answers taken late; the next write waits whole."""
    bench = Bench(dut)
    await bench.start()
    for first, gap, wait in [("aw", 0, 0), ("aw", 7, 3), ("w", 0, 0), ("w", 7, 9), ("w", 1, 1)]:
        data = int(bench.rng.integers(0, 1 << 32))
        halves = {"aw": {"addr": 0x10}, "w": {"data": data, "strb": 15}}
        await bench.send(first, **halves.pop(first))
        for _ in range(gap):
            await bench.rises
            assert dut.bus__bvalid.value == 0
        ((second, payload),) = halves.items()
        await bench.send(second, **payload)
        await bench.answer("b", wait)
        assert await bench.read(0x10) == data
    # Two writes and two reads are offered while no answer is taken: none is lost or doubled.
    writes = [(0x2C, 0x11111111), (0x30, 0x22222222), (0x34, 0x33333333)]

    async def addresses():
        for address, _ in writes:
            await bench.send("aw", addr=address)

    async def words():
        for _, data in writes:
            await bench.send("w", data=data, strb=15)

    tasks = [cocotb.start_soon(addresses()), cocotb.start_soon(words())]
    await ClockCycles(dut.clk, 40)
    assert not all(task.done() for task in tasks)
    for _ in writes:
        await bench.answer("b", 5)
    await ClockCycles(dut.clk, 20)
    assert dut.bus__bvalid.value == 0
    for address, data in writes:
        assert await bench.read(address) == data


@cocotb.test(timeout_time=200, timeout_unit="us")
async def requests_in_a_row(dut):
    """A write every 2 cycles; a read every 5, or where it waits for a write, as many more."""
    bench = Bench(dut)
    await bench.start()
    for writes in (0, 1):
        await _in_a_row(bench, dut, writes)


async def _in_a_row(bench, dut, writes):
    for name, value in {"awaddr": 0x10, "wdata": 0, "wstrb": 15, "araddr": 0x08}.items():
        getattr(dut, f"bus__{name}").value = value
    for name in ("awvalid", "wvalid", "bready", "arvalid", "rready"):
        getattr(dut, f"bus__{name}").value = writes or name in ("arvalid", "rready")
    cycles = {"b": [], "r": []}
    for cycle in range(100):
        await FallingEdge(dut.clk)
        for channel, seen in cycles.items():
            if getattr(dut, f"bus__{channel}valid").value:
                seen.append(cycle)
        await bench.rises
    assert set(np.diff(cycles["b"]).tolist()) == ({2} if writes else set())
    assert set(np.diff(cycles["r"]).tolist()) == {5 + writes * (SETTLE + 1)}


@cocotb.test(timeout_time=400, timeout_unit="us")
@cocotb.parametrize(answered=[True, False])
async def a_read_sees_the_write_before_it(dut, answered):
    """Whether the write's answer is taken or not, from the same cycle on; the status likewise."""
    bench = Bench(dut)
    await bench.start()

    async def status():  # follows the register within the cycles that it may take
        held = [0] * SETTLE
        while True:
            held = [int(dut.scratch.value) & 0xFFFFFFFF, *held[:-1]]
            dut.identity.value = held[-1]
            await bench.rises

    cocotb.start_soon(status())
    for n, gap in enumerate([*range(12)] * 2):
        for address in (0x10, 0x00):
            data = 0x1234 * (n + 1) ^ address << 8
            sent = [
                cocotb.start_soon(bench.send("aw", addr=0x10)),
                cocotb.start_soon(bench.send("w", data=data, strb=15)),
            ]
            if answered:
                sent.append(cocotb.start_soon(bench.answer("b")))
            await ClockCycles(dut.clk, gap) if gap else None
            assert await bench.read(address) == data, f"gap {gap}"
            for task in sent:
                await task
            if not answered:
                await bench.answer("b")


@cocotb.test(timeout_time=200, timeout_unit="us")
async def sticky_bits(dut):
    bench = Bench(dut)
    await bench.start()
    places = [0, 1, 14, 15, 16, 17]

    def word(bits):
        return sum((bits >> k & 1) << place for k, place in enumerate(places))

    for bits in (0b000001, 0b100000, 0b011110):
        dut.events.value = bits
        await bench.rises
        dut.events.value = 0
    assert await bench.read(0x14) == word(0b111111)
    await bench.write(0x14, 0xFFFFFFFF, strobes=0b0101)
    assert await bench.read(0x14) == word(0b001100)
    await bench.write(0x14, word(0b000100))
    assert await bench.read(0x14) == word(0b001000)
    dut.events.value = 0b001000  # an event that lasts wins over every clear
    await bench.write(0x14, 0xFFFFFFFF)
    dut.events.value = 0
    assert await bench.read(0x14) == word(0b001000)
    await bench.write(0x14, 0)
    assert await bench.read(0x14) == word(0b001000)


@cocotb.test(timeout_time=200, timeout_unit="us")
async def counters_count_and_wrap(dut):
    bench = Bench(dut)
    await bench.start()
    frames = parts = octets = 0
    for _ in range(300):
        pulse = int(bench.rng.integers(0, 2))
        amounts = [int(a) for a in bench.rng.integers(0, 1 << 32, 2)]
        dut.frames.value, dut.parts.value, dut.octets.value = pulse, *amounts
        await bench.rises
        frames, parts, octets = frames + pulse, parts + amounts[0], octets + amounts[1]
    dut.frames.value = dut.parts.value = dut.octets.value = 0
    await ClockCycles(dut.clk, 3)
    assert parts >> 32 > 100
    assert await bench.read(0x18) == frames
    assert await bench.read(0x28) == parts & 0xFFFFFFFF
    low = await bench.read(0x20)
    assert await bench.read(0x24) << 32 | low == octets


@cocotb.test(timeout_time=200, timeout_unit="us")
async def halves_of_a_counter_agree(dut):
    """While it runs, the two words read are of one moment, also around carries."""
    bench = Bench(dut)
    await bench.start()
    dut.octets.value = STRIDE
    before = -1
    for gap in range(60):
        low = await bench.read(0x20)
        await ClockCycles(dut.clk, 1 + gap % 7)
        value = await bench.read(0x24) << 32 | low
        assert value % STRIDE == 0
        assert value > before
        before = value
    assert before >> 32 > 20


@cocotb.test(timeout_time=200, timeout_unit="us")
async def reset_in_mid_transaction(dut):
    """What was half done is forgotten, and the next request is answered once."""
    bench = Bench(dut)
    await bench.start()
    for stage in ("address", "data", "answer", "read", "read answer"):
        await bench.write(0x10, 0x55555555)
        if stage == "address":
            await bench.send("aw", addr=0x2C)
        elif stage == "data":
            await bench.send("w", data=0xBADBAD, strb=15)
        elif stage == "answer":
            await bench.send("aw", addr=0x2C)
            await bench.send("w", data=0xBADBAD, strb=15)
            await ClockCycles(dut.clk, 4)
        else:
            await bench.send("ar", addr=0x10)
            await ClockCycles(dut.clk, 1 if stage == "read" else 8)
        await bench.reset()
        for _ in range(12):
            assert dut.bus__bvalid.value == 0
            assert dut.bus__rvalid.value == 0
            await bench.rises
        assert await bench.read(0x10) == 0x89ABCDEF
        await bench.write(0x34, 0x12345678)
        assert await bench.read(0x34) == 0x12345678
        assert await bench.read(0x2C) == 0


def bank():
    return RegisterBank(MAP, address_width=ADDRESS_WIDTH)


def test_bank():
    simulate(bank(), __file__)


def test_bank_on_verilator():
    simulate(bank(), __file__, simulator="verilator")


def test_refusals_name_the_value():
    with pytest.raises(ValueError, match="address_width must be at least 8 for 132 bytes, not 7"):
        RegisterBank(MAP, address_width=7)
