"""Mutation campaign of the Hadamard transform at 4 lanes."""

import numpy as np

from ..hdl.hadamard import BLOCKS, Hadamard
from ..models import thc
from .worker import SETTLE, fields_to_bytes

N_LANES, WIDTHS = 4, (9, 21)


def component():
    """The circuit under mutation."""
    return Hadamard(N_LANES, 4096, in_width=WIDTHS[0], width=WIDTHS[1])


def test(model):
    """Every size, back to back and with gaps, extremes among them; no bubble at full rate."""
    rng = np.random.default_rng(1)
    top = 1 << WIDTHS[0] - 1
    for log4, size in enumerate(BLOCKS):
        x = rng.integers(-top, top, (max(3, 512 // size), size))
        x[0], x[1] = 0, top - 1
        x[0, 5], x[-1, ::2] = -top, -top
        expected = fields_to_bytes(thc.hadamard(x.astype(np.int32)).reshape(-1, N_LANES), WIDTHS[1])
        for duty in (1.0, 0.5, 0.1)[: 3 if size < 1024 else 2]:
            run = model.run(
                {"i": fields_to_bytes(x.reshape(-1, N_LANES), WIDTHS[0])},
                ["o"],
                stalls={"i": (SETTLE, duty)},
                signals={"log4": log4},
                probe_cycles=0,
            )
            run.check(o=expected)
            if duty == 1.0:
                assert np.ptp(run.taken["o"]) == x.size // N_LANES - 1, "a bubble"


EXPLAINED = {}
