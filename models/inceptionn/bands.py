"""The tag decision of the INCEPTIONN codec and all that follows from it, as tables over exponents.

This is the one place of the models that knows where a band begins and ends; another reading of the
paper's 8/16 rule would change this file alone. Source: MICRO 2018 as reconstructed from secondary
accounts; in strict mode the 8-bit magnitude is aligned to the top of its band.
"""

import operator
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np

ZERO, BYTE, HALF, RAW = range(4)  # tags: nothing follows, 8 bits, 16 bits, the float itself
SIZES = np.array([0, 1, 2, 4], np.uint8)  # payload bytes of each tag
GROUP = 8  # floats that share a tag word
EXPONENTS = range(113, 127)
MODES = ("strict", "paper")
ROUNDINGS = ("trunc", "nearest")


@dataclass(frozen=True, eq=False)
class Bands:
    """Tables of one setting. Those indexed by ``bits >> 23`` (sign and exponent) have 512 entries.

    tag : uint8, ZERO, BYTE, HALF or RAW
    shift : uint32, 0..31, right shift of the 24-bit significand that leaves the magnitude
    half : uint32, added before the shift; all 0 where rounding is ``trunc``
    ones : uint32, largest magnitude, 127 or 32767; 0 where no magnitude is sent
    sign : uint32, the payload's sign bit in place
    keep : uint32, bits of the float that survive coding (before rounding up)
    cap : uint32, largest float of the band as bits, with sign
    value : uint32, (65792,): floats that the 256 codes of BYTE, then the 65536 of HALF, stand for
    """

    tag: np.ndarray
    shift: np.ndarray
    half: np.ndarray
    ones: np.ndarray
    sign: np.ndarray
    keep: np.ndarray
    cap: np.ndarray
    value: np.ndarray


def check_exponent(exponent: int) -> int:
    """`exponent` as int; ValueError unless 113..126 (a strict band holds at most 7 exponents)."""
    if not _integer(exponent) or int(exponent) not in EXPONENTS:
        raise ValueError(f"exponent must be an integer from 113 to 126, not {exponent!r}")
    return int(exponent)


def check_prescale(prescale: int) -> int:
    """`prescale` as int; ValueError unless it fits a signed byte."""
    if not _integer(prescale) or not -128 <= int(prescale) <= 127:
        raise ValueError(f"prescale must be an integer from -128 to 127, not {prescale!r}")
    return int(prescale)


def check_mode(mode: str, rounding: str = "trunc") -> None:
    """Raise ValueError unless the two go together: ``nearest`` exists in strict mode only."""
    if mode not in MODES:
        raise ValueError(f"mode must be 'strict' or 'paper', not {mode!r}")
    if rounding not in ROUNDINGS:
        raise ValueError(f"rounding must be 'trunc' or 'nearest', not {rounding!r}")
    if mode == "paper" and rounding != "trunc":
        raise ValueError(f"rounding must be 'trunc' in paper mode, not {rounding!r}")


def _integer(value: Any) -> bool:
    try:
        return not isinstance(value, bool) and operator.index(value) is not None
    except TypeError:
        return False


def bands(
    exponent: int = 117, mode: str = "strict", prescale: int = 0, rounding: str = "trunc"
) -> Bands:
    """The `Bands` of one setting, made once per process. ValueError for a setting out of range."""
    check_mode(mode, rounding)
    return _bands(check_exponent(exponent), mode, check_prescale(prescale), rounding)


@lru_cache(maxsize=256)
def _bands(exponent: int, mode: str, prescale: int, rounding: str) -> Bands:
    middle = exponent + ((128 - exponent) >> 1)  # first scaled exponent of the 16-bit band
    top = (
        middle - 1 if mode == "strict" else 126
    )  # scaled exponent of the 8-bit magnitude's top bit
    e = np.arange(256)
    x = e + prescale
    tag = np.select(
        [(e == 255) | ((e > 0) & (x >= 127)), (e == 0) | (x < exponent), x < middle],
        [RAW, ZERO, BYTE],
        HALF,
    )
    is_byte, is_half = tag == BYTE, tag == HALF
    shift = np.select([is_byte, is_half], [17 + top - x, 9 + 126 - x], 31)
    half = np.where((is_byte | is_half) & (rounding == "nearest"), 1 << (shift - 1), 0)
    ones = np.select([is_byte, is_half], [127, 32767], 0)
    sign = np.select([is_byte, is_half], [1 << 7, 1 << 15], 0)
    kept = ~((1 << shift) - 1) & 0xFFFFFFFF
    keep = np.select([tag == RAW, (is_byte | is_half) & (shift < 24)], [0xFFFFFFFF, kept], 0)
    # the top of a band: its top exponent, and six or fourteen ones below the leading one
    cap = np.select(
        [is_byte, is_half],
        [(top - prescale << 23) | 0x3F << 17, (126 - prescale << 23) | 0x3FFF << 9],
        0x7FFFFFFF,
    )
    negative = 1 << 31
    value = np.concatenate([_values(7, top - prescale), _values(15, 126 - prescale)])
    tables: dict[str, Any] = {
        "tag": np.tile(tag, 2).astype(np.uint8),
        "shift": np.tile(shift, 2).astype(np.uint32),
        "half": np.tile(half, 2).astype(np.uint32),
        "ones": np.tile(ones, 2).astype(np.uint32),
        "sign": np.concatenate([0 * sign, sign]).astype(np.uint32),
        "keep": np.tile(keep, 2).astype(np.uint32),
        "cap": np.concatenate([cap, cap | negative]).astype(np.uint32),
        "value": value,
    }
    for array in tables.values():
        array.setflags(write=False)
    return Bands(**tables)


def _values(width: int, top: int) -> np.ndarray:
    """Float bits of every code of a `width`-bit magnitude whose top bit has exponent `top`."""
    mag = np.arange(1 << width, dtype=np.int64)
    zeros = width - np.ceil(np.log2(mag + 1)).astype(np.int64)  # leading zeros
    e = top - zeros
    mantissa = (mag << (24 - width + zeros)) & 0x7FFFFF
    bits = np.where((mag == 0) | (e < 1), 0, (e << 23) | mantissa)
    return np.concatenate([bits, np.where(bits == 0, 0, bits | 1 << 31)]).astype(np.uint32)
