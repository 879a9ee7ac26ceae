"""Presets on other parts, by Yosys: copies survive, memories are memories, honest counts."""

import json
import re
from pathlib import Path

import pytest
from amaranth.hdl import Module, Signal
from amaranth.lib import memory, wiring
from amaranth.lib.wiring import In, Out
from click.testing import CliRunner
from gradnic.fpga.flow import hierarchy, tools, vendors
from gradnic.hdl.primitive.block_ram import BlockRAM
from gradnic.hdl.primitive.target import Target
from gradnic.hdl.top import catalog, verilog

from gradnic.commands.synth import command
from gradnic.interface import params


class Copies(wiring.Component):
    """A register, its copy, and a memory of 64 words behind them."""

    def __init__(self, attrs):
        self.attrs = attrs
        super().__init__({"a": In(8), "o": Out(8), "p": Out(40)})

    def elaborate(self, platform):
        m = Module()
        one, two = (Signal(8, name=name, attrs=self.attrs) for name in ("one", "two"))
        m.submodules.ram = ram = BlockRAM(40, 64)
        m.d.sync += [one.eq(self.a), two.eq(self.a)]
        m.d.comb += [
            self.o.eq(one),
            ram.write_en.eq(1),
            ram.write_addr.eq(two),
            ram.write_data.eq(two),
            ram.read_addr.eq(one),
            self.p.eq(ram.read_data),
        ]
        return m


def synthesize(family, attrs, folder):
    text = verilog.convert(Copies(attrs), "copies", platform=Target(family))
    return vendors.of_text(text, "copies", family, folder=folder)


@pytest.mark.parametrize("family", vendors.FAMILIES)
def test_copies_survive(family, tmp_path):
    kept = synthesize(family, {"keep_register": 1}, tmp_path)
    merged = synthesize(family, {}, tmp_path)
    assert kept["ff"] - merged["ff"] == 8
    assert kept["memories_in_ff"] == merged["memories_in_ff"] == 0
    assert kept["bram36"] > 0
    assert kept["max_fanout"] >= merged["max_fanout"] // 2


def test_a_preset_keeps_its_copies(tmp_path):
    """Bits of flip-flops that are to stay, before and after synthesis."""
    text = verilog.convert(catalog.build(params.preset("thcnorm4")), "top")
    design = hierarchy.Design(text, "top")
    script = vendors.SCRIPT.format(units=design.top, synth=vendors.SYNTH["xilinx"])
    before = f"read_verilog batch.v\nhierarchy -top {design.top}\nproc\nflatten\n"
    modules, _ = design.text(design.top)
    batch = f"module batch(); {design.top} unit (); endmodule\n"
    (tmp_path / "batch.v").write_text("".join((*modules.values(), batch)))
    (tmp_path / "synth.ys").write_text(f"{before}write_json flat.json\ndesign -reset\n{script}")
    tools.run(["yosys", "-q", "-l", "log", "-s", "synth.ys"], tmp_path, made="partial.json")

    def kept(file, kinds):
        cells = json.loads((tmp_path / file).read_text())["modules"][design.top]["cells"].values()
        outputs = [c["connections"]["Q"] for c in cells
                   if c["type"] in kinds and "keep" in c["attributes"]]  # fmt: skip
        return sum(map(len, outputs))

    asked = kept("flat.json", ("$dff", "$sdff"))
    assert asked > 30
    assert kept("partial.json", ("FDRE", "FDSE")) == asked
    assert (tmp_path / "memories.txt").read_text() == ""


class Told(wiring.Component):
    """A memory with contents that is read at once: no MLAB, of which Yosys knows no contents."""

    def __init__(self):
        super().__init__({"at": In(6), "en": In(1), "o": Out(8)})

    def elaborate(self, platform):
        m = Module()
        m.submodules.told = told = memory.Memory(shape=8, depth=64, init=range(1, 65))
        write, read = told.write_port(), told.read_port(domain="comb")
        m.d.comb += [write.en.eq(self.en), write.addr.eq(self.at), write.data.eq(self.at)]
        m.d.comb += [read.addr.eq(self.at), self.o.eq(read.data)]
        return m


def test_a_memory_in_flip_flops_is_told(tmp_path):
    text = verilog.convert(Told(), "told", platform=Target("intel"))
    found = vendors.of_text(text, "told", "intel", folder=tmp_path)
    assert found["memories_in_ff"] == 1
    assert found["ff"] > 300


def _cell(kind, **pins):
    directions = {pin: "output" if pin in ("O", "Q", "CO") else "input" for pin in pins}
    connections = {pin: [bit] for pin, bit in pins.items()}
    return {"type": kind, "port_directions": directions, "connections": connections}


def test_levels_and_fan_out():
    """Register, LUT, inverter, LUT, two carry cells of one chain, register: three levels."""
    cells = {
        "from": _cell("FDRE", C=1, D=9, Q=2, R=3),
        "a": _cell("LUT2", I0=2, I1=2, O=4),
        "n": _cell("INV", I=4, O=5),
        "b": _cell("LUT1", I0=5, O=6),
        "c0": _cell("CARRY4", S=6, CO=7),
        "c1": _cell("CARRY4", CI=7, CO=8),
        "to": _cell("FDRE", C=1, D=8, Q=9, R=3),
    }
    netlist = {"cells": cells, "ports": {"rst": {"bits": [3]}, "clk": {"bits": [1]}}}
    found = vendors.figures(netlist, 0)
    assert (found["levels"], found["max_fanout"]) == (3, 2)
    assert (found["lut"], found["ff"]) == (2, 2)
    cells["a"]["connections"]["I1"] = [6]
    with pytest.raises(ValueError, match="5 cells are part of a loop"):
        vendors.levels(netlist)


def test_worse_is_told():
    old = dict(zip(vendors.KEYS, ("x", "xilinx", 100, 100, 1.5, 0, 2, 5, 90, 0), strict=True))
    recorded = {"x xilinx": old}
    assert vendors.compare(old | {"lut": 111, "ff": 111}, recorded) == []
    worse = vendors.compare(old | {"lut": 112, "bram36": 2, "levels": 6}, recorded)
    assert [line.split(": ")[1].split(",")[0] for line in worse] == [
        "lut 112", "bram36 2", "levels 6",
    ]  # fmt: skip


PART = """
module part_{name}(clk, rst, x, y, {port}, z);
  input clk;
  input rst;
  input x;
  output y;
  input [1:0] {port} ;
  output z;
  reg y;
  assign z = x ^ {port}[0];
  always @(posedge clk)
    if (rst) y <= 0;
    else y <= z & {port}[1];
endmodule
"""
PARTS = (
    PART.format(name="a", port="port_7_0")
    + PART.format(name="b", port="port_9_0")
    + """
module top(clk, rst, x, a, b, o);
  input clk, rst, x;
  input [1:0] a, b;
  output [2:0] o;
  wire m;
  part_a first (
    .clk(clk),
    .port_7_0 (a),
    .rst(rst),
    .x(x),
    .y(o[0]),
    .z(m)
  );
  part_b second  (
    .clk(clk),
    .port_9_0 (b),
    .rst(rst),
    .x(m),
    .y(o[1]),
    .z(o[2])
  );
endmodule
"""
)


def test_equal_parts_are_one_unit_and_ways_go_through_edges(monkeypatch, tmp_path):
    """Two parts that only their numbers tell apart, one behind the other: two levels."""
    assert len(hierarchy.Design(PARTS, "top").units) == 1
    whole = vendors.of_text(PARTS, "top", "xilinx", folder=tmp_path)
    monkeypatch.setattr(hierarchy, "WHOLE", 0)
    monkeypatch.setattr(hierarchy, "UNIT", 10)
    design = hierarchy.Design(PARTS, "top")
    assert list(design.times.values()) == [2, 1]
    found = vendors.of_text(PARTS, "top", "xilinx", folder=tmp_path)
    assert (found["units"], found["lut"], found["ff"], found["levels"]) == (2, 4, 2, 2)
    assert (whole["units"], whole["ff"], whole["levels"]) == (1, 2, 1)
    netlist = hierarchy.flat(vendors.map_units(design, "xilinx", folder=tmp_path), design.top)
    assert [n for n, *_ in vendors.deep(netlist, 1)] == [2, 2]
    assert len(list((tmp_path / "units").iterdir())) == 3


def _unit(cells, ports, names):
    pins = {
        kind: {p: "output" if p in "OQ" else "input" for p in bound} for kind, bound, _ in cells
    }
    return {"cells": cells, "pins": pins, "ports": ports, "names": names}


def test_nets_go_through_units():
    """A wire through a unit, a constant out of it, and the same net at two of its ports."""
    inner = _unit(
        [["LUT1", {"I0": [2], "O": [4]}, "not"]],
        {"i": [2], "j": [3], "through": [3], "one": ["1"], "o": [4]},
        {"2": "i", "4": "o"},
    )
    pins = {"i": [5], "j": [5], "through": [6], "one": [7], "o": [8]}
    register = {"D": [8], "Q": [5]}
    cells = [["U", pins, "u"], ["FDRE", register, "f"]]
    cells += [["LUT2", {"I0": [6], "I1": [7], "O": [9]}, "g"]]
    outer = _unit(cells, {"out": [9]}, {"5": "held", "9": "out"})
    netlist = hierarchy.flat({"U": inner, "top": outer}, "top")
    (held,) = netlist["cells"]["f"]["connections"]["Q"]
    assert netlist["cells"]["u.not"]["connections"]["I0"] == [held]
    assert netlist["cells"]["g"]["connections"]["I0"] == [held]
    assert netlist["cells"]["g"]["connections"]["I1"] == ["1"]
    assert netlist["names"][held] == "held"
    assert vendors.levels(netlist) == 1
    assert vendors.wide(netlist, 1) == [(2, "held")]
    assert vendors.deep(netlist, 0) == [(1, "held", "port out"), (1, "held", "held")]


def test_nothing_recorded_has_memories_in_flip_flops():
    recorded = vendors.load()
    assert recorded
    for key, entry in recorded.items():
        assert tuple(entry) == (*vendors.KEYS, *vendors.EXTRAS)
        assert key == vendors.name(entry)
        assert entry["memories_in_ff"] == 0, key


def test_command(monkeypatch, tmp_path):
    result = dict(zip(vendors.KEYS, ("inline4", "xilinx", 9, 9, 1, 0, 0, 9, 1090, 0), strict=True))
    recorded = result | {"units": 1, "yosys": "0.70", "date": "2026-11-26"}
    result = recorded | {"deep": [[9, "a", "b"]] * 13, "wide": [[1090, "c"]]}
    monkeypatch.setattr(vendors, "FILE", tmp_path / "vendors.json")
    monkeypatch.setattr(vendors, "synthesize", lambda *names, **options: result)
    arguments = ["inline4", "--family", "xilinx", "--json", "-"]
    early = CliRunner().invoke(command, [*arguments, "--check"])
    assert str(early.exception) == "inline4 xilinx is not recorded: --record puts it there"
    shown = CliRunner().invoke(command, [*arguments, "--record"])
    assert json.loads(shown.stdout) == result
    assert vendors.load() == {"inline4 xilinx": recorded}
    told = CliRunner().invoke(command, arguments[:3]).output
    assert "inline4: 9 levels, a to b" in told
    assert "inline4: and 1 more, see --json" in told
    assert "inline4: 1090 pins, c" in told
    result = result | {"uram": 1}
    worse = CliRunner().invoke(command, [*arguments, "--check"])
    assert worse.exit_code == 1
    assert "inline4 xilinx: uram 1, above 0" in worse.stderr
    refused = CliRunner().invoke(command, [*arguments, "--lanes", "4"])
    assert (refused.exit_code, "takes --check, --record, --parts" in refused.output) == (2, True)


def test_page_has_what_is_recorded():
    page = Path(__file__).parents[2] / "docs/reference/vendors.md"
    shown = [
        line for line in page.read_text().splitlines() if re.match(r"\| \w+ \| (xil|int)", line)
    ]
    assert shown == vendors.rows()


def test_parts_and_changes():
    inner = {"cells": [["LUT2", {}, "a"], ["FDRE", {}, "b"]]}
    outer = {"cells": [["U", {}, "one"], ["U", {}, "two"], ["RAMB18E2", {}, "c"]]}
    found = vendors.parts({"U": inner, "top": outer}, "top")
    one = {"lut": 1, "ff": 1, "bram36": 0, "uram": 0, "dsp": 0}
    whole = {"lut": 2, "ff": 2, "bram36": 0.5, "uram": 0, "dsp": 0}
    assert found == {"": whole, "one": one, "two": one}
    assert vendors.parameters("jobs128+maxima=1+queues=8").queues == 8
    with pytest.raises(ValueError, match="maxima must be 0 to 1, not 2"):
        vendors.parameters("jobs128+maxima=2")
