"""Unsigned values of a few bits each, packed without gaps, most significant bit first; and back."""

from typing import Any

import numpy as np

from .checks import inside, integers, whole


def pack(values: np.ndarray, width: int) -> bytes:
    """Pack unsigned values into a bit stream, most significant bit first.

    values : integers below 2**width, shape (n,). width : int, 1 to 16 bits.
    Returns ceil(n * width / 8) bytes; the last byte is filled with zero bits.
    ValueError if a value does not fit.
    """
    whole("width", width, 16, low=1)
    values = integers("values", values)
    if values.ndim != 1:
        raise ValueError(f"values must have shape (n,), not {values.shape}")
    inside("values", values, (1 << width) - 1)
    if width == 8:
        return values.astype(np.uint8).tobytes()
    if width == 16:
        return values.astype(">u2").tobytes()
    if width == 4:
        nibbles = values.astype(np.uint8)
        packed = np.zeros(-(-nibbles.size // 2), np.uint8)
        np.left_shift(nibbles[::2], 4, out=packed)
        packed[: nibbles.size // 2] |= nibbles[1::2]
        return packed.tobytes()
    shifts = np.arange(width - 1, -1, -1)
    bits = (values.astype(np.uint16)[:, None] >> shifts & 1).astype(np.uint8)
    return np.packbits(bits).tobytes()


def unpack(data: bytes, width: int, count: int) -> np.ndarray:
    """Inverse of `pack`: `count` values of `width` bits, uint16 above 8 bits, else uint8.

    ValueError if `data` is not ceil(count * width / 8) bytes long.
    """
    whole("width", width, 16, low=1)
    whole("count", count)
    raw = np.frombuffer(data, np.uint8)
    if raw.size != -(-count * width // 8):
        raise ValueError(
            f"{count} values of {width} bits are {-(-count * width // 8)} bytes, not {raw.size}"
        )
    if width == 8:
        return raw.copy()
    if width == 16:
        return raw.view(">u2").astype(np.uint16)
    if width == 4:
        nibbles = np.empty((raw.size, 2), np.uint8)
        np.right_shift(raw, 4, out=nibbles[:, 0])
        np.bitwise_and(raw, 15, out=nibbles[:, 1])
        return nibbles.reshape(-1)[:count]
    dtype = np.uint8 if width <= 8 else np.uint16
    bits = np.unpackbits(raw, count=count * width).reshape(count, width)
    values: Any = np.zeros(count, dtype)
    for column in bits.T:  # most significant first
        values <<= 1
        values |= column
    return values
