"""What was elaborated before is found by what it was made of, and nothing else is."""

import gc
import time
from pathlib import Path

import numpy as np
import pytest
from amaranth.hdl import Cat, Signal, signed
from amaranth.lib import wiring
from amaranth.lib.memory import Memory
from amaranth.lib.wiring import Out
from gradnic.hdl.frame.splice import Splicer
from gradnic.hdl.inceptionn.compressor import Compressor
from gradnic.hdl.stream import fifo
from gradnic.hdl.stream.fifo import FIFO
from gradnic.hdl.top.rtlil import to_rtlil
from gradnic.sim.engine import elaborated, tools, verilated

from gradnic import hdl


@pytest.fixture
def elaborations(tmp_path, monkeypatch):
    """Circuits that were elaborated, by name."""
    monkeypatch.setenv("GRADNIC_BUILD", str(tmp_path))
    done = []

    def fake(text):
        folder = tmp_path / "verilator" / str(len(done))
        folder.mkdir(parents=True)
        done.append(text)
        return folder

    monkeypatch.setattr(verilated, "design", fake)
    monkeypatch.setattr(elaborated, "_started", time.time() + 1)
    elaborated._sources.cache_clear()
    yield done
    elaborated._sources.cache_clear()


def test_the_same_is_elaborated_once(elaborations):
    first = elaborated.design(FIFO(8, 4), {"shape": 8, "depth": 4})
    assert elaborated.design(FIFO(8, 4), {"depth": 4, "shape": 8}) == first
    assert len(elaborations) == 1
    assert elaborated.design(FIFO(8, 5), {"shape": 8, "depth": 5}) != first
    first.rmdir()
    elaborated.design(FIFO(8, 4), {"shape": 8, "depth": 4})
    assert len(elaborations) == 3


class Table(wiring.Component):
    """Holds what it is given."""

    def __init__(self, held):
        self.held = held
        super().__init__({"o": Out(8)})


def test_without_a_list_the_component_says_what_it_is_made_of(elaborations):
    first = elaborated.design(FIFO(8, 4))
    assert elaborated.design(FIFO(8, 4)) == first
    others = [FIFO(8, 5), FIFO(9, 4), FIFO(signed(8), 4), FIFO(8, 4, bypass=True)]
    signal = FIFO(8, 4)
    signal.free = Signal(init=0)
    memories = []
    for init in ([1, 2], [1, 3]):
        memories.append(FIFO(8, 4))
        memories[-1].more = Memory(shape=8, depth=2, init=init)
    for other in [*others, signal, *memories]:
        elaborated.design(other)
    assert len(elaborations) == 8


@pytest.mark.parametrize("held", [np.zeros(3), print, lambda: 3, object(), Signal(8) + 1])
def test_what_has_no_sure_text_is_always_elaborated(elaborations, held):
    assert elaborated.described(Table(3)) is None  # a class of tests, as a twin
    for _ in range(2):
        component = FIFO(8, 4)
        component.more = [held]
        assert elaborated.described(component) is None
        elaborated.design(component)
    assert len(elaborations) == 2


def test_parts_are_told_apart_by_all_that_they_hold():
    told = {elaborated.described(card) for card in (Splicer(16, (42, 64)), Splicer(16, (44, 64)))}
    told |= {
        elaborated.described(Splicer(n, (42, 64), meta_width=m)) for n, m in ((32, 0), (16, 8))
    }
    assert len(told) == 4
    assert None not in told
    assert elaborated.described(Splicer(16, (42, 64))) in told


def test_bits_side_by_side_are_told_apart():
    a, b, c = Signal(name="a"), Signal(name="b"), Signal(name="c")
    told = []
    for parts in ([a, b], [b, a], [a, b, c], [a, b]):
        component = FIFO(8, 4)
        component.more = Cat(parts)
        told.append(elaborated.described(component))
    assert None not in told
    assert told[0] == told[3]
    assert len(set(told)) == 3
    assert elaborated.described(Compressor(4)) == elaborated.described(Compressor(4)) is not None
    assert elaborated.described(Compressor(4)) != elaborated.described(Compressor(8))


def test_garbage_is_looked_for_again():
    assert gc.isenabled()
    assert to_rtlil(FIFO(8, 4), name="top").count("module \\top\n") == 1
    assert gc.isenabled()


def test_another_class_is_elaborated(elaborations, monkeypatch):
    given = {"shape": 8, "depth": 4}
    first = elaborated.design(FIFO(8, 4), given)

    class Other(FIFO):
        """Not the module's own, whatever it is called."""

    Other.__qualname__, Other.__module__ = FIFO.__qualname__, FIFO.__module__
    assert elaborated.design(Other(8, 4), given) != first
    monkeypatch.setattr(fifo, "FIFO", Other)
    assert elaborated.design(FIFO(8, 4), given) != first
    assert len(elaborations) == 3


def test_a_file_that_changed_meanwhile_is_no_key(elaborations, monkeypatch):
    newest = max(p.stat().st_mtime for p in Path(hdl.__path__[0]).rglob("*.py"))
    monkeypatch.setattr(elaborated, "_started", newest - 1)
    for _ in range(2):
        elaborated.design(FIFO(8, 4), {"shape": 8, "depth": 4})
    assert len(elaborations) == 2
    assert not list((tools.build_root() / "verilator").glob("elaborated-*"))
