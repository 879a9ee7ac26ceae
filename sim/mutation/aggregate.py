"""Mutation campaign of the aggregation unit at 8 lanes: what its test must notice."""

import numpy as np
from gradnic.hdl.aggregation.slot_rows import GAP
from gradnic.hdl.aggregation.unit import EVENTS, AggregationUnit, ContributionHead, Sizes
from gradnic.models.aggregation.jobs import Job
from gradnic.models.aggregation.switchml import SwitchmlJob
from gradnic.models.frame.address import Address

from gradnic.interface.formats import Op

from ..aggregation.slot_switchml import SwitchmlTraffic, SwitchmlTwin
from ..aggregation.slot_switchml import contribution as switchml
from ..aggregation.slot_traffic import Traffic
from ..aggregation.unit import Bench, contribution
from ..engine import stimulus
from .aggregate_reasons import ARGUED, ELSEWHERE, EXPLAINED

__all__ = ["ARGUED", "ELSEWHERE", "EXPLAINED", "component", "test"]

N_CHILDREN = 3
COMMON = ("tensor", "seq", "lc", "tree", "arg")  # what contributions to one slot share
N_BYTES = 4
SMALL = {"n_slots": 4, "n_jobs": 2, "chunk": 64, "n_words": 64}
STALLS = {"answers": 0.3, "sums": 0.4, "values": 0.6}


def component():
    """The circuit under mutation."""
    return AggregationUnit(N_BYTES, **SMALL)


def _children(n):
    return tuple(Address(k, k, k) for k in range(n))


def _job(number, first_slot, n_children=N_CHILDREN, **more):
    own = {"first_slot": first_slot, "n_slots": 2, "C": 64}
    return Job(number, _children(n_children), **own | more)


PLAIN = _job(5, 0)
PAIRS = (
    (PLAIN, _job(6, 2, close="n_min", n_min=2, b=2, g=20, n=7)),
    (_job(9, 0, kind="int32"), _job(8, 2, 32, kind="int32", overflow="error", n=32)),
    (_job(7, 2, 2, b=3, g=34), _job(1, 0, 2, close="bounded", total_bytes=64, p_q16=20000)),
    (_job(255, 0, 4, b=1, g=60, root=False), _job(4, 2, 2, kind="int32", overflow="wrap")),
    (
        _job(2, 2, 32, b=2, g=6, close="n_min", n_min=20),
        _job(3, 0, 2, b=1, g=2, n=127, close="n_min", n_min=1),
    ),
    (
        _job(10, 0, 5, kind="int32", close="bounded", total_bytes=70, p_q16=9000),
        _job(11, 2, 1, g=17, n=15),
    ),
    (
        _job(12, 0, 3, close="bounded", total_bytes=200, g=42, n=6),
        _job(13, 2, 3, b=3, g=82, close="n_min", n_min=2),
    ),
    (_job(16, 0, 2, b=1, g=1, n=255), _job(17, 2, 2, b=1, g=1, n=128)),
    (
        _job(14, 0, 1, b=3, g=254, close="n_min"),
        _job(15, 2, 4, b=3, g=12, n=20, close="bounded", total_bytes=90, p_q16=9000),
    ),
)


class _Unit(Bench):
    """A bench of this campaign's unit. A sum may not be offered before its answer."""

    def __init__(self, model, *jobs):
        super().__init__(model, Sizes(N_BYTES, **SMALL), jobs, twin=SwitchmlTwin)

    def _run(self, golden, inputs, signals, **how):
        run = super()._run(golden, inputs, signals, **how)
        if "answers" not in how.get("stalls", ()) and len(run.outputs["sums"]):
            lasts = np.flatnonzero(run.unpack("sums")["last"])
            firsts = run.taken["sums"][np.concatenate([[0], lasts[:-1] + 1])]
            answers = run.taken["answers"][run.unpack("answers")["length"] != 0]
            assert (firsts >= answers).all(), "a sum before its answer"
        return run

    def clear(self, job):
        """Forget what a job's slots hold, with nothing under way: a cycle per set, and two."""
        self.engine.clear(job)
        signals = {"clear": [1, 0], "clear_job": self.places[job]}
        how = {"reset": False, "drain": False, "max_cycles": 8 * self.sizes.n_slots}
        run = self.instance.run(signals=signals, trace=("busy",), **how)
        busy = np.count_nonzero(run.traces["busy"])
        assert busy == 2 * self.sizes.n_slots + 2, f"busy for {busy} cycles"


def test(model):
    """Rules, sums, widths, words, stalls, deadlines, bounded loss, forgetting, rate."""
    for pair in PAIRS:
        for k, stalls in enumerate(({}, STALLS, {"sums": 0.7})):
            unit = _Unit(model, *pair)
            how = {"n_words": 12, "slots": 2, "first_gen": (0xFFFA, 0xA5F0, 0x5AFE)[k]}
            traffic = Traffic(pair, np.random.default_rng(7 + k), **how)
            for turn in range(3):
                unit.play(traffic.packets(120), now=turn << 30, stalls=stalls, seed=turn + 1)
    _bits(model)
    _audiences(model)
    _quorums(model)
    _norms(model)
    _sizes(model)
    _resets(model)
    _bounded(model)
    _clears(model)
    _switchml(model)
    _deadlines(model)
    _visits(model)
    _beside(model)
    _full(model)
    _rate(model)


def _switchml(model):
    """Beside a job of ours, with and without stalls."""
    for n, first in ((3, 2), (1, 0), (32, 2)):
        pair = SwitchmlJob(77, _children(n), first, 2, values=64), _job(5, 2 - first)
        unit = _Unit(model, *pair[:: 1 if first else -1])
        mixed = (
            SwitchmlTraffic(pair[0], np.random.default_rng(3)),
            Traffic(pair[1:], np.random.default_rng(4), n_words=64, slots=2),
        )
        for turn in range(2):
            lists = [one.packets(60) for one in mixed]
            packets = [packet for both in zip(*lists, strict=True) for packet in both]
            unit.play(packets, stalls=STALLS if turn else {}, seed=turn + 1)

    job = SwitchmlJob(78, _children(32), 0, 2, values=64)
    unit = _Unit(model, job)
    generator = np.random.default_rng(5)
    order = list(map(int, generator.permutation(32)))
    for turn in range(3):
        packets = []
        # all who move on clear their own bit in the old set, where the next one asks again: with
        # both orders, each child's bit is still there behind each other child's move
        for child in order[:: -1 if turn == 2 else 1]:
            for which in ((1 - turn % 2,) if turn else ()) + (turn % 2, turn % 2):
                values = generator.integers(-(2**25), 2**25, 64)
                packets.append(switchml(job, child, values, slot=1, which=which))
        unit.play(packets)


def _bits(model):
    """Packets that are wrong in one bit of one field, or in their length, beside good ones."""
    generator = np.random.default_rng(21)
    pair = _job(5, 0, b=3, g=34, B=256, p=1 / 64), _job(6, 2, kind="int32", close="n_min", n_min=2)
    widths = {name: field.width for name, field in ContributionHead}
    kinds = (pair[0], Op.THC_IDX), (pair[0], Op.THC_SUM), (pair[0], Op.NORM), (pair[1], None)
    for job, op in kinds * 2:
        words = op in (Op.NORM, None)
        common = {name: int(generator.integers(1 << widths[name])) for name in COMMON}
        unit = _Unit(model, *pair)

        def good(child, gen, n=21, *, job=job, op=op, words=words, common=common):
            values = generator.integers(0, 1 << 32, n) if words else None
            how = {"op": op, "gen": gen, "slot": job.first_slot, "values": values} | common
            return contribution(job, child, generator, **how)

        packets = []
        fields = [(name, bit) for name in widths for bit in range(widths[name])]
        for k, (name, bit) in enumerate(fields):
            packets.append(good(k % 2, 7 + k // 40))
            packets.append(good(2, 7 + k // 40))
            if name not in ("job", "src", "length"):
                packets[-1].head[name] ^= 1 << bit
        for bit in range(9):
            for way in (-1, 1):
                packets.append(good(2, 20))
                n = max(len(packets[-1].payload) + way * (1 << bit), 0)
                packets[-1].payload = packets[-1].payload.ljust(n, b"x")[:n]
        for elems in (0, 64, 65, 66, 96, 128, 0x8000, 0xFFFF):
            packets.append(good(2, 21))
            packets[-1].head["elems"] = elems
        named = [(name, bit) for name, bit in fields if name in ("op", "elems", "p0", "p1")]
        for k, (name, bit) in enumerate(named):  # what registers say, first of its generation
            packets.append(good(2, 50 + k))
            packets[-1].head[name] ^= 1 << bit
        sizes = generator.integers(1, 100, 40) if words else ()
        packets += [good(k % 3, 90 + k // 2, int(n)) for k, n in enumerate(sizes)]
        unit.play(packets)
    beyond = [(_job(5, 0, n_slots=100), (4, 8, 64, 99))]
    beyond += [(_job(5, 1 << k), (0, 1, 1 << k)) for k in range(2, 13)]
    for job, slots in beyond:
        unit = _Unit(model, job)
        packets = [contribution(job, 0, generator, slot=slot) for slot in slots]
        run = unit.instance.run(unit.inputs(packets), reset=False, trace=("events",))
        assert len(run.outputs["answers"]) == 0, "a slot that the store or the job does not have"
        refused = np.count_nonzero(run.traces["events"] >> EVENTS.index("collisions") & 1)
        assert refused == len(slots), f"{refused} collisions, not {len(slots)}"


def _audiences(model):
    """A sum for any number of children; the sender alone is told what is too late."""
    generator = np.random.default_rng(29)
    for n in range(1, 33):
        own = {"kind": "int32", "close": "n_min"}
        pair = _job(5, 0, n, **own), _job(6, 2, 33 - n, **own)
        unit = _Unit(model, *pair)
        unit.play(
            [
                contribution(job, child, generator, gen=gen, slot=job.first_slot, elems=1)
                for job in pair
                for gen in (4, 6, 2)
                for child in (len(job.children) - 1, 0)
            ]
        )


def _quorums(model):
    """Slots that close with any number of children, some or all of them, and not with one less."""
    generator = np.random.default_rng(31)
    for n in range(1, 33):
        some = _job(5, 0, 32, kind="int32", close="n_min", n_min=n)
        pair = some, _job(6, 2, n, kind="int32")
        _Unit(model, *pair).play(
            [
                contribution(job, child, generator, slot=job.first_slot, elems=1)
                for job in pair
                for child in range(n)
            ]
        )


def _norms(model):
    """Words whose order, or whose sum's carry, one bit decides, each way round."""
    generator = np.random.default_rng(23)
    pair = _job(5, 0, 2), _job(6, 2, 2, kind="int32", overflow="saturate")
    unit = _Unit(model, *pair)
    packets = []
    for gen in range(24):
        base = generator.integers(0, 1 << 32, 32)
        other = base ^ 1 << np.arange(32)
        close = np.where(generator.random(32) < 0.5, (1 << 31) - base, -base) + gen % 3 - 1
        for job, op, two in ((pair[0], Op.NORM, other), (pair[1], None, close % (1 << 32))):
            for child, values in enumerate((base, two) if gen % 2 else (two, base)):
                slot = job.first_slot + gen % 2
                how = {"p0": int(generator.integers(256))} if op is None else {}
                how |= {"op": op, "gen": gen, "slot": slot, "values": values}
                packets.append(contribution(job, child, **how))
    unit.play(packets)


def _sizes(model):
    """Packets of words of each small size, and of those around the largest."""
    generator = np.random.default_rng(37)
    pair = _job(5, 0, 2), _job(6, 2, 2, kind="int32")
    unit = _Unit(model, *pair)
    packets = []
    for gen, n in enumerate((*range(1, 21), *range(62, 71))):
        for job, op in zip(pair, (Op.NORM, None), strict=True):
            for child in range(2):
                values = generator.integers(0, 1 << 32, n)
                how = {"op": op, "gen": gen, "slot": job.first_slot + gen % 2, "values": values}
                packets.append(contribution(job, child, **how))
    unit.play(packets)


def _resets(model):
    """Behind a reset nothing is told of."""
    unit = _Unit(model, PLAIN)
    traced = ("events", "overflow")
    run = unit.instance.run(reset=True, trace=traced, drain=False, max_cycles=8)
    assert not any(run.traces[name].any() for name in traced), "an event that never was"


def _bounded(model):
    """Tensors of which enough comes with one more word, and with one less not."""
    generator = np.random.default_rng(27)
    for k in range(12):
        need = int(generator.integers(4, 5000))
        own = {"kind": "int32", "close": "bounded", "total_bytes": need}
        pair = _job(5, 0, **own), _job(6, 2, **own)
        unit = _Unit(model, *pair[:: 1 if k % 2 else -1])
        for job in pair:
            for over in (-1, 0, 1):
                left, gen, packets = job.need_bytes // 4 + over, 0, []
                tensor, other = map(int, generator.integers(0, 1 << 16, 2))
                while left:
                    n = min(left, int(generator.integers(40, 65)))
                    left, gen = left - n, gen + 1
                    slot, values = job.first_slot + gen // 2 % 2, np.arange(n)
                    how = {"gen": gen, "slot": slot, "values": values, "tensor": tensor}
                    packets.append(contribution(job, 0, **how))
                how |= {"gen": gen + 5, "tensor": other, "slot": job.first_slot}
                packets += [contribution(job, c, **how) for c in (0, 1)]
                unit.play(packets)
                unit.clear(job.job)


def _clears(model):
    """Of two jobs with open and closed slots one is forgotten, the same or the other in turn."""
    generator = np.random.default_rng(25)
    pairs = [(_job(5, 0, 2), _job(6, 2, 2))]
    for first, other in ((3, 0), (0, 1)):
        pair = _job(5, first, 2, n_slots=1), _job(6, other, 2, n_slots=3)
        pairs += pair, pair[::-1]
    for pair in pairs:
        unit = _Unit(model, *pair)
        for turn, which in enumerate((0, 1, 1, 0, 0, 1)):
            for child in (0, 1, 0):
                unit.play(
                    [
                        contribution(job, child, generator, gen=gen, slot=slot)
                        for job in pair
                        for slot in range(job.first_slot, job.first_slot + job.n_slots)
                        for gen in (6 + turn % 2, 9)
                    ]
                )
                if child != 1:
                    unit.clear(pair[which].job)
    late = _job(7, 0, 2, close="bounded", total_bytes=64, p_q16=20000)
    unit = _Unit(model, late)
    for _ in range(3):  # the bytes of its tensor are forgotten too
        unit.play([contribution(late, 0, generator, gen=g, slot=s) for g in (0, 1) for s in (0, 1)])
        unit.clear(late.job)


def _deadlines(model):
    """Slots closed by time, at both ends of the clock, and jobs forgotten in between."""
    generator = np.random.default_rng(9)
    deadlines = [(50, 2**31), (1, 2**32 - 1), (0x5A5A5A5A, 0), (0x25A5A5A6, 0x0F0F3C00)]
    deadlines += [tuple(map(int, generator.integers(1, 2**32, 2))) for _ in range(3)]
    most = {"close": "bounded", "total_bytes": (2**40 - 1) // 3}  # of three: all bits are 1
    for k, (one, two) in enumerate(deadlines):
        late = _job(5, 0, deadline=one, **most), _job(6, 2, deadline=two, kind="int32")
        unit = _Unit(model, *late)
        traffic = Traffic(late, generator, n_words=64, slots=2)
        now = 2**32 - 90
        for turn in range(24 if k == 0 else 10):
            unit.play(traffic.packets(12), now=now % 2**32)
            now += (1, one - 1, one, one + 1, two - 1, two)[turn % 6]
            unit.tick(now % 2**32)
            if turn % 4 == 1:
                unit.clear(late[turn // 4 % 2].job)


def _visits(model):
    """Visits by time and by bytes that a clear of the other job breaks off at any moment."""
    generator = np.random.default_rng(33)
    late, heavy = _job(5, 0, deadline=10), _job(6, 2, 2, close="bounded", total_bytes=80)
    unit = _Unit(model, late, heavy)

    def open_all(job, *gens):
        slots = (job.first_slot, job.first_slot + 1)
        return [contribution(job, 0, generator, gen=g, slot=s) for g in gens for s in slots]

    for wait in range(0, 120, 3):
        clears = {"now": 50, "clear": [0] * wait + [1, 0]}
        unit.play(open_all(late, 0, 1))
        golden = unit.engine.tick(50)
        unit.engine.clear(heavy.job)
        unit._run(golden, {}, clears | {"tick": [1, 0], "clear_job": unit.places[heavy.job]})

        # of the other job enough comes beside slots that are late, but no tick says so
        unit.play(open_all(late, 2, 3) + open_all(heavy, 0, 1))
        enough = contribution(heavy, 1, generator)
        golden = unit.engine.contribute(enough.head, enough.payload, 50)
        unit.engine.clear(late.job)
        unit._run(golden, unit.inputs([enough]), clears | {"clear_job": unit.places[late.job]})


def _beside(model):
    """A visit to all slots beside another job's packets: each job's answers are as without."""
    generator = np.random.default_rng(11)
    due, busy = _job(5, 0, deadline=5), _job(6, 2, 2)
    unit = _Unit(model, due, busy)
    waiting = [contribution(due, 1, generator, gen=g, slot=s) for g in (0, 1) for s in (0, 1)]
    unit.play(waiting, now=0)
    packets = [
        contribution(busy, c, generator, slot=2 + s, gen=g)
        for g in range(12) for s in range(2) for c in range(2)
    ]  # fmt: skip
    golden = unit.engine.tick(9)
    for packet in packets:
        golden += unit.engine.contribute(packet.head, packet.payload, 9)
    signals = {"now": 9, "tick": [0] * 40 + [1, 0]}
    run = unit.instance.run(unit.inputs(packets), signals=signals, reset=False)
    heads = [bytes(row) for row in run.outputs["answers"]]
    got = list(zip(heads, run.frames("sums"), strict=True))
    wanted = unit.expected(golden)["answers"]
    wanted = [(bytes(row), payload) for row, (_, payload) in zip(wanted, golden, strict=True)]
    for job in (due, busy):
        place = unit.places[job.job]
        assert _of(got, place) == _of(wanted, place), f"answers of job {place}"

    other = [
        contribution(busy, c, generator, slot=2 + s, gen=20 + g)
        for g in range(30) for s in range(2) for c in range(2)
    ]  # fmt: skip
    golden = [a for p in other for a in unit.engine.contribute(p.head, p.payload, 9)]
    pulses = [int(k % 67 == 0) for k in range(1400)]
    signals = {"now": 9, "clear": [*pulses, 0], "clear_job": unit.places[due.job]}
    run = unit.instance.run(unit.inputs(other), signals=signals, reset=False)
    run.check(**unit.expected(golden))


def _of(answers, place):
    """Answers of the job at a place: its number is the lowest bits."""
    return [(head, payload) for head, payload in answers if head[0] & 15 == place]


def _full(model):
    """All that answers and sums can wait in is filled, with sums and without."""
    generator = np.random.default_rng(13)
    one = _job(5, 0, 1)
    sums = [contribution(one, 0, generator, gen=100 + g) for g in range(9)]
    stale = [contribution(one, 0, generator, gen=g % 7, seq=g, lc=g % 8) for g in range(60)]
    norms = [
        contribution(one, 0, generator, gen=g, slot=1, op=Op.NORM, values=[g]) for g in range(9)
    ]
    mixed = [(sums + stale[:20] + norms)[k] for k in generator.permutation(38)]
    first = sums[:1]
    for packets, port, inside in (
        (sums, "sums", 8),
        (first + norms, "sums", 8),
        (first + stale, "answers", 14),
        (first + sums, "answers", 10),
        (mixed, "sums", 11),
        (mixed, "answers", 14),
    ):
        run = _Unit(model, one).play(packets, stalls={port: stimulus.storm(700)})
        within = int((run.taken["heads"] < 700).sum())
        assert within == inside, f"{within} heads inside, not {inside}"
    packets = [
        contribution(PLAIN, child, generator, gen=gen, slot=slot, op=op)
        for gen, op in enumerate((Op.THC_IDX, Op.THC_SUM))
        for slot in range(2)
        for child in range(N_CHILDREN)
    ]
    unit = _Unit(model, PLAIN)
    unit.play(packets, stalls={"sums": stimulus.storm(300), "answers": stimulus.storm(290)})


def _rate(model):
    """A packet of indices every 8 cycles, words without a gap, and the latency of an answer."""
    generator = np.random.default_rng(15)
    packets = [
        contribution(PLAIN, child, generator, gen=gen, slot=slot)
        for gen in range(3)
        for slot in range(2)
        for child in range(N_CHILDREN)
    ]
    run = _Unit(model, PLAIN).play(packets)
    assert (np.diff(run.taken["heads"]) == 8).all(), "not at full rate"
    assert run.taken["answers"][0] - run.taken["heads"][2] == 31, "late or early"
    assert run.taken["sums"][0] - run.taken["answers"][0] == 2, "late or early"
    one = _job(5, 0, 1)
    packets = [contribution(one, 0, generator, gen=gen) for gen in range(2)]
    for gap in range(10, 25):
        run = _Unit(model, one).play(packets, stalls={"heads": [1] + [0] * (gap - 1)})
        times = run.taken["answers"] - run.taken["heads"]
        assert (times == 31).all(), f"late or early {gap} cycles behind a packet"
    two = _job(5, 0, 2, kind="int32")
    packets = [contribution(two, 0, values=np.arange(64)) for _ in range(12)]
    run = _Unit(model, two).play(packets)
    assert (np.diff(run.taken["values"][127::64]) == 68).all(), "copies not at full rate"
    words = _job(5, 0, 1, kind="int32")
    for n, gap in ((64, 64), (63, 64), (16, 16), (1, GAP + 2)):
        packets = [
            contribution(words, 0, generator, gen=g, values=generator.integers(0, 2**31, n))
            for g in range(12)
        ]
        run = _Unit(model, words).play(packets)
        assert (np.diff(run.taken["answers"]) == gap).all(), "not at full rate"
