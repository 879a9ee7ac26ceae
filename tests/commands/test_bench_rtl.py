"""``gradnic bench rtl``: rows of blocks in their harness and alone."""

import json

from click.testing import CliRunner

from gradnic import cli


def test_rows_of_small_blocks(tmp_path):
    file = tmp_path / "rtl.json"
    command = ["bench", "rtl", "--block", "fifo", "--rounds", "1", "--json", str(file)]
    result = CliRunner().invoke(cli.cli, command)
    assert result.exit_code == 0, result.output
    (row,) = json.loads(file.read_text())
    assert (row["block"], row["lanes"]) == ("fifo", 1)
    assert row["bare_cycles_per_second"] > 0
    assert row["cycles_per_second"] > 0


def test_unknown_blocks_cost_one_line():
    result = CliRunner().invoke(cli.cli, ["bench", "rtl", "--block", "nothing"])
    assert result.exit_code == 2
    assert "block must be fifo, compressor4" in result.output
