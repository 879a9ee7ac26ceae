"""Addresses and flags that change by themselves in queues that stop, and in those that tell."""

from functools import partial

import pytest
from amaranth.hdl import Module, ResetInserter, Signal
from amaranth.lib.stream import Signature
from amaranth.lib.wiring import Component, In, Out, connect, flipped
from gradnic.hdl.stream.block_fifo import BlockFIFO
from gradnic.hdl.stream.fifo import FIFO
from gradnic.hdl.stream.pair_queue import PairQueue
from gradnic.sim.engine import amaranth_run

STOPPING = "head", "tail", "read_addr", "write_addr", "pushed", "issued"


class Again(Component):
    """A queue that is reset when told."""

    def __init__(self, queue):
        self.queue, self.again = queue, Signal()
        beats = Signature(queue.o.p.shape())
        super().__init__({"i": In(beats), "o": Out(beats)})

    def elaborate(self, platform):
        m = Module()
        m.submodules.queue = ResetInserter(self.again)(self.queue)
        connect(m, flipped(self.i), self.queue.i)
        connect(m, self.queue.o, flipped(self.o))
        return m

    async def renew(self, ctx):
        ctx.set(self.again, 1)
        await ctx.tick()
        ctx.set(self.again, 0)


@pytest.mark.parametrize("name", STOPPING)
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
            await part.renew(ctx)

    part = Again(queue)
    amaranth_run.simulate(part, partial(bench, part=part))


@pytest.mark.parametrize(
    ("make", "name"),
    [
        *((partial(BlockFIFO, 8, 16, stops=True), name) for name in STOPPING),
        *((partial(FIFO, 8, 16, stops=True), name) for name in ("head", "tail")),
    ],
)  # fmt: skip
def test_nothing_wrong_leaves_a_queue_that_stops_while_it_streams(make, name):
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
        queue = part.queue
        assert ctx.get(queue.astray if isinstance(queue, FIFO) else queue.stopped)

    for at in (20, 21, 34, 41, 42):
        for bit in range(min(4, len(getattr(make(), name)))):
            part = Again(make())
            amaranth_run.simulate(part, partial(bench, part=part, bit=bit, at=at))


@pytest.mark.parametrize("name", ["waiting", "whole"])
def test_a_beat_that_never_came_stops_a_block_fifo(name):
    queue = BlockFIFO(8, 16, stops=True)

    async def bench(ctx, part):
        flags = getattr(queue, name)
        ctx.set(part.o.ready, 1)
        for bit in range(len(flags)):
            await ctx.tick().repeat(4)
            ctx.set(flags, ctx.get(flags) ^ 1 << bit)
            came = 0
            for cycle in range(40):
                ctx.set(part.i.valid, 8 <= cycle < 20)
                came += ctx.get(part.o.valid)
                await ctx.tick()
            assert ctx.get(queue.stopped), bit
            assert came == 1, bit
            await part.renew(ctx)

    part = Again(queue)
    amaranth_run.simulate(part, partial(bench, part=part))


@pytest.mark.parametrize("comes", [1, 0])
@pytest.mark.parametrize("waits", [0, 1, 9])
def test_a_block_fifo_stops_once_a_beat_has_left_that_was_none_or_none_for_one(waits, comes):
    """comes : the valid bit at the output falls, else it rises; in an empty queue it rises."""
    queue = BlockFIFO(8, 16, stops=True)

    async def bench(ctx, part):
        valid = queue.prefetch.valids[0]
        for cycle in range(60):
            ctx.set(part.i.valid, cycle < 4 + waits and cycle >= 4)
            ctx.set(part.o.ready, cycle >= 30)
            if cycle == (30 if comes else 40):
                assert not ctx.get(queue.stopped)
                ctx.set(valid, 1 - ctx.get(valid))
            await ctx.tick()
        assert ctx.get(queue.stopped)

    part = Again(queue)
    amaranth_run.simulate(part, partial(bench, part=part))


@pytest.mark.parametrize("name", ["head", "tail"])
def test_a_block_fifo_stops_once_its_last_beats_are_not_where_they_should_be(name):
    queue = BlockFIFO(8, 16, stops=True)

    async def bench(ctx, part):
        pointer = getattr(queue.prefetch, name)
        for bit in range(len(pointer)):
            ctx.set(part.o.ready, 0)
            await ctx.tick().repeat(4)
            for _ in range(14):
                ctx.set(part.i.valid, 1)
                await ctx.tick()
            ctx.set(part.i.valid, 0)
            await ctx.tick().repeat(8)
            assert not ctx.get(queue.stopped)
            ctx.set(pointer, ctx.get(pointer) ^ 1 << bit)
            ctx.set(part.o.ready, 1)
            await ctx.tick().repeat(30)
            assert ctx.get(queue.stopped), bit
            ctx.set(part.i.valid, 1)
            came = 0
            for _ in range(30):
                came += ctx.get(part.o.valid)
                await ctx.tick()
            assert not came, bit
            await part.renew(ctx)

    part = Again(queue)
    amaranth_run.simulate(part, partial(bench, part=part))


@pytest.mark.parametrize("name", ["head", "tail", "waiting"])
@pytest.mark.parametrize("n_beats", [0, 5, 11])
def test_a_watched_fifo_tells_once_nothing_waits(name, n_beats):
    queue = FIFO(8, 11, watched=True)

    async def bench(ctx, part):
        register = getattr(queue, name)
        for bit in range(len(register)):
            ctx.set(part.o.ready, 0)
            for beat in range(20):
                ctx.set(part.i.valid, beat < n_beats)
                await ctx.tick()
            ctx.set(part.o.ready, 1)
            await ctx.tick().repeat(2)
            assert not ctx.get(queue.astray)
            ctx.set(register, ctx.get(register) ^ 1 << bit)
            await ctx.tick().repeat(2 * n_beats + 6)
            assert ctx.get(queue.astray), bit
            await part.renew(ctx)

    part = Again(queue)
    amaranth_run.simulate(part, partial(bench, part=part))


@pytest.mark.parametrize("waits", [0, 1, 3])
def test_valid_bits_of_a_beats_parts_that_differ_are_told(waits):
    queue = FIFO(200, 16, watched=True)
    assert len(queue.valids) > 2

    async def bench(ctx, part):
        for valid in queue.valids:
            for cycle in range(8):
                ctx.set(part.i.valid, cycle < waits)
                await ctx.tick()
            assert not ctx.get(queue.astray)
            ctx.set(valid, 1 - ctx.get(valid))
            await ctx.tick()
            assert ctx.get(queue.astray), valid.name
            await part.renew(ctx)

    part = Again(queue)
    amaranth_run.simulate(part, partial(bench, part=part))


@pytest.mark.parametrize("k", [0, 1])
@pytest.mark.parametrize("name", ["o.valid", "valid", "here", "head", "turn", "rows"])
def test_pieces_of_a_pair_queue_that_differ_are_told(name, k):
    queue = PairQueue(200, 20)

    async def bench(ctx, part):
        for at in (3, 9, 15):
            for cycle in range(20):
                ctx.set(part.i.valid, 1)
                ctx.set(part.o.ready, 1)
                if cycle == at:
                    assert not ctx.get(queue.astray)
                    piece = queue.pieces[k]
                    register = queue.o.valid if name == "o.valid" else getattr(piece, name)
                    register = register[0] if name == "rows" else register
                    ctx.set(register, ctx.get(register) ^ 1)
                await ctx.tick()
            assert ctx.get(queue.astray), at
            await part.renew(ctx)

    part = Again(queue)
    amaranth_run.simulate(part, partial(bench, part=part))
