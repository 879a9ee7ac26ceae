"""Gives each transfer of given trees its step: the first one in which its links are free."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from ..routing import Router
from ..topology import Topology
from .schedule import GATHER, REDUCE, TRANSFER, RouteTable, Schedule, ordered


class Calendar:
    """Which steps are taken on each link (and, where ports bind, at each network interface).

    period : int or None
        With a period, step s and s + period are one: modulo scheduling.
    """

    def __init__(self, topology: Topology, period: int | None = None) -> None:
        self._topology = topology
        self._period = period
        capacity = np.floor(topology.bandwidth * (period or 1) + 1e-9) / (period or 1)
        self._room = [max(1, int(c)) for c in capacity]
        self._used = [{} for _ in range(topology.n_links + 2 * topology.n_nodes)]
        self._full = [0] * len(self._used)  # a bit for each step that has no room
        self._ports = topology.ports if topology.port_limited else None

    def take(self, path: tuple[int, ...], source: int, destination: int, ready: int) -> int:
        """First step >= ready with room on every link of the path; the step is taken."""
        places = [(link, self._room[link]) for link in path]
        if self._ports is not None:
            at = self._topology.n_links
            places.append((at + source, self._ports))
            places.append((at + self._topology.n_nodes + destination, self._ports))
        taken = 0
        for place, _ in places:
            taken |= self._full[place]
        if self._period is None:
            taken >>= ready
        else:
            turn = ready % self._period
            taken = (taken >> turn | taken << self._period - turn) & (1 << self._period) - 1
        late = (~taken & taken + 1).bit_length() - 1  # the lowest bit that is 0
        if late == self._period:
            raise ValueError(f"no step of the period of {self._period} is free on link {path[0]}")
        key = ready + late if self._period is None else (ready + late) % self._period
        for place, room in places:
            used = self._used[place]
            used[key] = used.get(key, 0) + 1
            if used[key] >= room:
                self._full[place] |= 1 << key
        return ready + late


def place_trees(
    algorithm: str,
    topology: Topology,
    trees: Sequence[tuple[int, list[int]]],
    *,
    period: int | None = None,
    repeats: int = 1,
    lag: int = 0,
    ways: Sequence[dict] | None = None,
) -> Schedule:
    """A Schedule that reduces and gathers chunk c along tree c, steps chosen first come first.

    trees : list of (root, parent), parent a sequence of N nodes, -1 at the root and None outside of
    the tree. Tree edges that are no links take the router's path, or that of `ways`, per tree
    {(source, destination): links}. Chunk c + 1 is placed after all of chunk c.
    lag : steps left free between an arrival and its use, so that cards that issue in table order
    do not wait for the links' latency.
    """
    calendar = Calendar(topology, period)
    router = Router(topology)
    table = RouteTable(topology)
    rows = []
    for chunk, (root, parent) in enumerate(trees):
        order = _from_leaves(parent)
        ready = [0] * topology.n_nodes

        def move(op: int, src: int, dst: int, ready: Any = ready, chunk: int = chunk) -> int:
            path = ways[chunk][src, dst] if ways else router.path(src, dst)
            step = calendar.take(path, src, dst, ready[src])
            rows.append((op, chunk, src, dst, chunk, 1, step, table.number(path)))
            return step + 1 + lag

        for v in order[:-1]:
            up = parent[v]
            ready[up] = max(ready[up], move(REDUCE, v, up))
        total = ready[root]
        ready[:] = [0] * topology.n_nodes
        ready[root] = total
        for v in reversed(order[:-1]):
            ready[v] = move(GATHER, parent[v], v)
    transfers = np.array(rows, TRANSFER)
    flows = np.arange(len(trees), dtype=np.int32)
    roots = np.array([root for root, _ in trees], np.int32)
    return Schedule(
        algorithm, topology, len(trees), roots, flows, ordered(transfers), table.routes(),
        period, repeats,
    )  # fmt: skip


def _from_leaves(parent: Any) -> list[int]:
    """Nodes, deepest first, the root last."""
    depth = {}

    def find(v: int) -> None:
        chain = []
        while v not in depth and parent[v] >= 0:
            chain.append(v)
            v = parent[v]
        base = depth.setdefault(v, 0)
        for i, u in enumerate(reversed(chain), 1):
            depth[u] = base + i

    members = [v for v in range(len(parent)) if parent[v] is not None]
    for v in members:
        find(v)
    return sorted(members, key=lambda v: (-depth[v], v))
