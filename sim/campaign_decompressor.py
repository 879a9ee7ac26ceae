"""Mutation campaign of the decompressor at 4 lanes: what its test must notice, and cannot."""

from dataclasses import replace

import numpy as np

from ..hdl.decompressor import Decompressor
from . import campaign_engines, engines
from .campaign_engines import BEAT, DECOMPRESSOR, MAX_FLOATS, N_LANES


def component():
    """The circuit under mutation."""
    return Decompressor(N_LANES, max_floats=MAX_FLOATS)


def strays(bench, generator):
    """Units with one tag too many: every padding lane, both bits, and no byte for it."""
    units = []
    for count in (*range(1, 8), *range(9, 16)):
        good = bench.floats("mixed", count, generator)
        at = 2 * (count // 8)
        for bit in range(2 * (count % 8), 16):
            words = bytearray(good.words)
            words[at + bit // 8] ^= 1 << bit % 8
            units.append(replace(good, words=bytes(words)))
    return units


def test(model):
    """Values, verdicts, noise in place of units, stalls, rate and full stores."""
    generator = np.random.default_rng(4)
    bench = campaign_engines.Bench(model, component(), DECOMPRESSOR)
    bench.play(engines.noisy_units(300, generator))
    faults = engines.faults_of_bytes(N_LANES, generator, max_floats=MAX_FLOATS)
    faults += strays(bench, generator)
    campaign_engines.test(bench, faults)
    wrong = []
    for count in (1, 11, 30, 200, MAX_FLOATS):
        unit = bench.floats("mixed", count, generator)
        for size in {unit.size ^ 1 << bit for bit in range(16)} - {0}:
            wrong.append(replace(unit, size=size))  # the beats are those of the right size
            if size < 4000:
                wrong.append(replace(unit, size=size, beats=-(-size // BEAT)))
    bench.play(wrong)


EXPLAINED = {}
