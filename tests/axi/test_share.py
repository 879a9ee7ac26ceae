"""Shared memory ports: every manager gets its own data and answers, and may be cut off."""

import numpy as np
import pytest
from gradnic.hdl.axi.share import ReadShare, WriteShare
from gradnic.sim.engine.amaranth_run import simulate

N_BYTES, WIDTH = 16, 32
MOST = 16  # bursts of a manager under way


def burst(k, number):
    """(Address, beats) of a manager's burst."""
    return (k << 20) + 4096 * number, 1 + (7 * number + k) % 5


@pytest.mark.parametrize(("n", "n_bursts"), [(1, 40), (2, 40), (4, 40), (9, 12), (16, 7)])
def test_reads_come_back_to_who_asked(n, n_bursts):
    """The last one yields to all others, which take turns."""
    part, rng = ReadShare(N_BYTES, WIDTH, n=n), np.random.default_rng(n)
    port, n_asked, n_open = part.port, [0] * n, [0] * n
    got, at_memory = [[] for _ in range(n)], []

    async def bench(ctx):
        ctx.set(part.yields[n - 1], (1 << n - 1) - 1)
        for cycle in range(1500):
            closed = 60 <= cycle < 400
            if cycle == 399:
                assert ctx.get(part.quiet) & 1
                assert n_open[0] == 0
                assert all(n_asked[1:]) or n == 1
            ctx.set(part.closed, int(closed))
            for k, mine in enumerate(part.managers):
                address, length = burst(k, n_asked[k])
                ctx.set(mine.arvalid, int(n_asked[k] < n_bursts and n_open[k] < MOST))
                ctx.set(mine.araddr, address)
                ctx.set(mine.arlen, length - 1)
                ctx.set(mine.rready, int(rng.random() < 0.9))
            ctx.set(port.arready, int(rng.random() < 0.6))
            gives = bool(at_memory) and rng.random() < 0.8
            ctx.set(port.rvalid, int(gives))
            if gives:
                ctx.set(port.rdata, at_memory[0][0])
                ctx.set(port.rlast, at_memory[0][1] == 1)
            for k, mine in enumerate(part.managers):
                if ctx.get(mine.arvalid) and ctx.get(mine.arready):
                    assert not (closed and k == 0)
                    others = part.managers[closed:k] if k == n - 1 else []
                    assert not any(ctx.get(one.arvalid) for one in others)
                    n_asked[k] += 1
                    n_open[k] += 1
                if ctx.get(mine.rvalid) and ctx.get(mine.rready):
                    got[k].append(ctx.get(mine.rdata))
                    n_open[k] -= ctx.get(mine.rlast)
            if gives and ctx.get(port.rready):
                at_memory[0] = (at_memory[0][0] + N_BYTES, at_memory[0][1] - 1)
                if not at_memory[0][1]:
                    at_memory.pop(0)
            if ctx.get(port.arvalid) and ctx.get(port.arready):
                at_memory.append((ctx.get(port.araddr), ctx.get(port.arlen) + 1))
            await ctx.tick()

    simulate(part, bench)
    for k in range(n):
        bursts = [burst(k, number) for number in range(n_bursts)]
        want = [a + N_BYTES * i for a, m in bursts for i in range(m)]
        assert got[k] == want


@pytest.mark.parametrize("n", [1, 3, 9])
def test_writes_stay_together_and_answers_come_back(n):
    part, rng = WriteShare(N_BYTES, WIDTH, n=n), np.random.default_rng(n)
    port, n_asked, heard = part.port, [0] * n, [0] * n
    to_write, addresses, written = [[] for _ in range(n)], [], []
    answers, place = 0, 0

    async def bench(ctx):
        nonlocal answers, place
        for _ in range(400 * max(3, n)):
            for k, mine in enumerate(part.managers):
                address, length = burst(k, n_asked[k])
                ctx.set(mine.awvalid, int(n_asked[k] < 40 and n_asked[k] - heard[k] < MOST))
                ctx.set(mine.awaddr, address)
                ctx.set(mine.awlen, length - 1)
                ctx.set(mine.wvalid, int(bool(to_write[k])))
                if to_write[k]:
                    ctx.set(mine.wdata, to_write[k][0][0])
                    ctx.set(mine.wlast, to_write[k][0][1])
                ctx.set(mine.bready, 1)
            ctx.set(port.awready, int(rng.random() < 0.7))
            ctx.set(port.wready, int(bool(addresses) and rng.random() < 0.9))
            ctx.set(port.bvalid, int(answers > 0))
            for k, mine in enumerate(part.managers):
                if to_write[k] and ctx.get(mine.wready):
                    to_write[k].pop(0)
                if ctx.get(mine.awvalid) and ctx.get(mine.awready):
                    address, length = burst(k, n_asked[k])
                    to_write[k] += [(address + 3 * i, i == length - 1) for i in range(length)]
                    n_asked[k] += 1
                heard[k] += ctx.get(mine.bvalid)
            answers -= ctx.get(port.bvalid) and ctx.get(port.bready)
            if ctx.get(port.wvalid) and ctx.get(port.wready):
                written.append((addresses[0], place, ctx.get(port.wdata)))
                place += 1
                if ctx.get(port.wlast):
                    addresses.pop(0)
                    answers, place = answers + 1, 0
            if ctx.get(port.awvalid) and ctx.get(port.awready):
                addresses.append(ctx.get(port.awaddr))
            await ctx.tick()
        assert ctx.get(part.quiet) == (1 << n) - 1

    simulate(part, bench)
    want = [
        (a, i, a + 3 * i)
        for k in range(n) for b in range(40) for a, m in [burst(k, b)] for i in range(m)
    ]  # fmt: skip
    assert sorted(written) == sorted(want)
    assert heard == [40] * n
