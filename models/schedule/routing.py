"""Fixed routes between nodes that are not neighbors: what routers and switches would do."""

import itertools
import math

import numpy as np

from .topology import Topology


class Router:
    """Shortest routes of a topology, one per pair, the same every time.

    Grids: dimension order, last axis first, the shorter way round (ties: towards +). Fat-trees: up
    by the digits of the destination. BiGraph, same group: through the opposite switch with the
    destination's index. All others: shortest path; among equals the next vertex whose position is
    the destination's number modulo their count. Routes through nodes use their routers.
    """

    def __init__(self, topology: Topology) -> None:
        self.topology = topology
        self._next = {}  # destination -> next vertex of every vertex, for graphs without a rule

    def path(self, source: int, destination: int) -> tuple[int, ...]:
        """Tuple of links from `source` to `destination`; empty where they are the same."""
        t = self.topology
        if (source, destination) in t.link_of:
            return (t.link_of[source, destination],)
        family = t.name.split(":")[0]
        if t.shape:
            vertices = self._grid(source, destination)
        elif t.name.count(":") == 1 and "-" not in t.name and family in ("fattree", "bigraph"):
            vertices = (self._fattree if family == "fattree" else self._bigraph)(
                source, destination
            )
        else:
            vertices = self._shortest(source, destination)
        return tuple(t.link_of[pair] for pair in itertools.pairwise(vertices))

    def _grid(self, source: int, destination: int) -> list[int]:
        shape, wrap = self.topology.shape, self.topology.wrap
        at, to = list(self.topology.coordinates(source)), self.topology.coordinates(destination)
        vertices = [source]
        for axis in reversed(range(len(shape))):
            ahead = (to[axis] - at[axis]) % shape[axis]
            move = 1 if to[axis] > at[axis] else -1
            if wrap and shape[axis] > 2:
                move = 1 if 2 * ahead <= shape[axis] else -1
            while at[axis] != to[axis]:
                at[axis] = (at[axis] + move) % shape[axis]
                vertices.append(int(np.ravel_multi_index(at, shape)))
        return vertices

    def _fattree(self, source: int, destination: int) -> list[int]:
        t = self.topology
        arity = len(t.hosts[0])
        row = t.n_nodes // arity
        at, to = source // arity, destination // arity
        vertices, rank = [source, t.n_nodes + at], 0
        while at // arity**rank != to // arity**rank:  # they differ in digit `rank` or above
            digit = destination // arity**rank % arity
            at += (digit - at // arity**rank % arity) * arity**rank
            rank += 1
            vertices.append(t.n_nodes + rank * row + at)
        while rank:
            rank -= 1
            at += (to // arity**rank % arity - at // arity**rank % arity) * arity**rank
            vertices.append(t.n_nodes + rank * row + at)
        return [*vertices, destination]

    def _bigraph(self, source: int, destination: int) -> list[int]:
        t = self.topology
        half = t.n_switches // 2
        a, b = t.switch_of(source), t.switch_of(destination)
        if a == b:
            return [source, a, destination]
        upper = a - t.n_nodes < half
        if upper != (b - t.n_nodes < half):
            return [source, a, b, destination]
        return [source, a, b + half if upper else b - half, b, destination]

    def _shortest(self, source: int, destination: int) -> list[int]:
        if destination not in self._next:
            self._next[destination] = self._towards(destination)
        vertices = [source]
        while vertices[-1] != destination:
            vertices.append(self._next[destination][vertices[-1]])
        return vertices

    def _towards(self, destination: int) -> dict[int, int]:
        t = self.topology
        into = [[] for _ in range(t.n_vertices)]
        for a, b in t.links.tolist():
            into[b].append(a)
        width = {destination: math.inf}  # of what was reached, the slowest link on its way
        ring, result = [destination], {}
        while ring:
            reached = dict.fromkeys(a for v in ring for a in into[v] if a not in width)
            inner, ring = set(ring), list(reached)
            found = {}
            for v in ring:
                ways = [(min(t.bandwidth[link], width[b]), b) for link, b in t.out[v] if b in inner]
                found[v] = max(ways)[0]
                near = [b for wide, b in ways if wide == found[v]]
                result[v] = near[destination % len(near)]
            width |= found
        return result
