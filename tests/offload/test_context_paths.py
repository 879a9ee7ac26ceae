"""Ways to and from the contexts of a card: whose packet it is, what vanishes, what goes first."""

import numpy as np
import pytest
from gradnic.hdl.offload.context_paths import ArrivalSteer, PacketPick
from gradnic.models.offload import context_paths as golden
from gradnic.sim.engine.amaranth_run import simulate

from gradnic.interface.formats import Op

N_BYTES = 16


@pytest.mark.parametrize("n", [1, 2, 4])
def test_packets_reach_their_context_whole_or_not_at_all(n):
    part, rng = ArrivalSteer(N_BYTES, n), np.random.default_rng(n)
    packets = []  # (ready, context, epoch is right, beats)
    for _ in range(80):
        has_values = rng.random() < 0.7
        beats = [int(x) for x in rng.integers(1, 2**60, rng.integers(1, 5))] if has_values else []
        packets.append((rng.random() < 0.8, int(rng.integers(n)), rng.random() < 0.8, beats))
    heads, values = [[] for _ in range(n)], [[] for _ in range(n)]

    async def bench(ctx):
        at, queue = 0, []
        for k in range(n):
            ctx.set(part.contexts[k].epoch, k + 3)
        for _ in range(1500):
            if at < len(packets):
                ready, context, right, beats = packets[at]
                ctx.set(part.arrivals.p.ready, int(ready))
                ctx.set(part.arrivals.p.head.seq, at)
                ctx.set(part.arrivals.p.head.op, Op.RAW)
                ctx.set(part.arrivals.p.head.length, 4 * len(beats))
                ctx.set(part.place, {"context": context, "epoch": context + 3 + (not right)})
            ctx.set(part.arrivals.valid, int(at < len(packets)))
            ctx.set(part.values.valid, int(bool(queue)))
            if queue:
                ctx.set(part.values.p.data, queue[0][0])
                ctx.set(part.values.p.last, queue[0][1])
            ctx.set(part.discard, 0)
            for k in range(n):
                ctx.set(part.heads[k].ready, int(rng.random() < 0.6))
                ctx.set(part.data[k].ready, int(rng.random() < 0.6))
            if rng.random() < 0.1:
                ctx.set(part.discard, 1)
                assert not ctx.get(part.heads[0].valid | part.data[0].valid)
            for k in range(n):
                taken = ctx.get(part.heads[k].valid) and ctx.get(part.heads[k].ready)
                if taken and not ctx.get(part.discard) >> k & 1:
                    heads[k].append(ctx.get(part.heads[k].p.head.seq))
                if ctx.get(part.data[k].valid) and ctx.get(part.data[k].ready):
                    values[k].append((ctx.get(part.data[k].p.data), ctx.get(part.data[k].p.last)))
            if queue and ctx.get(part.values.ready):
                queue.pop(0)
            if at < len(packets) and ctx.get(part.arrivals.ready):
                mine = packets[at][3]
                queue += [(beat, i == len(mine) - 1) for i, beat in enumerate(mine)]
                at += 1
            await ctx.tick()
        assert at == len(packets)
        assert not queue

    simulate(part, bench)
    told = [
        (ready, context, context + 3 + (not right), at, beats)
        for at, (ready, context, right, beats) in enumerate(packets)
    ]
    assert (heads, values) == golden.steered(told, range(3, 3 + n))


def test_the_rest_of_a_packet_vanishes_with_its_round():
    part = ArrivalSteer(N_BYTES, 2)

    async def bench(ctx):
        ctx.set(part.arrivals.p.ready, 1)
        ctx.set(part.arrivals.p.head.length, 64)
        ctx.set(part.place, {"context": 1, "epoch": 0})
        ctx.set(part.arrivals.valid, 1)
        for k in range(2):
            ctx.set(part.heads[k].ready, 1)
            ctx.set(part.data[k].ready, 1)
        await ctx.tick()
        ctx.set(part.arrivals.valid, 0)
        ctx.set(part.values.valid, 1)
        seen = [0, 0]
        for beat in range(4):
            if beat == 2:
                ctx.set(part.contexts[1].epoch, 1)
                ctx.set(part.discard, 2)
            ctx.set(part.values.p.last, int(beat == 3))
            while not ctx.get(part.values.ready):
                await ctx.tick()
            for k in range(2):
                seen[k] += ctx.get(part.data[k].valid)
            await ctx.tick()
        assert seen == [0, 2]

    simulate(part, bench)


@pytest.mark.parametrize("n", [1, 2, 4])
def test_packets_leave_by_class_then_age_with_their_payload(n):
    part, rng = PacketPick(N_BYTES, n), np.random.default_rng(n)
    layers = [int(x) for x in rng.integers(0, 2, n)]
    ages = [int(x) for x in rng.permutation(n)]
    order = golden.order(layers, ages)
    left = [12] * n
    heads, beats, replies = [], [], []

    async def bench(ctx):
        for k in range(n):
            ctx.set(part.layers[k], layers[k])
        for k in np.argsort(ages):
            ctx.set(part.started, 1 << int(k))
            await ctx.tick()
        ctx.set(part.started, 0)
        await ctx.tick().repeat(3)
        place = [(0, 0)] * n  # packet, beat
        answers = [3] * n
        for _ in range(900):
            for k, source in enumerate(part.sources):
                ctx.set(source.heads.valid, int(left[k] > 0))
                ctx.set(source.heads.p.seq, 100 * k + 12 - left[k])
                ctx.set(source.heads.p.length, 32)
                packet, beat = place[k]
                ctx.set(source.payload.valid, int(packet < 12 - left[k] and rng.random() < 0.8))
                ctx.set(source.payload.p.data, 100 * k + packet)
                ctx.set(source.payload.p.last, beat)
                ctx.set(source.replies.valid, int(answers[k] > 0))
                ctx.set(source.replies.p.seq, 100 * k + answers[k])
            ctx.set(part.heads.ready, int(rng.random() < 0.7))
            ctx.set(part.payload.ready, int(rng.random() < 0.7))
            ctx.set(part.replies.ready, int(rng.random() < 0.7))
            for k, source in enumerate(part.sources):
                if ctx.get(source.payload.valid) and ctx.get(source.payload.ready):
                    packet, beat = place[k]
                    place[k] = (packet + 1, 0) if beat else (packet, 1)
                if ctx.get(source.heads.valid) and ctx.get(source.heads.ready):
                    left[k] -= 1
                answers[k] -= ctx.get(source.replies.valid) and ctx.get(source.replies.ready)
            if ctx.get(part.heads.valid) and ctx.get(part.heads.ready):
                heads.append(ctx.get(part.heads.p.seq))
            if ctx.get(part.payload.valid) and ctx.get(part.payload.ready):
                beats.append((ctx.get(part.payload.p.data), ctx.get(part.payload.p.last)))
            if ctx.get(part.replies.valid) and ctx.get(part.replies.ready):
                replies.append(ctx.get(part.replies.p.seq))
            await ctx.tick()
        assert ctx.get(part.sending) == 0

    simulate(part, bench)
    want = [100 * k + i for k in order for i in range(12)]
    assert heads == want
    assert beats == [(100 * (w // 100) + w % 100, last) for w in want for last in (0, 1)]
    assert sorted(replies) == sorted(100 * k + i for k in range(n) for i in (1, 2, 3))


def test_a_muted_context_begins_no_packet_and_ends_the_one_that_leaves():
    part = PacketPick(N_BYTES, 2)

    async def bench(ctx):
        ctx.set(part.sources[1].heads.valid, 1)
        ctx.set(part.sources[1].heads.p.length, 32)
        ctx.set(part.heads.ready, 1)
        ctx.set(part.payload.ready, 1)
        await ctx.tick().repeat(2)
        ctx.set(part.pause, 2)
        await ctx.tick().repeat(6)
        assert ctx.get(part.sending) == 2
        assert not ctx.get(part.sources[1].heads.ready)
        ctx.set(part.sources[1].payload.valid, 1)
        ctx.set(part.sources[1].payload.p.last, 1)
        for _ in range(8):
            await ctx.tick()
        assert ctx.get(part.sending) == 0

    simulate(part, bench)
