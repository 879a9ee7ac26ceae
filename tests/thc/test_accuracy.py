"""The accuracy table against figures that others published or that follow from theory."""

import math
import os
import subprocess
import sys

import ml_dtypes
import numpy as np
import pytest
from gradnic.models.thc import baselines
from gradnic.models.thc.quic_fl import quic_fl, solve_levels
from gradnic.sim.thc import accuracy


def error(name, distribution="gaussian", n=1):
    (mean_of,) = (f for scheme, _, f in accuracy.schemes() if scheme == name)
    rng = np.random.default_rng(3)
    gradients = np.stack([accuracy.DISTRIBUTIONS[distribution](rng, 1 << 16) for _ in range(n)])
    return accuracy.nmse(mean_of, gradients, rng)


def test_levels_are_solved_once():
    """A row of the table makes all schemes, of which it plays one."""
    for solve, asked in (baselines.lloyd_max, (3,)), (solve_levels, (1, 6)):
        assert solve(*asked) is solve(*asked)
        assert not solve(*asked).flags.writeable


COMPRESSORS = [
    baselines.eden(4), baselines.min_max(4, rotated=True), baselines.min_max(4, rotated=False),
    baselines.qsgd(7, "l2"), baselines.qsgd(7, "max"), baselines.terngrad, baselines.top_k(0.1),
    baselines.block_min_max(4), baselines.scaled_sign, baselines.microscaling(2, 1),
    baselines.microscaling(4, 3, rotated=True), quic_fl(1, shared=6),
]  # fmt: skip


@pytest.mark.parametrize("compress", COMPRESSORS)
def test_a_gradient_of_zeros_is_no_nan(compress):
    got = compress(np.zeros(1024), np.random.default_rng(0))
    np.testing.assert_array_equal(np.abs(got), np.zeros(1024), strict=True)


@pytest.mark.parametrize(
    ("compress", "shape", "words"),
    [
        (baselines.eden(4), (1000,), r"x must have shape \(n,\), n a power of two, not \(1000,\)"),
        (baselines.min_max(4, rotated=True), (32, 32), r"a power of two, not \(32, 32\)"),
        (quic_fl(1, shared=6), (0,), r"a power of two, not \(0,\)"),
        (baselines.microscaling(2, 1), (1000,), "x must hold a multiple of 32 values, not 1000"),
        (baselines.block_min_max(4), (1000,), "x must hold a multiple of 256 values, not 1000"),
    ],
)
def test_a_shape_that_does_not_fit_is_refused(compress, shape, words):
    with pytest.raises(ValueError, match=words):
        compress(np.ones(shape), np.random.default_rng(0))


@pytest.mark.parametrize("bits", [1, 2, 3, 4])
def test_lloyd_max_distortion(bits):
    """Max 1960, table 1: distortion of the best quantizer of N(0,1)."""
    levels = baselines.lloyd_max(bits)
    x = np.linspace(-8, 8, 400_001)
    weights = np.exp(-x * x / 2) / math.sqrt(2 * math.pi) * (x[1] - x[0])
    nearest = levels[np.searchsorted((levels[1:] + levels[:-1]) / 2, x)]
    distortion = (weights * np.square(x - nearest)).sum()
    assert distortion == pytest.approx([0.3634, 0.1175, 0.03454, 0.009497][bits - 1], rel=1e-3)


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("THC b4 g30 p1/32 (default)", 0.0203),
        ("EDEN 4 bit", 0.0096),
        ("EDEN 1 bit", math.pi / 2 - 1),
        ("MXFP4, rotated", 0.0132),
        ("QUIC-FL 4 bit", 0.0097),
        ("QUIC-FL 3 bit", 0.043),
        ("QUIC-FL 2 bit", 0.214),
        ("QUIC-FL 1 bit", 1.47),
    ],
)
def test_known_errors(name, expected):
    assert error(name) == pytest.approx(expected, rel=0.04)


def test_cut_and_rounded_floats_err_by_their_last_bit():
    """A bit q cut off is q^2 / 3 in the mean, rounded q^2 / 12; a ring of four cuts four times."""
    assert error("cut 16 bits, ring") / error("BF16") == pytest.approx(4, rel=0.02)
    assert error("FP16") / error("BF16") == pytest.approx(1 / 64, rel=0.02)
    one, four = (error("cut 22 bits, ring", n=n) for n in (1, 4))
    assert four > 2 * one / 4  # they all err towards zero: more than independent errors
    assert error("cut 24 bits, ring") > 0.1  # halves what it cuts the exponent of


def test_mxfp4_ties_go_to_the_even_code():
    block = np.zeros(32)
    block[:6] = [4, 5, 2.5, 0.25, 0.75, -3.5]
    np.testing.assert_array_equal(baselines.microscaled(block)[:6], [4, 4, 2, 0, 1, -4])


@pytest.mark.parametrize(
    ("shape", "dtype"),
    [
        ((2, 1), ml_dtypes.float4_e2m1fn),
        ((3, 2), ml_dtypes.float6_e3m2fn),
        ((4, 3), ml_dtypes.float8_e4m3fn),
    ],
)
def test_magnitudes_of_small_floats(shape, dtype):
    codes = np.arange(2 ** sum(shape), dtype=np.uint8).view(dtype).astype(float)
    finite = codes[np.isfinite(codes)]
    np.testing.assert_array_equal(baselines.float_magnitudes(*shape), finite)


def test_mxfp8_scales_to_the_format():
    block = np.zeros(32)
    block[:4] = [448, 449, 511, -1.0625]
    np.testing.assert_array_equal(baselines.microscaled(block, 4, 3)[:4], [448, 448, 448, -1])


def test_levels_of_quic_fl_are_right_on_average():
    """Every value that may be sent as a level is, over the shared numbers, what is received."""
    gradient = np.random.default_rng(1).standard_normal(4096)
    compress = quic_fl(2, shared=5)
    received = [compress(gradient, np.random.default_rng(k)) for k in range(400)]
    error = np.mean(received, axis=0) - gradient
    assert np.square(error).mean() == pytest.approx(0.214 / 400, rel=0.1)


def test_unbiased_schemes_average_out():
    for name in ("QSGD s127, max", "min-max 4 bit, rotated", "EDEN 4 bit"):
        assert error(name, n=8) == pytest.approx(error(name) / 8, rel=0.35)


def test_feedback_makes_late_of_what_was_lost():
    """Errors do not add up any more: of eight rounds at most what one keeps, over eight."""
    (row,) = accuracy.compare("gaussian", [2], n_values=1 << 12, n_trials=2, only=["EF-SignSGD"])
    assert row["nmse"][2] == pytest.approx((1 - 2 / math.pi) / 2, rel=0.1)
    assert row["feedback"][2] < row["nmse"][2]
    assert 0 < row["feedback_deviation"][2] < row["feedback"][2]


def test_a_trial_of_feedback_has_values_of_its_own():
    """Its mean is over as many trials as that without feedback."""
    one, two = (
        accuracy.compare("gaussian", [1], n_values=1 << 12, n_trials=n, only=["DGC 0.1 %, up"])[0]
        for n in (1, 2)
    )
    assert one["feedback_deviation"] == {1: 0.0}
    apart = 2 * (two["feedback"][1] - one["feedback"][1])  # of the second from the first
    assert two["feedback_deviation"][1] == pytest.approx(abs(apart) / math.sqrt(2))
    (row,) = accuracy.compare("gaussian", [1], n_values=1 << 12, n_trials=1, only=["BF16"])
    assert row["feedback"] is None
    assert row["feedback_deviation"] is None


def test_feedback_changes_nothing_for_an_exact_scheme():
    rng = np.random.default_rng(2)
    exact = accuracy.feedback_error(
        lambda x, rng: (x.mean(axis=0), np.zeros_like(x)), lambda: rng.standard_normal((3, 64)), rng
    )
    assert exact == pytest.approx(0, abs=1e-25)


def test_requantizing_hops_cost_more_with_every_worker():
    one, eight = (error("requantized ring, 5 bit", n=n) for n in (1, 8))
    assert 8 * eight > 3 * one  # of a sum that is n times as long squared


def test_inceptionn_ring_keeps_its_bound():
    from gradnic.sim.thc.schemes import SCALE, InceptionnRing

    rng = np.random.default_rng(4)
    gradients = rng.standard_normal((4, 1 << 12))
    scheme = InceptionnRing(117)
    worst = np.abs(scheme(gradients, rng) - gradients.mean(axis=0)).max()
    factor = SCALE / np.sqrt(np.square(gradients).mean())
    assert 0 < worst * factor <= 2**-10  # four passes, over four workers
    assert 2 < scheme.bits < 32


def test_majority_and_dgc():
    (vote,) = (f for scheme, _, f in accuracy.schemes() if scheme == "SignSGD, majority")
    rng = np.random.default_rng(1)
    same = np.repeat(np.where(rng.random((1, 4096)) < 0.5, -1.0, 1.0), 3, axis=0)
    np.testing.assert_array_equal(vote(same, rng), same[0])
    assert 0.9 < error("DGC 0.1 %, up") < 1


ON_THREADS = """
import sys
from gradnic.sim.thc.accuracy import scheme_row
print([scheme_row(s, "lognormal", [1], 1 << 16, 1, 0) for s in ("EDEN 4 bit", "TernGrad")])
"""


def test_figures_do_not_depend_on_the_threads_of_blas():
    """Workers of a cluster have one, a process alone one a core."""
    told = [
        subprocess.run(
            [sys.executable, "-c", ON_THREADS], capture_output=True, text=True, check=True,
            env=os.environ | {"OPENBLAS_NUM_THREADS": n},
        ).stdout
        for n in "12"
    ]  # fmt: skip
    assert told[0] == told[1]
    assert "EDEN" in told[0]
