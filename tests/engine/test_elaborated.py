"""What was elaborated before is found by what it was made of, and nothing else is."""

import time
from pathlib import Path

import pytest
from gradnic.hdl.stream import fifo
from gradnic.hdl.stream.fifo import FIFO
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
