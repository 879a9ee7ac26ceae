"""BF16 in memory and on the wire: the high half of a float32, rounded to nearest even.

Twin of `gradnic.hdl.axi.bf16`. Every NaN becomes 0x7FC0, as every NaN sum is 0x7FC00000; overflow
rounds to infinity, subnormals are kept.
"""

import numpy as np

NAN = 0x7FC0


def widen(words: np.ndarray) -> np.ndarray:
    """float32 of BF16 words, uint16, of the same shape: exact. ValueError for what is no words."""
    words = np.asarray(words)
    if words.dtype.newbyteorder("=") != np.uint16:
        raise ValueError(f"words must be uint16, not {words.dtype}")
    return (words.astype(np.uint32) << 16).view(np.float32)


def narrow(values: np.ndarray) -> np.ndarray:
    """BF16 words, uint16, of float32 values of the same shape: to nearest, ties to even."""
    values = np.ascontiguousarray(values, np.float32)
    bits = values.view(np.uint32).astype(np.uint64)
    rounded = (bits + 0x7FFF + (bits >> 16 & 1)) >> 16
    return np.where(np.isnan(values), NAN, rounded).astype(np.uint16)


def image(values: np.ndarray) -> np.ndarray:
    """float32 values as they come back from BF16."""
    return widen(narrow(values))
