"""Amaranth's quicker way writes the RTLIL of Amaranth's own, and finds the same cycles."""

import gc

import pytest
from amaranth.back import rtlil
from amaranth.hdl import C, Cat, Module, Signal, _nir
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out
from gradnic.hdl.inceptionn.compressor import Compressor
from gradnic.hdl.reduction.float_add import FloatAdd
from gradnic.hdl.stream.block_fifo import BlockFIFO
from gradnic.hdl.top import netlist_speed
from gradnic.hdl.top.verilog import to_rtlil


class Odd(wiring.Component):
    """Signed arithmetic, constants between bits, a part at an offset, a wire that nobody drives."""

    def __init__(self):
        super().__init__({"a": In(8), "b": In(4), "o": Out(16), "p": Out(24)})

    def elaborate(self, platform):
        m = Module()
        free, sum_ = Signal(3), Signal(16)
        m.d.sync += sum_.eq(self.a.as_signed() * self.b.as_signed() - free)
        with m.Switch(self.b):
            with m.Case(1, "1--0"):
                m.d.comb += self.o[3:9].eq(self.a.bit_select(self.b, 6))
            with m.Default():
                m.d.comb += self.o.eq(Cat(self.a, sum_[:2], 1, free, 0, 1) >> self.b)
        m.d.comb += self.p.eq(Cat(sum_[8:], C(0b1001, 4), self.a, sum_[:4]))
        return m


class Chain(wiring.Component):
    """Each bit of a wire is made of the one below it, the lowest of the highest if `tied`."""

    def __init__(self, tied):
        self.tied = tied
        super().__init__({"a": In(1), "o": Out(8)})

    def elaborate(self, platform):
        m = Module()
        for k in range(1, 8):
            m.d.comb += self.o[k].eq(self.o[k - 1] ^ self.a)
        m.d.comb += self.o[0].eq(self.o[7] & self.a if self.tied else self.a)
        return m


@pytest.mark.parametrize(
    "make",
    [Odd, FloatAdd, lambda: Compressor(4), lambda: BlockFIFO(9, 64), lambda: Chain(False)],
    ids=["odd", "adder", "compressor", "FIFO", "chain"],
)
@pytest.mark.parametrize("emit_src", [False, True])
def test_text_is_that_of_amaranth(make, emit_src):
    want = rtlil.convert(make(), name="top", emit_src=emit_src)
    assert to_rtlil(make(), name="top", emit_src=emit_src) == want


def test_a_cycle_is_told_as_by_amaranth():
    component, told = Chain(True), []
    for convert in (rtlil.convert, to_rtlil):
        with pytest.raises(_nir.CombinationalCycle) as error:
            convert(component, name="top")
        told.append(str(error.value))
    assert told[0] == told[1]
    assert "signal o bit 7" in told[0]


def test_bits_of_one_wire_that_depend_on_each_other_are_no_cycle(monkeypatch):
    """They are one by cells, so it is this search that says no; it finds the one that is there."""
    seen = []
    careful, tangled = netlist_speed._has_cycle, netlist_speed._tangled
    monkeypatch.setattr(
        netlist_speed, "_tangled", lambda netlist: seen.append(tangled(netlist)) or seen[-1]
    )
    monkeypatch.setattr(
        netlist_speed, "_has_cycle", lambda *given: seen.append(careful(*given)) or seen[-1]
    )
    to_rtlil(Chain(False), name="top")
    with pytest.raises(_nir.CombinationalCycle):
        to_rtlil(Chain(True), name="top")
    assert seen[0]
    assert seen[2]
    assert [seen[1], seen[3]] == [False, True]


def test_amaranth_is_as_it_was_afterwards():
    before = [vars(owner)[name] for owner, name, _ in netlist_speed._INSTEAD]
    with pytest.raises(_nir.CombinationalCycle):
        to_rtlil(Chain(True), name="top")
    assert [vars(owner)[name] for owner, name, _ in netlist_speed._INSTEAD] == before
    assert gc.isenabled()
