"""Sums times 1 / leaves, as one float32 product: what the root of a tree makes of a mean.

Twin of `gradnic.hdl.offload.scaler`. Values and products that are subnormal are +0, so is -0; every
NaN is 0x7FC00000.
"""

import numpy as np

NAN = 0x7FC00000
LEAST = np.float32(2.0**-126)  # normal


def factor(leaves: int) -> np.floating:
    """float32, 1 / leaves, rounded to nearest even. leaves : 1 to 255."""
    return np.float32(1) / np.float32(leaves)


def scaled(values: np.ndarray, leaves: int) -> np.ndarray:
    """float32 of the shape of `values`, which are sums of so many leaves."""
    with np.errstate(all="ignore"):
        product = np.where(np.abs(values) < LEAST, 0, values) * factor(leaves)
        product = np.where(np.abs(product) < LEAST, 0, product).astype(np.float32)
    product.view(np.uint32)[np.isnan(product)] = NAN
    return product
