"""Many copies of one card in one C++ library: a card as CXXRTL, and an engine that joins them."""

import ctypes
import fcntl
import re
import shutil
import tempfile
from pathlib import Path

from amaranth.back import rtlil

from . import batch, cxxrtl, tools
from .design_ports import mangle, ports_of

INCLUDED = re.compile(r'#include "(\w+\.h)"')


def level(name):
    """C++ of a port of card ``d``."""
    return f"d.{mangle(name)}"


def _header(names, plain, *, converges):
    """Text of ``ports.h``: clock, reset, the plain ports by number, and lines `names`."""
    lines = [
        "using namespace cxxrtl_yosys;",
        "using Design = cxxrtl_design::p_top;",
        "namespace {",
        f"constexpr bool CONVERGES = {str(converges).lower()};",
        "[[maybe_unused]] void rearm(Design &d) { d.p_clk.data[0] = 1; d.prev_p_clk.data[0] = 0; }",
        "template<int bit> [[maybe_unused]] void set_clock(Design &d) { d.p_clk.data[0] = bit; }",
        "template<int bit> void set_reset(Design &d) { d.p_rst.data[0] = bit; }",
        "template<size_t N> value<N> &peek(value<N> &v) { return v; }",
        "template<size_t N> value<N> &peek(wire<N> &w) { return w.curr; }",
        "template<size_t N> void fill(value<N> &v, const uint8_t *bytes) {",
        "\tstd::memcpy(v.data, bytes, (N + 7) / 8); }",
        *names,
        "void set_level(Design &d, int64_t port, const uint8_t *bytes) { switch (port) {",
        *(f"case {i}: fill({level(p.name)}, bytes); break;" for i, p in plain if p.is_input),
        "} }",
        "void get_level(Design &d, int64_t port, uint8_t *bytes) { switch (port) {",
        *(
            f"case {i}: std::memcpy(bytes, peek({level(p.name)}).data, {p.size}); break;"
            for i, p in plain
            if not p.is_input
        ),
        "} }",
        "}",
    ]
    return "\n".join(lines)


def load(component, engine, names, functions):
    """Build, or find, the library of a card: (ctypes library, {plain port: (number, port)}).

    component : the card. engine : path of a C++ file, which includes
    ``design.cpp`` (class ``Design``), ``ports.h``, ``clocked.h``, and what it needs of
    ``state.h`` (see `cxxrtl.state`) and of the headers beside it or beside this file. names : lines
    of C++ that name the card's ports for the engine, as part of ``ports.h``. functions : {name:
    (argument types, result)} of the engine's functions ``cluster_<name>``.
    """
    plain = list(enumerate(ports_of(component.signature)[1]))
    text = rtlil.convert(component, name="top", emit_src=False)
    engine = Path(engine)
    folders = (engine.parent, Path(__file__).parent)
    sources = {"cluster.cpp": engine.read_text()}
    for name in INCLUDED.findall(sources["cluster.cpp"]):
        for header in (folder / name for folder in folders if (folder / name).exists()):
            sources[name] = header.read_text()
    ports = _header(names, plain, converges=True)
    parts = (text, *sources.values(), ports, cxxrtl.STATE, batch._SOURCE, tools.yosys_version())
    key = tools.digest(*parts)
    root = tools.build_root() / f"{engine.parent.name}_{engine.stem}"
    folder = root / key
    root.mkdir(parents=True, exist_ok=True)
    with open(root / f".{key}.lock", "w") as lock:  # one builds, the others wait for it
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not (folder / "cluster.so").exists():
            _compile(text, sources, folder, lambda c: _header(names, plain, converges=c))
    library = ctypes.CDLL(str(folder / "cluster.so"))
    for name, (arguments, result) in functions.items():
        function = getattr(library, f"cluster_{name}")
        function.argtypes, function.restype = arguments, result
    return library, {port.name: (number, port) for number, port in plain}


def _compile(text, sources, folder, ports):
    work = Path(tempfile.mkdtemp(prefix=".build-", dir=folder.parent))
    try:
        (work / "design.il").write_text(text)
        script = f"read_rtlil design.il\n{batch.PREPARE}\nwrite_cxxrtl -O6 -g0 design.cpp\n"
        tools.yosys(script, folder=work, outputs=["design.cpp"])
        design = (work / "design.cpp").read_text()
        (work / "design.cpp").write_text(cxxrtl.cut(design, batch.FUNCTION_SIZE))
        (work / "ports.h").write_text(ports(cxxrtl.converges(design)))
        (work / "state.h").write_text(cxxrtl.state(design))
        for name, source in sources.items():
            (work / name).write_text(source)
        flags = ["-std=c++17", "-O1", "-fPIC", "-shared", "-fno-strict-aliasing", "-w"]
        flags += ["-DCXXRTL_NDEBUG", *batch.RELAXED, f"-I{tools.cxxrtl_include()}"]
        command = [tools.compiler(), *flags, "cluster.cpp", "-o", "cluster.so"]
        tools.call(command, folder=work, timeout=3600, log="compiler.log")
        shutil.rmtree(folder, ignore_errors=True)
        work.rename(folder)
    finally:
        shutil.rmtree(work, ignore_errors=True)
