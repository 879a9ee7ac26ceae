"""A lane's rotated values become indices and levels as the golden quantizer's."""

import numpy as np
import pytest
from gradnic.hdl.thc.quantize import Quantize
from gradnic.models.thc import solve_table
from gradnic.models.thc.quantize import Quantizer, normalized
from gradnic.sim.engine import batch, stimulus

WIDTH = 28  # of a block of 4096
TABLES = [(4, 30, 1 / 32), (1, 1, 1 / 16), (3, 34, 1 / 1024), (8, 254, 1 / 128), (2, 255, 1 / 16)]


def cells(quantizer):
    """Words of `Cell`: lower index, units above its level, gap to the next."""
    for unit, (lower, level, gap) in enumerate(quantizer.cells.tolist()):
        yield lower | unit - level // 256 << 8 | gap << 16


@pytest.mark.parametrize("log4", range(4))
@pytest.mark.parametrize(("b", "g", "p"), TABLES)
def test_indices_and_levels(b, g, p, log4):
    """Every value inside of the clip points with the ends of the dice; then noise, and far off."""
    rng, h = stimulus.rng("quantize", b, g, log4), log4 + 3
    table = solve_table(b, g, p)
    quantizer = Quantizer(table, p)
    inside = np.arange(-quantizer.t_fixed - 2, quantizer.t_fixed + 3)
    halves = np.array([-1 << h - 1, 0, (1 << h - 1) - 1])  # rounded up, none, down
    corners = (inside[:, None, None] << h) + halves[:, None]
    corners = np.broadcast_to(corners, (len(inside), 3, 4)).reshape(-1)
    ends = [-1 << WIDTH - 1, (1 << WIDTH - 1) - 1]
    values = np.concatenate(
        [corners, ends, rng.integers(*ends, 2000), rng.normal(0, 256 << h, 50_000).astype(int)]
    )
    random = rng.integers(0, 256, len(values))
    random[: len(corners)] = np.resize([0, 255, 127, 128], len(corners))
    want = quantizer(normalized(values, h), random.astype(np.uint8))
    assert set(want.tolist()) == set(range(1 << b))

    part = batch.build(Quantize(WIDTH, levels=True)).instance()
    words = list(cells(quantizer))
    part.run(
        signals={
            "log4": log4, "t_fixed": quantizer.t_fixed, "unit": quantizer.unit, "i": 0,
            "write_en": [1] * len(words) + [0], "write_addr": [*range(len(words)), 0],
            "write_data": [*words, 0],
        },
        drain=False, max_cycles=len(words) + 1,
    )  # fmt: skip
    lag = Quantize.random_lag
    run = part.run(
        signals={
            "log4": log4, "t_fixed": quantizer.t_fixed, "unit": quantizer.unit, "write_en": 0,
            "i": values, "random": [*[0] * lag, *random],
        },
        trace=["o", "level"], reset=False, drain=False, max_cycles=len(values) + Quantize.latency,
    )  # fmt: skip
    np.testing.assert_array_equal(run.traces["o"][Quantize.latency :], want)
    np.testing.assert_array_equal(run.traces["level"][Quantize.latency :], np.array(table)[want])


def test_the_model_rounds_half_up_after_the_transform():
    assert normalized(np.array([-12, -4, -5, 3, 4, 11, 12]), 3).tolist() == [-1, 0, -1, 0, 1, 1, 2]


def test_errors_name_the_value_and_the_limit():
    with pytest.raises(ValueError, match="width must be at least 8, not 7"):
        Quantize(7)
