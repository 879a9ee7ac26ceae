"""Verilator's C++ as libraries: names, registers that are set, errors in one line, built once."""

import ctypes
import re

import pytest
from amaranth.back import rtlil
from amaranth.hdl import Cat, Module, Signal
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out
from gradnic.sim.engine import batch, tools, verilated
from gradnic.sim.engine.design_ports import member

HARNESS = """
#include "verilated.h"
#include "registers.h"
#include "ports.h"

#pragma GCC visibility push(default)

// What the outputs show at once when a bit of a register changes, and one cycle later.
extern "C" int64_t flip(int64_t bit, int64_t n_cycles, int64_t *seen) {
	Design d;
	set_reset(d.root, 1), tick(d), tick(d), set_reset(d.root, 0);
	while (n_cycles--) tick(d);
	int64_t n_bits = 0;
	for (const Register &r : registers(d.root)) {
		if (bit >= n_bits && bit < n_bits + r.bits)
			static_cast<uint8_t *>(r.at)[(bit - n_bits) / 8] ^= 1u << (bit - n_bits) % 8;
		n_bits += r.bits;
	}
	d.settle();
	seen[0] = count(d), seen[1] = double_(d);
	tick(d);
	seen[2] = count(d), seen[3] = double_(d);
	return n_bits;
}
"""
PORTS = f"""
int64_t count(Design &d) {{ return {member("count")}; }}
int64_t double_(Design &d) {{ return {member("double")}; }}
"""


class Counter(wiring.Component):
    """Counts while it is not told to abort; ports that are called as C++ words are."""

    def __init__(self):
        super().__init__({"abort": In(1), "count": Out(20), "double": Out(21)})

    def elaborate(self, platform):
        m = Module()
        with m.If(~self.abort):
            m.d.sync += self.count.eq(self.count + 1)
        m.d.comb += self.double.eq(self.count << 1)
        return m


@pytest.fixture(scope="module")
def circuit():
    return verilated.design(rtlil.convert(Counter(), name="top", emit_src=False))


def library(circuit, harness=HARNESS):
    sources = {"flip.cpp": harness, "ports.h": PORTS, "registers.h": verilated.registers(circuit)}
    return verilated.library(tools.build_root() / "flip", "flip", circuit, sources)


def test_a_register_that_is_set_shows_at_once_and_stays(circuit):
    flip = ctypes.CDLL(str(library(circuit) / "model.so")).flip
    seen = (ctypes.c_int64 * 4)()
    for bit in range(20):
        assert flip(bit, 5, seen) == 20
        now = 5 ^ 1 << bit
        assert list(seen) == [now, 2 * now, now + 1, 2 * now + 2]


def test_ports_named_as_words_of_cpp(circuit):
    run = batch.build(Counter()).run(
        signals={"abort": [0, 0, 0, 1]}, trace=["count", "double"], drain=False, max_cycles=6
    )
    assert run.traces["count"].tolist() == [0, 1, 2, 3, 3, 3]
    assert run.traces["double"].tolist() == [0, 2, 4, 6, 6, 6]


class Copies(wiring.Component):
    """Two copies of a register that each tool keeps, and one that it may merge with them."""

    def __init__(self):
        super().__init__({"i": In(3), "o": Out(9)})

    def elaborate(self, platform):
        m = Module()
        kept = {"keep_register": 1}
        here, there, same = Signal(3, attrs=kept), Signal(3, attrs=kept), Signal(3)
        m.d.sync += [here.eq(self.i), there.eq(self.i), same.eq(self.i)]
        m.d.comb += self.o.eq(Cat(here, there, same))
        return m


def test_copies_that_are_kept_are_registers_of_their_own():
    text = rtlil.convert(Copies(), name="top", emit_src=False)
    merged = re.sub(r"setattr -set keep .*\n", "", verilated.PREPARE)
    for prepare, n in ((verilated.PREPARE, 2), (merged, 1)):
        told = verilated.registers(verilated.design(text, prepare=prepare))
        assert told.count("offsetof") == n, told


def test_the_same_is_built_once(circuit):
    before = (circuit / "Circuit.h").stat()
    again = verilated.design(rtlil.convert(Counter(), name="top", emit_src=False))
    after = (again / "Circuit.h").stat()
    assert (before.st_ino, before.st_mtime_ns) == (after.st_ino, after.st_mtime_ns)


def test_errors_take_one_line_and_leave_nothing(circuit, monkeypatch):
    with pytest.raises(tools.ToolError, match=r"on flip\.cpp: .*error: .*nobody") as caught:
        library(circuit, HARNESS + "int x = nobody;\n")
    assert "\n" not in str(caught.value)
    assert not list((tools.build_root() / "flip").glob(".build-*"))
    monkeypatch.setenv("CXX", "no-such-compiler")
    verilated.versions.cache_clear()
    with pytest.raises(tools.ToolError, match="no-such-compiler is missing: install a C"):
        verilated.design("module \\top\nend\n")
    verilated.versions.cache_clear()
