"""Sums in the order of ranks: own + rank 0 + rank 1 + ... Twin of
`gradnic.hdl.reduction.summing`.

The order is the schedule's, so that all cards come to the same bits: docs/guide/schedules.md.
"""

from collections.abc import Iterable

import numpy as np

from .reduce import combine


def in_order(own: np.ndarray, contributions: Iterable[np.ndarray], op: str = "float") -> np.ndarray:
    """((own + rank 0) + rank 1) + ..., uint32 lanes in the shape of `own`.

    own : uint32, lanes of a block. contributions : one array of the same shape for each rank, in
    order; none: `own` as it is, bit for bit. op : as of `combine`.
    """
    total = own
    for contribution in contributions:
        total = combine(total, contribution, op)
    return total
