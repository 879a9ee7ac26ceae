"""Signals of the circuits keep their names: in this source, and in the Verilog that is shipped."""

import ast
from pathlib import Path

from amaranth.hdl import Signal
from gradnic.hdl.primitive.names import signals

HDL = Path(__file__).parents[2] / "hdl"
MAKERS = ("Signal", "Signal.like")


def unnamed(tree):
    """Lines that make several signals at once, for which Amaranth finds no names."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Tuple):
            parts = node.value.elts if isinstance(node.value, ast.Tuple) else [node.value]
            for part in parts:
                made = part.elt if isinstance(part, ast.GeneratorExp | ast.ListComp) else part
                is_signal = isinstance(made, ast.Call) and ast.unparse(made.func) in MAKERS
                if is_signal and not any(keyword.arg == "name" for keyword in made.keywords):
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


def test_such_a_line_is_seen():
    assert list(unnamed(ast.parse("a, b = Signal(), Signal(2)"))) == [1, 1]
    assert list(unnamed(ast.parse("a, b = (Signal() for _ in range(2))"))) == [1]
    assert list(unnamed(ast.parse("a, b = Signal(name='a'), Signal(name='b')"))) == []
    x, y = Signal(), Signal()
    assert "$signal" in (x.name, y.name)  # why: of several, the last one alone is found
