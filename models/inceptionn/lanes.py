"""Value path of the INCEPTIONN codec: tags, payloads and images.

Twin of `gradnic.hdl.inceptionn.lanes`.

Settings and the unit's format: `gradnic.models.inceptionn`.
"""

from functools import cache
from importlib import import_module
from importlib.util import find_spec
from types import ModuleType

import numpy as np

from .bands import GROUP, HALF, RAW, SIZES, ZERO, Bands, bands

BLOCK = 1 << 15  # floats per step of a loop: what the second-level cache holds; multiple of GROUP


def image(
    x: np.ndarray,
    *,
    exponent: int = 117,
    mode: str = "strict",
    prescale: int = 0,
    rounding: str = "trunc",
) -> np.ndarray:
    """What one pass through the codec makes of `x`, ``decompress(compress(x))``, in its shape.

    A mask on the bits of each float (and a rounding carry that stops at the top of the band): what
    the owner of a reduced block applies before it sends the block round, so that all replicas are
    equal. Of no floats there are none: a chunk of a short tensor may be empty.
    """
    table = bands(exponent, mode, prescale, rounding)
    bits = float_bits(x, least=0)
    out = np.empty_like(bits)
    for start in range(0, bits.size, BLOCK):
        part = bits[start : start + BLOCK]
        se = part >> np.uint32(23)
        kept = part & table.keep[se] if rounding == "trunc" else _rounded(part, se, table)
        out[start : start + BLOCK] = kept
    return out.view(np.float32).reshape(np.shape(x))


def tags(x: np.ndarray, *, exponent: int = 117, prescale: int = 0) -> np.ndarray:
    """Tag of every float, uint8 in the shape of `x`: 0 nothing, 1 a byte, 2 two, 3 the float."""
    table = bands(exponent, "strict", prescale)
    return table.tag[float_bits(x, least=0) >> np.uint32(23)].reshape(np.shape(x))


def coded_size(x: np.ndarray, *, exponent: int = 117, prescale: int = 0) -> int:
    """Bytes of `compress(x)`, without coding: mode and rounding do not change it."""
    n_floats = float_bits(x).size
    return int(coded_sizes(x, n_floats, exponent=exponent, prescale=prescale)[0])


def coded_sizes(
    x: np.ndarray, n_floats: int, *, exponent: int = 117, prescale: int = 0
) -> np.ndarray:
    """Bytes of each coded unit when `x` is cut into packets of `n_floats`; the last may be shorter.

    Returns int64, shape (ceil(x.size / n_floats),).
    """
    if not isinstance(n_floats, int | np.integer) or n_floats < 1:
        raise ValueError(f"n_floats must be an integer of at least 1, not {n_floats!r}")
    table = bands(exponent, "strict", prescale)
    bits = float_bits(x)
    payload = SIZES[table.tag[bits >> np.uint32(23)]]
    starts = np.arange(0, bits.size, n_floats)
    counts = np.minimum(n_floats, bits.size - starts)
    return np.add.reduceat(payload, starts, dtype=np.int64) + 2 * -(-counts // GROUP)


def float_bits(x: np.ndarray, *, least: int = 1) -> np.ndarray:
    """Bits of `x`, uint32, flat; ValueError for another dtype or fewer than `least` values."""
    x = np.asarray(x)
    if x.dtype.kind != "f" or x.dtype.itemsize != 4:
        raise ValueError(f"floats must be float32, not {x.dtype}")
    if x.size < least:
        raise ValueError(f"floats must be at least {least}, not shape {x.shape}")
    return np.ascontiguousarray(x, np.float32).reshape(-1).view(np.uint32)


def whole_groups(bits: np.ndarray) -> np.ndarray:
    """`bits` with zeros behind them, up to a whole group."""
    return np.pad(bits, (0, -bits.size % GROUP)) if bits.size % GROUP else bits


def encode(bits: np.ndarray, table: Bands) -> tuple[np.ndarray, np.ndarray]:
    """Tag and payload (uint32, the low bytes count) of every float."""
    se = bits >> np.uint32(23)
    tag = table.tag[se]
    significand = (bits & np.uint32(0x7FFFFF)) | np.uint32(0x800000)
    mag = np.minimum(significand + table.half[se] >> table.shift[se], table.ones[se])
    return tag, np.where(tag == RAW, bits, mag | table.sign[se])


def decode(tag: np.ndarray, payload: np.ndarray, table: Bands) -> np.ndarray:
    """Float bits of every lane from its tag and payload."""
    code = payload + np.where(tag == HALF, np.uint32(256), np.uint32(0))  # BYTE codes come first
    coded = np.where((tag == ZERO) | (tag == RAW), np.uint32(0), code)
    return np.where(tag == RAW, payload, np.where(tag == ZERO, np.uint32(0), table.value[coded]))


def _rounded(bits: np.ndarray, se: np.ndarray, table: Bands) -> np.ndarray:
    """Bits after rounding to nearest: the carry may raise the exponent, but not beyond the band."""
    return np.minimum(bits + table.half[se] & table.keep[se], table.cap[se])


def tag_words(tag: np.ndarray) -> np.ndarray:
    """Tag words of groups of lanes: little-endian uint16, shape (n / GROUP,)."""
    lanes = tag.reshape(-1, GROUP).astype("<u2") << np.arange(0, 2 * GROUP, 2, dtype=np.uint16)
    return np.bitwise_or.reduce(lanes, axis=1).astype("<u2")


def lane_tags(words: np.ndarray) -> np.ndarray:
    """Tags of all lanes of tag words: uint8, shape (GROUP * n,)."""
    lanes = words[:, None] >> np.arange(0, 2 * GROUP, 2, dtype=np.uint16) & np.uint16(3)
    return lanes.astype(np.uint8).reshape(-1)


def bytes_used(tag: np.ndarray) -> np.ndarray:
    """Which of a lane's four payload bytes are sent: bool, shape (n, 4)."""
    return np.arange(4, dtype=np.uint8) < SIZES[tag][:, None]


def compiled(fast: bool | None) -> ModuleType | None:
    """The compiled twin, or None where numpy is asked for or numba is absent."""
    if fast is False or (fast is None and not _numba_present()):
        return None
    return import_module(".compiled", __package__)


@cache
def _numba_present() -> bool:
    return find_spec("numba") is not None
