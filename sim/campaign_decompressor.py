"""Mutation campaign of the decompressor at 4 lanes: what its test must notice, and cannot."""

import numpy as np

from ..hdl.decompressor import Decompressor
from . import campaign_compressor, engines, stimulus

N_LANES = 4
MAX_FLOATS = 200


def component():
    """The circuit under mutation: small stores, so that they fill."""
    return Decompressor(N_LANES, max_floats=MAX_FLOATS)


def test(model):
    """Values, verdicts, stalls, rate and full stores."""
    generator = np.random.default_rng(2)
    options = {"max_floats": MAX_FLOATS}

    def play(units, *, instance=None, **how):
        inputs = engines.decompressor_inputs(model, units, N_LANES, np.random.default_rng(3))
        run = (instance or model).run(inputs, **how)
        engines.check_decompressor(run, units, N_LANES, **options)
        return run

    units = [engines.of_bytes(unit) for unit in campaign_compressor.corner_units()]
    play(units)
    play(units[:60], stalls={"coded": 0.6, "floats": 0.5, "units": 0.5, "verdicts": 0.4})
    play(engines.noisy_units(300, generator))
    good = engines.of_bytes(engines.of_floats("mixed", 11, generator))
    faults = engines.faults_of_bytes(N_LANES, generator, max_floats=MAX_FLOATS)
    play([unit for fault in faults for unit in (fault, good)])
    play([*faults[::-1], good, *faults, good], stalls={"floats": 0.3})
    for kind, count in (("raw", 4), ("zero", 3), ("raw", 61), ("zero", 200), ("mixed", 200)):
        unit = engines.of_bytes(engines.of_floats(kind, count, generator))
        n_beats = -(-count // 4)
        ends = play([unit] * 40).taken["floats"][n_beats - 1 :: n_beats]
        assert (np.diff(ends)[20:] == max(n_beats, -(-unit.size // 16))).all(), "not at full rate"
    full = [engines.of_floats("raw", 200, generator) for _ in range(7)]
    full += [engines.of_floats("bits", 1 + k % 3, generator) for k in range(70)]
    full = [engines.of_bytes(unit) for unit in full]
    for port in ("floats", "verdicts"):
        play(full, stalls={port: stimulus.storm(900)})
    instance = model.instance()
    inputs = engines.decompressor_inputs(model, units[:9], N_LANES, np.random.default_rng(3))
    for cycles in (9, 30, 47):  # a reset in mid-unit leaves nothing behind
        instance.run(inputs, stalls={"floats": 0.5}, drain=False, max_cycles=cycles)
        play(units[cycles % 7 : 9], instance=instance)


EXPLAINED = {}
