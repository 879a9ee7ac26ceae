"""The FP32 adder: proven for all pairs, compared with numpy, and wrong adders found out."""

from pathlib import Path

import numpy as np
import pytest
from gradnic.hdl.reduction import float_add
from gradnic.hdl.reduction.float_add import NAN, FloatAdd
from gradnic.models.reduction.float_add import add
from gradnic.sim.engine import batch, stimulus
from gradnic.sim.reduction import adder_check


def bits(*words):
    return np.array(words, np.uint32).view(np.float32)


def test_equal_to_ieee_754_for_all_pairs():
    """z3 against ``fp.add RNE``, all 2^64 pairs: 40 s of CPU time."""
    assert adder_check.prove() == "unsat"


BUGS = {  # one line each: which text is replaced, and by what
    "ties go up": ("rest[3] & (kept[0] | rest[:3].any())", "rest[3]"),
    "no sticky bit": ("shifted[0] | below | lost", "shifted[0] | below"),
    "x - x is -0": ("sign = sign & ~empty", "sign = sign & ~0"),
    "subnormals are shifted too far": ("Mux(exponent < place, exponent[:5], place)", "place"),
    "no Inf": ("kept[23] & placed.all()", "0"),
    "Inf - Inf": ("(ones[0] & ones[1] & (a[31] ^ b[31]))", "0"),
}


@pytest.mark.parametrize("bug", BUGS)
def test_wrong_adders_are_refuted(bug):
    source = Path(float_add.__file__).read_text()
    right, wrong = BUGS[bug]
    assert source.count(right) == 1
    space = {"__name__": "gradnic.hdl.reduction.wrong"}
    exec(compile(source.replace(right, wrong), "wrong", "exec"), space)
    assert adder_check.refute(space["FloatAdd"]()) == "sat"


def test_sums_as_numpy_has_them():
    """All pairs of level 1, and random ones: a sample of `gradnic sweep --adder 1000000000`."""
    result = adder_check.campaign(1 << 21, level=1, seed=stimulus.master_seed())
    assert result["ok"], result
    assert (result["corner_pairs"], result["random_pairs"]) == (216**2, 1 << 21)


def test_one_sum_per_cycle_in_its_latency():
    rng = stimulus.rng("float_add")
    a, b = adder_check.random_pairs(1000, rng)
    model = batch.build(FloatAdd())
    run = model.run(
        signals={"a": a, "b": b}, trace=["o"], drain=False, max_cycles=len(a) + FloatAdd.latency
    )
    want = add(a.view(np.float32), b.view(np.float32))
    got = run.traces["o"][FloatAdd.latency :].astype(np.uint32)
    np.testing.assert_array_equal(got, want.view(np.uint32))


def test_model_has_one_nan():
    odd = bits(0x7FC00001, 0xFFFFFFFF, 0x7F800001, 0x7F800000)
    got = add(odd, bits(0, 1, 2, 0xFF800000))
    assert got.view(np.uint32).tolist() == [NAN] * 4
    assert add(bits(0x80000000), bits(0x80000000)).view(np.uint32).tolist() == [0x80000000]
    assert add(np.ones((3, 1), np.float32), np.ones(2, np.float32)).shape == (3, 2)


def test_patterns_cover_every_kind():
    for level, n in ((1, 216), (2, 2752)):
        words = adder_check.patterns(level)
        assert len(np.unique(words)) == len(words) == n
        with np.errstate(invalid="ignore"):
            values = words.view(np.float32)
        for kind in (np.isnan(values), np.isinf(values), values == 0, np.isfinite(values)):
            assert kind.any()
        assert (np.abs(values[np.isfinite(values)]) < 2.0**-126).any()
