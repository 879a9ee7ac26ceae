"""What the slot rule says is to be done, task by task, is what the golden rule says."""

import numpy as np
import pytest
from gradnic.hdl.aggregation.slot_records import Answer, Kind, Sizes, Task
from gradnic.hdl.aggregation.slot_rule import N_STAGES, SlotRule
from gradnic.models.aggregation import slot_rule as golden
from gradnic.models.aggregation.jobs import OVERFLOW_RULES, Job
from gradnic.models.aggregation.slot_verdict import Verdict, payload_bytes
from gradnic.models.frame.address import Address
from gradnic.sim.aggregation.slot_traffic import Traffic
from gradnic.sim.aggregation.unit import contribution, head_beats, registers
from gradnic.sim.engine import batch, encoding, stimulus

from gradnic.interface.formats import Op

SIZES = Sizes(8, n_slots=32, n_jobs=6, chunk=64, n_words=64)
KINDS = {Op.THC_IDX: Kind.INDEX, Op.THC_SUM: Kind.SUM, Op.NORM: Kind.NORM, Op.INT32: Kind.INT32}


def job(number, n_children, first_slot, **more):
    children = tuple(Address(k, k, k) for k in range(n_children))
    return Job(number, children, **{"first_slot": first_slot, "n_slots": 4, "C": 64} | more)


JOBS = [
    job(5, 3, 0),
    job(6, 4, 4, close="n_min", n_min=3, b=2, g=20, n=9),
    job(0, 2, 8, close="bounded", total_bytes=40, p_q16=16384, b=3, n=5, g=34),
    job(255, 4, 12, b=1, g=60, root=False, close="n_min", n_min=1, n=4),
    job(9, 32, 16, kind="int32", overflow="wrap"),
    job(8, 1, 20, kind="int32", close="n_min"),
]


class Tasks:
    """What the golden rule's verdicts ask of the adder."""

    def __init__(self):
        self.rule = golden.SlotRule(n_words=SIZES.n_words)

    def of(self, head, length, owner):
        """Tasks of one contribution, a list of {field: value}, the answer's among them."""
        seen = self.rule.tensors.get(owner.job)
        # a tensor of which enough has come already closes a slot at once, not by a visit
        known = seen and seen.tensor == head["tensor"] and seen.total >= owner.need_bytes
        found, closing = self.rule.contribute(head, length, owner, 0)
        record = self.rule.records.get((head["slot"], head["gen"] & 1))
        adds = found in (Verdict.CLAIMS, Verdict.ACCEPTED)
        task = {"takes": int(length > 0), "adds": int(adds), "first": int(found is Verdict.CLAIMS)}
        if found is Verdict.STALE:
            answer = golden.stale_head(head, record.gen) | {"length": 0}
            return [task | {"emits": 0, "tells": 1, "answer": answer}]
        if found in (Verdict.RETRANSMITTED, Verdict.LATE):
            return [task | self._emitted(record, 1 << head["src"], again=True)]
        if not adds:
            return [task | {"emits": 0, "tells": 0}]
        own = self._described(record) | task | {"emits": 0, "tells": 0}
        if closing and closing[0] is record and (record.is_full or known):
            own |= self._emitted(closing.pop(0), 2 ** len(owner.children) - 1)
        own["ovf"] = head["ovf"]
        return [own, *map(self._closed, closing)]

    def _closed(self, record):
        task = self._emitted(record, 2 ** len(record.job.children) - 1)
        return task | {"takes": 0, "adds": 0, "ovf": 0}

    def _emitted(self, record, children, *, again=False):
        answer = golden.result_head(record, children, again=again)
        answer["length"] = payload_bytes(answer["op"], answer["elems"], record.job)
        return self._described(record) | {"emits": 1, "tells": 0, "answer": answer}

    @staticmethod
    def _described(record):
        """How the adder has to treat the sum."""
        owner, op = record.job, record.claim["op"]
        task = {"kind": KINDS[op], "elems": record.claim["elems"], "job": JOBS.index(owner)}
        task["place"] = record.key[0] << 1 | record.key[1]
        if op == Op.INT32:
            return task | {"overflow": OVERFLOW_RULES.index(owner.overflow)}
        if op != Op.NORM:
            wanted = owner.leaves if owner.root else 0
            task |= {"leaves": record.leaves, "wanted": wanted, "g": owner.g, "bits": owner.b - 1}
        return task


@pytest.fixture(scope="module")
def model():
    return batch.build(SlotRule(SIZES))


def check(run, tasks):
    """AssertionError where a task of the circuit is another."""
    got = run.unpack("tasks")
    answers = encoding.unpack(Answer, got["answer"])
    assert len(got["place"]) == len(tasks)
    for k, task in enumerate(tasks):
        wanted = {n: v for n, v in task.items() if n not in ("answer", "ovf")}
        wanted = {n: v for n, v in wanted.items() if n != "first" or task["adds"]}
        assert {n: int(got[n][k]) for n in wanted} == {n: int(v) for n, v in wanted.items()}, k
        if "ovf" in task:
            assert answers["ovf"][k] == task["ovf"]
        if "answer" in task:
            answer = dict(task["answer"])
            places = {one.job: place for place, one in enumerate(JOBS)}
            answer["job"] = places[answer["job"]]
            answer.pop("ovf", None)
            assert {n: int(answers[n][k]) for n in answer} == answer, (k, task)


@pytest.mark.parametrize("duty", [1.0, 0.4])
def test_tasks_equal_the_golden_ones(model, duty):
    rng = stimulus.rng("slot rule", duty)
    packets = Traffic(JOBS, rng, n_words=SIZES.n_words).packets(2500)
    of, tasks, by_number = Tasks().of, [], {one.job: one for one in JOBS}
    for packet in packets:
        tasks += of(packet.head, len(packet.payload), by_number[packet.head["job"]])
    heads = head_beats(packets, {one.job: place for place, one in enumerate(JOBS)})
    run = model.run(
        {"heads": heads},
        signals={"jobs": registers(JOBS, SIZES.n_jobs), "now": 0, "tick": 0, "clear": 0},
        stalls={"heads": duty, "tasks": duty},
    )
    check(run, tasks)
    assert len(tasks) > len(packets) + 3  # some slots were closed by others' bytes
    assert Task(SIZES.place_width).size == model.streams["tasks"].shape.size


def test_rate_and_latency(model):
    """A head every 8 cycles, its task 9 cycles after it was taken."""
    packets = [contribution(JOBS[0], 0, stimulus.rng("rate"), gen=g) for g in range(50)]
    heads = head_beats(packets, {JOBS[0].job: 0})
    signals = {"jobs": registers(JOBS, SIZES.n_jobs), "now": 0, "tick": 0, "clear": 0}
    run = model.run({"heads": heads}, signals=signals)
    np.testing.assert_array_equal(np.diff(run.taken["heads"]), N_STAGES)
    np.testing.assert_array_equal(run.taken["tasks"] - run.taken["heads"], N_STAGES + 1)
