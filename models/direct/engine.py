"""What rows send: a chunk's own words and all that has landed of it, in the order of ranks."""

from collections.abc import Iterable, Iterator

import numpy as np

from gradnic.interface.flit import FLIT_FLOATS

from ..reduction.summing import in_order


def partial_sum(own: np.ndarray, landed: Iterable[np.ndarray], op: str = "float") -> np.ndarray:
    """((own + rank 0) + rank 1) + ..., whatever landed first: uint32, all of one shape.

    op : as of `gradnic.models.reduction.reduce.combine`.
    """
    return in_order(own, landed, op)


def port_words(chunks: list[np.ndarray], n_flits: list[int]) -> Iterator[tuple]:
    """Words of a job as a port is given them: (uint32 (n_lanes,), flits of it, ends the job).

    chunks : words of each chunk, uint32 (n_words, n_lanes). n_flits : of each chunk; all words but
    its last one are full.
    """
    for at, (words, left) in enumerate(zip(chunks, n_flits, strict=True)):
        full = words.shape[1] // FLIT_FLOATS
        for k, word in enumerate(words):
            ends = k == len(words) - 1
            yield word, left - k * full if ends else full, ends and at == len(chunks) - 1
