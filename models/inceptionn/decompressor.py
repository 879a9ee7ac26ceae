"""Floats from INCEPTIONN units. Twin of `gradnic.hdl.inceptionn.decompressor`."""

import numpy as np

from .bands import GROUP, SIZES, bands
from .byte_network import spread
from .lanes import BLOCK, compiled, decode, lane_tags
from .planner import tag_bytes


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
    position = tag_bytes(data, int(count))
    if twin := compiled(fast):
        return twin.decompress(data, int(count), table)
    words = data[:position].view("<u2")
    bits = np.empty(words.size * GROUP, np.uint32)
    for start in range(0, bits.size, BLOCK):
        tag = lane_tags(words[start // GROUP : (start + BLOCK) // GROUP])
        step = int(SIZES[tag].sum(dtype=np.int64))
        payload = spread(data[position : position + step], tag)
        position += step
        bits[start : start + tag.size] = decode(tag, payload, table)
    return bits[:count].view(np.float32)
