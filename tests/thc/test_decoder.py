"""Floats against the golden worker's: all widths of sums, norms of 0 and beyond float32."""

import numpy as np
import pytest
from gradnic.hdl.thc.decoder import ThcDecoder
from gradnic.models.thc import Worker
from gradnic.sim.engine import batch
from gradnic.sim.thc.worker import SEED, decode

LANES, BLOCK = 4, 256
STALLS = [1.0, 0.4]


@pytest.mark.parametrize("duty", STALLS)
@pytest.mark.parametrize(
    ("shape", "width"), [({"B": 64}, 8), ({"B": 256, "b": 3, "g": 34}, 12), ({"B": 64}, 16)]
)
def test_floats(shape, width, duty):
    decoder = batch.build(ThcDecoder(LANES, block=BLOCK))
    worker = Worker(3, SEED, **shape)
    stalls = {port: duty for port in ("blocks", "sums", "floats")}
    run = decode(decoder, LANES, worker, width, 24, stalls=stalls)
    if duty == 1.0:
        assert np.ptp(run.taken["floats"]) <= len(run.taken["floats"]) + 2


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: ThcDecoder(4, block=100), "block must be 64, 256, 1024 or 4096, not 100"),
    ],
)
def test_errors_name_the_value_and_the_limit(call, message):
    with pytest.raises(ValueError, match=message):
        call()
