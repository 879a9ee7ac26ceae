"""Names of the algorithms, and what each takes."""

import numpy as np

from ..topology import Topology
from .bfb import bfb
from .dbtree import dbtree
from .forest import forest
from .halving import halving, hdrm
from .hierarchical import hierarchical
from .in_network import in_network
from .multitree import multitree
from .rings import bidirectional, ring, ring2d, ring2d_serial
from .schedule import Schedule
from .search import best, multistart, overlapped
from .shift import shift

ALGORITHMS = {
    "ring": "one-way ring",
    "bidirectional": "half of every shard each way round the ring",
    "ring2d": "rings along rows and columns of a 2D grid, both axes busy",
    "ring2d-serial": "the same with one axis at a time, both ways round: MultiTree's baseline",
    "hierarchical": "rings inside boxes of nodes on one switch, and between boxes, pipelined",
    "dbtree": "double binary tree, pipelined",
    "halving": "halving-doubling, rank = node number",
    "hdrm": "halving-doubling with rank mapping, on BiGraphs",
    "multitree": "MultiTree, one tree per node and chunk",
    "shift": "one-port MultiTree in closed form, trees of depth 1, on switch networks",
    "multistart": "MultiTree with 2 chunks, the best of 9 root orders",
    "bfb": "breadth-first broadcast, balanced hop by hop, on direct networks",
    "forest": "ForestColl's optimum: spanning trees that fill what binds; any balanced network",
    "in_network": "one tree for both ways through switches that sum and multicast, periodic",
    "best": "the schedule with fewest slots that can be built here",
    "overlapped": "phases overlapped in a periodic table where that beats any two-phase one",
}
CHUNKED = {  # what shards can be cut for, and into how many unless told
    "ring": 1,
    "bidirectional": 2,
    "ring2d": 2,
    "ring2d-serial": 2,
    "hierarchical": 4,
    "dbtree": 1,
    "multitree": 1,
    "multistart": 2,
    "bfb": 4,
}
_MOST_MESSAGES = 1 << 25  # of a schedule: 4,096 nodes with one chunk a shard; 0.8 KB each
_PLAIN = {
    "ring": ring, "bidirectional": bidirectional, "ring2d": ring2d,
    "ring2d-serial": ring2d_serial, "hierarchical": hierarchical, "dbtree": dbtree, "bfb": bfb,
}  # fmt: skip
# What a machine needs for an algorithm to be at its best, of `Network`; else its defaults.
# Pipelined chunks arrive out of table order, and one reader a node would wait for each in turn.
ISSUE = {"dbtree": {"order": "port", "window": 64}}


def build(
    topology: Topology,
    algorithm: str,
    *,
    chunks: int | None = None,
    order: str | None = None,
    rule: str = "full",
    seed: int = 0,
) -> Schedule:
    """The Schedule of a named algorithm on a topology; same arguments, same schedule.

    chunks : chunks per shard, None for the algorithm's own; order, rule : of MultiTree.
    ValueError where the algorithm does not fit the topology or the arguments.
    """
    if algorithm not in ALGORITHMS:
        raise ValueError(f"algorithm must be one of {', '.join(ALGORITHMS)}, not {algorithm!r}")
    check_work(topology, chunks, whole=algorithm in ("halving", "hdrm"))
    if algorithm in ("halving", "hdrm", "shift"):
        if chunks not in (None, 1):
            raise ValueError(f"{algorithm} sends whole shards: chunks must be 1, not {chunks}")
        return {"halving": halving, "hdrm": hdrm, "shift": shift}[algorithm](topology)
    if algorithm == "forest":
        return forest(topology, chunks=chunks)
    if algorithm == "in_network":
        return in_network(topology, chunks=chunks)
    if algorithm in ("best", "overlapped"):
        return {"best": best, "overlapped": overlapped}[algorithm](
            topology, chunks=chunks, seed=seed
        )
    chunks = CHUNKED[algorithm] if chunks is None else chunks
    if algorithm == "multitree":
        order = order or ("center" if rule == "release" else "ascending")
        rng = np.random.default_rng(seed)
        return multitree(topology, chunks=chunks, order=order, rule=rule, rng=rng)
    if algorithm == "multistart":
        return multistart(topology, chunks=chunks, seed=seed)
    return _PLAIN[algorithm](topology, chunks=chunks)


def check_work(topology: Topology, chunks: int | None, *, whole: bool = False) -> None:
    """Every chunk reaches every node, up and down: ValueError where that is too much to list.

    chunks : per shard, None counts as 1. whole : shards travel many at a time, few messages.
    """
    chunks = 1 if chunks is None else chunks
    if chunks < 1:
        raise ValueError(f"chunks must be 1 or more, not {chunks}")
    one = 2 * topology.n_nodes * (topology.n_nodes - 1)
    if one > _MOST_MESSAGES and not whole:
        raise ValueError(
            f"{topology.name} has {topology.n_nodes} nodes, whose schedule would be {one} "
            f"messages; at most {_MOST_MESSAGES}, as of 4096 nodes"
        )
    if one * chunks > _MOST_MESSAGES and not whole:
        raise ValueError(
            f"chunks must be at most {_MOST_MESSAGES // one} on {topology.name}, not {chunks}: a "
            f"schedule is at most {_MOST_MESSAGES} messages"
        )
