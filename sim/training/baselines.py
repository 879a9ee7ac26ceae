"""Exchanges of others: half floats, truncation, PowerSGD, losses by importance, place or tree."""

import itertools
import math

import numpy as np
from gradnic.models.inceptionn.measure import FLOATS, frame_bytes
from gradnic.models.thc.baselines import truncated

from gradnic.interface.schedule_table import REDUCE

from .codecs import Exchange, Ring, Thc, raw_bytes
from .network import LAYERS

SHAPES = [shape for n, m in itertools.pairwise(LAYERS) for shape in ((n, m), (m,))]


def bf16(values):
    """float32 rounded to the nearest BF16, ties to even; same shape."""
    values = np.ascontiguousarray(values, np.float32)
    bits = values.view(np.uint32)
    rounded = (bits + 0x7FFF + ((bits >> 16) & 1)) & np.uint32(0xFFFF0000)
    return np.where(np.isnan(values), values, rounded.view(np.float32))


def fp16(values):
    """float32 rounded to the nearest FP16, ties to even; above 65,519 Inf; same shape."""
    with np.errstate(over="ignore"):
        return np.asarray(values, np.float32).astype(np.float16).astype(np.float32)


class Bf16(Exchange):
    """BF16 up, summed in FP32, BF16 down; packets of 672 values may be lost on their way up."""

    cast = staticmethod(bf16)
    packet = 2 * FLOATS

    def __call__(self, gradients):
        n_values = gradients.shape[1]
        self.raw_bytes += 2 * self.n_workers * raw_bytes(n_values)
        halves = np.minimum(2 * FLOATS, n_values - np.arange(0, n_values, 2 * FLOATS))
        self.wire_bytes += 2 * self.n_workers * int(frame_bytes(2 * halves).sum())
        sent = self.cast(gradients)
        if not self.loss:
            return self.cast(sent.sum(axis=0))
        arrived = self.arrivals(n_values)
        return self.cast(np.where(arrived, sent, 0).sum(axis=0) * self.factors(arrived))


class Fp16(Bf16):
    """FP16 up, summed in FP32, FP16 down; packets as of `Bf16`."""

    cast = staticmethod(fp16)


class Truncated(Ring):
    """A ring whose cards cut the low `bits` of every float, 1 to 24."""

    def __init__(self, n_workers, *, bits=16, **options):
        super().__init__(n_workers, **options)
        self.bits = bits
        self.image(np.zeros(1, np.float32))  # complains about bits

    def image(self, block):
        return truncated(block, self.bits)

    def sizes(self, block):
        floats = np.minimum(FLOATS, block.size - np.arange(0, block.size, FLOATS))
        return -(-floats * (32 - self.bits) // 8)


class PowerSgd(Exchange):
    """PowerSGD (Vogels et al., NeurIPS 2019): a product of rank `rank` for each weight matrix.

    One power iteration a step from the factor of the step before; each worker keeps what its own
    part lost; vectors travel as they are. shapes : of the network's tensors, in their order; those
    of more axes than two are matrices of the first and the rest.
    """

    def __init__(self, n_workers, *, rank=4, seed=0, shapes=SHAPES):
        super().__init__(n_workers, seed=seed)
        if rank < 1:
            raise ValueError(f"rank must be at least 1, not {rank}")
        self.rank = rank
        self.shapes = [(shape[0], math.prod(shape[1:])) if len(shape) > 1 else (0, shape[0])
                       for shape in shapes]  # fmt: skip
        self.right = [
            self._rng.standard_normal((m, min(rank, n, m))).astype(np.float32)
            for n, m in self.shapes
        ]
        self.errors = 0.0

    def __call__(self, gradients):
        if not np.isfinite(gradients).all():  # the step is skipped, and nothing remembered
            return np.full_like(gradients[0], np.nan)
        x = gradients + self.errors
        total, kept = np.zeros_like(gradients[0]), np.zeros_like(x)
        floats, at = 0, 0
        for i, (n, m) in enumerate(self.shapes):
            size = n * m or m
            whole = slice(at, at + size)
            at += size
            if not n:
                total[whole], kept[:, whole] = x[:, whole].sum(axis=0), x[:, whole]
                floats += m
                continue
            parts = x[:, whole].reshape(-1, n, m)
            left = np.linalg.qr((parts @ self.right[i]).sum(axis=0))[0]
            self.right[i] = np.einsum("wnm,nr->mr", parts, left) / len(parts)
            mean = (left @ self.right[i].T).ravel()
            total[whole], kept[:, whole] = mean * len(parts), mean
            floats += left.size + self.right[i].size
        self.errors = x - kept
        self.raw_bytes += 2 * self.n_workers * raw_bytes(at)
        self.wire_bytes += 2 * self.n_workers * raw_bytes(floats)
        return total


class _Scored(Exchange):
    """Losses that depend on the packets' sums of |g|, float32 (n_workers, n_packets): `_scores`."""

    _scores = None

    def __call__(self, gradients):
        n_packets = -(-gradients.shape[1] // self.packet)
        padded = np.zeros((len(gradients), n_packets * self.packet), np.float32)
        padded[:, : gradients.shape[1]] = np.abs(gradients)
        self._scores = padded.reshape(len(gradients), n_packets, -1).sum(axis=2)
        return super().__call__(gradients)

    def arrivals(self, n_values):
        arrived = np.ones(self._scores.shape, bool)
        for row, scores in zip(arrived, self._scores, strict=True):
            row[self._lost(scores)] = False
        return np.repeat(arrived, self.packet, axis=1)[:, :n_values]


class Prioritized(_Scored):
    """Losses that spare what matters (DLCP): of the packets with the smaller sums of |g| alone.

    loss : share of each worker's packets, lost every time. important : share of the packets, by
    magnitude, that the network keeps; 1 - important must be at least the loss.
    """

    def __init__(self, n_workers, *, important=0.5, **options):
        super().__init__(n_workers, **options)
        if not self.loss <= 1 - important <= 1:
            raise ValueError(f"important must be 0 up to 1 - loss, not {important}")
        self.important = important

    def _lost(self, scores):
        n_small = int((1 - self.important) * len(scores))
        small = np.argsort(scores, kind="stable")[:n_small]
        return self._rng.permutation(small)[: int(self.loss * len(scores))]


REGIONS = ("anywhere", "front", "middle", "back", "small", "large")


class Regional(_Scored):
    """Losses in a third of each worker's packets: by their place in the network, or by their sums.

    loss : share of that third which is lost every time. region : of `REGIONS`; front, middle, back
    by the order of the layers, small and large by magnitude, anywhere at random.
    """

    def __init__(self, n_workers, *, region="anywhere", **options):
        super().__init__(n_workers, **options)
        if region not in REGIONS:
            raise ValueError(f"region must be one of {', '.join(REGIONS)}, not {region!r}")
        self.region = region

    def _lost(self, scores):
        n, order = len(scores), np.arange(len(scores))
        if self.region in ("small", "large"):
            order = np.argsort(scores, kind="stable")
        elif self.region == "anywhere":
            order = self._rng.permutation(n)
        third = {"middle": n // 3, "back": n - n // 3, "large": n - n // 3}.get(self.region, 0)
        inside = self._rng.permutation(order[third : third + n // 3])
        return inside[: int(self.loss * len(inside))]


class PartialThc(Thc):
    """THC whose aggregator closes every sum without its `late` slowest workers, drawn each step.

    They count as the table's middle; what they did not get in stays in their own error memory only
    as far as it is rounding. rescale : by the workers that are in.
    """

    def __init__(self, n_workers, *, late=1, **options):
        if not 0 <= late < n_workers:
            raise ValueError(f"late must be 0 to {n_workers - 1}, not {late}")
        super().__init__(n_workers, loss=late / n_workers, **options)
        self.late = late

    def arrivals(self, n_values):
        arrived = np.ones((self.n_workers, n_values), bool)
        arrived[self._rng.permutation(self.n_workers)[: self.late]] = False
        return arrived


def parents_of(schedule):
    """Where each node sends its sum of each chunk: int64 (n_chunks, n_nodes), -1 at the roots."""
    reduces = schedule.transfers[schedule.transfers["op"] == REDUCE]
    parents = np.full((schedule.n_chunks, schedule.topology.n_nodes), -1)
    for row in reduces:
        parents[row["first"] : row["first"] + row["count"], row["src"]] = row["dst"]
    return parents


class TreeThc(Thc):
    """THC whose sums are made along trees, where a lost packet takes a whole branch's sum with it.

    The tensor is cut into as many parts as there are trees, in whole packets; a root's own values
    are never lost. A parent counts what is missing of a branch as the table's middle, as a card
    does, and the root scales by the workers that are in. Lost on the way up alone: sums come down
    whole (p = 0). parents : as of `parents_of`.
    """

    def __init__(self, n_workers, *, parents, **options):
        super().__init__(n_workers, **options)
        self.parents = np.asarray(parents)
        if self.parents.ndim != 2 or self.parents.shape[1] != n_workers:
            raise ValueError(f"parents must be (n_trees, {n_workers}), not {self.parents.shape}")

    def arrivals(self, n_values):
        n_packets = -(-n_values // self.packet)
        tree = np.arange(n_packets) * len(self.parents) // n_packets
        up = self.parents[tree].T  # (n_workers, n_packets)
        sent = self.packets(n_packets) | (up < 0)
        arrived, at = sent.copy(), up
        while (at >= 0).any():  # all of a path from a worker to its root must hold
            arrived &= np.take_along_axis(sent, np.maximum(at, 0), axis=0) | (at < 0)
            at = np.where(at < 0, -1, np.take_along_axis(up, np.maximum(at, 0), axis=0))
        return np.repeat(arrived, self.packet, axis=1)[:, :n_values]
