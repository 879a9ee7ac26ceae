"""``gradnic transport``: the curve, its JSON, its picture, and a user's mistakes."""

import json

import pytest
from click.testing import CliRunner

from gradnic.commands.transport import command


def run(*arguments):
    return CliRunner().invoke(command, arguments)


def test_curve(tmp_path):
    plot, result = tmp_path / "tail.svg", tmp_path / "tail.json"
    done = run("--bytes", "2MB", "--p", "0,0.02", "--runs", "2", "--plot", str(plot),
               "--json", str(result))  # fmt: skip
    assert done.exit_code == 0, done.output
    exact, bounded = json.loads(result.read_text())["curve"]
    assert exact["missing_worst"] == 0
    assert 0 < bounded["missing_worst"] <= 0.02
    assert bounded["need_bytes"] == 2_000_000 - (2_000_000 * 1310 >> 16)
    assert bounded["over_loss_free_worst"] < 1.05 < exact["over_loss_free"] < 2
    assert plot.read_text().startswith("<svg")


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("--p", "0,1"), "p must be from 0 to below 1, not '1'"),
        (("--p", "x"), "p must be from 0 to below 1, not 'x'"),
        (("--loss", "1"), "loss must be from 0 to below 1, not 1.0"),
        (("--runs", "0"), "runs and payload must be at least 1, not 0 and 1408"),
        (("--bytes", "much"), "bytes must be a number"),
        (("--gbps", "0"), "gbps must be above 0, not 0.0"),
    ],
)
def test_mistakes_are_one_line(arguments, words):
    done = run("--bytes", "1MB", *arguments)
    assert isinstance(done.exception, ValueError)
    assert words in str(done.exception)
