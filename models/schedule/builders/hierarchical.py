"""Rings inside boxes, between them, and inside again, the parts of a shard one behind the other."""

from collections.abc import Iterator

import numpy as np

from ..topology import Topology
from .lockstep import Steps
from .rings import ring_lines
from .schedule import GATHER, REDUCE, Schedule

_FINE = 4  # numbers of steps to the shorter of the two kinds, while stages are placed


def hierarchical(topology: Topology, *, chunks: int = 4) -> Schedule:
    """Rings in boxes: boxes sum inside, then the same parts between them, and back the same way.

    chunks : of a shard, a pipeline: while one is between boxes the next one is inside, over other
    links. Boxes are the nodes whose fastest link leads to the same switch, such as GPUs of an
    NVLink island; every node completes its shard. Steps are in the order of time that links'
    bandwidths give, so that a row waits as little as it can.
    ValueError unless there are two boxes or more, of two nodes or more each and equal in size.

    Source: BlueConnect (Cho et al., MLSys 2019), with rings on both levels.
    """
    inside = _boxes(topology)
    across = inside.T
    n_boxes, size = inside.shape
    steps = Steps(topology)
    block = np.arange(size) * n_boxes  # of the part that member b of every box sums
    first = np.broadcast_to(block, inside.shape)
    shard = block[:, None] + np.arange(n_boxes)
    times = [_step_time(steps, inside, n_boxes), _step_time(steps, across, 1)]
    every = [max(1, round(_FINE * time / min(times))) for time in times]
    stages = (  # rings on which level
        (0, REDUCE, inside, first, n_boxes),
        (1, REDUCE, across, shard, 1),
        (1, GATHER, across, shard, 1),
        (0, GATHER, inside, first, n_boxes),
    )
    lengths = [every[level] * (lines.shape[1] - 1) for level, _, lines, *_ in stages]
    for stage, part, start in _pipeline([level for level, *_ in stages], lengths, chunks):
        level, op, lines, chunk, count = stages[stage]
        base = part * inside.size
        ring_lines(steps, op, start, lines, chunk + base, count, every[level])
    roots = np.tile(across.ravel(), chunks)
    schedule = steps.schedule("hierarchical", inside.size * chunks, roots)
    step = schedule.transfers["step"]
    step[:] = np.unique(step, return_inverse=True)[1]  # without those in which nothing begins
    return schedule


def _boxes(topology: Topology) -> np.ndarray:
    """Nodes of each box, an array (boxes, nodes of one)."""
    boxes = {}
    for v in range(topology.n_nodes):
        _, to = max(topology.out[v], key=lambda way: topology.bandwidth[way[0]])
        boxes.setdefault(to, []).append(v)
    sizes = {len(nodes) for nodes in boxes.values()}
    if min(boxes) < topology.n_nodes or len(boxes) < 2 or len(sizes) > 1 or sizes == {1}:
        raise ValueError(
            "hierarchical needs two boxes or more, alike in size, of nodes that share a switch, "
            f"not {topology.name}"
        )
    return np.array(list(boxes.values()))


def _step_time(steps: Steps, lines: np.ndarray, count: int) -> float:
    """Of a step of rings along `lines` with `count` chunks a message: that of the fullest link."""
    topology = steps.topology
    load = np.zeros(topology.n_links)
    for line in lines.tolist():
        for a, b in zip(line, line[1:] + line[:1], strict=True):
            load[list(steps.path(a, b))] += count
    return float((load / topology.bandwidth).max())


def _pipeline(levels: list[int], lengths: list[int], n_parts: int) -> Iterator[tuple]:
    """(stage, part, start) of stages one behind the other, of which each level does one at a time:
    the one that can begin first; of equals the earliest stage.
    """
    free, ready = [0, 0], dict.fromkeys(range(n_parts), (0, 0))  # a part's next stage, since when
    while ready:
        start, stage, part = min(
            (max(free[levels[stage]], since), stage, part) for part, (stage, since) in ready.items()
        )
        yield stage, part, start
        end = free[levels[stage]] = start + lengths[stage]
        ready[part] = stage + 1, end
        if stage + 1 == len(levels):
            del ready[part]
