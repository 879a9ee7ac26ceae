"""RTLIL in less time: the text that Amaranth alone writes, its word on cycles, and no trace."""

import re

import pytest
from amaranth.back import rtlil as amaranth
from amaranth.hdl import Cat, Module, _ast, _nir
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out
from gradnic.hdl.frame.splice import Splicer
from gradnic.hdl.inceptionn.compressor import Compressor
from gradnic.hdl.primitive.target import Target
from gradnic.hdl.reduction.codec_image import CodecImage
from gradnic.hdl.reduction.float_add import FloatAdd
from gradnic.hdl.reduction.reduce import Combine
from gradnic.hdl.stream.fifo import FIFO
from gradnic.hdl.top.rtlil import to_rtlil
from gradnic.hdl.transport.framer import Framer

CIRCUITS = {
    "adder": FloatAdd,
    "memory": lambda: FIFO(8, 64),
    "compressor": lambda: Compressor(4),
    "shortest units": lambda: Compressor(4, max_floats=2),
    "framer": lambda: Framer(16, 2),
}


def amaranths_own():
    found = [_nir.Value.__new__, _ast.Operator.shape, _nir.Netlist.check_comb_cycles]
    found += [_nir.Net.from_cell, _nir.Value.from_const, _nir.Netlist.add_value_cell]
    emitter = amaranth.ModuleEmitter
    return [*found, _nir.Netlist.resolve_value, emitter.sigspec, emitter.emit_memory]


OWN = amaranths_own()


@pytest.mark.parametrize(
    "options", [{"emit_src": False}, {"platform": Target("ecp5")}], ids=["plain", "src"]
)
@pytest.mark.parametrize("circuit", CIRCUITS)
def test_text_is_that_of_amaranth(circuit, options):
    make = CIRCUITS[circuit]
    want = amaranth.convert(make(), name="top", **options)
    assert to_rtlil(make(), name="top", **options) == want
    assert amaranths_own() == OWN


class Ring(wiring.Component):
    """Bit k + 1 of `o` follows bit k; closed, bit 0 follows the last."""

    def __init__(self, *, closed):
        self.closed = closed
        super().__init__({"i": In(1), "o": Out(8)})

    def elaborate(self, platform):
        m = Module()
        m.d.comb += self.o.eq(~Cat(self.o[-1] if self.closed else self.i, self.o[:-1]))
        return m


def test_a_cycle_is_told_as_amaranth_does():
    with pytest.raises(_nir.CombinationalCycle) as want:
        amaranth.convert(Ring(closed=True), name="top")
    with pytest.raises(_nir.CombinationalCycle) as told:
        to_rtlil(Ring(closed=True), name="top")
    assert str(told.value) == str(want.value)
    assert amaranths_own() == OWN
    assert "module \\top" in to_rtlil(Ring(closed=False), name="top")  # bits, not words, make it


CELL = re.compile(r"  cell (\S+) \S+\n((?:    [^\n]*\n)*)  end\n")
OUTPUT = re.compile(r"    connect \\Y (\S+) ?[^\n]*\n")


def share_written_again(text):
    """Of the cells in RTLIL, those that have the inputs of one before them in their module."""
    n, again = 0, 0
    for module in text.split("\nmodule ")[1:]:
        first, same = {}, {}
        for kind, body in CELL.findall(module):
            n += 1
            output = OUTPUT.search(body)
            if not output:
                continue
            inputs = OUTPUT.sub("", body)
            inputs = re.sub(r"\$\d+", lambda net, same=same: same.get(net[0], net[0]), inputs)
            if (kind, inputs) in first:
                again += 1
                same[output[1]] = first[kind, inputs]
            else:
                first[kind, inputs] = output[1]
    return again / n


@pytest.mark.parametrize(
    "make",
    [
        lambda: FIFO(8, 32),
        lambda: CodecImage(4, passes=True, wide=True),
        lambda: Combine(4),
        lambda: Splicer(16, (64, 42)),
        lambda: Compressor(8),
    ],
    ids=["fifo", "codec_image", "combine", "splicer", "compressor"],
)
def test_expressions_are_written_once(make):
    """Amaranth writes an expression as often as it is used, and for each bit of ``replicate``: four
    of five cells of a card with THC were such, and most of the time that it took.
    """
    assert share_written_again(to_rtlil(make(), name="top", emit_src=False)) < 0.4
