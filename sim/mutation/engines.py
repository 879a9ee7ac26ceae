"""What the campaigns of both engines play at 4 lanes: values, faults, rates, full stores, resets.

The engines are small enough that stores fill soon, and large enough that each of their limits can
be reached from outside: rows, rows of tags, units.
"""

import itertools
from dataclasses import dataclass, replace
from functools import cache

import numpy as np
from gradnic.hdl.inceptionn.compressor import LAG, N_PLANS, N_UNITS
from gradnic.hdl.stream.admission import Room

from ..engine import stimulus
from ..inceptionn import units as engines

N_LANES = 4
MAX_FLOATS = 632
BEAT = 4 * N_LANES
#: exponent, paper, prescale: bands at both ends, pre-scales that reach both ends of the exponents
SETTINGS = [(117, 0, 0), (113, 0, 0), (126, 0, 0), (119, 1, 0), (113, 1, 5), (121, 0, -128)]
SETTINGS += [(114, 0, 127), (118, 1, -3), (124, 0, 1), (120, 1, -127), (115, 0, 126), (122, 0, 64)]
SETTINGS += [(116, 1, -64), (123, 0, 32), (125, 1, -16), (113, 0, 113), (126, 1, 100)]


def beats_of(n_bytes):
    """Beats that hold so many bytes."""
    return -(-n_bytes // BEAT)


def tag_rows_of(unit):
    """Beats that the tags of a unit fill."""
    return beats_of(2 * -(-unit.count // 8))


#: what no unit shows that is right, in both engines
LEGAL = "the bounds of right units are 113 to 126, and so is this sum: these bits are 1"
QUEUES = "(queued|planned|stored|measured)"
HEALS = "a bit so far above what a queue holds keeps that distance, and only the lowest are seen"
FEWER = "a queue of units or rows of tags holds 53 at most: the controlling bit is never 1"
ARGUED = {
    r"-mode const1 .* -port [ABY] -portbit [456] .*: return Mux\(paper, 126, exponent\)": LEGAL,
    r"-mode const0 .* -port Y -portbit 1[0-6] .*: first\.groups\.eq": "a unit of 1024 floats or "
    "more is wrong, whatever else is worked out of it",
    **{
        rf"-mode cnot0 -cell \S*\b{QUEUES}\.\S+ -port Y -portbit {bit} -ctrlbit {below} .*: "
        r"(stays = |m\.d\.comb \+= after)": HEALS
        for bit, below in (
            (r"3\d", r"1?\d"),
            (r"[45]\d", r"([12]?\d|3[0-5])"),
            (r"6\d", r"[1-4]?\d"),
        )
    },
    rf"-mode cnot1 -cell \S*\b({QUEUES}|tokens)\.\S+ .* -ctrlbit (5[6-9]|6[0-3]) .*"
    r"\.occupied": FEWER,
    rf"-mode (inv|const1) .* -port B .* -given \S*rst -feeds (\S*\.)?{QUEUES}\.popped\b": (
        "behind a reset a queue is empty, and is so when one goes that is not there"
    ),
    r"-cell \S*\\(queued|planned|stored)\.\S+ -port [DQY] -portbit (5[6-9]|6[0-3]) .*"
    r"(stays = |comb \+= after\.eq|self\.occupied = )": (
        "a queue of units holds 53 at most: a bit so far above keeps that distance, and only the "
        "lowest three are looked at"
    ),
}


@dataclass(frozen=True)
class Side:
    """One engine as its campaign sees it.

    source, sink, answers : its streams of content in and out, and of answers, one a unit.
    inputs, check : functions of `gradnic.sim.inceptionn.units`. make : turns a unit of floats into
    its kind.
    """

    source: str
    sink: str
    answers: str
    inputs: object
    check: object
    make: object

    def n_given(self, unit):
        """Rows that a unit takes in the store: the beats that it comes in."""
        return unit.n_beats(N_LANES)

    def n_left(self, unit):
        """Beats in which a unit leaves."""
        decodes = isinstance(unit.words, bytes)
        return beats_of(4 * unit.count if decodes else len(engines.coded(unit)))


def _limited(unit):
    """A unit with a limit beyond every size, whose upper bits are any."""
    return replace(unit, limit=0xFFF | unit.count % 16 << 12)


COMPRESSOR = Side(
    "floats", "coded", "sizes", engines.compressor_inputs, engines.check_compressor, _limited
)
DECOMPRESSOR = Side(
    "coded",
    "floats",
    "verdicts",
    engines.decompressor_inputs,
    engines.check_decompressor,
    engines.of_bytes,
)


class Bench:
    """A library of an engine, and how to play units on it."""

    def __init__(self, model, engine, side):
        self.model, self.side = model, side
        n_rows = engine.n_beats if side is COMPRESSOR else engine.n_rows
        rooms = (engine.depth, n_rows), (engine.tag_depth, engine.n_tag_rows), (N_UNITS, 1)
        self.most = [Room(size, largest=largest, lag=LAG).most for size, largest in rooms]
        if side is DECOMPRESSOR:
            planner = engine.planner
            self.most_plans = Room(planner.depth, largest=planner.n_beats, lag=LAG).most

    def play(self, units, *, instance=None, **how):
        """Play units, all of which must come out as the model says; returns the `batch.Run`."""
        inputs = self.side.inputs(self.model, units, N_LANES, np.random.default_rng(3))
        run = (instance or self.model).run(inputs, **how)
        self.side.check(run, units, N_LANES, max_floats=MAX_FLOATS)
        return run

    def floats(self, kind, count, generator, **settings):
        """A unit of so many floats of a kind, as this engine takes it."""
        return self.side.make(engines.of_floats(kind, count, generator, **settings))

    def sparse(self, count, generator):
        """A unit that needs many rows of tags and few others, yet comes in 6 beats or more."""
        words = engines.floats("zero", count, generator)
        words[:16] = engines.floats("raw", 16, generator)
        return self.side.make(engines.Unit(words, count))

    def check_rate(self, unit, n=100):
        """Units one behind the other leave at the rate of the longer side, and no slower.

        n : of them, more than a queue has slots.
        """
        n_left, n_given = self.side.n_left(unit), self.side.n_given(unit)
        ends = self.play([unit] * n).taken[self.side.sink][n_left - 1 :: n_left]
        assert (np.diff(ends)[n // 2 :] == max(n_left, n_given)).all(), "not at full rate"

    def check_pause(self, places, gap=0):
        """Units that break off after a beat follow each other as `pipeline.admit` says.

        gap : cycles without a unit between two.
        """
        count = 4 * places if self.side is COMPRESSOR else 15 * places // 4
        unit = replace(self.floats("raw", count, np.random.default_rng(1)), drop=1, beats=1)
        self._check_pause(unit, places, gap)

    def check_pause_of_tags(self, places):
        """As `check_pause`, of units that announce so many rows of tags, and one beat of all."""
        unit = self.floats("zero", 64 * places, np.random.default_rng(1))
        self._check_pause(replace(unit, size=BEAT, drop=1, beats=1), places, 0)

    def _check_pause(self, unit, places, gap):
        n = min(8, self.most[0] // places, self.most[1] // tag_rows_of(unit))
        run = self.play([unit] * (n + 1), stalls={"units": [1] + [0] * gap})
        pauses = np.diff(run.taken[self.side.source])
        assert (pauses == max(min(places, LAG), gap + 1)).all(), (
            f"wrong pause after {places} places"
        )

    def check_plans(self, units, cycles=200):
        """So many units are taken before their first beat comes, and no more, one a cycle or less.

        The last place is one that nobody takes in that cycle, or one that stands free.
        """
        for comes in ([1], [1, 0]):
            stalls = {self.side.source: stimulus.storm(cycles), "units": comes}
            run = self.play(units, stalls=stalls)
            n = int(np.count_nonzero(run.taken["units"] < cycles))
            assert n == N_PLANS, f"{n} units planned, not {N_PLANS}"

    def check_offers(self, units, port, cycles=900):
        """What can leave is offered before anybody is ready."""
        run = self.play(units, stalls={port: stimulus.storm(cycles)})
        assert run.taken[port][0] == cycles, f"{port}: valid waits for ready"

    def check_burst(self, unit, cycles=900):
        """Units of a beat that waited behind a stalled output leave one a cycle.

        So do those that come after them. There may be a pause behind what waited at the output.
        """
        run = self.play([unit] * 150, stalls={self.side.sink: stimulus.storm(cycles)})
        pauses = np.diff(run.taken[self.side.sink])[20:]
        assert (pauses == 1).all(), "a pause between units that waited"

    def beats_inside(self, units):
        """Beats that an engine takes while nothing leaves it; the first unit must be a long one."""
        rows = tag_rows = n = 0
        for k, unit in enumerate(units):
            used = zip((rows, tag_rows, k), self.most, strict=True)
            if any(now > most for now, most in used):
                break
            if unit.exponent:  # else it is wrong, and takes no room
                rows += self.side.n_given(unit)
                tag_rows += tag_rows_of(unit)
            n += self.side.n_given(unit)
        return n

    def check_full(self, units, instance=None, cycles=1500):
        """A stalled engine takes exactly what its stores hold, and loses nothing of it.

        instance : goes on from the run before; None: from reset, without which registers that are
            mutants have no value to begin with.
        """
        stalls = {self.side.sink: stimulus.storm(cycles)}
        run = self.play(units, instance=instance, reset=instance is None, stalls=stalls)
        inside = int(np.count_nonzero(run.taken[self.side.source] < cycles))
        expected = self.beats_inside(units)
        assert inside == expected, f"{inside} beats inside, not {expected}"


def corner_units():
    """Every exponent in every lane under many settings, every knee, and every count modulo 8."""
    generator = np.random.default_rng(1)
    units = []
    exponents = np.concatenate([np.roll(np.arange(256), lane) for lane in range(N_LANES)])
    for exponent, paper, prescale in SETTINGS:
        words = generator.integers(0, 1 << 32, len(exponents), np.uint32) & 0x807FFFFF
        words |= exponents.astype(np.uint32) << 23
        for part in np.split(words, 2):
            units.append(engines.Unit(part, len(part), 0, exponent, paper, prescale))
    for prescale in range(-128, 128):  # every pre-scale, with bounds of all kinds
        words = generator.integers(0, 1 << 32, 256, np.uint32) & 0x807FFFFF
        words |= generator.permutation(256).astype(np.uint32) << 23
        exponent, paper = (int(generator.integers(*ends)) for ends in ((113, 127), (0, 2)))
        units.append(engines.Unit(words, len(words), 0, exponent, paper, prescale))
    bits = np.concatenate(
        [
            stimulus.float_corners([0, 1, 2, 254, 255])[::3],
            stimulus.float_corners(range(100, 140, 1))[::2],
            stimulus.float_noise(600, generator, center=120, spread=10),
        ]
    )
    at, k = 0, 0
    while at < len(bits) or k < 80:
        count = [1, 2, 3, 4, 5, 6, 7, 8, 12, 33, 64, 65, 127, 200][k % 14]
        words = np.take(bits, range(at, at + count), mode="wrap")
        exponent, paper, prescale = SETTINGS[k % len(SETTINGS)]
        units.append(engines.Unit(words, count, 0, exponent, paper, prescale))
        at, k = at + count, k + 1
    return units


def wrong_fields(unit):
    """The unit under every wrong exponent, and with counts one bit away from right ones."""
    units = [replace(unit, exponent=e) for e in (*range(113), 127)]
    for count in (unit.count, MAX_FLOATS, 0):
        units += [
            replace(unit, count=count ^ 1 << bit)
            for bit in range(16)
            if not 1 <= count ^ 1 << bit <= MAX_FLOATS
        ]
    return units


def too_long(bench, generator):
    """Units that are right but for their length, behind others that leave the same in the stores.

    Bits of their counts are just beyond those of the longest unit.
    """
    longest = bench.floats("zero", MAX_FLOATS, generator)
    counts = {MAX_FLOATS + (1 << bit) for bit in range(14)} | {1 << bit for bit in range(10, 14)}
    counts |= {(1 << bit) + 1 for bit in range(10, 14)}
    wrong = [bench.floats("zero", count, generator) for count in sorted(counts)]
    return [longest] * 8 + [unit for fault in wrong for unit in (fault, longest)]


def sizes(bench, generator):
    """Lists of units of one size: what a store gives back is what it took."""
    near = {(1 << bit) + step for bit in range(8) for step in (-1, 0, 1)} | {131, 135, 143, 157}
    for places in sorted(near & set(range(1, MAX_FLOATS // 4))):
        for kind in ("zero", "raw"):
            yield [bench.floats(kind, 4 * places, generator)] * 4


def fills(bench, generator):
    """Lists of units, each of which fills a store to its last row or just beyond."""
    long = bench.floats("raw", 200, generator)

    def of(kind, counts):
        return [long, *(bench.floats(kind, int(count), generator) for count in counts)]

    for _ in range(4):
        yield of("raw", generator.integers(24, MAX_FLOATS + 1, 16))
        yield of("mixed", generator.integers(60, 200, 40))  # 7 beats or more, longer than LAG
        yield [
            long,
            *(bench.sparse(64 * int(k) + 1, generator) for k in generator.integers(2, 5, 40)),
        ]
        yield [long, *(replace(u, exponent=0) for u in of("raw", generator.integers(24, 40, 80)))]
        yield of("zero", generator.integers(MAX_FLOATS // 2, MAX_FLOATS + 1, 24))
    for over in (-1, 0, 1):  # the last unit that may start begins with the store just so full
        rest = bench.most[0] + over - bench.side.n_given(long)
        if bench.side is COMPRESSOR:
            counts = [4 * 100] * (rest // 100) + [4 * (rest % 100)]
        else:  # raw units of 7 groups have 14 + 224 bytes, 15 rows; of less than one, 2 to 3
            counts = [56] * (rest // 15) + [(11, 26, 41, 11)[rest % 4]]
        yield of("raw", [c for c in [*counts, 99, 99, 99] if c])


def check_reopened(bench, instance, generator, cycles=700):
    """A store that is full opens again as its first unit goes, and loses nothing.

    What is left takes one place less than lets in one more unit, as many, or one more. Then come
    short units, one a cycle, and the largest: what may start before the store knows of them.
    """
    rows, tag_rows, _ = bench.most
    compresses = bench.side is COMPRESSOR

    def of_rows(n):
        if compresses:
            return bench.floats("raw", 4 * n, generator)
        sizes = (4 * count + 2 * -(-count // 8) for count in range(1, MAX_FLOATS + 1))
        return bench.floats("raw", sum(beats_of(size) <= n for size in sizes), generator)

    def of_tag_rows(n):
        return bench.floats("raw" if compresses else "zero", 64 * n - 44, generator)

    def of_plans(n):
        return bench.floats("zero", 4 * n, generator)

    # what fills a room, its places, and those of most units and of the last one that starts
    rooms = [(of_rows, rows, 60, 60), (of_tag_rows, tag_rows, *((1, 4) if compresses else (8, 8)))]
    if not compresses:
        rooms.append((of_plans, bench.most_plans, 60, 60))
    for unit, most, piece, final in rooms:
        kind = "zero" if unit is of_plans else "raw"
        first, short, long = (bench.floats(kind, n, generator) for n in (128, 2, MAX_FLOATS))
        opens = {over: set() for over in (-1, 0, 1)}
        for over, n_short in (*itertools.product(opens, (3, 4, 5, 6)), (1, 24)):
            n_pieces, rest = divmod(most + over - final, piece)
            full = [first, *([unit(rest)] if rest else []), *([unit(piece)] * n_pieces)]
            full.append(unit(final))
            units = [*full, *([short] * n_short), long, long, short]
            stalls = {bench.side.sink: stimulus.storm(cycles)}
            run = bench.play(units, instance=instance, reset=False, stalls=stalls)
            again = run.taken[bench.side.source][sum(map(bench.side.n_given, full)) :]
            opens[over].add(int(again[0]))
        if unit is of_rows:  # many places are free at once
            assert (np.diff(again[:24]) == 1).all(), "short units wait for each other"
        if unit is not of_plans:  # they hold up the planner, not the port
            assert len(opens[0]) == 1, "opens again sooner or later"
            assert cycles < min(opens[0]) < min(opens[1]), "opens again too late or too soon"
            assert opens[-1] == opens[0], "opens again too late"


def broken_off(bench, generator):
    """Lists of units of which most end long before what they announce, behind full stores."""
    for kinds in (("raw", "mixed"), ("zero",), ("raw", "zero", "mixed")):
        for most in (MAX_FLOATS, MAX_FLOATS, 100, 30):
            units = [bench.floats("raw", 200, generator)]
            for k in range(120):
                kind = kinds[k % len(kinds)]
                unit = bench.floats(kind, int(generator.integers(most // 3, most + 1)), generator)
                if generator.random() < 0.7:
                    n = min(int(generator.choice([1, 1, 1, 2, 3, 5, 8])), unit.n_beats(N_LANES))
                    unit = replace(unit, drop=1, beats=n)
                elif generator.random() < 0.2:  # as many floats as there may be, and few bytes
                    n = min(unit.n_beats(N_LANES), MAX_FLOATS // N_LANES - 1)
                    unit = replace(unit, count=MAX_FLOATS, beats=n)
                units.append(unit)
            yield units


def run_on(bench, generator):
    """Lists of units of which some go on long after what they announce, behind full stores."""
    for exponent in (117, 0):  # they count as wrong from some beat on, or from the first
        units = [bench.floats("raw", n, generator) for n in (MAX_FLOATS, MAX_FLOATS // 2, 100)]
        for n in (1, 2, 3, 5, 8, 13):
            unit = bench.floats("raw", n, generator)
            units += [unit, replace(unit, exponent=exponent, beats=280)]
        yield units
    short = bench.floats("raw", 2, generator)
    for exponent in (117, 0):  # the last rows of tags that a unit could spoil are in use
        for n in range(bench.most[1] - 4, bench.most[1] + 2):
            beyond = replace(short, exponent=exponent, beats=280)
            yield [bench.floats("raw", 200, generator), *([short] * n), beyond, short]


@cache
def all_places():
    """Units with every choice of tags of a beat's floats, behind every number of bytes modulo 16.

    Each twice, of other floats. Returns the words of each.
    """
    generator = np.random.default_rng(6)
    return [*_all_places(generator), *_all_places(generator)]


def _all_places(generator):
    choices = np.array(list(itertools.product(range(4), repeat=N_LANES)))  # of tags
    sizes = np.array([0, 1, 2, 4])[choices].sum(axis=1)
    missing = [list(generator.permutation(len(choices))) for _ in range(BEAT)]
    units = []
    while any(missing):
        at, rows = -(-MAX_FLOATS // 8) * 2 % BEAT, []  # behind the tags
        for _ in range(MAX_FLOATS // N_LANES):
            k = missing[at].pop() if missing[at] else generator.integers(len(choices))
            at = (at + sizes[k]) % BEAT
            rows.append(choices[k])
        exponents = np.array([100, 119, 125, 130])[np.concatenate(rows)]
        words = generator.integers(0, 1 << 32, len(exponents), np.uint32) & 0x807FFFFF
        units.append(words | exponents.astype(np.uint32) << 23)
    return units


def test(bench, faults):
    """All that is the same for both engines.

    faults : units that must vanish.
    """
    generator = np.random.default_rng(2)
    side, play = bench.side, bench.play
    units = [side.make(unit) for unit in corner_units()]
    play(units)
    play([side.make(engines.Unit(words, len(words))) for words in all_places()])
    stalls = {side.source: 0.6, side.sink: 0.5, side.answers: 0.4, "units": 0.5}
    play(units[-100:], stalls=stalls)
    slow = [
        bench.floats(kind, n, generator)
        for n in (MAX_FLOATS, 300, 130, 65)
        for kind in ("zero", "raw")
    ]
    play(slow, stalls={side.source: 0.04})
    play(slow, stalls={side.sink: 0.1, "units": 0.02})
    good = bench.floats("mixed", 11, generator)
    faults = [*faults, *wrong_fields(good)]
    play([unit for fault in faults for unit in (fault, good)])
    play([*faults[::-1], good, *faults, good], stalls={side.sink: 0.3})
    single = bench.floats("raw", 3, generator)
    wrong = [unit for fault in wrong_fields(single) for unit in (fault, single)]
    play([single] * 70 + wrong)  # of the unit before, all that a wrong one needs is in the stores
    play(too_long(bench, generator))
    for same in sizes(bench, generator):
        play(same)
    rates = [("raw", 4), ("zero", 3), ("raw", 61), ("zero", 200), ("mixed", 200), ("raw", 8)]
    rates += [("zero", 4 * places) for places in range(2, LAG + 1)]
    for kind, count in rates:
        bench.check_rate(bench.floats(kind, count, generator))
    short = [bench.floats("bits", 1 + k % 3, generator) for k in range(70)]
    for port in (side.sink, side.answers):
        long = [bench.floats("raw", 200, generator) for _ in range(7)]
        bench.check_offers([*long, *short], port)
    refused = [replace(unit, exponent=0) for unit in short]  # they take no room but a unit's
    play([*long, *refused, *short, *refused], stalls={side.answers: stimulus.storm(900)})
    bench.check_plans(short)
    bench.check_burst(bench.floats("raw", 3, generator))
    zeros = [bench.floats("zero", MAX_FLOATS, generator)] * 3  # as many plans as there may be
    play([*zeros, *refused, *short, *refused], stalls={side.sink: stimulus.storm(900)})
    for places in (*range(1, 10), 16, 32, 64, 128):
        bench.check_pause(places)
    for gap in range(1, LAG):
        for places in range(1, gap + 2):
            bench.check_pause(places, gap)
    instance = bench.model.instance()
    play(units[-9:], instance=instance)  # with a reset; from here on without
    for k, full in enumerate(fills(bench, generator)):
        bench.check_full(full, instance)
        how = {
            name: float(duty) for name, duty in zip(stalls, generator.random(4) ** 0.3, strict=True)
        }
        play(units[-60:][k % 5 :: 5], instance=instance, reset=False, stalls=how)
    check_reopened(bench, instance, generator)
    for k, broken in enumerate(broken_off(bench, generator)):
        stall = (stimulus.storm(1200), 0.1, 0.5)[k % 3]
        play(broken, instance=instance, reset=False, stalls={side.sink: stall})
    for wrong in run_on(bench, generator):
        stalls = {side.sink: stimulus.storm(2500)}
        play(wrong, instance=instance, reset=False, stalls=stalls)
    for cycles in (9, 30, 47, 200, 411):  # a reset in mid-unit leaves nothing behind
        inputs = side.inputs(bench.model, units[-40:], N_LANES, np.random.default_rng(3))
        instance.run(inputs, stalls={side.sink: 0.5}, drain=False, max_cycles=cycles)
        play(units[-40 + cycles % 7 : -20], instance=instance)
