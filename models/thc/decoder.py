"""A THC worker's way down, of whole blocks: center, rotate back, scale, turn.

Source: THC (NSDI 2024), Algorithm 3 at a worker; the integers are ours.
"""

from types import ModuleType

import numpy as np

from .encoder import batches
from .float_times import times
from .floats import INFINITE, QUIET_NAN
from .hadamard import hadamard
from .shared_random import signs


def decode(
    sums: np.ndarray,
    offset: int,
    norms: np.ndarray,
    unit: np.float32,
    sign_hash: np.ndarray,
    *,
    twin: ModuleType | None = None,
) -> np.ndarray:
    """Mean gradients of blocks: float32, shape of `sums`.

    sums : integers (n_blocks, B), unit: one table unit. offset : n * g, which is twice the middle.
    norms : uint32 FP32 bits (n_blocks,), or (1,) for all. unit : what half a table unit stands for,
    over the norm. sign_hash : uint32 (n_blocks,), see `Seeds`. twin : as of
    `gradnic.models.thc.encoder.encode`.

    Each product is rounded once, to nearest even, and a subnormal one is +0, turned where the sign
    diagonal says so. 0 where the norm is 0, quiet NaN where it is not finite.
    """
    n_blocks, size = sums.shape
    norms = np.broadcast_to(norms, n_blocks)
    scale = times(norms.view(np.float32), unit)
    if twin:
        result = twin.decode(sums, offset, scale, sign_hash)
    else:
        result = np.empty((n_blocks, size), np.float32)
        for part in batches(n_blocks, size):
            values = hadamard(2 * sums[part].astype(np.int32) - offset)
            floats = times(values.astype(np.float32), scale[part, None])
            turned = signs(sign_hash[part], size)
            result[part] = np.negative(floats, out=floats, where=turned)
    result[norms == 0] = 0
    result[norms >= INFINITE] = QUIET_NAN.view(np.float32)
    return result
