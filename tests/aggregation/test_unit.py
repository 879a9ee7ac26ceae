"""The aggregation unit against the golden slot engine: answers, sums and counters, bit for bit."""

import re

import numpy as np
import pytest
from amaranth.hdl import Fragment
from gradnic.hdl.aggregation.slot_answers import SlotAnswers
from gradnic.hdl.aggregation.slot_lanes import SlotLanes
from gradnic.hdl.aggregation.slot_records import Sizes
from gradnic.hdl.aggregation.unit import AggregationUnit
from gradnic.models.aggregation.jobs import Job
from gradnic.models.frame.address import Address
from gradnic.sim.aggregation.slot_traffic import Traffic
from gradnic.sim.aggregation.unit import Bench, contribution
from gradnic.sim.engine import batch, stimulus

from gradnic.interface.formats import Op

SMALL = {"n_bytes": 8, "n_slots": 16, "n_jobs": 4, "chunk": 64, "n_words": 16}
WIDE = {
    "n_bytes": 4,
    "n_slots": 8,
    "n_jobs": 3,
    "chunk": 64,
    "n_words": 13,
    "b_max": 8,
    "width": 12,
}
DEEP = {
    "n_bytes": 4,
    "n_slots": 8,
    "n_jobs": 2,
    "chunk": 64,
    "n_words": 21,
    "b_max": 3,
    "width": 16,
}


def children(n):
    return tuple(Address(i, 0x020000000001 + i, 0x0A000001 + i) for i in range(n))


def job(number, n_children, first_slot, **more):
    own = {"first_slot": first_slot, "n_slots": 4, "C": 64}
    return Job(number, children(n_children), **own | more)


def jobs_of(case):
    """Jobs for each kind of unit, with its sizes."""
    if case == "rules":
        return SMALL, [
            job(5, 3, 0),
            job(6, 4, 4, close="n_min", n_min=3, b=2, g=20),
            job(0, 2, 8, close="bounded", total_bytes=100, p_q16=16384, b=3, n=5, g=34),
            job(255, 4, 12, b=1, g=60, root=False, close="n_min", n_min=2, n=4),
        ]
    if case == "int32":
        return SMALL, [
            job(9, 4, 0, kind="int32", overflow="wrap"),
            job(8, 3, 4, kind="int32", overflow="saturate"),
            job(7, 2, 8, kind="int32", overflow="error", close="n_min", n_min=1),
            job(6, 32, 12, kind="int32", close="bounded", total_bytes=100, p_q16=40000),
        ]
    if case == "12 bits":
        return WIDE, [
            job(1, 2, 0, w=12, b=8, g=255, n_slots=3),
            job(2, 3, 3, w=12, b=5, g=60, n_slots=3, n=40, close="n_min", n_min=2),
            job(3, 4, 6, w=12, b=7, g=254, n_slots=2),
        ]
    return DEEP, [
        job(1, 4, 0, w=16, b=3, g=34, n=9, close="n_min", n_min=2),
        job(2, 2, 4, w=16, b=1, g=255),
    ]


CASES = ("rules", "int32", "12 bits", "16 bits")


@pytest.fixture(scope="module")
def models():
    """Libraries by unit, built when first asked for."""
    built = {}

    def get(case):
        sizes, jobs = jobs_of(case)
        unit = AggregationUnit(**sizes)
        if unit.sizes not in built:
            built[unit.sizes] = batch.build(unit)
        return Bench(built[unit.sizes], unit.sizes, jobs)

    return get


def test_sum_of_all_children(models):
    bench = models("rules")
    generator = stimulus.rng("sum")
    five = bench.jobs[0]
    for gen in range(3):
        run = bench.play([contribution(five, c, generator, gen=gen) for c in (2, 0, 1)])
        assert len(run.outputs["answers"]) == 1
    assert bench.counted["claims"] == 3


@pytest.mark.parametrize("b", range(1, 9))
def test_every_width_of_index(models, b):
    """All values of an index in every lane, through the job's own table."""
    g = {1: 255, 2: 34, 3: 42, 4: 30, 5: 60, 6: 62, 7: 126, 8: 255}[b]
    bench = models("12 bits")
    one = job(1, 2, 0, w=12, b=b, g=g)
    bench = Bench(bench.model, bench.sizes, [one])
    values = np.arange(64) * max(1, 2**b // 64)
    for gen in range(4):
        turned = (np.roll(values, gen * 16 + 1) + gen) % 2**b
        bench.play([contribution(one, c, gen=gen, values=turned) for c in (0, 1)])


@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize(
    "stalls", [{}, {"answers": 0.3, "sums": 0.5}, {"heads": 0.1, "values": 0.4}]
)
def test_hostile_traffic(models, case, stalls):
    bench = models(case)
    traffic = Traffic(bench.jobs, stimulus.rng("hostile", case), n_words=bench.sizes.n_words)
    for turn in range(4):
        bench.play(traffic.packets(300), now=turn, stalls=stalls, seed=turn + 1)
    assert all(bench.counted.values()), bench.counted


def test_deadlines(models):
    _sizes, jobs = jobs_of("rules")
    bench = models("rules")
    jobs = [job(5, 3, 0, deadline=50), job(6, 2, 4), job(7, 2, 8, deadline=20, b=2, g=20)]
    bench = Bench(bench.model, bench.sizes, jobs)
    traffic = Traffic(jobs, stimulus.rng("deadlines"))
    now = 2**32 - 200
    for turn in range(12):
        bench.play(traffic.packets(40), now=now % 2**32)
        now += (7, 20, 50, 49, 19, 1)[turn % 6]
        bench.tick(now % 2**32)
    assert bench.counted["partial"] > 20


def test_tick_under_load_closes_what_is_due(models):
    """No contribution is lost beside a visit to all slots: the counts still add up."""
    bench = models("rules")
    jobs = [job(5, 3, 0, deadline=5), job(6, 2, 4)]
    bench = Bench(bench.model, bench.sizes, jobs)
    generator = stimulus.rng("load")
    waiting = [contribution(jobs[0], 1, generator, slot=s, seq=s) for s in range(4)]
    bench.play(waiting, now=0)
    other = [
        contribution(jobs[1], c, generator, slot=4 + s, gen=g)
        for g in range(30) for s in range(4) for c in range(2)
    ]  # fmt: skip
    inputs = bench.inputs(other)
    run = bench.instance.run(inputs, signals={"now": 9, "tick": [1, 0]}, reset=False)
    answers = run.unpack("answers")
    assert (answers["job"] == 1).sum() == 120
    assert sorted(answers["slot"][answers["job"] == 0]) == [0, 1, 2, 3]
    assert answers["part"].sum() == 4


@pytest.mark.parametrize("period", [1, 7, 200])
def test_ticks_closer_than_a_visit(models, period):
    """Of 256 cycles: the highest slots are closed, and bounded loss goes on, under load."""
    bench = models("rules")
    late, busy = job(5, 3, 12, deadline=5), job(6, 2, 8)
    heavy = job(3, 3, 0, close="bounded", total_bytes=32 * 4, p_q16=65536 // 4)
    bench = Bench(bench.model, bench.sizes, [late, busy, heavy])
    generator = stimulus.rng("ticks", period)
    waiting = [
        contribution(late, 1, generator, slot=s, gen=g) for s in range(12, 16) for g in (0, 1)
    ]
    bench.play(waiting, now=0)
    packets = []
    for gen in range(4):
        order = [(heavy, s, c) for s in range(4) for c in range(3)]
        order += [(busy, s, c) for s in range(8, 12) for c in range(2)]
        packets += [
            contribution(order[k][0], order[k][2], generator, slot=order[k][1], gen=gen, tensor=gen)
            for k in generator.permutation(len(order))
        ]
    golden = bench.engine.tick(9)
    for packet in packets:
        golden += bench.engine.contribute(packet.head, packet.payload, 9)
    ticks = [int(k % period == 0) for k in range(100_000)]  # to the end of the run
    inputs = bench.inputs(packets)
    run = bench.instance.run(inputs, signals={"now": 9, "tick": ticks}, reset=False)
    wanted = bench.expected(golden)["answers"]
    got = list(zip(map(bytes, run.outputs["answers"]), run.frames("sums"), strict=True))
    wanted = list(zip(map(bytes, wanted), (payload for _, payload in golden), strict=True))
    for place in range(3):  # which is the lowest bits of an answer
        ours = [[a for a in answers if a[0][0] & 15 == place] for answers in (got, wanted)]
        assert ours[0], f"no answer of job {place}"
        assert ours[0] == ours[1], f"answers of job {place}"


def test_bounded_loss_closes_the_tensor_in_order(models):
    bench = models("rules")
    bounded = job(3, 3, 0, close="bounded", total_bytes=32 * 4, p_q16=65536 // 4)
    bench = Bench(bench.model, bench.sizes, [bounded])
    generator = stimulus.rng("bounded")
    for tensor in range(3):
        order = [(s, c) for s in (3, 1, 2, 0) for c in range(3)]
        order = [order[k] for k in generator.permutation(12)]
        bench.play(
            [
                contribution(bounded, c, generator, slot=s, gen=tensor, tensor=tensor, seq=s)
                for s, c in order
            ]
        )
    assert bench.counted["partial"] > 0


def test_clear_forgets_one_job_only(models):
    bench = models("rules")
    generator = stimulus.rng("clear")
    first, second = bench.jobs[:2]
    both = [contribution(j, 0, generator, gen=7) for j in (first, second)]
    bench.play(both)
    bench.clear(first.job)
    bench.play([contribution(j, 1, generator, gen=5) for j in (first, second)])
    assert bench.counted["stale"] == 1
    assert bench.counted["claims"] == 3


@pytest.mark.parametrize("order", ["tick first", "clear first"])
def test_a_clear_beside_a_visit(models, order):
    """Whenever a job is forgotten: the visit to all slots closes the late ones of the other."""
    bench = models("rules")
    late, gone = job(5, 3, 4, deadline=10), job(6, 4, 0)
    bench = Bench(bench.model, bench.sizes, [late, gone])
    generator = stimulus.rng("clear and tick")
    for turn, cycles in enumerate((0, 1, 2, 3, 5, 8, 30, 31, 32, 33, 34, 35, 36, 37, 38, 60, 100)):
        bench.play(
            [contribution(late, 0, generator, slot=s, gen=turn) for s in range(4, 8)], now=100
        )
        clear, tick = (cycles, 0) if order == "tick first" else (0, cycles)
        bench.tick(150, at=tick, clear=gone.job, clear_at=clear)
    assert bench.counted["partial"] == 4 * (turn + 1)


def test_levels_beyond_what_was_built_are_ignored(models):
    """Block RAM has more words than there are levels, and addresses more bits than it."""
    bench = models("12 bits")
    beyond = list(range(3 << 8, 16 << 8, 5))
    signals = {"write_en": [*[1] * len(beyond), 0], "write_addr": [*beyond, 0], "write_data": 7}
    bench.instance.run(signals=signals, reset=False, drain=False, max_cycles=len(beyond) + 2)
    generator = stimulus.rng("beyond")
    for one in bench.jobs:
        bench.play([contribution(one, c, generator) for c in range(len(one.children))])


def test_full_rate_from_two_children_on(models):
    """128 lanes' worth of a beat each cycle, sums included; a stored sum costs its own beats."""
    sizes = SMALL | {"chunk": 128}
    unit = AggregationUnit(**sizes)
    two = job(5, 2, 0, C=128, n_slots=8)
    generator = stimulus.rng("rate")
    packets = [
        contribution(two, c, generator, slot=s, gen=g)
        for g in range(6)
        for s in range(8)
        for c in range(2)
    ]
    bench = Bench(batch.build(unit), unit.sizes, [two])
    run = bench.play(packets)
    taken = run.taken["values"]
    assert np.array_equal(np.diff(taken), np.ones(len(taken) - 1)), "values stall"
    again = [contribution(two, 0, generator, slot=s, gen=5) for s in range(8)]
    run = bench.play(again * 2)
    assert run.taken["sums"][-1] - run.taken["sums"][0] < 16 * 16 + 32, "a stored sum costs more"


def test_latency(models):
    """From the last contribution, whole, to the first beat of the sum: 24 cycles and its beats."""
    bench = models("rules")
    five = bench.jobs[0]
    bench.play([contribution(five, c, stimulus.rng("latency")) for c in (0, 1)])
    run = bench.play([contribution(five, 2, stimulus.rng("latency"))])
    n_beats = len(run.taken["values"])
    assert n_beats == 4
    assert run.taken["sums"][0] - run.taken["values"][-1] <= 24
    assert run.taken["sums"][0] - run.taken["heads"][0] <= 24 + n_beats


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"n_bytes": 12}, "n_bytes must be a power of two from 4 to 64, not 12"),
        (
            {"n_slots": 100},
            "n_slots must be a power of two from 2 to 2048, where a sum has 4 rows, not 100",
        ),
        ({"n_slots": 1}, "n_slots must be a power of two from 2 to 2048"),
        ({"n_slots": 4096}, "n_slots must be .* to 2048, where a sum has 4 rows, not 4096"),
        (
            {"n_slots": 8192, "chunk": 64, "n_words": 4},
            "n_slots must be .* to 2048, where a sum has 4 rows, not 8192",
        ),
        ({"chunk": 65}, "chunk must be a multiple of 64 up to 8192, not 65"),
        ({"width": 9}, "width must be 8, 12 or 16, not 9"),
        ({"b_max": 9}, "b_max must be 1 to 8, not 9"),
        ({"n_jobs": 17}, "n_jobs must be 1 to 16, not 17"),
        ({"chunk": 64.0}, "chunk must be a multiple of 64 up to 8192, not 64.0"),
        ({"n_slots": 8.0}, "n_slots must be a power of two from 2 to 2048, .* not 8.0"),
        ({"n_words": 0}, "n_words must be 1 to 2048, not 0"),
    ],
)
def test_errors_name_the_value_and_the_limit(change, message):
    with pytest.raises(ValueError, match=message):
        AggregationUnit(**SMALL | change)


def test_the_largest_units_have_a_store():
    """Whose rows one block RAM has numbers for; those of twice as many slots have none."""
    for change in ({}, {"n_bytes": 64, "chunk": 512, "n_words": 2048, "width": 16}):
        with pytest.raises(ValueError, match="n_slots must be") as told:
            AggregationUnit(**SMALL | change | {"n_slots": 8192})
        most = int(re.search(r"2 to (\d+)", str(told.value))[1])
        sizes = AggregationUnit(**SMALL | change | {"n_slots": most}).sizes
        assert SlotLanes(sizes, 16, 0).ram.depth == 16384
        with pytest.raises(ValueError, match=f"n_slots must be .* not {2 * most}"):
            AggregationUnit(**SMALL | change | {"n_slots": 2 * most})


@pytest.mark.parametrize("width", [12, 16])
def test_wide_sums_are_written_out_once(width, calls):
    """18 s of a processor where each bit of a beat brings the turned row along, and minutes at 64
    bytes, before `gradnic verilog --set width=12` wrote a line.
    """

    def work(width):
        return calls(lambda: Fragment.get(SlotAnswers(Sizes(16, width=width)), None))

    assert work(width) < 3 * work(8)


def test_norms_by_maximum_of_words(models):
    bench = models("rules")
    five = bench.jobs[0]
    values = np.array([0, 0x7F800000, 0x3F800000, 0x80000000, 1, 2**32 - 1, 7])
    for n in (1, 2, 3, 5, 7):
        rows = [np.roll(values, k)[:n] for k in range(3)]
        gen = n
        packets = [
            contribution(five, c, op=Op.NORM, gen=gen, values=rows[c], arg=c) for c in range(3)
        ]
        bench.play(packets)
