"""Presets on other parts, by Yosys: copies survive, memories are memories, honest counts."""

import json

import pytest
from amaranth.hdl import Module, Signal
from amaranth.lib import memory, wiring
from amaranth.lib.wiring import In, Out
from click.testing import CliRunner
from gradnic.fpga.flow import tools, vendors
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
    before = "read_verilog top.v\nhierarchy -top top\nproc\nflatten\nwrite_json flat.json\n"
    script = vendors.SCRIPT.format(top="top", synth=vendors.SYNTH["xilinx"].format(top="top"))
    (tmp_path / "top.v").write_text(text)
    (tmp_path / "synth.ys").write_text(f"{before}design -reset\n{script}")
    tools.run(["yosys", "-q", "-l", "log", "-s", "synth.ys"], tmp_path, made="partial.json")

    def kept(file, kinds):
        cells = json.loads((tmp_path / file).read_text())["modules"]["top"]["cells"].values()
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


def test_nothing_recorded_has_memories_in_flip_flops():
    recorded = vendors.load()
    assert recorded
    for key, entry in recorded.items():
        assert tuple(entry) == vendors.KEYS
        assert key == vendors.name(entry)
        assert entry["memories_in_ff"] == 0, key


def test_command(monkeypatch, tmp_path):
    result = dict(zip(vendors.KEYS, ("inline4", "xilinx", 9, 9, 1, 0, 0, 5, 90, 0), strict=True))
    monkeypatch.setattr(vendors, "FILE", tmp_path / "vendors.json")
    monkeypatch.setattr(vendors, "synthesize", lambda *names, **options: result)
    arguments = ["inline4", "--family", "xilinx", "--json", "-"]
    early = CliRunner().invoke(command, [*arguments, "--check"])
    assert str(early.exception) == "inline4 xilinx is not recorded: --record puts it there"
    shown = CliRunner().invoke(command, [*arguments, "--record"])
    assert json.loads(shown.stdout) == result
    assert vendors.load() == {"inline4 xilinx": result}
    result = result | {"uram": 1}
    worse = CliRunner().invoke(command, [*arguments, "--check"])
    assert worse.exit_code == 1
    assert "inline4 xilinx: uram 1, above 0" in worse.stderr
    refused = CliRunner().invoke(command, [*arguments, "--lanes", "4"])
    assert (refused.exit_code, "takes --check, --record" in refused.output) == (2, True)
