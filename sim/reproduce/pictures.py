"""Pictures of a run, by matplotlib, one file each."""

from pathlib import Path

import matplotlib
from matplotlib import pyplot

from gradnic.output import write_picture

SIZE = (7, 4.2)  # inches
N_COLORS = 10  # of matplotlib's lines, before the first comes again


def draw(picture, path):
    """Write one picture (a dict as `claims.Picture` has it) to `path`, .svg or .png."""
    with matplotlib.rc_context({"svg.fonttype": "none", "font.size": 9}):  # text as text
        figure, axes = pyplot.subplots(figsize=SIZE, layout="constrained")
        kinds = {"lines": _lines, "bars": _bars}
        kinds[picture["kind"]](axes, picture["series"])
        axes.set_title(picture["title"])
        axes.set_xlabel(picture["x"])
        axes.set_ylabel(picture["y"])
        if "x" in picture["log"]:
            axes.set_xscale("log", base=2)
        if "y" in picture["log"]:
            axes.set_yscale("log")
        many = picture["kind"] == "bars" or len(picture["series"]) > 4
        outside = {"loc": "center left", "bbox_to_anchor": (1, 0.5)} if many else {}
        axes.legend(fontsize=7, **outside)
        write_picture(path, figure)
        pyplot.close(figure)


def _lines(axes, series):
    for k, (label, points) in enumerate(series.items()):
        x, y = [p[0] for p in points], [p[1] for p in points]
        style = "-" if k < N_COLORS else ":"
        (line,) = axes.plot(x, y, style, marker="o", markersize=3, label=label)
        if points and len(points[0]) == 4:
            axes.fill_between(x, [p[2] for p in points], [p[3] for p in points], alpha=0.12,
                              color=line.get_color())  # fmt: skip


def _bars(axes, series):
    width = 0.8 / len(series)
    for k, (label, points) in enumerate(series.items()):
        at = [i + (k - (len(series) - 1) / 2) * width for i in range(len(points))]
        axes.bar(at, [p[1] for p in points], width, label=label)
    names = [p[0] for p in next(iter(series.values()))]
    axes.set_xticks(range(len(names)), names, rotation=30 if len(names) > 4 else 0, ha="right"
                    if len(names) > 4 else "center")  # fmt: skip


def draw_all(found, folder):
    """Every picture of a run's dict as ``NAME.svg`` in `folder`; the paths."""
    matplotlib.use("Agg")
    paths = []
    for result in found["papers"]:
        for picture in result["pictures"]:
            path = Path(folder) / f"{picture['name']}.svg"
            draw(picture, path)
            paths.append(path)
    return paths
