"""What a codec saves and what it costs: three ratios, the mean squared and the largest error.

- value ratio: 32 bits against tag and payload bits of the values alone;
- payload ratio: 4 bytes a float against coded bytes, padding of the last group included;
- wire ratio: whole frames, one coded packet for one raw packet, with a 64-byte head, the 60-byte
  minimum, and 24 bytes of frame check sequence, preamble and gap.

Against BF16, which a user would send otherwise, each is half of the ratio against FP32: a sender of
BF16 fills its packets just as full.
"""

from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from .bands import SIZES
from .lanes import coded_sizes, image, tags

HEAD = 64  # bytes before the payload of a gradnic frame
SHORTEST = 60  # bytes of the shortest frame, without the frame check sequence
AROUND = 24  # frame check sequence 4, preamble 8, gap 12
FLOATS = 336  # floats of a packet whose worst coding still fits an MTU of 1500


def frame_bytes(payload: ArrayLike, head: int = HEAD) -> np.ndarray:
    """Bytes that a frame with `payload` bytes (array or int) takes on the wire, gap included."""
    return np.maximum(head + np.asarray(payload), SHORTEST) + AROUND


def ratios(
    x: np.ndarray, *, exponent: int = 117, prescale: int = 0, n_floats: int = FLOATS
) -> dict[str, float | list[float]]:
    """Ratios of `x`, float32 of any shape, cut into packets of `n_floats`.

    Returns a dict: value_ratio, payload_ratio, wire_ratio against FP32; bf16_value_ratio and so on
    against BF16; tag_shares, the shares of tags 0 to 3.
    """
    sizes = coded_sizes(x, n_floats, exponent=exponent, prescale=prescale)
    counts = np.bincount(tags(x, exponent=exponent, prescale=prescale).ravel(), minlength=4)
    n = int(counts.sum())
    floats = np.minimum(n_floats, n - n_floats * np.arange(sizes.size))
    wire = float(frame_bytes(4 * floats).sum() / frame_bytes(sizes).sum())
    value = 32 * n / int((counts * (2 + 8 * SIZES.astype(int))).sum())
    payload = 4 * n / int(sizes.sum())
    return {
        "value_ratio": value,
        "payload_ratio": payload,
        "wire_ratio": wire,
        "bf16_value_ratio": value / 2,
        "bf16_payload_ratio": payload / 2,
        "bf16_wire_ratio": wire / 2,
        "tag_shares": [float(c / n) for c in counts],
    }


def fidelity(x: np.ndarray, coded: np.ndarray) -> tuple[float, float]:
    """NMSE and largest absolute error of `coded` against `x`, over the finite values of `x`.

    Returns (nmse, max_abs_error). NMSE is the summed squared error over the summed square, 0 where
    `x` is all zero. ValueError if the shapes differ.
    """
    if np.shape(x) != np.shape(coded):
        raise ValueError(f"arrays differ in shape: {np.shape(x)} and {np.shape(coded)}")
    x, coded = np.ravel(x).astype(np.float64), np.ravel(coded).astype(np.float64)
    finite = np.isfinite(x)
    x, coded = x[finite], coded[finite]
    peak = float(np.abs(x).max(initial=0))
    if peak == 0:
        return 0.0, float(np.abs(coded).max(initial=0))
    error = np.abs(x - coded)
    return float(((error / peak) ** 2).sum() / ((x / peak) ** 2).sum()), float(error.max())


def inceptionn_stats(
    x: np.ndarray,
    *,
    exponent: int = 117,
    mode: str = "strict",
    prescale: int = 0,
    rounding: str = "trunc",
    n_floats: int = 336,
) -> dict[str, Any]:
    """`ratios` of `x` with nmse, max_abs_error and bound, ``2 ** (exponent - 127 - prescale)``."""
    coded = image(x, exponent=exponent, mode=mode, prescale=prescale, rounding=rounding)
    nmse, worst = fidelity(x, coded)
    return {
        **ratios(x, exponent=exponent, prescale=prescale, n_floats=n_floats),
        "nmse": nmse,
        "max_abs_error": worst,
        "bound": 2.0 ** (exponent - 127 - prescale),
    }
