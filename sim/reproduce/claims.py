"""One paper's result: claims with both numbers, the tables behind them, and pictures as data."""

import math
from dataclasses import asdict, dataclass, field

BETTER = ("higher", "lower")


@dataclass(frozen=True)
class Claim:
    """One published figure beside ours.

    published, ours : in `unit`. low, high : range of ours over what the paper does not say.
    holds : ours is at least as good as the published one. differs : what is not the same.
    """

    paper: str
    claim: str
    published: float
    ours: float
    low: float
    high: float
    unit: str
    holds: bool
    differs: str


def compare(paper, claim, published, ours, spread, unit, differs, *, better="higher"):
    """The Claim of a number; spread : others of ours, for other settings.

    better : ``higher`` or ``lower``; which side of the published figure holds. ValueError for a
    number that is not finite.
    """
    if better not in BETTER:
        raise ValueError(f"better must be higher or lower, not {better!r}")
    numbers = [float(v) for v in (ours, *spread)]
    if not all(math.isfinite(v) for v in numbers):
        raise ValueError(f"{paper}, {claim}: not a number: {numbers}")
    holds = numbers[0] >= published if better == "higher" else numbers[0] <= published
    return Claim(
        paper, claim, float(published), numbers[0], min(numbers), max(numbers), unit, holds, differs
    )  # fmt: skip


@dataclass(frozen=True)
class Table:
    """Rows of numbers and words under `columns`."""

    title: str
    columns: tuple
    rows: list


@dataclass(frozen=True)
class Picture:
    """A diagram as data. kind : ``lines`` or ``bars``.

    series : {label: [(x, y)] or [(x, y, low, high)]}; x of bars are names. log : axes, such as
    ``x`` or ``xy``.
    """

    name: str
    kind: str
    title: str
    x: str
    y: str
    series: dict
    log: str = ""


@dataclass
class Result:
    """What one paper's run found."""

    paper: str
    claims: list = field(default_factory=list)
    tables: list = field(default_factory=list)
    pictures: list = field(default_factory=list)

    def claim(self, *arguments, **options):
        self.claims.append(compare(self.paper, *arguments, **options))

    def as_json(self):
        """Claims, tables and pictures as plain lists and dictionaries."""
        return {
            "paper": self.paper,
            "claims": [asdict(c) for c in self.claims],
            "tables": [asdict(t) for t in self.tables],
            "pictures": [asdict(p) for p in self.pictures],
        }


def made_of(points, results):
    """A function that gives for each of `points` its result."""
    known = {tuple(point): result for point, result in zip(points, results, strict=True)}
    return lambda *key: known[key]


def geometric_mean(values):
    """Of positive numbers."""
    return math.exp(sum(map(math.log, values)) / len(values))
