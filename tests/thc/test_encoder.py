"""Indices against the golden worker's: every number of bits, both kinds of norm, silent blocks."""

import numpy as np
import pytest
from gradnic.hdl.thc.encoder import ThcEncoder
from gradnic.models.thc import Worker
from gradnic.sim.engine import batch
from gradnic.sim.thc.worker import SEED, Encoder

LANES, BLOCK = 4, 256
STALLS = [1.0, 0.4]
SHAPES = (
    {"B": 64},
    {"B": 256, "b": 3, "g": 34},
    {"B": 256, "b": 8, "g": 254, "p": 1 / 128},
    {"B": 64, "b": 1, "g": 1},
    {"B": 256, "b": 2, "g": 6, "norm": "tensor"},
    {"B": 64, "b": 5, "g": 51},
    {"B": 64, "b": 6, "g": 63},
    {"B": 256, "b": 7, "g": 127},
)


@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_indices(shape):
    encoder = batch.build(ThcEncoder(LANES, block=BLOCK))
    bench = Encoder(encoder, LANES, Worker(3, SEED, **shape))
    for duty in STALLS:
        run = bench.play_kinds(24, stalls={port: duty for port in ("blocks", "floats", "indices")})
        if duty == 1.0:
            assert np.ptp(run.taken["floats"]) == len(run.taken["floats"]) - 1


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: ThcEncoder(3), "lanes must be a power of two from 2 to 32, not 3"),
    ],
)
def test_errors_name_the_value_and_the_limit(call, message):
    with pytest.raises(ValueError, match=message):
        call()
