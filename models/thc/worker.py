"""THC (NSDI 2024): tensor homomorphic compression, worker side, bit exact.

Gradients are scaled by an agreed norm, rotated by a randomized Hadamard transform, and rounded at
random to a table of levels whose values add up directly: an aggregator sums small integers. The
paper's arithmetic is real-valued; the integer arithmetic here is ours, and its distance from the
real-valued scheme is bounded in the tests.
"""

import numpy as np

from .bit_packer import pack, unpack
from .checks import inside, integers, whole
from .decoder import decode
from .encoder import Seeds, batches, encode
from .floats import INFINITE
from .hadamard import hadamard
from .norm import block_norms
from .quantize import Quantizer
from .scale import F, factors_of_norms, factors_of_scales
from .shared_random import SIGN_WORKER, block_hash, key
from .table import clip_point, solve_table

try:
    from . import compiled
except ImportError:  # numba is the extra `fast`
    compiled = None  # type: ignore[assignment]

BLOCKS = (64, 256, 1024, 4096)

__all__ = ["Worker", "clip_point", "hadamard", "pack", "solve_table", "unpack"]


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
        seed, sign_round = whole("seed", seed), whole("sign_round", sign_round)
        if not isinstance(B, int | np.integer) or B not in BLOCKS:
            raise ValueError(f"B must be 64, 256, 1024 or 4096, not {B!r}")
        if norm not in ("block", "tensor"):
            raise ValueError(f"norm must be 'block' or 'tensor', not {norm!r}")
        if fast and compiled is None:
            raise ValueError(f"fast must not be {fast!r} where numba is not installed")
        table = solve_table(b, g, p)
        b, g, B = int(b), int(g), int(B)
        n = whole("n", n, ((1 << 31) - 1) // (g * B), low=1)
        self._compiled = None if fast is False else compiled
        self.n, self.seed, self.b, self.g, self.p, self.B = n, seed, b, g, p, B
        self.norm, self.sign_round = norm, sign_round
        self.table = np.array(table)
        self._values = self.table.astype(np.uint8)  # g is at most 255
        self.h = (B.bit_length() - 1) // 2
        self.quantizer = Quantizer(table, p)
        self.t_fixed, self.unit = self.quantizer.t_fixed, self.quantizer.unit
        self._cells = self.quantizer.cells

    def values(self, indices: np.ndarray) -> np.ndarray:
        """Table values of `indices`, uint8 in their shape: what an aggregator adds, in wider sums.

        Unit: one table unit. ValueError for what is no index, 0 to 2**b - 1.
        """
        indices = integers("indices", indices)
        inside("indices", indices, 2**self.b - 1)
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
        return np.concatenate([block_norms(rows[part]) for part in batches(*rows.shape)])

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
        round, tensor = whole("round", round), whole("tensor", tensor)
        worker = whole("worker", worker, SIGN_WORKER - 1)
        rows = self.blocks(x)
        first_block = whole("first_block", first_block, (1 << 32) - len(rows))
        norms = self._checked(norms, len(rows))
        silent = np.broadcast_to((norms == 0) | (norms >= INFINITE), len(rows))
        if self.norm == "block" and not clips:
            silent = silent | (self.norms(rows) > norms)
        own, blocks = key(self.seed, round, worker), first_block + np.arange(len(rows))
        seeds = Seeds(own, self._sign_key(), tensor, blocks)
        scaling = self._factors(norms, rows)
        return encode(rows, scaling, silent, self.quantizer, seeds, twin=self._compiled).reshape(-1)

    def _sign_key(self) -> np.ndarray:
        return key(self.seed, self.sign_round, SIGN_WORKER)

    def _checked(self, norms: np.ndarray, n_blocks: int) -> np.ndarray:
        norms = np.asarray(norms)
        expected = (n_blocks,) if self.norm == "block" else (1,)
        if norms.shape != expected:
            raise ValueError(f"norms must have shape {expected}, not {norms.shape}")
        norms = integers("norms, the bits of FP32,", norms)
        if norms.dtype != np.uint32:
            inside("norms", norms, (1 << 32) - 1)
        return np.ascontiguousarray(norms, np.uint32)

    def _factors(self, norms: np.ndarray, rows: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """What scales each block: int64 factors and exponent offsets, both (n_blocks,)."""
        if self.norm == "block":
            return factors_of_norms(norms, self.h)
        with np.errstate(divide="ignore"):
            scale = np.sqrt(float(rows.size)) / norms.view(np.float32).astype(np.float64)
        factor, offset = factors_of_scales(scale.astype(np.float32))
        return np.repeat(factor, len(rows)), np.repeat(offset, len(rows))

    def decode(
        self, sums: np.ndarray, norms: np.ndarray, *, round: int, tensor: int = 0
    ) -> np.ndarray:
        """Mean gradient from the integer table sums of all workers.

        sums : integers, shape (n_blocks * B,), unit: one table unit. norms : as in `encode`.
        Returns float32 (n_blocks * B,): 0 where the norm is 0, quiet NaN where it is Inf.
        """
        whole("round", round)  # nothing depends on it: the sign diagonal has a round of its own
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
        tensor = whole("tensor", tensor)
        sums = np.asarray(sums)
        if sums.ndim != 1 or sums.size % self.B:
            raise ValueError(f"sums must have shape (n_blocks * {self.B},), not {sums.shape}")
        if not sums.size:
            raise ValueError(f"sums must hold a block at least, not shape {sums.shape}")
        sums = integers("sums", sums)
        rows = sums.reshape(-1, self.B)
        norms = self._checked(norms, len(rows))
        denominator = n * self.g * self.B
        if self.norm == "tensor":
            denominator = n * self.g * np.sqrt(float(rows.size)) * np.sqrt(float(self.B))
        unit = np.float32(self.t_fixed / 2**F / denominator)
        signs = block_hash(self._sign_key(), tensor, np.arange(len(rows)))
        return decode(rows, n * self.g, norms, unit, signs, twin=self._compiled).reshape(-1)
