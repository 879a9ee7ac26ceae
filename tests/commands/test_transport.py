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
    told = json.loads(result.read_text())
    assert (told["bytes"], told["probe_us"], told["runs"]) == (2_000_000, 20, 2)
    exact, bounded = told["curve"]
    assert exact["missing_worst"] == 0
    assert 0 < bounded["missing_worst"] <= 0.02
    assert bounded["need_bytes"] == 2_000_000 - (2_000_000 * 1310 >> 16)
    assert bounded["over_loss_free_worst"] < 1.05 < exact["over_loss_free"] < 2
    picture = plot.read_text()
    assert "<svg" in picture
    for text in ("worst of the runs", "without loss", "share p that may be missing, %"):
        assert f"<!-- {text} -->" in picture  # legend and axis, with a unit


@pytest.mark.parametrize("ending", ["svg", "pdf", "png"])
def test_the_same_picture_is_the_same_bytes(tmp_path, ending):
    for name in "ab":
        plot = tmp_path / f"{name}.{ending}"
        done = run("--bytes", "10KB", "--p", "0,0.02", "--runs", "1", "--plot", str(plot))
        assert done.exit_code == 0, done.output
    a, b = ((tmp_path / f"{name}.{ending}").read_bytes() for name in "ab")
    assert a == b
    if ending != "png":
        assert b"Date" not in a
        assert b"<dc:date" not in a
