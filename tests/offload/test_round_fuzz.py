"""Random rounds on cards without jobs: what is drawn, a few that agree, and one that differs."""

import json

import pytest
from click.testing import CliRunner
from gradnic.sim.offload import job_fuzz, round_fuzz, run

from gradnic import cli


@pytest.mark.parametrize("lanes", [4, 32])
def test_all_codecs_queues_and_widths_are_drawn_and_drawn_again(lanes):
    seen = set()
    for seed in range(1, 30):
        for k in range(30):
            case = round_fuzz.round_of(seed, k, lanes)
            assert case == round_fuzz.round_of(seed, k, lanes)
            options = case["options"]
            assert options["queues"] or not options["egress"]
            seen |= {("codec", case["codec"]), ("port", options["port_bytes"])}
            seen |= {("queues", options["egress"], options["queues"]), ("p", options["p"])}
    wanted = {("codec", codec) for codec in run.CODECS}
    wanted |= {("port", 4 * lanes // k) for k in (1, 2, 4)} | {("p", p) for p in (0.0, 0.1, 0.4)}
    wanted |= {("queues", False, None)}
    wanted |= {("queues", egress, held) for egress in (False, True) for held in job_fuzz.QUEUES}
    assert wanted == seen


def test_rounds_agree_and_one_that_differs_is_told(tmp_path, monkeypatch):
    """And with a sum whose first bit is another."""
    out = tmp_path / "out.json"
    words = f"fuzz --card rounds --rounds 6 --seed 5 --json {out}".split()
    told = CliRunner().invoke(cli.cli, words)
    assert told.exit_code == 0, told.output
    found = json.loads(out.read_text())
    assert (found["ok"], found["rounds"], sum(found["codecs"].values())) == (True, 6, 6)
    golden = run.all_reduce

    def wrong(*given):
        sums, leaves = golden(*given)
        sums.view("u1")[0] ^= 1
        return sums, leaves

    monkeypatch.setattr(run, "all_reduce", wrong)
    told = CliRunner().invoke(cli.cli, words)
    assert told.exit_code == 1
    found = json.loads(out.read_text())
    assert not found["ok"]
    assert found["first"].startswith("round 0: ")
    assert found["case"]["round"] == 0
