"""The rotation of THC without its signs: an integer Walsh-Hadamard transform."""

import numpy as np


def hadamard(x: np.ndarray) -> np.ndarray:
    """Natural-order Walsh-Hadamard transform of each row, in place. x: int32 (n_blocks, B)."""
    n_blocks, size = x.shape
    length = 1
    while length < size:
        pairs = x.reshape(n_blocks, size // (2 * length), 2, length)
        difference = pairs[:, :, 0] - pairs[:, :, 1]
        pairs[:, :, 0] += pairs[:, :, 1]
        pairs[:, :, 1] = difference
        length *= 2
    return x
