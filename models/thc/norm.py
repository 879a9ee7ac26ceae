"""The norm of a THC block: exact, and the same in whatever order its elements come.

Ours: the paper's norm is real-valued. 17-bit mantissas are aligned to the largest exponent of the
block, squared and summed as integers, of which the root is taken. Subnormals count as zero.
"""

import numpy as np

from .floats import INFINITE, split


def block_norms(rows: np.ndarray) -> np.ndarray:
    """Norm of each row: FP32 bits, uint32 (n_blocks,), rounded down.

    rows : float32, shape (n_blocks, B), B at most 4096. An aligned mantissa loses less than 2**-16
    of the largest value. 0 where no value is a normal number, or the norm is none; Inf where a
    value or the norm is not finite.
    """
    _, exponent, mantissa = split(rows)
    top = exponent.max(axis=1)
    shift = np.minimum(top[:, None] - exponent + 7, 63)
    aligned = mantissa >> shift
    square = np.einsum("ij,ij->i", aligned, aligned)
    _, length = np.frexp(square.astype(np.float64))  # exact: square < 2**46
    k = (48 - length) & ~1
    scaled = square << k
    root = np.sqrt(scaled.astype(np.float64)).astype(np.int64)
    root -= root * root > scaled
    result_exponent = top + 7 - k // 2
    bits = (result_exponent.astype(np.int64) << 23 | root & 0x7FFFFF).astype(np.uint32)
    bits[(result_exponent < 1) | (top == 0)] = 0
    bits[(top == 255) | (result_exponent >= 255)] = INFINITE
    return bits
