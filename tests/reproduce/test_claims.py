"""Claims, the page, pictures, and a paper through the command line, twice the same."""

import json
import math
import re
import subprocess
import sys
from dataclasses import asdict

import pytest
from click.testing import CliRunner
from gradnic.models.schedule.network_model import Network
from gradnic.models.training.constants import CONSTANTS, value
from gradnic.sim.reproduce import eflops, papers
from gradnic.sim.reproduce.claims import Picture, Result, Table, compare, geometric_mean
from gradnic.sim.reproduce.page import (
    claim_rows,
    constants_section,
    markdown,
    number,
    read_claims,
)
from gradnic.sim.reproduce.pictures import draw, draw_all

from gradnic import cli
from gradnic.commands import reproduce
from gradnic.commands.report import CLAIMS

KEYS = {"paper", "claim", "published", "ours", "low", "high", "unit", "holds", "differs"}


@pytest.mark.parametrize(
    ("published", "ours", "better", "holds"),
    [(2.2, 2.2, "higher", True), (2.2, 2.19, "higher", False), (0.5, 0.4, "lower", True),
     (0.5, 0.6, "lower", False)],
)  # fmt: skip
def test_a_claim_holds_if_ours_is_as_good(published, ours, better, holds):
    claim = compare("p", "c", published, ours, [1.0, 9.0], "x", "why", better=better)
    assert claim.holds is holds
    assert (claim.low, claim.high) == (min(1.0, ours), 9.0)


def test_a_claim_needs_numbers():
    with pytest.raises(ValueError, match="not a number"):
        compare("p", "c", 1, math.nan, [], "x", "why")
    with pytest.raises(ValueError, match="higher or lower"):
        compare("p", "c", 1, 1, [], "x", "why", better="more")


def test_geometric_mean():
    assert geometric_mean([2, 8]) == pytest.approx(4)


def found():
    result = Result("toy")
    result.claim("speed", 2.0, 3.0, [1.0], "x", "smaller")
    result.tables.append(Table("Rows", ("a", "b|c"), [("x|y", 1234567), ("z", 0.123456)]))
    lines = {"one": [(1, 2.0, 1.5, 2.5), (2, 3.0, 2.0, 4.0)]}
    bars = {"p": [("u", 1.0), ("v", 2.0)], "q": [("u", 3.0), ("v", 4.0)]}
    result.pictures.append(Picture("toy_lines", "lines", "Lines", "x", "y", lines, "x"))
    result.pictures.append(Picture("toy_bars", "bars", "Bars", "", "y", bars))
    plain = result.as_json()
    constants = {"k": {"value": 1.5, "unit": "s", "source": "measured"}}
    return {"quick": True, "claims": plain["claims"], "papers": [plain], "constants": constants}


def test_page_has_claims_tables_and_sources():
    page = markdown(found(), "gradnic reproduce toy", "2026-01-02")
    assert "`gradnic reproduce toy` on 2026-01-02" in page
    assert "| speed | 2 x | 3 x | 1 to 3 | yes |" in page
    assert "- *speed*: smaller." in page
    assert "![" not in page
    shown = markdown(found(), "x", "2026-01-02", {"toy_bars": "pictures/toy_bars.svg"})
    assert "\n![Bars](pictures/toy_bars.svg)\n" in shown
    assert shown.count("![") == 1
    assert "| x/y | 1,234,567 |" in page
    assert "| `k` | 1.5 | s | measured |" in page
    assert claim_rows(found()["claims"])[0][-1] == "yes"
    assert [number(v) for v in (0.123456, 12345.6, 7, "w")] == ["0.123", "12,346", "7", "w"]


@pytest.mark.parametrize("page", ["results", "trees", "accuracy"])
def test_recorded_pages_have_every_constant(page):
    """With its source: a page that was written before a constant came says less than the JSON."""
    text = CLAIMS.with_name(f"{page}.md").read_text()
    constants = {name: asdict(constant) for name, constant in CONSTANTS.items()}
    assert text[text.index("## Constants") :] == constants_section(constants)


def test_the_network_of_multitree_s_authors_is_that_of_the_model():
    authors = Network()
    assert [value(f"multitree.{part}") for part in ("link", "latency", "packet", "head")] == [
        authors.link_bytes_per_cycle, authors.link_latency, authors.packet, authors.head,
    ]  # fmt: skip


def test_page_is_read_again():
    """What the report shows: the claims' rows, and no other table; our recorded page, too."""
    page = markdown(found(), "gradnic reproduce toy", "2026-01-02")
    read = read_claims(page)
    assert read["papers"] == {"toy": claim_rows(found()["claims"])}
    assert read["written"].startswith("Written by `gradnic reproduce toy` on 2026-01-02")
    recorded = read_claims(CLAIMS.read_text())
    rows = [row for rows in recorded["papers"].values() for row in rows]
    held = sum(row[-1] == "yes" for row in rows)
    assert {len(row) for row in rows} == {5}
    assert f"{held} of {len(rows)} claims hold" in recorded["written"]
    with pytest.raises(ValueError, match="no page of gradnic reproduce"):
        read_claims("# Another page\n\n## With a section\n")


def test_pictures_are_the_same_bytes_each_time(tmp_path):
    folders = [tmp_path / "a", tmp_path / "b"]
    for folder in folders:
        folder.mkdir()
        assert [p.name for p in draw_all(found(), folder)] == ["toy_lines.svg", "toy_bars.svg"]
    for name in ("toy_lines.svg", "toy_bars.svg"):
        assert (folders[0] / name).read_bytes() == (folders[1] / name).read_bytes()


def test_lines_beyond_the_tenth_do_not_look_like_the_first(tmp_path):
    """Matplotlib's colors begin anew there."""
    lines = {str(k): [(1, k), (2, k + 1)] for k in range(12)}
    draw(Picture("many", "lines", "Many", "x", "y", lines).__dict__, tmp_path / "many.svg")
    text = (tmp_path / "many.svg").read_text()
    styles = re.findall(r'style="fill: none; (.*stroke-width: 1.5.*)"', text)
    assert [styles.count(style) for style in styles] == [2] * 24  # each line, and in the legend


def test_the_page_says_with_which_network(tmp_path, monkeypatch):
    monkeypatch.setattr(papers, "run", lambda names, **_: found())
    monkeypatch.setattr(reproduce, "require", lambda *_, **__: None)
    page = tmp_path / "p.md"
    words = ["reproduce", "dlcp", "--quick", "--network", "ns3", "--page", str(page)]
    run = CliRunner().invoke(cli.cli, words)
    assert run.exit_code == 0, run.output
    assert "Written by `gradnic reproduce dlcp --quick --network ns3` on" in page.read_text()


def test_eflops_from_the_command_line(tmp_path):
    """Keys that programs rely on, and the same figures from another process."""
    words = ["reproduce", "eflops", "--quick", "--page", str(tmp_path / "p.md"), "--json"]
    run = CliRunner().invoke(cli.cli, [*words, str(tmp_path / "one.json")])
    assert run.exit_code == 0, run.output
    one = json.loads((tmp_path / "one.json").read_text())
    assert [set(claim) for claim in one["claims"]] == [KEYS] * 3
    assert all(c["low"] <= c["ours"] <= c["high"] and c["differs"] for c in one["claims"])
    assert (tmp_path / "p.md").read_text().startswith("# What is claimed of eflops, and")
    code = "import sys, gradnic.cli; sys.exit(gradnic.cli.main(sys.argv[1:]))"
    subprocess.run([sys.executable, "-c", code, *words, str(tmp_path / "two.json")], check=True)
    assert json.loads((tmp_path / "two.json").read_text()) == one


def test_servers_share_a_nic_or_do_not():
    """2 accelerators, packed: the first halving stays inside; then both cross the one NIC."""
    one, two = (eflops.shared(2, nics, False) for nics in (1, 2))
    assert one.n_nodes == two.n_nodes == 2 * eflops.SERVERS
    fabric = one.n_nodes
    into = [sum(b == fabric for _, b in t.links.tolist()) for t in (one, two)]
    assert into == [eflops.SERVERS, 2 * eflops.SERVERS]


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["resnet"], "resnet"),
        (["eflops", "--page", "x.txt"], ".md"),
        ([], "Missing argument"),
    ],
)
def test_mistakes(words, said):
    run = CliRunner().invoke(cli.cli, ["reproduce", *words])
    assert run.exit_code == 2
    assert said in run.output
