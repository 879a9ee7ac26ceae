"""Mutation campaign of a THC worker's way down at 4 lanes: unpacking, transform, scale."""

import numpy as np

from ..hdl.thc_decoder import ThcDecoder
from ..models import thc
from . import stimulus
from .worker import SEED, Turn, decode

N_LANES = 4
CASES = (
    (8, {"B": 64}, 8, 24),
    (100, {"B": 256, "b": 3, "g": 34}, 12, 12),
    (3, {"B": 64}, 16, 24),
    (258, {"B": 1024, "b": 8, "g": 254, "p": 1 / 128}, 16, 8),
    (136, {"B": 4096}, 12, 3),
)


def component():
    """The circuit under mutation."""
    return ThcDecoder(N_LANES, block=4096)


def test(model):
    """Every block size and sum width, every kind of norm, stalls, rate, full stores, seeds."""
    for n_workers, shape, width, n in CASES:
        worker = thc.Worker(n_workers, SEED, **shape)
        run = decode(model, N_LANES, worker, width, n)
        taken = run.taken["floats"]
        assert taken[-1] - taken[0] <= n * worker.B // N_LANES + 2, "not at full rate"
        decode(model, N_LANES, worker, width, n, stalls={"blocks": 0.2, "sums": 0.6, "floats": 0.4})
    _products(model)
    worker = thc.Worker(3, SEED, B=64)
    decode(model, N_LANES, worker, 8, 200, stalls={"floats": stimulus.storm(3000)})
    decode(model, N_LANES, worker, 8, 200, stalls={"sums": ([0] * 600, 1)})


def _products(model):
    """Factors and sums whose products are ties, all ones, too large, subnormal, or just not."""
    rng = np.random.default_rng(41)
    for k in range(30):
        seed, tensor = map(int, rng.integers(0, 1 << 32, 2))
        size = (64, 64, 64, 256, 1024, 4096)[k % 6]
        g = int(rng.integers(15, 255))
        n_workers = int(rng.integers(1, 65535 // g + 1))
        worker = thc.Worker(n_workers, seed, B=size, b=4, g=g)
        n = max(4, 2560 // size)
        norms = rng.integers(0, 1 << 32, n) & 0x7FFFFFFF
        ends = np.concatenate([rng.integers(0, 60, n), rng.integers(225, 256, n)])
        norms = (norms & 0x7FFFFF | rng.choice(ends, n) << 23).astype(np.uint32)
        norms[: n // 4] &= 0x7F800000  # powers of two: the factor is the unit's mantissa
        sums = rng.integers(0, n_workers * g + 1, (n, size))
        spikes = rng.random(n) < 0.6  # nearly all in the middle: few values, of few bits
        sums[spikes] = n_workers * g // 2
        at = rng.integers(0, size, n)
        sums[np.arange(n), at] = rng.integers(0, n_workers * g + 1, n)
        sums[0] = n_workers * g
        sums[1] = 0
        how = {"turn": Turn(tensor=tensor), "norms": norms, "sums": sums.reshape(-1)}
        decode(model, N_LANES, worker, 16, n, **how)


#: the transform and the queues have campaigns of their own
ELSEWHERE = r"-cell \S*\\rotate\.|-src \S*hdl/(fifo|ring|hadamard)\.py:\d+$"
EXPLAINED = {}
