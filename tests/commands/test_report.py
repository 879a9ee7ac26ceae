"""The main job and its page, on a little data: what it says when cards fail, and when not."""

import html
import json
import re
from html.parser import HTMLParser

import pytest
from click.testing import CliRunner
from gradnic.sim.engine import tools
from gradnic.sim.inline import ring as cluster
from gradnic.sim.inline.idle_card import IdleCard
from gradnic.sim.report import first_light, pictures
from gradnic.sim.report import page as report
from gradnic.sim.report import star as report_star

from gradnic import cli
from gradnic.commands import report as report_command


class Outline(HTMLParser):
    """Checks that tags nest, and counts them."""

    VOID = ("meta", "br", "i", "rect", "line", "polyline")

    def __init__(self):
        super().__init__()
        self.open, self.count = [], {}

    def handle_starttag(self, tag, attributes):
        self.count[tag] = self.count.get(tag, 0) + 1
        if tag != "meta":
            self.open.append(tag)

    def handle_startendtag(self, tag, attributes):
        self.count[tag] = self.count.get(tag, 0) + 1

    def handle_endtag(self, tag):
        assert self.open.pop() == tag


def run(*arguments):
    return CliRunner().invoke(cli.cli, ["report", *map(str, arguments)])


@pytest.fixture(scope="module", autouse=True)
def small_star():
    """A star of two, whose library the aggregator's own tests have built."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(report_star, "N_WORKERS", 2)
        patch.setattr(report_star, "SHAPE", {"B": 64, "C": 128, "n_slots": 8, "n_elems": 64})
        yield


@pytest.fixture(scope="module")
def card():
    return cluster.build_card(4)


@pytest.fixture(scope="module")
def done(card, tmp_path_factory):
    """A whole run of the command on the first 3,000 values of each gradient, and its files."""
    folder = tmp_path_factory.mktemp("report")
    (folder / "build").mkdir()
    for libraries in ("verilator", "batch", "cluster"):  # what other tests have built, and will
        (tools.build_root() / libraries).mkdir(parents=True, exist_ok=True)
        (folder / "build" / libraries).symlink_to(tools.build_root() / libraries)
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        patch.setattr(cluster, "build_card", lambda lanes: card)
        result = run("--run", "--lanes", 4, "--elements", 3000, "--out", folder / "out")
    return folder, result


def test_the_job_is_bit_exact_and_saves(done):
    folder, ran = done
    assert ran.exit_code == 0, ran.output
    assert "agree bit for bit" in ran.output
    result = json.loads((folder / "out" / "result.json").read_text())
    assert result["ok"]
    assert result["star"]["mismatches"] == 0
    assert result["star"]["counters"]["accepted"] > 40
    assert result["star"]["nmse"] < 0.05
    assert "RTL workers around an RTL aggregator" in ran.output
    for iteration in result["iterations"].values():
        assert iteration["coded"]["mismatches"] == iteration["uncoded"]["mismatches"] == 0
        assert iteration["gradients"]["max_abs_error"] < result["bound"]
        assert iteration["sum"]["max_abs_error"] < 4 * result["bound"]
        assert iteration["coded"]["wire_bytes"] < iteration["uncoded"]["wire_bytes"]
        assert iteration["uncoded"]["wire_bytes"] == iteration["uncoded"]["raw_bytes"]
        histogram, errors = iteration["histogram"], iteration["errors"]
        assert sum(histogram["counts"]) + histogram["zeros"] == 4 * 3000
        assert 0 < sum(map(sum, errors["counts"])) <= 4 * 3000
    assert (folder / "build" / "verilog" / "inline4.v").exists()


def test_the_page_is_whole_and_stands_alone(done):
    folder, _ = done
    page = (folder / "out" / "index.html").read_text()
    outline = Outline()
    outline.feed(page)
    assert outline.open == []
    assert outline.count["svg"] == 8
    assert "verdict good" in page
    assert "Summed in the network" in page
    assert not re.search(r'(src|href)="(?!#)', page)  # nothing is fetched from elsewhere
    assert "nan" not in page.lower().replace("finance", "")


def test_headline_figures_name_iteration_and_source(done):
    page = html.unescape((done[0] / "out" / "index.html").read_text())
    assert "<h1>Real gradients through simulated cards</h1>" in page
    assert "no hardware was at work" in page
    facts = re.findall(r'<div class="card"><b>(.*?)</b><span>(.*?)</span></div>', page)
    assert len(facts) >= 4
    for figure, source in facts:
        if "Gb/s" in figure:
            assert "placed and routed" in source
            assert "the run's 4 a cycle" in source or "this run's 4 a cycle" in source
        else:
            assert "iteration 200, " in source
            assert "RTL simulation of 4 cards" in source or "golden codec" in source


def test_errors_on_a_logarithmic_scale_are_lines(done):
    """One line a tag, whose height is the tag's own count: nothing is stacked on a log axis."""
    result = json.loads((done[0] / "out" / "result.json").read_text())
    for iteration in result["iterations"]:
        picture = pictures.error_distribution(result, iteration)
        counts = result["iterations"][iteration]["errors"]["counts"]
        lines = re.findall(r'<polyline points="([^"]*)" class="series" stroke="([^"]*)"', picture)
        assert [stroke for _, stroke in lines] == [
            pictures.COLORS[tag] for tag in range(3) if any(counts[tag])
        ]
        heights = {}  # of the same count, whatever the tag
        for (points, stroke), _ in zip(lines, counts, strict=False):
            for k, n in enumerate(counts[pictures.COLORS.index(stroke)]):
                y = float(points.split()[2 * k].split(",")[1])
                assert heights.setdefault(n, y) == y
        ordered = [heights[n] for n in sorted(heights) if n]
        assert ordered == sorted(ordered, reverse=True)


def test_the_page_is_drawn_again_from_the_kept_result(done):
    folder, _ = done
    before = (folder / "out" / "index.html").read_text()
    (folder / "out" / "index.html").unlink()
    again = run("--out", folder / "out")
    assert again.exit_code == 0, again.output
    assert (folder / "out" / "index.html").read_text() == before
    rows = [row for rows in report_command.recorded(None)["papers"].values() for row in rows]
    assert all(f"<td>{row[0]}</td>" in html.unescape(before) for row in rows)
    other = folder / "other.md"
    other.write_text("# nothing\n")
    wrong = run("--out", folder / "out", "--claims", other)
    assert f"{other}: no page of gradnic reproduce" in str(wrong.exception)


def test_names_are_escaped(done):
    """Names that come from elsewhere, as a device's, are text of the page and no part of it."""
    result = json.loads((done[0] / "out" / "result.json").read_text())
    clock = {"block": "inline-4", "device": "<i>&", "fmax_mhz": 100.0, "gbps": 12.8}
    drawn = report.page(result | {"clock": clock})
    assert "<i>" not in drawn
    assert "&lt;i&gt;&amp;" in drawn


def test_cards_that_do_nothing_are_reported(monkeypatch):
    monkeypatch.setattr(
        cluster, "build_card", lambda lanes: cluster.build(IdleCard(lanes), "idle4")
    )
    result, _ = first_light.rings(4, 8, 1500, lambda *_: None, lambda _: None)
    assert not result["ok"]
    assert result["iterations"]["1"]["coded"]["mismatches"] > 0
    assert result["iterations"]["1"]["uncoded"]["mismatches"] == 0
    assert "NOT bit-exact" in report.page(result)


def test_without_a_run_there_is_nothing_to_draw(tmp_path):
    result = run("--out", tmp_path / "none")
    assert "add --run" in str(result.exception)
    assert not (tmp_path / "none").exists()


@pytest.mark.parametrize(
    ("option", "value"), [("--lanes", 12), ("--elements", 0), ("--link-bytes", -1)]
)
def test_mistakes_cost_one_line(tmp_path, option, value):
    result = run("--run", "--out", tmp_path / "none", option, value)
    assert result.exit_code == 2
    assert f"not {value}" in result.output


def test_the_clock_is_the_slowest_recorded_part(monkeypatch):
    from gradnic.fpga.flow import baseline

    def entry(block, fmax, device="LFE5U-85F-8"):
        return {"block": block, "device": device, "fmax_mhz": fmax, "gbps": fmax * 0.256}

    recorded = {}
    monkeypatch.setattr(baseline, "load", lambda: recorded)
    assert report_command.synthesized_clock(8) is None
    assert "No synthesized clock" in report.clock_line({"clock": None})
    recorded["a"] = entry("compressor-8", 300.0)
    assert report_command.synthesized_clock(8) is None
    recorded["e"], recorded["f"] = entry("compressor-16", 260.0), entry("decompressor-16", 255.0)
    assert report_command.synthesized_clock(8)["block"] == "decompressor-16"
    recorded["b"] = entry("decompressor-8", 250.0)
    recorded["c"] = entry("decompressor-8", 200.0, "LFE5U-85F-6")
    clock = report_command.synthesized_clock(8)
    assert (clock["block"], clock["fmax_mhz"]) == ("decompressor-8", 250.0)
    line = report.clock_line({"clock": clock, "lanes": 8})
    assert line.startswith("64.0 Gb/s: floats through decompressor-8, one block alone, 8 a cycle")
    assert "(this run's 8 a cycle): placed and routed for LFE5U-85F-8, 250 MHz, no part of" in line
    other = report.clock_source({"clock": entry("compressor-16", 272.0), "lanes": 8})
    assert "16 a cycle (not the run's 8 a cycle)" in other
    recorded["d"] = entry("inline-8", 180.0)
    assert report_command.synthesized_clock(8)["block"] == "inline-8"


def test_the_place_of_the_verilog_is_looked_at_before_the_run(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "build").write_text("a file")
    monkeypatch.setattr(report_command, "run_job", None)
    result = run("--run", "--out", "page")
    assert result.exit_code == 2, result.output
    assert "build: Not a directory" in result.output
    assert sorted(path.name for path in tmp_path.iterdir()) == ["build"]
