"""Addresses of queues that change by themselves: in an empty queue, and in one that stops."""

import itertools
from functools import partial

import pytest
from amaranth.hdl import Module, ResetInserter, Signal
from amaranth.lib.stream import Signature
from amaranth.lib.wiring import Component, In, Out, connect, flipped
from gradnic.hdl.stream.block_fifo import BlockFIFO
from gradnic.hdl.stream.fifo import FIFO
from gradnic.hdl.stream.pair_queue import PairQueue
from gradnic.sim.engine import amaranth_run

LATENCY = 12  # cycles until a beat is out, at most
MAKES = {
    "fifo": lambda: FIFO(8, 16),
    "odd": lambda: FIFO(8, 5),
    "bypass": lambda: FIFO(8, 4, bypass=True),
    "unregistered": lambda: FIFO(8, 4, registered=False),
    "narrow": lambda: PairQueue(8, 40),
    "wide": lambda: PairQueue(200, 8),
}


def pointers(queue):
    if isinstance(queue, FIFO):
        return [queue.head, queue.tail]
    found = [(piece.head, piece.turn, *piece.rows) for piece in queue.pieces]
    return [pointer for piece in found for pointer in piece]


@pytest.mark.parametrize("name", MAKES)
def test_a_pointer_that_changes_in_an_empty_queue_is_right_before_it_is_used(name):
    queue = MAKES[name]()

    async def bench(ctx, part):
        told = 0
        ctx.set(part.o.ready, 1)
        for pointer in pointers(part):
            for bit in range(len(pointer)):
                for _ in range(3):  # three beats, so that they do not stand at 0
                    told = told % 250 + 1
                    ctx.set(part.i.payload, told)
                    ctx.set(part.i.valid, 1)
                    await ctx.tick()
                ctx.set(part.i.valid, 0)
                await ctx.tick().repeat(LATENCY)
                assert not ctx.get(part.o.valid)
                ctx.set(pointer, ctx.get(pointer) ^ 1 << bit)
                await ctx.tick()
                ctx.set(part.o.ready, 0)
                for beat in (251, 252, 253):
                    ctx.set(part.i.payload, beat)
                    ctx.set(part.i.valid, 1)
                    await ctx.tick()
                ctx.set(part.i.valid, 0)
                ctx.set(part.o.ready, 1)
                got = []
                for _ in range(LATENCY):
                    got += [ctx.get(part.o.payload)] * ctx.get(part.o.valid)
                    await ctx.tick()
                assert got == [251, 252, 253], (pointer.name, bit)

    amaranth_run.simulate(queue, partial(bench, part=queue))


FILLS = {
    "waiting": (lambda: FIFO(8, 8), lambda queue: queue.waiting),
    "half rate": (lambda: FIFO(8, 8, half_rate=True), lambda queue: queue.waiting),
    "occupied": (lambda: FIFO(8, 8), lambda queue: queue.occupied),
    "pair": (lambda: PairQueue(8, 16), lambda queue: queue.occupied),
    "pair valid": (lambda: PairQueue(8, 16), lambda queue: queue.o.valid),
}


@pytest.mark.parametrize("name", FILLS)
def test_a_fill_that_changes_sets_no_address_back(name):
    """Bit 0 of a flag of a queue that is not empty, in a pause: nothing comes twice."""
    make, flag = FILLS[name]
    queue = make()

    async def bench(ctx, part):
        async def put(values):
            for value in values:
                ctx.set(part.i.payload, value)
                ctx.set(part.i.valid, 1)
                await ctx.tick()
                while "half" in name and not ctx.get(part.i.ready):
                    await ctx.tick()
            ctx.set(part.i.valid, 0)

        got = []

        async def take(cycles):
            ctx.set(part.o.ready, 1)
            for _ in range(cycles):
                got.extend([ctx.get(part.o.payload)] * ctx.get(part.o.valid))
                await ctx.tick()
            ctx.set(part.o.ready, 0)

        await put(range(1, 7))
        await ctx.tick().repeat(LATENCY)
        await take(2)
        await ctx.tick().repeat(LATENCY)
        ctx.set(flag(part), ctx.get(flag(part)) ^ 1)
        await ctx.tick().repeat(4)
        await take(LATENCY)
        await put(range(11, 15))
        await take(2 * LATENCY)
        assert len(got) >= 4
        assert all(a < b for a, b in itertools.pairwise(got)), got

    amaranth_run.simulate(queue, partial(bench, part=queue))


class Again(Component):
    """A queue of 16 octets that stops, and is reset when told."""

    def __init__(self, queue):
        self.queue, self.again = queue, Signal()
        octets = Signature(8)
        super().__init__({"i": In(octets), "o": Out(octets)})

    def elaborate(self, platform):
        m = Module()
        m.submodules.queue = ResetInserter(self.again)(self.queue)
        connect(m, flipped(self.i), self.queue.i)
        connect(m, self.queue.o, flipped(self.o))
        return m


@pytest.mark.parametrize("name", ["head", "tail", "read_addr", "write_addr"])
def test_a_block_fifo_that_stops_gives_nothing_wrong(name):
    queue = BlockFIFO(8, 16, stops=True)

    async def bench(ctx, part):
        pointer = getattr(queue, name)
        for bit in range(len(pointer)):
            ctx.set(part.o.ready, 0)
            await ctx.tick().repeat(4)  # `i.ready` is low after a reset
            for beat in range(14):  # more than wait behind the RAM
                ctx.set(part.i.payload, 16 * bit + beat)
                ctx.set(part.i.valid, 1)
                await ctx.tick()
            ctx.set(part.i.valid, 0)
            ctx.set(pointer, ctx.get(pointer) ^ 1 << bit)
            await ctx.tick()
            got = []
            ctx.set(part.o.ready, 1)
            for _ in range(40):
                got += [ctx.get(part.o.payload)] * ctx.get(part.o.valid)
                await ctx.tick()
            assert got == [16 * bit + beat for beat in range(len(got))], (name, bit)
            assert 4 <= len(got) <= 8, (name, bit)
            assert ctx.get(queue.stopped)
            ctx.set(part.again, 1)
            await ctx.tick()
            ctx.set(part.again, 0)

    part = Again(queue)
    amaranth_run.simulate(part, partial(bench, part=part))


@pytest.mark.parametrize("name", ["head", "tail", "read_addr", "write_addr"])
def test_nothing_wrong_leaves_a_block_fifo_that_stops_while_it_streams(name):
    async def bench(ctx, part, bit, at):
        pointer, sent, got = getattr(part.queue, name), 0, []
        await ctx.tick().repeat(4)
        for cycle in range(90):
            ctx.set(part.o.ready, 1)
            ctx.set(part.i.valid, sent < 40)
            ctx.set(part.i.payload, sent)
            if cycle == at:
                ctx.set(pointer, ctx.get(pointer) ^ 1 << bit)
            sent += ctx.get(part.i.valid & part.i.ready)
            got += [ctx.get(part.o.payload)] * ctx.get(part.o.valid)
            await ctx.tick()
        assert got == list(range(len(got))), (name, bit, at)
        assert ctx.get(part.queue.stopped)

    for at in (20, 21, 34, 41, 42):
        for bit in range(4):
            part = Again(BlockFIFO(8, 16, stops=True))
            amaranth_run.simulate(part, partial(bench, part=part, bit=bit, at=at))
