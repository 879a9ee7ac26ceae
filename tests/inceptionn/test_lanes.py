"""The value codec's lanes: every exponent and knee against the model, and strided sweeps."""

import json

import numpy as np
import pytest
from click.testing import CliRunner
from gradnic.models import inceptionn
from gradnic.sim.engine import stimulus
from gradnic.sim.inceptionn import sweep

from gradnic.cli import cli

VECTORS = {  # by docs/spec/codec.md: input, tag, decoded strict, decoded paper
    0x3F800000: (3, 0x3F800000, 0x3F800000),
    0x3F7FFFEF: (2, 0x3F7FFE00, 0x3F7FFE00),
    0x3F000000: (2, 0x3F000000, 0x3F000000),
    0xBE99999A: (2, 0xBE999800, 0xBE999800),
    0x3D000000: (2, 0x3D000000, 0x3D000000),
    0x3CF5C28F: (1, 0x3CF40000, 0x3CC00000),
    0xBCA3D70A: (1, 0xBCA20000, 0xBC800000),
    0x3C23D70A: (1, 0x3C200000, 0x3C000000),
    0x3B83126F: (1, 0x3B800000, 0),
    0xBA902DE0: (1, 0xBA800000, 0),
    0x3A800000: (1, 0x3A800000, 0),
    0x3A000000: (0, 0, 0),
    0x80000000: (0, 0, 0),
    0x000116C2: (0, 0, 0),
    0x7F800000: (3, 0x7F800000, 0x7F800000),
    0x7FC00000: (3, 0x7FC00000, 0x7FC00000),
}


def check(words, mode="strict", rounding="trunc", exponent=117, prescale=0):
    """All tags and decoded values of `words` equal the model's."""
    got = sweep.pipeline(rounding)(
        words, exponent=exponent, paper=int(mode == "paper"), prescale=prescale
    )
    values = words.view(np.float32)
    options = {"exponent": exponent, "prescale": prescale}
    image = inceptionn.image(values, mode=mode, rounding=rounding, **options)
    np.testing.assert_array_equal(got["decoded"], image.view(np.uint32))
    np.testing.assert_array_equal(got["tag"], inceptionn.tags(values, **options))


def test_vectors_of_the_spec():
    words = np.array(list(VECTORS), np.uint32)
    for paper in (0, 1):
        got = sweep.pipeline()(words, exponent=117, paper=paper, prescale=0)
        assert got["tag"].tolist() == [tag for tag, _, _ in VECTORS.values()]
        assert got["decoded"].tolist() == [v[1 + paper] for v in VECTORS.values()]


@pytest.mark.parametrize(
    ("mode", "rounding"), [("strict", "trunc"), ("paper", "trunc"), ("strict", "nearest")]
)
def test_corners_of_all_settings(mode, rounding):
    words = stimulus.float_corners()
    for exponent in range(113, 127):
        for prescale in (0, 1, -1, 10, -3, 100, -100, 127, -128):
            check(words, mode, rounding, exponent, prescale)


@pytest.mark.parametrize("exponent", sweep.EXPONENTS)
@pytest.mark.parametrize("mode", sweep.MODES)
def test_strided_sweep(mode, exponent):
    """A sample of `gradnic sweep`: 2^24 floats, every sign and exponent among them."""
    result = sweep.sweep(mode=mode, exponent=exponent, stride=257, offset=exponent)
    assert result["ok"], result
    assert result["floats"] > 16_000_000


def test_nearest_is_within_the_bound():
    result = sweep.sweep(rounding="nearest", stride=1021)
    assert result["ok"], result


def test_a_wrong_setting_is_seen():
    """The comparison can fail: a decoder told of another pre-scale."""
    words = stimulus.float_corners([117, 120])
    got = sweep.pipeline()(words, exponent=117, paper=0, prescale=0)
    other = sweep.pipeline()(words, exponent=118, paper=0, prescale=0)
    assert (got["tag"] != other["tag"]).any()
    assert (got["decoded"] != other["decoded"]).any()


def test_command():
    arguments = ["sweep", "--mode", "paper", "--stride", "1048573", "--json", "-"]
    run = CliRunner().invoke(cli, arguments)
    assert run.exit_code == 0, run.output
    results = json.loads(run.stdout)
    assert [result["exponent"] for result in results] == [117, 119, 121]
    assert all(result["ok"] and result["floats"] == 4097 for result in results)


def test_arguments():
    with pytest.raises(ValueError, match="settings must be"):
        sweep.pipeline()(np.zeros(1, np.uint32), exponent=117)
