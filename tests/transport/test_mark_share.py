"""Shares of marked packets, whether packets wait for them or not; and what counts no more."""

import numpy as np
import pytest
from gradnic.hdl.transport.mark_share import MarkShare
from gradnic.models.transport import mark_share
from gradnic.sim.engine import batch, stimulus

LAG = 12  # cycles from a packet to its share, and one more


@pytest.mark.parametrize("close", [0, 0.7], ids=["apart", "close"])
def test_shares_equal_golden(close):
    """Packets that wait for their share; and some that come two cycles before the next one."""
    model = batch.build(MarkShare())
    rng = stimulus.rng("mark share", close)
    n = 3000
    gaps = np.where(rng.random(n) < close, 2, LAG + 1)
    waits = gaps > LAG
    neighbor = rng.integers(0, 3, n)
    marked = rng.random(n) < np.where(neighbor == 0, 1, np.where(neighbor == 1, 0.3, 0.01))
    tells = waits & (rng.random(n) < 0.05)
    counts, golden = [mark_share.MarkShare() for _ in range(3)], []
    for who, mark, tell in zip(neighbor, marked, tells, strict=True):
        counts[who].packet(bool(mark))
        golden.append(counts[who].share)
        if tell:
            counts[who].sent()
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


def test_no_more_than_4095_packets_count():
    """The last two of them marked, then only marked ones; and the first one after an answer."""
    model, golden = batch.build(MarkShare()), mark_share.MarkShare()
    n, gap = 4110, 2
    marked = np.arange(n) >= mark_share.MOST - 200
    at = 2 + gap * np.arange(n)
    came, told = np.zeros((2, at[-1] + 3 * LAG), int)
    flags = np.zeros_like(came)
    came[at], flags[at] = 1, marked
    told[at[-1] + LAG] = 1
    again = at[-1] + LAG + 4
    came[again] = 1
    run = model.run(
        {},
        signals={"neighbor": 3, "packet": came, "marked": flags, "sent": told},
        trace=["share", "known"],
        drain=False,
        max_cycles=len(came),
    )
    for mark in marked:
        golden.packet(bool(mark))
    assert golden.n_packets == mark_share.MOST
    assert run.traces["known"][at[-1] + LAG - 1]
    assert run.traces["share"][at[-1] + LAG - 1] == golden.share == 200 * 256 // mark_share.MOST
    golden.sent()
    golden.packet(False)
    assert run.traces["share"][again + LAG - 1] == golden.share == 0
