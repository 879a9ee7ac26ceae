"""INCEPTIONN units from floats. Twin of `gradnic.hdl.inceptionn.compressor`."""

import numpy as np

from .bands import bands
from .byte_network import packed
from .lanes import BLOCK, compiled, encode, float_bits, tag_words, whole_groups


def compress(
    x: np.ndarray,
    *,
    exponent: int = 117,
    mode: str = "strict",
    prescale: int = 0,
    rounding: str = "trunc",
    fast: bool | None = None,
) -> bytes:
    """Code `x`, float32 of any shape with at least one value, as one unit; returns bytes.

    Between n / 4 and 4.25 n bytes. Scaled values of 1 and more, Inf and NaN pass with all their
    bits; zeros, denormals and scaled values below the bound become +0. ValueError for another
    dtype, no values or a setting out of range.
    """
    table = bands(exponent, mode, prescale, rounding)
    bits = float_bits(x)
    if twin := compiled(fast):
        return twin.compress(bits, table)
    words, payloads = [], []
    for start in range(0, bits.size, BLOCK):
        tag, payload = encode(whole_groups(bits[start : start + BLOCK]), table)
        words.append(tag_words(tag))
        payloads.append(packed(payload, tag))
    return b"".join(part.tobytes() for part in words + payloads)
