"""``gradnic cosim``: mistakes cost one line before anything is built."""

import json
import re
from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner
from gradnic.sim.inline import ring as cluster
from gradnic.sim.inline.idle_card import IdleCard

from gradnic import cli
from gradnic.commands import cosim_card


@pytest.mark.parametrize(
    ("words", "line"),
    [
        ("ring --nodes 1", "--nodes must be 2 to 16, not 1"),
        ("ring --nodes 17", "--nodes must be 2 to 16, not 17"),
        ("ring --codec zip", "--codec must be inceptionn or none, not zip"),
        ("ring --lanes 12", "--lanes must be 4, 8, 16 or 32, not 12"),
        ("ring --exponent 127", "--exponent must be 113 to 126, not 127"),
        ("ring --mode lax", "--mode must be strict or paper, not lax"),
        ("ring --prescale 128", "--prescale must be -128 to 127, not 128"),
        ("ring --floats 2105", "--floats must be 1 to 2,104 floats a frame, not 2105"),
        ("ring --link-bytes nan", "--link-bytes must be 0 to 1,000 bytes a cycle, not nan"),
        ("ring --elements 0", "--elements must be 1 to 16,777,216, not 0"),
        ("ring --iteration 0", "--iteration must be 1 to 1,000,000, not 0"),
        ("ring --gradients a.npy", "a.npy: No such file or directory"),
        ("ring --codec none --exponent 120", "--exponent is for --codec inceptionn"),
        ("direct --topology mesh:2x2 --codec int32", "none, inceptionn or thc, not int32"),
        ("direct --topology mesh:2x2 --flow worm", "--flow must be message or packet, not worm"),
        ("direct --topology mesh:2x2 --block 64", "--block is for --codec thc"),
        ("direct", "Missing option '--topology'"),
        ("card --topology ring:4 --loss 1", "--loss must be 0 to below 1, not 1"),
        ("card --topology ring:4 --mark 99", "--mark is for queues: --queue"),
        ("card --topology ring:4 --queue 9 --mark 99", "mark must be 1 to 9"),
        # each machine refuses what others have
        ("ring --loss 0.1", "machine ring has no option --loss; star or card has it"),
        ("ring --topology ring:4", "machine ring has no option --topology; direct or card has it"),
        ("ring --death 1:2", "machine ring has no option --death; star has it"),
        ("ring --p 0.1", "machine ring has no option --p; card has it"),
        ("ring --spray", "machine ring has no option --spray; card has it"),
        ("ring --pace ce", "machine ring has no option --pace; card has it"),
        ("ring --queue 9", "machine ring has no option --queue; card has it"),
        ("direct --deadline 3", "machine direct has no option --deadline; star has it"),
        ("card --link-latency 3", "machine card has no option --link-latency; direct has it"),
        ("star --exponent 117", "machine star has no option --exponent; ring, direct or card has"),
        ("star --nodes 4", "machine star has no option --nodes; ring has it"),
        ("star --colour red", "machine star has no option --colour"),
        # what was one command
        ("--nodes 3", "name the machine first: gradnic cosim ring --nodes 3"),
        ("--aggregator --loss 0.1", "gradnic cosim star --loss 0.1"),
        ("--topology ring:4 --p=0", "gradnic cosim direct --topology ring:4 --p 0"),
        ("--link frame --topology ring:4", "gradnic cosim card --topology ring:4"),
        ("--topology ring:4 --link=frame", "gradnic cosim card --topology ring:4"),
        ("--topology ring:4 --link flit", "gradnic cosim direct --topology ring:4"),
        ("wheel", "No such command 'wheel'"),
    ],
)
def test_mistakes_are_one_line(words, line, capsys):
    with pytest.raises(SystemExit) as end:
        cli.main(["cosim", *words.split()])
    out, err = capsys.readouterr()
    assert (end.value.code, out, err.count("\n")) == (2, "", 1), err
    assert line in err


def test_files_that_do_not_go_together(tmp_path):
    np.save(tmp_path / "a.npy", np.ones(8, np.float32))
    np.save(tmp_path / "b.npy", np.ones(9, np.float32))
    np.save(tmp_path / "c.npy", np.ones(8))
    for second, words in [("b.npy", r"\[8, 9\]"), ("c.npy", "float64")]:
        files = ["--gradients", tmp_path / "a.npy", "--gradients", tmp_path / second]
        result = CliRunner().invoke(cli.cli, ["cosim", "ring", "--nodes", "2", *map(str, files)])
        with pytest.raises(ValueError, match=words):
            _raise(result.exception)


def cosim(folder, *arguments):
    options = ["--nodes", "2", "--lanes", "4", "--iteration", "1", "--elements", "700"]
    report = folder / "cosim.json"
    result = CliRunner().invoke(
        cli.cli, ["cosim", "ring", *options, *arguments, "--json", str(report)]
    )
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
    result = CliRunner().invoke(cli.cli, ["cosim", "direct", *options])
    assert result.exit_code == 0, result.output
    got = json.loads(report.read_text())
    assert {"ok", "nodes", "cycles", "bit_exact", "mismatches", "busiest_link_share"} <= set(got)
    assert (got["ok"], got["nodes"], got["mismatches"]) == (True, 4, 0)
    assert (got["algorithm"], got["gradients"], got["floats"]) == ("multitree", "real", 300)
    assert got["cycles"] > got["bound_cycles"]


@pytest.mark.parametrize(
    ("machine", "port"), [("direct --lanes 8 --link-latency 20", 16), ("card", 16)]
)
def test_links_run_at_the_rate_of_a_file(machine, port, tmp_path):
    """GB/s of ASTRA-sim are bytes a cycle at 1 GHz, in RTL, too; no port is faster than it is."""
    lists = {"topology": ["Ring"], "npus_count": [3], "latency": [20]}
    cycles = {}
    for rate in 2, port, 2 * port:
        file, report = tmp_path / "ring.json", tmp_path / "report.json"
        file.write_text(json.dumps(lists | {"bandwidth": [rate]}))
        words = f"cosim {machine} --topology file:{file} --algorithm ring --elements 3072"
        result = CliRunner().invoke(cli.cli, [*words.split(), "--json", str(report)])
        if rate > port and machine != "card":
            assert "a port takes 0.001 to 16: give --link-bytes" in str(result.exception)
            continue
        got = json.loads(report.read_text())
        assert got["ok"]
        assert got["link_bytes_per_cycle"] == min(rate, port)
        assert got["cycles"] == pytest.approx(got["model_cycles"], rel=0.05)
        cycles[rate] = got["cycles"]
    assert cycles[2] > 4 * 4096 / 2 > cycles[port]  # a third of 12 KiB, four times
    assert cycles.get(2 * port, cycles[port]) == cycles[port]


@pytest.mark.parametrize("codec", ["inceptionn", "thc"])
def test_the_model_has_the_times_of_codecs(codec, tmp_path):
    file = tmp_path / "report.json"
    words = f"cosim card --topology ring:3 --algorithm ring --elements 12288 --codec {codec}"
    CliRunner().invoke(cli.cli, [*words.split(), "--json", str(file)])
    got = json.loads(file.read_text())
    assert got["ok"]
    assert got["cycles"] == pytest.approx(got["model_cycles"], rel=0.03)


@pytest.mark.parametrize("found", [{"model_cycles": None, "model_overruns": None},
                                   {"model_cycles": 9, "model_overruns": 0}])  # fmt: skip
def test_where_the_model_says_nothing_no_row_is_none(found):
    assert None not in [value for _, value in cosim_card._modelled(found)]


@pytest.mark.slow  # four whole rings of 235,146 floats
def test_cycles_of_the_guide(tmp_path):
    page = (Path(__file__).parents[2] / "docs/guide/cosim.md").read_text()
    (line,) = [line for line in page.splitlines() if line.startswith("| cycles, raw and coded")]
    told = [int(text.replace(",", "")) for text in re.findall(r"\d[\d,]*", line)]
    found = []
    for iteration in (1, 200):
        for codec in ("none", "inceptionn"):
            words = ["--iteration", iteration, "--codec", codec, "--json", tmp_path / "j"]
            CliRunner().invoke(cli.cli, ["cosim", "ring", *map(str, words)])
            found.append(json.loads((tmp_path / "j").read_text())["cycles"])
    assert found == told


def _raise(error):
    raise error
