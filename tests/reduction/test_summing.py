"""Sums in order of ranks: whole blocks against the golden sums, their pace, and beats astray."""

import numpy as np
import pytest
from gradnic.hdl.reduction.reduce import Op
from gradnic.hdl.reduction.summing import Summing
from gradnic.sim.engine import amaranth_run, batch, stimulus
from gradnic.sim.reduction.blocks import beats, blocks, ends


@pytest.mark.parametrize("stall", [{}, {"own": 0.5, "sums": 0.3, "contributions": 0.7}], ids=str)
@pytest.mark.parametrize(("integers", "most", "turn"), [(True, 20, 21), (False, 33, 26)])
def test_blocks_in_order_of_ranks(stall, integers, most, turn):
    """Through LUT RAM, and through block RAM, which takes longer."""
    rng = stimulus.rng("summing")
    model = batch.build(Summing(2, max_beats=most, integers=integers, maxima=not integers))
    jobs, streams, sums = blocks(rng, model, integers)
    run = model.run(streams, stalls=stall, trace=["astray"])
    run.check(sums=sums)
    assert not run.traces["astray"].any()
    if not stall:
        bound = sum(max(1, ranks) * max(n, turn) for n, ranks, _ in jobs)
        assert run.taken["sums"][-1] < bound


@pytest.mark.parametrize(("most", "turn"), [(22, 21), (33, 26)])
def test_a_short_block_takes_turns_but_for_its_last_rank(most, turn):
    """Behind full ones and among its like: 29 cycles for 8 beats and two contributions, not 42."""
    model = batch.build(Summing(4, max_beats=most, integers=False))
    for ranks in (1, 2, 3, 7):
        for n_beats in (2, 8, 20, 21, 22, most):
            sizes = [most, most, *[n_beats] * 3, most, most]
            own = [np.zeros((n, 4), np.uint32) for n in sizes]
            more = [block for block in own for _ in range(ranks)]
            told = {"n_beats": sizes, "n_contributions": [ranks] * len(sizes)}
            streams = {
                "jobs": model.pack("jobs", **told, op=[0] * len(sizes)),
                "own": beats(model, "own", np.concatenate(own), last=ends(own)),
                "contributions": beats(
                    model, "contributions", np.concatenate(more), last=ends(more)
                ),
            }
            left = model.run(streams).taken["sums"][np.cumsum(sizes) - 1]
            want = [(ranks - 1) * max(n, turn) + n for n in sizes[1:]]
            assert np.diff(left).tolist() == want, (ranks, n_beats)


@pytest.mark.parametrize("integers", [True, False])
@pytest.mark.parametrize("name", ["own", "contributions"])
def test_a_beat_more_or_less_is_told(name, integers):
    model = batch.build(Summing(2, max_beats=20, integers=integers))
    _, streams, _ = blocks(stimulus.rng("more"), model, integers)
    sound = streams[name]
    for k in (0, 7, len(sound) // 2):
        for one in (np.delete(sound, k, axis=0), np.insert(sound, k, sound[0], axis=0)):
            more = {"trace": ["astray"], "max_cycles": 20000, "drain": False}
            run = model.run(streams | {name: one}, **more)
            assert run.traces["astray"][-1], (k, len(one))


@pytest.mark.parametrize("changes", [False, True])
def test_a_sum_that_nobody_made_is_told(changes):
    """In the middle of a block, while its next beat is late."""
    part = Summing(2, max_beats=20)

    async def bench(ctx):
        ctx.set(part.jobs.p, {"n_beats": 10, "n_contributions": 0, "op": Op.FLOAT})
        ctx.set(part.sums.ready, 1)
        for cycle in range(120):
            ctx.set(part.jobs.valid, cycle == 0)
            ctx.set(part.own.valid, 20 <= cycle < 25 or 80 <= cycle < 85)
            ctx.set(part.own.p.last, cycle == 84)
            if cycle == 60 and changes:
                ctx.set(part.reduce.queue.came, 1)
            await ctx.tick()
        assert ctx.get(part.astray) == changes

    amaranth_run.simulate(part, bench)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: Summing(4, max_beats=0), "max_beats must be 1 to 16384, not 0"),
        (lambda: Summing(65, max_beats=4, shared=True), "n_lanes must be 1 to 64, not 65"),
    ],
)
def test_errors_name_the_value_and_the_limit(call, message):
    with pytest.raises(ValueError, match=message):
        call()
