"""Mutation campaign of a THC worker's way up at 4 lanes: scale, dice, transform, quantizer."""

from ..hdl.thc_encoder import ThcEncoder
from ..models import thc
from . import stimulus
from .worker import SEED, Encoder, blocks_of_floats

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


def component():
    """The circuit under mutation."""
    return ThcEncoder(N_LANES, block=4096)


def test(model):
    """Every block size and index width, every kind of norm, stalls, rate, full stores."""
    for k, shape in enumerate(SHAPES):
        worker = thc.Worker(3, SEED, **shape)
        encoder = Encoder(model, N_LANES, worker)
        n = min(24, 8192 // worker.B)
        run = encoder.play_kinds(n)
        taken = run.taken["floats"]
        assert taken[-1] - taken[0] == n * worker.B // N_LANES - 1, "not at full rate"
        if k % 3 == 0:
            encoder.play_kinds(n, stalls={"blocks": 0.1, "floats": 0.6, "indices": 0.3})
    x = blocks_of_floats(worker, 5)  # of 4096: more than the stores hold
    encoder.play(x, worker.norms(x), stalls={"indices": stimulus.storm(4000)})
    worker = thc.Worker(3, SEED, B=64)
    encoder = Encoder(model, N_LANES, worker)
    x = blocks_of_floats(worker, 150)  # more than there is room for
    encoder.play(x, worker.norms(x), stalls={"floats": ([0] * 400, 1)})


EXPLAINED = {}
