"""A THC worker's way up, of whole blocks: scale, turn, rotate, quantize.

Source: THC (NSDI 2024), Algorithm 3 at a worker; the integers are ours.
"""

from dataclasses import dataclass
from types import ModuleType

import numpy as np

from .hadamard import hadamard
from .quantize import Quantizer, normalized
from .scale import scale
from .shared_random import block_hash, block_hashes, drawn_bytes, lane_keys, signs

BATCH = 1 << 18  # elements worked on at a time: a few arrays of this size stay in the cache


@dataclass(frozen=True)
class Seeds:
    """What seeds blocks: `key` of the worker's dice and of the signs that all share, both
    uint32 (1,); the tensor's number; those of the blocks in it, (n_blocks,).
    """

    random_key: np.ndarray
    sign_key: np.ndarray
    tensor: int
    blocks: np.ndarray

    def sign_hash(self) -> np.ndarray:
        """What the sign diagonal of each block begins with: uint32 (n_blocks,)."""
        return block_hash(self.sign_key, self.tensor, self.blocks)


def encode(
    rows: np.ndarray,
    scaling: tuple[np.ndarray, np.ndarray],
    silent: np.ndarray,
    quantizer: Quantizer,
    seeds: Seeds,
    *,
    twin: ModuleType | None = None,
) -> np.ndarray:
    """Indices of blocks: uint8, shape of `rows`.

    rows : float32 (n_blocks, B). scaling : factors and exponent offsets of blocks, see
    `gradnic.models.thc.scale`. silent : bool (n_blocks,): such a block carries the middle index
    throughout, which is none of its values. twin : the compiled one, which gives the same bits.
    """
    h = (rows.shape[1].bit_length() - 1) // 2
    factors, offsets = scaling
    if twin:
        result = twin.encode(
            rows.view(np.uint32), factors, offsets, h, quantizer.t_fixed, quantizer.unit,
            quantizer.cells, lane_keys(seeds.random_key),
            *block_hashes(seeds.random_key, seeds.tensor, seeds.blocks), seeds.sign_hash(),
        )  # fmt: skip
    else:
        result = np.empty(rows.shape, np.uint8)
        sign_hash = seeds.sign_hash()
        for part in batches(*rows.shape):
            values = scale(rows[part], factors[part], offsets[part], h)
            np.negative(values, out=values, where=signs(sign_hash[part], rows.shape[1]))
            random = drawn_bytes(seeds.random_key, seeds.tensor, seeds.blocks[part], rows.shape[1])
            result[part] = quantizer(normalized(hadamard(values), h), random)
    result[silent] = (int(quantizer.cells[-1, 0]) + 1) // 2
    return result


def batches(n_blocks: int, size: int) -> list[slice]:
    """Slices of a few blocks of `size` elements at a time: the working set stays in the cache."""
    batch = max(1, BATCH // size)
    return [slice(i, i + batch) for i in range(0, n_blocks, batch)]
