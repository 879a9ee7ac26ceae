"""Trees through switches that add and copy: an all-reduce that sends each chunk once each way.

A chunk is summed towards a switch and copied back along one tree, which joins all nodes and may
fork in every switch that sums and multicasts. So C trees that take each link at most P times make a
periodic schedule of bandwidth C / P, both phases at once: `overlapped`, with switches in the trees.
Trees are grown one by one, each node joined by the way whose links have the most room left
(Takahashi and Matsuyama, 1980, with the weights of Garg and Koenemann's packing, 1998).
"""

import heapq
from dataclasses import replace

from ..bounds import bandwidth_bound
from ..in_network import computing
from ..topology import Topology
from .placing import place_trees
from .schedule import Schedule

_LONGEST_PERIOD = 8  # steps
_MOST_TREES = 64  # of a period
_WEIGHT = 32.0  # of a full link over an empty one


def in_network(topology: Topology, *, chunks: int | None = None, repeats: int = 256) -> Schedule:
    """The periodic all-reduce in which switches that sum and multicast are vertices of trees.

    chunks : per shard of the whole table; a multiple of C / gcd(C, N). None: so many `repeats`.
    Switches with one of both abilities are passed through: copies or sums alone leave the nodes'
    links as they are, which is what binds. ValueError where no switch has both, links are one-way,
    or no tree fits.
    """
    both = tuple(sorted({*topology.sums} & {*topology.multicasts}))
    if not both:
        raise ValueError(f"{topology.name} has no switch that sums and multicasts")
    if topology.reverse is None:
        raise ValueError(f"{topology.name}: sums in switches take links that go both ways")
    limit = bandwidth_bound(topology) * (1 - 1e-9)
    view = computing(topology)
    able = set(view.sums) & set(view.multicasts)
    best = None
    for period in range(1, _LONGEST_PERIOD + 1):
        for count in range(min(int(limit * period + 1e-6), _MOST_TREES), 0, -1):
            if best and count * best.period <= best.n_chunks * period:
                break
            trees = _grow(view, able, count, period)
            found = trees and _placed(view, trees, period)
            if found:
                best = found
                break
        if best and best.steady_bandwidth >= limit:
            break
    if best is None:
        raise ValueError(f"{topology.name}: no tree through its switches was found")
    if chunks is not None:
        repeats, rest = divmod(chunks * topology.n_nodes, best.n_chunks)
        if rest:
            raise ValueError(
                f"{topology.name} takes {best.n_chunks} trees a period: chunks times nodes must be "
                f"a multiple, not {chunks * topology.n_nodes}"
            )
    return replace(best, repeats=repeats)


def _grow(view, able, count, period):
    """[(root, parents, ways)] of `count` trees that take no link more than `period` times, or None.

    parents : per node its parent, -1 at the root, None outside; ways : {(node, node): links}, both
    directions.
    """
    room = [max(1, int(b + 1e-9)) * period for b in view.bandwidth.tolist()]
    left = list(room)
    trees = []
    for _ in range(count):
        parent, ways = {0: -1}, {}
        while any(v not in parent for v in range(view.n_owners)):
            way = _cheapest(view, able, parent, left, room)
            if way is None:
                return None
            for link in way:
                left[link] -= 1
                left[int(view.reverse[link])] -= 1
            _join(view, able, way, parent, ways)
        trees.append((*_rooted(view, parent), ways))
    return trees


def _cheapest(view, able, inside, left, room):
    """Links from a vertex of the tree to the cheapest node outside; None where no link has room.

    Through switches, and through nodes that are not in the tree yet (they would be the nearer end).
    """
    cost, came = dict.fromkeys(inside, 0.0), {}
    heap = [(0.0, v) for v in sorted(inside)]
    heapq.heapify(heap)
    while heap:
        far, v = heapq.heappop(heap)
        if far > cost[v]:
            continue
        if v < view.n_owners and v not in inside:
            way = []
            while v not in inside:
                way.append(came[v])
                v = int(view.links[came[v], 0])
            return way[::-1]
        for link, to in view.out[v]:
            if left[link] <= 0 or to in inside:
                continue
            new = far + _WEIGHT ** (1 - left[link] / room[link]) / room[link]
            if new < cost.get(to, float("inf")):
                cost[to], came[to] = new, link
                heapq.heappush(heap, (new, to))
    return None


def _join(view, able, way, parent, ways):
    """Add a way to the tree: an edge for each stretch between vertices that compute."""
    at, stretch = int(view.links[way[0], 0]), []
    for link in way:
        stretch.append(link)
        to = int(view.links[link, 1])
        if to < view.n_owners or to in able:
            back = tuple(int(view.reverse[k]) for k in reversed(stretch))
            ways[at, to], ways[to, at] = tuple(stretch), back
            parent[to] = at
            at, stretch = to, []


def _rooted(view, parent):
    """(root, parents) with the tree's center as the root, so that it is least deep."""
    around = {v: [] for v in parent}
    for v, up in parent.items():
        if up >= 0:
            around[v].append(up)
            around[up].append(v)
    leaves = [v for v in sorted(around) if len(around[v]) == 1]
    degree = {v: len(a) for v, a in around.items()}
    last = leaves
    while leaves:  # peel
        last, more = leaves, []
        for v in leaves:
            degree[v] = 0
            for to in around[v]:
                degree[to] -= degree[to] > 0
                if degree[to] == 1:
                    more.append(to)
        leaves = more
    root = max(last)
    result = [None] * view.n_nodes
    result[root], queue = -1, [root]
    for v in queue:
        for to in around[v]:
            if result[to] is None:
                result[to] = v
                queue.append(to)
    return root, result


def _placed(view, trees, period):
    """The Schedule of these trees; None where some way finds no step with all its links free."""
    try:
        return place_trees(
            "in_network", view, [tree[:2] for tree in trees], period=period, lag=1,
            ways=[tree[2] for tree in trees],
        )  # fmt: skip
    except ValueError:
        return None
