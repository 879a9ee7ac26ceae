"""Size of a packet's values as eight bits: what the tagger compares with a threshold.

Twin of `gradnic.hdl.transport.tag_score`. Magnitudes are DLCP's (arXiv 2008.08445) and MLT's (NSDI
2024); which one, and its eight bits, are ours.
"""

import numpy as np


def max_score(floats: np.ndarray) -> int:
    """Largest biased exponent of float32 values: 0 to 255; 0 for none. Subnormals count as 0."""
    bits = np.ascontiguousarray(floats, np.float32).view(np.uint32)
    return int((bits >> np.uint32(23) & np.uint32(0xFF)).max(initial=0))


def sum_score(floats: np.ndarray, unit: int) -> int:
    """8-bit logarithm of the sum of |g|, in units of 2**(unit - 127).

    Each value counts with its upper 16 bits of significand, shifted down to whole units; values
    of 2**16 units and more, Inf and NaN count 65535. The sum s is coded as s itself below 8, else
    as 8 * (place of its highest bit - 2) + the three bits behind that: monotonous, within 1/8.
    unit : int, biased exponent, 0 to 255. Up to 4096 values, so that s has 28 bits.
    """
    bits = np.ascontiguousarray(floats, np.float32).view(np.uint32)
    exponent = (bits >> np.uint32(23) & np.uint32(0xFF)).astype(np.int64)
    significand = (bits >> np.uint32(8) & np.uint32(0x7FFF) | np.uint32(0x8000)).astype(np.int64)
    shift = 15 + unit - exponent
    fixed = np.where(shift < 0, 0xFFFF, significand >> np.clip(shift, 0, 16))
    fixed[(exponent == 0) | (shift > 15)] = 0
    return code(int(fixed.sum()))


def code(total: int) -> int:
    """8-bit logarithm of a 28-bit sum, see `sum_score`."""
    if total < 8:
        return total
    top = total.bit_length() - 1
    return (top - 2) * 8 + (total >> top - 3 & 7)
