"""Offload cards under upsets and foreign traffic; how much of a link they fill."""

import json
import re

import numpy as np
import pytest
from click.testing import CliRunner
from gradnic.models.schedule.builders import build
from gradnic.models.schedule.builders.rows import compile_table
from gradnic.models.schedule.topology import parse
from gradnic.sim.offload import goodput as offload_measure
from gradnic.sim.offload.foreign import Foreign
from gradnic.sim.offload.job_upsets import Ring
from gradnic.sim.offload.upsets import upsets, what_helps

from gradnic.commands import upsets as upsets_command
from gradnic.commands.goodput import command as goodput_command
from gradnic.interface.job import JobStatus


def measure(codec="none", n_elems=16384):
    topology = parse("ring:2")
    table = compile_table(build(topology, "ring"))
    return offload_measure.Measure(table, topology, n_elems, codec, 16)


@pytest.mark.parametrize(("cards", "n", "bits"), [("rounds", 6, 50_000), ("jobs", 4, 80_000)])
def test_upsets_heal(cards, n, bits):
    found = upsets(n, cards=cards, seed=[5, 0])
    assert sum(sum(fates.values()) for fates in found["fates"].values()) == n
    assert found["register_bits"] > bits
    if cards == "jobs":
        assert found["resets"] == 0


def test_jobs_of_thc_whose_registers_change_are_told_from_those_that_did_not():
    """A round of all codecs is exact, one without a residual's bit is not, and so on with both."""
    cards = Ring(thc=True)
    usual, exact, statuses = cards.round()
    assert exact
    assert set(statuses.values()) == {JobStatus.DONE}
    names = [
        cards.cluster.call("state_name", bit).decode()
        for bit in range(cards.cluster.call("state_bits"))
    ]
    bit = names.index("core.context0.job") + 5
    cycles, exact, statuses = cards.round((1, bit, usual // 4))
    assert cycles is not None
    assert not exact
    assert JobStatus.MEMORY in statuses.values()
    assert what_helps(cards) == ""
    assert what_helps(cards) == ""
    for register, sixteenth in (  # of a round, about the middle of a pass
        ("encode.keys.sign_key", 4), ("decode.keys.sign_key", 8), ("encode_job", 4),
        ("decode_job", 8),
    ):  # fmt: skip
        pattern = rf"core\.passes\S*\.{register}"
        bit = 9 + next(n for n, name in enumerate(names) if re.fullmatch(pattern, name))
        _, _, statuses = cards.round((1, bit, sixteenth * usual // 16))
        assert JobStatus.MEMORY in statuses.values(), register
        assert what_helps(cards) == ""


def test_upsets_are_kept_in_parts_and_go_on(monkeypatch, tmp_path):
    """What was played is not played again where more are asked for; sums are of all parts."""
    played = []

    def play(part, count, cards, **_):
        played.append((part, count))
        one = {"upsets": count, "register_bits": 9, "resets": 0, "ok": True, "seconds": 1.5}
        fates = {"control": {"masked": count - 1}, "datapath": {"silent": 1}}
        return one | {"fates": fates, "hangs": {}, "after": {"next": part}, "found": [part]}

    monkeypatch.setattr(upsets_command, "play", play)
    kept = ["--jobs", "--thc", "--resume", f"{tmp_path}/u.jsonl", "--json", "-"]
    runner = CliRunner()
    for count in "40", "50":
        found = runner.invoke(upsets_command.command, ["--count", count, *kept])
        assert found.exit_code == 0, found.output
    assert played == [(0, 20), (1, 20), (2, 10)]
    told = json.loads(found.stdout)
    assert (told["upsets"], told["cards"], told["seconds"]) == (50, "thc", 4.5)
    assert told["fates"] == {"control": {"masked": 47}, "datapath": {"silent": 3}}
    assert (told["after"], told["found"]) == ({"next": 3}, [0, 1, 2])
    lasting = {"ok": False, "first": "bit 3: reset does not heal"}
    monkeypatch.setattr(upsets_command, "play", lambda part, **_: lasting)
    found = runner.invoke(upsets_command.command, ["--count", "70", "--json", "-", *kept[2:4]])
    assert found.exit_code == 1
    assert json.loads(found.stdout) == {"seed": 1, **lasting}


@pytest.mark.parametrize("codec", ["none", "thc"])
def test_a_phase_fills_the_link(codec):
    one = measure(codec, 65536)
    found = one.phases(one.round())
    for phase in found.values():
        assert phase["wire"] > 0.97
    if codec == "none":  # 94.1 % is what heads and gaps leave
        assert all(phase["payload"] > 0.91 for phase in found.values())


def test_a_run_hears_signals(interrupted):
    """Ctrl-C does not wait for the end of a round, here of half a million cycles."""
    one = measure()
    one.link_bytes = 0.25
    interrupted(one.round)
    assert one.cluster.call("now") < 200_000


@pytest.mark.parametrize(("load", "sizes"), [(0.9, (60, 300)), (0.5, (60, 1514))])
def test_foreign_frames_cross_a_busy_card(load, sizes):
    found = offload_measure.crossing(measure, 1500, load, *sizes)
    assert found["frames"] >= 1500
    assert found["wrong"] == found["missing"] == 0
    one_frame = -(-(64 + 4 * 352) // 16)
    assert found["added_wait"] <= one_frame + 4


def test_a_full_line_of_foreign_frames_is_passed():
    one = measure()
    one.round()
    others = Foreign(one.cluster, 1.0, 60, 200)
    one.cluster.call("idle", 20000)
    others.drain()
    counts, times = others.told()
    assert counts["made"] == counts["good"] > 3900
    assert all((np.diff(at) <= 15).all() for at in times.values())  # no gap but their own


def test_commands():
    runner = CliRunner()
    arguments = ["--bytes", "64KiB", "--lanes", "4", "--json", "-"]
    found = runner.invoke(goodput_command, arguments)
    assert found.exit_code == 0, found.output
    assert json.loads(found.stdout)["reduce"]["payload"] > 0.9
    ideal = json.loads(found.stdout)
    few = runner.invoke(goodput_command, ["--bytes", "64", "--lanes", "4", "--json", "-"])
    assert json.loads(few.stdout)["gather"] == {"payload": None, "wire": None}
    assert "too few packets" in few.stderr
    found = runner.invoke(goodput_command, [*arguments, "--memory", "hbm2", "--clock", "1000"])
    assert found.exit_code == 0, found.output
    assert json.loads(found.stdout)["cycles"] > 1.1 * ideal["cycles"]  # 14.4 bytes/channel
    found = runner.invoke(goodput_command, ["--load", "1.5"])
    assert (found.exit_code, "--load must be" in found.output) == (2, True)
