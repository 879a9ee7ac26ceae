"""FP32 addition as every card does it. Twin of `gradnic.hdl.reduction.float_add.FloatAdd`."""

import numpy as np

NAN = 0x7FC00000  # every NaN result


def add(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """a + b, float32, to nearest even, subnormals kept; every NaN result has the bits `NAN`.

    a, b : float32, shapes that broadcast. Returns their common shape. numpy's own sum but for the
    sign and payload of a NaN, which depend on the host.
    """
    with np.errstate(all="ignore"):
        total = np.add(np.asarray(a, np.float32), np.asarray(b, np.float32))
    total = np.atleast_1d(total)
    total.view(np.uint32)[np.isnan(total)] = NAN
    return total.reshape(np.broadcast_shapes(np.shape(a), np.shape(b)))
