"""What the batch engine hands to ``batch.cpp`` and gets back: the structures of one run."""

import ctypes

import numpy as np
from amaranth.hdl import Shape

from . import encoding

ALWAYS = 2**64 - 1


class Stall(ctypes.Structure):
    """Pattern of an input's or output's stalls, as C++ reads it."""

    _fields_ = [
        ("lead", ctypes.c_void_p),
        ("n_lead", ctypes.c_int64),
        ("pattern", ctypes.c_void_p),
        ("n_pattern", ctypes.c_int64),
        ("threshold", ctypes.c_uint64),
    ]


class Feed(ctypes.Structure):
    """An input and its beats."""

    _fields_ = [("beats", ctypes.c_void_p), ("n_beats", ctypes.c_int64), ("stall", Stall)]


class Sink(ctypes.Structure):
    """An output and the room for its beats."""

    _fields_ = [("stall", Stall), ("until", ctypes.c_int64)]


class Level(ctypes.Structure):
    """A level and its values."""

    _fields_ = [("values", ctypes.c_void_p), ("n_values", ctypes.c_int64)]


class Job(ctypes.Structure):
    """One run."""

    _fields_ = [
        ("feeds", ctypes.POINTER(Feed)),
        ("sinks", ctypes.POINTER(Sink)),
        ("levels", ctypes.POINTER(Level)),
        ("traced", ctypes.c_void_p),
        ("reset_cycles", ctypes.c_int64),
        ("max_cycles", ctypes.c_int64),
        ("idle_cycles", ctypes.c_int64),
        ("probe_cycles", ctypes.c_int64),
        ("drain", ctypes.c_int64),
        ("seed", ctypes.c_uint64),
    ]


class Result(ctypes.Structure):
    """What a run gave."""

    _fields_ = [(name, ctypes.c_int64) for name in ("code", "port", "cycle", "cycles")]


DRAINED, STOPPED, TIMEOUT = range(3)
BROKEN = {
    3: "valid dropped before ready",
    4: "payload changed while stalled",
    5: "valid is high in reset",
    6: "valid waits for ready",
}
UNSETTLED = 7


def bits(pattern):
    """A stall pattern as contiguous uint8 of 0 and 1."""
    return np.ascontiguousarray(np.asarray(pattern, np.uint8) != 0, dtype=np.uint8)


def stalled(stall, keep):
    """A stall as the C structure; `Instance.run` says what it may be."""
    lead, rest = stall if isinstance(stall, tuple) else ((), stall)
    lead = bits(lead)
    pattern = bits(() if np.ndim(rest) == 0 else rest)
    threshold = ALWAYS
    if np.ndim(rest) == 0:
        if not 0 <= rest <= 1:
            raise ValueError(f"a duty must be within 0..1, not {rest}")
        threshold = ALWAYS if rest == 1 else int(rest * 2.0**64)
    keep += [lead, pattern]
    return Stall(lead.ctypes.data, len(lead), pattern.ctypes.data, len(pattern), threshold)


def as_values(port, values):
    """Values of a plain port as rows of bytes: an integer, integers, or rows of bytes."""
    values = np.atleast_1d(np.asarray(values))
    return np.ascontiguousarray(encoding.pack(Shape.cast(port.shape), values))
