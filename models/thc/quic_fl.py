"""QUIC-FL (Ben Basat et al., 2022): unbiased codes of rotated values, with shared random numbers.

A worker and its receiver hold the same random number h of `2**shared`, for which `2**bits` levels
are known. A value is sent as one of h's levels, so that the estimate is right on average over h
and the worker's own dice. Values further out than the best share `exact` are sent as they are.
"""

import math
from functools import cache
from statistics import NormalDist

import numpy as np

from .baselines import Compress, length, rotate

N_QUANTILES = 4096  # points at which the normal distribution is weighed


def _choices(levels: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """What a worker may send: rows of levels, one for each h, from all lowest to all highest.

    Returns the slopes between rows, the index of the level that each row has for each h, and the
    levels. A row is the set of levels nearest to a target; it changes where the target, on its
    way up, passes the middle of two levels of some h. Rows in this order have the least second
    moment for their mean, and the slope, by mean, of that moment is twice the target.
    """
    n_shared, n_levels = levels.shape
    middles = (levels[:, 1:] + levels[:, :-1]) / 2
    order = np.argsort(middles, axis=None, kind="stable")
    steps = np.eye(n_shared, dtype=int)[order // (n_levels - 1)]
    index = np.concatenate([np.zeros((1, n_shared), int), np.cumsum(steps, axis=0)])
    return middles.flat[order], index, levels[np.arange(n_shared), index]


def _between(means: np.ndarray, x: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Row below each x, and how far x is on its way to the row above, 0 to 1."""
    row = np.clip(np.searchsorted(means, x, side="right") - 1, 0, means.size - 2)
    return row, np.clip((x - means[row]) / (means[row + 1] - means[row]), 0, 1)


@cache  # a quarter of a second for each of those in use
def solve_levels(bits: int, shared: int, exact: float = 1 / 512, n_steps: int = 300) -> np.ndarray:
    """Levels (2**shared, 2**bits) of least error for N(0,1) between the tails of mass `exact`.

    Lloyd's iteration: a level becomes the mean of the targets of the values that are sent as it.
    The highest levels must have the largest value sent as their mean; what lifts them there is
    shared out so that the second moment grows least. The lowest ones mirror them.
    """
    normal = NormalDist()
    largest = normal.inv_cdf(1 - exact / 2)
    shares = exact / 2 + (1 - exact) * (np.arange(N_QUANTILES) + 0.5) / N_QUANTILES
    values = np.array([normal.inv_cdf(share) for share in shares])
    n_shared, n_levels = 2**shared, 2**bits
    even = (np.arange(n_levels) + (np.arange(n_shared)[:, None] + 0.5) / n_shared) / n_levels
    levels = np.array([[normal.inv_cdf(share) for share in row] for row in even])
    levels *= largest / levels[:, -1].mean()
    for _ in range(n_steps):
        targets, index, sent = _choices(levels)
        row, part = _between(sent.mean(axis=1), values)
        weight = np.bincount(row, 1 - part, len(sent)) + np.bincount(row + 1, part, len(sent))
        target = targets[row]
        pull = np.bincount(row, (1 - part) * target, len(sent))
        pull += np.bincount(row + 1, part * target, len(sent))
        mass = np.array([np.bincount(column, weight, n_levels) for column in index.T])
        total = np.array([np.bincount(column, pull, n_levels) for column in index.T])
        mass = np.maximum(mass + mass[::-1, ::-1], 1e-9)
        moved = (total - total[::-1, ::-1]) / mass
        lift = max(0, largest - moved[:, -1].mean()) / (1 / mass[:, -1]).mean()
        moved[:, -1] += lift / mass[:, -1]
        moved[:, 0] = -moved[::-1, -1]
        levels = np.sort((levels + moved) / 2, axis=1)
    levels.setflags(write=False)  # all callers have the same
    return levels


def quic_fl(bits: int, shared: int, exact: float = 1 / 512) -> Compress:
    """Estimates of one worker's gradient x (a power of two long), as in `baselines`."""
    _, _, sent = _choices(solve_levels(bits, shared, exact))
    means = sent.mean(axis=1)
    largest = NormalDist().inv_cdf(1 - exact / 2)

    def compress(x: np.ndarray, rng: np.random.Generator) -> np.ndarray:
        rotated, inverse = rotate(x, rng)
        unit = length(x) / math.sqrt(x.size)
        if not unit:
            return np.zeros(x.shape)
        values = rotated / unit
        row, part = _between(means, values)
        coded = sent[row + (rng.random(x.size) < part), rng.integers(2**shared, size=x.size)]
        return inverse(np.where(np.abs(values) > largest, values, coded) * unit)

    return compress
