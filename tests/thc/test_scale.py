"""What scales a block, and a lane's floats as fixed point, against the golden worker's."""

import numpy as np
import pytest
from gradnic.hdl.thc.scale import Factor, Reciprocal, Scale, SerialReciprocal
from gradnic.models.thc.scale import F, factors_of_norms, factors_of_scales, scale
from gradnic.sim.engine import batch, stimulus

KINDS = [(0, 0), (1, 0), (2, 0), (3, 0), (1, 1)]  # log4, tensor


def words(n):
    """Norms of every exponent, with significands on knees, and `n` others; no sign."""
    noise = stimulus.rng("norms").integers(0, 1 << 31, n, np.uint32)
    return np.concatenate([stimulus.float_corners() & np.uint32(0x7FFFFFFF), noise])


def wanted(words, log4, tensor):
    """Fields of `Factor`; factor and offset count where the block is not silent."""
    if tensor:
        factor, offset = factors_of_scales(words.view(np.float32))
    else:
        factor, offset = factors_of_norms(words, log4 + 3)
    exponent = words >> 23 & 255
    silent = (exponent == 0) | (exponent == 255)
    return factor, offset, silent


def compare(results, words, log4, tensor):
    factor, offset, silent = wanted(words, log4, tensor)
    np.testing.assert_array_equal(results >> 28 & 1, silent)
    np.testing.assert_array_equal(results[~silent] & (1 << 17) - 1, factor[~silent])
    np.testing.assert_array_equal(results[~silent] >> 17 & 0x7FF, offset[~silent] & 0x7FF)


def test_fields_of_a_factor():
    assert [(name, field.offset) for name, field in Factor] == [
        ("factor", 0), ("offset", 17), ("silent", 28)
    ]  # fmt: skip


@pytest.mark.parametrize(("log4", "tensor"), KINDS)
def test_a_factor_a_cycle(log4, tensor):
    model, given = batch.build(Reciprocal()), words(20_000)
    run = model.run(
        signals={"log4": log4, "tensor": tensor, "word": given},
        trace=["result"],
        drain=False,
        max_cycles=len(given) + Reciprocal.latency,
    )
    compare(run.traces["result"][Reciprocal.latency :], given, log4, tensor)


@pytest.mark.parametrize(("log4", "tensor"), KINDS)
def test_a_bit_a_cycle(log4, tensor):
    """One at a time, the next one started in the cycle in which the last is there; a word stands
    from the cycle behind its start on.
    """
    lag = SerialReciprocal.latency
    model, given = batch.build(SerialReciprocal()), words(5000)[::5]
    start = np.arange(len(given) * lag) % lag == 0
    run = model.run(
        signals={
            "log4": log4, "tensor": tensor, "word": [0, 0, *np.repeat(given, lag)],
            "start": [0, *start],
        },
        trace=["result"],
        drain=False,
        max_cycles=len(given) * lag + 2,
    )  # fmt: skip
    compare(run.traces["result"][lag + 1 :: lag], given, log4, tensor)


@pytest.mark.parametrize("log4", range(4))
def test_values(log4):
    """Every exponent under norms of a few, ties and ends of the range among them."""
    rng, h = stimulus.rng("scale", log4), log4 + 3
    corners = stimulus.float_corners()
    norms = np.array([0x00800000, 0x3F800000, 0x3F800001, 0x40FFFFFF, 0x7F7FFFFF], np.uint32)
    given = np.tile(corners, len(norms))
    under = np.repeat(norms, len(corners))
    n = 200_000
    near = rng.integers(1, 255, n)
    away = np.clip(near + rng.integers(-20, 3, n), 0, 254)
    noise = rng.integers(0, 1 << 23, (2, n)) & rng.choice([0x7FFFFF, 0x780000, 0x400000], (2, n))
    sign = rng.integers(0, 2, n) << 31
    given = np.concatenate([given, sign | away << 23 | noise[0]]).astype(np.uint32)
    under = np.concatenate([under, near << 23 | noise[1]]).astype(np.uint32)
    turned = rng.integers(0, 2, len(given)).astype(bool)
    factor, offset = factors_of_norms(under, h)
    want = scale(given.view(np.float32)[:, None], factor, offset, h)[:, 0]
    want = np.where(turned, -want, want)
    assert {-(1 << h + F), -1, 0, 1, 1 << h + F} <= set(want.tolist())
    run = batch.build(Scale()).run(
        signals={
            "log4": log4, "word": given, "factor": factor, "offset": offset,
            "negate": turned,
        },
        trace=["o"],
        drain=False,
        max_cycles=len(given) + Scale.latency,
    )  # fmt: skip
    np.testing.assert_array_equal(run.traces["o"][Scale.latency :] & 0xFFFF, want & 0xFFFF)


def test_the_model_is_a_rounded_quotient():
    """Within half a unit, and what 17-bit factors lose, of value / (norm / sqrt(B))."""
    rng, h = stimulus.rng("quotients"), 4
    values = rng.uniform(-1, 1, (500, 1)).astype(np.float32)
    norms = rng.uniform(1, 30, 500).astype(np.float32)
    got = scale(values, *factors_of_norms(norms.view(np.uint32), h), h)[:, 0]
    exact = values[:, 0].astype(float) / norms * (1 << h + F)
    assert np.abs(got - exact).max() <= 0.5 + 2.0**-14 * np.abs(exact).max()
