"""Carry chains with their operands on other inputs compute what they did."""

import itertools

import pytest
from gradnic.fpga.flow import carry

OPERANDS = [
    (a, b, c) for a, b, c in itertools.product((2, "0", "1"), (3, "0", "1"), ("0", "1"))
]  # fmt: skip


def computed(cell, half, values, carry_in):
    """(Sum, carry) of a half of a CCU2C, by Lattice's model of it; `values` of the nets."""
    init = int(cell["parameters"][f"INIT{half}"], 2)
    pins = [cell["connections"][f"{pin}{half}"][0] for pin in "ABCD"]
    a, b, c, d = (int(bit) if isinstance(bit, str) else values[bit] for bit in pins)
    propagates = init >> (a | b << 1 | c << 2 | d << 3) & 1
    generates = init >> (a | b << 1) & 1
    return propagates ^ carry_in, carry_in if propagates else generates


def chain(operands, init=f"{carry.ADDER:016b}", d="1"):
    a, b, c = operands
    pins = {
        f"{pin}{half}": [bit]
        for half in "01"
        for pin, bit in zip("ABCD", (a, b, c, d), strict=True)
    }
    parameters = {"INIT0": init, "INIT1": init}
    return {"cells": {"x": {"type": "CCU2C", "connections": pins, "parameters": parameters}}}


@pytest.mark.parametrize("operands", OPERANDS)
def test_sum_and_carry_stay(operands):
    before, after = chain(operands), chain(operands)
    carry.hasten(after)
    for half, x, y, carry_in in itertools.product("01", (0, 1), (0, 1), (0, 1)):
        values = {2: x, 3: y}
        was, now = (computed(one["cells"]["x"], half, values, carry_in) for one in (before, after))
        assert was == now


@pytest.mark.parametrize("operands", OPERANDS)
def test_at_most_one_operand_is_far(operands):
    netlist = chain(operands)
    carry.hasten(netlist)
    pins = netlist["cells"]["x"]["connections"]
    far = [pin for pin, (bit,) in pins.items() if pin[0] in "AB" and not isinstance(bit, str)]
    both = not isinstance(operands[0], str) and not isinstance(operands[1], str)
    assert len(far) == (2 if both else 0)  # one in each half


@pytest.mark.parametrize("other", [{"init": f"{0x0A:016b}"}, {"d": 4}])
def test_other_functions_stay_as_they_are(other):
    before, after = chain((2, 3, "0"), **other), chain((2, 3, "0"), **other)
    carry.hasten(after)
    assert before == after
