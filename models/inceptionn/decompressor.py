"""Floats from INCEPTIONN units. Twin of `gradnic.hdl.inceptionn.decompressor`."""

import numpy as np

from .bands import GROUP, SIZES, bands
from .byte_network import spread
from .lanes import BLOCK, compiled, decode, lane_tags

# payload bytes behind the four tags of a byte: a tag word is two such look-ups
_BYTES_BEHIND = SIZES[np.arange(256)[:, None] >> np.arange(0, 8, 2) & 3].sum(axis=1, dtype=np.uint8)


def decompress(
    data: bytes,
    count: int,
    *,
    exponent: int = 117,
    mode: str = "strict",
    prescale: int = 0,
    fast: bool | None = None,
) -> np.ndarray:
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
    if twin := compiled(fast):
        return twin.decompress(data, int(count), table)
    words = data[: 2 * n_words].view("<u2")
    bits = np.empty(n_words * GROUP, np.uint32)
    position = 2 * n_words
    for start in range(0, bits.size, BLOCK):
        tag = lane_tags(words[start // GROUP : (start + BLOCK) // GROUP])
        step = int(SIZES[tag].sum(dtype=np.int64))
        payload = spread(data[position : position + step], tag)
        position += step
        bits[start : start + tag.size] = decode(tag, payload, table)
    return bits[:count].view(np.float32)
