"""Frames at the ends of a circuit that is reset in their middle."""

import numpy as np
from gradnic.hdl.frame.keeper import AGE, EntryKeeper, ExitKeeper
from gradnic.sim.engine.amaranth_run import simulate

N_BYTES, N_CYCLES = 4, 800


def frames_of(rng, n):
    """Beats (number of the frame, of the beat, whether it is the last)."""
    return [
        (f, k, k == m - 1) for f, m in enumerate(rng.integers(1, 6, n).tolist()) for k in range(m)
    ]


def offer(ctx, port, beat):
    ctx.set(port.valid, int(beat is not None))
    if beat:
        ctx.set(port.p.data, beat[0] << 8 | beat[1])
        ctx.set(port.p.keep, 15)
        ctx.set(port.p.last, beat[2])


def test_a_frame_that_enters_a_circuit_that_is_reset_is_gone_and_the_next_is_whole():
    rng = np.random.default_rng(1)
    part = EntryKeeper(N_BYTES)
    coming, came, cut = frames_of(rng, 400), [], set()

    async def bench(ctx):
        at, inside, offering = 0, False, False
        for _ in range(N_CYCLES):
            offering = offering or rng.random() < 0.8
            offer(ctx, part.i, coming[at] if offering else None)
            anew = rng.random() < 0.05
            ctx.set(part.anew, int(anew))
            ctx.set(part.o.ready, int(rng.random() < 0.8))
            assert ctx.get(part.busy) == (inside or offering)
            assert ctx.get(part.starves) == (inside and not offering)
            if ctx.get(part.o.valid) and ctx.get(part.o.ready):
                assert ctx.get(part.i.ready)
                came.append(coming[at])
            taken = offering and ctx.get(part.i.ready)
            assert not (anew and taken)
            if taken:
                inside, offering, at = not coming[at][2], False, at + 1
            if anew and inside:
                cut.add(coming[at][0])
            await ctx.tick()

    simulate(part, bench)
    last = came[-1][0]
    assert len(cut) > 5
    for f in range(last):
        here, all_ = ([beat for beat in some if beat[0] == f] for some in (came, coming))
        assert here == (all_[: len(here)] if f in cut else all_)


def test_a_frame_that_leaves_a_circuit_that_is_reset_ends_as_a_bad_one():
    rng = np.random.default_rng(2)
    part = ExitKeeper(N_BYTES)
    going, left = frames_of(rng, 400), []

    async def bench(ctx):
        at, offering, closed, held = 0, False, False, None
        for _ in range(N_CYCLES):
            offering = offering or rng.random() < 0.8
            offer(ctx, part.i, going[at] if offering else None)
            ctx.set(part.o.ready, int(rng.random() < 0.6))
            closed = closed or rng.random() < 0.05
            ctx.set(part.closed, int(closed))
            anew = closed and bool(ctx.get(part.still)) and rng.random() < 0.5
            ctx.set(part.anew, int(anew))
            now = None
            if ctx.get(part.o.valid):
                now = tuple(ctx.get(part.o.p[name]) for name in ("data", "last", "bad"))
            assert held is None or now == held or (now and held[2] and now[1:] == held[1:])
            taken = now and ctx.get(part.o.ready)
            held = now if now and not taken else None
            if taken:
                left.append(now)
            if offering and ctx.get(part.i.ready):
                assert taken
                offering, at = False, at + 1
            if anew:  # the circuit begins with a new frame
                while at and not going[at - 1][2]:
                    at += 1
                offering, closed = False, False
            await ctx.tick()

    simulate(part, bench)
    frames, beats = [], []
    for data, last, bad in left:
        beats.append((data >> 8, data & 255))
        if last:
            frames.append((beats, bad))
            beats = []
    assert sum(bad for _, bad in frames) > 5
    for beats, bad in frames:
        told = beats[:-1] if bad else beats
        want = [(f, k) for f, k, _ in going if told and f == told[0][0]]
        assert told == want[: len(told)]
        assert bad or len(told) == len(want)


def test_what_is_stuck_is_told_after_some_ticks_unless_others_are_to_blame():
    entry, leaving = EntryKeeper(N_BYTES), ExitKeeper(N_BYTES)

    async def ticks(ctx, part, n):
        for _ in range(n):
            ctx.set(part.tick, 1)
            await ctx.tick()
            ctx.set(part.tick, 0)
            await ctx.tick().repeat(3)

    async def at_entry(ctx):
        offer(ctx, entry.i, (1, 0, True))
        ctx.set(entry.excused, 1)
        await ticks(ctx, entry, 2 * AGE)
        ctx.set(entry.excused, 0)
        await ticks(ctx, entry, AGE - 1)
        assert not ctx.get(entry.wedged)
        await ticks(ctx, entry, 1)
        assert ctx.get(entry.wedged)
        ctx.set(entry.o.ready, 1)
        await ctx.tick().repeat(2)
        assert not ctx.get(entry.wedged)

    async def at_exit(ctx):
        ctx.set(leaving.o.ready, 1)
        await ticks(ctx, leaving, 2 * AGE)
        assert not ctx.get(leaving.wedged)
        offer(ctx, leaving.i, (1, 0, False))
        await ctx.tick()
        offer(ctx, leaving.i, None)
        await ticks(ctx, leaving, AGE)
        assert ctx.get(leaving.wedged)
        ctx.set(leaving.anew, 1)
        await ctx.tick()
        ctx.set(leaving.anew, 0)
        assert ctx.get(leaving.o.valid & leaving.o.p.last & leaving.o.p.bad)
        assert not ctx.get(leaving.wedged)

    simulate(entry, at_entry)
    simulate(leaving, at_exit)
