"""Steps for given trees: in each step as many chunks move as the links that bind can carry.

List scheduling of all chunks at once. A path binds where the fullest links of its halves are; a
max-flow over these picks the chunks of a step, so that no full link idles for want of order (in
bipartite graphs such a choice always exists: Koenig). The rest is filled from the links with the
most left to carry. Where links in the middle of paths bind, too, an integer program chooses.
"""

import heapq
from collections import deque
from collections.abc import Sequence

import numpy as np
from scipy.sparse import csr_array, eye_array, hstack
from scipy.sparse.csgraph import maximum_flow

from ..topology import Topology

_LAG = 1  # steps between an arrival and its use: cards issue in table order, and links have latency


_OWED = 100.0  # what a unit that a place owes weighs in the program, over a chunk's 1 or so
_GAP = 0.003  # of the program's optimum


def place(
    topology: Topology,
    edges: np.ndarray,
    paths: Sequence[tuple[int, ...]],
    copies: int,
    slots: int = 1,
    *,
    exact: bool = False,
) -> tuple[np.ndarray, np.ndarray]:
    """The step and the path of every edge of every tree and copy.

    topology : of the links and, where they bind, ports.
    edges : int (n_edges, 4): tree, parent, child, path number; a tree's edges from its root out.
    paths : list of tuples of links. copies : chunks of each tree, which all take its edges.
    slots : chunks that a link of bandwidth 1 carries in a step. exact : by an integer program over
    all places, some 5 ms a step; not always better: it sees one step at a time, too.

    Returns (steps int32, path numbers int32), each (n_edges, copies). New paths are appended to
    `paths`: the same ends through switches that are free in that step.
    """
    run = _Listing(topology, edges, paths, copies, slots, exact)
    while run.missing:
        run.fill()
    return run.step_of, run.path_of


def least_steps(
    topology: Topology,
    edges: np.ndarray,
    paths: Sequence[tuple[int, ...]],
    copies: int,
    slots: int = 1,
) -> tuple[float, int]:
    """(Steps that the fullest place needs, steps that any order needs): the second counts the
    hops that must still follow, too. Arguments as of `place`.
    """
    run = _Listing(topology, edges, paths, copies, slots)
    return float((run.left / run.speed).max()), int(run._due()[2])


class _Listing:
    """Chunks that wait, path by path, and what every place (link, or port) still has to carry."""

    def __init__(self, topology, edges, paths, copies, slots, exact=False):
        self.topology, self.paths, self.exact = topology, paths, exact
        self.number = {path: i for i, path in enumerate(paths)}
        tree, parent, child, path = edges.T
        n_edges = len(edges)
        self.after = _followers(tree, parent, child)
        self.height = np.ones(n_edges, np.int64)  # hops that wait for an edge, itself included
        for e in range(n_edges - 1, -1, -1):
            for f in self.after[e]:
                self.height[e] = max(self.height[e], 1 + self.height[f])
        room = np.maximum(1, np.floor(topology.bandwidth * slots + 1e-9)).astype(np.int64).tolist()
        self.ports = topology.port_limited
        if self.ports:
            room += [topology.ports * slots] * (2 * topology.n_nodes)
        self.room = room
        used, self.path = np.unique(path, return_inverse=True)
        self.links = [paths[p] for p in used]
        self.last = [path[-1] for path in self.links]
        self.places = [self._places(path) for path in self.links]
        longest = max(map(len, self.places))
        self.padded = np.array([p + [len(room)] * (longest - len(p)) for p in self.places])
        self.left = np.zeros(len(room) + 1)  # units that each place still has to carry
        np.add.at(self.left, self.padded[self.path], copies)
        self.high = np.zeros((self.height.max(), len(room) + 1))  # the same, height by height
        np.add.at(self.high, (self.height[:, None] - 1, self.padded[self.path]), copies)
        self.tail = (1 + _LAG) * np.arange(len(self.high))[:, None]  # steps that must still follow
        self.speed = np.append(np.array(room, float), np.inf)
        self.chunks = copies * np.bincount(self.path)  # of each path
        self.todo = self.chunks.copy()
        self.waiting = [[] for _ in used]  # heaps of (copy, -height, edge)
        self.count = np.zeros(len(used), np.int64)
        self.inner = np.zeros(len(used), np.int64)
        first = np.ones(n_edges, bool)
        first[[f for a in self.after for f in a]] = False
        for e in np.flatnonzero(first).tolist():
            self._ready(e, range(copies))
        self.step_of = np.full((n_edges, copies), -1, np.int32)
        self.path_of = np.repeat(path[:, None].astype(np.int32), copies, axis=1)
        self.flight = deque()
        self.missing, self.step = n_edges * copies, 0
        self._classes()

    def _places(self, path):
        if not self.ports:
            return list(path)
        ends, n, at = self.topology.links, self.topology.n_nodes, self.topology.n_links
        return [*path, at + int(ends[path[0], 0]), at + n + int(ends[path[-1], 1])]

    def _ready(self, e, copies):
        p, height = int(self.path[e]), int(self.height[e])
        heap = self.waiting[p]
        for copy in copies:
            heapq.heappush(heap, (-height, copy, e))
        self.count[p] += len(copies)
        self.inner[p] += len(copies) * (height > 1)

    def _classes(self):
        """Paths by the fullest places of their first and second halves."""
        share = self.left / self.speed
        pairs = []
        for path in self.places:
            half = max(1, len(path) // 2)
            ends = path[:half], path[half:][::-1]
            pairs.append(tuple(max(e, key=lambda p: share[p]) if e else -1 for e in ends))
        self.pairs = list(dict.fromkeys(pairs))
        number = {pair: i for i, pair in enumerate(self.pairs)}
        self.class_of = np.array([number[pair] for pair in pairs])
        self.members = [[] for _ in self.pairs]
        for p, pair in enumerate(pairs):
            self.members[number[pair]].append(p)
        outs = {o: 4 + i for i, o in enumerate(dict.fromkeys(o for o, _ in self.pairs))}
        ins = {i: 4 + len(outs) + j for j, i in enumerate(dict.fromkeys(i for _, i in self.pairs))}
        self.ends = (
            np.array([outs[o] for o, _ in self.pairs]),
            np.array([ins[i] for _, i in self.pairs]),
        )
        self.outs, self.ins = np.array(list(outs)), np.array(list(ins))
        self.keys = np.array(self.pairs).T
        out, into = np.array(list(outs.values())), np.array(list(ins.values()))
        self.shape = 4 + len(out) + len(into)
        s, t, must, done = range(4)
        arcs = (
            (must + 0 * out, out), (s + 0 * out, out), self.ends, (into, done + 0 * into),
            (into, t + 0 * into), ([s, must, t], [done, t, s]),
            (out, s + 0 * out), self.ends[::-1], (t + 0 * into, into),
        )  # fmt: skip
        self.arcs = tuple(np.concatenate(part) for part in zip(*arcs, strict=True))

    def _chosen(self):
        """Chunks of each class in this step, so that what binds gets nearer to its end.

        First as many as can of those that others wait for. Then augmented, so that every place
        sends or gets what it is due: what it would have too much of in the steps that are left. A
        flow with lower limits: the dues run from `must` to `done`, more may run from s to t.
        """
        due, room, _ = self._due()
        n = len(self.pairs)
        waiting, inner = (np.bincount(self.class_of, c, n).astype(int)
                          for c in (self.count, self.inner))  # fmt: skip
        none = np.zeros(len(room), int)
        first = self._flow(none, none, room, inner, np.zeros(n, int))
        taken = np.zeros(len(room), int)
        for end in 0, 1:
            np.add.at(taken, self.keys[end], first)
        paid = np.minimum(due, taken)
        return first + self._flow(due - paid, taken - paid, room - taken, waiting - first, first)

    def _flow(self, due, extra, room, waiting, before):
        """Chunks of each class, less what is taken back of those `before`."""
        (out, into), s, t = (due[self.outs], due[self.ins]), 0, 1
        lone = not due.any()
        spare = [room[p] - due[p] * (not lone) for p in (self.outs, self.ins)]
        both = [out.sum(), into.sum(), 0 if lone else 1 << 24]
        data = np.concatenate([out, spare[0], waiting, into, spare[1], both,
                               extra[self.outs], before, extra[self.ins]])  # fmt: skip
        graph = csr_array((data.astype(np.int32), self.arcs), shape=(self.shape, self.shape))
        flow = maximum_flow(graph, *((s, t) if lone else (2, 3))).flow
        return np.asarray(flow[self.ends[0], self.ends[1]]).ravel()

    def _due(self):
        """(units of each place that this step owes, those it can carry, steps that are left).

        What others wait for has to be through as many steps earlier as they take.
        """
        room = np.append(np.array(self.room), 1 << 20)
        high = self.high[::-1].cumsum(axis=0)[::-1]  # of each height or more
        steps = np.ceil(np.where(high > 0, high / self.speed + self.tail, 0).max() - 1e-9)
        due = np.where(high > 0, high - (steps - 1 - self.tail) * room, 0).max(axis=0)
        return np.clip(due, 0, room).astype(np.int64), room, steps

    def fill(self):
        """One step."""
        free, came = self.room.copy(), []
        (self._by_program if self.exact else self._by_flow)(free, came)
        self._rest(free, came)
        sent = np.array([e for e, _ in came], np.int64)
        mine = self.padded[self.path[sent]]
        np.subtract.at(self.left, mine, 1)
        np.subtract.at(self.high, (self.height[sent, None] - 1, mine), 1)
        self.flight.append(came)
        if len(self.flight) > _LAG:
            arrived: dict[int, list[int]] = {}
            for e, copy in self.flight.popleft():
                arrived.setdefault(e, []).append(copy)
            for e, copies in arrived.items():
                for f in self.after[e]:
                    self._ready(f, copies)
        self.missing -= len(came)
        self.step += 1

    def _by_program(self, free, came):
        """As many chunks of each path as an integer program says: every place pays what this step
        owes, if it can. Then paths come first that are behind the pace of all: so what is left
        stays a mix that fits side by side, until the end.
        """
        due, room, steps = self._due()
        due, room = due[:-1], room[:-1]
        live, owing = np.flatnonzero(self.count), np.flatnonzero(due)
        n, k = len(live), len(owing)
        if not n:  # all are in flight
            return
        mine = [self.places[p] for p in live]
        uses = csr_array(
            (
                np.ones(sum(map(len, mine))),
                (
                    np.concatenate(mine),
                    np.repeat(np.arange(n), [len(places) for places in mine]),
                ),
            ),
            shape=(len(room), n),
        )
        height = np.array([-self.waiting[p][0][0] for p in live])
        pace = self.todo[live] / np.maximum(steps - self.tail[height - 1, 0], 1)
        behind = pace * (self.step + steps) / self.chunks[live]
        # half a second to load, and most schedules do without
        from scipy.optimize import Bounds, LinearConstraint, milp

        limits = [LinearConstraint(hstack([uses, csr_array((len(room), k))]), ub=room)]
        if k:
            limits.append(LinearConstraint(hstack([uses[owing], eye_array(k)]), lb=due[owing]))
        found = milp(
            np.concatenate([-behind, np.full(k, _OWED)]),
            constraints=limits,
            bounds=Bounds(0, np.concatenate([self.count[live], np.full(k, np.inf)])),
            integrality=np.repeat([1, 0], [n, k]),
            options={"mip_rel_gap": _GAP},
        )
        for p, chunks in zip(live.tolist(), np.rint(found.x[:n]).astype(int).tolist(), strict=True):
            self._send(p, chunks, free, came)

    def _by_flow(self, free, came):
        """As many chunks of each class as the max-flow says."""
        chosen = self._chosen()
        share = (self.left / self.speed)[self.keys].max(axis=0)
        for c in sorted(np.flatnonzero(chosen > 0).tolist(), key=lambda c: -share[c]):
            n = int(chosen[c])
            for p in sorted(self.members[c], key=lambda p: -self.count[p]):
                n -= self._send(p, n, free, came)
            for p in self.members[c]:
                while n and self.waiting[p] and self._around(p, free, came):
                    n -= 1

    def _rest(self, free, came):
        """What still fits, from the places with the most left to carry."""
        ready = np.flatnonzero(self.count)
        load = (self.left / self.speed)[self.padded[ready]]
        for p in ready[np.lexsort([ready, -load.sum(axis=1), -load.max(axis=1)])].tolist():
            if free[self.places[p][0]] and free[self.last[p]]:
                self._send(p, 1 << 30, free, came)
                while (self.waiting[p] and free[self.places[p][0]] and free[self.last[p]]
                       and self._around(p, free, came)):  # fmt: skip
                    pass

    def _send(self, p, n, free, came):
        """Up to n chunks that wait for path p; how many it were."""
        mine, heap = self.places[p], self.waiting[p]
        n = min(n, len(heap), *(free[h] for h in mine))
        if n == len(heap):
            sent = sorted(heap)
            heap.clear()
        else:
            sent = [heapq.heappop(heap) for _ in range(n)]
        if n:
            heights, copies, edges = zip(*sent, strict=True)
            self.step_of[edges, copies] = self.step
            self.inner[p] -= n - heights.count(-1)
            came += zip(edges, copies, strict=True)
        for h in mine:
            free[h] -= n
        self.count[p] -= n
        self.todo[p] -= n
        return n

    def _around(self, p, free, came):
        """One chunk that waits for path p, by another way through switches; False: no way."""
        topology = self.topology
        source = int(topology.links[self.links[p][0], 0])
        sink = int(topology.links[self.links[p][-1], 1])
        if self.ports and not (free[topology.n_links + source]
                               and free[topology.n_links + topology.n_nodes + sink]):  # fmt: skip
            return False
        came_by, queue = {source: None}, deque([source])
        while queue and sink not in came_by:
            v = queue.popleft()
            for link, to in topology.out[v]:
                if free[link] and to not in came_by and (to >= topology.n_nodes or to == sink):
                    came_by[to] = link
                    queue.append(to)
        if sink not in came_by:
            return False
        path, v = [], sink
        while v != source:
            path.append(came_by[v])
            v = int(topology.links[came_by[v], 0])
        path = tuple(path[::-1])
        if path not in self.number:
            self.number[path] = len(self.paths)
            self.paths.append(path)
        _, copy, e = heapq.heappop(self.waiting[p])
        self.inner[p] -= self.height[e] > 1
        self.step_of[e, copy], self.path_of[e, copy] = self.step, self.number[path]
        came.append((e, copy))
        for h in self._places(path):
            free[h] -= 1
        self.count[p] -= 1
        self.todo[p] -= 1
        return True


def _followers(tree, parent, child):
    """Per edge the edges out of its child, in the same tree."""
    out = {}
    for e, key in enumerate(zip(tree.tolist(), parent.tolist(), strict=True)):
        out.setdefault(key, []).append(e)
    return [out.get(key, []) for key in zip(tree.tolist(), child.tolist(), strict=True)]
