"""What the circuit lets a contribution do to its slot is what the golden verdict says."""

import numpy as np
import pytest
from gradnic.hdl.aggregation.slot_records import ContributionHead, Record, Sizes
from gradnic.hdl.aggregation.slot_verdict import SlotVerdict
from gradnic.hdl.aggregation.slot_verdict import Verdict as Flags
from gradnic.models.aggregation import slot_verdict as golden
from gradnic.models.aggregation.jobs import Job
from gradnic.models.aggregation.slot_verdict import Verdict
from gradnic.models.aggregation.switchml import SwitchmlJob
from gradnic.models.aggregation.unit import SlotEngine
from gradnic.models.frame.address import Address
from gradnic.sim.aggregation import slot_switchml
from gradnic.sim.aggregation.slot_traffic import Traffic
from gradnic.sim.aggregation.unit import registers
from gradnic.sim.engine import batch, encoding, stimulus

from gradnic.interface.formats import Op

N_STAGES = 8
SIZES = Sizes(8, n_slots=32, n_jobs=6, chunk=64, n_words=64)


def job(number, n_children, first_slot, **more):
    children = tuple(Address(k, k, k) for k in range(n_children))
    return Job(number, children, **{"first_slot": first_slot, "n_slots": 4, "C": 64} | more)


NATIVE = [
    job(5, 3, 0),
    job(6, 4, 4, close="n_min", n_min=3, b=2, g=20),
    job(0, 2, 8, close="bounded", total_bytes=100, p_q16=16384, b=3, n=5, g=34),
    job(255, 4, 12, b=1, g=60, root=False, close="n_min", n_min=1, n=4),
    job(9, 32, 16, kind="int32"),
    job(8, 1, 20, kind="int32", close="n_min"),
]
OTHER = SwitchmlJob(7, tuple(Address(k, k, k) for k in range(3)), 24, 2, values=64)


class Case:
    """What one packet shows the circuit, and what the flags and the record after it must be."""

    def __init__(self, packet, place, job, now, **how):
        self.head = {name: packet.head.get(name, 0) for name, _ in ContributionHead}
        self.head |= {"job": place, "length": len(packet.payload)}
        self.job, self.now, self.closing = job, now, 0
        self.record, self.flags, self.after = how["record"], how["flags"], how["after"]


def stored(record, place):
    """Fields of `Record` for a golden record of the job at `place`."""
    claim = record.claim
    e0, e1 = (e & 0xFF for e in record.exponents)
    return {
        "valid": 1, "closed": int(record.closed), "job": place, "gen": record.gen,
        "bitmap": record.bitmap, "count": record.bitmap.bit_count(), "leaves": record.leaves,
        "tag": claim["arg"], "e0": e0, "e1": e1, "opened": record.opened, **record.flags,
        **{name: claim[name] for name in ("op", "lc", "tensor", "tree", "seq", "elems")},
    }  # fmt: skip


def noise(rng, **fields):
    """A record of any bits but for some."""
    return {name: int(rng.integers(2**field.width)) for name, field in Record} | fields


def flags_of(found):
    """Flags that any verdict sets; ``first`` and ``fills`` count only where it adds."""
    flags = dict.fromkeys((name for name, _ in Flags), 0)
    adds = found in (Verdict.CLAIMS, Verdict.ACCEPTED)
    again = found in (Verdict.RETRANSMITTED, Verdict.LATE)
    flags |= {"adds": adds, "accepted": adds, "first": found is Verdict.CLAIMS}
    return flags | {"again": again, "single": again or found is Verdict.STALE, str(found): 1}


def native_cases(rng, n):
    """Hostile traffic at golden slots, and requests to close some of them."""
    engine = SlotEngine(NATIVE, n_words=SIZES.n_words)
    packets = Traffic(NATIVE, rng, n_words=SIZES.n_words).packets(n)
    for packet in packets:
        head, now = packet.head, int(rng.integers(2**32))
        owner = engine.jobs[head["job"]]
        place, key = NATIVE.index(owner), (head["slot"], head["gen"] & 1)
        slot = engine.slots.get(key)
        record = slot.record if slot else None
        before = noise(rng, valid=0) if record is None else stored(record, place)
        found = golden.verdict(head, len(packet.payload), owner, record, n_words=SIZES.n_words)
        flags = flags_of(found)
        flags["abandoned"] = found is Verdict.CLAIMS and record and not record.closed
        engine.contribute(head, packet.payload, now)
        if flags["adds"]:
            record = engine.slots[key].record
            flags["fills"] = record.is_full
        after = stored(record, place) if flags["adds"] else before
        yield Case(packet, place, owner, now, record=before, flags=flags, after=after), found
        if record is not None and rng.random() < 0.3:
            gen = int(rng.choice([record.gen, record.gen, record.gen ^ 2]))
            before = stored(record, place)
            over = Case(
                packet, place, owner, now, record=before, flags=flags_of(found), after=before
            )
            over.closing, over.head["gen"] = 1, gen
            over.flags = dict.fromkeys(over.flags, 0) | {"ends": golden.ends(record, gen)}
            yield over, "ends" if over.flags["ends"] else None


def switchml_cases(rng, n):
    """Packets to the two sets of a few slots."""
    sets = {}
    for packet in slot_switchml.SwitchmlTraffic(OTHER, rng).packets(n):
        head, now = packet.head, int(rng.integers(2**32))
        key, src = (head["slot"], head["gen"]), head["src"]
        bitmap, awaited, exponents = sets.get(key, (0, 0, (0, 0)))
        e0, e1 = (e & 0xFF for e in exponents)
        before = noise(rng, valid=0, bitmap=bitmap, count=awaited, e0=e0, e1=e1)
        found = golden.refusal(head, len(packet.payload), OTHER, n_words=SIZES.n_words)
        good = found is None
        found = found or golden.switchml_verdict(bitmap, awaited, src)
        flags, after = flags_of(found) | {"clears": int(good)}, before
        if flags["adds"]:
            awaited = golden.switchml_awaited(awaited, len(OTHER.children))
            own = tuple(golden.int8(head[name]) for name in ("p0", "p1"))
            if not flags["first"]:
                own = tuple(map(max, own, exponents))
            flags["fills"] = awaited == 0
            sets[key] = bitmap | 1 << src, awaited, own
            e0, e1 = (e & 0xFF for e in own)
            after = {"bitmap": bitmap | 1 << src, "count": awaited, "e0": e0, "e1": e1}
        if good and (other := sets.get((key[0], 1 - key[1]))):
            sets[key[0], 1 - key[1]] = (other[0] & ~(1 << src), *other[1:])
        yield Case(packet, 0, OTHER, now, record=before, flags=flags, after=after), found


@pytest.mark.parametrize(("make", "seen"), [
    (native_cases, {*Verdict, "ends", None}),
    (switchml_cases, {*Verdict} - {Verdict.STALE, Verdict.LATE}),
], ids=["native", "switchml"])  # fmt: skip
def test_verdict_and_record_equal_the_golden_ones(make, seen):
    rng = stimulus.rng("verdict", make.__name__)
    cases, found = zip(*make(rng, 2000), strict=True)
    assert set(found) == seen
    heads = {name: [case.head[name] for case in cases] for name, _ in ContributionHead}
    records = {name: [case.record[name] for case in cases] for name, _ in Record}
    jobs = np.concatenate([registers([case.job], 1) for case in cases])
    signals = {
        "head": encoding.pack(ContributionHead, **heads),
        "record": encoding.pack(Record, **records),
        "job": jobs,
        "now": np.array([case.now for case in cases]),
        "closing": np.array([case.closing for case in cases]),
    }
    run = batch.build(SlotVerdict(SIZES)).run(
        {},
        signals={name: np.repeat(values, N_STAGES, axis=0) for name, values in signals.items()},
        trace=["verdict", "after", "bounded"],
        drain=False,
        max_cycles=N_STAGES * len(cases),
    )
    told, after, bounded = (
        run.traces[name][N_STAGES - 1 :: N_STAGES] for name in ("verdict", "after", "bounded")
    )
    np.testing.assert_array_equal(run.traces["verdict"][N_STAGES - 2 :: N_STAGES], told)
    adds = np.array([bool(case.flags["adds"]) for case in cases])
    for name, _ in Flags:
        wanted = np.array([bool(case.flags[name]) for case in cases])
        got = (told >> np.uint64(Flags[name].offset) & np.uint64(1)).astype(bool)
        where = adds if name in ("first", "fills") else np.ones(len(adds), bool)
        np.testing.assert_array_equal(got[where], wanted[where], err_msg=name)
    after = encoding.unpack(Record, after)
    ops = np.array([case.head["op"] for case in cases])
    # what a kind of packet makes no use of is kept all the same
    used = {"e0": ops == Op.INT32, "e1": ops == Op.INT32}
    used |= {"tag": (ops == Op.THC_IDX) | (ops == Op.THC_SUM), "closed": False}
    for name, _ in Record:
        here = np.array([name in case.after for case in cases])
        here &= ~adds | used.get(name, True)
        wanted = np.array([case.after.get(name, 0) for case in cases])
        np.testing.assert_array_equal(after[name][here], wanted[here], err_msg=name)
    counted = [case.job.kind != "switchml" and case.job.close == "bounded" for case in cases]
    np.testing.assert_array_equal(bounded, np.array(counted) & (ops != Op.NORM))
