"""Pictures of schedules: the share of time in use, all of it, arrows from vertex to vertex."""

import itertools

import numpy as np
import pytest
from gradnic.models.schedule.builders import build, pictures
from gradnic.models.schedule.builders.layout import positions
from gradnic.models.schedule.builders.rows import compile_table
from gradnic.models.schedule.topology import parse
from gradnic.models.schedule.traffic import written_out

LAYOUTS = [
    "torus:4x4", "mesh:3x5", "torus:2x4", "ring:7", "full:6", "hypercube:3", "torus:3x3x3",
    "fattree:4x2", "fattree:2x3", "bigraph:4x8", "dragonfly:4x2x2", "dragonfly:2x1x2", "dgx:8x4",
    "dgx:4x9",
]  # fmt: skip


def busy(schedule):
    """Link-steps with a message, counted row by row of the table that cards execute."""
    table = compile_table(schedule)
    start = np.searchsorted(table.peers["node"], np.arange(table.n_nodes))
    used = set()
    for row in written_out(table):
        for send in row["sends"][row["sends"] >= 0]:
            path = table.paths[table.peers["path"][start[row["node"]] + send]]
            used |= {(int(row["step"]), link) for link in path}
    return used


def test_overlapped_mesh_as_counted_by_hand():
    """8 trees of 15 links, both ways, 64 times, in 350 steps of 48 links."""
    schedule = build(parse("mesh:4x4"), "overlapped")
    assert schedule.steps == 350
    assert pictures.share_in_use(schedule) == pytest.approx(8 * 15 * 2 * 64 / (350 * 48))
    cells, ends = pictures.chart(schedule)
    assert cells.shape == (48, 350)
    assert ends[-1] == pytest.approx(schedule.slots_total)


@pytest.mark.parametrize(
    ("spelling", "algorithm"),
    [("mesh:4x4", "overlapped"), ("mesh:3x3", "overlapped"), ("torus:4x4", "multitree"),
     ("fattree:4x2", "multitree"), ("torus:3x3", "ring2d")],
)  # fmt: skip
def test_chart_is_the_table_step_by_step(spelling, algorithm):
    schedule = build(parse(spelling), algorithm)
    cells, ends = pictures.chart(schedule)
    link, step = np.nonzero(np.isfinite(cells))
    assert set(zip(step.tolist(), link.tolist(), strict=True)) == busy(schedule)
    widths = np.diff(np.append(0, ends))
    share = (np.isfinite(cells) * widths).sum() / widths.sum() / len(cells)
    if algorithm != "ring2d":  # whose row steps last four times as long as its column steps
        assert share == pytest.approx(pictures.share_in_use(schedule))
    else:
        assert widths.max() == pytest.approx(3 * widths.min())


def test_a_long_table_is_drawn_to_its_end(monkeypatch):
    monkeypatch.setattr(pictures, "_COLUMNS", 50)
    schedule = build(parse("mesh:4x4"), "overlapped")
    cells, ends = pictures.chart(schedule)
    assert cells.shape == (48, 50)
    assert ends[-1] == pytest.approx(schedule.slots_total)
    assert (np.diff(ends) > 0).all()
    assert np.isfinite(cells[:, -1]).any()


@pytest.mark.parametrize("spelling", ["mesh:4x4", "dragonfly:2x1x2", "fattree:2x3"])
def test_arrows_go_from_vertex_to_vertex(spelling):
    topology = parse(spelling)
    schedule = build(topology, "multitree")
    figure, at = pictures.drawn(schedule), positions(topology)
    trees, chart = figure.subfigs[0].axes, figure.subfigs[1].axes[0]
    links = {tuple(np.round([*at[a], *at[b]], 9)) for a, b in topology.links.tolist()}
    for axes in trees:
        arrows = [t for t in axes.texts if t.arrowprops]
        ends = {tuple(np.round([*t.xyann, *t.xy], 9)) for t in arrows}
        assert ends <= links
        assert len(ends) == len(arrows)
        reached = {end[2:] for end in ends}
        assert {tuple(np.round(place, 9)) for place in at[: topology.n_nodes]} - reached <= {
            tuple(np.round(at[root], 9)) for root in schedule.roots
        }
    assert "time, shard-slots" in chart.get_xlabel()
    assert chart.get_xlim() == pytest.approx((0, schedule.slots_total))
    assert [t.get_text() for t in chart.get_legend().get_texts()] == ["reduce", "gather"]


@pytest.mark.parametrize("spelling", LAYOUTS)
def test_no_two_vertices_and_no_foreign_link_on_one_place(spelling):
    topology = parse(spelling)
    at = positions(topology)
    size = np.ptp(at, axis=0).max()
    pairs = itertools.combinations(range(topology.n_vertices), 2)
    near = min(np.hypot(*(at[v] - at[u])) for u, v in pairs)
    assert near > 0.005 * size
    for a, b in topology.links.tolist():
        along = at[b] - at[a]
        share = np.clip((at - at[a]) @ along / (along @ along), 0, 1)
        away = np.hypot(*(at - at[a] - share[:, None] * along).T)
        away[[a, b]] = np.inf
        assert away.min() > 0.004 * size, (a, b, away.argmin())
