"""Payload bytes of lanes, 0, 1, 2 or 4 each: without gaps, in columns of a beat, and back."""

import numpy as np

from .bands import SIZES
from .lanes import bytes_used


def offsets(tag: np.ndarray) -> np.ndarray:
    """Payload bytes of all lanes before each, and of all: shape (n + 1,)."""
    return np.concatenate([[0], np.cumsum(SIZES[tag], dtype=np.int64)])


def packed(payload: np.ndarray, tag: np.ndarray) -> np.ndarray:
    """Bytes of payloads, uint32 (n,), that their tags let be sent: uint8, low bytes first."""
    return payload.astype("<u4").view(np.uint8).reshape(-1, 4)[bytes_used(tag)]


def spread(octets: np.ndarray, tag: np.ndarray) -> np.ndarray:
    """Inverse of `packed`: payloads, uint32 (n,), with 0 where a tag sends nothing."""
    used = bytes_used(tag)
    payload = np.zeros(used.shape, np.uint8)
    payload[used] = octets
    return payload.reshape(-1).view("<u4")


def columns(octets: np.ndarray, base: int, n_bytes: int) -> tuple[np.ndarray, np.ndarray]:
    """Columns of a beat, uint8 (n_bytes,), and which of them hold a byte, bool.

    octets : uint8, at most n_bytes, of which the first is in column `base`; they go round.
    """
    at = (base + np.arange(len(octets))) % n_bytes
    result, present = np.zeros(n_bytes, np.uint8), np.zeros(n_bytes, bool)
    result[at], present[at] = octets, True
    return result, present
