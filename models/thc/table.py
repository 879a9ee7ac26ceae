"""Quantizer tables of THC: the levels that least disturb a clipped Gaussian.

Source: THC (NSDI 2024), the table lookup of its quantizer. The paper enumerates tables; here a
shortest path over the grid points finds the optimum, and equals every table its authors published.
"""

import functools
import math
from statistics import NormalDist

import numpy as np

TIE = 1e-15  # costs closer than this are equal, and the lowest index wins


def clip_point(p: float) -> float:
    """Two-sided quantile t_p: a standard Gaussian lies outside [-t_p, t_p] with probability p."""
    if not 0 < p < 1:
        raise ValueError(f"p must lie between 0 and 1, not {p!r}")
    return -NormalDist().inv_cdf(p / 2)


def _edge_costs(x: np.ndarray) -> np.ndarray:
    """costs[i, j]: rounding variance of N(0,1) between levels x[i] <= x[j], in units of sigma^2.

    Stochastic rounding of v in [a, c] has variance (v - a) * (c - v); this is its integral.
    """
    cdf = np.array([math.erf(v / math.sqrt(2)) / 2 for v in x])
    pdf = np.exp(-np.square(x) / 2) / math.sqrt(2 * math.pi)
    a, c = x[:, None], x[None, :]
    mass = cdf[None, :] - cdf[:, None]
    mean = pdf[:, None] - pdf[None, :]
    square = mass + a * pdf[:, None] - c * pdf[None, :]
    return -square + (a + c) * mean - a * c * mass


@functools.lru_cache(maxsize=None, typed=True)  # typed: 4.0 is refused, whatever is known of 4
def solve_table(b: int, g: int, p: float) -> tuple[int, ...]:
    """The best symmetric table of 2**b levels on a grid of g + 1 points.

    b : int, bits of an index, 1 to 8.
    g : int, granularity, 2**b - 2 to 255: the largest table value.
    p : float, share of a standard Gaussian that is clipped, between 0 and 1.

    Returns a tuple of 2**b ints from 0 to g, increasing but for a middle pair that may be equal,
    T[z] + T[2**b - 1 - z] = g. Minimizes the expected rounding variance of N(0,1) on [-t_p, t_p].
    ValueError outside the limits.
    """
    if not isinstance(b, int | np.integer) or not 1 <= b <= 8:
        raise ValueError(f"b must be 1 to 8, not {b!r}")
    if not isinstance(g, int | np.integer) or not max(1, 2**b - 2) <= g <= 255:
        raise ValueError(f"g must be {max(1, 2**b - 2)} to 255 for b = {b}, not {g!r}")
    t = clip_point(p)
    half = g // 2  # the last lower level lies at or below the middle
    costs = _edge_costs(-t + 2 * t * np.arange(g + 1) / g)
    n_edges = 2 ** (b - 1) - 1
    best = np.full(half + 1, np.inf)
    best[0] = 0.0
    came_from = np.zeros((n_edges, half + 1), int)
    forward = np.where(np.tri(half + 1, k=0, dtype=bool), np.inf, costs[: half + 1, : half + 1])
    for edge in range(n_edges):
        through = best[:, None] + forward
        least = through.min(axis=0)
        with np.errstate(invalid="ignore"):
            came_from[edge] = np.argmax(through <= least + TIE, axis=0)
        best = least
    ends = np.arange(half + 1)
    total = 2 * best + costs[ends, g - ends]
    if n_edges == 0:
        total[1:] = np.inf
    level = int(np.argmax(total <= total.min() + TIE))
    lower = [level]
    for edge in reversed(range(n_edges)):
        level = int(came_from[edge, level])
        lower.append(level)
    lower.reverse()
    return tuple(lower) + tuple(g - z for z in reversed(lower))
