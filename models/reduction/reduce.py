"""What the reduce unit does with two arrays. Twin of `gradnic.hdl.reduction.reduce`."""

import numpy as np

from .float_add import add

# Codes of a lane, 16-bit ones most significant byte first, and the largest sum; None: modulo.
_CODES = {"int32": ("<u4", None), "int16": (">u2", 0xFFFF), "int12": (">u2", 0xFFF),
          "int8": ("u1", 0xFF)}  # fmt: skip


def maximum(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """The larger of each two float32, same shape: NaN 0x7FC00000 if one is NaN, as
    ``numpy.maximum``; and +0 above -0, of which that function says nothing.

    Source: IEEE 754-2019, section 9.6, maximum.
    """
    bits = [np.ascontiguousarray(x, np.float32).view(np.int32) for x in (a, b)]
    order = [one ^ ((one >> 31) & 0x7FFFFFFF) for one in bits]  # as two's complement
    larger = np.where(order[0] < order[1], bits[1], bits[0])
    nan = np.isnan(bits[0].view(np.float32)) | np.isnan(bits[1].view(np.float32))
    return np.where(nan, 0x7FC00000, larger).astype(np.int32).view(np.float32)


def _words(lanes: np.ndarray) -> np.ndarray:
    """Lanes as contiguous uint32; ValueError where they are something else."""
    lanes = np.asarray(lanes)
    if lanes.dtype.newbyteorder("=") != np.uint32:
        raise ValueError(f"lanes must be uint32, not {lanes.dtype}: view floats as their bits")
    return np.ascontiguousarray(lanes, "<u4")


def combine(a: np.ndarray, b: np.ndarray, op: str = "float") -> np.ndarray:
    """``a (op) b`` of 32-bit lanes, uint32 in and out, same shape.

    op : ``float`` (FP32 addition, see `float_add.add`), ``max`` (unsigned), ``maximum`` (of FP32),
    ``int32`` (modulo 2^32), ``int16`` and ``int12`` (two codes a lane, each most significant byte
    first, and sums of 65535 or 4095 at most) or ``int8`` (four, of 255 at most). ValueError where
    shapes differ, for another op, and for lanes that are no words, such as floats.
    """
    a, b = _words(a), _words(b)
    if a.shape != b.shape:
        raise ValueError(f"lanes differ in shape: {a.shape} and {b.shape}")
    if op == "float":
        return add(a.view(np.float32), b.view(np.float32)).view(np.uint32)
    if op == "max":
        return np.maximum(a, b)
    if op == "maximum":
        return maximum(a.view(np.float32), b.view(np.float32)).view(np.uint32)
    if op not in _CODES:
        raise ValueError(f"op must be float, max, maximum, int32, int16, int12 or int8, not {op!r}")
    codes, most = np.dtype(_CODES[op][0]), _CODES[op][1]
    total = a.view(codes).astype(np.uint32) + b.view(codes)
    if most is not None:
        total = np.minimum(total, most)
    return total.astype(codes).view("<u4")
