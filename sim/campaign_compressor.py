"""Mutation campaign of the compressor at 4 lanes: what its test must notice, and what it cannot."""

import numpy as np

from ..hdl.compressor import Compressor
from . import engines, stimulus

N_LANES = 4
MAX_FLOATS = 200


def component():
    """The circuit under mutation: small stores, so that they fill."""
    return Compressor(N_LANES, max_floats=MAX_FLOATS)


def corner_units():
    """Every exponent that matters under every setting, and every count modulo 8."""
    generator = np.random.default_rng(1)
    bits = np.concatenate(
        [
            stimulus.float_corners([0, 1, 2, 254, 255])[::3],
            stimulus.float_corners(range(100, 140, 1))[::2],
            stimulus.float_noise(600, generator, center=120, spread=10),
        ]
    )
    settings = [(117, 0, 0), (113, 0, 0), (126, 0, 0), (119, 1, 0), (113, 1, 5), (121, 0, -128)]
    settings += [(114, 0, 127), (118, 1, -3), (124, 0, 1)]
    units, at, k = [], 0, 0
    while at < len(bits) or k < 80:
        count = [1, 2, 3, 4, 5, 6, 7, 8, 12, 33, 64, 65, 127, 200][k % 14]
        words = np.take(bits, range(at, at + count), mode="wrap")
        exponent, paper, prescale = settings[k % len(settings)]
        units.append(engines.Unit(words, count, exponent=exponent, paper=paper, prescale=prescale))
        at, k = at + count, k + 1
    return units


def test(model):
    """Values, sizes, drops, stalls, rate and full stores."""
    generator = np.random.default_rng(2)
    options = {"max_floats": MAX_FLOATS}

    def play(units, *, instance=None, **how):
        inputs = engines.compressor_inputs(model, units, N_LANES, np.random.default_rng(3))
        run = (instance or model).run(inputs, **how)
        engines.check_compressor(run, units, N_LANES, **options)
        return run

    units = corner_units()
    play(units)
    play(units[:60], stalls={"floats": 0.6, "coded": 0.5, "units": 0.5, "sizes": 0.4})
    good = engines.of_floats("mixed", 11, generator)
    faults = engines.faults_of_floats(N_LANES, generator, max_floats=MAX_FLOATS)
    play([unit for fault in faults for unit in (fault, good)])
    limits = [engines.Unit(good.words, 11, limit=len(engines.coded(good)) + k) for k in (-1, 0, 1)]
    play([*limits, *faults[::-1], good], stalls={"coded": 0.3})
    for kind, count in (("raw", 4), ("zero", 3), ("raw", 61), ("zero", 200), ("mixed", 200)):
        unit = engines.of_floats(kind, count, generator)
        n_beats = -(-len(engines.coded(unit)) // 16)
        ends = play([unit] * 40).taken["coded"][n_beats - 1 :: n_beats]
        assert (np.diff(ends)[20:] == max(-(-count // 4), n_beats)).all(), "not at full rate"
    full = [engines.of_floats("raw", 200, generator) for _ in range(7)]
    full += [engines.of_floats("bits", 1 + k % 3, generator) for k in range(70)]
    for port in ("coded", "sizes"):
        play(full, stalls={port: stimulus.storm(900)})
    instance = model.instance()
    inputs = engines.compressor_inputs(model, units[:9], N_LANES, np.random.default_rng(3))
    for cycles in (9, 30, 47):  # a reset in mid-unit leaves nothing behind
        instance.run(inputs, stalls={"coded": 0.5}, drain=False, max_cycles=cycles)
        play(units[cycles % 7 : 9], instance=instance)


EXPLAINED = {}
