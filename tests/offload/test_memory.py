"""Memory of boards: shares of the line by hand, and the table of `gradnic budget`."""

import json

import pytest
from click.testing import CliRunner
from gradnic.models.offload.memory import BOARDS, DRAMS, Dram, needed, share

from gradnic.commands.budget import command


def test_least_rate_by_hand():
    plain = Dram(16.0, 1024, 4, 0.0, 0.0, 1000, 0.0)
    assert plain.least() == 16.0
    worse = Dram(16.0, 1024, 4, row_miss=64.0, turn=128.0, refresh_every=1000, refresh=250)
    assert worse.least() == 16.0 * 0.5 * 0.5 * 0.75  # 1024 bytes are 64 ns, and 2048 are 128


def test_share_of_the_line():
    """At 100 Gb/s a stream has 100 / 8 * 1408 / 1496 = 11.76 GB/s."""
    assert needed() == pytest.approx(11.7647, abs=1e-4)
    rate = DRAMS["ddr4-2400"].least()
    one = share("ddr4-2400", 1, 1)
    assert one == {"reduce": rate / (2 * needed()), "gather": rate / (2 * needed())}
    assert share("ddr4-2400", 1, 2) == {"reduce": 1.0, "gather": one["gather"]}
    assert share("ddr4-2400", 2, 0)["reduce"] == 2 * rate / (3 * needed())
    assert share("ddr4-2400", 2, 2, 200)["reduce"] == one["reduce"]


def test_command():
    found = CliRunner().invoke(command, ["--json", "-"])
    assert found.exit_code == 0, found.output
    rows = {row["board"]: row for row in json.loads(found.stdout)}
    assert list(rows) == list(BOARDS)
    assert rows["AU250"]["reduce"] == rows["AU250"]["gather"] == 1
    assert rows["VCU118"]["used"] == 2
    assert rows["VCU118"]["reduce"] < 0.9
