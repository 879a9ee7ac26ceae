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


def leading_ones(generator):
    """Units of magnitudes whose leading one stands at each place, and of 0."""
    halves, octets = [0, *(1 << k for k in range(15))], [0, *(1 << k for k in range(7))]
    units = []
    for tag, width, tops in ((0x5555, 8, octets), (0xAAAA, 16, halves)):
        for lane in range(N_LANES):  # each place in each lane, others behind it
            values = np.roll(np.repeat(tops, 2), lane)
            values |= generator.integers(0, 1 << 15, len(values)) & np.maximum(values, 1) - 1
            values |= generator.integers(0, 2, len(values)) << width - 1
            words = np.full(len(values) // 8, tag, "<u2").tobytes()
            words += values.astype(f"<u{width // 8}").tobytes()
            units.append(engines.Unit(words, len(values), size=len(words)))
    return units


def test(model):
    """Values, verdicts, noise in place of units, stalls, rate and full stores."""
    generator = np.random.default_rng(4)
    bench = campaign_engines.Bench(model, component(), DECOMPRESSOR)
    bench.play(engines.noisy_units(300, generator))
    bench.play(leading_ones(generator))
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


PADDING = "a tag in a padding lane refuses the unit, whether its bytes are counted or not"
PLANS = "a unit may hold some more plans than it has beats: the store of tags fills first"
ARGUED = campaign_engines.ARGUED | {
    r"-mode const1 .* -port Y .*: inside\.eq\(": PADDING,
    r"-mode const1 .* -port Y -portbit [0-3] .*: arrival\.unit\.beats\.eq": PLANS,
    r"-mode const0 .* -wire planner\.so_far -wirebit 1[2-5] ": "no right unit has 4096 bytes",
}
EXPLAINED = {}
