"""Queues and delays of a dense target, in block RAM: the same, cycle for cycle."""

import numpy as np
import pytest
from gradnic.hdl.stream.delays import Delay
from gradnic.hdl.stream.fifo import FIFO
from gradnic.sim.engine import batch, ecp5, encoding

N = 400
QUEUES = {
    "32": lambda: FIFO(64, 32),
    "wide": lambda: FIFO(250, 16, never_full=False),
    "half-rate": lambda: FIFO(145, 32, half_rate=True),
    "stops": lambda: FIFO(145, 20, stops=True),
}


@pytest.mark.parametrize("name", QUEUES)
def test_queue_is_the_same_cycle_for_cycle(name):
    width = len(QUEUES[name]().i.payload)
    rows = np.random.default_rng(1).integers(0, 256, (N, -(-width // 8)), np.uint8)
    rows[:, -1] &= (1 << (width - 1) % 8 + 1) - 1
    small, dense = batch.build(QUEUES[name]()), ecp5.build(QUEUES[name](), target="ecp5-dense")
    for stalls in ({}, {"i": 0.3}, {"o": 0.3}, {"i": 0.6, "o": 0.6}):
        runs = [model.run({"i": rows}, ["o"], stalls=stalls, seed=2) for model in (small, dense)]
        for run in runs:
            run.check(o=rows)
        for port in ("i", "o"):
            np.testing.assert_array_equal(runs[0].taken[port], runs[1].taken[port])


def test_only_large_queues_are_in_block_ram():
    assert QUEUES["32"]()._is_large()
    for queue in (FIFO(145, 16), FIFO(63, 32), FIFO(145, 32, bypass=True)):
        assert not queue._is_large()
    assert not FIFO(145, 32, registered=False)._is_large()


@pytest.mark.parametrize("cycles", [4, 5, 9, 35])
def test_delay(cycles):
    rows = np.random.default_rng(cycles).integers(0, 256, (N, 5), np.uint8)
    for model in (
        batch.build(Delay(40, cycles)),
        ecp5.build(Delay(40, cycles), target="ecp5-dense"),
    ):
        run = model.run(signals={"i": rows}, trace=["o"], drain=False, max_cycles=N)
        got = encoding.pack(40, run.traces["o"])
        np.testing.assert_array_equal(got[2 * cycles :], rows[cycles:-cycles])


def test_delay_has_a_least():
    with pytest.raises(ValueError, match="cycles must be at least 4, not 3"):
        Delay(8, 3)
