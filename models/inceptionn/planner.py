"""What the tags of a coded unit say: whether it is sound, and where each payload lies."""

import numpy as np

from .bands import GROUP, SIZES
from .byte_network import offsets

# payload bytes behind the four tags of a byte: a tag word is two such look-ups
_BYTES_BEHIND = SIZES[np.arange(256)[:, None] >> np.arange(0, 8, 2) & 3].sum(axis=1, dtype=np.uint8)


def tag_bytes(data: np.ndarray, count: int) -> int:
    """Bytes of tags of a sound unit of `count` floats, which all others are payload of.

    data : uint8, the unit. ValueError if it is malformed: bytes missing or left over, a tag in a
    lane that pads the last group.
    """
    n_bytes = 2 * -(-count // GROUP)
    if data.size < n_bytes:
        raise ValueError(f"unit of {count} floats needs {n_bytes} tag bytes, not {data.size}")
    padding = data[n_bytes - 2 : n_bytes].view("<u2")[0] >> 2 * (count - 1) % 16 >> 2
    if padding:
        raise ValueError(f"padding lanes must have tag 0, not {padding:#x}")
    behind = int(_BYTES_BEHIND[data[:n_bytes]].sum(dtype=np.int64))
    if data.size != n_bytes + behind:
        raise ValueError(f"unit must have {n_bytes + behind} bytes, not {data.size}")
    return n_bytes


def places(tag: np.ndarray, n_tag_bytes: int, n_lanes: int) -> tuple[np.ndarray, np.ndarray]:
    """Where the payloads of each beat of lanes are, in rows of 4 * n_lanes bytes.

    tag : uint8 (n_beats * n_lanes,), 0 beyond the floats that count. n_tag_bytes : before the
    first payload. Returns (column of each lane's first byte, int64 (n_beats, n_lanes); row of the
    unit in which the beat's first byte is, (n_beats,)).
    """
    starts = (n_tag_bytes + offsets(tag)[:-1]).reshape(-1, n_lanes)
    return starts % (4 * n_lanes), starts[:, 0] // (4 * n_lanes)
