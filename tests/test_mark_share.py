"""Shares of marked packets equal those of the golden card's formula."""

import numpy as np
from gradnic.hdl.mark_share import MarkShare
from gradnic.sim import batch


def test_shares_equal_the_formula():
    model = batch.build(MarkShare())
    rng = np.random.default_rng(1)
    n, gap = 3000, 12
    neighbor = rng.integers(0, 3, n)
    marked = rng.random(n) < np.where(neighbor == 0, 1, np.where(neighbor == 1, 0.3, 0.01))
    tells = rng.random(n) < 0.05
    counts, golden = np.zeros((3, 2), int), []
    for who, mark, tell in zip(neighbor, marked, tells, strict=True):
        counts[who] += 1, mark
        golden.append(min(counts[who, 1] * 256 // counts[who, 0], 255))
        if tell:
            counts[who] = 0
    pulse = np.zeros((n, gap), int)
    pulse[:, 1] = 1  # the first cycle also stands while the circuit is reset
    told = np.zeros((n, gap), int)
    told[:, gap - 1] = tells
    run = model.run(
        {},
        signals={
            "neighbor": np.repeat(neighbor, gap),
            "came": pulse.ravel(),
            "marked": np.repeat(marked, gap),
            "told": told.ravel(),
        },
        trace=["share", "known"],
        drain=False,
        max_cycles=n * gap,
    )
    at = np.arange(n) * gap + gap - 1
    assert run.traces["known"][at].all()
    np.testing.assert_array_equal(run.traces["share"][at], golden)
