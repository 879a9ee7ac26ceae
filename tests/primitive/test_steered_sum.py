"""Sums whose second operand is chosen: both bodies equal Python's."""

import itertools

import numpy as np
import pytest
from gradnic.hdl.primitive.steered_sum import SteeredRest, SteeredSum
from gradnic.sim.engine import batch, ecp5

BUILDS = {"generic": batch.build, "ecp5": ecp5.build}


def _operands(width, rng):
    low = -(1 << (width - 1))
    values = [low, low + 1, -1, 0, 1, -low - 1, *rng.integers(low, -low, 30).tolist()]
    return np.array(list(itertools.product(values, values)), np.int64).T


def _check(part, width, signals, want):
    run = part.run(signals=signals, trace=["o"], drain=False, max_cycles=len(want))
    half = 1 << (width - 1)
    np.testing.assert_array_equal(run.traces["o"], (want + half) % (2 * half) - half)


@pytest.mark.parametrize("body", BUILDS)
@pytest.mark.parametrize("width", [7, 22, 27])
def test_sums_and_differences(width, body):
    a, b = _operands(width, np.random.default_rng(width))
    rows = {"a": a, "b": b}
    total, rest = (BUILDS[body](kind(width)) for kind in (SteeredSum, SteeredRest))
    for minus, counts in ((0, 0), (0, 1), (1, 1)):
        flags = {"minus": np.full(len(a), minus), "counts": np.full(len(a), counts)}
        _check(total, width, rows | flags, a + counts * (-b if minus else b))
        if not minus:
            _check(rest, width, rows | {"counts": flags["counts"]}, a - counts * b)
