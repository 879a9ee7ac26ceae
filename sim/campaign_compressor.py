"""Mutation campaign of the compressor at 4 lanes: what its test must notice, and what it cannot."""

from dataclasses import replace

import numpy as np

from ..hdl.compressor import Compressor
from . import campaign_engines, engines
from .campaign_engines import COMPRESSOR, MAX_FLOATS, N_LANES


def component():
    """The circuit under mutation."""
    return Compressor(N_LANES, max_floats=MAX_FLOATS)


def test(model):
    """Values, sizes, drops, limits, stalls, rate and full stores."""
    generator = np.random.default_rng(4)
    bench = campaign_engines.Bench(model, component(), COMPRESSOR)
    faults = engines.faults_of_floats(N_LANES, generator, max_floats=MAX_FLOATS)
    campaign_engines.test(bench, faults)
    limited = []
    for count in (1, 11, 30, 200, MAX_FLOATS):
        unit = bench.floats("mixed", count, generator)
        size = len(engines.coded(unit))
        limits = [size, *(size + way * (1 << bit) for bit in range(16) for way in (-1, 1))]
        limited += [replace(unit, limit=limit) for limit in limits if 0 <= limit < 1 << 16]
    bench.play(limited)


ARGUED = campaign_engines.ARGUED
EXPLAINED = {}
