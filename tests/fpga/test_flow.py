"""The synthesis flow: every path timed, honest counts, margins, and one line for each mistake."""

import copy
import json
from collections import Counter as Counts

import pytest
from amaranth.hdl import Module, Mux, Signal
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out
from click.testing import CliRunner
from gradnic.fpga.flow import baseline, blocks, floorplan, parts, resets, tools
from gradnic.fpga.flow import measure as flow
from gradnic.hdl.primitive.block_ram import BlockRAM

from gradnic.commands.synth import command


class Adder(wiring.Component):
    """Sum of two numbers, without a register: only boundary registers make it measurable."""

    def __init__(self, width):
        super().__init__({"a": In(width), "b": In(width), "o": Out(width)})

    def elaborate(self, platform):
        m = Module()
        m.d.comb += self.o.eq(self.a + self.b)
        return m


class Twins(wiring.Component):
    """A register and its copy, whose bits also have a synchronous clear in the datapath."""

    def __init__(self, attrs):
        self.attrs = attrs
        super().__init__({"a": In(8), "clear": In(1), "o": Out(16)})

    def elaborate(self, platform):
        m = Module()
        one = Signal(8, attrs=self.attrs, reset_less=True)
        two = Signal(8, attrs=self.attrs, reset_less=True)
        last = Signal(16, reset_less=True)
        m.d.sync += [one.eq(self.a), two.eq(self.a)]
        m.d.sync += last.eq(Mux(self.clear, 0, one ^ (two << 8)))
        m.d.comb += self.o.eq(last)
        return m


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("synth")


@pytest.fixture(scope="module")
def adder(folder):
    said = []
    result = flow.measure(
        Adder(32), bits=32, seeds=2, folder=folder, block="adder", progress=said.append
    )
    return result, said


def test_result(adder):
    result, said = adder
    assert result["block"] == "adder"
    assert result["device"] == "LFE5U-85F-8"
    assert result["fmax_mhz"] == pytest.approx(sum(result["fmax_mhz_seeds"]) / 2)
    assert result["gbps"] == pytest.approx(32 * result["fmax_mhz"] / 1000, abs=0.01)
    assert result["gbps_per_klut"] == pytest.approx(1000 * result["gbps"] / result["lut"], abs=0.01)
    # a 32-bit carry chain and no register of its own: boundary registers are not counted
    assert (result["ff"], result["bram"], result["dsp"]) == (0, 0, 0)
    assert 32 <= result["lut"] <= 40
    assert result["boundary_ff"] == 96
    assert said == [
        "adder: synthesis",
        "adder: place and route, seed 1 (0 of 2 done)",
        "adder: place and route, seed 2 (1 of 2 done)",
    ]
    json.dumps(result, allow_nan=False)


def test_path_is_readable(adder):
    head, *hops = adder[0]["critical_path"].splitlines()
    assert head.startswith(("component.a_", "component.b_"))  # boundary registers
    assert " to o_" in head
    assert "clk-to-q" in hops[0]
    assert "setup" in hops[-1]
    assert any("carry chain" in hop for hop in hops)
    assert len(hops) < 12  # a chain of 16 carry cells is one hop
    assert any("fpga/test_flow.py:" in hop for hop in hops)
    total = float(hops[-1].split()[1])
    assert 1000 / total == pytest.approx(
        min(adder[0]["fmax_mhz_seeds"], key=lambda f: abs(f - 1000 / total)), rel=0.01
    )


def test_path_from_port_to_port_is_timed(adder, folder):
    """nextpnr alone says nothing about it: twice the carry chain must cost clock."""
    longer = flow.measure(Adder(128), seeds=1, folder=folder)
    assert longer["fmax_mhz"] < 0.8 * adder[0]["fmax_mhz"]


def test_what_is_there_is_not_made_again(adder, folder):
    said = []
    again = flow.measure(
        Adder(32), bits=32, seeds=2, folder=folder, block="adder", progress=said.append
    )
    assert said == []
    assert again | {"seconds": 0} == adder[0] | {"seconds": 0}


def test_kept_registers_and_unmapped_resets(folder):
    merged = flow.measure(Twins({}), seeds=1, folder=folder)
    kept = flow.measure(Twins({"keep_register": 1}), seeds=1, folder=folder)
    assert (merged["ff"], kept["ff"]) == (16, 32)
    plain = flow.synthesize(Twins({}), folder=folder, block="plain", progress=print)
    folded = flow.synthesize(
        Twins({}), folder=folder, block="folded", unmap_resets=False, progress=print
    )

    def resets(home):
        cells = json.loads((home / "netlist.json").read_text())["modules"]["top"]["cells"].values()
        return sum(
            cell["type"] == "TRELLIS_FF" and not isinstance(cell["connections"]["LSR"][0], str)
            for cell in cells
        )

    assert (resets(plain), resets(folded)) == (0, 8)


class Counter(wiring.Component):
    """Counts where enabled, from a number that is neither all zeros nor all ones."""

    def __init__(self):
        super().__init__({"on": In(1), "o": Out(40, init=5)})

    def elaborate(self, platform):
        m = Module()
        with m.If(self.on):
            m.d.sync += self.o.eq(self.o + 1)
        return m


def test_reset_has_pins_of_its_own(folder):
    """Synchronous, above the enable, from copies for 32 registers each, and through no LUT."""
    home = flow.synthesize(Counter(), folder=folder, block="counter", progress=print)
    cells = json.loads((home / "netlist.json").read_text())["modules"]["top"]["cells"]
    registers = [cell for cell in cells.values() if cell["type"] == "TRELLIS_FF"]
    used = {"0": [], "1": []}
    for cell in registers:
        used.setdefault(cell["connections"]["LSR"][0], []).append(cell)
    copies = {bit: users for bit, users in used.items() if isinstance(bit, int)}
    assert sorted(map(len, copies.values())) == [8, 32]
    users = [cell for group in copies.values() for cell in group]
    assert {cell["parameters"]["SRMODE"] for cell in users} == {"LSR_OVER_CE"}
    assert sum(cell["parameters"]["REGSET"] == "SET" for cell in users) == 2
    assert all(isinstance(cell["connections"]["CE"][0], int) for cell in users)
    first = {cell["connections"]["DI"][0] for cell in registers
             if cell["connections"]["Q"][0] in copies}  # fmt: skip
    assert len(first) == 1
    reads = {bit for cell in cells.values() if cell["type"] in ("LUT4", "CCU2C")
             for bits in cell["connections"].values() for bit in bits}  # fmt: skip
    assert not reads & (first | set(copies))


class Wires(wiring.Component):
    """More ports than Yosys writes on a line, and no register: no clock and no reset."""

    def __init__(self):
        super().__init__({f"a{k}": In(1) for k in range(30)} | {"o": Out(30)})

    def elaborate(self, platform):
        m = Module()
        m.d.comb += [self.o[k].eq(~getattr(self, f"a{k}")) for k in range(30)]
        return m


def test_boundary_of_many_ports(folder):
    home = flow.synthesize(Wires(), folder=folder, block="wires", progress=print)
    netlist = json.loads((home / "netlist.json").read_text())["modules"]["top"]
    assert flow.check_boundary(netlist) == 60


def test_a_crowded_device_has_few_resets(folder, monkeypatch):
    monkeypatch.setattr(resets, "CROWDED", 8)
    monkeypatch.setattr(resets, "CROWDED_FANOUT", 30)
    home = flow.synthesize(Counter(), folder=folder, block="crowded", progress=print)
    cells = json.loads((home / "netlist.json").read_text())["modules"]["top"]["cells"].values()
    nets = [c["connections"]["LSR"][0] for c in cells if c["type"] == "TRELLIS_FF"]
    assert sorted(Counts(bit for bit in nets if isinstance(bit, int)).values()) == [10, 30]


def test_a_device_resets_by_its_own_net(folder):
    home = flow.synthesize(
        Counter(), folder=folder, block="global", global_reset=True, progress=print
    )
    cells = json.loads((home / "netlist.json").read_text())["modules"]["top"]["cells"]
    registers = [c for c in cells.values() if c["type"] == "TRELLIS_FF"]
    assert {c["connections"]["LSR"][0] for c in registers} == {"0"}
    assert sum(c["parameters"]["GSR"] == "ENABLED" for c in registers) == 40
    net = cells["global_reset"]
    assert net["type"] == "SGSR"
    (low,) = net["connections"]["GSR"]
    (inverter,) = (c for c in cells.values() if c["connections"].get("Z") == [low])
    (reset,) = inverter["connections"]["A"]
    assert int(inverter["parameters"]["INIT"], 2) == 1
    (first,) = (c for c in registers if c["connections"]["Q"] == [reset])
    assert first["parameters"]["GSR"] == "DISABLED"  # the boundary register, which nothing resets
    assert first["connections"]["CLK"] == net["connections"]["CLK"]
    tools.run(["nextpnr-ecp5", "--25k", "--json", "netlist.json", "--timing-allow-fail",
               "--textcfg", "out.cfg"], home, made="out.cfg")  # fmt: skip
    written = (home / "out.cfg").read_text()
    assert "enum: GSR.SYNCMODE SYNC\n" in written
    assert written.count(".GSR ENABLED\n") >= 20  # a slice has two registers


def test_untimed_ports_are_refused(folder):
    home = flow.synthesize(Adder(4), folder=folder, block="small", progress=print)
    good = json.loads((home / "netlist.json").read_text())["modules"]["top"]
    assert flow.check_boundary(good) == 12
    register = next(
        cell
        for cell in good["cells"].values()
        if cell["type"] == "TRELLIS_FF"
        and cell["connections"]["Q"] == good["ports"]["o"]["bits"][:1]
    )
    bad = copy.deepcopy(good)
    bad["ports"]["o"]["bits"][0] = next(
        cell["connections"][pin][0]
        for cell in good["cells"].values()
        for pin in cell["connections"]
        if cell["type"] == "LUT4" and pin == "Z"
    )
    with pytest.raises(ValueError, match=r"^block: port o meets .* without a boundary register"):
        flow.check_boundary(bad)
    bad = copy.deepcopy(good)
    bad["cells"]["gate"] = {
        "type": "LUT4",
        "port_directions": {"A": "input", "Z": "output"},
        "connections": {"A": good["ports"]["a"]["bits"][:1], "Z": [10**6]},
    }
    with pytest.raises(ValueError, match=r"port a meets LUT4.A without a boundary register"):
        flow.check_boundary(bad)
    assert register["connections"]["CLK"] == good["ports"]["clk"]["bits"]


def test_block_ram_has_its_place(folder):
    result = flow.measure(BlockRAM(300, 512), seeds=1, anchored=True, folder=folder, block="ram")
    assert result["bram"] == 9
    (log,) = folder.glob("ram-*/s1-*.log")
    assert "Placed 9 cells based on constraints." in log.read_text()
    free = flow.measure(BlockRAM(30, 512), seeds=1, anchored=True, folder=folder, block="one")
    assert free["bram"] == 1
    (log,) = folder.glob("one-*/s1-*.log")
    assert "Placed 0 cells based on constraints." in log.read_text()


def _netlist(names, multipliers=()):
    kinds = {"DP16KD": names, "MULT18X18D": multipliers}
    return {"cells": {name: {"type": kind} for kind, them in kinds.items() for name in them}}


def test_places_follow_the_bits():
    names = [f"{memory}.bits{bit}" for memory in "ab" for bit in range(0, 180, 36)]
    names += [f"c.part{part}.bits{bit}" for part in (0, 72) for bit in (0, 36)]
    places = floorplan.places(_netlist(names), "85k")
    assert sorted(places) == sorted(names)
    assert len(set(places.values())) == len(names)
    columns = {name: int(bel[1:].split("/")[0]) for name, bel in places.items()}
    bits = {name: floorplan._first_bit(name) for name in names}
    assert bits["c.part72.bits36"] == 108
    order = sorted(names, key=lambda name: (columns[name], bits[name]))
    assert [bits[name] for name in order] == sorted(bits.values())
    assert {bel.split("/")[1] for bel in places.values()} == {"Y70", "Y82"}
    assert floorplan.places(_netlist(names), "25k") == {}
    assert floorplan.places(_netlist(names[:7]), "85k") == {}


def test_multipliers_stand_by_their_lanes():
    lanes = [f"top.scale{k}.times.U$0" for k in range(16)]
    lanes += [f"top.part{8 * k}_{7 + k}.times.U_1" for k in range(16)]  # as Verilog has `$7`
    shared = ["top.hash.inner.times0.U$1", "top.hash.inner.times1.U$1"]
    rams = [f"top.dice.bits{bit}" for bit in (0, 36, 72, 108, 144, 180, 216, 252)]
    places = floorplan.places(_netlist(rams, lanes + shared), "85k")
    assert sorted(places) == sorted(lanes + shared + rams)
    assert len(set(places.values())) == len(places)
    column = {name: int(bel[1:].split("/")[0]) for name, bel in places.items()}
    row = {name: bel.split("/")[1] for name, bel in places.items()}
    for names in (lanes[:16], lanes[16:], shared, rams):
        assert [column[name] for name in names] == sorted({column[name] for name in names})
        assert len({row[name] for name in names}) == 1
    assert (row[lanes[0]], row[rams[0]], row[lanes[16]]) == ("Y58", "Y46", "Y34")
    assert column[lanes[0]] < column[shared[0]] < column[lanes[15]]


@pytest.mark.parametrize("n", [52, 65, 97, 208])
def test_places_are_all_different(n):
    places = floorplan.places(_netlist([f"m.bits{36 * k}" for k in range(n)]), "85k")
    assert len(set(places.values())) == n
    assert all(4 <= int(bel[1:].split("/")[0]) <= 120 for bel in places.values())


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"device": "99k"}, "device must be one of 12k, 25k, 45k, 85k, not '99k'"),
        ({"speed": 5}, "speed must be 6, 7 or 8, not 5"),
        ({"seeds": 0}, "seeds must be at least 1, not 0"),
        ({"clock_mhz": 0}, "clock_mhz must be from 1 to 1000, not 0"),
    ],
)
def test_bad_options(options, message):
    with pytest.raises(ValueError, match=message):
        flow.measure(Adder(4), **options)


def test_what_does_not_fit_is_refused():
    """nextpnr places such a netlist for hours, and says nothing."""
    kinds = {"TRELLIS_FF": 24_289, "LUT4": 24_000, "CCU2C": 200, "DP16KD": 56}
    netlist = _netlist(())
    for kind, n in kinds.items():
        netlist["cells"] |= {f"{kind}{k}": {"type": kind} for k in range(n)}
    message = "^card does not fit an LFE5U-25F: 24,400 of 24,288 LUT sites, 24,289 of 24,288 reg"
    with pytest.raises(ValueError, match=message):
        flow.check_fit(netlist, "25k", "card")
    flow.check_fit(netlist, "45k", "card")


def test_a_tool_that_fails_says_why(folder):
    with pytest.raises(ChildProcessError, match=r"yosys ended with status .*: ERROR: .*option"):
        flow.synthesize(
            Adder(5), folder=folder, block="wrong", options=["-nonsense"], progress=print
        )


def test_a_tool_that_leaves_nothing_has_failed(folder, monkeypatch):
    monkeypatch.setenv("YOSYS", "true")
    with pytest.raises(ChildProcessError, match="yosys ended with status 0: no log"):
        flow.synthesize(Adder(6), folder=folder, block="empty", progress=print)
    monkeypatch.setenv("YOSYS", "no-such-program")
    with pytest.raises(FileNotFoundError, match="yosys: no-such-program is not a program"):
        flow.synthesize(Adder(6), folder=folder, block="empty", progress=print)


OLD = {
    "block": "x-4",
    "device": "LFE5U-85F-8",
    "fmax_mhz": 200.0,
    "lut": 1000,
    "ff": 1000,
    "bram": 2,
    "dsp": 1,
}


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({}, None),
        ({"fmax_mhz": 188.5}, None),
        ({"fmax_mhz": 187.5}, "fmax_mhz 187.5, more than 6% below 200.0"),
        ({"lut": 1038}, None),
        ({"lut": 1039}, "lut 1039, more than 3% above 1000"),
        ({"ff": 1039}, "ff 1039, more than 3% above 1000"),
        ({"bram": 3}, "bram 3, above 2"),
        ({"dsp": 2}, "dsp 2, above 1"),
        ({"fmax_mhz": 400.0, "lut": 10, "ff": 10, "bram": 0, "dsp": 0}, None),
    ],
)
def test_margins(change, says):
    worse = baseline.compare(OLD | change, {"x-4 LFE5U-85F-8": OLD})
    assert worse == ([] if says is None else [f"x-4 LFE5U-85F-8: {says}"])


def test_baseline_file_reads_back(adder):
    merged = baseline.merge({"x-4 LFE5U-85F-8": OLD}, [adder[0]])
    assert json.loads(baseline.text(merged)) == merged
    assert list(merged) == ["adder LFE5U-85F-8", "x-4 LFE5U-85F-8"]
    assert "critical_path" not in merged["adder LFE5U-85F-8"]


def test_recorded_baseline_names_blocks_that_exist():
    recorded = baseline.load()
    assert recorded
    for key, entry in recorded.items():
        assert key == baseline.name(entry)
        name, _, n_lanes = entry["block"].rpartition("-")
        assert int(n_lanes) in blocks.BLOCKS[name].lanes


@pytest.fixture
def adder_block(monkeypatch, folder):
    """The command with one block, the adder, and with its own files."""
    block = blocks.Block("adds", "stream", lambda hdl, n: Adder(8 * n), lanes=(4, 8))
    monkeypatch.setattr(blocks, "BLOCKS", {"adder": block})
    monkeypatch.setattr(baseline, "FILE", folder / "baseline.json")
    monkeypatch.chdir(folder)
    (folder / "baseline.json").unlink(missing_ok=True)
    return folder


def test_command(adder_block):
    first = CliRunner().invoke(command, ["adder", "--lanes", "4", "--seeds", "1", "--json", "-"])
    assert first.exit_code == 0, first.output
    result = json.loads(first.stdout)
    keys = ["block", "device", "fmax_mhz", "fmax_mhz_seeds", "lut", "ff", "bram", "dsp", "gbps"]
    assert [*result][: len(keys)] == keys
    assert result["block"] == "adder-4"
    assert result["lanes"] == 4
    early = CliRunner().invoke(command, ["adder", "--lanes", "4", "--check"])
    assert str(early.exception).startswith("adder-4 LFE5U-85F-8 is not in the baseline")
    early = CliRunner().invoke(command, ["all", "--check"])
    assert str(early.exception).startswith("all is not in the baseline")
    recorded = CliRunner().invoke(command, ["all", "--lanes", "4", "--seeds", "1", "--record"])
    assert recorded.exit_code == 0, recorded.output
    assert list(baseline.load()) == ["adder-4 LFE5U-85F-8"]
    arguments = ["all", "--check", "--path"]  # what is recorded, with the seeds that it had
    same = CliRunner().invoke(command, arguments)
    assert same.exit_code == 0, same.output
    assert "slowest path" in same.output
    file = adder_block / "baseline.json"
    entry = json.loads(file.read_text())
    entry["adder-4 LFE5U-85F-8"]["fmax_mhz"] *= 1.1
    file.write_text(json.dumps(entry))
    worse = CliRunner().invoke(command, arguments)
    assert worse.exit_code == 1
    assert "more than 6% below" in worse.output


def test_record_keeps_what_was_recorded_meanwhile(adder_block, monkeypatch):
    measure = blocks.measure

    def measure_beside_another(*arguments, **options):
        result = measure(*arguments, **options)
        others = baseline.merge(baseline.load(), [result | {"block": "other-4"}])
        baseline.FILE.write_text(baseline.text(others))
        return result

    monkeypatch.setattr(blocks, "measure", measure_beside_another)
    for lanes in ("4", "8"):
        arguments = ["adder", "--lanes", lanes, "--seeds", "1", "--record"]
        assert CliRunner().invoke(command, arguments).exit_code == 0
    kept = [key.split()[0] for key in baseline.load()]
    assert kept == ["adder-4", "adder-8", "other-4"]


def test_cost_places_nothing(adder_block, tmp_path):
    file = tmp_path / "cost.json"
    arguments = ["adder", "--lanes", "4", "--cost", "--parts", "--json", str(file)]
    shown = CliRunner().invoke(command, arguments)
    assert shown.exit_code == 0, shown.output
    result = json.loads(file.read_text())
    assert result["lut"] == result["parts"][""]["lut"] > 0
    assert result["ff"] == result["parts"][""]["ff"] - result["boundary_ff"]
    assert "LUT sites before packing" in shown.output
    assert "fmax_mhz" not in result
    refused = CliRunner().invoke(command, ["adder", "--cost", "--record"])
    assert (refused.exit_code, "--cost places nothing" in refused.output) == (2, True)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["divider"], "block must be one of adder, not 'divider'"),
        (["adder", "--lanes", "5"], "--lanes must be 4, 8, 16 or 32, not 5"),
        (["adder", "--lanes", "16"], "--lanes must be 4 or 8, not 16"),
        (["adder", "--seeds", "0"], "--seeds must be 1 to 1,000, not 0"),
        (["adder", "--jobs", "0"], "--jobs must be 1 to 1,024, not 0"),
        (["adder", "--device", "1k"], "--device must be 12k, 25k, 45k or 85k, not 1k"),
    ],
)
def test_command_mistakes(adder_block, arguments, message):
    result = CliRunner().invoke(command, arguments)
    assert result.exit_code != 0
    assert message in result.output + str(result.exception)


def test_costs_go_to_the_part_they_came_from():
    kinds = {"a.b": "$scopeinfo", "a.b.c": "$scopeinfo", "a": "$scopeinfo", "a.b.c.d": "$scopeinfo"}
    kinds |= {"a.b.sum_LUT4_Z": "LUT4", "a.b.c.x": "CCU2C", "a.b.c.d.y": "TRELLIS_FF"}
    kinds |= {"a.b.c.ram": "DP16KD", "a.q": "TRELLIS_FF", "other": "LUT4", "a.mux": "PFUMX"}
    netlist = {"cells": {name: {"type": kind} for name, kind in kinds.items()}}
    assert parts.by_part(netlist, 2) == {
        "b.c": {"lut": 2, "ff": 1, "bram": 1},
        "b": {"lut": 1},
        "": {"lut": 1, "ff": 1},
    }
    assert parts.by_part(netlist, 1) == {
        "b": {"lut": 3, "ff": 1, "bram": 1},
        "": {"lut": 1, "ff": 1},
    }
