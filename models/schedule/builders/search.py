"""The best schedule that can be built here: several builders and starts, judged by slots."""

import contextlib
import math
from collections.abc import Callable, Iterator
from fractions import Fraction
from typing import Any

import numpy as np

from ..bounds import overlapped_cap, throughput_bound
from ..topology import Topology
from .bfb import bfb, distances
from .forest import STEPS, forest
from .halving import halving, hdrm
from .in_network import in_network
from .multitree import multitree
from .packing import Packing
from .placing import place_trees
from .rings import bidirectional, ring
from .schedule import Schedule

_LONGEST_PERIOD = 16  # steps; longer periods come closer to the optimum, with more trees
_MOST_TREES = 1024  # of a period; packing takes seconds, a table has twice as many rows a node
_NEAR = 0.01  # above the bound, of ForestColl's trees: no other is tried then
_AIM = 0.009  # what more chunks are to bring
_MOST_STEPS = 8 * STEPS  # of a phase of them


def multistart(topology: Topology, *, chunks: int = 2, starts: int = 8, seed: int = 0) -> Schedule:
    """MultiTree from the plain and `starts` random root and neighbor orders; the fewest slots."""
    tries = [multitree(topology, chunks=chunks)]
    for start in range(starts):
        rng = np.random.default_rng([seed, start])
        tries.append(multitree(topology, chunks=chunks, order="random", rng=rng))
    return min(tries, key=lambda schedule: schedule.slots_total)


def best(topology: Topology, *, chunks: int | None = None, seed: int = 0) -> Schedule:
    """The two-phase schedule with the fewest slots; where switches sum and multicast, `in_network`
    if that takes fewer.

    One message per link and step, but in `forest` through switches and on uneven links, which
    share longer steps. Of equals the first. Tried until one meets the bound, or comes within 1 % of
    it through switches: MultiTree, rings, halving-doubling and HDRM with one chunk per shard, then
    ForestColl's trees, of as many chunks as bring them near; then for k = 2, 3, 4 (or just
    `chunks`) MultiTree, BFB and MultiTree from 9 starts. The starts are left out above 64 nodes,
    and above 256 nodes every k but 1 and the forest unless asked for. On direct links the forest
    comes last: up to 64 nodes, and on uneven ones up to 128 where nothing else is within 1 %.
    """
    bound = 2 * float(throughput_bound(topology))
    found: Any = None
    for make in _candidates(topology, chunks, seed):
        try:
            schedule = make()
        except ValueError:  # the algorithm does not fit the topology
            continue
        shares = schedule.algorithm == "forest" and (topology.uneven or not topology.direct)
        if schedule.shares_links and not shares:
            continue
        if found is None or schedule.slots_total < found.slots_total - 1e-9:
            found = schedule
        trees = found.algorithm == "forest" and not topology.direct
        near = 1 + _NEAR if trees else 1 + 1e-9
        if found.slots_total <= bound * near:
            break
    large = topology.direct and topology.uneven and 64 < topology.n_nodes <= 128
    if large and found is not None and found.slots_total > bound * (1 + _NEAR):
        with contextlib.suppress(ValueError):  # links that go one way may not suit it
            return min(found, forest(topology, chunks=chunks), key=lambda one: one.slots_total)
    return found


def _candidates(topology: Topology, chunks: int | None, seed: int) -> Iterator[Callable]:
    n = topology.n_nodes
    if topology.sums and topology.multicasts:
        yield lambda: in_network(topology, chunks=chunks)
    counts = [1, 2, 3, 4] if n <= 64 else [1, 2, 4] if n <= 256 else [1]
    switched = not topology.direct and (n <= 256 or chunks)
    for k in counts if chunks is None else [chunks]:
        yield lambda k=k: multitree(topology, chunks=k)
        if k == 1:
            yield lambda: hdrm(topology)
            yield lambda: halving(topology)
            yield lambda: ring(topology)
        if switched and k == (chunks or 1):
            yield lambda: _fewest_trees(topology, chunks)
        if k == 2:
            yield lambda: bidirectional(topology)
        yield lambda k=k: bfb(topology, chunks=k)
        if n <= 64:
            yield lambda k=k: multistart(topology, chunks=k, seed=seed)
    if topology.direct and topology.n_nodes <= 64:
        yield lambda: forest(topology, chunks=chunks)


def _fewest_trees(topology: Topology, chunks: int | None) -> Schedule:
    """ForestColl's trees of `chunks`; None: of the fewest of these that come within 1 % of the
    bound: one of each tree, as many as `forest` takes, and up to eight times as many. Filling the
    trees takes as many steps, however many follow.
    """
    if chunks is not None:
        return forest(topology, chunks=chunks)
    bound = 2 * float(throughput_bound(topology))
    found = last = forest(topology, steps=1)
    steps = STEPS
    while found.slots_total > bound * (1 + _NEAR):
        schedule = forest(topology, steps=steps)
        if steps > STEPS and schedule.chunks == last.chunks:  # as many as a table may have
            break
        found = min(found, schedule, key=lambda one: one.slots_total)
        if steps == _MOST_STEPS:
            break
        over = schedule.slots_total / bound - 1
        last, steps = schedule, min(_MOST_STEPS, math.ceil(steps * max(over / _AIM, 1.1)))
    return found


def overlapped(topology: Topology, *, chunks: int | None = None, seed: int = 0) -> Schedule:
    """The schedule with most bandwidth: periodic trees with both phases at once, or `best`.

    C spanning trees with every edge in at most P of them give a periodic schedule of bandwidth C /
    P; P is at most 16. The trees are packed exactly, so on meshes the optimum of the linear program
    is reached (8 / 5 on 4x4, 16 / 9 on 8x8). `best` is returned where it has as much bandwidth
    without a fill and drain: tori, switch networks, ports that bind, one-way links.

    chunks : chunks per shard of the whole table; a multiple of C / gcd(C, N). None: about 64
    repeats. ValueError where links are so uneven that one step would take more than 1,024 trees.
    """
    limit = overlapped_cap(topology) * (1 - 1e-9)
    two_phase = topology.n_nodes / (2 * float(throughput_bound(topology)))
    fits = topology.direct and topology.reverse is not None and not topology.port_limited
    if not fits or two_phase >= limit:
        found = best(topology, chunks=chunks, seed=seed)
        if not fits or found.steady_bandwidth >= limit:
            return found
        two_phase = found.steady_bandwidth
    if limit > _MOST_TREES:
        raise ValueError(
            f"{topology.name}: overlapped sends a tree per unit of the slowest link's bandwidth, "
            f"here up to {limit:.0f} in a step; at most {_MOST_TREES}"
        )
    period, trees = _pack(topology, limit)
    if len(trees) / period <= two_phase * (1 + 1e-9):
        return best(topology, chunks=chunks, seed=seed)
    c = len(trees)
    share = Fraction(topology.n_nodes, c)  # repeats per chunk of a shard
    if chunks is None:
        repeats = -(-64 // share.numerator) * share.numerator
    elif (chunks * share).denominator > 1:
        raise ValueError(f"chunks must be a multiple of {share.denominator} here, not {chunks}")
    else:
        repeats = int(chunks * share)
    return place_trees("overlapped", topology, trees, period=period, repeats=repeats, lag=1)


def _pack(topology: Topology, limit: float) -> tuple[int, list]:
    """(period, trees) of most trees per step; of equals the shortest period."""
    links = topology.links.tolist()
    edges = [(a, b) for a, b in links if a < b]
    copies = [int(topology.bandwidth[i] + 1e-9) for i, (a, b) in enumerate(links) if a < b]
    center = _centers(topology)
    result = (1, [])
    for period in range(1, min(_LONGEST_PERIOD, max(1, int(_MOST_TREES / limit))) + 1):
        for count in range(int(limit * period + 1e-6), 0, -1):
            if count * result[0] <= len(result[1]) * period:
                break
            packing = Packing(topology.n_nodes, edges, [period * c for c in copies], count)
            packing.grow([center[i % len(center)] for i in range(count)])
            if packing.complete():
                result = period, [packing.tree(i) for i in range(count)]
                break
    return result


def _centers(topology: Topology) -> list[int]:
    """The nodes from which the farthest other is nearest."""
    far = distances(topology).max(axis=1)
    return np.flatnonzero(far == far.min()).tolist()
