"""Spanning trees out of every node, packed into a network (Edmonds; Berczi and Frank with k roots).

All trees grow together, one node each in turn, by the shortest way that is left from the member
nearest to the root, so they stay shallow. A way may be taken while every known set of vertices
keeps as much capacity out of it as there are trees still inside. Now and then max-flows look for
sets that were forgotten; if there are any, growth goes back to the last state that was right, and
in smaller strides from there.
"""

import copy
from collections import deque

import numpy as np
from scipy.sparse import csr_array

from .cuts import behind

_CHECKS = 16  # while the trees grow
_TRIES = 6  # between two checks


def pack(capacity: np.ndarray, n_nodes: int, trees: int, sets: np.ndarray) -> list | None:
    """Ways of all trees, a list of {node: (parent, ..., node)}: tree r * trees + j has root r.

    capacity : int (n_vertices, n_vertices), nodes first; switches pass on and do not copy.
    trees : per root. sets : bool (n_sets, n_vertices), sets to watch from the start. None where
    growth gets stuck and no cut says why, or too often.
    """
    growth = _Growth(capacity, n_nodes, trees, sets)
    longest = size = max(1, n_nodes * trees * n_nodes // _CHECKS)
    tries = 0
    while True:
        good = growth.copy()
        stuck = growth.run(size)
        if growth.done():
            return growth.ways
        missed = growth.broken()
        if not len(missed):
            if stuck:
                return None
            size, tries = min(2 * size, longest), 0
            continue
        growth, tries = good, tries + 1
        if not growth.watch(missed):
            return None
        if tries > _TRIES:
            if size == 1:
                return None
            size, tries = -(-size // 4), 0


class _Growth:
    """All trees while they grow."""

    def __init__(self, capacity, n_nodes, trees, sets):
        self.n, self.n_vertices = n_nodes, len(capacity)
        self.heads, self.tails = np.nonzero(capacity)
        room = capacity[self.heads, self.tails].astype(np.int64)
        n_trees = n_nodes * trees
        root = np.repeat(np.arange(n_nodes), trees)
        self.ways = [{} for _ in range(n_trees)]
        self.inside = [bytearray(self.n_vertices) for _ in range(n_trees)]
        self.members = [[int(r)] for r in root]
        self.at = [0] * n_trees  # members before it have nothing left to give
        for i, r in enumerate(root):
            self.inside[i][r] = 1
        self.root, self.sets = root, np.zeros((0, self.n_vertices), bool)
        self.leaves = np.zeros((0, len(room)), bool)
        self.beyond = np.zeros((n_trees, 0), bool)
        self.slack = np.zeros(0, np.int64)
        self.room = room.tolist()
        self.hosts = [[] for _ in capacity]
        self.onward = [[] for _ in capacity]
        for e, (a, b) in enumerate(zip(self.heads.tolist(), self.tails.tolist(), strict=True)):
            (self.hosts if b < n_nodes else self.onward)[a].append((e, b))

        self.turn = 0
        self.watch(sets)

    def watch(self, sets):
        """Keep these sets, too, from now on; False where all were known or one is broken."""
        n, known = self.n, {s.tobytes() for s in self.sets}
        sets = [s for s in sets if s[:n].any() and not s[:n].all() and s.tobytes() not in known]
        if not sets:
            return False
        sets = np.unique(sets, axis=0)
        leaves = sets[:, self.heads] & ~sets[:, self.tails]  # (n_sets, n_edges)
        reached = np.frombuffer(b"".join(self.inside), np.uint8).reshape(len(self.ways), -1)
        beyond = (reached @ (~sets).T.astype(int)) > 0  # (n_trees, n_sets): it has left the set
        slack = leaves @ np.array(self.room) - (~beyond).sum(axis=0)
        self.sets = np.concatenate([self.sets, sets])
        self.leaves = np.concatenate([self.leaves, leaves])
        self.beyond = np.concatenate([self.beyond, beyond], axis=1)
        self.slack = np.concatenate([self.slack, slack])
        return bool((slack >= 0).all())

    def copy(self):
        other = copy.copy(self)
        other.room, other.at = list(self.room), list(self.at)
        other.ways = [dict(w) for w in self.ways]
        other.inside = [bytearray(i) for i in self.inside]
        other.members = [list(m) for m in self.members]
        other.beyond, other.slack = self.beyond.copy(), self.slack.copy()
        return other

    def done(self):
        return all(len(m) == self.n for m in self.members)

    def run(self, nodes):
        """Grow by so many nodes, each tree in turn; True if all trees are stuck."""
        idle = 0
        while nodes and idle < len(self.ways):
            grown = len(self.members[self.turn]) < self.n and self._grow(self.turn)
            nodes, idle = (nodes - 1, 0) if grown else (nodes, idle + 1)
            self.turn = (self.turn + 1) % len(self.ways)
        return idle == len(self.ways)

    def _grow(self, i):
        tight = self.slack == 0
        shut = self.leaves[tight & self.beyond[i]].any(axis=0).tolist()
        members = self.members[i]
        for at in range(self.at[i], len(members)):
            way = self._nearest(i, members[at], shut)
            if way:
                self._take(i, way)
                return True
            self.at[i] = at + 1  # what it cannot reach now it never will: room only shrinks
        return False

    def _nearest(self, i, source, shut):
        """Edges from `source` to the nearest node outside that all sets allow, breadth first."""
        inside, room = self.inside[i], self.room
        came, queue = {source: None}, deque([source])
        while queue:
            v = queue.popleft()
            hosts = self.hosts[v]
            turn = source % len(hosts) if hosts else 0
            for e, to in sorted(hosts[turn:] + hosts[:turn], key=lambda way: -room[way[0]]):
                if room[e] and not shut[e] and not inside[to] and to not in came:
                    way, u = [e], v
                    while u != source:
                        way.append(came[u])
                        u = int(self.heads[came[u]])
                    if self._fits(i, way, to):
                        return way[::-1]
            for e, to in sorted(self.onward[v], key=lambda way: -room[way[0]]):
                if room[e] and not shut[e] and to not in came:
                    came[to] = e
                    queue.append(to)
        return None

    def _fits(self, i, way, to):
        used = self.leaves[:, way].sum(axis=1)
        first = ~self.beyond[i] & ~self.sets[:, to]
        return bool((self.slack - used + first >= 0).all())

    def _take(self, i, way):
        to = int(self.tails[way[-1]])
        first = ~self.beyond[i] & ~self.sets[:, to]
        self.slack += first - self.leaves[:, way].sum(axis=1)
        self.beyond[i] |= first
        for e in way:
            self.room[e] -= 1
        self.inside[i][to] = 1
        self.members[i].append(to)
        self.ways[i][to] = (int(self.heads[way[0]]), *self.tails[way].tolist())

    def broken(self):
        """Sets with less capacity out of them than trees inside; bool (n_sets, n_vertices)."""
        n, top = self.n, self.n_vertices
        open_ = [i for i in range(len(self.ways)) if len(self.members[i]) < n]
        tree = top + 1 + np.arange(len(open_))
        index = np.repeat(np.arange(len(open_)), [len(self.members[i]) for i in open_])
        node = np.concatenate([self.members[i] for i in open_])
        size = top + 1 + len(open_)
        graph = csr_array(
            (
                np.concatenate([self.room, np.ones(len(open_)), np.ones(len(index))]).astype("i4"),
                (np.concatenate([self.heads, np.full(len(open_), top), tree[index]]),
                 np.concatenate([self.tails, tree, node])),
            ),
            shape=(size, size),
        )  # fmt: skip
        found = []
        for v in range(n):
            inside = behind(graph, top, v, len(open_))
            if inside is not None:
                found.append(inside[:top])
        return np.array(found, bool).reshape(-1, top)
