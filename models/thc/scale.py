"""Floats over their block's norm, as fixed point: what THC rotates.

Of a block of B = 2**(2 * h) elements, sigma is norm / sqrt(B), and a value becomes value / sigma,
with F fraction bits. Ours: the paper's arithmetic is real-valued.
"""

import numpy as np

from .floats import split

F = 8  # fraction bits of a value scaled to sigma = 1


def factors_of_norms(norms: np.ndarray, h: int) -> tuple[np.ndarray, np.ndarray]:
    """What scales each block, of its norm: (factor, exponent offset), int64, shape of `norms`.

    norms : uint32 FP32 bits. The factor is floor(2**39 / the norm's mantissa), 17 bits. A value is
    (its 17-bit mantissa times the factor) >> (offset - its exponent).
    """
    _, exponent, mantissa = split(norms.view(np.float32))
    factor = (1 << 39) // np.maximum(mantissa, 1 << 23)
    return factor.astype(np.int64), (exponent + 32 - h - F).astype(np.int64)


def factors_of_scales(scales: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The same of 1 / sigma itself, float32: its mantissa is the factor, cut to 16 bits."""
    _, exponent, mantissa = split(scales)
    return (mantissa >> 8).astype(np.int64), (285 - F - exponent).astype(np.int64)


def scale(rows: np.ndarray, factors: np.ndarray, offsets: np.ndarray, h: int) -> np.ndarray:
    """Rows over their sigma as fixed point with F fraction bits: int32, shape (n_blocks, B).

    rows : float32. factors, offsets : (n_blocks,). Ties go away from zero; magnitudes end at
    2**(h + F), which is the norm; subnormals are 0.
    """
    sign, exponent, mantissa = split(rows)
    product = (mantissa >> 7) * factors[:, None]
    shift = offsets[:, None] - exponent
    limit = 1 << (h + F)
    safe = np.clip(shift, 1, 62)
    scaled = np.minimum(product + (np.int64(1) << (safe - 1)) >> safe, limit)
    scaled[shift < 1] = limit
    scaled[(shift >= 62) | (exponent == 0)] = 0
    scaled = scaled.astype(np.int32)
    return np.negative(scaled, out=scaled, where=sign)
