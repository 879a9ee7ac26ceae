"""Shares of marked packets equal those of the golden card's formula."""

import numpy as np
import pytest
from gradnic.hdl.transport.mark_share import MarkShare
from gradnic.sim.engine import batch

LAG = 12  # cycles from a packet to its share, and one more


@pytest.mark.parametrize("close", [0, 0.7], ids=["apart", "close"])
def test_shares_equal_the_formula(close):
    """Packets that wait for their share; and some that come two cycles before the next one."""
    model = batch.build(MarkShare())
    rng = np.random.default_rng(1)
    n = 3000
    gaps = np.where(rng.random(n) < close, 2, LAG + 1)
    waits = gaps > LAG
    neighbor = rng.integers(0, 3, n)
    marked = rng.random(n) < np.where(neighbor == 0, 1, np.where(neighbor == 1, 0.3, 0.01))
    tells = waits & (rng.random(n) < 0.05)
    counts, golden = np.zeros((3, 2), int), []
    for who, mark, tell in zip(neighbor, marked, tells, strict=True):
        counts[who] += 1, mark
        golden.append(min(counts[who, 1] * 256 // counts[who, 0], 255))
        if tell:
            counts[who] = 0
    ends = np.cumsum(gaps) - 1  # the last cycle of each
    came, told = np.zeros((2, ends[-1] + 1), int)
    came[ends - gaps + 2] = 1  # the first cycle also stands while the circuit is reset
    told[ends[tells]] = 1
    run = model.run(
        {},
        signals={
            "neighbor": np.repeat(neighbor, gaps),
            "packet": came,
            "marked": np.repeat(marked, gaps),
            "sent": told,
        },
        trace=["share", "known"],
        drain=False,
        max_cycles=len(came),
    )
    assert run.traces["known"][ends[waits]].all()
    np.testing.assert_array_equal(run.traces["share"][ends[waits]], np.array(golden)[waits])
