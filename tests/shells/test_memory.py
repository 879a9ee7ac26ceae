"""On-chip memory of a shell: bursts of the card and words of the host against an array of bytes."""

import cocotb
import numpy as np
import pytest
from cocotb.triggers import ClockCycles, FallingEdge, RisingEdge, with_timeout
from cocotbext.axi import AxiLiteBus, AxiLiteMaster, AxiReadBus, AxiWriteBus
from cocotbext.axi.axi_channels import (
    AxiARSource,
    AxiARTransaction,
    AxiAWSource,
    AxiAWTransaction,
    AxiBSink,
    AxiRSink,
    AxiWSource,
    AxiWTransaction,
)
from gradnic.hdl.shells.common import wide_ram
from gradnic.hdl.shells.common.axi4_ram import DECERR, SLVERR, Axi4Ram
from gradnic.hdl.top import verilog
from gradnic.sim.engine import drivers, runner
from gradnic.sim.shells import bench as shell_bench

N_KIB = 16
SIZE = 1024 * N_KIB
HALF = SIZE // 2
PAGE = 4096
OKAY, FIXED, INCR = 0, 0, 1
PATIENCE_US = 400


class Memory:
    """The channels of an `Axi4Ram`; `bytes` is what it must hold."""

    def __init__(self, dut, rng, share=0.0):
        self.dut, self.rng, self.n = dut, rng, drivers.options()["n_bytes"]
        read, write = AxiReadBus.from_prefix(dut, "read"), AxiWriteBus.from_prefix(dut, "write")
        clock = dut.clk, dut.rst
        self.ar, self.r = AxiARSource(read.ar, *clock), AxiRSink(read.r, *clock)
        self.aw, self.w = AxiAWSource(write.aw, *clock), AxiWSource(write.w, *clock)
        self.b = AxiBSink(write.b, *clock)
        if share:
            for channel in (self.ar, self.r, self.aw, self.w, self.b):
                channel.set_pause_generator(shell_bench.pauses(rng, share))
        words = AxiLiteMaster(AxiLiteBus.from_prefix(dut, "words"), *clock)
        self.host_read, self.host_write = words.read, words.write
        self.bytes = np.zeros(SIZE, np.uint8)
        self.times = {}
        cocotb.start_soon(self._watch())

    async def _watch(self):
        """Cycles in which beats were taken, and bursts refused."""
        cycle = 0
        while True:
            await FallingEdge(self.dut.clk)
            for name in ("read_ar", "read_r", "write_aw", "write_w", "write_b"):
                valid, ready = (getattr(self.dut, name + end).value for end in ("valid", "ready"))
                if valid == 1 and ready == 1:
                    self.times.setdefault(name, []).append(cycle)
            if self.dut.rst.value == 0:
                for k in range(2):
                    if self.dut.refused.value[k] == 1:
                        self.times.setdefault(f"refused{k}", []).append(cycle)
            cycle += 1
            await RisingEdge(self.dut.clk)

    async def reset(self):
        self.dut.rst.value = 1
        await ClockCycles(self.dut.clk, 3)
        self.dut.rst.value = 0
        await ClockCycles(self.dut.clk, 2)

    async def write(self, address, n_beats, *, burst=INCR, size=None, strobes=None, answer=OKAY):
        """One burst of noise; the address comes before, with or after its beats."""
        n, rng = self.n, self.rng
        data = rng.integers(0, 256, (n_beats, n), np.uint8)
        keep = np.ones((n_beats, n), bool) if strobes is None else strobes
        where = dict(awaddr=address, awlen=n_beats - 1, awburst=burst)
        where |= dict(awsize=n.bit_length() - 1 if size is None else size, awid=0)
        if wait := int(rng.integers(-6, 7)):
            late = self.aw if wait > 0 else self.w
            late.pause = True
            cocotb.start_soon(self._resume(late, abs(wait)))
        await self.aw.send(AxiAWTransaction(**where))
        for k in range(n_beats):
            word = int.from_bytes(data[k].tobytes(), "little")
            strobe = int.from_bytes(np.packbits(keep[k], bitorder="little").tobytes(), "little")
            beat = AxiWTransaction(wdata=word, wstrb=strobe, wlast=int(k == n_beats - 1))
            await self.w.send(beat)
        said = await with_timeout(self.b.recv(), PATIENCE_US, "us")
        assert (int(said.bresp), int(said.bid)) == (answer, 0)
        if answer == OKAY:
            start = address - address % n
            self.bytes[start : start + n_beats * n].reshape(-1, n)[keep] = data[keep]

    async def _resume(self, channel, n_cycles):
        await ClockCycles(self.dut.clk, n_cycles)
        channel.pause = False

    async def ask(self, address, n_beats, *, burst=INCR, size=None):
        """The address of a burst to read."""
        where = dict(araddr=address, arlen=n_beats - 1, arburst=burst, arid=0)
        where |= dict(arsize=self.n.bit_length() - 1 if size is None else size)
        await self.ar.send(AxiARTransaction(**where))

    async def read(self, address, n_beats, *, answer=OKAY, **kind):
        """One burst, compared with `bytes`."""
        await self.ask(address, n_beats, **kind)
        await self.take(address, n_beats, answer)

    async def take(self, address, n_beats, answer=OKAY):
        """The beats of the burst that was asked for first."""
        n, got = self.n, []
        for k in range(n_beats):
            beat = await with_timeout(self.r.recv(), PATIENCE_US, "us")
            assert (int(beat.rresp), int(beat.rlast)) == (answer, int(k == n_beats - 1))
            if answer == OKAY:
                got.append(int(beat.rdata).to_bytes(n, "little"))
        if answer == OKAY:
            start = address - address % n
            assert b"".join(got) == self.bytes[start : start + n_beats * n].tobytes()

    def bursts(self, first, count):
        """(address, beats) of bursts in one half: whole pages, up to their ends, single beats."""
        n = self.n
        most = min(256, PAGE // n)
        fixed = [(first, most), (first + PAGE - n, 1), (first + PAGE, most), (first + 3, 2)]
        for _ in range(count):
            page, beat = int(self.rng.integers(HALF // PAGE)), int(self.rng.integers(PAGE // n))
            length = int(self.rng.integers(1, min(most, PAGE // n - beat) + 1))
            unaligned = int(self.rng.integers(n)) if self.rng.random() < 0.2 else 0
            fixed.append((first + PAGE * page + n * beat + unaligned, length))
        return fixed

    async def fill(self):
        most = min(256, PAGE // self.n)
        for first in range(0, SIZE, most * self.n):
            await self.write(first, most)


async def start(dut, share=0.0):
    cocotb.start_soon(cocotb.clock.Clock(dut.clk, 4, "ns").start())
    memory = Memory(dut, np.random.default_rng(cocotb.RANDOM_SEED), share)
    await memory.reset()
    return memory


@cocotb.test()
@cocotb.parametrize(share=[0, 0.4])
async def bursts_and_words(dut, share):
    """Bursts of the card in one half while the host, or its own reads, are in the other."""
    memory = await start(dut, share)
    await memory.fill()

    async def writes(first):
        for address, n_beats in memory.bursts(first, 20):
            strobes = memory.rng.random((n_beats, memory.n)) < 0.6
            await memory.write(address, n_beats, strobes=strobes)

    async def reads(first):
        for address, n_beats in memory.bursts(first, 20):
            await memory.read(address, n_beats)

    async def words(first, deed):
        for address in memory.rng.integers(first // 4, (first + HALF) // 4, 40) * 4:
            await deed(int(address))

    async def word_is_right(address):
        got = await with_timeout(memory.host_read(address, 4), PATIENCE_US, "us")
        assert got.data == memory.bytes[address : address + 4].tobytes()

    async def word_is_written(address):
        octets = memory.rng.bytes(int(memory.rng.integers(1, 5)))
        await with_timeout(memory.host_write(address, octets), PATIENCE_US, "us")
        memory.bytes[address : address + len(octets)] = np.frombuffer(octets, np.uint8)

    for first, other in ((0, HALF), (HALF, 0)):
        tasks = [cocotb.start_soon(deed) for deed in
                 (writes(first), reads(other), words(other, word_is_right))]  # fmt: skip
        for task in tasks:
            await task
        tasks = [cocotb.start_soon(deed) for deed in
                 (writes(first), words(other, word_is_written))]  # fmt: skip
        for task in tasks:
            await task
        tasks = [cocotb.start_soon(deed) for deed in (reads(first), words(other, word_is_written))]
        for task in tasks:
            await task
    for address in range(0, SIZE, PAGE):
        await memory.read(address, 1)  # right behind an answer: what was written last
        await memory.write(address, 1)
        await memory.read(address, 1)
    assert "refused0" not in memory.times
    assert "refused1" not in memory.times


@cocotb.test()
async def refusals(dut):
    """Outside of the memory, and bursts of another kind: all beats, an error, nothing written."""
    memory = await start(dut)
    await memory.fill()
    n = memory.n
    wrong = [(address, 3, DECERR, {}) for address in (SIZE, SIZE + 64, 2 * SIZE, 1 << 31)]
    wrong += [(0, 2, SLVERR, {"burst": FIXED}), (64, 2, SLVERR, {"size": 1})]
    for k, (address, n_beats, answer, kind) in enumerate(wrong):
        await memory.write(address, n_beats, answer=answer, **kind)
        await memory.read(address, n_beats, answer=answer, **kind)
        await memory.read(SIZE - 2 * n, 2)
        await memory.write(n * k, 1)
    for address in range(0, SIZE, n):
        await memory.read(address, 1)
    assert len(memory.times["refused0"]) == len(memory.times["refused1"]) == len(wrong)
    for address, n_beats, _, kind in wrong:  # one behind the other
        await memory.ask(address, n_beats, **kind)
        await memory.ask(HALF, 3)
    for address, n_beats, answer, _ in wrong:
        await memory.take(address, n_beats, answer)
        await memory.take(HALF, 3)


@cocotb.test()
async def rate(dut):
    """16 beats a burst, reads and writes at once: no gap, and the latencies that are documented."""
    memory = await start(dut)
    await memory.fill()
    n, times = memory.n, memory.times
    await ClockCycles(dut.clk, 10)
    times.clear()
    lengths = [16] * 6 + [1] * 12 + [16] * 4
    at = 0
    for length in lengths:
        size = dict(awsize=n.bit_length() - 1, awburst=INCR, awid=0)
        await memory.aw.send(AxiAWTransaction(awaddr=at, awlen=length - 1, **size))
        await memory.ask(HALF + at, length)
        for k in range(length):
            beat = AxiWTransaction(
                wdata=at + k, wstrb=-1 & (1 << n) - 1, wlast=int(k == length - 1)
            )
            await memory.w.send(beat)
        at += 16 * n
    await ClockCycles(dut.clk, 2 * sum(lengths) + 50)
    for channel in ("read_r", "write_w"):
        assert len(times[channel]) == sum(lengths)
        assert set(np.diff(times[channel])) == {1}
    assert times["read_r"][0] - times["read_ar"][0] == 8
    assert times["write_b"][0] - times["write_w"][15] == 1
    assert len(times["write_b"]) == len(lengths)


@cocotb.test()
async def answers_wait(dut):
    """Whoever asked takes nothing for a while: nothing is lost, and the memory takes no more."""
    memory = await start(dut)
    await memory.fill()
    n, n_bursts, times = memory.n, 20, memory.times
    times.clear()
    memory.b.pause = memory.r.pause = True
    for k in range(n_bursts):
        size = dict(awsize=n.bit_length() - 1, awburst=INCR, awid=0)
        await memory.aw.send(AxiAWTransaction(awaddr=k * n, awlen=0, **size))
        await memory.w.send(AxiWTransaction(wdata=k, wstrb=(1 << n) - 1, wlast=1))
        await memory.ask(HALF + PAGE * (k % 2), 16)
        memory.bytes[k * n : (k + 1) * n] = np.frombuffer(k.to_bytes(n, "little"), np.uint8)
    await ClockCycles(dut.clk, 100)
    assert len(times["write_w"]) < n_bursts
    assert len(times["read_ar"]) < n_bursts
    memory.b.pause = memory.r.pause = False
    for k in range(n_bursts):
        assert int((await with_timeout(memory.b.recv(), PATIENCE_US, "us")).bresp) == OKAY
        await memory.take(HALF + PAGE * (k % 2), 16)
    await memory.read(0, n_bursts)
    await ClockCycles(dut.clk, 50)
    assert memory.b.empty()
    assert memory.r.empty()


@cocotb.test()
async def reset_in_a_burst(dut):
    """Halves of bursts are forgotten; what was written before stays."""
    memory = await start(dut)
    await memory.fill()
    n = memory.n
    size = dict(awsize=n.bit_length() - 1, awburst=INCR, awid=0)
    await memory.aw.send(AxiAWTransaction(awaddr=0, awlen=7, **size))
    await memory.w.send(AxiWTransaction(wdata=0, wstrb=0, wlast=0))
    await memory.ask(0, 64)
    await ClockCycles(dut.clk, 20)
    await memory.reset()
    memory.r.clear()
    await memory.read(HALF, 16)
    await memory.write(PAGE - n, 1)
    for address in (0, PAGE - n, HALF):
        await memory.read(address, 1)
    assert memory.r.empty()
    assert memory.b.empty()


TESTS = ["bursts_and_words", "refusals", "rate", "answers_wait", "reset_in_a_burst"]


@pytest.mark.filterwarnings("ignore::DeprecationWarning:cocotbext")
@pytest.mark.parametrize("n_bytes", [16, 64])
def test_memory(n_bytes):
    text = verilog.convert(Axi4Ram(n_bytes, N_KIB), "top") + wide_ram.VERILOG
    options = {"n_bytes": n_bytes}
    runner.simulate(None, __file__, tests=TESTS, netlist=text, options=options)
