"""What the Verilog tells tools, and that it plays as the circuit that it was made of."""

import re

import numpy as np
import pytest
from amaranth.hdl import ClockDomain, Module, Signal
from amaranth.lib import cdc, memory, wiring
from amaranth.lib.wiring import In, Out
from gradnic.hdl.primitive.target import Target, one_hot
from gradnic.hdl.shells.common.crossing import Crossing
from gradnic.hdl.stream.beats import FrameBeat
from gradnic.hdl.stream.block_fifo import BlockFIFO
from gradnic.hdl.top import verilog
from gradnic.sim.engine import runner, stimulus


class Everything(wiring.Component):
    """A copy, a memory with contents and one without, an FSM, and a bit from elsewhere."""

    def __init__(self):
        super().__init__({"a": In(8), "far": In(1), "o": Out(8), "p": Out(8), "near": Out(1)})

    def elaborate(self, platform):
        m = Module()
        twin = Signal(8, attrs={"keep_register": 1}, init=3)
        m.d.sync += twin.eq(self.a)
        for name, init in (("told", [7, 8, 9]), ("bare", [])):
            kind = {"ram_style": "distributed"}
            m.submodules[name] = ram = memory.Memory(shape=8, depth=4, init=init, attrs=kind)
            read, write = ram.read_port(), ram.write_port()
            m.d.comb += [read.addr.eq(twin), write.en.eq(1), write.data.eq(twin)]
            m.d.comb += (self.o if init else self.p).eq(read.data)
        with m.FSM(name="step") as fsm:
            for state, following in (("ONE", "TWO"), ("TWO", "SIX"), ("SIX", "ONE")):
                with m.State(state), m.If(self.a[0]):
                    m.next = following
            m.d.comb += self.near.eq(fsm.ongoing("SIX"))
        one_hot(fsm)
        held = Signal()
        m.submodules.far = cdc.FFSynchronizer(self.far, held)
        with m.If(held):
            m.d.comb += self.near.eq(1)
        return m


def declared(text, name):
    """Attributes of a register or memory: {name: value}."""
    line = re.search(
        rf"^ +\(\* (.*) \*\)\n((?: +\(\*.*\n)*) +reg (?:\[.*?\] )?{name}\b", text, re.M
    )
    return dict(re.findall(r'(\w+) = "?([^",*]*?)"?(?=,| \*\)|$)', line[1] + "," + line[2]))


WORDS = {
    "generic": ({"keep", "dont_touch", "preserve"}, {"async_reg", "keep"}, "ram_style"),
    "xilinx": ({"keep", "dont_touch"}, {"async_reg", "dont_touch"}, "ram_style"),
    "intel": ({"preserve", "dont_merge"}, {"preserve", "dont_merge"}, "ramstyle"),
    "ecp5": ({"keep", "syn_preserve"}, {"keep", "syn_preserve"}, "ram_style"),
}
STATES = {"generic": "fsm_encoding", "xilinx": "fsm_encoding", "intel": "syn_encoding"}


@pytest.mark.parametrize("family", WORDS)
def test_each_tool_is_told_in_its_words(family):
    text = verilog.convert(Everything(), "top", platform=Target(family), head=["made by hand"])
    assert text.startswith("// made by hand\n")
    kept, synchronized, style = WORDS[family]
    assert kept <= declared(text, "twin").keys()
    assert synchronized <= declared(text, "stage0").keys()
    assert style in declared(text, "told")
    assert declared(text, "step_state")[STATES.get(family, "fsm_encoding")].startswith("one")
    assert '(* keep = "true" *)\n  always @(posedge clk)\n    if (rst) twin <= 8\'h03;' in text
    assert text.count("initial begin\n    told[0] = 8'h07;") == 1
    assert not re.search(r"\bbare\[\d+\] = ", text)
    assert "(* src" not in text
    assert "test_attributes.py" in verilog.convert(Everything(), "top", src=True)


class TwoClocks(wiring.Component):
    """A crossing from one clock to another."""

    def __init__(self):
        self.part = Crossing(8, i_domain="sync", o_domain="far", depth=4)
        super().__init__(dict(self.part.signature.members) | {"far_clk": In(1)})

    def elaborate(self, platform):
        m = Module()
        m.domains += (far := ClockDomain("far"))
        m.d.comb += far.clk.eq(self.far_clk)
        m.submodules.part = self.part
        for name in ("i", "o"):
            outer, inner = getattr(self, name), getattr(self.part, name)
            pair = (outer, inner) if name == "i" else (inner, outer)
            m.d.comb += [pair[1].p.eq(pair[0].p), pair[1].valid.eq(pair[0].valid)]
            m.d.comb += pair[0].ready.eq(pair[1].ready)
        return m


def test_constraints_name_what_is_there():
    made = verilog.files(TwoClocks(), "top")
    assert list(made) == ["top.v", "top.xdc", "top.sdc"]
    text, xdc, sdc = made.values()
    paths = re.findall(r"set_max_delay .*-to \[get_cells \{(\S+?)_reg\*\}\]", xdc)
    assert sorted(p.split("/")[-2] for p in paths) == ["consume_cdc", "produce_cdc"]
    for path in paths:
        module = "top"
        for instance in path.split("/")[:-1]:
            body = re.search(rf"^module {module}\(.*?^endmodule", text, re.M | re.S)[0]
            module = re.search(rf"^  (\w+) {instance} \(", body, re.M)[1]
        body = re.search(rf"^module {module}\(.*?^endmodule", text, re.M | re.S)[0]
        assert re.search(rf"^  reg \[\d+:0\] {path.split('/')[-1]} ;", body, re.M)
        assert path.replace("/", "|") in sdc
    assert len(re.findall(r"set_false_path -to .*rst_cdc/stage[01]_reg\*/PRE", xdc)) == 2
    assert "get_cells -quiet {part/store/storage_reg*}" in xdc
    one = verilog.files(BlockFIFO(FrameBeat(4), 16), "top")
    assert "nothing to constrain" in one["top.xdc"]
    assert "nothing to constrain" in one["top.sdc"]


WRAPPER = """
module top(clk, rst, i__payload, i__valid, i__ready, o__payload, o__valid, o__ready);
input clk, rst, i__valid, o__ready;
input [{top}:0] i__payload;
output i__ready, o__valid;
output [{top}:0] o__payload;
inner inner (.clk(clk), .rst(rst), .i_payload(i__payload), .i_valid(i__valid), .i_ready(i__ready),
    .o_payload(o__payload), .o_valid(o__valid), .o_ready(o__ready));
endmodule
"""


@pytest.mark.parametrize("family", ["generic", "xilinx", "intel"])
def test_text_plays_as_rtl(family):
    """On Icarus, memories without contents: the same beats in the same cycles."""
    if reason := runner.missing("icarus"):
        pytest.skip(f"{reason}: four-state simulation needs it")
    part = BlockFIFO(FrameBeat(4), 64)
    size = len(part.i.p.as_value())
    text = verilog.convert(part, "inner", platform=Target(family)) + WRAPPER.format(top=size - 1)
    rng = stimulus.rng("text", family)
    beats = rng.integers(0, 256, (300, 5)).astype(np.uint8)
    beats[:, -1] &= (1 << ((size - 1) % 8 + 1)) - 1
    patterns = {name: rng.random(97 + k) < 0.6 for k, name in enumerate("io")}
    played = [
        runner.play(
            part, {"i": beats}, patterns=patterns, n_cycles=1500, simulator="icarus", netlist=other
        )
        for other in (None, text)
    ]
    np.testing.assert_array_equal(played[1][0]["o"], beats)
    np.testing.assert_array_equal(played[0][1]["o"], played[1][1]["o"])
