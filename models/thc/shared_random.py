"""The random source that all THC workers share: counter-like, so any block can be replayed.

64 logical lanes whatever the physical width; element i of a block is drawn by lane i % 64. All
arithmetic is modulo 2**32. Not cryptographic.
"""

import numpy as np

GOLDEN = np.uint32(0x9E3779B9)
N_LANES = 64
SIGN_WORKER = 0xFFFFFFFF  # the worker number of the sign diagonal, which all workers share


def fmix32(x: np.ndarray) -> np.ndarray:
    """The finalizer of MurmurHash3, on uint32 arrays of any shape."""
    x = np.asarray(x, np.uint32)
    x = (x ^ (x >> np.uint32(16))) * np.uint32(0x85EBCA6B)
    x = (x ^ (x >> np.uint32(13))) * np.uint32(0xC2B2AE35)
    return x ^ (x >> np.uint32(16))


def step(x: np.ndarray) -> np.ndarray:
    """One step of xorshift32, on uint32 arrays of any shape."""
    x = x ^ (x << np.uint32(13))
    x = x ^ (x >> np.uint32(17))
    return x ^ (x << np.uint32(5))


def key(seed: int, round: int, worker: int) -> np.ndarray:
    """Key of one worker in one round: a uint32 array of shape (1,)."""
    k = np.array([0x67726E63], np.uint32)
    for value in (seed, round, worker):
        k = fmix32((k ^ np.uint32(value)) + GOLDEN)
    return k


def block_hash(k: np.ndarray, tensor: int, blocks: np.ndarray) -> np.ndarray:
    """h1 of each block: uint32, shape of `blocks`."""
    tensor_hash = fmix32(np.array([tensor & 0xFFFFFFFF], np.uint32) + np.uint32(0x7F4A7C15))
    return fmix32(k ^ fmix32(np.asarray(blocks, np.uint32) ^ tensor_hash))


def lane_keys(k: np.ndarray) -> np.ndarray:
    """S of each lane under the key `k`: uint32 (64,)."""
    return fmix32(k + np.arange(N_LANES, dtype=np.uint32) * GOLDEN)


def block_hashes(k: np.ndarray, tensor: int, blocks: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """h1 and h2 of each block under the key `k`: two uint32 arrays, shape of `blocks`."""
    h1 = block_hash(k, tensor, blocks)
    return h1, fmix32(h1 + np.uint32(0x85EBCA77))


def random_bytes(
    seed: int, round: int, worker: int, tensor: int, blocks: np.ndarray, n: int
) -> np.ndarray:
    """The rounding bytes of `n` elements of each block: uint8, shape (len(blocks), n).

    n : int, a multiple of 64.
    """
    return drawn_bytes(key(seed, round, worker), tensor, blocks, n)


def drawn_bytes(k: np.ndarray, tensor: int, blocks: np.ndarray, n: int) -> np.ndarray:
    """`random_bytes` of the worker and round whose key is `k`."""
    h1, h2 = block_hashes(k, tensor, blocks)
    x = step(step(lane_keys(k) + h1[:, None]) + h2[:, None])
    x[x == 0] = GOLDEN
    result = np.empty((len(h1), n // N_LANES, N_LANES), np.uint8)
    for i in range(n // N_LANES):
        x = step(x)
        result[:, i] = x >> np.uint32(24)
    return result.reshape(len(h1), n)


def signs(h1: np.ndarray, n: int) -> np.ndarray:
    """The sign diagonal of blocks with hashes `h1`: bool, (len(h1), n), True where negated.

    n : int, a multiple of 32.
    """
    x = np.where(h1 == 0, GOLDEN, h1)
    words = np.empty((len(x), n // 32), "<u4")
    for j in range(n // 32):
        x = step(x)
        words[:, j] = x
    return np.unpackbits(words.view(np.uint8), axis=1, bitorder="little").view(bool)
