"""Cards with jobs in somebody's own Verilog bench, by ports and registers alone."""

import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from gradnic.models.schedule.builders import build
from gradnic.models.schedule.builders.rows import compile_table
from gradnic.models.schedule.topology import parse

from gradnic.interface import params
from gradnic.interface.schedule_table import Layout

BENCH = Path(__file__).parents[2] / "examples" / "bench_of_a_card.v"
PRESET = "jobs128"


def test_rows_of_the_example_are_those_of_its_card():
    card, table = params.preset(PRESET), compile_table(build(parse("ring:2"), "ring"))
    layout = Layout.for_card(card.n_nodes, card.n_chunks)
    found = re.findall(r"n(\d)\.bring_up\(.*?\{(.*?)\}\)", BENCH.read_text())
    for node, words in found:
        told = [int(word, 16) for word in re.findall(r"64'h(\w+)", words)]
        image = b"".join(word.to_bytes(layout.row_bytes, "little") for word in told)
        assert image == layout.pack(table.of(int(node)))
    assert len(found) == 2


@pytest.mark.slow  # two cards on Icarus: a minute
@pytest.mark.skipif(
    shutil.which("iverilog") is None, reason="Icarus Verilog is not installed (Debian: iverilog)"
)
def test_two_cards_sum_a_tensor_by_registers_alone(tmp_path):
    def run(*words):
        done = subprocess.run(words, cwd=tmp_path, capture_output=True, text=True, timeout=1200)
        assert done.returncode == 0, done.stderr
        return done

    run(sys.executable, "-m", "gradnic", "verilog", "--preset", PRESET, "--out", ".")
    compiled = run(
        "iverilog", "-g2012", "-Wall", "-I", ".", "-o", "bench.vvp", str(BENCH), f"{PRESET}.v"
    )
    assert compiled.stderr == ""
    assert run("vvp", "-n", "bench.vvp").stdout.split()[-1] == "PASS"
