"""Pictures of a schedule: trees on the topology, and who uses which link when."""

from typing import Any

import numpy as np

from .layout import positions
from .schedule import GATHER, Schedule

_MOST_LINKS = 400  # rows of the chart; more links than that are drawn without labels
_MOST_NAMES = 128  # nodes with a number beside them
_COLUMNS = 4000  # of the chart; of more steps than that some are left out
_TREES = 4


def drawn(schedule: Schedule) -> Any:
    """A matplotlib Figure: axes of the trees, then those of the chart.

    Left: the graph, with the gather tree of up to four chunks, one each. Right: links by time, all
    of it, blue for reduce and red for gather.
    """
    from matplotlib.figure import Figure

    chunks = np.linspace(0, schedule.n_chunks - 1, min(_TREES, schedule.n_chunks)).astype(int)
    figure: Any = Figure(figsize=(18, 9), layout="constrained")
    left, right = figure.subfigures(1, 2, width_ratios=(1, 1))
    at = positions(schedule.topology)
    shape = (2, 2) if len(chunks) > 2 else (1, len(chunks))
    for axes in left.subplots(*shape, squeeze=False).flat:
        axes.set_axis_off()
    for i, (axes, chunk) in enumerate(zip(left.axes, chunks, strict=False)):
        _draw_tree(axes, schedule, int(chunk), at, f"C{i}")
    _draw_chart(right.subplots(), schedule)
    figure.suptitle(
        f"{schedule.algorithm} on {schedule.topology.name}: {schedule.steps} steps, "
        f"{schedule.slots_total:.4g} shard-slots"
    )
    return figure


def _draw_tree(axes: Any, schedule: Schedule, chunk: int, at: np.ndarray, color: Any) -> None:
    """One chunk's gather tree; each arrow goes from vertex to vertex."""
    topology, n = schedule.topology, schedule.topology.n_nodes
    for a, b in topology.links.tolist():
        if a < b:
            axes.plot(*at[[a, b]].T, color="0.88", linewidth=0.8, zorder=0)
    gathers = schedule.transfers[schedule.transfers["op"] == GATHER]
    mine = gathers[(gathers["first"] <= chunk) & (chunk < gathers["first"] + gathers["count"])]
    used = sorted({int(link) for route in mine["route"] for link in schedule.routes[route]})
    arrow = {"arrowstyle": "-|>", "color": color, "shrinkA": 3, "shrinkB": 3, "linewidth": 1.2}
    for a, b in topology.links[used].tolist():
        axes.annotate("", at[b], at[a], arrowprops=arrow, zorder=2)
    axes.scatter(*at[:n].T, s=14, color="black", zorder=3)
    axes.scatter(*at[n:].T, s=26, color="0.5", marker="s", zorder=3)
    root = int(schedule.roots[chunk])
    axes.scatter(*at[[root]].T, s=80, color=color, marker="s", zorder=4)
    if n <= _MOST_NAMES:
        for v in range(n):
            axes.annotate(str(v), at[v], xytext=(4, 4), textcoords="offset points", fontsize=6)
    width, height = np.ptp(at, axis=0)
    axes.set_aspect("equal" if 0.5 < width / max(height, 1e-9) < 2 else "auto")
    axes.set_title(f"gather tree of chunk {chunk}, root {root}", fontsize=9)


def durations(schedule: Schedule) -> np.ndarray:
    """Shard-slots of every step of the whole table, float64 (steps,)."""
    unit = schedule.topology.n_owners / schedule.chunks_total
    if schedule.period is not None:  # a chunk a step, or the checker objects
        return np.full(schedule.steps, unit)
    return schedule.step_chunks * unit


def share_in_use(schedule: Schedule) -> float:
    """Share of all links' time that carries messages, of the whole table, fill and drain too."""
    transfers, topology = schedule.transfers, schedule.topology
    index, link = schedule.routes.expand(transfers["route"])
    chunks = (transfers["count"][index] / topology.bandwidth[link]).sum() * schedule.repeats
    return float(
        chunks * topology.n_owners / schedule.chunks_total
        / (durations(schedule).sum() * topology.n_links)
    )  # fmt: skip


def chart(schedule: Schedule) -> tuple[np.ndarray, np.ndarray]:
    """What each link does when: (float32 (n_links, columns), ends of the columns in shard-slots).

    0 reduce, 1 gather, NaN nothing. A column is a step; of more than 4,000 steps, equal shares of
    them are left out, and a column lasts until the next one.
    """
    transfers, n_links = schedule.transfers, schedule.topology.n_links
    ends = np.cumsum(durations(schedule))
    shown = np.unique(np.linspace(0, len(ends) - 1, min(len(ends), _COLUMNS)).astype(int))
    column = np.full(len(ends), -1)
    column[shown] = np.arange(len(shown))
    index, link = schedule.routes.expand(transfers["route"])
    op, step = transfers["op"][index], transfers["step"][index].astype(np.int64)
    cells = np.full((n_links, len(shown)), np.nan, np.float32)
    for again in range(schedule.repeats):
        at = column[step + again * (schedule.period or 0)]
        cells[link[at >= 0], at[at >= 0]] = op[at >= 0]
    return cells, np.append(ends[shown[1:] - 1], ends[-1])


def _draw_chart(axes: Any, schedule: Schedule) -> None:
    from matplotlib.patches import Patch

    topology = schedule.topology
    cells, ends = chart(schedule)
    edges = np.concatenate([[0], ends])
    axes.pcolormesh(
        edges, np.arange(topology.n_links + 1) - 0.5, np.ma.masked_invalid(cells),
        cmap="coolwarm", vmin=-0.3, vmax=1.3, rasterized=True,
    )  # fmt: skip
    axes.invert_yaxis()
    periodic = "" if schedule.period is None else f"; {schedule.repeats} repeats, each "
    periodic += "" if schedule.period is None else f"{schedule.period} steps behind the one before"
    axes.set_xlabel(f"time, shard-slots (a shard over the slowest link){periodic}")
    axes.set_ylabel("link")
    if topology.n_links <= _MOST_LINKS:
        every = max(1, topology.n_links // 32)
        names = [f"{a}->{b}" for a, b in topology.links[::every].tolist()]
        axes.set_yticks(range(0, topology.n_links, every), names, fontsize=6)
    colors = [axes.collections[0].cmap(axes.collections[0].norm(op)) for op in (0, 1)]
    names = zip(colors, ("reduce", "gather"), strict=True)
    axes.legend(
        handles=[Patch(color=color, label=name) for color, name in names], loc="lower right",
        bbox_to_anchor=(1, 1), ncols=2, frameon=False,
    )  # fmt: skip
    axes.set_title(f"{share_in_use(schedule):.1%} of the links' time in use", loc="left")
