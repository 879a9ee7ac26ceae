"""FP32 values as the arithmetic of THC takes them apart."""

import numpy as np

INFINITE = np.uint32(0x7F800000)
QUIET_NAN = np.uint32(0x7FC00000)


def split(x: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Sign (bool), biased exponent (int32) and mantissa with hidden one (int64) of FP32 values."""
    bits = x.view(np.uint32)
    exponent = (bits >> np.uint32(23) & np.uint32(0xFF)).astype(np.int32)
    mantissa = (bits & np.uint32(0x7FFFFF) | np.uint32(0x800000)).astype(np.int64)
    mantissa[exponent == 0] = 0  # denormals count as zero
    return bits >> np.uint32(31) != 0, exponent, mantissa
