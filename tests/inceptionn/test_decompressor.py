"""Decompressor against the golden model: values, verdicts, rate, stalls, abuse, reset."""

import functools
from dataclasses import replace

import numpy as np
import pytest
from gradnic.hdl.inceptionn.decompressor import Decompressor
from gradnic.sim.engine import batch, stimulus
from gradnic.sim.inceptionn import units as engines

OUTPUTS = ("verdicts", "floats")
#: Lanes of the engine that takes longest to compile: in `make slow`.
WIDEST = pytest.param(32, marks=pytest.mark.slow)


@functools.cache
def built(n_lanes):
    return batch.build(Decompressor(n_lanes))


def play(units, n_lanes, *, name="decompressor", instance=None, **options):
    """One run of whole units, compared with the model; returns it."""
    options.setdefault("idle_cycles", 1000)  # the largest unit is planned for 526 cycles at 4 lanes
    model = built(n_lanes)
    inputs = engines.decompressor_inputs(model, units, n_lanes, stimulus.rng(name, n_lanes))
    run = (instance or model).run(inputs, **options)
    engines.check_decompressor(run, units, n_lanes)
    return run


def any_units(n_lanes, generator):
    """Every count modulo 8 and modulo the lanes, of all kinds and settings, and the largest."""
    counts = [*range(1, 2 * n_lanes + 10), 64, 65, 127, 336, 1000]
    units = [
        engines.of_floats(
            engines.KINDS[int(generator.integers(len(engines.KINDS)))],
            count,
            generator,
            exponent=int(generator.integers(113, 127)),
            paper=int(generator.integers(2)),
            prescale=int(generator.choice([0, 0, 10, -3, -128, 127])),
        )
        for count in counts
    ]
    units += [engines.of_floats(kind, 2104, generator) for kind in ("raw", "zero", "mixed")]
    return [engines.of_bytes(unit) for unit in units]


@pytest.mark.parametrize("n_lanes", [4, 8, 16, WIDEST])
def test_equals_the_model(n_lanes):
    generator = stimulus.rng("decompressor units", n_lanes)
    for _ in range(3):
        play(any_units(n_lanes, generator), n_lanes)
    play(engines.noisy_units(400, generator), n_lanes)


@pytest.mark.parametrize("n_lanes", [4, 8])
def test_stalls_on_all_ports(n_lanes):
    units = any_units(n_lanes, stimulus.rng("decompressor stalls", n_lanes))[: 4 * n_lanes + 12]
    for _, stalls in stimulus.stall_grid(["units", "coded"], OUTPUTS):
        play(units, n_lanes, stalls=stalls, max_cycles=1_000_000)
    for port in ("units", "coded", *OUTPUTS):
        play(units, n_lanes, stalls={port: 0.15})


def cycles_per_unit(unit, n_lanes, n=40):
    """Cycles from one unit's last beat to the next one's, in steady state."""
    run = play([unit] * n, n_lanes)
    n_beats = -(-unit.count // n_lanes)
    ends = run.taken["floats"][n_beats - 1 :: n_beats]
    return np.diff(ends)[n // 2 :]


@pytest.mark.parametrize("n_lanes", [4, 8, 16])
@pytest.mark.parametrize("kind", ["zero", "raw", "mixed"])
def test_rate(n_lanes, kind):
    """ceil(max(bytes in, bytes out) / beat) cycles a unit and no more, for every content."""
    generator = stimulus.rng("decompressor rate", n_lanes, kind)
    beat = 4 * n_lanes
    for count in (1, n_lanes, n_lanes + 1, 5 * n_lanes - 1, 8 * n_lanes, 336, 2048):
        unit = engines.of_bytes(engines.of_floats(kind, count, generator))
        needed = max(-(-4 * count // beat), -(-unit.size // beat))
        took = cycles_per_unit(unit, n_lanes)
        assert took.mean() == needed, (count, needed, took)


@pytest.mark.parametrize("n_lanes", [4, 8])
def test_latency(n_lanes):
    """From the verdict, a one-beat unit leaves as many cycles later as the docstring says."""
    unit = engines.of_bytes(engines.of_floats("zero", 1, stimulus.rng("one")))
    run = play([unit], n_lanes)
    assert run.taken["floats"][0] - run.taken["verdicts"][0] == Decompressor(n_lanes).latency


@pytest.mark.parametrize("n_lanes", [4, 8, WIDEST])
def test_bad_units_vanish(n_lanes):
    """Each fault takes its unit along, and nothing else: the next good unit is right."""
    generator = stimulus.rng("decompressor faults", n_lanes)
    good = engines.of_bytes(engines.of_floats("mixed", 2 * n_lanes + 3, generator))
    faults = engines.faults_of_bytes(n_lanes, generator)
    units = [unit for fault in faults for unit in (fault, good)]
    units += [*faults, *faults, good, *faults[::-1], good]
    for stalls in ({}, {"coded": 0.6, "floats": 0.4, "verdicts": 0.5}):
        run = play(units, n_lanes, stalls=stalls)
        assert (run.unpack("verdicts")["ok"] == 0).sum() == 4 * len(faults)


@pytest.mark.parametrize("n_lanes", [4, 8])
def test_flipped_bits_never_hang(n_lanes):
    """Any byte of any unit may be wrong: what the model refuses vanishes, the rest decodes."""
    generator = stimulus.rng("decompressor flips", n_lanes)
    units = []
    for unit in any_units(n_lanes, generator)[:30] * 8:
        octets = bytearray(unit.words)
        octets[int(generator.integers(len(octets)))] ^= 1 << int(generator.integers(8))
        units.append(replace(unit, words=bytes(octets)))
    run = play(units, n_lanes, stalls={"coded": 0.8})
    assert 0.02 < run.unpack("verdicts")["ok"].mean() < 0.98


def test_full_stores_lose_nothing():
    """Largest units against a closed output: it takes what fits, then all comes out."""
    generator = stimulus.rng("decompressor full")
    units = [engines.of_bytes(engines.of_floats("raw", 2104, generator)) for _ in range(12)]
    units += [engines.of_bytes(engines.of_floats("bits", 1, generator)) for _ in range(200)]
    for port in OUTPUTS:
        run = play(units, 4, stalls={port: stimulus.storm(10_000)}, max_cycles=200_000)
        taken = (run.taken["coded"] < 10_000).sum()
        assert 2 * 559 <= taken < (6 if port == "floats" else 13) * 559


def test_units_that_break_off_take_no_room_of_others():
    """Each takes the room of the whole unit that was announced, and ends with its first beat."""
    generator = stimulus.rng("decompressor breaks")
    whole = [engines.of_bytes(engines.of_floats("raw", n, generator)) for n in (1050, 2104)]
    broken = replace(whole[1], drop=1, beats=1)
    units = [unit for _ in range(6) for unit in (*whole, *[broken] * 8)]
    for stalls in ({"floats": stimulus.storm(4000)}, {"floats": 0.2}, {"verdicts": 0.05}):
        play(units, 4, stalls=stalls, max_cycles=200_000)


def test_reset_in_mid_unit():
    instance = built(4).instance()
    generator = stimulus.rng("decompressor reset")
    units = any_units(4, generator)[:20]
    inputs = engines.decompressor_inputs(built(4), units, 4, generator)
    for cycles in range(1, 120, 7):
        instance.run(inputs, stalls={"floats": 0.5}, drain=False, max_cycles=cycles)
        play(units[: cycles % 5 + 1], 4, instance=instance)


@pytest.mark.parametrize(
    ("args", "text"),
    [
        ({"n_lanes": 12}, "n_lanes must be 4, 8, 16 or 32, not 12"),
        ({"n_lanes": 4, "max_floats": 4000}, "max_floats must be 1 to 3840, not 4000"),
    ],
)
def test_parameters(args, text):
    with pytest.raises(ValueError, match=text):
        Decompressor(**args)
