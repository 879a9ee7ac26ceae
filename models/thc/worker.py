"""THC (NSDI 2024): tensor homomorphic compression, worker side, bit exact.

Gradients are scaled by an agreed norm, rotated by a randomized Hadamard transform, and rounded at
random to a table of levels whose values add up directly: an aggregator sums small integers. The
paper's arithmetic is real-valued; the integer arithmetic here is ours, and its distance from the
real-valued scheme is bounded in the tests.
"""

from collections.abc import Iterator
from typing import Any

import numpy as np

from .shared_random import (
    SIGN_WORKER,
    block_hash,
    block_hashes,
    key,
    lane_keys,
    random_bytes,
    signs,
)
from .table import clip_point, solve_table

try:
    from . import compiled
except ImportError:  # numba is the extra `fast`
    compiled = None  # type: ignore[assignment]

F = 8  # fraction bits of a value scaled to sigma = 1
BLOCKS = (64, 256, 1024, 4096)
INFINITE = np.uint32(0x7F800000)
QUIET_NAN = np.uint32(0x7FC00000)
BATCH = 1 << 18  # elements worked on at a time: a few arrays of this size stay in the cache

__all__ = ["Worker", "clip_point", "pack", "solve_table", "unpack"]


def _whole(name: str, value: Any, high: int = (1 << 32) - 1, low: int = 0) -> int:
    """`value` as an int; ValueError unless it is an integer of `low` to `high`."""
    if not isinstance(value, int | np.integer) or not low <= value <= high:
        raise ValueError(f"{name} must be an integer of {low} to {high}, not {value!r}")
    return int(value)


def _integers(name: str, values: Any) -> np.ndarray:
    """`values` as an array of this machine's byte order; ValueError unless they are integers."""
    values = np.asarray(values)
    if values.dtype.kind not in "iu" and values.size:
        raise ValueError(f"{name} must be integers, not {values.dtype}")
    return values.astype(values.dtype.newbyteorder("="), copy=False)


def _inside(name: str, values: np.ndarray, high: int) -> None:
    """ValueError unless all lie in 0 to `high`."""
    if not values.size:
        return
    for value in values.min(), values.max():
        if not 0 <= value <= high:
            raise ValueError(f"{name} must be 0 to {high}, not {value}")


def pack(values: np.ndarray, width: int) -> bytes:
    """Pack unsigned values into a bit stream, most significant bit first.

    values : integers below 2**width, shape (n,). width : int, 1 to 16 bits.
    Returns ceil(n * width / 8) bytes; the last byte is filled with zero bits.
    ValueError if a value does not fit.
    """
    _whole("width", width, 16, low=1)
    values = _integers("values", values)
    if values.ndim != 1:
        raise ValueError(f"values must have shape (n,), not {values.shape}")
    _inside("values", values, (1 << width) - 1)
    if width == 8:
        return values.astype(np.uint8).tobytes()
    if width == 16:
        return values.astype(">u2").tobytes()
    if width == 4:
        nibbles = values.astype(np.uint8)
        packed = np.zeros(-(-nibbles.size // 2), np.uint8)
        np.left_shift(nibbles[::2], 4, out=packed)
        packed[: nibbles.size // 2] |= nibbles[1::2]
        return packed.tobytes()
    shifts = np.arange(width - 1, -1, -1)
    bits = (values.astype(np.uint16)[:, None] >> shifts & 1).astype(np.uint8)
    return np.packbits(bits).tobytes()


def unpack(data: bytes, width: int, count: int) -> np.ndarray:
    """Inverse of `pack`: `count` values of `width` bits, uint16 above 8 bits, else uint8.

    ValueError if `data` is not ceil(count * width / 8) bytes long.
    """
    _whole("width", width, 16, low=1)
    _whole("count", count)
    raw = np.frombuffer(data, np.uint8)
    if raw.size != -(-count * width // 8):
        raise ValueError(
            f"{count} values of {width} bits are {-(-count * width // 8)} bytes, not {raw.size}"
        )
    if width == 8:
        return raw.copy()
    if width == 16:
        return raw.view(">u2").astype(np.uint16)
    if width == 4:
        nibbles = np.empty((raw.size, 2), np.uint8)
        np.right_shift(raw, 4, out=nibbles[:, 0])
        np.bitwise_and(raw, 15, out=nibbles[:, 1])
        return nibbles.reshape(-1)[:count]
    dtype = np.uint8 if width <= 8 else np.uint16
    bits = np.unpackbits(raw, count=count * width).reshape(count, width)
    values: Any = np.zeros(count, dtype)
    for column in bits.T:  # most significant first
        values <<= 1
        values |= column
    return values


def hadamard(x: np.ndarray) -> np.ndarray:
    """Natural-order Walsh-Hadamard transform of each row, in place. x: int32 (n_blocks, B)."""
    n_blocks, size = x.shape
    length = 1
    while length < size:
        pairs = x.reshape(n_blocks, size // (2 * length), 2, length)
        difference = pairs[:, :, 0] - pairs[:, :, 1]
        pairs[:, :, 0] += pairs[:, :, 1]
        pairs[:, :, 1] = difference
        length *= 2
    return x


def _split(x: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Sign (bool), biased exponent (int32) and mantissa with hidden one (int64) of FP32 values."""
    bits = x.view(np.uint32)
    exponent = (bits >> np.uint32(23) & np.uint32(0xFF)).astype(np.int32)
    mantissa = (bits & np.uint32(0x7FFFFF) | np.uint32(0x800000)).astype(np.int64)
    mantissa[exponent == 0] = 0  # denormals count as zero
    return bits >> np.uint32(31) != 0, exponent, mantissa


def _flush(x: np.ndarray) -> np.ndarray:
    """Subnormal results become +0."""
    return np.where(np.abs(x) < np.finfo(np.float32).tiny, np.float32(0), x)


class Worker:
    """One of `n` workers: norms, then indices up; table sums down, then floats.

    Parameters
    ----------
    n : int
        Workers whose table values are summed, at least 1; n * g must fit the accumulator, and
        n * g * B must be below 2**31, which decoding computes in 32 bits.
    seed : int
        Shared by all workers, 0 to 2**32 - 1.
    b : int
        Bits of an index, 1 to 8.
    g : int
        Granularity of the table, 2**b - 2 to 255.
    p : float
        Share of a Gaussian that is clipped, above 0, below 0.9984, where the clip point is
        one unit of the fixed point.
    B : int
        Elements of a rotated block: 64, 256, 1024 or 4096.
    norm : str
        ``block``: one norm for each block; ``tensor``: one for the whole tensor, as in the paper.
    sign_round : int
        Round that seeds the sign diagonal, 0 to 2**32 - 1; 0 keeps one diagonal for all rounds.
    fast : bool
        True takes the compiled path, which needs numba, False numpy; None, the default, the
        compiled one where numba is installed. Both give the same bits.

    Source: THC, the worker's pipeline; the reference ships b = 2, 3, 4 at g = 30 and p = 1/32.
    """

    def __init__(
        self,
        n: int,
        seed: int,
        b: int = 4,
        g: int = 30,
        p: float = 1 / 32,
        B: int = 1024,
        norm: str = "block",
        sign_round: int = 0,
        fast: bool | None = None,
    ) -> None:
        seed, sign_round = _whole("seed", seed), _whole("sign_round", sign_round)
        if not isinstance(B, int | np.integer) or B not in BLOCKS:
            raise ValueError(f"B must be 64, 256, 1024 or 4096, not {B!r}")
        if norm not in ("block", "tensor"):
            raise ValueError(f"norm must be 'block' or 'tensor', not {norm!r}")
        if fast and compiled is None:
            raise ValueError(f"fast must not be {fast!r} where numba is not installed")
        table = solve_table(b, g, p)
        b, g, B = int(b), int(g), int(B)
        n = _whole("n", n, ((1 << 31) - 1) // (g * B), low=1)
        self._compiled = None if fast is False else compiled
        self.n, self.seed, self.b, self.g, self.p, self.B = n, seed, b, g, p, B
        self.norm, self.sign_round = norm, sign_round
        self.table = np.array(table)
        self._values = self.table.astype(np.uint8)  # g is at most 255
        self.h = (B.bit_length() - 1) // 2
        self.t_fixed = round(clip_point(p) * 2**F)
        if not self.t_fixed:
            raise ValueError(f"p must be below 0.9984, so that less is clipped than all, not {p!r}")
        self.unit = round(g * 2**24 / (2 * self.t_fixed))
        lower = np.searchsorted(self.table, np.arange(g + 1), side="right") - 1
        gap = np.append(np.diff(self.table), 0)[lower]
        # one row a table unit: lower index, its value in 1/256 table units, gap to the next value
        self._cells = np.stack([lower, 256 * self.table[lower], gap], axis=1).astype(np.int32)

    def values(self, indices: np.ndarray) -> np.ndarray:
        """Table values of `indices`, uint8 in their shape: what an aggregator adds, in wider sums.

        Unit: one table unit. ValueError for what is no index, 0 to 2**b - 1.
        """
        indices = _integers("indices", indices)
        _inside("indices", indices, 2**self.b - 1)
        return np.take(self._values, indices)

    def blocks(self, x: np.ndarray) -> np.ndarray:
        """x of any shape as float32 (n_blocks, B), padded with +0.

        Other real numbers, such as float64, are rounded to float32 first. ValueError where there
        is no value, or something else than real numbers, such as None.
        """
        x = np.asarray(x)
        if x.dtype.kind in "OcSUMm":
            raise ValueError(f"x must hold real numbers, not {x.dtype}")
        if not x.size:
            raise ValueError(f"x must hold at least one value, not shape {x.shape}")
        flat = np.ascontiguousarray(x, np.float32).reshape(-1)
        n_blocks = -(-flat.size // self.B)
        if flat.size == n_blocks * self.B:
            return flat.reshape(n_blocks, self.B)
        padded = np.zeros((n_blocks, self.B), np.float32)
        padded.reshape(-1)[: flat.size] = flat
        return padded

    def norms(self, x: np.ndarray) -> np.ndarray:
        """The worker's norms of x (any shape): FP32 bits, uint32 (n_blocks,), or (1,) per tensor.

        Exact and independent of order in block mode: 17-bit mantissas aligned to the largest
        exponent, squared and summed as integers. Inf where a value or the norm is not finite.
        """
        rows = self.blocks(x)
        if self.norm == "tensor":
            with np.errstate(over="ignore", invalid="ignore"):
                norm = np.float32(np.sqrt(np.square(rows, dtype=np.float64).sum()))
            bits = np.array([norm], np.float32).view(np.uint32)
            return bits if np.isfinite(norm) else np.array([INFINITE], np.uint32)
        if self._compiled:
            return self._compiled.norms(rows.view(np.uint32))
        return np.concatenate([self._block_norms(rows[part]) for part in self._batches(len(rows))])

    def _block_norms(self, rows: np.ndarray) -> np.ndarray:
        _, exponent, mantissa = _split(rows)
        top = exponent.max(axis=1)
        shift = np.minimum(top[:, None] - exponent + 7, 63)
        aligned = mantissa >> shift
        square = np.einsum("ij,ij->i", aligned, aligned)
        _, length = np.frexp(square.astype(np.float64))  # exact: square < 2**46
        k = (48 - length) & ~1
        scaled = square << k
        root = np.sqrt(scaled.astype(np.float64)).astype(np.int64)
        root -= root * root > scaled
        result_exponent = top + 7 - k // 2
        bits = (result_exponent.astype(np.int64) << 23 | root & 0x7FFFFF).astype(np.uint32)
        bits[(result_exponent < 1) | (top == 0)] = 0
        bits[(top == 255) | (result_exponent >= 255)] = INFINITE
        return bits

    def encode(
        self,
        x: np.ndarray,
        norms: np.ndarray,
        *,
        round: int,
        worker: int,
        tensor: int = 0,
        first_block: int = 0,
        clips: bool = False,
    ) -> np.ndarray:
        """Indices of x under the agreed `norms`.

        x : float32, any shape. norms : uint32 FP32 bits, as `norms` returns, maximum over workers.
        round, worker, tensor : ints that seed the rounding, 0 to 2**32 - 1; `worker` is the global
        rank, below 2**32 - 1, which seeds the sign diagonal.
        first_block : int, number in the tensor of the block that x starts with, 0 to 2**32 - 1.
        clips : True takes a norm below this worker's own, which no maximum is, as it is: values
        are clipped at sqrt(B) times its sigma, so that all sums stay in their range.
        Returns uint8 (n_blocks * B,). A block whose agreed norm is 0 or Inf, or below this
        worker's own without `clips`, carries the middle index 2**(b-1) throughout. ValueError if
        norms do not match in number, or are no bits but floats.
        """
        round, tensor = _whole("round", round), _whole("tensor", tensor)
        worker = _whole("worker", worker, SIGN_WORKER - 1)
        rows = self.blocks(x)
        first_block = _whole("first_block", first_block, (1 << 32) - len(rows))
        norms = self._checked(norms, len(rows))
        factors, offsets = self._factors(norms, rows)
        blocks = first_block + np.arange(len(rows))
        if self._compiled:
            k = key(self.seed, round, worker)
            result = self._compiled.encode(
                rows.view(np.uint32), factors, offsets, self.h, self.t_fixed, self.unit,
                self._cells, lane_keys(k), *block_hashes(k, tensor, blocks),
                self._sign_hash(tensor, blocks),
            )  # fmt: skip
        else:
            result = np.empty(rows.shape, np.uint8)
            for part in self._batches(len(rows)):
                values = self._scale(rows[part], factors[part], offsets[part])
                negated = signs(self._sign_hash(tensor, blocks[part]), self.B)
                np.negative(values, out=values, where=negated)
                rotated = hadamard(values) + (1 << (self.h - 1)) >> self.h
                random = random_bytes(self.seed, round, worker, tensor, blocks[part], self.B)
                result[part] = self._quantize(rotated, random)
        silent = np.broadcast_to((norms == 0) | (norms >= INFINITE), len(rows))
        if self.norm == "block" and not clips:
            silent = silent | (self.norms(rows) > norms)
        result[silent] = 2 ** (self.b - 1)
        return result.reshape(-1)

    def _batches(self, n_blocks: int) -> list[slice]:
        """Slices of a few blocks at a time, so that the working set stays in the cache."""
        batch = max(1, BATCH // self.B)
        return [slice(i, i + batch) for i in range(0, n_blocks, batch)]

    def _sign_hash(self, tensor: int, blocks: np.ndarray) -> np.ndarray:
        return block_hash(key(self.seed, self.sign_round, SIGN_WORKER), tensor, blocks)

    def _checked(self, norms: np.ndarray, n_blocks: int) -> np.ndarray:
        norms = np.asarray(norms)
        expected = (n_blocks,) if self.norm == "block" else (1,)
        if norms.shape != expected:
            raise ValueError(f"norms must have shape {expected}, not {norms.shape}")
        norms = _integers("norms, the bits of FP32,", norms)
        if norms.dtype != np.uint32:
            _inside("norms", norms, (1 << 32) - 1)
        return np.ascontiguousarray(norms, np.uint32)

    def _factors(self, norms: np.ndarray, rows: np.ndarray) -> Iterator[np.ndarray]:
        """What scales each block: int64 factors and exponent offsets, both (n_blocks,).

        A value is (its 17-bit mantissa times the factor) >> (offset - its exponent).
        """
        if self.norm == "block":
            _, exponent, mantissa = _split(norms.view(np.float32))
            factor = (1 << 39) // np.maximum(mantissa, 1 << 23)
            offset = exponent + 32 - self.h - F
        else:
            with np.errstate(divide="ignore"):
                scale = np.sqrt(float(rows.size)) / norms.view(np.float32).astype(np.float64)
                _, exponent, mantissa = _split(scale.astype(np.float32))
            factor = mantissa >> 8
            offset = 285 - F - exponent
        return (np.repeat(v.astype(np.int64), len(rows) // len(v)) for v in (factor, offset))

    def _scale(self, rows: np.ndarray, factors: np.ndarray, offsets: np.ndarray) -> np.ndarray:
        """Rows scaled to sigma = 1 as fixed point with F fraction bits, int32 (n_blocks, B)."""
        sign, exponent, mantissa = _split(rows)
        product = (mantissa >> 7) * factors[:, None]
        shift = offsets[:, None] - exponent
        limit = 1 << (self.h + F)
        safe = np.clip(shift, 1, 62)
        scaled = np.minimum(product + (np.int64(1) << (safe - 1)) >> safe, limit)
        scaled[shift < 1] = limit
        scaled[(shift >= 62) | (exponent == 0)] = 0
        scaled = scaled.astype(np.int32)
        return np.negative(scaled, out=scaled, where=sign)

    def _quantize(self, rotated: np.ndarray, random: np.ndarray) -> np.ndarray:
        """Stochastic rounding of fixed-point values to indices; centered to 1/256 table unit."""
        clipped = np.clip(rotated, -self.t_fixed, self.t_fixed).astype(np.int64)
        u = ((clipped + self.t_fixed) * self.unit + (1 << 15) >> 16).astype(np.int32)
        lower, level, gap = (column[u >> 8] for column in self._cells.T)
        return lower + ((gap * (2 * random.astype(np.int32) + 1) <= 2 * (u - level)) & (gap > 0))

    def decode(
        self, sums: np.ndarray, norms: np.ndarray, *, round: int, tensor: int = 0
    ) -> np.ndarray:
        """Mean gradient from the integer table sums of all workers.

        sums : integers, shape (n_blocks * B,), unit: one table unit. norms : as in `encode`.
        Returns float32 (n_blocks * B,): 0 where the norm is 0, quiet NaN where it is Inf.
        """
        _whole("round", round)  # nothing depends on it: the sign diagonal has a round of its own
        return self._restore(sums, norms, self.n, tensor)

    def residual(
        self, x: np.ndarray, indices: np.ndarray, norms: np.ndarray, *, tensor: int = 0
    ) -> np.ndarray:
        """What this worker's own indices lost of x: the error to feed back into the next round.

        Returns float32, the padded length; THC's error feedback e = x - decoded own indices. Always
        finite: +0 throughout a block whose agreed norm is not finite, so that an overflow, which
        loss scaling makes on purpose and then skips, is not heard of again; and +0 for a value
        whose difference overflows.
        """
        own = self._restore(self.values(indices), norms, 1, tensor)
        with np.errstate(invalid="ignore", over="ignore"):
            error = self.blocks(x).reshape(-1) - own
        error[~np.isfinite(error)] = 0
        return error

    def _restore(self, sums: np.ndarray, norms: np.ndarray, n: int, tensor: int) -> np.ndarray:
        tensor = _whole("tensor", tensor)
        sums = np.asarray(sums)
        if sums.ndim != 1 or sums.size % self.B:
            raise ValueError(f"sums must have shape (n_blocks * {self.B},), not {sums.shape}")
        if not sums.size:
            raise ValueError(f"sums must hold a block at least, not shape {sums.shape}")
        sums = _integers("sums", sums)
        rows = sums.reshape(-1, self.B)
        norms = self._checked(norms, len(rows))
        denominator = n * self.g * self.B
        if self.norm == "tensor":
            denominator = n * self.g * np.sqrt(float(rows.size)) * np.sqrt(float(self.B))
        unit = np.float32(self.t_fixed / 2**F / denominator)
        blocks = np.arange(len(rows))
        with np.errstate(over="ignore", invalid="ignore", under="ignore"):
            scale = np.repeat(_flush(norms.view(np.float32) * unit), len(rows) // len(norms))
            if self._compiled:
                seeds = self._sign_hash(tensor, blocks)
                result = self._compiled.decode(rows, n * self.g, scale, seeds)
            else:
                result = np.empty(rows.shape, np.float32)
                for part in self._batches(len(rows)):
                    values = hadamard(2 * rows[part].astype(np.int32) - n * self.g)
                    floats = _flush(values.astype(np.float32) * scale[part, None])
                    negated = signs(self._sign_hash(tensor, blocks[part]), self.B)
                    result[part] = np.negative(floats, out=floats, where=negated)
        result[np.broadcast_to(norms == 0, len(rows))] = 0
        result[np.broadcast_to(norms >= INFINITE, len(rows))] = QUIET_NAN.view(np.float32)
        return result.reshape(-1)
