"""INCEPTIONN's lossy float codec, bit for bit. Twin of `gradnic.hdl.inceptionn.lanes`.

A coded unit (one packet, or one call) is ``ceil(n / 8)`` tag words of 16 bits, little-endian, lane
``i`` in bits ``2 i + 1 : 2 i``, then the payloads of all lanes in order: 0, 1, 2 or 4 bytes,
little-endian. The last group is padded with tag-0 lanes, so the count of floats travels beside the
unit. Which float gets which tag and magnitude: `gradnic.models.inceptionn.bands`.

Settings, the same everywhere:

exponent : int, 113..126, biased exponent of the error bound ``2 ** (exponent - 127)``; 117: 2**-10.
mode : "strict" keeps every finite value within the bound; "paper" is the fidelity baseline, whose
    worst error is 2**-7 for exponents below 120. Tags and sizes are the same.
prescale : int, -128..127; coded value = float * 2**prescale. The strict guarantee,
    ``abs(error) < 2 ** (exponent - 127 - prescale)``, holds up to ``prescale = exponent - 1``.
rounding : "trunc", or "nearest" (strict mode only; never leaves a band upward).
fast : True takes the compiled path (`gradnic.models.inceptionn.compiled`, needs numba), False
numpy;
    None, the default, the compiled one where numba is installed. Both give the same bytes.

Source: INCEPTIONN, MICRO 2018, as reconstructed from secondary accounts; tags first is our choice.
"""

from functools import cache
from importlib import import_module
from importlib.util import find_spec

import numpy as np

from .bands import GROUP, HALF, RAW, SIZES, ZERO, bands

_BLOCK = (
    1 << 15
)  # floats per step of a loop: what the second-level cache holds, a multiple of GROUP
# payload bytes behind the four tags of a byte: a tag word is two such look-ups
_BYTES_BEHIND = SIZES[np.arange(256)[:, None] >> np.arange(0, 8, 2) & 3].sum(axis=1, dtype=np.uint8)


def compress(x, *, exponent=117, mode="strict", prescale=0, rounding="trunc", fast=None):
    """Code `x`, float32 of any shape with at least one value, as one unit; returns bytes.

    Between n / 4 and 4.25 n bytes. Scaled values of 1 and more, Inf and NaN pass with all their
    bits; zeros, denormals and scaled values below the bound become +0. ValueError for another
    dtype, no values or a setting out of range.
    """
    table = bands(exponent, mode, prescale, rounding)
    bits = _bits(x)
    if _compiled(fast):
        return _compiled(fast).compress(bits, table)
    words, payloads = [], []
    for start in range(0, bits.size, _BLOCK):
        tag, payload = _encode(_whole_groups(bits[start : start + _BLOCK]), table)
        words.append(_tag_words(tag))
        payloads.append(payload.astype("<u4").view(np.uint8).reshape(-1, 4)[_bytes_used(tag)])
    return b"".join(part.tobytes() for part in words + payloads)


def decompress(data, count, *, exponent=117, mode="strict", prescale=0, fast=None):
    """Floats of one coded unit: float32, shape (count,).

    data : bytes-like, the unit and nothing else. `rounding` plays no part here.
    ValueError if it is malformed: count < 1, bytes missing or left over, a tag in a padding lane.
    """
    table = bands(exponent, mode, prescale)
    if isinstance(count, bool) or not isinstance(count, int | np.integer) or count < 1:
        raise ValueError(f"count must be an integer of at least 1, not {count!r}")
    data = np.frombuffer(data, np.uint8)
    n_words = -(-int(count) // GROUP)
    if data.size < 2 * n_words:
        raise ValueError(f"unit of {count} floats needs {2 * n_words} tag bytes, not {data.size}")
    padding = data[2 * n_words - 2 : 2 * n_words].view("<u2")[0] >> 2 * (count - 1) % 16 >> 2
    if padding:
        raise ValueError(f"padding lanes must have tag 0, not {padding:#x}")
    behind = int(_BYTES_BEHIND[data[: 2 * n_words]].sum(dtype=np.int64))
    if data.size != 2 * n_words + behind:
        raise ValueError(f"unit must have {2 * n_words + behind} bytes, not {data.size}")
    if _compiled(fast):
        return _compiled(fast).decompress(data, int(count), table)
    words = data[: 2 * n_words].view("<u2")
    bits = np.empty(n_words * GROUP, np.uint32)
    position = 2 * n_words
    for start in range(0, bits.size, _BLOCK):
        tag = _lane_tags(words[start // GROUP : (start + _BLOCK) // GROUP])
        used = _bytes_used(tag)
        payload = np.zeros(used.shape, np.uint8)
        step = np.count_nonzero(used)
        payload[used] = data[position : position + step]
        position += step
        bits[start : start + tag.size] = _decode(tag, payload.reshape(-1).view("<u4"), table)
    return bits[:count].view(np.float32)


def image(x, *, exponent=117, mode="strict", prescale=0, rounding="trunc"):
    """What one pass through the codec makes of `x`, ``decompress(compress(x))``, in its shape.

    A mask on the bits of each float (and a rounding carry that stops at the top of the band): what
    the owner of a reduced block applies before it sends the block round, so that all replicas are
    equal.
    """
    table = bands(exponent, mode, prescale, rounding)
    bits = _bits(x)
    out = np.empty_like(bits)
    for start in range(0, bits.size, _BLOCK):
        part = bits[start : start + _BLOCK]
        se = part >> np.uint32(23)
        kept = part & table.keep[se] if rounding == "trunc" else _rounded(part, se, table)
        out[start : start + _BLOCK] = kept
    return out.view(np.float32).reshape(np.shape(x))


def tags(x, *, exponent=117, prescale=0):
    """Tag of every float, uint8 in the shape of `x`: 0 nothing, 1 a byte, 2 two, 3 the float."""
    table = bands(exponent, "strict", prescale)
    return table.tag[_bits(x) >> np.uint32(23)].reshape(np.shape(x))


def coded_size(x, *, exponent=117, prescale=0):
    """Bytes of `compress(x)`, without coding: mode and rounding do not change it."""
    return int(coded_sizes(x, np.size(x), exponent=exponent, prescale=prescale)[0])


def coded_sizes(x, n_floats, *, exponent=117, prescale=0):
    """Bytes of each coded unit when `x` is cut into packets of `n_floats`; the last may be shorter.

    Returns int64, shape (ceil(x.size / n_floats),).
    """
    if n_floats < 1:
        raise ValueError(f"n_floats must be at least 1, not {n_floats!r}")
    table = bands(exponent, "strict", prescale)
    bits = _bits(x)
    payload = SIZES[table.tag[bits >> np.uint32(23)]]
    starts = np.arange(0, bits.size, n_floats)
    counts = np.minimum(n_floats, bits.size - starts)
    return np.add.reduceat(payload, starts, dtype=np.int64) + 2 * -(-counts // GROUP)


def _bits(x):
    x = np.asarray(x)
    if x.dtype.kind != "f" or x.dtype.itemsize != 4:
        raise ValueError(f"floats must be float32, not {x.dtype}")
    if x.size == 0:
        raise ValueError(f"floats must be at least 1, not shape {x.shape}")
    return np.ascontiguousarray(x, np.float32).reshape(-1).view(np.uint32)


def _whole_groups(bits):
    return np.pad(bits, (0, -bits.size % GROUP)) if bits.size % GROUP else bits


def _encode(bits, table):
    """Tag and payload (uint32, the low bytes count) of every float."""
    se = bits >> np.uint32(23)
    tag = table.tag[se]
    significand = (bits & np.uint32(0x7FFFFF)) | np.uint32(0x800000)
    mag = np.minimum(significand + table.half[se] >> table.shift[se], table.ones[se])
    return tag, np.where(tag == RAW, bits, mag | table.sign[se])


def _decode(tag, payload, table):
    """Float bits of every lane from its tag and payload."""
    code = payload + np.where(tag == HALF, np.uint32(256), np.uint32(0))  # BYTE codes come first
    coded = np.where((tag == ZERO) | (tag == RAW), np.uint32(0), code)
    return np.where(tag == RAW, payload, np.where(tag == ZERO, np.uint32(0), table.value[coded]))


def _rounded(bits, se, table):
    """Bits after rounding to nearest: the carry may raise the exponent, but not beyond the band."""
    return np.minimum(bits + table.half[se] & table.keep[se], table.cap[se])


def _tag_words(tag):
    lanes = tag.reshape(-1, GROUP).astype("<u2") << np.arange(0, 2 * GROUP, 2, dtype=np.uint16)
    return np.bitwise_or.reduce(lanes, axis=1).astype("<u2")


def _lane_tags(words):
    lanes = words[:, None] >> np.arange(0, 2 * GROUP, 2, dtype=np.uint16) & np.uint16(3)
    return lanes.astype(np.uint8).reshape(-1)


def _bytes_used(tag):
    """Which of a lane's four payload bytes are sent: bool, shape (n, 4)."""
    return np.arange(4, dtype=np.uint8) < SIZES[tag][:, None]


def _compiled(fast):
    """The compiled twin, or None where numpy is asked for or numba is absent."""
    if fast is False or (fast is None and not _numba_present()):
        return None
    return import_module(".compiled", __package__)


@cache
def _numba_present():
    return find_spec("numba") is not None
