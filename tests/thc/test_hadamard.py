"""Transforms of blocks against the golden one, every size, and no bubble."""

import numpy as np
import pytest
from gradnic.hdl.thc.hadamard import BLOCKS, Hadamard
from gradnic.models.thc import hadamard
from gradnic.sim.engine import batch
from gradnic.sim.thc.worker import SETTLE, bytes_to_fields, fields_to_bytes


@pytest.mark.parametrize(("lanes", "block"), [(2, 64), (4, 256), (16, 1024)])
def test_hadamard(lanes, block):
    """Every size up to the largest, back to back and with gaps; no bubble at full rate."""
    circuit = Hadamard(lanes, block, in_width=15, width=21)
    model = batch.build(circuit)
    rng = np.random.default_rng(lanes)
    for log4, size in enumerate(s for s in BLOCKS if s <= block):
        x = rng.integers(-256, 257, (12, size))
        x[0], x[1] = 256, 0
        x[1, 5] = -(1 << 13)
        expected = hadamard(x.astype(np.int32))
        for duty in (1.0, 0.5, 0.1):
            run = model.run(
                {"i": fields_to_bytes(x.reshape(-1, lanes), 15)},
                ["o"],
                stalls={"i": (SETTLE, duty)},
                signals={"log4": log4},
                probe_cycles=0,
            )
            got = bytes_to_fields(run.outputs["o"], 21, lanes).reshape(-1, size)
            np.testing.assert_array_equal(got, expected)
            if duty == 1.0:
                assert np.ptp(run.taken["o"]) == x.size // lanes - 1
                behind = run.taken["o"][-1] - run.taken["i"][-1]
                assert behind == circuit.latency + size // lanes - 1


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: Hadamard(3), "lanes must be a power of two from 2 to 64, not 3"),
        (lambda: Hadamard(4, 512), "block must be 64, 256, 1024 or 4096, not 512"),
        (lambda: Hadamard(4.0), "lanes must be a power of two from 2 to 64, not 4.0"),
        (lambda: Hadamard(4, width=0), "width must be at least 2, not 0"),
        (lambda: Hadamard(4, width=12), "in_width must be 2 to 12, not 15"),
    ],
)
def test_errors_name_the_value_and_the_limit(call, message):
    with pytest.raises(ValueError, match=message):
        call()
