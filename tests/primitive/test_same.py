"""Members joined by name: arrays element by element, other names around a part, and shapes."""

import pytest
from amaranth.hdl import Module
from amaranth.lib import stream, wiring
from amaranth.lib.wiring import In, Out
from amaranth.sim import Simulator
from gradnic.hdl.primitive.same import by_name, join, meet

BYTES = stream.Signature(8)
PORTS = {
    "i": In(BYTES).array(2),
    "o": Out(BYTES).array(2),
    "add": In(8, init=3).array(2),
    "last": Out(8),
}


class Adder(wiring.Component):
    """Port k gives its beats plus ``add[k]``."""

    def __init__(self):
        super().__init__(PORTS)

    def elaborate(self, platform):
        m = Module()
        for i, o, add in zip(self.i, self.o, self.add, strict=True):
            m.d.comb += [o.valid.eq(i.valid), o.payload.eq(i.payload + add), i.ready.eq(o.ready)]
        m.d.comb += self.last.eq(self.o[1].payload)
        return m


class Around(wiring.Component):
    """An `Adder`, whose ``last`` is called ``behind`` here."""

    def __init__(self):
        self.names = {"last": "behind"}
        super().__init__({self.names.get(name, name): member for name, member in PORTS.items()})

    def elaborate(self, platform):
        m = Module()
        m.submodules.part = part = Adder()
        join(m, part, self, PORTS, self.names)
        return m


class Row(wiring.Component):
    """An `Adder` whose outputs are the inputs of a second one."""

    def __init__(self):
        super().__init__({**PORTS, "between": Out(8)})

    def elaborate(self, platform):
        m = Module()
        m.submodules.first, m.submodules.second = first, second = Adder(), Around()
        join(m, first, self, ["i", "add"])
        join(m, second, self, ["o"])
        for o, i in zip(first.o, second.i, strict=True):
            wiring.connect(m, o, i)
        m.d.comb += self.between.eq(first.last)
        return m


class Ends(wiring.Component):
    """A source and a sink of what is called the same."""

    def __init__(self, flow, width=8):
        super().__init__({"x": flow(stream.Signature(width)).array(2), "y": Out(1)})

    def elaborate(self, platform):
        return Module()


def _settled(top, values):
    """Values of {signal: value} set, and what `told` of them gives."""
    found = {}

    async def bench(ctx):
        for signal, value in values:
            ctx.set(signal, value)
        await ctx.delay(1e-9)
        for k in range(2):
            o, i = top.o[k], top.i[k]
            found[k] = [ctx.get(x) for x in (o.valid, o.payload, i.ready)]
        found["last"] = ctx.get(by_name(top).get("behind", top.o[1].payload))

    simulator = Simulator(top)
    simulator.add_testbench(bench)
    simulator.run()
    return found


@pytest.mark.parametrize("kind", [Around, Row])
def test_arrays_are_joined_one_by_one(kind):
    top = kind()
    values = [(top.i[0].payload, 10), (top.i[1].payload, 20), (top.i[1].valid, 1)]
    values += [(top.o[0].ready, 1), (top.add[0], 1)]
    more = 3 if kind is Row else 0  # of the second, at reset
    assert _settled(top, values) == {
        0: [0, 11 + more, 1],
        1: [1, 23 + more, 0],
        "last": 23 + more,
    }


def test_members_are_in_their_order():
    assert list(by_name(Around())) == ["i", "o", "add", "behind"]


def test_parts_that_differ_are_refused():
    m = Module()
    meet(m, Ends(Out), Ends(In), ["x"])
    with pytest.raises(wiring.ConnectionError, match="do not match"):
        meet(m, Ends(Out), Ends(In, 9), ["x"])
    with pytest.raises(wiring.ConnectionError, match="several output"):
        meet(m, Ends(Out), Ends(In), ["x", "y"])
