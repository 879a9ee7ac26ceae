"""A card on the flit layer as a C++ class (CXXRTL), and the library that makes clusters of it."""

import ctypes
import fcntl
import shutil
import tempfile
from functools import cache
from pathlib import Path

from amaranth.back import rtlil

from gradnic.flit import HEAD

from ..hdl.flit_card import FlitCard
from . import batch, cxxrtl, tools

_ROUTE_AT = sum(list(HEAD.values())[: list(HEAD).index("route")])


def _header(component, plain, *, converges):
    """C++ that names the ports of a card for ``flit_cluster.cpp``."""
    m = batch._mangle
    ports = range(component.n_ports)

    def cases(body):
        return " ".join(f"case {k}: {body(k)}" for k in ports)

    def level(name):
        return f"d.{m(name)}"

    lines = [
        "using namespace cxxrtl_yosys;",
        "using Design = cxxrtl_design::p_top;",
        "namespace {",
        f"constexpr bool CONVERGES = {str(converges).lower()};",
        f"constexpr int ROUTE_AT = {_ROUTE_AT};",
        "[[maybe_unused]] void rearm(Design &d) { d.p_clk.data[0] = 1; d.prev_p_clk.data[0] = 0; }",
        "template<int bit> [[maybe_unused]] void set_clock(Design &d) { d.p_clk.data[0] = bit; }",
        "template<int bit> void set_reset(Design &d) { d.p_rst.data[0] = bit; }",
        "template<size_t N> value<N> &peek(value<N> &v) { return v; }",
        "template<size_t N> value<N> &peek(wire<N> &w) { return w.curr; }",
        "template<size_t N> void fill(value<N> &v, const uint8_t *bytes) {",
        "\tstd::memcpy(v.data, bytes, (N + 7) / 8); }",
        f"void set_start(Design &d, bool bit) {{ {level('start')}.data[0] = bit; }}",
        f"bool get_done(Design &d) {{ return peek({level('done')}).data[0] & 1; }}",
        f"uint32_t rx_credit(Design &d) {{ return peek({level('rx_credit')}).data[0]; }}",
        f"uint32_t &tx_credit(Design &d) {{ return {level('tx_credit')}.data[0]; }}",
        "void tx_ready(Design &d, int port, bool bit) { switch (port) {",
        cases(lambda k: f"{level(f'tx__{k}__ready')}.data[0] = bit; break;"),
        "} }",
        "void rx_valid(Design &d, int port, bool bit) { switch (port) {",
        cases(lambda k: f"{level(f'rx__{k}__valid')}.data[0] = bit; break;"),
        "} }",
        "void rx_payload(Design &d, int port, const uint32_t *data) { switch (port) {",
        cases(lambda k: f"std::memcpy({level(f'rx__{k}__payload')}.data, data, 20); break;"),
        "} }",
        "bool tx_taken(Design &d, int port, uint32_t *data) { switch (port) {",
        cases(
            lambda k: (
                f"std::memcpy(data, peek({level(f'tx__{k}__payload')}).data, 20); "
                f"return peek({level(f'tx__{k}__valid')}).data[0] & "
                f"{level(f'tx__{k}__ready')}.data[0] & 1;"
            )
        ),
        "} return false; }",
        "void host(Design &d, bool en, bool write, uint32_t at, const uint8_t *word) {",
        f"\t{level('host_en')}.data[0] = en; {level('host_write')}.data[0] = write;",
        f"\t{level('host_addr')}.data[0] = at;",
        f"\tif (word) fill({level('host_data')}, word); }}",
        "void host_word(Design &d, uint8_t *word) {",
        f"\tstd::memcpy(word, peek({level('host_read')}).data, {4 * component.n_lanes}); }}",
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


@cache
def build(layout, **sizes):
    """Build, or find, the library of a card: (ctypes library, {plain port: (number, port)}).

    layout, sizes : of `FlitCard`.
    """
    component = FlitCard(layout, **sizes)
    _, plain = batch.ports_of(component.signature)
    plain = list(enumerate(plain))
    text = rtlil.convert(component, name="top", emit_src=False)
    engine = (Path(__file__).parent / "flit_cluster.cpp").read_text()
    key = tools.digest(
        text, engine, Path(__file__).read_text(), batch._SOURCE, tools.yosys_version()
    )
    root = tools.build_root() / "flit_cluster"
    folder = root / key
    root.mkdir(parents=True, exist_ok=True)
    with open(root / f".{key}.lock", "w") as lock:  # one builds, the others wait for it
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not (folder / "cluster.so").exists():
            _compile(component, text, plain, engine, folder)
    library = ctypes.CDLL(str(folder / "cluster.so"))
    pointer, number = ctypes.c_void_p, ctypes.c_int64
    arguments = {
        "new": [number] * 3 + [pointer, number, pointer, pointer, number],
        "delete": [pointer],
        "set": [pointer, number, number, pointer],
        "get": [pointer, number, number, pointer],
        "tick": [pointer, number],
        "load": [pointer, number, number, number, pointer],
        "dump": [pointer, number, number, number, pointer],
        "run": [pointer, pointer, number, ctypes.c_uint64, ctypes.c_uint64, pointer, pointer],
    }
    for name, types in arguments.items():
        function = getattr(library, f"cluster_{name}")
        function.argtypes = types
        function.restype = {"new": pointer, "run": number}.get(name)
    return library, {p.name: (i, p) for i, p in plain}


def _compile(component, text, plain, engine, folder):
    work = Path(tempfile.mkdtemp(prefix=".build-", dir=folder.parent))
    try:
        (work / "design.il").write_text(text)
        script = f"read_rtlil design.il\n{batch.PREPARE}\nwrite_cxxrtl -O6 -g0 design.cpp\n"
        tools.yosys(script, folder=work, outputs=["design.cpp"])
        design = (work / "design.cpp").read_text()
        converges = cxxrtl.converges(design)
        (work / "design.cpp").write_text(cxxrtl.cut(design, batch.FUNCTION_SIZE))
        (work / "ports.h").write_text(_header(component, plain, converges=converges))
        (work / "cluster.cpp").write_text(engine)
        flags = ["-std=c++17", "-O1", "-fPIC", "-shared", "-fno-strict-aliasing", "-w"]
        flags += ["-DCXXRTL_NDEBUG", *batch.RELAXED, f"-I{tools.cxxrtl_include()}"]
        command = [tools.compiler(), *flags, "cluster.cpp", "-o", "cluster.so"]
        tools.call(command, folder=work, timeout=3600, log="compiler.log")
        shutil.rmtree(folder, ignore_errors=True)
        work.rename(folder)
    finally:
        shutil.rmtree(work, ignore_errors=True)
