"""Pictures of a schedule: trees on the topology, and who uses which link when."""

import math

import numpy as np

from .schedule import GATHER

_MOST_LINKS = 400  # rows of the chart; more links than that are drawn without labels


def draw(schedule, path):
    """Write a picture to `path`; its suffix names the format (.png, .svg, .pdf).

    Left: the graph, with the gather trees of up to four chunks in color. Right: links by steps,
    a square per message, blue for reduce and red for gather; of a periodic table so many repeats
    that one period has all of its stages.
    """
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    figure = Figure(figsize=(15, 7), layout="constrained")
    FigureCanvasAgg(figure)
    left, right = figure.subplots(1, 2, width_ratios=(2, 3))
    _draw_trees(left, schedule)
    _draw_chart(right, schedule)
    figure.suptitle(
        f"{schedule.algorithm} on {schedule.topology.name}: {schedule.steps} steps, "
        f"{schedule.slots_total:.4g} shard-slots"
    )
    figure.savefig(path, dpi=110)


def _draw_trees(axes, schedule):
    topology = schedule.topology
    at = positions(topology)
    for a, b in topology.links.tolist():
        if a < b:
            axes.plot(*at[[a, b]].T, color="0.85", linewidth=1, zorder=0)
    gathers = schedule.transfers[schedule.transfers["op"] == GATHER]
    shown = np.linspace(0, schedule.n_chunks - 1, min(4, schedule.n_chunks)).astype(int)
    for i, chunk in enumerate(shown):
        mine = gathers[(gathers["first"] <= chunk) & (chunk < gathers["first"] + gathers["count"])]
        shift = 0.06 * (i - (len(shown) - 1) / 2)
        for route in mine["route"]:
            for link in schedule.routes[route]:
                a, b = at[topology.links[link]] + shift
                axes.annotate("", b, a, arrowprops={"arrowstyle": "->", "color": f"C{i}"})
        root = schedule.roots[chunk]
        axes.plot(*(at[root] + shift), "s", color=f"C{i}", label=f"chunk {chunk}, root {root}")
    axes.scatter(*at[: topology.n_nodes].T, s=30, color="black", zorder=3)
    axes.scatter(*at[topology.n_nodes :].T, s=60, color="0.5", marker="s", zorder=3)
    if topology.n_nodes <= 128:
        for v in range(topology.n_nodes):
            axes.annotate(str(v), at[v], xytext=(3, 3), textcoords="offset points", fontsize=7)
    axes.legend(loc="upper center", bbox_to_anchor=(0.5, 0), ncols=2, frameon=False)
    axes.set_axis_off()
    axes.set_title("gather trees")


def positions(topology):
    """Where to draw each vertex: grids as grids, nodes of switch networks in a row; (n, 2)."""
    n = topology.n_nodes
    if len(topology.shape) == 2:
        rows, columns = np.divmod(np.arange(n), topology.shape[1])
        return np.stack([columns, -rows], axis=1).astype(float)
    if topology.direct:
        angle = 2 * math.pi * np.arange(n) / n
        return np.stack([np.sin(angle), np.cos(angle)], axis=1) * max(1, n / 8)
    at = np.zeros((topology.n_vertices, 2))
    at[:n, 0] = np.arange(n)
    if topology.name.startswith("bigraph:") and "-" not in topology.name:
        half, s = topology.n_switches // 2, np.arange(topology.n_switches)
        upper = np.array([topology.switch_of(v) - n < half for v in range(n)])
        at[:n] = np.stack([np.arange(n) % (n // 2), np.where(upper, 3, 0) * n / 12], axis=1)
        at[n:, 0] = (s % half + 0.5) * n / 2 / half - 0.5
        at[n:, 1] = np.where(s < half, 2.4, 0.6) * n / 12
        return at
    level = {v: 0 for v in range(n)}
    ring = list(range(n))
    while ring:
        ring = sorted({b for v in ring for _, b in topology.out[v] if b not in level})
        for v in ring:
            level[v] = max(level.values()) + (v == ring[0])
    for rank in range(1, max(level.values()) + 1):
        row = [v for v in range(n, topology.n_vertices) if level[v] == rank]
        at[row, 0] = (np.arange(len(row)) + 0.5) * n / len(row) - 0.5
        at[row, 1] = rank * n / 6
    return at


def _draw_chart(axes, schedule):
    transfers, topology = schedule.transfers, schedule.topology
    index, link = schedule.routes.expand(transfers["route"])
    steps = int(transfers["step"].max()) + 1
    period = schedule.period or 0
    repeats = min(schedule.repeats, steps // period + 2) if period else 1
    chart = np.full((topology.n_links, steps + (repeats - 1) * period), np.nan)
    for i in range(repeats):
        chart[link, transfers["step"][index] + i * period] = transfers["op"][index]
    axes.imshow(chart, aspect="auto", interpolation="nearest", cmap="coolwarm", vmin=-0.3, vmax=1.3)
    axes.set_xlabel("step" if schedule.period is None else f"step (period {schedule.period})")
    axes.set_ylabel("link")
    if topology.n_links <= _MOST_LINKS:
        every = max(1, topology.n_links // 32)
        ticks = range(0, topology.n_links, every)
        names = [f"{a}->{b}" for a, b in topology.links[::every].tolist()]
        axes.set_yticks(ticks, names, fontsize=6)
    busy = np.isfinite(chart).mean()
    axes.set_title(f"who sends when: reduce blue, gather red; {busy:.0%} of link-steps in use")
