"""Rotated values to indices of THC's table: stochastic rounding between the levels around them."""

import numpy as np

from .scale import F
from .table import clip_point


class Quantizer:
    """Rounds fixed-point values at random to the levels of a table, which keeps their mean.

    Parameters
    ----------
    table : tuple of int
        Levels, from 0 to g, as of `solve_table`.
    p : float
        Share of a Gaussian that is clipped. ValueError where that is all, from 0.9984 on.

    Members
    -------
    t_fixed : int
        Clip point t_p in 1/256 sigma.
    unit : int
        Table units in 2 * t_fixed, times 2**24.
    cells : int32, shape (g + 1, 3)
        For each table unit: index of the level at or below it, that level in 1/256 table units,
        table units from there to the next level, 0 at the last.

    Source: THC (NSDI 2024), the table lookup of its quantizer; integers are ours.
    """

    def __init__(self, table: tuple[int, ...], p: float) -> None:
        levels = np.array(table)
        g = int(levels[-1])
        self.t_fixed = round(clip_point(p) * 2**F)
        if not self.t_fixed:
            raise ValueError(f"p must be below 0.9984, so that less is clipped than all, not {p!r}")
        self.unit = round(g * 2**24 / (2 * self.t_fixed))
        lower = np.searchsorted(levels, np.arange(g + 1), side="right") - 1
        gap = np.append(np.diff(levels), 0)[lower]
        self.cells = np.stack([lower, 256 * levels[lower], gap], axis=1).astype(np.int32)

    def __call__(self, rotated: np.ndarray, random: np.ndarray) -> np.ndarray:
        """Indices of `rotated`, int32: the level above where a random byte says so.

        rotated : integers of F fraction bits at sigma = 1. random : uint8, any shape that goes
        with it. Over all 256 bytes the mean is that of the value in 1/256 table unit, and no more
        than 1/256 table unit off.
        """
        clipped = np.clip(rotated, -self.t_fixed, self.t_fixed).astype(np.int64)
        u = ((clipped + self.t_fixed) * self.unit + (1 << 15) >> 16).astype(np.int32)
        lower, level, gap = (column[u >> 8] for column in self.cells.T)
        return lower + ((gap * (2 * random.astype(np.int32) + 1) <= 2 * (u - level)) & (gap > 0))


def normalized(transformed: np.ndarray, h: int) -> np.ndarray:
    """Elements of a transformed block of 2**(2 * h), over 2**h: sigma 1 again. Half goes up."""
    return transformed + (1 << (h - 1)) >> h
