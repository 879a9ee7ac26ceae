"""Where a picture puts the vertices of a topology."""

import math
from typing import Any

import numpy as np

from ..topology import Topology


def positions(topology: Topology) -> np.ndarray:
    """Places of all vertices, float64 (n_vertices, 2), none on a link of others if it can be.

    Grids as grids, other direct networks on a circle. Switches in rows above their nodes, rank by
    rank, where links join ranks only; BiGraphs between their two halves; else on a circle, group by
    group, their nodes outside of it and switches without nodes inside.
    """
    n = topology.n_nodes
    if len(topology.shape) == 2:
        return _bent(topology)
    if topology.direct:
        return _around(np.arange(n) / n) * max(1, n / 8)
    if topology.name.startswith("bigraph:") and "-" not in topology.name:
        return _two_halves(topology)
    rank = _ranks(topology)
    a, b = topology.links.T
    if (rank[a] == rank[b]).any():
        return _circle(topology)
    at = np.zeros((topology.n_vertices, 2))
    for level in range(int(rank.max()) + 1):
        row = np.flatnonzero(rank == level)
        at[row, 0] = (np.arange(len(row)) + 0.5) * n / len(row) - 0.5
        at[row, 1] = level * n / 6
    return at


def _around(turn: Any) -> np.ndarray:
    """Points on the unit circle, clockwise from the top; turn : shares of a whole one."""
    angle = 2 * math.pi * np.asarray(turn)
    return np.stack([np.sin(angle), np.cos(angle)], axis=-1)


def _bent(topology: Topology) -> np.ndarray:
    """A grid; of a torus each row and column a little bent, so that the way round is seen."""
    rows, columns = np.divmod(np.arange(topology.n_nodes), topology.shape[1])
    at = np.stack([columns, -rows], axis=1).astype(float)
    if topology.wrap:
        height, width = topology.shape
        at[:, 1] += 0.3 * np.sin(math.pi * columns / max(1, width - 1))
        at[:, 0] += 0.3 * np.sin(math.pi * rows / max(1, height - 1))
    return at


def _ranks(topology: Topology) -> np.ndarray:
    """Links from the nearest node to each vertex, int (n_vertices,)."""
    rank = np.full(topology.n_vertices, -1)
    rank[: topology.n_nodes] = level = 0
    a, b = topology.links.T
    while (rank < 0).any():
        reached = b[(rank[a] == level) & (rank[b] < 0)]
        if not len(reached):
            break  # switches that no node leads to
        level += 1
        rank[reached] = level
    rank[rank < 0] = level + 1
    return rank


def _two_halves(topology: Topology) -> np.ndarray:
    n = topology.n_nodes
    at = np.zeros((topology.n_vertices, 2))
    half, s = topology.n_switches // 2, np.arange(topology.n_switches)
    upper = np.array([topology.switch_of(v) - n < half for v in range(n)])
    at[:n] = np.stack([np.arange(n) % (n // 2), np.where(upper, 3, 0) * n / 12], axis=1)
    at[n:, 0] = (s % half + 0.5) * n / 2 / half - 0.5
    at[n:, 1] = np.where(s < half, 2.4, 0.6) * n / 12
    return at


def _circle(topology: Topology) -> np.ndarray:
    """Switches with nodes on a circle; the groups of a dragonfly apart, each a bow of its own."""
    n = topology.n_nodes
    outer = [s for s in range(topology.n_switches) if topology.hosts[s]]
    inner = [s for s in range(topology.n_switches) if not topology.hosts[s]]
    place, total = np.arange(len(outer)).astype(float), len(outer)
    bow = np.zeros(len(outer))
    if topology.name.startswith("dragonfly:") and "-" not in topology.name:
        size = int(topology.name.split(":")[1].split("x")[0])
        within = np.arange(len(outer)) % size
        bow = 0.3 * np.sin(math.pi * (within + 0.5) / size)
        place, total = place + np.arange(len(outer)) // size, len(outer) + len(outer) // size
    at = np.zeros((topology.n_vertices, 2))
    at[[n + s for s in outer]] = (1 - bow)[:, None] * _around(place / total)
    at[[n + s for s in inner]] = 0.5 * _around((np.arange(len(inner)) + 0.5) / max(1, len(inner)))
    for turn, s in zip(place, outer, strict=True):
        hosts = [v for v in topology.hosts[s] if topology.switch_of(v) == n + s]
        spread = (np.arange(len(hosts)) + 0.5) / max(1, len(hosts)) - 0.5
        at[hosts] = 1.35 * _around((turn + 0.8 * spread) / total)
    return at * max(1, n / 8)
