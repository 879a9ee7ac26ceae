"""Trees for offload cards on direct Ethernet links, and the order in which each card's rows go.

A card adds a packet's contributions one after the other, in the datapath that all of its ports
share, and a row's turn takes as long as a message's packets. So trees branch little, nodes go on
after a step's rest, and rows are listed as a list scheduler with the cards' times would issue them:
of those that are due, the one with the longest way left (critical path first; R. L. Graham, Bounds
on multiprocessing timing anomalies, 1969).
"""

import heapq

import numpy as np

from ..all_reduce import chunk_length
from ..network_model import Network
from ..topology import Topology
from .schedule import GATHER, REDUCE, RouteTable, Schedule, ordered, pack


def timed(
    topology: Topology,
    n_bytes: int,
    network: Network,
    *,
    chunks: int = 2,
    lag: int = 1,
    ahead: float = 1.0,
) -> Schedule:
    """All-reduce of `n_bytes` on direct links, for nodes that are `network`'s ``cards``.

    chunks : per shard. lag : steps between a chunk's arrival and its way on, as trees grow. ahead :
    messages that a link may have before it when a row is issued for it. Returns a Schedule whose
    steps are orders of issue, a row each: more of them than slots on the links. ValueError where
    links are shared or one-way, or nodes are no offload cards.
    """
    if not topology.direct or topology.reverse is None or topology.port_limited:
        raise ValueError(f"timed needs direct two-way links, a port each, not {topology.name}")
    if network.cards is None:
        raise ValueError("timed needs a network of offload cards")
    n = topology.n_nodes
    flow, link = _grow(topology, chunks, lag)
    ends = topology.links[link]
    columns = {"first": flow, "flow": flow, "count": 1}
    down = pack({"op": GATHER, "src": ends[:, 0], "dst": ends[:, 1], "route": link, **columns})
    up = pack({
        "op": REDUCE, "src": ends[:, 1], "dst": ends[:, 0], "route": topology.reverse[link],
        **columns,
    })  # fmt: skip
    transfers = np.concatenate([up, down])
    length = chunk_length(n_bytes // 4, n * chunks, network.cards.codec.unit)
    times = network.cards.of_chunk(length, network)
    began, summed = _List(topology, transfers, np.arange(n * chunks) // chunks, times, ahead).run()
    transfers["step"], sums = _steps(topology, transfers, began, summed, chunks)
    chunk = np.arange(n * chunks, dtype=np.int32)
    return Schedule(
        "timed", topology, n * chunks, chunk // chunks, chunk, ordered(transfers),
        RouteTable(topology).routes(), sums=sums,
    )  # fmt: skip


def _grow(topology, chunks, lag):
    """(flow, link) of the edges of trees that grow together, a link each in turn and step; a node
    with fewer children first, then the newest.
    """
    n, out = topology.n_nodes, topology.out
    flows = [(root, root * chunks + j) for j in range(chunks) for root in range(n)]
    since = {flow: {root: -1 - lag} for root, flow in flows}  # nodes and when they were reached
    children = {flow: {root: 0.5} for root, flow in flows}  # the root's chunk waits for no sum
    found, step = [], 0
    while any(len(nodes) < n for nodes in since.values()):
        free = [True] * topology.n_links
        live = [flow for _, flow in flows if len(since[flow]) < n]
        while live:
            live = [flow for flow in live if _extend(out, since[flow], children[flow], free,
                                                     step, lag, flow, found)]  # fmt: skip
        step += 1
    return np.array(found, np.int32).T


def _extend(out, since, children, free, step, lag, flow, found):
    """Whether the tree got one more node and may get another."""
    parents = [p for p in since if since[p] + lag < step]
    parents.sort(key=lambda p: (children[p], -since[p]))
    for parent in parents:
        for link, child in out[parent]:
            if free[link] and child not in since:
                free[link] = False
                since[child], children[child] = step, 0
                children[parent] += 1
                found.append((flow, link))
                return len(since) < len(out)
    return False


class _List:
    """A list scheduler. Tasks are the transfers, then a terminal row for each chunk."""

    def __init__(self, topology, transfers, roots, times, ahead):
        n_chunks, self.n = len(roots), len(transfers)
        self.times, self.ahead = times, ahead * times.line
        self.node = [*transfers["src"].tolist(), *roots.tolist()]
        self.link = transfers["route"].tolist()
        self.links = [0.0] * topology.n_links
        reduces = transfers["op"] == REDUCE
        place = transfers["dst"].astype(np.int64) * n_chunks + transfers["first"]
        parts = np.bincount(place[reduces], minlength=topology.n_nodes * n_chunks)
        source = transfers["src"].astype(np.int64) * n_chunks + transfers["first"]
        terminal = roots.astype(np.int64) * n_chunks + np.arange(n_chunks)
        n_parts = np.concatenate([np.where(reduces, parts[source], 0), parts[terminal]])
        self.made = times.made(n_parts).tolist()
        self.need = np.concatenate([np.where(reduces, parts[source], 1), parts[terminal]]).tolist()
        waits = [{}, {}]  # tasks by place, for contributions and for the sum
        for task, (key, is_reduce) in enumerate(zip(source.tolist(), reduces, strict=True)):
            waits[not is_reduce].setdefault(key, []).append(task)
        for chunk, key in enumerate(terminal.tolist()):
            waits[0].setdefault(key, []).append(self.n + chunk)
        self.after = [
            waits[not is_reduce].get(key, [])
            for key, is_reduce in zip(place.tolist(), reduces, strict=True)
        ] + [waits[1].get(key, []) for key in terminal.tolist()]
        self._rank()

    def _takes(self, task):
        """From its begin to the turn of what waits for it, at least."""
        if task >= self.n:
            return self.made[task] + self.times.own
        return max(self.made[task], self.times.line) + self.times.turn

    def _rank(self):
        """Longest way left, from the ends back."""
        users = [0] * len(self.after)
        before = [[] for _ in self.after]
        for task, after in enumerate(self.after):
            users[task] = len(after)
            for other in after:
                before[other].append(task)
        self.way = [self._takes(task) for task in range(len(self.after))]
        ends = [task for task, n in enumerate(users) if not n]
        while ends:
            task = ends.pop()
            for other in before[task]:
                self.way[other] = max(self.way[other], self._takes(other) + self.way[task])
                users[other] -= 1
                if not users[other]:
                    ends.append(other)

    def run(self):
        """(begin of each transfer, begin of each terminal row): floats."""
        n_nodes = 1 + max(self.node)
        self.free, self.due = [0.0] * n_nodes, [[] for _ in range(n_nodes)]
        self.events = [(self.times.start, task, self.node[task])
                       for task, need in enumerate(self.need) if not need]  # fmt: skip
        heapq.heapify(self.events)
        self.began = [0.0] * len(self.need)
        while self.events:
            now, task, v = heapq.heappop(self.events)
            if task >= 0:
                heapq.heappush(self.due[v], (-self.way[task], task))
            if self.free[v] <= now:
                self._issue(v, now)
        return self.began[: self.n], self.began[self.n :]

    def _issue(self, v, now):
        """The first of a node's rows whose link is not too far behind, or a look later on."""
        due, kept, wait = self.due[v], [], np.inf
        while due:
            way, task = heapq.heappop(due)
            behind = self.links[self.link[task]] - now if task < self.n else 0
            if behind <= self.ahead:
                self._begin(task, v, now)
                wait = self.made[task]
                break
            wait = min(wait, behind - self.ahead)
            kept.append((way, task))
        for one in kept:
            heapq.heappush(due, one)
        if wait < np.inf:
            heapq.heappush(self.events, (now + wait, -1, v))

    def _begin(self, task, v, now):
        self.began[task] = now
        self.free[v] = ends = now + self.made[task]
        if task < self.n:
            link, times = self.link[task], self.times
            self.links[link] = max(now, self.links[link]) + max(times.line, self.made[task])
            ends = self.links[link] + times.turn
        else:
            ends += self.times.own
        for other in self.after[task]:
            self.need[other] -= 1
            if not self.need[other]:
                self._later(ends, other)

    def _later(self, at, task):
        heapq.heappush(self.events, (at, task, self.node[task]))


def _steps(topology, transfers, began, summed, chunks):
    """(step of each transfer, of each terminal row): a node's rows one after the other in the order
    of their begin, and behind what they wait for.
    """
    n = len(transfers)
    order = np.argsort(np.concatenate([began, summed]), kind="stable")
    following, here = [0] * topology.n_nodes, {}
    steps = np.zeros(len(order), np.int32)
    for task in order.tolist():
        if task < n:
            one = transfers[task]
            v, to, chunk, kind = (int(one[name]) for name in ("src", "dst", "first", "op"))
            place = (v, chunk, kind), (to, chunk, kind)
        else:
            v, chunk = (task - n) // chunks, task - n
            place = (v, chunk, REDUCE), (v, chunk, GATHER)
        steps[task] = max(following[v], here.get(place[0], 0))
        following[v] = int(steps[task]) + 1
        here[place[1]] = max(here.get(place[1], 0), following[v])
    return steps[:n], steps[n:]
