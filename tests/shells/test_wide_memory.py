"""Memory wider than the card: any burst, against bytes in a list."""

from collections import deque

import numpy as np
import pytest
from amaranth.hdl import Module
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out
from amaranth.sim import Simulator
from gradnic.hdl.axi.axi4 import ReadPort, WritePort
from gradnic.hdl.axi.wide import WideRead
from gradnic.hdl.shells.common.wide_memory import WideMemory
from gradnic.sim.engine import stimulus

SIZE = 1 << 13
N_BURSTS = 60


class Ports(wiring.Component):
    """Stands for a card: its memory ports are the bench's."""

    def __init__(self, n_bytes):
        ports = {"read": ReadPort(n_bytes, 16), "write": WritePort(n_bytes, 16)}
        outs = {f"x_{name}": Out(port) for name, port in ports.items()}
        super().__init__(outs | {f"bench_{name}": In(port) for name, port in ports.items()})

    def elaborate(self, platform):
        m = Module()
        for name in ("read", "write"):
            wiring.connect(
                m,
                wiring.flipped(getattr(self, f"bench_{name}")),
                wiring.flipped(getattr(self, f"x_{name}")),
            )
        return m


def bursts(rng, n, n_bytes):
    """(first byte, beats) of bursts within 4 KiB, some of them one beat, some as long as can be."""
    made = []
    for _ in range(n):
        length = int(rng.choice([1, 2, 16, rng.integers(1, 17)]))
        page, room = int(rng.integers(SIZE // 4096)), 4096 // n_bytes - length
        made.append((page * 4096 + n_bytes * int(rng.integers(room + 1)), length))
    return made


@pytest.mark.parametrize(("n_bytes", "wide_bytes"), [(16, 64), (32, 64), (16, 32), (8, 16)])
@pytest.mark.parametrize("duty", [1.0, 0.5])
def test_bursts_against_bytes(n_bytes, wide_bytes, duty):
    rng = np.random.default_rng(stimulus.master_seed() + n_bytes + wide_bytes)
    top = WideMemory(Ports(n_bytes), wide_bytes)
    simulator = Simulator(top)
    simulator.add_clock(1e-8)
    memory = bytearray(rng.bytes(SIZE))
    model = bytearray(memory)
    writes, reads = bursts(rng, N_BURSTS, n_bytes), bursts(rng, N_BURSTS, n_bytes)
    near_w, near_r, far_w, far_r = top.bench_write, top.bench_read, top.x_write, top.x_read
    low, high = n_bytes.bit_length() - 1, wide_bytes.bit_length() - 1
    answered, seen, cycles = [], [], [0]
    end = {"write": False}

    async def idle(ctx):
        while rng.random() > duty:
            await ctx.tick()

    async def offer(ctx, port, channel, **fields):
        await idle(ctx)
        for name, value in fields.items():
            ctx.set(getattr(port, channel + name), value)
        ctx.set(getattr(port, channel + "valid"), 1)
        await ctx.tick().until(getattr(port, channel + "ready"))
        ctx.set(getattr(port, channel + "valid"), 0)

    async def take(ctx, port, channel, *names):
        await idle(ctx)
        ctx.set(getattr(port, channel + "ready"), 1)
        signals = [getattr(port, channel + name) for name in names]
        values = await ctx.tick().sample(*signals).until(getattr(port, channel + "valid"))
        ctx.set(getattr(port, channel + "ready"), 0)
        return values

    async def addresses(ctx):
        for at, length in writes:
            await offer(ctx, near_w, "aw", addr=at, len=length - 1, size=low, burst=1)

    async def words(ctx):
        for at, length in writes:
            for k in range(length):
                octets, strobes = rng.bytes(n_bytes), int(rng.integers(1 << n_bytes))
                for lane in range(n_bytes):
                    if strobes >> lane & 1:
                        model[at + k * n_bytes + lane] = octets[lane]
                await offer(ctx, near_w, "w", data=int.from_bytes(octets, "little"), strb=strobes,
                            last=int(k == length - 1))  # fmt: skip

    async def answers(ctx):
        for _ in writes:
            answered.append(await take(ctx, near_w, "b", "resp"))
        end["write"] = True

    asked, opened = deque(), deque()

    async def far_addresses(ctx):
        for _ in range(N_BURSTS):
            address, length, size = await take(ctx, far_w, "aw", "addr", "len", "size")
            assert size == high
            assert address % wide_bytes == 0
            assert address // 4096 == (address + wide_bytes * length) // 4096
            opened.append((address, length))

    async def far_words(ctx):
        for _ in range(N_BURSTS):
            while not opened:
                await ctx.tick()
            address, length = opened.popleft()
            for k in range(length + 1):
                word, strobes, last = await take(ctx, far_w, "w", "data", "strb", "last")
                assert last == (k == length)
                for lane in range(wide_bytes):
                    if strobes >> lane & 1:
                        memory[address + k * wide_bytes + lane] = word >> 8 * lane & 255
            await offer(ctx, far_w, "b", resp=0)

    async def read_addresses(ctx):
        while not end["write"]:
            await ctx.tick()
        for at, length in reads:
            await offer(ctx, near_r, "ar", addr=at, len=length - 1, size=low, burst=1)

    async def read_words(ctx):
        while not end["write"]:
            await ctx.tick()
        for _, length in reads:
            for k in range(length):
                word, resp, last = await take(ctx, near_r, "r", "data", "resp", "last")
                assert (resp, last) == (0, k == length - 1)
                seen.append(word.to_bytes(n_bytes, "little"))

    async def far_read_addresses(ctx):
        for _ in range(N_BURSTS):
            address, length = await take(ctx, far_r, "ar", "addr", "len")
            asked.append((address, length))

    async def far_read_words(ctx):
        for _ in range(N_BURSTS):
            while not asked:
                await ctx.tick()
            address, length = asked.popleft()
            for k in range(length + 1):
                at = address + k * wide_bytes
                word = int.from_bytes(memory[at : at + wide_bytes], "little")
                await offer(ctx, far_r, "r", data=word, resp=0, last=int(k == length))

    async def count(ctx):
        while len(seen) < sum(length for _, length in reads):
            await ctx.tick()
            cycles[0] += 1
            assert cycles[0] < 40_000, "it hangs"

    for bench in (addresses, words, answers, read_addresses, read_words, far_addresses, far_words,
                  far_read_addresses, far_read_words, count):  # fmt: skip
        simulator.add_testbench(bench)
    simulator.run()
    assert len(answered) == N_BURSTS
    assert memory == model
    wanted = [bytes(memory[at + k * n_bytes :][:n_bytes]) for at, n in reads for k in range(n)]
    assert seen == wanted


def test_refusals_name_the_value():
    with pytest.raises(ValueError, match="wide_bytes must be more than 64, not 64"):
        WideRead(ReadPort(64, 32), 64)
