"""What the reduce unit does with two arrays. Twin of `gradnic.hdl.reduction.reduce`."""

import numpy as np

from .float_add import add

_CODES = {"int32": "<u4", "int16": ">u2", "int8": "u1"}  # 16-bit sums are most significant first


def maximum(a, b):
    """The larger of each two float32, same shape: NaN 0x7FC00000 if one is NaN, as
    ``numpy.maximum``; and +0 above -0, of which that function says nothing.

    Source: IEEE 754-2019, section 9.6, maximum.
    """
    bits = [np.ascontiguousarray(x, np.float32).view(np.int32) for x in (a, b)]
    order = [one ^ ((one >> 31) & 0x7FFFFFFF) for one in bits]  # as two's complement
    larger = np.where(order[0] < order[1], bits[1], bits[0])
    nan = np.isnan(bits[0].view(np.float32)) | np.isnan(bits[1].view(np.float32))
    return np.where(nan, 0x7FC00000, larger).astype(np.int32).view(np.float32)


def combine(a, b, op: str = "float"):
    """``a (op) b`` of 32-bit lanes, uint32 in and out, same shape.

    op : ``float`` (FP32 addition, see `float_add.add`), ``max`` (unsigned), ``maximum`` (of FP32),
    ``int32``, ``int16`` (two codes a lane, each most significant byte first) or ``int8`` (four):
    modulo 2^width.
    """
    a, b = np.ascontiguousarray(a, "<u4"), np.ascontiguousarray(b, "<u4")
    if a.shape != b.shape:
        raise ValueError(f"lanes differ in shape: {a.shape} and {b.shape}")
    if op == "float":
        return add(a.view(np.float32), b.view(np.float32)).view(np.uint32)
    if op == "max":
        return np.maximum(a, b)
    if op == "maximum":
        return maximum(a.view(np.float32), b.view(np.float32)).view(np.uint32)
    if op not in _CODES:
        raise ValueError(f"op must be float, max, maximum, int32, int16 or int8, not {op!r}")
    codes = np.dtype(_CODES[op])
    total = a.view(codes) + b.view(codes)
    return total.astype(codes).view("<u4")
