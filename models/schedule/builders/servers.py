"""Sums at chosen nodes: worker-aggregator, flat or in groups, and parameter servers."""

from collections.abc import Iterable, Sequence

import numpy as np

from ..topology import Topology
from .lockstep import Steps
from .rings import ring_lines
from .schedule import GATHER, REDUCE, Schedule


def servers(topology: Topology, *, at: Sequence[int] | None = None, chunks: int = 1) -> Schedule:
    """Parameter servers: every worker sends a part of the tensor straight to each server.

    at : nodes that serve; None: all of them. They work, too: what an aggregator does not have is a
        gradient of zeros. One of them is INCEPTIONN's worker-aggregator (MICRO 2018, figure 1a,
        one level).
    chunks : per server, so that sums go back while others still come.
    ValueError for a server that is no node, or twice.
    """
    n = topology.n_nodes
    at = list(range(n)) if at is None else list(at)
    if not at or len(set(at)) != len(at) or not all(0 <= s < n for s in at):
        raise ValueError(f"servers must be different nodes from 0 to {n - 1}, not {at}")
    if chunks < 1:
        raise ValueError(f"chunks must be 1 or more, not {chunks}")
    steps = Steps(topology)
    n_chunks = len(at) * chunks
    for index, server in enumerate(at):
        for k in range(chunks):
            chunk = index * chunks + k
            for t in range(n - 1):  # no two send to one server in a step, as in a cyclic shift
                worker, to = (server + n - 1 - t) % n, (server + 1 + t) % n
                steps.add(REDUCE, k * (n - 1) + t, [worker], [server], chunk)
                steps.add(GATHER, (k + 1) * (n - 1) + t, [server], [to], chunk)
    roots = np.repeat(at, chunks)
    return steps.schedule("servers", n_chunks, roots)


def grouped_servers(topology: Topology, groups: Sequence[Sequence[int]]) -> Schedule:
    """Worker-aggregator in two levels: groups sum at their first node, and those at the first's.

    groups : sequences of nodes, each node in exactly one; the tensor travels whole. Source:
    INCEPTIONN (MICRO 2018), figure 1a.
    """
    groups = [list(group) for group in groups]
    _check_groups(topology, groups)
    steps = Steps(topology)
    heads = [group[0] for group in groups]
    down = []
    longest = max(map(len, groups)) - 1
    for group in groups:
        for t, worker in enumerate(group[1:]):
            steps.add(REDUCE, t, [worker], [group[0]], 0)
            down.append((longest + 2 * len(heads) - 2 + t, group[0], worker))
    for t, head in enumerate(heads[1:]):
        steps.add(REDUCE, longest + t, [head], [heads[0]], 0)
        down.append((longest + len(heads) - 1 + t, heads[0], head))
    for step, source, to in down:
        steps.add(GATHER, step, [source], [to], 0)
    return steps.schedule("grouped-servers", 1, [heads[0]])


def grouped_rings(topology: Topology, groups: Iterable) -> Schedule:
    """Rings in groups: inside, then of the same parts between groups, then inside again.

    groups : sequences of nodes of one length, each node in exactly one. Source: INCEPTIONN (MICRO
    2018), figures 1b and 1c: its ring in place of every level of aggregators.
    """
    groups = [list(group) for group in groups]
    _check_groups(topology, groups)
    if len({len(group) for group in groups}) != 1 or len(groups[0]) < 2 or len(groups) < 2:
        raise ValueError("rings in groups need 2 or more groups of one size of 2 or more")
    inside = np.array(groups)
    between = inside.T
    n_groups, size = inside.shape
    steps = Steps(topology)
    block = np.arange(size) * n_groups  # of the part that member b of every group sums
    part = block[:, None] + np.arange(n_groups)
    first = np.broadcast_to(block, inside.shape)
    starts = np.cumsum([0, size - 1, n_groups - 1, n_groups - 1])
    ring_lines(steps, REDUCE, starts[0], inside, first, n_groups)
    ring_lines(steps, REDUCE, starts[1], between, part, 1)
    ring_lines(steps, GATHER, starts[2], between, part, 1)
    ring_lines(steps, GATHER, starts[3], inside, first, n_groups)
    return steps.schedule("grouped-rings", inside.size, between.ravel())


def _check_groups(topology: Topology, groups: Iterable[Sequence[int]]) -> None:
    nodes = [node for group in groups for node in group]
    if sorted(nodes) != list(range(topology.n_nodes)) or not all(groups):
        raise ValueError(
            f"groups must hold each of the {topology.n_nodes} nodes exactly once, not {groups}"
        )
