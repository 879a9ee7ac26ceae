"""Offload cards under upsets and foreign traffic; how much of a link they fill."""

import json

import numpy as np
import pytest
from click.testing import CliRunner
from gradnic.models.schedule.builders import build
from gradnic.models.schedule.builders.rows import compile_table
from gradnic.models.schedule.topology import parse
from gradnic.sim.offload import goodput as offload_measure
from gradnic.sim.offload import upsets as offload_campaigns

from gradnic.commands.goodput import command as goodput_command


def measure(codec="none", n_elems=16384):
    topology = parse("ring:2")
    table = compile_table(build(topology, "ring"))
    return offload_measure.Measure(table, topology, n_elems, codec, 16)


def test_upsets_heal():
    found = offload_campaigns.upsets(6, seed=2)
    assert sum(found["fates"].values()) == 6
    assert found["register_bits"] > 10_000


@pytest.mark.parametrize("codec", ["none", "thc"])
def test_a_phase_fills_the_link(codec):
    one = measure(codec, 65536)
    found = one.phases(one.round())
    for phase in found.values():
        assert phase["wire"] > 0.97
    if codec == "none":  # 94.1 % is what heads and gaps leave
        assert all(phase["payload"] > 0.91 for phase in found.values())


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
    one.programs(1.0, 60, 200)
    one.cluster.call("idle", 20000)
    one.drain()
    counts, times = one.foreign()
    assert counts["made"] == counts["good"] > 3900
    assert all((np.diff(at) <= 15).all() for at in times.values())  # no gap but their own


def test_commands():
    runner = CliRunner()
    arguments = ["--bytes", "64KiB", "--lanes", "4", "--json", "-"]
    found = runner.invoke(goodput_command, arguments)
    assert found.exit_code == 0, found.output
    assert json.loads(found.stdout)["reduce"]["payload"] > 0.9
    ideal = json.loads(found.stdout)
    found = runner.invoke(goodput_command, [*arguments, "--memory", "hbm2", "--clock", "1000"])
    assert found.exit_code == 0, found.output
    assert json.loads(found.stdout)["cycles"] > 1.1 * ideal["cycles"]  # 14.4 bytes/channel
    found = runner.invoke(goodput_command, ["--load", "1.5"])
    assert (found.exit_code, "--load must be" in found.output) == (2, True)
