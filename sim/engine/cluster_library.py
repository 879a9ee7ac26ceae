"""Many copies of one card in one C++ library, and an engine that joins them."""

import ctypes
import re
from pathlib import Path

from amaranth.hdl import Shape

from . import elaborated, tools, verilated
from .design_ports import member, ports_of

AT_ONCE = 4096  # cycles of a run between which signals are heard
GOES_ON = -2  # what engines' ``run`` and ``go`` return before a run's end
INCLUDED = re.compile(r'#include "(\w+\.h)"')


def to_the_end(go, result):
    """Let a run go on until its end; what it says then. go : function (cycles). told : so far."""
    while result == GOES_ON:
        result = go(AT_ONCE)
    return result


def _header(names, plain):
    """Text of ``ports.h``: the plain ports by number, and lines `names`."""
    lines = [
        "namespace {",
        *names,
        "void set_level(Design &d, int64_t port, const uint8_t *bytes) { switch (port) {",
        *(
            f"case {i}: load<{Shape.cast(p.shape).width}>({member(p.name)}, bytes); break;"
            for i, p in plain
            if p.is_input
        ),
        "} }",
        "void get_level(Design &d, int64_t port, uint8_t *bytes) { switch (port) {",
        *(
            f"case {i}: store({member(p.name)}, bytes, {p.size}); break;"
            for i, p in plain
            if not p.is_input
        ),
        "} }",
        "}",
    ]
    return "\n".join(lines)


def load(component, engine, names, functions, made_of):
    """Build, or find, the library of a card: (ctypes library, {plain port: (number, port)}).

    component : the card. engine : path of a C++ file, which includes ``verilated.h``, ``ports.h``
    and what it needs of ``registers.h`` and of the headers beside it. names : lines of C++ that
    name the card's ports for the engine, as part of ``ports.h``. functions : {name: (argument
    types, result)} of the engine's functions ``cluster_<name>``. made_of : what the card's
    constructor was given, as `elaborated.design` takes it.
    """
    plain = list(enumerate(ports_of(component.signature)[1]))
    engine = Path(engine)
    sources = {"cluster.cpp": engine.read_text(), "ports.h": _header(names, plain)}
    for name in INCLUDED.findall(sources["cluster.cpp"]):
        if (engine.parent / name).exists():
            sources[name] = (engine.parent / name).read_text()
    circuit = elaborated.design(component, made_of)
    if "registers.h" in INCLUDED.findall(sources["cluster.cpp"]):
        sources["registers.h"] = verilated.registers(circuit)
    folder = verilated.library(tools.build_root() / "cluster", engine.parent.name, circuit, sources)
    library = ctypes.CDLL(str(folder / "model.so"))
    for name, (arguments, result) in functions.items():
        function = getattr(library, f"cluster_{name}")
        function.argtypes, function.restype = arguments, result
    return library, {port.name: (number, port) for number, port in plain}


def fitting(what: str, n: int, *sizes: int) -> int:
    """The least of `sizes`, which rise, that is at least n: so few libraries serve many tables.

    ValueError says of `what` there are too many.
    """
    for size in sizes:
        if n <= size:
            return size
    raise ValueError(f"{what} must be {sizes[-1]} at most on a simulated card, not {n}")
