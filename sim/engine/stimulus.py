"""Stimulus: corners first, then noise from the run's seed, then real gradients; and stall grids.

One master seed, ``GRADNIC_SEED`` (1 where not set), gives all noise of a run: `rng` derives an
independent generator for each name, so that tests may run in any order and in parallel.
"""

import functools
import os
import zlib

import numpy as np

STORM_CYCLES = 10_000  # back-pressure that nothing may lose a beat to


def master_seed():
    """The run's seed. ValueError if ``GRADNIC_SEED`` is no integer from 0 to 2^31 - 1."""
    text = os.environ.get("GRADNIC_SEED", "1")
    if not text.isdecimal() or int(text) >= 1 << 31:
        raise ValueError(f"GRADNIC_SEED must be an integer from 0 to 2^31 - 1, not {text!r}")
    return int(text)


def seed_for(*names):
    """A seed from 0 to 2^31 - 1 that depends on the master seed and on `names`."""
    return int(_sequence(names).generate_state(1)[0] >> 1)


def rng(*names):
    """A numpy generator that depends on the master seed and on `names`."""
    return np.random.default_rng(_sequence(names))


def _sequence(names):
    key = tuple(zlib.crc32(str(name).encode()) for name in names)
    return np.random.SeedSequence(master_seed(), spawn_key=key)


def float_corners(exponents=None):
    """Every kind of float32, as uint32 bits: each exponent with the significands that sit on knees.

    exponents : biased exponents to visit, default all 256. For each, both signs, and significands
        that are all zeros, all ones, single bits, runs of ones from either end, and neighbors of
        those: 268 values an exponent. Infinities, NaN, subnormals and zeros are among
        them where exponents 0 and 255 are.

    Returns uint32, shape (n,), sorted, without repeats.
    """
    exponents = np.arange(256) if exponents is None else np.asarray(exponents)
    if exponents.size and not 0 <= exponents.min() <= exponents.max() <= 255:
        raise ValueError(f"exponents must be within 0..255, not {exponents.tolist()}")
    k = np.arange(24)
    centers = np.concatenate([1 << k, (1 << 23) - (1 << k), [0, 0x555555, 0x2AAAAA]])
    significands = np.unique(np.concatenate([centers + d for d in (-1, 0, 1)]) & 0x7FFFFF)
    bits = (exponents[:, None].astype(np.uint32) << 23) | significands.astype(np.uint32)
    return np.unique(np.concatenate([bits, bits | np.uint32(1 << 31)]))


def float_noise(n, generator, *, center=117, spread=12):
    """Random float32 bits around an exponent, and one in 16 anywhere: uint32, shape (n,).

    Uniform bits would almost never fall on the few exponents at which a codec changes its mind.
    """
    bits = generator.integers(0, 1 << 32, n, np.uint32)
    near = np.clip(center + generator.integers(-spread, spread + 1, n), 0, 255).astype(np.uint32)
    aimed = (bits & np.uint32(0x807FFFFF)) | (near << np.uint32(23))
    return np.where(generator.integers(0, 16, n) == 0, bits, aimed)


def byte_corners(n):
    """Rows of `n` bytes: all zeros, all ones, counting up, alternating, one bit walking."""
    walk = np.zeros((8 * n, 8 * n), np.uint8)
    np.fill_diagonal(walk, 1)
    rows = [
        np.zeros(n, np.uint8),
        np.full(n, 255, np.uint8),
        np.arange(n, dtype=np.uint8),
        np.resize(np.array([0x55, 0xAA], np.uint8), n),
    ]
    return np.concatenate([rows, np.packbits(walk, axis=1, bitorder="little")])


def length_corners(unit, largest, *, smallest=1):
    """Lengths on and beside each knee: small ones, multiples of `unit` +- 1, and the largest."""
    if not 1 <= smallest <= largest:
        raise ValueError(f"smallest must be within 1..{largest}, not {smallest}")
    near = [k * unit + d for k in (1, 2, 3, 4, 8) for d in (-1, 0, 1)]
    powers = [(1 << k) + d for k in range(17) for d in (-1, 0, 1)]
    ends = [smallest, smallest + 1, largest - 1, largest]
    return sorted({n for n in [*near, *powers, *ends] if smallest <= n <= largest})


@functools.cache
def gradients(iteration=200, *, loss="sum"):
    """Real gradients of four workers at an iteration: float32, shape (4, 235146), read-only.

    Trains once a process, in about 4 s for iteration 200: see `gradnic.sim.training.network`.
    """
    from ..training.network import train

    kept, _ = train([iteration], loss=loss)
    kept[iteration].setflags(write=False)
    return kept[iteration]


def storm(cycles=STORM_CYCLES):
    """A stall for `batch.Instance.run`: nobody ready for `cycles`, and from then on always."""
    return (np.zeros(cycles, np.uint8), 1)


def stall_grid(inputs, outputs):
    """Stalls to test under, as (name, {port: stall}): 2 x 2 duties, extremes and a storm.

    The last entries differ in kind: alternating, one cycle in 50, bursts, and 10,000 cycles of
    back-pressure.
    """
    pairs = [("full", 1, 1), ("slow in", 0.5, 1), ("slow out", 1, 0.5), ("both slow", 0.5, 0.4)]
    pairs += [
        ("alternating", [1, 0], [0, 1]),
        ("starved", 0.02, 1),
        ("choked", 1, 0.02),
        ("bursts", [1] * 40 + [0] * 40, [0] * 25 + [1] * 25),
        ("storm", 1, storm()),
    ]
    return [(n, dict.fromkeys(inputs, i) | dict.fromkeys(outputs, o)) for n, i, o in pairs]


def patterns(generator, n_cycles, **duties):
    """Duties as patterns of 0 and 1, (n_cycles,) each: the same stalls for any simulator."""
    return {
        port: (generator.random(n_cycles) < duty).astype(np.uint8) for port, duty in duties.items()
    }
