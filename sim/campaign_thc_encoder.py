"""Mutation campaign of a THC worker's way up at 4 lanes: scale, dice, transform, quantizer."""

import numpy as np

from ..hdl.thc_encoder import ThcEncoder
from ..models import thc
from . import stimulus
from .worker import SEED, Encoder, Turn, blocks_of_floats

N_LANES = 4
SHAPES = (
    {"B": 64},
    {"B": 256, "b": 3, "g": 34},
    {"B": 64, "b": 8, "g": 254, "p": 1 / 128},
    {"B": 64, "b": 1, "g": 1},
    {"B": 64, "b": 5, "g": 51},
    {"B": 64, "b": 6, "g": 63},
    {"B": 64, "b": 7, "g": 127},
    {"B": 256, "b": 2, "g": 6, "norm": "tensor"},
    {"B": 1024},
    {"B": 4096, "b": 8, "g": 254, "p": 1 / 128},
)
FINE = {"b": 8, "g": 254, "p": 1 / 1024}  # indices that show the smallest differences


def component():
    """The circuit under mutation."""
    return ThcEncoder(N_LANES, block=4096)


def test(model):
    """Every block size and index width, every kind of norm, stalls, rate, full stores, seeds."""
    for k, shape in enumerate(SHAPES):
        worker = thc.Worker(3, SEED, **shape)
        encoder = Encoder(model, N_LANES, worker)
        n = min(24, 8192 // worker.B)
        run = encoder.play_kinds(n)
        taken = run.taken["floats"]
        assert taken[-1] - taken[0] == n * worker.B // N_LANES - 1, "not at full rate"
        if k % 3 == 0:
            encoder.play_kinds(n, stalls={"blocks": 0.1, "floats": 0.6, "indices": 0.3})
    _seeds(model)
    for size, n in ((64, 600), (256, 60), (1024, 20), (4096, 6)):
        worker = thc.Worker(3, SEED, B=size, **FINE)
        _play_near(Encoder(model, N_LANES, worker), n)
        _play_powers(Encoder(model, N_LANES, worker), 320 if size == 64 else n)
    _factors(model)
    x = blocks_of_floats(worker, 5)  # of 4096: more than the stores hold
    encoder = Encoder(model, N_LANES, worker)
    encoder.play(x, worker.norms(x), stalls={"indices": stimulus.storm(4000)})
    worker = thc.Worker(3, SEED, B=64)
    encoder = Encoder(model, N_LANES, worker)
    x = blocks_of_floats(worker, 150)  # more than there is room for
    encoder.play(x, worker.norms(x), stalls={"floats": ([0] * 400, 1)})


def _seeds(model):
    """Jobs, rounds, ranks, tensors and blocks of any number: every bit of every hash."""
    rng = np.random.default_rng(31)
    for k in range(24):
        seed, round, rank, tensor, first = map(int, rng.integers(0, 1 << 32, 5))
        worker = thc.Worker(3, seed, B=64, **(FINE if k % 3 else {}))
        turn = Turn(round, rank, tensor, min(first, (1 << 32) - 20))
        encoder = Encoder(model, N_LANES, worker, turn)
        encoder.play_kinds(16, stalls={"floats": 0.8} if k % 4 == 0 else None)


def _play_near(encoder, n):
    """Norms just beside a step of their reciprocal, of every exponent, over values of all sizes."""
    rng, worker = np.random.default_rng(encoder.worker.B), encoder.worker
    factors = rng.integers(1 << 15, (1 << 16) + 1, n)
    mantissas = np.clip((1 << 39) // factors + rng.integers(-1, 2, n), 1 << 23, (1 << 24) - 1)
    exponents = rng.integers(1, 255, n)
    exponents[::3] = rng.integers(100, 150, len(exponents[::3]))
    norms = (exponents << 23 | mantissas & 0x7FFFFF).astype(np.uint32)
    sizes = rng.choice([0, 0, 0, 1, 4, 9, 16, 40], (n, 1))  # how many times each value is halved
    values = rng.uniform(-4, 4, (n, worker.B)) * 0.5 ** (rng.random((n, worker.B)) * sizes)
    values[rng.random(n) < 0.1, 3] *= 64  # beyond the limit
    with np.errstate(over="ignore", under="ignore"):
        x = (values * norms.view(np.float32)[:, None].astype(float) / np.sqrt(worker.B)).astype(
            "<f4"
        )
    x = np.where(np.isfinite(x), x, np.float32(1))
    silent = (worker.norms(x) > norms).astype(int)
    encoder.play(x, norms, silent=silent)


def _play_powers(encoder, n):
    """One power of two a block, of any size: bits of products and of shifted values stand alone."""
    worker, k = encoder.worker, np.arange(n)
    exponents = 60 + k % 130
    norms = (exponents << 23 | np.where(k % 3, 0x7FFFFF, 0)).astype(np.uint32)
    x = np.zeros((n, worker.B), np.uint32)
    places = k * 5 % worker.B  # a lane after the other
    x[k, places] = exponents - 24 + k * 7 % 48 << 23 | k % 2 << 31
    x = x.view(np.float32)
    encoder.play(x, norms, silent=(worker.norms(x) > norms).astype(int))


def _factors(model):
    """Factors of whole tensors of any mantissa."""
    rng = np.random.default_rng(33)
    worker = thc.Worker(3, SEED, B=64, norm="tensor", **FINE)
    encoder = Encoder(model, N_LANES, worker)
    for _ in range(12):
        x = (rng.standard_normal((4, 64)) * 2.0 ** rng.uniform(-40, 40)).astype(np.float32)
        own = worker.norms(x)
        scale = np.sqrt(float(x.size)) / own.view(np.float32).astype(float)
        words = np.repeat(scale.astype(np.float32).view(np.uint32), 4)
        encoder.play(x, own, words=words)


#: the transform and the queues have campaigns of their own
ELSEWHERE = r"-cell \S*\\rotate\.|-src \S*hdl/(fifo|ring|hadamard)\.py:\d+$"
EXPLAINED = {}
