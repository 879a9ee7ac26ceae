"""A port over several channels: as one flat memory, in order, at the rate of all together."""

from collections import deque

import numpy as np
import pytest
from gradnic.hdl.axi.spread import BURST_BEATS, ReadSpread, WriteSpread
from gradnic.sim.engine.amaranth_run import simulate

N_BYTES, WIDTH = 16, 32
GRANULE = BURST_BEATS * N_BYTES
OKAY, SLVERR = 0, 2


def bursts(rng, n):
    """(Address, beats): whole ones in a row, then parts of them anywhere."""
    whole = [(0x4000 + GRANULE * k, BURST_BEATS) for k in range(n // 2)]
    parts = []
    for _ in range(n - n // 2):
        first = int(rng.integers(BURST_BEATS))
        length = int(rng.integers(1, BURST_BEATS - first + 1))
        parts.append((int(rng.integers(256)) * GRANULE + first * N_BYTES, length))
    return whole + parts


def place(address, n):
    """(Channel, address there) by definition."""
    number, within = divmod(address, GRANULE)
    return number % n, number // n * GRANULE + within


def word(channel, address):
    return channel << 40 | address


class Channel:
    """A memory's side: what was asked, in order, at its own rate."""

    def __init__(self, port, number, rate, rng):
        self.port, self.number, self.rate, self.rng = port, number, rate, rng
        self.asked, self.answers = deque(), 0


@pytest.mark.parametrize("n", [2, 4])
@pytest.mark.parametrize("rate", [0.3, 1])
def test_reads(n, rate):
    part, rng = ReadSpread(N_BYTES, WIDTH, n=n), np.random.default_rng(n)
    channels = [Channel(port, k, rate, rng) for k, port in enumerate(part.ports)]
    todo, got, manager = deque(bursts(rng, 60)), [], part.manager
    wanted = [
        (word(*place(a + N_BYTES * i, n)), SLVERR if place(a, n)[0] == 1 else OKAY, i == m - 1)
        for a, m in todo
        for i in range(m)
    ]

    async def bench(ctx):
        for _ in range(2000):
            ctx.set(manager.arvalid, int(bool(todo) and rng.random() < 0.9))
            if todo:
                ctx.set(manager.araddr, todo[0][0])
                ctx.set(manager.arlen, todo[0][1] - 1)
            ctx.set(manager.rready, int(rng.random() < 0.9))
            for c in channels:
                ctx.set(c.port.arready, int(rng.random() < 0.7))
                gives = bool(c.asked) and rng.random() < c.rate
                ctx.set(c.port.rvalid, int(gives))
                if gives:
                    ctx.set(c.port.rdata, word(c.number, c.asked[0][0]))
                    ctx.set(c.port.rlast, int(c.asked[0][1] == 1))
                    ctx.set(c.port.rresp, SLVERR if c.number == 1 else OKAY)
            for c in channels:
                if ctx.get(c.port.rvalid) and ctx.get(c.port.rready):
                    address, left = c.asked.popleft()
                    if left > 1:
                        c.asked.appendleft((address + N_BYTES, left - 1))
                if ctx.get(c.port.arvalid) and ctx.get(c.port.arready):
                    c.asked.append((ctx.get(c.port.araddr), ctx.get(c.port.arlen) + 1))
            if ctx.get(manager.rvalid) and ctx.get(manager.rready):
                beat = ctx.get(manager.rdata), ctx.get(manager.rresp), bool(ctx.get(manager.rlast))
                got.append(beat)
            if ctx.get(manager.arvalid) and ctx.get(manager.arready):
                todo.popleft()
            await ctx.tick()

    simulate(part, bench)
    assert got == wanted


@pytest.mark.parametrize("n", [2, 4])
@pytest.mark.parametrize("rate", [0.3, 1])
def test_writes(n, rate):
    part, rng = WriteSpread(N_BYTES, WIDTH, n=n), np.random.default_rng(n)
    channels = [Channel(port, k, rate, rng) for k, port in enumerate(part.ports)]
    for c in channels:
        c.beats, c.written = deque(), []
    todo, data, answers, manager = deque(bursts(rng, 60)), deque(), [], part.manager
    wanted = [[] for _ in range(n)]
    responses = []
    for a, m in todo:
        responses.append(SLVERR if place(a, n)[0] == 1 else OKAY)
        for i in range(m):
            channel, there = place(a + N_BYTES * i, n)
            wanted[channel].append((there, a * 5 + i, i + 1))

    async def bench(ctx):
        for _ in range(2000):
            ctx.set(manager.awvalid, int(bool(todo) and rng.random() < 0.9))
            if todo:
                ctx.set(manager.awaddr, todo[0][0])
                ctx.set(manager.awlen, todo[0][1] - 1)
            ctx.set(manager.wvalid, int(bool(data)))
            if data:
                ctx.set(manager.wdata, data[0][0])
                ctx.set(manager.wstrb, data[0][1])
                ctx.set(manager.wlast, data[0][2])
            ctx.set(manager.bready, int(rng.random() < 0.9))
            for c in channels:
                ctx.set(c.port.awready, int(rng.random() < 0.7))
                ctx.set(c.port.wready, int(rng.random() < c.rate))
                ctx.set(c.port.bvalid, int(c.answers > 0))
                ctx.set(c.port.bresp, SLVERR if c.number == 1 else OKAY)
            for c in channels:
                c.answers -= ctx.get(c.port.bvalid) and ctx.get(c.port.bready)
                if ctx.get(c.port.wvalid) and ctx.get(c.port.wready):
                    c.beats.append((ctx.get(c.port.wdata), ctx.get(c.port.wstrb)))
                    c.answers += ctx.get(c.port.wlast)
                if ctx.get(c.port.awvalid) and ctx.get(c.port.awready):
                    first, m = ctx.get(c.port.awaddr), ctx.get(c.port.awlen) + 1
                    c.asked += [first + N_BYTES * i for i in range(m)]
                while c.beats and c.asked:
                    c.written.append((c.asked.popleft(), *c.beats.popleft()))
            if ctx.get(manager.bvalid) and ctx.get(manager.bready):
                answers.append(ctx.get(manager.bresp))
            if data and ctx.get(manager.wready):
                data.popleft()
            if ctx.get(manager.awvalid) and ctx.get(manager.awready):
                a, m = todo.popleft()
                data.extend((a * 5 + i, i + 1, int(i == m - 1)) for i in range(m))
            await ctx.tick()

    simulate(part, bench)
    assert [c.written for c in channels] == wanted
    assert answers == responses


@pytest.mark.parametrize("n", [2, 4])
def test_rate_of_all_together(n):
    """Channels that take turns at 1 / n of a beat a cycle give a beat a cycle together."""
    part, manager_beats, asked = ReadSpread(N_BYTES, WIDTH, n=n), 0, 0
    queues = [deque() for _ in range(n)]

    async def bench(ctx):
        nonlocal manager_beats, asked
        ctx.set(part.manager.rready, 1)
        ctx.set(part.manager.arlen, BURST_BEATS - 1)
        ctx.set(part.manager.arvalid, 1)
        for cycle in range(3000):
            ctx.set(part.manager.araddr, asked * GRANULE)
            for k, (port, queue) in enumerate(zip(part.ports, queues, strict=True)):
                ctx.set(port.arready, int(len(queue) < 4 * BURST_BEATS))
                ctx.set(port.rvalid, int(bool(queue) and cycle % n == k))
                ctx.set(port.rlast, int(bool(queue) and queue[0]))
            for port, queue in zip(part.ports, queues, strict=True):
                if ctx.get(port.rvalid) and ctx.get(port.rready):
                    queue.popleft()
                if ctx.get(port.arvalid) and ctx.get(port.arready):
                    queue.extend([False] * (BURST_BEATS - 1) + [True])
            manager_beats += ctx.get(part.manager.rvalid) if cycle >= 1000 else 0
            asked += ctx.get(part.manager.arready)
            await ctx.tick()

    simulate(part, bench)
    assert manager_beats >= 1990


def test_number_of_channels():
    with pytest.raises(ValueError, match="n must be 2 or 4, not 3"):
        ReadSpread(N_BYTES, WIDTH, n=3)
