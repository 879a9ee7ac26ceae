"""MultiTree (ISCA 2021): one tree per node and chunk, all grown together, link by link.

Source: the paper's algorithm 1 as its authors' simulator has it (state of November 2020).
"""

from array import array
from collections import deque

import numpy as np

from ..topology import Topology
from .schedule import GATHER, RouteTable, Schedule, mirror, ordered, pack


def multitree(
    topology: Topology,
    *,
    chunks: int = 1,
    order: str = "ascending",
    rule: str = "full",
    rng: np.random.Generator | None = None,
) -> Schedule:
    """MultiTree all-reduce: reduce-scatter is the all-gather trees, reversed.

    Parameters
    ----------
    topology : Topology
    chunks : int
        Trees per root, k >= 1: each shard is cut into k chunks, each with its own tree.
    order : str
        ``ascending`` roots, ``center`` (on meshes, nearest to the center first: the release's
        sorted mode) or ``random`` (roots and neighbors shuffled by `rng`).
    rule : str
        ``full``: a step closes when no tree can grow. ``release``: when the last root of a pass
        could not grow, as the authors released it (costs 8 -> 10 slots on a 4x4 mesh).

    Returns a Schedule of N-1 slots with one port per node, else of 2 * max tree slots.
    """
    n = topology.n_nodes
    flows = [root * chunks + j for j in range(chunks) for root in _root_order(topology, order, rng)]
    routes = RouteTable(topology)
    shuffle = rng if order == "random" else None
    grown = _grow(topology, flows, chunks, rule, routes, shuffle)
    back = topology.reverse
    if back is not None:
        known = routes.routes()
        reverse_route = np.array(
            [routes.number(tuple(back[known[i]][::-1].tolist())) for i in range(len(known))],
            np.int32,
        )
        transfers = mirror(topology, grown, reverse_route)
    else:  # one-way links: reduce along trees of the reversed graph
        transfers = _two_sided(topology, grown, flows, chunks, rule, routes, shuffle)
    chunk = np.arange(n * chunks, dtype=np.int32)
    return Schedule(
        "multitree", topology, n * chunks, chunk // chunks, chunk, transfers, routes.routes()
    )


def _root_order(topology, order, rng):
    nodes = list(range(topology.n_nodes))
    if order == "random":
        rng.shuffle(nodes)
    elif order == "center":
        if topology.shape and not topology.wrap:
            nodes.sort(key=lambda node: _from_center(topology, node))
    elif order != "ascending":
        raise ValueError(f"root order must be ascending, center or random, not {order!r}")
    return nodes


def _from_center(topology, node):
    """Sort key: distance to the farthest corner, small first; ties by the last axis, descending.

    A tie rule that gives the slot counts published for the release, 10 and 34 on 4x4 and 8x8
    meshes, and its tree depths, 6 and 17; the release's own tie rule is not known.
    """
    at = topology.coordinates(node)
    reach = sum(max(a, length - 1 - a) for a, length in zip(at, topology.shape, strict=True))
    return (reach, *(-a for a in reversed(at)))


def _grow(topology, flows, chunks, rule, routes, rng):
    if rule not in ("full", "release"):
        raise ValueError(f"rule must be full or release, not {rule!r}")
    grow = _grow_direct if topology.direct else _grow_switched
    columns = grow(topology, flows, chunks, rule == "release", routes, rng)
    return ordered(pack({"op": GATHER, "count": 1, **columns}))


def _capacity(topology):
    """Messages per link and step: links at least twice as fast take more than one."""
    return np.floor(topology.bandwidth + 1e-9).astype(int).tolist()


def _ways(topology, rng):
    """Links out of each node in the order in which trees try them: shuffled, given a `rng`."""
    out = [list(part) for part in topology.out]
    if rng is not None:
        for part in out:
            rng.shuffle(part)
    return out


def _grow_direct(topology, flows, chunks, early, routes, rng):
    """Trees on direct networks. Inside one step a parent that could not serve a tree never can
    again, so each tree keeps its place in its frontier: a scan per step, not per edge.
    """
    n, out, capacity = topology.n_nodes, _ways(topology, rng), _capacity(topology)
    n_capacity = sum(capacity)
    ports = topology.ports if topology.port_limited else n * len(flows)
    leaving = [min(ports, sum(capacity[link] for link, _ in out[v])) for v in range(n)]
    member = {f: bytearray(n) for f in flows}
    frontier = {f: [f // chunks] for f in flows}  # parents with a neighbor outside, oldest first
    missing = dict.fromkeys(flows, n - 1)
    for f in flows:
        member[f][f // chunks] = 1
    found_flow, found_link, found_step = array("i"), array("i"), array("i")
    growing, step = list(flows), 0
    while growing:
        free, n_free = capacity.copy(), n_capacity
        inject, eject = leaving.copy(), [ports] * n
        fresh = {}
        place = dict.fromkeys(growing, 0)
        live = growing
        while live and n_free:
            still = []
            last_grew = False
            for f in live:
                inside, parents, i = member[f], frontier[f], place[f]
                last_grew = False
                for i in range(i, len(parents)):  # noqa: B020 resumes where the last pass stood
                    p = parents[i]
                    if not inject[p]:
                        continue
                    for link, child in out[p]:
                        if free[link] and not inside[child] and eject[child]:
                            break
                    else:
                        continue
                    free[link] -= 1
                    n_free -= 1
                    inject[p] -= 1
                    eject[child] -= 1
                    inside[child] = 1
                    fresh.setdefault(f, []).append(child)
                    missing[f] -= 1
                    found_flow.append(f)
                    found_link.append(link)
                    found_step.append(step)
                    last_grew = True
                    break
                if last_grew and missing[f]:
                    place[f] = i
                    still.append(f)
                elif early and missing[f]:
                    place[f] = len(parents)
                    still.append(f)
            live = still
            if early and not last_grew:
                break
        for f, added in fresh.items():
            inside = member[f]
            kept = []
            for p in frontier[f] + added:
                for _, child in out[p]:
                    if not inside[child]:
                        kept.append(p)
                        break
            frontier[f] = kept
        growing = [f for f in growing if missing[f]]
        step += 1
    flow, link, steps = (np.array(part, np.int32) for part in (found_flow, found_link, found_step))
    links = topology.links[link]
    return {
        "flow": flow, "first": flow, "src": links[:, 0], "dst": links[:, 1], "step": steps,
        "route": link,
    }  # fmt: skip


def _grow_switched(topology, flows, chunks, early, routes, rng):
    """Trees through switches, each to the nearest outsider behind free links."""
    n, out, capacity = topology.n_nodes, _ways(topology, rng), _capacity(topology)
    members = {f: [f // chunks] for f in flows}
    inside = {f: bytearray(n) for f in flows}
    for f in flows:
        inside[f][f // chunks] = 1
    rows = []
    growing, step = list(flows), 0
    ports = topology.ports if topology.port_limited else n * len(flows)
    leaving = [min(ports, sum(capacity[link] for link, _ in out[v])) for v in range(n)]
    while growing:
        free = capacity.copy()
        inject, eject, n_senders = leaving.copy(), [ports] * n, n
        known = {f: len(members[f]) for f in growing}
        place = dict.fromkeys(growing, 0)
        live = growing
        while live and n_senders:
            still = []
            last_grew = False
            for f in live:
                last_grew = False
                for i in range(place[f], known[f]):
                    p = members[f][i]
                    path = inject[p] and _nearest(topology, out, p, inside[f], free, eject)
                    if path:
                        child = int(topology.links[path[-1], 1])
                        for link in path:
                            free[link] -= 1
                        inject[p] -= 1
                        n_senders -= not inject[p]
                        eject[child] -= 1
                        inside[f][child] = 1
                        members[f].append(child)
                        rows.append((f, p, child, step, routes.number(path)))
                        last_grew = True
                        place[f] = i
                        break
                if len(members[f]) < n and (last_grew or early):
                    if not last_grew:
                        place[f] = known[f]
                    still.append(f)
            live = still
            if early and not last_grew:
                break
        growing = [f for f in growing if len(members[f]) < n]
        step += 1
    flow, parent, child, step, route = np.array(rows, np.int64).T
    return {"flow": flow, "first": flow, "src": parent, "dst": child, "step": step, "route": route}


def _nearest(topology, out, parent, inside, free, eject):
    """Links to the nearest node outside the tree, breadth first; None where none is free."""
    n = topology.n_nodes
    came = {parent: ()}
    queue = deque([parent])
    while queue:
        v = queue.popleft()
        path = came[v]
        for link, to in out[v]:  # hosts before further switches
            if to < n and free[link] and not inside[to] and eject[to]:
                return (*path, link)
        if len(path) >= 2 and topology.hosts[v - n]:
            continue  # a switch with nodes of its own ends the search: it would pass them by
        for link, to in out[v]:
            if to >= n and free[link] and to not in came:
                came[to] = (*path, link)
                queue.append(to)
    return None


def _two_sided(topology, grown, flows, chunks, rule, routes, rng):
    """Both phases where links have no equal way back: reduce trees grow on the reversed graph."""
    turned = topology.reversed()
    local = RouteTable(turned)
    other = _grow(turned, flows, chunks, rule, local, rng)
    paths = local.routes()
    reduces = other.copy()
    reduces["op"] = 0
    reduces["src"], reduces["dst"] = other["dst"], other["src"]
    reduces["step"] = other["step"].max() - other["step"]
    numbers = [routes.number(tuple(paths[i][::-1].tolist())) for i in range(len(paths))]
    reduces["route"] = np.array(numbers)[other["route"]]
    gathers = grown.copy()
    gathers["step"] += other["step"].max() + 1
    return ordered(np.concatenate([reduces, gathers]))
