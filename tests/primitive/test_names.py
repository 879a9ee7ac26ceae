"""Signals of the circuits keep their names: in this source, and in the Verilog that is shipped."""

import ast
from pathlib import Path

import pytest
from amaranth.hdl import Signal
from gradnic.hdl.primitive.names import signals

HDL = Path(__file__).parents[2] / "hdl"
MAKERS = ("Signal", "Signal.like")
PORT_MAKERS = ("read_port", "write_port")  # of memories


def unnamed(tree):
    """Lines that make a signal, or a memory's port, for which Amaranth finds no name.

    It finds one where a statement makes this alone. Of several it finds the last one's, and on
    Python 3.13 nobody's.
    """
    named = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name | ast.Attribute):
            named.add(node.value)
    for node in ast.walk(tree):
        if not isinstance(node, ast.Call) or node in named:
            continue
        is_signal = ast.unparse(node.func) in MAKERS
        is_port = isinstance(node.func, ast.Attribute) and node.func.attr in PORT_MAKERS
        is_told = any(keyword.arg in ("name", None) for keyword in node.keywords)
        if is_port or (is_signal and not is_told):
            yield node.lineno


def test_signals_that_are_made_together_have_their_names():
    first, second = signals("first second", 3, init=5)
    assert [(one.name, len(one), one.init) for one in (first, second)] == [
        ("first", 3, 5), ("second", 3, 5),
    ]  # fmt: skip


def test_no_line_of_the_circuits_makes_signals_without_names():
    found = [f"{path}:{line}" for path in sorted(HDL.rglob("*.py"))
             for line in unnamed(ast.parse(path.read_text()))]  # fmt: skip
    assert not found


@pytest.mark.parametrize(
    ("text", "lines"),
    [
        ("a, b = Signal(), Signal(2)", [1, 1]),
        ("a, b = (Signal() for _ in range(2))", [1]),
        ("a = [Signal() for _ in range(2)]", [1]),
        ("a = Signal() if many else b", [1]),
        ("a = Signal()\nself.b = Signal(2)", []),
        ("a, b = Signal(name='a'), Signal(name='b')", []),
        ("write, read = ram.write_port(), ram.read_port()", [1, 1]),
        ("reads = [ram.read_port() for _ in range(2)]", [1]),
        ("return ram.write_port()", [1]),
        ("read = ram.read_port(domain='comb')\nself.write = ram.write_port()", []),
    ],
)
def test_such_a_line_is_seen(text, lines):
    assert list(unnamed(ast.parse(text))) == lines


def test_amaranth_finds_no_name_for_the_first_of_two():
    x, y = Signal(), Signal()
    assert "$signal" in (x.name, y.name)
