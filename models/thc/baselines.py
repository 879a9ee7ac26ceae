"""Gradient compressors of others, to measure against: what a value becomes, not how it travels.

Each takes one worker's gradient, shape (n,), and a random generator, and returns the float64
estimate that its receiver holds; of zeros it is zeros. Rotations are full-length randomized
Hadamard transforms, drawn for each worker.
"""

import math
from collections.abc import Callable
from functools import cache

import numpy as np

from .hadamard import hadamard

Compress = Callable[[np.ndarray, np.random.Generator], np.ndarray]  # of a gradient: its estimate


def rotate(
    x: np.ndarray, rng: np.random.Generator
) -> tuple[np.ndarray, Callable[[np.ndarray], np.ndarray]]:
    """Randomized Hadamard transform of x, a power of two long. Returns it and its inverse."""
    if x.ndim != 1 or x.size.bit_count() != 1:
        raise ValueError(f"x must have shape (n,), n a power of two, not {x.shape}")
    signs = rng.choice([-1.0, 1.0], x.size)

    def inverse(y: np.ndarray) -> np.ndarray:
        return hadamard(y[None].copy())[0] / math.sqrt(x.size) * signs

    return hadamard((x * signs)[None])[0] / math.sqrt(x.size), inverse


def _round_at_random(x: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    low = np.floor(x)
    return low + (rng.random(x.shape) < x - low)


@cache
def lloyd_max(bits: int, n_steps: int = 2000) -> np.ndarray:
    """Centroids of the best scalar quantizer of N(0,1) with 2**bits levels (Max 1960)."""
    n = 2**bits
    levels = np.linspace(-1, 1, n) * min(3, bits + 0.5)
    for _ in range(n_steps):
        edges = np.concatenate([[-np.inf], (levels[1:] + levels[:-1]) / 2, [np.inf]])
        cdf = np.array([(1 + math.erf(e / math.sqrt(2))) / 2 for e in edges])
        pdf = np.exp(-np.square(edges) / 2) / math.sqrt(2 * math.pi)
        levels = (pdf[:-1] - pdf[1:]) / (cdf[1:] - cdf[:-1])
    levels.setflags(write=False)  # all callers have the same
    return levels


def length(x: np.ndarray) -> float:
    """Euclidean norm, added in one order: BLAS's depends on its threads."""
    return math.sqrt(np.square(x).sum())


def eden(bits: int) -> Compress:
    """EDEN (Vargaftik et al., ICML 2022): rotate, nearest Lloyd-Max level, unbiased scale."""
    levels = lloyd_max(bits)
    edges = (levels[1:] + levels[:-1]) / 2

    def compress(x: np.ndarray, rng: np.random.Generator) -> np.ndarray:
        rotated, inverse = rotate(x, rng)
        norm = length(x)
        if not norm:
            return np.zeros(x.shape)
        coded = levels[np.searchsorted(edges, rotated * (math.sqrt(x.size) / norm))]
        return inverse(coded * (norm**2 / (rotated * coded).sum()))

    return compress


def min_max(bits: int, *, rotated: bool) -> Compress:
    """Uniform levels from the least to the greatest value, rounded at random."""

    def compress(x: np.ndarray, rng: np.random.Generator) -> np.ndarray:
        values, inverse = rotate(x, rng) if rotated else (x, lambda y: y)
        low, high = values.min(), values.max()
        unit = (high - low) / (2**bits - 1) or 1.0  # of values that are all alike
        return inverse(low + unit * _round_at_random((values - low) / unit, rng))

    return compress


def float_magnitudes(exponent_bits: int, mantissa_bits: int) -> np.ndarray:
    """All magnitudes of a small float format of OCP Microscaling 1.0: E2M1, E3M2 or E4M3.

    None of them has an infinity; in E4M3 the highest code is NaN, and left out.
    """
    code = np.arange(2 ** (exponent_bits + mantissa_bits))
    exponent, mantissa = np.divmod(code, 2**mantissa_bits)
    normal = exponent > 0
    significand = mantissa / 2**mantissa_bits + normal
    magnitudes = significand * np.exp2(exponent + ~normal - (2.0 ** (exponent_bits - 1) - 1))
    return magnitudes[:-1] if (exponent_bits, mantissa_bits) == (4, 3) else magnitudes


def microscaled(x: np.ndarray, exponent_bits: int = 2, mantissa_bits: int = 1) -> np.ndarray:
    """Values of an MX format (OCP Microscaling 1.0): 32 floats share a power of two; ties to even.

    MXFP4 is E2M1, MXFP6 here E3M2, MXFP8 here E4M3.
    """
    if x.size % 32:
        raise ValueError(f"x must hold a multiple of 32 values, not {x.size}")
    magnitudes = float_magnitudes(exponent_bits, mantissa_bits)
    blocks = x.reshape(-1, 32)
    largest = np.abs(blocks).max(axis=1, keepdims=True)
    top = np.floor(np.log2(magnitudes[-1]))
    scale = np.exp2(np.floor(np.log2(np.where(largest > 0, largest, 1))) - top)
    scaled = np.abs(blocks) / scale
    edges = (magnitudes[1:] + magnitudes[:-1]) / 2
    below, above = np.searchsorted(edges, scaled), np.searchsorted(edges, scaled, side="right")
    code = np.where(below % 2 == 0, below, above)  # a tie goes to the even code
    return (np.copysign(magnitudes[code], blocks) * scale).reshape(x.shape)


def microscaling(exponent_bits: int, mantissa_bits: int, *, rotated: bool = False) -> Compress:
    """`microscaled` values, of the gradient or of its rotation."""

    def compress(x: np.ndarray, rng: np.random.Generator) -> np.ndarray:
        values, inverse = rotate(x, rng) if rotated else (x, lambda y: y)
        return inverse(microscaled(values, exponent_bits, mantissa_bits))

    return compress


def qsgd(levels: int, norm: str) -> Compress:
    """QSGD (Alistarh et al., NeurIPS 2017): sign, and |x| over a norm rounded at random."""
    lengths = {"l2": length, "max": lambda x: np.abs(x).max()}
    length_of = lengths[norm]

    def compress(x: np.ndarray, rng: np.random.Generator) -> np.ndarray:
        whole = length_of(x) or 1.0
        return np.sign(x) * whole / levels * _round_at_random(np.abs(x) / whole * levels, rng)

    return compress


def terngrad(x: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    """TernGrad (Wen et al., NeurIPS 2017), without its clipping: -max, 0 or max."""
    largest = np.abs(x).max() or 1.0
    return np.sign(x) * largest * (rng.random(x.shape) < np.abs(x) / largest)


def top_k(share: float) -> Compress:
    """The largest `share` of the values by magnitude; the rest is zero."""

    def compress(x: np.ndarray, rng: np.random.Generator) -> np.ndarray:
        del rng
        k = max(1, round(share * x.size))
        kept = np.zeros_like(x)
        largest = np.argpartition(np.abs(x), -k)[-k:]
        kept[largest] = x[largest]
        return kept

    return compress


def block_min_max(bits: int, block: int = 256) -> Compress:
    """`min_max` levels of each block of values, without rotation; what requantizing hops send."""

    def compress(x: np.ndarray, rng: np.random.Generator) -> np.ndarray:
        if x.size > block and x.size % block:
            raise ValueError(f"x must hold a multiple of {block} values, not {x.size}")
        values = x.reshape(-1, min(block, x.size))
        low = values.min(axis=1, keepdims=True)
        unit = (values.max(axis=1, keepdims=True) - low) / (2**bits - 1)
        safe = np.where(unit > 0, unit, 1)
        return (low + unit * _round_at_random((values - low) / safe, rng)).reshape(x.shape)

    return compress


def scaled_sign(x: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    """Sign of each value times their mean magnitude (EF-SignSGD, Karimireddy et al., ICML 2019)."""
    del rng
    return np.where(x < 0, -1.0, 1.0) * np.abs(x).mean()


def truncated(values: np.ndarray, bits: int) -> np.ndarray:
    """float32 with so many low bits cut off, 1 to 24; infinities and NaN stay. Same shape.

    INCEPTIONN's own baseline, at 16, 22 and 24 bits (MICRO 2018). 24 takes the exponent's last bit
    along: values are halved where it is set.
    """
    if not 1 <= bits <= 24:
        raise ValueError(f"bits cut off must be 1 to 24, not {bits!r}")
    values = np.ascontiguousarray(values, np.float32)
    cut = values.view(np.uint32) & np.uint32((1 << 32) - (1 << bits))
    return np.where(np.isfinite(values), cut.view(np.float32), values)
