"""What the Verilog tells tools, and that it plays as the circuit that it was made of."""

import re
from pathlib import Path

import numpy as np
import pytest
from amaranth.hdl import Cat, ClockDomain, Module, Signal
from amaranth.lib import cdc, memory, wiring
from amaranth.lib.wiring import In, Out
from gradnic.hdl.primitive.target import Target, as_coded, one_hot, with_exit
from gradnic.hdl.shells.common.crossing import Crossing
from gradnic.hdl.stream.beats import FrameBeat
from gradnic.hdl.stream.block_fifo import BlockFIFO
from gradnic.hdl.top import verilog
from gradnic.sim.engine import runner, stimulus, tools

from gradnic import hdl


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


@pytest.mark.parametrize("family", WORDS)
def test_each_tool_is_told_in_its_words(family):
    text = verilog.convert(Everything(), "top", platform=Target(family), head=["made by hand"])
    assert text.startswith("// made by hand\n")
    kept, synchronized, style = WORDS[family]
    assert kept <= declared(text, "twin").keys()
    assert synchronized <= declared(text, "stage0").keys()
    assert style in declared(text, "told")
    assert '(* keep = "true" *)\n  always @(posedge clk)\n    if (rst) twin <= 8\'h03;' in text
    assert text.count("initial begin\n    told[0] = 8'h07;") == 1
    assert not re.search(r"\bbare\[\d+\] = ", text)
    assert "(* src" not in text
    assert "test_attributes.py" in verilog.convert(Everything(), "top", src=True)


class Lost(wiring.Component):
    """Three states, and a flag that is 1 in what is none of them, which it leaves at once.

    told : `one_hot`, `with_exit` or `as_coded`.
    """

    def __init__(self, told):
        self.told = told
        super().__init__({"a": In(1), "lost": Out(1), "state": Out(2)})

    def elaborate(self, platform):
        m = Module()
        with m.FSM(name="step") as fsm:
            for state, following in (("ONE", "TWO"), ("TWO", "SIX"), ("SIX", "ONE")):
                with m.State(state), m.If(self.a):
                    m.next = following
        m.d.comb += self.lost.eq(~Cat(map(fsm.ongoing, fsm.encoding)).any())
        m.d.comb += self.state.eq(Cat(map(fsm.ongoing, ("TWO", "SIX"))))
        with m.If(self.lost):
            m.d.sync += fsm.state.eq(fsm.encoding["TWO"])
        self.told(fsm)
        return m


STATE_WORDS = {
    ("generic", one_hot): {
        'fsm_encoding = "one-hot"', 'fsm_safe_state = "reset_state"',
        'syn_encoding = "safe, one-hot"',
    },
    ("generic", with_exit): {'fsm_safe_state = "reset_state"', 'syn_encoding = "safe"'},
    ("generic", as_coded): {
        'fsm_encoding = "none"', "preserve = 1", "dont_merge = 1", "syn_preserve = 1",
        "syn_state_machine = 0",
    },
    ("xilinx", one_hot): {'fsm_encoding = "one_hot"', 'fsm_safe_state = "reset_state"'},
    ("xilinx", with_exit): {'fsm_safe_state = "reset_state"'},
    ("xilinx", as_coded): {'fsm_encoding = "none"'},
    ("intel", one_hot): {'syn_encoding = "safe, one-hot"'},
    ("intel", with_exit): {'syn_encoding = "safe"'},
    ("intel", as_coded): {"preserve = 1", "dont_merge = 1"},
    ("ecp5", one_hot): {'fsm_encoding = "one-hot"', 'syn_encoding = "safe,onehot"'},
    ("ecp5", with_exit): {'syn_encoding = "safe"'},
    ("ecp5", as_coded): {'fsm_encoding = "none"', "syn_preserve = 1", "syn_state_machine = 0"},
}  # fmt: skip


@pytest.mark.parametrize(("family", "told"), STATE_WORDS)
def test_states_have_an_exit_in_the_words_of_each_tool(family, told):
    text = verilog.convert(Lost(told), "top", platform=Target(family))
    found = re.search(r"((?: +\(\*.*\n)+) +reg \[1:0\] step_state\b", text)[1]
    words = re.findall(r'(\w+ = (?:"[^"]*"|[^,\s]+))', found)
    assert {re.sub(r"32'd0*(?=\d)", "", word) for word in words} == STATE_WORDS[family, told]


@pytest.mark.parametrize(("told", "stays"), [(as_coded, True), (one_hot, False)])
def test_yosys_keeps_an_exit_of_a_circuit_as_coded_and_drops_it_from_what_it_codes(
    told, stays, tmp_path
):
    """Which is why contexts of jobs are as coded."""
    text = verilog.convert(Lost(told), "top", platform=Target("ecp5"))
    (tmp_path / "top.v").write_text(text)
    script = "read_verilog top.v; synth -top top -run begin:fine; setattr -unset init w:*; "
    script += "sat -seq 2 -set rst 0 -set-at 1 lost 1 -prove-skip 1 -prove lost 0 -verify top"
    if stays:
        tools.yosys(script, folder=tmp_path, outputs=[])
    else:
        with pytest.raises(tools.ToolError, match="proof did fail"):
            tools.yosys(script, folder=tmp_path, outputs=[])


def test_no_states_are_left_to_the_tool():
    """Each FSM of a circuit says one of the three."""
    wrong = []
    for path in Path(hdl.__file__).parent.rglob("*.py"):
        text = path.read_text()
        told = re.findall(r"^ +(?:one_hot|with_exit|as_coded)\(fsm\)", text, re.M)
        if len(re.findall(r"\bm\.FSM\(", text)) != len(told):
            wrong.append(path.name)
    assert not wrong


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
