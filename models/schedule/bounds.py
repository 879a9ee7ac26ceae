"""What no schedule can beat: two-phase optimum, node bound, latency floor, overlapped optimum.

Units: shard-slots, M / n_nodes bytes over the slowest link. Sources: the optimum by cuts is
ForestColl's (arXiv 2402.06787); trees in a split of the bandwidth, Edmonds' branchings.
"""

from fractions import Fraction
from typing import Any

import numpy as np
from scipy.sparse import coo_array, csr_array
from scipy.sparse.csgraph import breadth_first_order, dijkstra, maximum_flow

from .in_network import computing
from .topology import Topology

_LP_NODES = 32  # up to here the linear program takes less than a second
_UNITS = 720  # bandwidths are rounded up to multiples of 1/720 of the slowest link


def node_bound(topology: Topology) -> float:
    """Shard-slots per phase that the node with the least ingress needs; float."""
    inwards, _ = _node_bandwidth(topology)
    return (topology.n_nodes - 1) / inwards.min()


def throughput_bound(topology: Topology) -> Fraction:
    """Shard-slots per phase of the best reduce-scatter, then all-gather; Fraction.

    The mean over both phases of max over vertex sets S that miss a node of
    |nodes in S| / bandwidth out of S, exactly. No two-phase schedule takes fewer, and where
    `cuts_are_reached` trees take as many. Found by Newton's method on cuts: a cut proposes a ratio,
    max-flows prove it or return a worse cut.
    """
    forward = worst_cut(topology)
    if topology.reverse is not None:
        return forward
    return (forward + worst_cut(topology.reversed())) / 2


def cuts_are_reached(topology: Topology) -> bool:
    """Whether trees reach `throughput_bound`: all that only passes data on has as much in as out.

    That is each switch, and each node whose ports bind. Edge splitting then keeps every cut
    (ForestColl, arXiv 2402.06787); elsewhere the least cut is a bound, and may be out of reach.
    """
    into, out = (
        np.bincount(topology.links[:, end], topology.bandwidth, topology.n_vertices)
        for end in (1, 0)
    )
    first = 0 if topology.port_limited else topology.n_nodes
    return np.allclose(into[first:], out[first:], rtol=1e-9)


def collective_bound(topology: Topology, name: str, root: int = 0) -> Fraction:
    """Shard-slots that collective `name` needs at least; Fraction.

    Of one way for reduce_scatter and all_gather, and for all_reduce of both, one after the other.
    Reduce and broadcast: the tensor over the least cut between the root and another node
    (Edmonds' branchings reach it, on graphs without switches).
    """
    backward = name in ("reduce_scatter", "reduce")
    if name == "all_reduce":
        return 2 * throughput_bound(topology)
    way = topology.reversed() if backward and topology.reverse is None else topology
    if name in ("reduce_scatter", "all_gather"):
        return worst_cut(way)
    heads, tails, capacity, n = flow_graph(way)
    graph = csr_array((capacity.astype(np.int32), (heads, tails)), shape=(n, n))
    others = [v for v in range(topology.n_nodes) if v != root]
    least = min(maximum_flow(graph, root, v).flow_value for v in others)
    return Fraction(topology.n_nodes * _UNITS, int(least))


def flow_graph(topology: Topology) -> tuple[np.ndarray, np.ndarray, np.ndarray, int]:
    """(heads, tails, capacity in 1/720, vertices): with the ports as links where they bind."""
    a, b = topology.links.T.astype(np.int64)
    capacity = np.ceil(topology.bandwidth * _UNITS - 1e-6).astype(np.int64)
    n = topology.n_vertices
    if topology.port_limited:  # node v's links move to a router n + v behind `ports` unit links
        a = np.where(a < topology.n_nodes, a + n, a)
        b = np.where(b < topology.n_nodes, b + n, b)
        node = np.arange(topology.n_nodes)
        a, b = np.concatenate([a, node, node + n]), np.concatenate([b, node + n, node])
        port = np.full(2 * topology.n_nodes, topology.ports * _UNITS)
        capacity, n = np.concatenate([capacity, port]), n + topology.n_nodes
    return a, b, capacity, n


def worst_cut(topology: Topology) -> Fraction:
    """The cut that bounds an all-reduce from below."""
    n_nodes = topology.n_nodes
    a, b, capacity, n = flow_graph(topology)
    inwards = np.bincount(b, weights=capacity, minlength=n)[:n_nodes].astype(np.int64)
    ratio = Fraction(n_nodes - 1, int(inwards.min()))  # the cut around the narrowest node
    source = n
    heads = np.concatenate([a, np.full(n_nodes, source)])
    tails = np.concatenate([b, np.arange(n_nodes)])
    order = np.argsort(inwards, kind="stable")  # likely bottlenecks first
    proven = 0  # nodes in a row that accept the ratio
    at = 0
    while proven < n_nodes:
        top, bottom = ratio.numerator, ratio.denominator
        largest = max(int(capacity.max()) * top, bottom * n_nodes)
        if largest >= 2**31:
            raise ValueError(
                f"{topology.name}: an exact bound takes bandwidths (in 1/{_UNITS} of the slowest) "
                f"times nodes below 2^31, not {largest}"
            )
        weights = np.concatenate([capacity * top, np.full(n_nodes, bottom)]).astype(np.int32)
        graph = csr_array((weights, (heads, tails)), shape=(n + 1, n + 1))
        while proven < n_nodes:
            sink = int(order[at % n_nodes])
            result = maximum_flow(graph, source, sink)
            if result.flow_value < bottom * n_nodes:
                break
            proven, at = proven + 1, at + 1
        else:
            break
        rest = graph - result.flow
        rest.data = np.maximum(rest.data, 0)
        rest.eliminate_zeros()
        inside = np.zeros(n + 1, bool)
        inside[breadth_first_order(rest, source, return_predecessors=False)] = True
        out = int(capacity[inside[a] & ~inside[b]].sum())
        ratio = Fraction(int(inside[:n_nodes].sum()), out)
        proven = 0
    return ratio * _UNITS


def latency_floor(topology: Topology) -> int:
    """Hops that data must travel in an all-reduce that finishes reducing first: 2 * diameter."""
    a, b = topology.links.T
    graph = csr_array((np.ones(len(a)), (a, b)), shape=(topology.n_vertices,) * 2)
    return 2 * int(_farthest(topology, graph, unweighted=True))


def latency_floor_cycles(topology: Topology, default: float) -> float:
    """Cycles of flight there and back along the longest shortest path; float.

    default : cycles of a link where the topology does not say. Twice the diameter by latency: what
    an all-reduce that finishes reducing first takes at least, whatever its size.
    """
    if topology.latency is None:
        return latency_floor(topology) * float(default)
    a, b = topology.links.T
    shape = (topology.n_vertices,) * 2
    graph = csr_array((topology.latencies(default), (a, b)), shape=shape)  # keeps its zeros
    return 2 * float(_farthest(topology, graph))


def _farthest(topology: Topology, graph: Any, **options: Any) -> float:
    """The longest of the shortest ways between nodes; a few hundred nodes at a time, for memory."""
    nodes = np.arange(topology.n_nodes)
    return max(
        dijkstra(graph, indices=some, **options)[:, nodes].max()
        for some in np.array_split(nodes, -(-len(nodes) // 256))
    )


def _node_bandwidth(topology: Topology) -> list[np.ndarray]:
    """Ingress and egress bandwidth of every node, ports counted; float64 (n_nodes,) each."""
    result = []
    for end in 1, 0:
        total = np.bincount(topology.links[:, end], topology.bandwidth, topology.n_vertices)
        total = total[: topology.n_nodes]
        if topology.port_limited:
            total = np.minimum(total, topology.ports)
        result.append(total)
    return result


def overlapped_cap(topology: Topology) -> float:
    """All-reduce bandwidth that no schedule exceeds; float.

    Each node must send and receive the tensor once. Where no switch sums, every element is received
    2 (N - 1) times; where none multicasts, it is sent as often. Where one can, each cut between
    nodes must still carry one sum each way.
    """
    inwards, outwards = _node_bandwidth(topology)
    caps = [inwards.min(), outwards.min()]
    for ability, total in (topology.sums, inwards), (topology.multicasts, outwards):
        if not ability:
            caps.append(total.sum() / (2 * (topology.n_nodes - 1)))
    if topology.sums or topology.multicasts:
        caps.append(_least_cut(topology))
    return float(min(caps))


def _least_cut(topology: Topology) -> float:
    """Bandwidth over the least cut between two nodes, of both ways."""
    heads, tails, capacity, n = flow_graph(topology)
    graph = csr_array((capacity.astype(np.int32), (heads, tails)), shape=(n, n))
    flows = [
        maximum_flow(graph, *ends).flow_value
        for v in range(1, topology.n_nodes)
        for ends in ((0, v), (v, 0))
    ]
    return min(flows) / _UNITS


def bandwidth_bound(topology: Topology) -> float:
    """The least known bound on any schedule's all-reduce bandwidth: cap, or optimum if small."""
    cap = overlapped_cap(topology)
    if topology.n_nodes > _LP_NODES:
        return cap
    try:
        return min(cap, overlapped_optimum(topology) * (1 + 1e-9))  # the solver's tolerance
    except ValueError:  # bandwidths too far apart for its floats
        return cap


def overlapped_optimum(topology: Topology) -> float:
    """All-reduce bandwidth of the best schedule with both phases overlapped; float.

    Linear program: bandwidth of every link is split between reducing and gathering so that both
    have trees for the same rate from every root; switches neither add nor copy but where they can
    (`in_network`), and start trees, too, where they can. On graphs whose links go both ways
    equally, and whose switches do, reducing is taken as gathering reversed (the mean of a solution
    and its reversal is one). Size: n_nodes * n_links variables; meant for up to 64 nodes.
    """
    topology = computing(topology)
    a, b, capacity, n = flow_graph(topology)
    pairs = {(int(x), int(y)): i for i, (x, y) in enumerate(zip(a, b, strict=True))}
    back = np.array([pairs.get((int(y), int(x)), -1) for x, y in zip(a, b, strict=True)])
    if (back < 0).any() or (capacity[back] != capacity).any():
        back = None
    if set(topology.sums) != set(topology.multicasts):
        back = None
    return _solve(topology, n, a, b, capacity, back)


def _solve(
    topology: Topology, n: int, a: np.ndarray, b: np.ndarray, capacity: np.ndarray,
    back: np.ndarray | None,
) -> float:  # fmt: skip
    """Variables: rate of each root, then per direction the share of each link and the flows."""
    n_nodes, n_owners, n_links = topology.n_nodes, topology.n_owners, len(a)
    two = 1 if back is not None else 2
    per = n_links + n_owners * n_links  # shares, then flows to each target
    n_vars = n_nodes + two * per
    equal, upper = _Rows(), _Rows()
    for side in range(two):
        tails, heads = (a, b) if side == 0 else (b, a)
        share = n_nodes + side * per
        for target in range(n_owners):
            flow = share + n_links * (target + 1) + np.arange(n_links)
            rows = equal.more(n)  # inflow - outflow + rate = 0, but at the target: all rates
            equal.add(rows + heads, flow, 1)
            equal.add(rows + tails, flow, -1)
            equal.add(rows + np.arange(n_nodes), np.arange(n_nodes), 1)
            equal.add(rows + target, np.arange(n_nodes), -1)
            rows = upper.more(n_links)  # flow <= share
            upper.add(rows + np.arange(n_links), flow, 1)
            upper.add(rows + np.arange(n_links), share + np.arange(n_links), -1)
        forks = topology.multicasts if side == 0 else topology.sums
        plain = np.arange(n) >= n_owners  # they pass on as much as they get
        plain[list(forks)] = False
        rows = equal.more(plain.sum()) + np.cumsum(plain) - 1
        for end, sign in (heads, 1), (tails, -1):
            at = plain[end]
            equal.add(rows[end[at]], share + np.flatnonzero(at), sign)
    rows = upper.more(n_links)  # both directions together <= capacity
    upper.add(rows + np.arange(n_links), n_nodes + np.arange(n_links), 1)
    other = n_nodes + back if back is not None else n_nodes + per + np.arange(n_links)
    upper.add(rows + np.arange(n_links), other, 1)
    limits = np.zeros(upper.n)
    limits[-n_links:] = capacity / _UNITS
    cost = np.zeros(n_vars)
    cost[:n_nodes] = -1
    from scipy.optimize import linprog  # half a second to load, and few commands need it

    result = linprog(
        cost, upper.matrix(n_vars), limits, equal.matrix(n_vars), np.zeros(equal.n),
        method="highs-ipm",
    )  # fmt: skip
    if not result.success:
        raise ValueError(f"the linear program failed: {result.message}")
    return float(-result.fun)


class _Rows:
    """Entries of a sparse constraint matrix while it grows."""

    def __init__(self) -> None:
        self.n = 0
        self._parts = []

    def more(self, n: int) -> int:
        """Number of the first of `n` new rows."""
        self.n += n
        return self.n - n

    def add(self, rows: Any, columns: Any, value: float) -> None:
        rows, columns = np.broadcast_arrays(rows, columns)
        self._parts.append((rows, columns, np.full(rows.shape, float(value))))

    def matrix(self, n_columns: int) -> Any:
        rows, columns, values = (np.concatenate(p) for p in zip(*self._parts, strict=True))
        return coo_array((values, (rows, columns)), shape=(self.n, n_columns)).tocsr()
