"""Exchanges of others to train beside: BF16, PowerSGD, losses by importance, stragglers."""

import itertools

import numpy as np
from gradnic.models.inceptionn.measure import FLOATS, frame_bytes

from .codecs import Exchange, Thc, raw_bytes
from .network import LAYERS


def bf16(values):
    """float32 rounded to the nearest BF16, ties to even; same shape."""
    values = np.ascontiguousarray(values, np.float32)
    bits = values.view(np.uint32)
    rounded = (bits + 0x7FFF + ((bits >> 16) & 1)) & np.uint32(0xFFFF0000)
    return np.where(np.isnan(values), values, rounded.view(np.float32))


class Bf16(Exchange):
    """BF16 up, summed in FP32, BF16 down."""

    def __call__(self, gradients):
        n_values = gradients.shape[1]
        self.raw_bytes += 2 * self.n_workers * raw_bytes(n_values)
        halves = np.minimum(2 * FLOATS, n_values - np.arange(0, n_values, 2 * FLOATS))
        self.wire_bytes += 2 * self.n_workers * int(frame_bytes(2 * halves).sum())
        return bf16(bf16(gradients).sum(axis=0))


class PowerSgd(Exchange):
    """PowerSGD (Vogels et al., NeurIPS 2019): a product of rank `rank` for each weight matrix.

    One power iteration a step from the factor of the step before; each worker keeps what its own
    part lost; biases travel as they are. layers : widths of the network.
    """

    def __init__(self, n_workers, *, rank=4, seed=0, layers=LAYERS):
        super().__init__(n_workers, seed=seed)
        if rank < 1:
            raise ValueError(f"rank must be at least 1, not {rank}")
        self.rank, self.shapes = rank, list(itertools.pairwise(layers))
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
            parts = x[:, at : at + n * m].reshape(-1, n, m)
            left = np.linalg.qr((parts @ self.right[i]).sum(axis=0))[0]
            self.right[i] = np.einsum("wnm,nr->mr", parts, left) / len(parts)
            mean = (left @ self.right[i].T).ravel()
            total[at : at + n * m] = mean * len(parts)
            kept[:, at : at + n * m] = mean
            floats += left.size + self.right[i].size + m
            at += n * m
            total[at : at + m] = x[:, at : at + m].sum(axis=0)
            kept[:, at : at + m] = x[:, at : at + m]
            at += m
        self.errors = x - kept
        self.raw_bytes += 2 * self.n_workers * raw_bytes(at)
        self.wire_bytes += 2 * self.n_workers * raw_bytes(floats)
        return total


class Prioritized(Exchange):
    """Losses that spare what matters (DLCP): of the packets with the smaller sums of |g| alone.

    loss : share of each worker's packets, lost every time. important : share of the packets, by
    magnitude, that the network keeps; 1 - important must be at least the loss.
    """

    def __init__(self, n_workers, *, important=0.5, **options):
        super().__init__(n_workers, **options)
        if not self.loss <= 1 - important <= 1:
            raise ValueError(f"important must be 0 up to 1 - loss, not {important}")
        self.important, self._scores = important, None

    def __call__(self, gradients):
        n_packets = -(-gradients.shape[1] // self.packet)
        padded = np.zeros((len(gradients), n_packets * self.packet), np.float32)
        padded[:, : gradients.shape[1]] = np.abs(gradients)
        self._scores = padded.reshape(len(gradients), n_packets, -1).sum(axis=2)
        return super().__call__(gradients)

    def arrivals(self, n_values):
        n_packets = self._scores.shape[1]
        arrived = np.ones(self._scores.shape, bool)
        n_small = int((1 - self.important) * n_packets)
        for row, scores in zip(arrived, self._scores, strict=True):
            small = np.argsort(scores, kind="stable")[:n_small]
            row[self._rng.permutation(small)[: int(self.loss * n_packets)]] = False
        return np.repeat(arrived, self.packet, axis=1)[:, :n_values]


class PartialThc(Thc):
    """THC whose aggregator closes every sum without its `late` slowest workers, drawn each step.

    They count as the table's middle; what they did not get in stays in their own error memory only
    as far as it is rounding. rescale : by the workers that are in.
    """

    def __init__(self, n_workers, *, late=1, **options):
        if not 0 <= late < n_workers:
            raise ValueError(f"late must be 0 to {n_workers - 1}, not {late}")
        super().__init__(n_workers, **options)
        self.late = late
        self.loss = late / n_workers

    def arrivals(self, n_values):
        arrived = np.ones((self.n_workers, n_values), bool)
        arrived[self._rng.permutation(self.n_workers)[: self.late]] = False
        return arrived
