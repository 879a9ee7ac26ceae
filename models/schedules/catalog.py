"""Names of the algorithms, and what each takes."""

import numpy as np

from .dbtree import dbtree
from .halving import halving, hdrm
from .multitree import multitree
from .rings import bidirectional, ring, ring2d

ALGORITHMS = {
    "ring": "one-way ring",
    "bidirectional": "half of every shard each way round the ring",
    "ring2d": "rings along rows and columns of a 2D grid, both axes busy",
    "dbtree": "double binary tree, pipelined",
    "halving": "halving-doubling, rank = node number",
    "hdrm": "halving-doubling with rank mapping, on BiGraphs",
    "multitree": "MultiTree, one tree per node and chunk",
}
_CHUNKED = {"ring": 1, "bidirectional": 2, "ring2d": 2, "dbtree": 1, "multitree": 1}


def build(topology, algorithm, *, chunks=None, order=None, rule="full", seed=0):
    """The Schedule of a named algorithm on a topology; same arguments, same schedule.

    chunks : chunks per shard, None for the algorithm's own; order, rule : of MultiTree.
    ValueError where the algorithm does not fit the topology or the arguments.
    """
    if algorithm not in ALGORITHMS:
        raise ValueError(f"algorithm must be one of {', '.join(ALGORITHMS)}, not {algorithm!r}")
    if chunks is not None and chunks < 1:
        raise ValueError(f"chunks must be 1 or more, not {chunks}")
    if algorithm in ("halving", "hdrm"):
        if chunks not in (None, 1):
            raise ValueError(
                f"{algorithm} sends ranges of whole shards: chunks must be 1, not {chunks}"
            )
        return {"halving": halving, "hdrm": hdrm}[algorithm](topology)
    chunks = _CHUNKED[algorithm] if chunks is None else chunks
    if algorithm == "multitree":
        order = order or ("center" if rule == "release" else "ascending")
        rng = np.random.default_rng(seed)
        return multitree(topology, chunks=chunks, order=order, rule=rule, rng=rng)
    return {"ring": ring, "bidirectional": bidirectional, "ring2d": ring2d, "dbtree": dbtree}[
        algorithm
    ](topology, chunks=chunks)
