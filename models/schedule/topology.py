"""Networks of nodes and switches: the graphs that schedules, bounds, checker and simulator share.

Vertices 0 .. n_nodes-1 compute; the switches follow. Links are directed, at most one per pair of
vertices and direction. Bandwidths are multiples of the slowest link, which is 1.
"""

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np

from gradnic.text_file import apart, network_file, shown_path

from . import boxes, graph_file
from .foreign_graphs import MAX_LINKS
from .graph_file import check_abilities

MAX_PORTS = 8  # rx/tx pairs of one card
BANDWIDTH = 1e15  # from the inverse of this up to this: far from where products overflow
MAX_SPAN = 1 << 20  # of bandwidths: bounds are exact in 32 bits, and the slowest is the unit


@dataclass(frozen=True, eq=False)
class Topology:
    """A connected directed graph with marked switches.

    Parameters
    ----------
    name : str
        The spelling that made it, such as ``torus:8x8``.
    n_nodes, n_switches : int
        At least 2 nodes; vertices 0 .. n_nodes-1 compute, the others forward.
    links : int32, shape (n_links, 2)
        Source and destination. A node's links are listed in its port order (grids: -, + per axis,
        so north, south, west, east for two dimensions).
    bandwidth : float64, shape (n_links,)
        Greater than 0; divided by the smallest, so that the slowest link is 1. The fastest is at
        most 2**20 times as fast.
    latency : float64, shape (n_links,), cycles, or None; NaN and None: the user's default
    ports : int
        Messages that one node can inject (and, separately, receive) at a time: 1 to 8. None: the
        node's degree on direct networks, at most 8, and 1 where nodes hang on switches.
    shape : tuple of int
        Grid dimensions, () for graphs that are no grid. ``wrap`` tells torus from mesh.
    sums, multicasts : tuple of int
        Switches, by vertex, that add what passes, and that copy it; see `in_network`.
    helpers : int
        Of the nodes, the last so many own nothing: switches that compute, see `in_network`.
    bytes_per_cycle : float or None
        Of the slowest link, at 1 GHz, where the graph's file has a unit. Given: what a bandwidth of
        1 means.
    labels : tuple of str
        What messages call vertices, as their file does; (): their numbers.

    Raises ValueError for fewer than 2 nodes, foreign vertices, loops, duplicates, bandwidths that
    are not positive, and graphs in which some node cannot reach some other.
    """

    name: str
    n_nodes: int
    n_switches: int
    links: np.ndarray
    bandwidth: np.ndarray = None  # type: ignore[assignment]  # an array once it is made
    latency: np.ndarray | None = None
    ports: int = None  # type: ignore[assignment]  # a number once it is made
    shape: tuple = ()
    wrap: bool = False
    sums: tuple = ()
    multicasts: tuple = ()
    helpers: int = 0
    bytes_per_cycle: float | None = None
    labels: tuple = ()

    def __post_init__(self) -> None:
        links = np.asarray(self.links, np.int32).reshape(-1, 2)
        if self.n_nodes < 2:
            raise ValueError(
                f"{self.name}: an all-reduce needs 2 nodes or more, not {self.n_nodes}"
            )
        called = self.labels or range(self.n_vertices)
        _check_links(self.name, links, called)
        bandwidth = np.ones(len(links)) if self.bandwidth is None else self.bandwidth
        bandwidth = np.asarray(bandwidth, np.float64)
        bad = np.flatnonzero(_strange(bandwidth))
        if len(bad):
            (a, b), rate = links[bad[0]], bandwidth[bad[0]]
            raise ValueError(
                f"{self.name}: bandwidth of link {called[a]}-{called[b]} must be "
                f"{1 / BANDWIDTH:g} to {BANDWIDTH:g}, not "
                f"{apart(rate, BANDWIDTH if rate > 1 else 1 / BANDWIDTH)}"
            )
        _check_span(self.name, links, bandwidth, called)
        if self.bytes_per_cycle is not None:
            slowest = float(self.bytes_per_cycle * bandwidth.min())
            object.__setattr__(self, "bytes_per_cycle", slowest)
        for name, value in ("links", links), ("bandwidth", bandwidth / bandwidth.min()):
            value.setflags(write=False)
            object.__setattr__(self, name, value)
        _check_connected(self)
        if self.ports is None:
            degree = int(np.bincount(links[:, 0], minlength=self.n_vertices)[: self.n_nodes].max())
            object.__setattr__(self, "ports", min(degree, MAX_PORTS))
        if not 1 <= self.ports <= MAX_PORTS:
            raise ValueError(f"{self.name}: ports must be 1 to {MAX_PORTS}, not {self.ports}")

    @property
    def n_vertices(self) -> int:
        return self.n_nodes + self.n_switches

    @property
    def n_owners(self) -> int:
        """Nodes that have a gradient and want the sum."""
        return self.n_nodes - self.helpers

    @property
    def n_links(self) -> int:
        return len(self.links)

    def latencies(self, default: float) -> np.ndarray:
        """float64 (n_links,): cycles of each link, `default` where the graph does not say."""
        if self.latency is None:
            return np.full(self.n_links, float(default))
        return np.where(np.isnan(self.latency), default, self.latency)

    @property
    def at_nodes(self) -> np.ndarray:
        """bool (n_links,): links with a node at an end."""
        return self.links.min(axis=1) < self.n_nodes

    def rate_behind(self, port_bytes: float) -> float:
        """Bytes a cycle of all links at nodes whose ports take `port_bytes`: the slowest of those
        at 1 GHz, where bandwidths have a unit, and a port's at most.
        """
        slowest = float(self.bandwidth[self.at_nodes].min())
        return min((self.bytes_per_cycle or math.inf) * slowest, port_bytes)

    def behind(self, port_bytes: float) -> "Topology":
        """The same behind such ports: links at nodes are alike, those between switches as they are.

        Its `bytes_per_cycle` is that of its slowest link.
        """
        rate = self.rate_behind(port_bytes)
        unit = self.bytes_per_cycle or port_bytes / self.bandwidth[self.at_nodes].min()
        speeds = np.where(self.at_nodes, rate, self.bandwidth * unit)
        return replace(
            self, bandwidth=speeds / speeds.min(), bytes_per_cycle=speeds.min(), latency=None
        )

    @property
    def direct(self) -> bool:
        """True where every vertex computes: no switches."""
        return self.n_switches == 0

    @property
    def uneven(self) -> bool:
        """True where some links are faster than others."""
        return bool(self.bandwidth.max() > 1)

    @cached_property
    def out(self) -> list:
        """Per vertex a tuple of (link, destination) in port order."""
        result = [[] for _ in range(self.n_vertices)]
        for link, (a, b) in enumerate(self.links.tolist()):
            result[a].append((link, b))
        return [tuple(part) for part in result]

    @cached_property
    def link_of(self) -> dict[tuple[int, int], int]:
        """{(source, destination): link}."""
        return {(a, b): link for link, (a, b) in enumerate(self.links.tolist())}

    @cached_property
    def reverse(self) -> np.ndarray | None:
        """int32 (n_links,): the link the other way round; None unless all exist, equally fast."""
        back = [self.link_of.get((b, a), -1) for a, b in self.links.tolist()]
        back = np.array(back, np.int32)
        if (back < 0).any() or not np.array_equal(self.bandwidth[back], self.bandwidth):
            return None
        return back

    @property
    def port_limited(self) -> bool:
        """True where a node has more links than ports, so that ports bind before links."""
        return any(len(self.out[v]) > self.ports for v in range(self.n_owners))

    def switch_of(self, node: int) -> int:
        """The switch that a node of a switch network hangs on (its first one)."""
        return next(v for _, v in self.out[node] if v >= self.n_nodes)

    @cached_property
    def hosts(self) -> list[list[int]]:
        """Per switch (index 0 is vertex n_nodes) the nodes with a link from it, ascending."""
        result = [[] for _ in range(self.n_switches)]
        for a, b in self.links.tolist():
            if a >= self.n_nodes and b < self.n_nodes:
                result[a - self.n_nodes].append(b)
        return [sorted(part) for part in result]

    def coordinates(self, node: int) -> tuple[int, ...]:
        """Grid coordinates of a node."""
        return tuple(int(i) for i in np.unravel_index(node, self.shape))

    def reversed(self) -> "Topology":
        """The same graph with every link turned round."""
        return Topology(
            f"{self.name} reversed", self.n_nodes, self.n_switches, self.links[:, ::-1],
            self.bandwidth, self.latency, self.ports, self.shape, self.wrap, self.sums,
            self.multicasts, bytes_per_cycle=self.bytes_per_cycle, labels=self.labels,
        )  # fmt: skip

    def without(
        self, dead_links: Sequence[tuple[int, int]] = (), dead_nodes: Iterable[int] = ()
    ) -> "Topology":
        """The machine that is left; nodes are numbered anew, without gaps.

        dead_links : pairs of vertices, dead in both directions; dead_nodes : vertices.
        ValueError for a link or node that is not there, or if the rest is disconnected.
        """
        dead = set()
        for a, b in dead_links:
            if (a, b) not in self.link_of and (b, a) not in self.link_of:
                raise ValueError(f"{self.name} has no link {a}-{b}")
            dead |= {(a, b), (b, a)}
        gone = set(dead_nodes)
        for v in gone:
            if not 0 <= v < self.n_vertices:
                raise ValueError(f"{self.name} has no vertex {v}")
        if not dead and not gone:
            return self
        kept = [v for v in range(self.n_vertices) if v not in gone]
        new = {v: i for i, v in enumerate(kept)}
        alive = [
            i
            for i, (a, b) in enumerate(self.links.tolist())
            if (a, b) not in dead and a in new and b in new
        ]
        links = [(new[a], new[b]) for a, b in self.links[alive].tolist()]
        n_nodes = sum(v < self.n_nodes for v in kept)
        latency = None if self.latency is None else self.latency[alive]
        marks = [f"-{a}-{b}" for a, b in dead_links] + [f"-{v}" for v in sorted(gone)]
        return Topology(
            self.name + "".join(marks), n_nodes, len(kept) - n_nodes, np.array(links, np.int32),
            self.bandwidth[alive], latency, self.ports,
            sums=tuple(new[v] for v in self.sums if v in new),
            multicasts=tuple(new[v] for v in self.multicasts if v in new),
            bytes_per_cycle=self.bytes_per_cycle,
            labels=tuple(self.labels[v] if self.labels else str(v) for v in kept),
        )  # fmt: skip


def _check_links(name: str, links: np.ndarray, called: Sequence) -> None:
    """called : of each vertex, what messages call it."""
    n_vertices = len(called)
    if len(links) == 0:
        raise ValueError(f"{name} has no links")
    outside = links[(links < 0) | (links >= n_vertices)]
    if len(outside):
        raise ValueError(f"{name}: vertices are 0 to {n_vertices - 1}, a link names {outside[0]}")
    loops = np.flatnonzero(links[:, 0] == links[:, 1])
    if len(loops):
        raise ValueError(f"{name}: vertex {called[links[loops[0], 0]]} has a link to itself")
    pairs, counts = np.unique(links, axis=0, return_counts=True)
    if counts.max() > 1:
        a, b = pairs[counts.argmax()]
        raise ValueError(
            f"{name}: link {called[a]}-{called[b]} is listed twice; add up the bandwidth instead"
        )


def _strange(bandwidth: np.ndarray) -> np.ndarray:
    """Which of them are no bandwidths: not finite, not above 0, or where products overflow."""
    return ~((bandwidth >= 1 / BANDWIDTH) & (bandwidth <= BANDWIDTH))


def _check_span(
    name: str, links: np.ndarray, bandwidth: np.ndarray, called: Sequence, left_out: int = 0
) -> None:
    """Bandwidths must be within a factor that bounds and schedules can bear."""
    if not len(bandwidth) or _strange(bandwidth).any():
        return  # told elsewhere
    low, high = int(bandwidth.argmin()), int(bandwidth.argmax())
    if bandwidth[high] <= MAX_SPAN * bandwidth[low]:
        return
    few, many = (
        f"{bandwidth[i]:g} ({called[links[i, 0]]}-{called[links[i, 1]]})" for i in (low, high)
    )
    why = f"; {left_out} link(s) leave it out, which means 1" if left_out else ""
    raise ValueError(
        f"{name}: bandwidths must be within a factor of {MAX_SPAN} of each other, not "
        f"{few} and {many}{why}"
    )


def check_links(name: str, n_links: int) -> None:
    """ValueError where a graph of so many links, both ways counted, would be too large."""
    if n_links > MAX_LINKS:
        shown = n_links if n_links < 10**15 else "more than 10^15"
        raise ValueError(f"{name} must have at most {MAX_LINKS} links, not {shown}")


def _check_connected(topology: "Topology") -> None:
    """Every node reaches every other: node 0 reaches all, forward and backward.

    Breadth first, each link once: rings have as many levels as nodes.
    """
    for forward in (True, False):
        seen = np.zeros(topology.n_vertices, bool)
        seen[0] = True
        a, b = topology.links.T if forward else topology.links[:, ::-1].T
        first = np.searchsorted(np.sort(a), np.arange(topology.n_vertices + 1))
        ends, front = b[np.argsort(a, kind="stable")], np.array([0])
        while len(front):
            counts = first[front + 1] - first[front]
            at = np.repeat(first[front] - np.cumsum(counts) + counts, counts)
            new = ends[at + np.arange(len(at))]
            front = np.unique(new[~seen[new]])
            seen[front] = True
        lost = np.flatnonzero(~seen[: topology.n_nodes])
        if len(lost):
            called = topology.labels or range(topology.n_vertices)
            a, b = (0, lost[0]) if forward else (lost[0], 0)
            there = set(map(tuple, topology.links.tolist()))
            one_way = sum(pair[::-1] not in there for pair in there)
            why = f"; {one_way} of its links go one way only" if one_way else ""
            raise ValueError(
                f"{topology.name} is disconnected: node {called[a]} cannot reach node "
                f"{called[b]}{why}"
            )


def _both(pairs: Iterable[tuple[int, int]]) -> list[tuple[int, int]]:
    """Each pair in both directions, grouped by source, in the order first mentioned."""
    return [(a, b) for a, b in pairs] + [(b, a) for a, b in pairs]


def grid(shape: tuple[int, ...], *, wrap: bool, name: str | None = None) -> Topology:
    """Torus (`wrap`) or mesh of any dimensions. A wrapped axis of length 2 has one link a pair."""
    name = name or f"{'torus' if wrap else 'mesh'}:{'x'.join(map(str, shape))}"
    n = math.prod(shape)
    check_links(name, sum(2 * n * (k - 1) // k if k <= 2 or not wrap else 2 * n for k in shape))
    links = []
    for node in range(n):
        at = np.unravel_index(node, shape)
        for axis, length in enumerate(shape):
            for move in (-1, 1):
                to = list(at)
                to[axis] += move
                if not 0 <= to[axis] < length and (not wrap or length == 2):
                    continue
                to[axis] %= length
                if to[axis] != at[axis]:
                    links.append((node, int(np.ravel_multi_index(to, shape))))
    return Topology(name, n, 0, np.array(links), shape=tuple(shape), wrap=wrap)


def fattree(arity: int, levels: int) -> Topology:
    """k-ary n-tree: arity**levels nodes, `levels` ranks of arity**(levels-1) switches each.

    Rank 0 holds the nodes; switch w of rank l links to the switches of rank l+1 whose number
    differs in digit l at most. Full bisection.
    """
    n = arity**levels
    row = arity ** (levels - 1)
    check_links(f"fattree:{arity}x{levels}", 2 * n * levels)
    links = []
    for node in range(n):
        links.append((node, n + node // arity))
    for level in range(levels - 1):
        for w in range(row):
            digit = w // arity**level % arity
            for i in range(arity):
                up = w + (i - digit) * arity**level
                links.append((n + level * row + w, n + (level + 1) * row + up))
    return Topology(f"fattree:{arity}x{levels}", n, levels * row, np.array(_both(links)), ports=1)


def bigraph(hosts: int, switches: int) -> Topology:
    """EFLOPS BiGraph: two groups of switches/2, joined fully, `hosts` nodes on each switch.

    Upper switches come first: node = switch * hosts + host port.
    """
    if switches < 2 or switches % 2:
        raise ValueError(f"a BiGraph has an even number of switches, 2 or more, not {switches}")
    n = hosts * switches
    half = switches // 2
    check_links(f"bigraph:{hosts}x{switches}", 2 * (n + half * half))
    links = [(node, n + node // hosts) for node in range(n)]
    links += [(n + u, n + half + w) for u in range(half) for w in range(half)]
    return Topology(f"bigraph:{hosts}x{switches}", n, switches, np.array(_both(links)), ports=1)


def dragonfly(routers: int, global_links: int, hosts: int) -> Topology:
    """Dragonfly: groups of `routers` fully joined, `global_links` per router, `hosts` per router.

    routers * global_links + 1 groups, each pair of groups joined by one link; minimal, canonical.
    """
    groups = routers * global_links + 1
    n = groups * routers * hosts
    name = f"dragonfly:{routers}x{global_links}x{hosts}"
    check_links(name, 2 * n + groups * (routers * (routers - 1) + groups - 1))
    links = [(node, n + node // hosts) for node in range(n)]
    for g in range(groups):
        base = n + g * routers
        links += [(base + a, base + b) for a in range(routers) for b in range(a + 1, routers)]
        for other in range(g + 1, groups):
            mine = (other - 1) // global_links  # links of group g in order of the other group
            theirs = g // global_links
            links.append((base + mine, n + other * routers + theirs))
    return Topology(name, n, groups * routers, np.array(_both(links)), ports=1)


def dgx(hosts: int, boxes: int) -> Topology:
    """Switch boxes: one switch per box with `hosts` nodes; boxes joined pairwise, full bandwidth.

    The trunk between two boxes is as fast as all hosts of a box together.
    """
    n = hosts * boxes
    check_links(f"dgx:{hosts}x{boxes}", 2 * n + boxes * (boxes - 1))
    links = [(node, n + node // hosts) for node in range(n)]
    trunks = [(n + a, n + b) for a in range(boxes) for b in range(a + 1, boxes)]
    bandwidth = np.array([1.0] * n + [float(hosts)] * len(trunks))
    return Topology(
        f"dgx:{hosts}x{boxes}",
        n,
        boxes,
        np.array(_both(links + trunks)),
        np.tile(bandwidth, 2),
        ports=1,
    )


def _boxes(family: str, make: Callable, *sizes: int) -> Topology:
    n_nodes, n_switches, pairs, bandwidth = make(*sizes)
    name = f"{family}:{'x'.join(map(str, sizes))}"
    return Topology(
        name, n_nodes, n_switches, np.array(_both(pairs)), np.array([*bandwidth, *bandwidth])
    )


def full(n: int) -> Topology:
    """Every node linked to every other, directly."""
    check_links(f"full:{n}", n * (n - 1))
    links = [(a, b) for a in range(n) for b in range(n) if a != b]
    return Topology(f"full:{n}", n, 0, np.array(links).reshape(-1, 2))


def load(path: str) -> Topology:
    """The graph in a file, see `graph_file.read`. ValueError names what is wrong."""
    graph = graph_file.read(path)
    name = f"file:{shown_path(path)}"
    check_links(name, len(graph.rows))
    bandwidth = np.array([row[2] for row in graph.rows], np.float64)
    links = np.array([row[:2] for row in graph.rows], np.int64).reshape(-1, 2)
    latency = np.array([row[3] for row in graph.rows])
    called = graph.names or range(graph.n_nodes + graph.n_switches)
    if links.size and 0 <= links.min() <= links.max() < len(called):  # else told elsewhere
        _check_span(name, links, bandwidth, called, graph.left_out)
    return Topology(
        name, graph.n_nodes, graph.n_switches, links, bandwidth,
        None if np.isnan(latency).all() else latency, graph.ports,  # type: ignore[arg-type]
        sums=graph.sums,
        multicasts=graph.multicasts, bytes_per_cycle=1.0 if graph.in_bytes else None,
        labels=graph.names,
    )  # fmt: skip


_FAMILIES: dict[str, tuple[int | None, Callable]] = {
    "torus": (None, lambda *d: grid(d, wrap=True)),
    "mesh": (None, lambda *d: grid(d, wrap=False)),
    "ring": (1, lambda n: grid((n,), wrap=True, name=f"ring:{n}")),
    "hypercube": (1, lambda d: grid((2,) * d, wrap=False, name=f"hypercube:{d}")),
    "fattree": (2, fattree),
    "bigraph": (2, bigraph),
    "dragonfly": (3, dragonfly),
    "dgx": (2, dgx),
    "full": (1, full),
    "nvlink": (3, lambda *sizes: _boxes("nvlink", boxes.nvlink, *sizes)),
    "pcie": (3, lambda *sizes: _boxes("pcie", boxes.pcie, *sizes)),
}


def parse(spelling: str, *, ports: int | None = None, in_network: bool = False) -> Topology:
    """The topology that a spelling names, such as ``torus:8x8`` or ``file:net.json``.

    ``torus:8x8 mesh:4x4 ring:8 hypercube:4 fattree:8x2`` (arity x levels) ``bigraph:4x8`` (hosts
    per switch x switches) ``dragonfly:4x2x2`` (routers, global links, hosts) ``dgx:8x2`` (hosts x
    boxes) ``full:8 nvlink:2x8x8 pcie:2x8x1`` (boxes x GPUs x NICs, see `boxes`) ``file:PATH``.
    ``+sum`` or ``+multicast`` after a size or a path: all its switches can. `ports` overrides the
    ports of every node. in_network : whether switches that can are wanted. ValueError names the
    argument.
    """
    family, _, size = spelling.partition(":")
    if family == "file":
        size, able = network_file(size)
        topology = load(size)
    else:
        size, *able = size.split("+")
        check_abilities(spelling, able)
        if family not in _FAMILIES:
            known = ", ".join([*_FAMILIES, "file"])
            raise ValueError(f"topology must be one of {known} and a size, not {spelling!r}")
        n_sizes, make = _FAMILIES[family]
        words = size.split("x")
        if not all(w.isascii() and w.isdecimal() and int(w) > 0 for w in words):
            raise ValueError(f"the size of {family} must be whole numbers above 0, not {size!r}")
        if n_sizes is not None and len(words) != n_sizes:
            raise ValueError(f"{family} takes {n_sizes} size(s), not {size!r}")
        if math.prod(map(int, words)) > 1 << 20:
            raise ValueError(f"{spelling} is larger than 2^20 nodes")
        topology = make(*map(int, words))
    if able:
        if topology.direct:
            raise ValueError(f"{spelling} has no switches that could {' or '.join(able)}")
        switches = tuple(range(topology.n_nodes, topology.n_vertices))
        topology = replace(
            topology, name="+".join([topology.name, *able]),
            **{f"{word}s": switches for word in dict.fromkeys(able)},
        )  # fmt: skip
    if (topology.sums or topology.multicasts) and not in_network:
        raise ValueError(f"{spelling}: switches that sum or multicast are not known here")
    if ports is not None and ports != topology.ports:
        topology = replace(topology, ports=ports)
    return topology
