"""The file that `gradnic codec compress` writes: a head, the coded unit, and a check of both.

| byte | bytes | field |
|-|-|-|
| 0 | 8 | ``GRADNIC`` and the version, 1 |
| 8 | 1 | {MODE (1 = paper), E[6:0]}, as header byte P0 on the wire |
| 9 | 1 | PS, int8, as header byte P1 |
| 10 | 1 | number of dimensions, 0 to 64 |
| 11 | 8 each | dimensions, little-endian |
| | | the coded unit |
| end - 4 | 4 | CRC-32 of all bytes before, little-endian |
"""

import math
import struct
import zlib
from pathlib import Path

MAGIC = b"GRADNIC\x01"


def pack(unit, shape, *, exponent, mode, prescale):
    """Bytes of a file that holds the coded `unit` of an array of `shape`."""
    head = MAGIC + struct.pack("<BbB", exponent | (mode == "paper") << 7, prescale, len(shape))
    body = head + struct.pack(f"<{len(shape)}Q", *shape) + unit
    return body + struct.pack("<I", zlib.crc32(body))


def unpack(data):
    """The coded unit, the shape and the settings (exponent, mode, prescale) of a file's bytes.

    ValueError for a file of another kind, cut short, or damaged.
    """
    if data[:8] != MAGIC:
        raise ValueError(f"coded file must begin with {MAGIC!r}, not {bytes(data[:8])!r}")
    if len(data) < 15 or len(data) < 15 + 8 * data[10]:
        raise ValueError(f"coded file is cut short at {len(data)} bytes")
    if data[10] > 64:
        raise ValueError(f"coded file must have 0 to 64 dimensions, not {data[10]}")
    (check,) = struct.unpack("<I", data[-4:])
    if check != zlib.crc32(data[:-4]):
        raise ValueError(f"coded file is damaged: CRC-32 is {zlib.crc32(data[:-4]):#010x}")
    first, prescale, n_dims = struct.unpack("<BbB", data[8:11])
    shape = struct.unpack_from(f"<{n_dims}Q", data, 11)
    settings = {
        "exponent": first & 0x7F,
        "mode": "paper" if first >> 7 else "strict",
        "prescale": prescale,
    }
    return data[11 + 8 * n_dims : -4], shape, settings


def load(path):
    """`unpack` of a file; what does not begin as one is not read on, such as a device."""
    with Path(path).open("rb") as file:
        head = file.read(len(MAGIC))
        return unpack(head + file.read() if head == MAGIC else head)


def n_elements(shape):
    """Values of an array of `shape`; 1 for a scalar."""
    return math.prod(shape)
