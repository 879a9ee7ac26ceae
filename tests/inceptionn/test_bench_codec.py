"""The benchmark: real data, every contestant restores what it should, and the bound is kept."""

import json

import numpy as np
import pytest
from click.testing import CliRunner
from gradnic.sim.inceptionn import bench_codec

from gradnic import cli


def test_gradients_are_distinct_and_real():
    x = bench_codec.real_gradients(4 << 20)
    assert (x.dtype, x.shape) == (np.float32, (1 << 20,))
    first, second = x[:235146], x[235146 : 2 * 235146]
    assert not np.array_equal(first, second)
    with pytest.raises(ValueError, match="not 0"):
        bench_codec.real_gradients(0)


def test_contestants_keep_their_word(tmp_path):
    command = ["bench", "--mib", "1", "--rounds", "2", "--exponent", "119"]
    result = CliRunner().invoke(cli.cli, [*command, "--json", str(tmp_path / "b.json")])
    assert result.exit_code == 0, result.output
    codecs = {c["name"]: c for c in json.loads((tmp_path / "b.json").read_text())["codecs"]}
    assert {"numpy twin", "compiled", "BF16 cast", "zlib -1"} <= set(codecs)
    assert codecs["zlib -1"]["nmse"] == codecs["zlib -1"]["max_abs_error"] == 0
    assert codecs["BF16 cast"]["ratio"] == 2
    for name in ("numpy twin", "compiled"):
        assert codecs[name]["max_abs_error"] < 2**-8
        assert codecs[name]["ratio"] == codecs["numpy twin"]["ratio"] > 2
    assert codecs["THC compiled"]["nmse"] == codecs["THC numpy"]["nmse"] < 0.03
    for codec in codecs.values():
        assert codec["compress_mb_s"] > 0
        assert codec["decompress_spread"] >= 0


@pytest.mark.parametrize(
    ("arguments", "words"),
    [(["--mib", "0"], "not 0"), (["--exponent", "9"], "not 9"), (["--rounds", "0"], "not 0")],
)
def test_mistakes_cost_one_line(arguments, words):
    result = CliRunner().invoke(cli.cli, ["bench", *arguments])
    assert result.exit_code == 2
    assert words in result.output
