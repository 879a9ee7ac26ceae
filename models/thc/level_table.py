"""Packed THC indices as levels on their way into an adder, and sums as wide as it has them.

An adder has sums of 8 bits, or of 16 for jobs whose packets carry 12 or 16. All are bytes as in a
packet, most significant bit first; of what is not whole bytes the rest is zero bits.
"""

import numpy as np

from .bit_packer import pack, unpack


def inside_bits(width: int) -> int:
    """Bits of a sum in the adder, of a job whose packets carry so many: 8, 12 or 16."""
    return 8 if width == 8 else 16


def levels(octets: bytes, table: np.ndarray, bits: int, width: int) -> bytes:
    """Indices of `bits` bits as their levels, `inside_bits(width)` bits each.

    table : integers from 0 to 255, 2**bits of them.
    """
    indices = unpack(octets, bits, 8 * len(octets) // bits)
    return pack(np.asarray(table)[indices], inside_bits(width))


def widened(octets: bytes, width: int) -> bytes:
    """Sums of `width` bits in `inside_bits(width)` bits each."""
    return pack(unpack(octets, width, 8 * len(octets) // width), inside_bits(width))


def narrowed(octets: bytes, width: int) -> bytes:
    """Inverse of `widened`. ValueError for a sum that does not fit."""
    inside = inside_bits(width)
    return pack(unpack(octets, inside, 8 * len(octets) // inside), width)
