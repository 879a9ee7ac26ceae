"""Rings: one direction, both directions, and rings along both axes of a grid at once."""

from collections.abc import Callable

import numpy as np

from ..topology import Topology
from .lockstep import Steps
from .schedule import GATHER, REDUCE, Schedule


def cycle(topology: Topology) -> list[int]:
    """Order of the nodes around the ring: neighbors where the graph has such a cycle to offer.

    Grids: back and forth through the rows, home along column 0 (one long way home on meshes with
    both sides odd); hypercubes in Gray code; BiGraphs switch by switch, upper and lower in turn;
    all others in their numbers' order.
    """
    n, shape = topology.n_nodes, topology.shape
    family = topology.name.split(":")[0]
    if family == "bigraph" and len(topology.hosts) * len(topology.hosts[0]) == n:
        half = topology.n_switches // 2
        turns = [s for pair in zip(range(half), range(half, 2 * half), strict=True) for s in pair]
        return [node for s in turns for node in topology.hosts[s]]
    if len(shape) == 2 and min(shape) > 1:
        rows, columns = shape
        return _grid_cycle(rows, columns, topology.wrap)
    if len(shape) > 1:
        return _snake(shape)
    return list(range(n))


def _grid_cycle(rows: int, columns: int, wrap: bool) -> list[int]:
    if rows % 2 == 0:
        away = [
            r * columns + c
            for r in range(rows)
            for c in (range(1, columns) if r % 2 == 0 else range(columns - 1, 0, -1))
        ]
        return [*away, *(r * columns for r in reversed(range(rows)))]
    if columns % 2 == 0 or (wrap and rows < columns):
        return [node % rows * columns + node // rows for node in _grid_cycle(columns, rows, wrap)]
    if wrap:  # both odd: each row once around, `west` rows more to one side than to the other
        order, c = [], 0
        for r in range(rows):
            move = -1 if 2 * r < rows + columns else 1
            order += [r * columns + (c + move * i) % columns for i in range(columns)]
            c = (c - move) % columns
        return order
    return _snake((rows, columns))


def _snake(shape: tuple[int, ...]) -> list[int]:
    """All grid points, each a neighbor of the one before (reflected counting)."""
    points = [()]
    for length in shape:
        points = [
            (*p, i)
            for turn, p in enumerate(points)
            for i in (range(length) if turn % 2 == 0 else reversed(range(length)))
        ]
    return np.ravel_multi_index(np.array(points).T, shape).tolist()


def ring(topology: Topology, *, chunks: int = 1) -> Schedule:
    """One-way ring, 2(N-1) steps, k chunks of a shard per message. Shard r ends at node r."""
    steps = Steps(topology)
    order = np.array(cycle(topology))
    for op, start in (REDUCE, 0), (GATHER, topology.n_nodes - 1):
        ring_lines(steps, op, start, order[None], order[None] * chunks, chunks)
    n_chunks = topology.n_nodes * chunks
    shard = np.arange(n_chunks) // chunks
    return steps.schedule("ring", n_chunks, shard, shard * chunks)


def bidirectional(topology: Topology, *, chunks: int = 2) -> Schedule:
    """Half of every shard each way round: half the slots. `chunks` per shard is even."""
    if chunks % 2:
        raise ValueError(f"a bidirectional ring needs an even number of chunks, not {chunks}")
    steps = Steps(topology)
    order = np.array(cycle(topology))
    n, half = topology.n_nodes, chunks // 2
    for op, start in (REDUCE, 0), (GATHER, n - 1):
        ring_lines(steps, op, start, order[None], order[None] * chunks, half)
        ring_lines(steps, op, start, order[None, ::-1], order[None, ::-1] * chunks + half, half)
    chunk = np.arange(n * chunks)
    return steps.schedule("bidirectional", n * chunks, chunk // chunks, chunk - chunk % half)


def ring2d(topology: Topology, *, chunks: int = 2) -> Schedule:
    """Rings along rows, then columns, for one half; columns, then rows, for the other.

    Every node of a 2D grid ends with its shard: chunks/2 of it in each half. Both axes are busy all
    the time.
    """
    return _rings2d("ring2d", topology, chunks, lambda grid: ((grid, grid.T), (grid.T, grid)))


def ring2d_serial(topology: Topology, *, chunks: int = 2) -> Schedule:
    """Rings along rows, then columns; one half one way round, the other half the other way.

    One axis is busy at a time: as fast as `ring2d` on tori, half as fast on meshes, whose lines
    have no second way round.

    Source: the 2D torus all-reduce of Ying et al. (2018), MultiTree's (ISCA 2021) baseline. That it
    goes both ways is read off the totals of its authors' simulator, 136,886 cycles for 2 MiB on a
    4x4 torus and 250,822 on a mesh; ours are within 4 % of both.
    """

    def halves(grid: np.ndarray) -> tuple:
        return (grid, grid.T), (grid[:, ::-1], grid[::-1].T)

    return _rings2d("ring2d-serial", topology, chunks, halves)


def _rings2d(name: str, topology: Topology, chunks: int, halves: Callable) -> Schedule:
    """Two halves of every shard. halves(grid) : of each the lines of the first rings, and those of
    the second, of which line j holds node j of each of the first.

    The message of a step of the first rings is a whole line of shards, so chunk numbers run along
    the second lines first.
    """
    if len(topology.shape) != 2 or min(topology.shape) < 2:
        raise ValueError(f"a 2D ring needs a torus or mesh of two dimensions, not {topology.name}")
    if chunks % 2:
        raise ValueError(f"a 2D ring needs an even number of chunks, not {chunks}")
    n, half = topology.n_nodes, chunks // 2
    steps = Steps(topology)
    longest = max(topology.shape) - 1  # steps that each of the four stages is given
    roots = np.empty(n * chunks, np.int64)
    for part, (lines, across) in enumerate(halves(np.arange(n).reshape(topology.shape))):
        n_lines, length = lines.shape
        block = part * n * half + np.arange(length) * n_lines * half  # of place b of a first line
        first = np.broadcast_to(block, lines.shape)
        shard = np.empty(n, np.int64)  # of each node
        shard[lines.T] = block[:, None] + np.arange(n_lines) * half
        for i in range(half):
            roots[shard + i] = np.arange(n)
        ring_lines(steps, REDUCE, 0, lines, first, n_lines * half)
        ring_lines(steps, REDUCE, longest, across, shard[across], half)
        ring_lines(steps, GATHER, 2 * longest, across, shard[across], half)
        ring_lines(steps, GATHER, 3 * longest, lines, first, n_lines * half)
    return steps.schedule(name, n * chunks, roots, np.arange(n * chunks) // half * half)


def ring_lines(
    steps: Steps,
    op: int,
    start: int,
    lines: np.ndarray,
    first: np.ndarray,
    count: int,
    every: int = 1,
) -> None:
    """One ring along every row of `lines`; block b, `count` chunks from first[i, b], ends at b.

    every : steps from one of its steps to the next.
    """
    _n_lines, length = lines.shape
    onward = np.roll(lines, -1, axis=1)
    for s in range(length - 1):
        block = (np.arange(length) - s - (op == REDUCE)) % length
        steps.add(
            op, start + s * every, lines.ravel(), onward.ravel(), first[:, block].ravel(), count
        )
