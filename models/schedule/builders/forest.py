"""ForestColl's optimum (Zhao et al., arXiv 2402.06787): trees that fill what binds.

The cut that binds gives the rate; bandwidths become whole numbers of trees; as many spanning trees
out of every node are packed, their edges ways through switches. Every chunk travels one tree, so
the fullest link carries what the optimum allows. The paper removes switches first, by edge
splitting; here trees grow through them while every cut is kept (`arborescences`), with fewer flows.
"""

import itertools
import math
from collections.abc import Iterable
from fractions import Fraction
from functools import lru_cache

import numpy as np

from ..bounds import flow_graph, worst_cut
from ..topology import Topology
from .arborescences import pack as pack_trees
from .cuts import around, broken
from .listing import least_steps, place
from .schedule import GATHER, REDUCE, RouteTable, Schedule, ordered, pack

Way = tuple[int, ...]  # links
Tree = dict[int, tuple[int, Way]]  # child: its parent, and the way from there

_SLACKS = tuple(Fraction(1, n) for n in (250, 100, 25))  # of the optimum, for fewer trees
_TREES = 24  # per root, at most
_EDGES = 400_000  # tree edges of all chunks, at most, for the same choice
STEPS = 240  # of a phase, at least, unless told
_EXACT = 4_500_000  # places of all paths times steps, at most, for integer programs: a minute
_QUANTA = 8  # slots per step, at most, where bandwidths are no whole numbers


def forest(topology: Topology, *, chunks: int | None = None, steps: int = STEPS) -> Schedule:
    """All-reduce along optimal trees: the all-gather's, and the same reversed to reduce-scatter.

    chunks : per shard; a multiple of the trees per root that the network needs. None: as many as
    make so many `steps` a phase, so that filling the trees costs little. ValueError where a switch
    has not as much bandwidth in as out, where no 24 trees a root come within 4 % of the optimum, or
    where `chunks` is no multiple.
    """
    routes = RouteTable(topology)
    if topology.reverse is not None:
        k, ways = _trees(topology)
        copies = _copies(topology, k, chunks, steps)
        gathers = _gathers(topology, ways, copies, routes)
        back = topology.reverse.tolist()
        turn = {way: tuple(back[link] for link in reversed(way)) for _, way in routes}
        reduces = _turned(gathers, routes, turn)
    else:
        other = topology.reversed()
        (k, ways), (m, more) = _trees(topology), _trees(other)
        k, m = math.lcm(k, m) // k, math.lcm(k, m) // m  # the same chunks in both phases
        ways = [tree for tree in ways for _ in range(k)]
        more = [tree for tree in more for _ in range(m)]
        k = len(ways) // topology.n_nodes
        copies = _copies(topology, k, chunks, steps)
        gathers = _gathers(topology, ways, copies, routes)
        local = RouteTable(other)
        reduces = _gathers(other, more, copies, local)
        reduces = _turned(reduces, routes, {way: way[::-1] for _, way in local}, local)
    gathers["step"] += int(reduces["step"].max()) + 1
    n_chunks = topology.n_nodes * k * copies
    chunk = np.arange(n_chunks, dtype=np.int32)
    return Schedule(
        "forest", topology, n_chunks, chunk // (k * copies), chunk,
        ordered(np.concatenate([reduces, gathers])), routes.routes(),
    )  # fmt: skip


def _copies(topology: Topology, k: int, chunks: int | None, steps: int) -> int:
    """Chunks of each tree."""
    if chunks is not None:
        if chunks % k:
            raise ValueError(
                f"{topology.name} takes {k} trees a root: chunks must be a multiple, not {chunks}"
            )
        return chunks // k
    n = topology.n_nodes
    slots = float(worst_cut(topology)) * k
    steps *= min(quantum(topology.bandwidth), 2)
    return max(1, min(math.ceil(steps / slots), _EDGES // (n * k * (n - 1))))


def _scaled(topology: Topology) -> tuple[int, np.ndarray]:
    """(k, capacity): trees per root, and whole trees per link, int (n_vertices, n_vertices).

    The fewest trees whose rate is within the first of _SLACKS of the optimum that any has.
    """
    optimum = worst_cut(topology)
    a, b, units, n = flow_graph(topology)
    for slack in _SLACKS:
        for k in range(1, _TREES + 1):
            rate = k * optimum * (1 + slack) / 720
            capacity = np.zeros((n, n), np.int64)
            capacity[a, b] = [int(rate * int(u)) for u in units]
            if not len(broken(capacity, topology.n_nodes, k)):
                return k, capacity
    raise ValueError(f"{topology.name}: more than {_TREES} trees a root are needed")


@lru_cache(maxsize=2)  # of one network and its reverse, cut into several numbers of chunks
def _trees(topology: Topology) -> tuple[int, list[Tree]]:
    """(k, trees): per tree {child: (parent, links)}, root outwards; tree r * k + j has root r."""
    n = topology.n_nodes
    k, capacity = _scaled(topology)
    uneven = np.flatnonzero((capacity.sum(axis=0) != capacity.sum(axis=1))[n:])
    if len(uneven):
        v = n + uneven[0]
        who = f"switch {v}"
        if v >= topology.n_vertices:
            who = f"node {v - topology.n_vertices}, whose ports bind,"
        raise ValueError(f"{topology.name}: {who} has not as much bandwidth in as out")
    for room in _lean(capacity, n, k), capacity:
        ways = pack_trees(room, n, k, around(room, n))
        if ways is not None:
            break
    else:
        raise ValueError(f"{topology.name}: {k} trees a root were not found")
    links = _links(topology)
    return k, [
        {
            child: (way[0], sum((links[pair] for pair in itertools.pairwise(way)), ()))
            for child, way in tree.items()
        }
        for tree in ways
    ]


def _lean(capacity: np.ndarray, n: int, k: int) -> np.ndarray:
    """The capacity without what no cut needs of links between switches, for all equally wide ones.

    Ways take fewer links then, and chunks of a step are less in each other's way.
    """
    inner = np.zeros(capacity.shape, bool)
    inner[n:, n:] = True
    for width in np.unique(capacity[inner & (capacity > 0)]):
        same = inner & (capacity == width)
        low, high = 0, int(width)  # high is known to be enough
        while low < high:
            middle = (low + high) // 2
            less = np.where(same, middle, capacity)
            low, high = (middle + 1, high) if len(broken(less, n, k)) else (low, middle)
        capacity = np.where(same, high, capacity)
    return capacity


def _links(topology: Topology) -> dict[tuple[int, int], Way]:
    """{(a, b): links} of the flow graph: routers behind ports, vertex n_vertices + v, add none."""
    links: dict[tuple[int, int], Way] = {pair: (w,) for pair, w in topology.link_of.items()}
    if not topology.port_limited:
        return links
    n, nodes = topology.n_vertices, range(topology.n_nodes)
    moved = [tuple(v + n if v in nodes else v for v in pair) for pair in links]
    return (
        {(a, b): way for (a, b), way in zip(moved, links.values(), strict=True)}
        | {(v, v + n): () for v in nodes}
        | {(v + n, v): () for v in nodes}
    )


def _gathers(topology: Topology, trees: list[Tree], copies: int, routes: RouteTable) -> np.ndarray:
    """Gather transfers of all trees and copies, in steps from 0."""
    edges, paths, steps, taken = _placed(topology, trees, copies)
    chunk, parent, child, _ = edges.T
    names = np.array([routes.number(path) for path in paths])
    return pack({
        "op": GATHER, "flow": chunk, "first": chunk, "count": 1, "src": parent, "dst": child,
        "step": steps.ravel(), "route": names[taken.ravel()],
    })  # fmt: skip


def _edges(trees: Iterable[tuple[int, Tree]]) -> tuple[np.ndarray, list[Way]]:
    """Edges of numbered trees, int (n, 4): number, parent, child, path; and the paths."""
    edges, paths, number = [], [], {}
    for t, tree in trees:
        for child, (parent, way) in tree.items():
            if way not in number:
                number[way] = len(paths)
                paths.append(way)
            edges.append((t, parent, child, number[way]))
    return np.array(edges, np.int64), paths


def _rotated(topology: Topology, trees: list[Tree], copies: int) -> list[tuple[int, Tree]]:
    """(chunk, tree) of every copy, each copy's trees turned by one node more inside of all boxes:
    links are as full, but a root's chunks enter a box by several nodes, which pass them on. Empty
    for one copy, and where that does not leave the network as it is.
    """
    to = _turn(topology) if copies > 1 else {}
    k, result = len(trees) // topology.n_nodes, []
    for copy in range(copies if to else 0):
        result += [(t * copies + copy, tree) for t, tree in enumerate(trees)]
        there = [{} for _ in trees]
        for t, tree in enumerate(trees):
            there[to[t // k] * k + t % k] = {
                to[child]: (to[parent], _moved(topology, way, to))
                for child, (parent, way) in tree.items()
            }
        trees = there
    return result


def _turn(topology: Topology) -> dict[int, int]:
    """{vertex: the next one of its box}; switches stay. Boxes are the nodes whose fastest link
    leads to the same switch. Empty where links are not the same then.
    """
    boxes = {}
    for v in range(topology.n_nodes):
        _, switch = max(topology.out[v], key=lambda way: topology.bandwidth[way[0]])
        boxes.setdefault(switch, []).append(v)
    if min(boxes) < topology.n_nodes or len({len(nodes) for nodes in boxes.values()}) > 1:
        return {}
    to = {v: v for v in range(topology.n_vertices)}
    for nodes in boxes.values():
        to |= dict(zip(nodes, nodes[1:] + nodes[:1], strict=True))
    speed = {pair: topology.bandwidth[link] for pair, link in topology.link_of.items()}
    alike = all(speed.get((to[a], to[b])) == rate for (a, b), rate in speed.items())
    return to if alike else {}


def _moved(topology: Topology, way: Way, to: dict[int, int]) -> Way:
    ends = topology.links[list(way)].tolist()
    return tuple(topology.link_of[to[a], to[b]] for a, b in ends)


def _placed(topology: Topology, trees: list[Tree], copies: int) -> tuple:
    """(edges of all chunks, paths, steps, path numbers), as of `_edges` and `listing.place`.

    Where the first way to choose a step's chunks loses more than 1 %, and some order may be
    shorter, another is tried, and what has fewer steps is taken: the integer program if it takes a
    minute at most, else, where 1 % is within reach, copies that are `_rotated`.
    """
    edges, paths = _edges(enumerate(trees))
    slots, kept = quantum(topology.bandwidth), len(paths)
    placed = place(topology, edges, paths, copies, slots)
    chunks = np.repeat(edges, copies, axis=0)
    chunks[:, 0] = chunks[:, 0] * copies + np.tile(np.arange(copies), len(edges))
    found = chunks, paths, *placed
    fullest, any_order = least_steps(topology, edges, paths[:kept], copies, slots)
    if placed[0].max() + 1 <= max(1.01 * fullest, any_order):
        return found
    if sum(map(len, paths[:kept])) * fullest <= _EXACT:
        paths = paths[:kept]
        other = chunks, paths, *place(topology, edges, paths, copies, slots, exact=True)
    elif any_order <= 1.01 * fullest and (turned := _rotated(topology, trees, copies)):
        edges, paths = _edges(turned)
        other = edges, paths, *place(topology, edges, paths, 1, slots)
    else:
        return found
    return min(found, other, key=lambda one: one[2].max())


def quantum(bandwidth: np.ndarray) -> int:
    """Slots per step, 1 to 8, so that links carry whole chunks: the fewest that lose least."""
    lost = [
        (1 - np.maximum(np.floor(bandwidth * q + 1e-9), 1) / (bandwidth * q)).max()
        for q in range(1, _QUANTA + 1)
    ]
    return 1 + next(i for i, part in enumerate(lost) if part <= min(lost) + 0.005)


def _turned(
    gathers: np.ndarray, routes: RouteTable, turn: dict[Way, Way], local: RouteTable | None = None
) -> np.ndarray:
    """Reduce transfers: gathers backwards in time and direction.

    turn : {way: its links in the other direction}, of the routes in `local` (None: in `routes`).
    """
    ways = [way for _, way in (local or routes)]
    names = np.array([routes.number(turn[way]) for way in ways])
    reduces = gathers.copy()
    reduces["op"] = REDUCE
    reduces["src"], reduces["dst"] = gathers["dst"], gathers["src"]
    reduces["step"] = gathers["step"].max() - gathers["step"]
    reduces["route"] = names[gathers["route"]]
    return reduces
