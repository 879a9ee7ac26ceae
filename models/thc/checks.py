"""What the models of THC ask of integers that they are given."""

from typing import Any

import numpy as np


def whole(name: str, value: Any, high: int = (1 << 32) - 1, low: int = 0) -> int:
    """`value` as an int; ValueError unless it is an integer of `low` to `high`."""
    if not isinstance(value, int | np.integer) or not low <= value <= high:
        raise ValueError(f"{name} must be an integer of {low} to {high}, not {value!r}")
    return int(value)


def integers(name: str, values: Any) -> np.ndarray:
    """`values` as an array of this machine's byte order; ValueError unless they are integers."""
    values = np.asarray(values)
    if values.dtype.kind not in "iu" and values.size:
        raise ValueError(f"{name} must be integers, not {values.dtype}")
    return values.astype(values.dtype.newbyteorder("="), copy=False)


def inside(name: str, values: np.ndarray, high: int) -> None:
    """ValueError unless all lie in 0 to `high`."""
    if not values.size:
        return
    for value in values.min(), values.max():
        if not 0 <= value <= high:
            raise ValueError(f"{name} must be 0 to {high}, not {value}")
