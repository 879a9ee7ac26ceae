"""Mutation campaign of a THC worker's way down at 4 lanes: unpacking, transform, scale."""

from ..hdl.thc_decoder import ThcDecoder
from ..models import thc
from . import stimulus
from .worker import SEED, decode

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
    """Every block size and sum width, every kind of norm, stalls, rate, full stores."""
    for n_workers, shape, width, n in CASES:
        worker = thc.Worker(n_workers, SEED, **shape)
        run = decode(model, N_LANES, worker, width, n)
        taken = run.taken["floats"]
        assert taken[-1] - taken[0] <= n * worker.B // N_LANES + 2, "not at full rate"
        decode(model, N_LANES, worker, width, n, stalls={"blocks": 0.2, "sums": 0.6, "floats": 0.4})
    worker = thc.Worker(3, SEED, B=64)
    decode(model, N_LANES, worker, 8, 200, stalls={"floats": stimulus.storm(3000)})
    decode(model, N_LANES, worker, 8, 200, stalls={"sums": ([0] * 600, 1)})


EXPLAINED = {}
