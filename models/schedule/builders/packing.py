"""Packs spanning trees into a graph: as many as edges allow, exactly, by matroid union.

With both phases overlapped, a chunk that is reduced and gathered along one tree uses every edge of
the tree once in each direction. So schedules of C chunks in P steps are packings of C spanning
trees in which every edge is in at most P trees, and the optimum of the linear program
(`bounds.overlapped_optimum`) is reached by whole trees (Nash-Williams and Tutte, 1961).
"""

from collections import deque
from collections.abc import Sequence


class Packing:
    """C edge-disjoint forests in a multigraph, grown to spanning trees.

    n : vertices; edges : list of (a, b); copies : times each edge may be used; n_trees : C.
    """

    def __init__(
        self, n: int, edges: Sequence[tuple[int, ...]], copies: Sequence[int], n_trees: int
    ) -> None:
        self.n, self.edges = n, edges
        self.spare = list(copies)
        self.forests: list[list[dict]] = [
            [{} for _ in range(n)] for _ in range(n_trees)
        ]  # vertex: {edge: other}
        self.sizes = [0] * n_trees

    def put(self, tree: int, edge: int) -> None:
        """Add one copy of an edge to a forest."""
        a, b = self.edges[edge]
        self.forests[tree][a][edge] = b
        self.forests[tree][b][edge] = a
        self.spare[edge] -= 1
        self.sizes[tree] += 1

    def drop(self, tree: int, edge: int) -> None:
        """Take it out again."""
        a, b = self.edges[edge]
        del self.forests[tree][a][edge], self.forests[tree][b][edge]
        self.spare[edge] += 1
        self.sizes[tree] -= 1

    def grow(self, roots: Sequence[int]) -> None:
        """Fill the forests from their roots, one edge per tree and turn, nearest vertices first."""
        reached: list[dict] = [{r: None} for r in roots]
        waiting = [deque([r]) for r in roots]
        around = [[] for _ in range(self.n)]
        for e, (a, b) in enumerate(self.edges):
            around[a].append((e, b))
            around[b].append((e, a))
        live = list(range(len(roots)))
        while live:
            still = []
            for t in live:
                while waiting[t]:
                    v = waiting[t][0]
                    free = [(self.spare[e], -e, to) for e, to in around[v]
                            if self.spare[e] > 0 and to not in reached[t]]  # fmt: skip
                    if free:
                        _, e, to = max(free)  # the edge with most copies left
                        self.put(t, -e)
                        reached[t][to] = v
                        waiting[t].append(to)
                        still.append(t)
                        break
                    waiting[t].popleft()
            live = still

    def complete(self) -> bool:
        """Augment until all forests span, or no copy can be added; True if they do."""
        for edge in range(len(self.edges)):
            while self.spare[edge] > 0 and min(self.sizes) < self.n - 1:
                if not self._augment(edge):
                    break
        return min(self.sizes) == self.n - 1

    def _augment(self, edge):
        """Add a copy of `edge`, moving others from forest to forest along a shortest chain."""
        came = {(None, edge): None}  # (forest, edge): the element that takes its place
        queue = deque(came)
        while queue:
            element = queue.popleft()
            home, e = element
            a, b = self.edges[e]
            for t in range(len(self.forests)):
                if t == home or e in self.forests[t][a]:
                    if t != home and (t, e) not in came:
                        came[t, e] = element
                        queue.append((t, e))
                    continue
                way = self._way(t, a, b) if self.sizes[t] else None
                if way is None:
                    self._move(element, t, came)
                    return True
                for z in way:
                    if (t, z) not in came:
                        came[t, z] = element
                        queue.append((t, z))
        return False

    def _move(self, element, to, came):
        while element is not None:
            home, e = element
            if home is not None:
                self.drop(home, e)
            self.put(to, e)
            to, element = home, came[element]

    def _way(self, tree, a, b):
        """Edges of the forest between a and b; None where it does not join them."""
        forest = self.forests[tree]
        came = {a: None}
        stack = [a]
        while stack:
            v = stack.pop()
            if v == b:
                way = []
                while came[v] is not None:
                    e, v = came[v]
                    way.append(e)
                return way
            for e, to in forest[v].items():
                if to not in came:
                    came[to] = (e, v)
                    stack.append(to)
        return None

    def tree(self, index: int) -> tuple[int, list[int]]:
        """(root, parent list) of a spanning tree; the root is a center, so the depth is least."""
        far = self._reach(index, 0)[0]
        end, _, parent = self._reach(index, far)
        path = [end]
        while parent[path[-1]] >= 0:
            path.append(parent[path[-1]])
        center = path[len(path) // 2]
        return center, self._reach(index, center)[2]

    def _reach(self, index, root):
        """(a farthest vertex, its distance, parents) from `root`, breadth first."""
        forest = self.forests[index]
        parent = [-1] * self.n
        depth = {root: 0}
        queue = deque([root])
        while queue:
            v = queue.popleft()
            for to in forest[v].values():
                if to not in depth:
                    depth[to] = depth[v] + 1
                    parent[to] = v
                    queue.append(to)
        return v, depth[v], parent
