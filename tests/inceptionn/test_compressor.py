"""Compressor against the golden model: values, sizes, rate, stalls, abuse, reset."""

import functools
from dataclasses import replace

import numpy as np
import pytest
from gradnic.hdl.inceptionn.compressor import Compressor
from gradnic.sim.engine import batch, stimulus
from gradnic.sim.inceptionn import units as engines

OUTPUTS = ("sizes", "coded")
#: Lanes of the engine that takes longest to compile: in `make slow`.
WIDEST = pytest.param(32, marks=pytest.mark.slow)


@functools.cache
def built(n_lanes, rounding="trunc"):
    return batch.build(Compressor(n_lanes, rounding=rounding))


def play(units, n_lanes, *, rounding="trunc", name="compressor", instance=None, **options):
    """One run of whole units, compared with the model; returns it."""
    model = built(n_lanes, rounding)
    inputs = engines.compressor_inputs(model, units, n_lanes, stimulus.rng(name, n_lanes))
    run = (instance or model).run(inputs, **options)
    engines.check_compressor(run, units, n_lanes, rounding=rounding)
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
    largest = [engines.of_floats(kind, 2104, generator) for kind in ("raw", "zero", "mixed")]
    return [*units, *largest]


@pytest.mark.parametrize(
    ("n_lanes", "rounding"),
    [
        (4, "trunc"),
        (8, "trunc"),
        (16, "trunc"),
        pytest.param(32, "trunc", marks=pytest.mark.slow),
        (4, "nearest"),
        (8, "nearest"),
    ],
)
def test_equals_the_model(n_lanes, rounding):
    generator = stimulus.rng("compressor units", n_lanes)
    for _ in range(3):
        play(any_units(n_lanes, generator), n_lanes, rounding=rounding)


@pytest.mark.parametrize("n_lanes", [4, 8])
def test_stalls_on_all_ports(n_lanes):
    units = any_units(n_lanes, stimulus.rng("compressor stalls", n_lanes))[: 4 * n_lanes + 12]
    for _, stalls in stimulus.stall_grid(["units", "floats"], OUTPUTS):
        play(units, n_lanes, stalls=stalls, max_cycles=1_000_000)
    for port in ("units", "floats", *OUTPUTS):
        play(units, n_lanes, stalls={port: 0.15})


def cycles_per_unit(unit, n_lanes, n=40):
    """Cycles from one unit's last beat to the next one's, in steady state."""
    run = play([unit] * n, n_lanes)
    n_beats = -(-len(engines.coded(unit)) // (4 * n_lanes))
    ends = run.taken["coded"][n_beats - 1 :: n_beats]
    return np.diff(ends)[n // 2 :]


@pytest.mark.parametrize("n_lanes", [4, 8, 16])
@pytest.mark.parametrize("kind", ["zero", "raw", "mixed"])
def test_rate(n_lanes, kind):
    """ceil(max(bytes in, bytes out) / beat) cycles a unit and no more, for every content."""
    generator = stimulus.rng("compressor rate", n_lanes, kind)
    beat = 4 * n_lanes
    for count in (1, n_lanes, n_lanes + 1, 5 * n_lanes - 1, 8 * n_lanes, 336, 2048):
        unit = engines.of_floats(kind, count, generator)
        needed = max(-(-4 * count // beat), -(-len(engines.coded(unit)) // beat))
        took = cycles_per_unit(unit, n_lanes)
        assert took.mean() == needed, (count, needed, took)


def test_rate_of_unequal_units():
    """Units that alternate between expanding and shrinking lose nothing to each other."""
    generator = stimulus.rng("compressor unequal")
    pair = [engines.of_floats(kind, 127, generator) for kind in ("raw", "zero")]
    run = play(pair * 30, 4)
    per_pair = sum(max(32, -(-len(engines.coded(unit)) // 16)) for unit in pair)
    assert run.taken["floats"][-1] <= 30 * per_pair + 60


@pytest.mark.parametrize("n_lanes", [4, 8])
def test_latency(n_lanes):
    """A one-beat unit leaves as many cycles after its beat as the docstring says."""
    run = play([engines.of_floats("zero", 1, stimulus.rng("one"))], n_lanes)
    took = run.taken["coded"][0] - run.taken["floats"][0]
    assert took == Compressor(n_lanes).latency


@pytest.mark.parametrize("n_lanes", [4, 8, WIDEST])
def test_bad_units_vanish(n_lanes):
    """Each fault takes its unit along, and nothing else: the next good unit is right."""
    generator = stimulus.rng("compressor faults", n_lanes)
    good = engines.of_floats("mixed", 2 * n_lanes + 3, generator)
    faults = engines.faults_of_floats(n_lanes, generator)
    units = [unit for fault in faults for unit in (fault, good)]
    units += [*faults, *faults, good, *faults[::-1], good]
    for stalls in ({}, {"floats": 0.6, "coded": 0.4, "sizes": 0.5}):
        run = play(units, n_lanes, stalls=stalls)
        assert run.unpack("sizes")["dropped"].sum() == 4 * len(faults)


def test_limit_is_the_largest_size():
    unit = engines.of_floats("mixed", 100, stimulus.rng("limit"))
    size = len(engines.coded(unit))
    limits = [size - 1, size, size + 1, 0]
    units = [engines.Unit(unit.words, 100, limit=limit) for limit in limits]
    run = play(units, 4)
    assert run.unpack("sizes")["dropped"].tolist() == [1, 0, 0, 1]
    assert run.unpack("sizes")["bytes"].tolist() == [size] * 4


def test_full_stores_lose_nothing():
    """Largest units against a closed output: it takes what fits, then all comes out."""
    generator = stimulus.rng("compressor full")
    units = [engines.of_floats("raw", 2104, generator) for _ in range(12)]
    units += [engines.of_floats("bits", 1, generator) for _ in range(200)]
    for port in OUTPUTS:
        run = play(units, 4, stalls={port: stimulus.storm(10_000)}, max_cycles=200_000)
        taken = (run.taken["floats"] < 10_000).sum()
        assert 2 * 526 <= taken < (6 if port == "coded" else 13) * 526


def test_units_that_break_off_take_no_room_of_others():
    """Each takes the room of the whole unit that was announced, and ends with its first beat."""
    generator = stimulus.rng("compressor breaks")
    whole = [engines.of_floats("raw", n, generator) for n in (1050, 2104)]
    broken = replace(whole[1], drop=1, beats=1)
    units = [unit for _ in range(6) for unit in (*whole, *[broken] * 8)]
    for stalls in ({"coded": stimulus.storm(4000)}, {"coded": 0.2}, {"sizes": 0.05}):
        play(units, 4, stalls=stalls, max_cycles=200_000)


def test_reset_in_mid_unit():
    instance = built(4).instance()
    generator = stimulus.rng("compressor reset")
    units = any_units(4, generator)[:20]
    inputs = engines.compressor_inputs(built(4), units, 4, generator)
    for cycles in range(1, 120, 7):
        instance.run(inputs, stalls={"coded": 0.5}, drain=False, max_cycles=cycles)
        play(units[: cycles % 5 + 1], 4, instance=instance)


@pytest.mark.parametrize(
    ("args", "text"),
    [
        ({"n_lanes": 12}, "n_lanes must be 4, 8, 16 or 32, not 12"),
        ({"n_lanes": 4, "rounding": "up"}, "rounding must be trunc or nearest, not 'up'"),
        ({"n_lanes": 4, "max_floats": 0}, "max_floats must be 1 to 3840, not 0"),
    ],
)
def test_parameters(args, text):
    with pytest.raises(ValueError, match=text):
        Compressor(**args)
