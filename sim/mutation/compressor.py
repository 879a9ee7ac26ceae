"""Mutation campaign of the compressor at 4 lanes: what its test must notice, and what it cannot."""

from dataclasses import replace

import numpy as np
from gradnic.hdl.inceptionn.compressor import LAG, N_UNITS, Compressor
from gradnic.hdl.stream.admission import Room

from ..engine import stimulus
from ..inceptionn import units as engines
from . import engines as campaign_engines
from .engines import COMPRESSOR, MAX_FLOATS, N_LANES


def component():
    """The circuit under mutation."""
    return Compressor(N_LANES, max_floats=MAX_FLOATS)


def check_untold(bench, generator, cycles=900):
    """How many units are taken while nobody takes their sizes; they leave as they come."""
    counts = 4 * generator.integers(LAG + 1, LAG + 4, 80)
    units = [bench.floats("zero", int(count), generator) for count in counts]
    run = bench.play(units, stalls={"sizes": stimulus.storm(cycles)})
    taken = int(np.count_nonzero(run.taken["floats"] < cycles))
    n_units = Room(N_UNITS, lag=LAG).most + 1
    expected = sum(unit.n_beats(N_LANES) for unit in units[:n_units])
    assert taken == expected, f"{taken} beats taken, not {expected}"


def check_whole_rows_of_tags(bench, generator):
    """Units of 64 floats have one row of tags: were it two, the store of tags would fill first."""
    long = bench.floats("raw", 200, generator)
    units = [long, *(bench.floats("zero", count, generator) for count in 20 * [4] + 24 * [64])]
    bench.check_full(units)


def test(model):
    """Values, sizes, drops, limits, stalls, rate and full stores."""
    generator = np.random.default_rng(4)
    bench = campaign_engines.Bench(model, component(), COMPRESSOR)
    faults = engines.faults_of_floats(N_LANES, generator, max_floats=MAX_FLOATS)
    campaign_engines.test(bench, faults)
    check_whole_rows_of_tags(bench, generator)
    for _ in range(4):
        check_untold(bench, generator)
    limited = []
    for count in (1, 11, 30, 200, MAX_FLOATS):
        unit = bench.floats("mixed", count, generator)
        size = len(engines.coded(unit))
        limits = [size, *(size + way * (1 << bit) for bit in range(16) for way in (-1, 1))]
        limits += [1 << bit for bit in range(16)]
        limited += [replace(unit, limit=limit) for limit in limits if 0 <= limit < 1 << 16]
    bench.play(limited)


HALVES = "a HALF has an exponent of 120 to 126, at every legal bound: its bit 3 is 1"
FIRST = "the first byte of a beat that leaves is always kept"
TAIL = "a tail has at most 15 bytes: what is in its last column is never read"
BEHIND = "a byte too many of the last lane goes behind all others, where no byte is looked at"
FEW = "a unit of 632 floats has 10 rows of tags at most: these bits are 0"
LOW = "a HALF's shift is 6 at most, 126 less its exponent"
AHEAD = "the row that is written next holds nothing, as rows are never full, and is written whole"
FAR = "a HALF's shift is 6 at most, and one of 8 or more leaves nothing of a BYTE, whatever it is"
SMALL = "a unit of 632 floats has 2686 bytes at most: these bits are 0"

ARGUED = campaign_engines.ARGUED | {
    r"-mode cnot0 .* -port B .* -ctrlbit 3 .*: half_shift=_held\(m, \(126": HALVES,
    r"-mode const0 .* -port Y -portbit 3 .*: half_shift=_held\(m, \(126": LOW,
    r"-mode const1 .* -port Q .* -wire merger\.live_byte -wirebit 0 ": FIRST,
    r"-mode const1 .* -port Q .* -wire merger\.in_end -wirebit 0 ": FIRST,
    r"-mode const1 .* -wire packer\.compactor\.present0 -wirebit (3|7|11|15) ": BEHIND,
    r"-mode cnot1 .* -portbit 0 -ctrlbit 1 -wire lane\d\.far_[34] ": FAR,
    r"-mode cnot1 .* -ctrlbit 6[78] -wire second\.bands\.": FEW,
    r"-wire tails\.\S+ -wirebit 12[0-7] ": TAIL,
    r"-wirebit 12[0-7] .*: kept = Signal\(8": TAIL,
    r"-wire packer\.present -wirebit 15 ": TAIL,
    r"-mode const1 -cell rows\$\d+\.part\d\.array -port WR_EN ": AHEAD,
    r"-mode cnot1 .* -ctrlbit 1[34] -wire o__payload\S*\.": FEW,
    r"-mode const0 .* -wire (bytes\d+|so_far) -wirebit 1[2-5] ": SMALL,
    r"-mode const0 .* -port A -portbit 1[2-5] .*: final\.eq\(\(size - 1\) >> column\)": SMALL,
}
EXHAUSTED = {
    r" -cell \$flatten\\packer\.\\compactor\.": "the compactor knows of one beat at a time, "
    "and every choice of a beat's tags behind every number of bytes is played, twice, with other "
    "bytes: a byte too many that survives goes behind all others, where the next beat writes",
}
EXPLAINED = {
    " -port B -portbit 0 -given units_room.rst -feeds sizes_room.open": (
        "not seen: a room is open in the cycle behind a reset, which is no earlier than it is used"
    ),
}
