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


HALVES = "a HALF has an exponent of 120 to 126, at every legal bound: its bit 3 is 1"
FIRST = "the first byte of a beat that leaves is always kept"

ARGUED = campaign_engines.ARGUED | {
    r"-mode cnot0 .* -port B .* -ctrlbit 3 .*: half_shift = register\(": HALVES,
    r"-mode const1 .* -port Q .* -wire merger\.live_byte -wirebit 0 ": FIRST,
}
EXPLAINED = {}
