"""``gradnic bench host``: what the constants of hosts were measured with."""

import json

import numpy as np
import pytest
from click.testing import CliRunner
from gradnic.models.training.constants import CONSTANTS

from gradnic import cli

host_rates = pytest.importorskip("gradnic.sim.training.host_rates")  # numba


def test_rows_name_constants_and_their_units():
    result = CliRunner().invoke(cli.cli, ["bench", "host", "--rounds", "1", "--json", "-"])
    assert result.exit_code == 0, result.output
    rows = json.loads(result.stdout)
    assert [row["name"] for row in rows] == [
        "host.add",
        "host.lookup",
        "host.powersgd.encode",
        "host.powersgd.decode",
        "host.message",
    ]
    for row in rows:
        assert row["value"] > 0
        assert (row["taken"], row["unit"]) == (
            CONSTANTS[row["name"]].value,
            CONSTANTS[row["name"]].unit,
        )


def test_the_lookup_adds_both_nibbles():
    packed, table = np.array([0x1F, 0x80], np.uint8), np.arange(16, dtype=np.uint8) * 3
    sums = np.array([1, 1, 250, 7], np.uint8)
    host_rates._lookup(packed, table, sums)
    assert sums.tolist() == [4, 46, (250 + 24) % 256, 7]
