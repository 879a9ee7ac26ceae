"""``gradnic cosim``: mistakes cost one line before anything is built."""

import json

import numpy as np
import pytest
from click.testing import CliRunner
from gradnic.sim.inline import ring as cluster
from gradnic.sim.inline.idle_card import IdleCard

from gradnic import cli


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--nodes", "1"], "nodes must be 2 to 16, not 1"),
        (["--nodes", "17"], "not 17"),
        (["--algorithm", "tree"], "not 'tree'"),
        (["--codec", "zip"], "not 'zip'"),
        (["--lanes", "12"], "lanes must be 4, 8, 16 or 32, not 12"),
        (["--exponent", "127"], "not 127"),
        (["--mode", "lax"], "not 'lax'"),
        (["--prescale", "128"], "not 128"),
        (["--floats", "2105"], "not 2105"),
        (["--elements", "0"], "not 0"),
        (["--gradients", "a.npy"], "must be 4 files, one a node, not 1"),
        (["--nodes", "2", "--gradients", "a.npy", "--gradients", "b.npy"], "a.npy"),
        (["--iteration", "0"], "not .0."),
        (["--topology", "mesh:2x2", "--link", "copper"], "not 'copper'"),
        (
            ["--topology", "mesh:2x2", "--codec", "int32"],
            "must be one of none, inceptionn, thc on flit links",
        ),
        (["--topology", "mesh:2x2", "--flow", "worm"], "message or packet, not 'worm'"),
        (["--topology", "mesh:2x2", "--elements", "0"], "not 0"),
    ],
)
def test_mistakes_are_errors(arguments, words):
    result = CliRunner().invoke(cli.cli, ["cosim", *arguments])
    assert isinstance(result.exception, ValueError | OSError), result.output
    pytest.raises(type(result.exception), _raise, result.exception).match(words)


def test_files_that_do_not_go_together(tmp_path):
    np.save(tmp_path / "a.npy", np.ones(8, np.float32))
    np.save(tmp_path / "b.npy", np.ones(9, np.float32))
    np.save(tmp_path / "c.npy", np.ones(8))
    for second, words in [("b.npy", r"\[8, 9\]"), ("c.npy", "float64")]:
        files = ["--gradients", tmp_path / "a.npy", "--gradients", tmp_path / second]
        result = CliRunner().invoke(cli.cli, ["cosim", "--nodes", "2", *map(str, files)])
        pytest.raises(ValueError, _raise, result.exception).match(words)


def cosim(folder, *arguments):
    options = ["--nodes", "2", "--lanes", "4", "--iteration", "1", "--elements", "700"]
    report = folder / "cosim.json"
    result = CliRunner().invoke(cli.cli, ["cosim", *options, *arguments, "--json", str(report)])
    return result, json.loads(report.read_text())


def test_idle_cards_fail_where_they_should_code(tmp_path, monkeypatch):
    monkeypatch.setattr(cluster, "build_card", lambda n: cluster.build(IdleCard(n), f"idle{n}"))
    result, report = cosim(tmp_path)
    assert result.exit_code == 1
    assert {"ok", "nodes", "cycles", "bit_exact", "mismatches"} <= set(report)
    assert (report["ok"], report["bit_exact"], report["nodes"]) == (False, False, 2)
    assert report["mismatches"] > 0
    assert "DIFFER" in result.output
    result, report = cosim(tmp_path, "--codec", "none")
    assert result.exit_code == 0
    assert (report["ok"], report["mismatches"]) == (True, 0)


@pytest.mark.parametrize("setting", [["--mode", "paper"], ["--exponent", "121", "--prescale", "2"]])
def test_cards_of_rtl_agree(tmp_path, setting):
    result, report = cosim(tmp_path, *setting, "--floats", "100", "--link-bytes", "0")
    assert result.exit_code == 0, result.output
    assert report["ok"]
    assert report["bit_exact"]
    assert report["wire_bytes"] < report["raw_bytes"]


def test_cards_on_a_topology(tmp_path):
    report = tmp_path / "flit.json"
    options = ["--topology", "mesh:2x2", "--lanes", "8", "--elements", "300", "--iteration", "1"]
    options += ["--link-latency", "20", "--flow", "packet", "--json", str(report)]
    result = CliRunner().invoke(cli.cli, ["cosim", *options])
    assert result.exit_code == 0, result.output
    got = json.loads(report.read_text())
    assert {"ok", "nodes", "cycles", "bit_exact", "mismatches", "busiest_link_share"} <= set(got)
    assert (got["ok"], got["nodes"], got["mismatches"]) == (True, 4, 0)
    assert (got["algorithm"], got["gradients"], got["floats"]) == ("multitree", "real", 300)
    assert got["cycles"] > got["bound_cycles"]


def _raise(error):
    raise error
