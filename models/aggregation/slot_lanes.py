"""The arithmetic of a slot's sums, lane by lane. Twin of `gradnic.hdl.aggregation.slot_lanes`.

Sources: THC (NSDI 2024), the switch's lookup and add; docs/internals/aggregator.md.
"""

import numpy as np

from ..thc.worker import unpack


def read_lanes(
    payload: bytes, *, width: int, n: int, levels: np.ndarray | None = None
) -> np.ndarray:
    """Lanes of a THC payload of `n` elements of `width` bits, most significant bit first: int64.

    levels : the job's table, of 2**width entries, in which indices are looked up; None for sums.
    """
    values = unpack(payload, width, n)
    return values.astype(np.int64) if levels is None else levels[values].astype(np.int64)


def add_lanes(sums: np.ndarray, values: np.ndarray, width: int) -> tuple[np.ndarray, bool]:
    """Sums of `width` bits, saturating, and whether one did not fit. int64, shape (n_elems,)."""
    exact = sums + values
    top = 2**width - 1
    return np.minimum(exact, top), bool((exact > top).any())


def add_words(
    sums: np.ndarray, values: np.ndarray, *, saturates: bool = False
) -> tuple[np.ndarray, bool]:
    """Sums of int32, wrapping or saturating, and whether one left the range. int64, (n_elems,)."""
    exact = sums + values
    wrapped = (exact + 2**31) % 2**32 - 2**31
    clipped = np.clip(exact, -(2**31), 2**31 - 1)
    return clipped if saturates else wrapped, bool((exact != wrapped).any())


def larger_words(sums: np.ndarray, values: np.ndarray) -> np.ndarray:
    """Maxima of unsigned words of 32 bits: norms, as the bits of floats of one sign. int64."""
    return np.maximum(sums, values)


def fill_lanes(sums: np.ndarray, missing: int, g: int, width: int) -> np.ndarray:
    """What leaves a root: `missing` leaves count g/2 each, the middle of their range; saturating.

    Source: THC section 6 (partial aggregation).
    """
    return np.minimum(sums + missing * g // 2, 2**width - 1)
