"""Mutation campaign of the decompressor at 4 lanes: what its test must notice, and cannot."""

from dataclasses import replace

import numpy as np
from gradnic.hdl.inceptionn.decompressor import N_OUT, N_VERDICTS, Decompressor

from ..engine import stimulus
from ..inceptionn import units as engines
from . import engines as campaign_engines
from .engines import BEAT, DECOMPRESSOR, MAX_FLOATS, N_LANES


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
    """Units of magnitudes whose leading one stands at each place, and of 0.

    Under pre-scales beyond 110 the least of them become denormal, and 0.
    """
    halves, octets = [0, *(1 << k for k in range(15))], [0, *(1 << k for k in range(7))]
    units = []
    for tag, width, tops in ((0x5555, 8, octets), (0xAAAA, 16, halves)):
        for lane in range(N_LANES):  # each place in each lane, others behind it
            values = np.roll(np.repeat(tops, 2), lane)
            values |= generator.integers(0, 1 << 15, len(values)) & np.maximum(values, 1) - 1
            values |= generator.integers(0, 2, len(values)) << width - 1
            words = np.full(len(values) // 8, tag, "<u2").tobytes()
            words += values.astype(f"<u{width // 8}").tobytes()
            unit = engines.Unit(words, len(values), size=len(words))
            units += [replace(unit, prescale=k) for k in (0, -128, *range(111, 128))]
    return units


def check_waiting(bench, cycles=400):
    """How many units are judged, and decoded, while nobody takes verdicts, or floats."""
    units = [bench.floats("zero", 4, np.random.default_rng(1))] * 60  # one a cycle
    again = 2 * cycles + 3  # three verdicts are taken between two storms
    run = bench.play(units, stalls={"verdicts": ([0] * cycles + [1] * 3 + [0] * cycles, 1)})
    for end, n in ((cycles, N_VERDICTS), (again, N_VERDICTS + 3)):
        decoded = int(np.count_nonzero(run.taken["floats"] < end))
        assert decoded == n, f"{decoded} units decoded, not {n}"
    long = bench.floats("raw", MAX_FLOATS, np.random.default_rng(1))  # planned before it is stored
    bench.play([*units, long], stalls={"verdicts": stimulus.storm(cycles), "coded": [1, 0]})
    run = bench.play(units, stalls={"floats": stimulus.storm(cycles)})
    judged = int(np.count_nonzero(run.taken["verdicts"] < cycles))
    most = N_OUT + 1 + N_VERDICTS  # one between the two queues
    assert judged == most, f"{judged} units judged, not {most}"


def check_pause_of_plans(bench, generator, piece=60, cycles=700):
    """Behind a room for plans that is just open, the longest unit waits for the one before it."""
    count, rest = divmod(bench.most_plans, piece)
    gone = N_OUT  # beats that leave the decoder before it stands still
    for places in (2, 4, 8, 16):
        sizes = [gone, *([piece] * count), rest, places, MAX_FLOATS // N_LANES, 1]
        units = [bench.floats("zero", N_LANES * n, generator) for n in sizes]
        units[1] = bench.sparse(N_LANES * piece, generator)  # the next to be decoded
        bench.play(units, stalls={"floats": stimulus.storm(cycles)})


def test(model):
    """Values, verdicts, noise in place of units, stalls, rate and full stores."""
    generator = np.random.default_rng(4)
    bench = campaign_engines.Bench(model, component(), DECOMPRESSOR)
    bench.play(engines.noisy_units(300, generator))
    bench.play(leading_ones(generator))
    faults = engines.faults_of_bytes(N_LANES, generator, max_floats=MAX_FLOATS)
    faults += strays(bench, generator)
    campaign_engines.test(bench, faults)
    check_waiting(bench)
    check_pause_of_plans(bench, generator)
    for places in range(1, 10):
        bench.check_pause_of_tags(places)
    wrong = []
    for count in (1, 11, 30, 200, MAX_FLOATS):
        unit = bench.floats("mixed", count, generator)
        for size in {unit.size ^ 1 << bit for bit in range(16)} - {0}:
            wrong.append(replace(unit, size=size))  # the beats are those of the right size
            if size < 4000:
                wrong.append(replace(unit, size=size, beats=-(-size // BEAT)))
    bench.play(wrong)


PADDING = "a tag in a padding lane refuses the unit, whether its bytes are counted or not"
LARGE = "no right unit has 4096 bytes: what such a one changes is never read"
FULL = "a room is never full: of the units that start before it knows, one may be the largest"
TINY = "a scale is at least -14, and one below 0 makes 0 of every magnitude, whatever it is"
PAST = "the unit has had its rows of tags long before, and so many rows are never theirs"
EARLY = "what is written too early goes where the next plan will be written, and nobody reads"
TAGS = "a right unit of 632 floats has 158 bytes of tags at most: these bits are 0"
#: bits of ``bytes`` and of ``tag_bytes`` of a `StoredUnit` that are 0 in all right ones
UPPER, UPPER_TAGS = "(48|49|50|51)", "(30|31|32|33|34|35)"
ARGUED = campaign_engines.ARGUED | {
    r"-mode const1 .* -port Y .*: inside\.eq\(": PADDING,
    rf"-mode cnot1 .* -ctrlbit {UPPER} -wire (units__payload\S*|second\.arrival\.unit)\.": LARGE,
    rf"-mode cnot1 .* -ctrlbit {UPPER} -wire planner\.unit_ride\d+\.": LARGE,
    rf"-mode cnot1 .* -ctrlbit {UPPER_TAGS} -wire (third\.arrival\.unit|planner\.word)\.": TAGS,
    r"-mode const0 .* -wire \S*unit\.tag_bytes -wirebit ([89]|1[0-3]) ": TAGS,
    r"-mode const0 .* -wire planner\.so_far -wirebit 1[2-5] ": LARGE,
    r"-mode cnot1 .* -ctrlbit 1[2-5] .*: m\.d\.sync \+= size\.eq": LARGE,
    r"-mode const1 .* -wire (second|third)\.top -wirebit [456] ": campaign_engines.LEGAL,
    r"-mode const0 -cell \S*tag_rows_room\.\S+ -port A -portbit 6 .*self\.used <= self\.most": FULL,
    r"-mode const0 -cell \S*\\rows_room\.\S+ -port [AD] -portbit 9 ": FULL,
    r"-mode cnot1 -cell \S*\\tag_rows_room\.\S+ .* -ctrlbit 6 .*self\.used": FULL,
    r"-mode cnot1 -cell \S*\\rows_room\.\S+ .* -ctrlbit 9 .*self\.used": FULL,
    r'-mode const0 .* -port A -portbit [4-7] .*: "tag_final": index == arrival\.tag_final': PAST,
    r"-mode cnot1 .* -portbit 1[0-7] -ctrlbit ([89]|1[89]) -wire scales\d+\.byte ": TINY,
    r"-mode cnot1 .* -portbit [0-7] -ctrlbit [89] -wire lane\d\.scale_\d ": TINY,
    r"-mode const1 .* -wire planner\.plan_en\d -wirebit 0 ": EARLY,
    r"-mode (inv|const1) .* -port B .* -given \S*rst -feeds planner\.valid0\b": EARLY,
}
EXHAUSTED = {
    r" -cell \$flatten\\spreader\.": "the spreader knows of one beat at a time, and every choice "
    "of a beat's tags behind every number of bytes is played, twice, with other bytes",
}
