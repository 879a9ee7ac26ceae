"""BFB (Zhao et al., arXiv 2202.03356): breadth-first broadcast, balanced hop by hop.

Every chunk takes shortest paths, so the depth is the diameter; on tori the slots are exactly the
bound when k makes the shares whole (k = 4 in two dimensions). Direct networks only.
"""

from collections.abc import Sequence

import numpy as np

from ..topology import Topology
from .placing import Calendar
from .schedule import GATHER, RouteTable, Schedule, mirror, ordered, pack


def bfb(topology: Topology, *, chunks: int = 4) -> Schedule:
    """BFB all-reduce with k chunks per shard; the reduce-scatter is the all-gather reversed.

    For every node and hop the shards that arrive are spread over the links they may come by, so
    that the fullest link has as little as whole chunks allow. ValueError on switch networks,
    one-way links, or where ports bind.
    """
    if not topology.direct or topology.reverse is None:
        raise ValueError(f"BFB needs a direct network with links both ways, not {topology.name}")
    if topology.port_limited:
        raise ValueError(f"BFB uses all links at once: {topology.ports} ports are too few")
    n = topology.n_nodes
    hops = distances(topology)
    inwards = [[(link, a) for link, (a, b) in enumerate(topology.links.tolist()) if b == v]
               for v in range(n)]  # fmt: skip
    calendar = Calendar(topology)
    ready = np.zeros((n, n * chunks), np.int64)
    flow, link_used, step = [], [], []
    for hop in range(1, int(hops.max()) + 1):
        for v in range(n):
            shards = np.flatnonzero(hops[:, v] == hop).tolist()
            ways = [[i for i, (_, a) in enumerate(inwards[v]) if hops[s, a] == hop - 1]
                    for s in shards]  # fmt: skip
            speed = [topology.bandwidth[link] for link, _ in inwards[v]]
            for shard, parts in zip(shards, _balance(ways, speed, chunks), strict=True):
                for chunk, way in enumerate(sorted(parts), shard * chunks):
                    link, parent = inwards[v][way]
                    at = calendar.take((link,), parent, v, int(ready[parent, chunk]))
                    ready[v, chunk] = at + 1
                    flow.append(chunk)
                    link_used.append(link)
                    step.append(at)
    ends = topology.links[link_used]
    gathers = pack(
        {
            "op": GATHER, "flow": flow, "first": flow, "count": 1, "src": ends[:, 0],
            "dst": ends[:, 1], "step": step, "route": link_used,
        }
    )  # fmt: skip
    flows = np.arange(n * chunks, dtype=np.int32)
    return Schedule(
        "bfb", topology, n * chunks, flows // chunks, flows,
        mirror(topology, ordered(gathers), topology.reverse), RouteTable(topology).routes(),
    )  # fmt: skip


def distances(topology: Topology) -> np.ndarray:
    """Hops from every node (row) to every node (column)."""
    n = topology.n_nodes
    near = np.full((n, n), n)
    np.fill_diagonal(near, 0)
    a, b = topology.links.T
    while True:
        before = near.copy()
        np.minimum.at(near.T, b, before.T[a] + 1)
        if np.array_equal(near, before):
            return near


def _balance(ways: list, speed: Sequence[float], chunks: int) -> list[list[int]]:
    """For every shard the ways that its chunks take, so that the fullest way is least full.

    ways : per shard the allowed ways; speed : per way. Matching by augmenting paths, the allowed
    load raised until all fit.
    """
    units = [allowed for allowed in ways for _ in range(chunks)]
    load = -(-len(units) // max(1, round(sum(speed))))
    while True:
        taken = [[] for _ in speed]
        room = [max(1, int(load * s + 1e-9)) for s in speed]
        choice = [-1] * len(units)
        if all(_assign(u, units, taken, room, choice, set()) for u in range(len(units))):
            return [choice[i * chunks : (i + 1) * chunks] for i in range(len(ways))]
        load += 1


def _assign(unit: int, units: list, taken: list, room: list, choice: list, tried: set) -> bool:
    """Give `unit` a way, moving others if needed; False where no room can be made."""
    for way in sorted(units[unit], key=lambda w: len(taken[w]) / room[w]):
        if way in tried:
            continue
        tried.add(way)
        if len(taken[way]) >= room[way]:
            moved = next(
                (u for u in taken[way] if _assign(u, units, taken, room, choice, tried)), None
            )
            if moved is None:
                continue
            taken[way].remove(moved)
        taken[way].append(unit)
        choice[unit] = way
        return True
    return False
