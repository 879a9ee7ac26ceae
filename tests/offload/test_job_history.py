"""What a card remembers of rounds that are over, against its golden model, cycle by cycle."""

import numpy as np
import pytest
from gradnic.hdl.offload.job_history import History
from gradnic.models.offload.job_history import History as Golden
from gradnic.sim.engine import stimulus
from gradnic.sim.engine.amaranth_run import simulate

from gradnic.interface.job import HISTORY

SEEN = 2  # cycles from a round that is over until it is known


def test_a_tensor_displaces_another_one_of_its_place_and_no_older_round_a_newer_one():
    golden = Golden()
    golden.over(5, 0xFFFF)
    assert (golden.last(5), golden.last(5 + HISTORY)) == (0xFFFF, None)
    for gen, last in ((0xFFFE, 0xFFFF), (0x7FFF, 0xFFFF), (0, 0), (0xFFFF, 0), (0x7FFF, 0x7FFF)):
        golden.over(5, gen)
        assert golden.last(5) == last
    golden.over(5 + HISTORY, 1)
    assert (golden.last(5), golden.last(5 + HISTORY)) == (None, 1)


@pytest.mark.parametrize("far", [False, True], ids=["near", "far"])
def test_what_is_known_equals_the_model(far):
    """A write and two questions in each cycle. far : any tensor and GEN, not a few of each."""
    part, rng, n = History(), stimulus.rng("job_history", str(far)), 1500
    if far:
        tensors, gens = rng.integers(0, 1 << 16, (2, n))
        tensors &= np.where(rng.random(n) < 0.5, 0xFFFF, HISTORY | 3)
    else:
        tensors = rng.choice([0, 1, 63, 64, 65, 127, 0xFFC0, 0xFFFF], n)
        gens = np.cumsum(rng.choice([0, 1, -1, 2, 0x7FFF, 0x8000, 0x8001], n)) % (1 << 16)
    valid = rng.random(n) < 0.7
    asked = np.where(
        rng.random((n, 2)) < 0.8, tensors[rng.integers(0, n, (n, 2))], tensors[:, None]
    )
    golden, found = Golden(), [0, 0]

    async def bench(ctx):
        for k in range(n):
            if k >= SEEN and valid[k - SEEN]:
                golden.over(int(tensors[k - SEEN]), int(gens[k - SEEN]))
            write = {"valid": int(valid[k]), "tensor": int(tensors[k]), "gen": int(gens[k])}
            ctx.set(part.write, write)
            for port, tensor in zip(part.asked, asked[k].tolist(), strict=True):
                ctx.set(port, tensor)
            for over, tensor in zip(part.over, asked[k].tolist(), strict=True):
                told = ctx.get(over)
                known = told.gen if told.valid and told.tensor == tensor else None
                assert known == golden.last(tensor), k
                found[known is not None] += 1
            await ctx.tick()

    simulate(part, bench)
    assert min(found) > n // 10
