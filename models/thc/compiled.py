"""Compiled twin of `gradnic.models.thc`: the same integers, several times as fast.

Used by `Worker` where numba is present; the tests hold both against each other, bit for bit.
"""

import numba
import numpy as np

_compiled = numba.njit(cache=True, nogil=True, error_model="numpy")


@_compiled
def _signs(h1: np.uint32, words: np.ndarray) -> None:
    """Sign words of one block, uint32 (B // 32,)."""
    x = h1 if h1 != 0 else np.uint32(0x9E3779B9)
    for j in range(words.size):
        x = np.uint32(x ^ np.uint32(x << np.uint32(13)))
        x = np.uint32(x ^ (x >> np.uint32(17)))
        x = np.uint32(x ^ np.uint32(x << np.uint32(5)))
        words[j] = x


@_compiled
def _step(x: np.ndarray) -> None:
    for i in range(x.size):
        x[i] ^= np.uint32(x[i] << np.uint32(13))
    for i in range(x.size):
        x[i] ^= x[i] >> np.uint32(17)
    for i in range(x.size):
        x[i] ^= np.uint32(x[i] << np.uint32(5))


@_compiled
def _apply_signs(values: np.ndarray, words: np.ndarray) -> None:
    """Negate values[i] where bit i % 32 of word i // 32 is 1."""
    for j in range(words.size):
        word = words[j]
        for i in range(32):
            negative = np.int32(word >> np.uint32(i) & np.uint32(1))
            values[32 * j + i] = (values[32 * j + i] ^ -negative) + negative


@_compiled
def _hadamard(x: np.ndarray) -> None:
    length = 1
    while length < x.size:
        for start in range(0, x.size, 2 * length):
            a = x[start : start + length]
            b = x[start + length : start + 2 * length]
            for i in range(length):
                total = a[i] + b[i]
                b[i] = a[i] - b[i]
                a[i] = total
        length *= 2


@_compiled
def norms(bits: np.ndarray) -> np.ndarray:
    """Norms of each row of FP32 bits, uint32 (n_blocks,)."""
    result = np.empty(bits.shape[0], np.uint32)
    for block in range(bits.shape[0]):
        row = bits[block]
        largest = np.uint32(0)
        for i in range(row.size):
            largest = max(largest, np.uint32(row[i] & np.uint32(0x7FFFFFFF)))
        top = np.int64(largest >> np.uint32(23))
        if top == 0 or top == 255:
            result[block] = 0 if top == 0 else 0x7F800000
            continue
        square = np.int64(0)
        for i in range(row.size):
            exponent = np.int64(row[i] >> np.uint32(23) & np.uint32(0xFF))
            mantissa = np.int64(row[i] & np.uint32(0x7FFFFF)) | 0x800000
            aligned = mantissa >> min(int(top - exponent) + 7, 63) if exponent else 0
            square += aligned * aligned
        k = 0
        while square << k < 1 << 46:
            k += 2
        scaled = square << k
        root = np.int64(np.sqrt(np.float64(scaled)))
        if root * root > scaled:
            root -= 1
        exponent = top + 7 - k // 2
        if exponent < 1:
            result[block] = 0
        elif exponent >= 255:
            result[block] = 0x7F800000
        else:
            result[block] = exponent << 23 | root & 0x7FFFFF
    return result


@_compiled
def encode(
    bits: np.ndarray,
    factors: np.ndarray,
    offsets: np.ndarray,
    h: int,
    t_fixed: int,
    unit: int,
    cells: np.ndarray,
    lane_keys: np.ndarray,
    random_h1: np.ndarray,
    random_h2: np.ndarray,
    sign_h1: np.ndarray,
) -> np.ndarray:
    """Indices of each row, uint8 (n_blocks, B); see `Worker.encode`.

    bits : uint32 (n_blocks, B). factors, offsets : int64 (n_blocks,), see `.scale`.
    cells : int32 (g + 1, 3): lower index, its table value times 256, gap to the next value.
    lane_keys : uint32 (64,). random_h1, random_h2, sign_h1 : uint32 (n_blocks,).
    """
    n_blocks, size = bits.shape
    result = np.empty((n_blocks, size), np.uint8)
    values = np.empty(size, np.int32)
    words = np.empty(size // 32, np.uint32)
    x = np.empty(64, np.uint32)
    limit = np.int64(1) << (h + 8)
    for block in range(n_blocks):
        for i in range(size):
            word = bits[block, i]
            exponent = np.int64(word >> np.uint32(23) & np.uint32(0xFF))
            mantissa = np.int64(word & np.uint32(0x7FFFFF)) | 0x800000
            shift = offsets[block] - exponent
            product = (mantissa >> 7) * factors[block]
            safe = min(max(shift, 1), 62)
            scaled = min((product + (np.int64(1) << (safe - 1))) >> safe, limit)
            if shift >= 62 or exponent == 0:
                scaled = 0
            elif shift < 1:
                scaled = limit
            values[i] = -scaled if word >> np.uint32(31) else scaled
        _signs(sign_h1[block], words)
        _apply_signs(values, words)
        _hadamard(values)
        for i in range(64):
            x[i] = lane_keys[i] + random_h1[block]
        _step(x)
        for i in range(64):
            x[i] += random_h2[block]
        _step(x)
        for i in range(64):
            if x[i] == 0:
                x[i] = 0x9E3779B9
        for start in range(0, size, 64):
            _step(x)
            for i in range(64):
                rotated = (values[start + i] + (1 << (h - 1))) >> h
                clipped = np.int64(min(max(rotated, -t_fixed), t_fixed))
                u = np.int32(((clipped + t_fixed) * unit + (1 << 15)) >> 16)
                lower, level, gap = cells[u >> 8]
                up = gap * (2 * np.int32(x[i] >> np.uint32(24)) + 1) <= 2 * (u - level)
                result[block, start + i] = lower + (up and gap > 0)
    return result


@_compiled
def decode(sums: np.ndarray, offset: int, scales: np.ndarray, sign_h1: np.ndarray) -> np.ndarray:
    """Floats of each row of table sums, float32 (n_blocks, B); see `Worker.decode`.

    sums : integers (n_blocks, B). offset : n * g. scales : float32 (n_blocks,).
    """
    n_blocks, size = sums.shape
    result = np.empty((n_blocks, size), np.float32)
    values = np.empty(size, np.int32)
    words = np.empty(size // 32, np.uint32)
    tiny = np.float32(1.1754943508222875e-38)
    for block in range(n_blocks):
        scale = scales[block]
        for i in range(size):
            values[i] = 2 * np.int32(sums[block, i]) - offset
        _hadamard(values)
        _signs(sign_h1[block], words)
        row = result[block]
        for i in range(size):
            value = np.float32(values[i]) * scale
            row[i] = np.float32(0) if abs(value) < tiny else value
        for j in range(words.size):
            for i in range(32):
                if words[j] >> np.uint32(i) & np.uint32(1):
                    row[32 * j + i] = -row[32 * j + i]
    return result
