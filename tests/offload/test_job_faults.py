"""Bad input of each collective: what befalls one job, and the jobs beside it as golden cards."""

import pytest
from gradnic.models.schedule.builders.collectives import COLLECTIVES
from gradnic.sim.offload import job_list, job_run
from gradnic.sim.offload.job_cluster import EVERYTHING

from gradnic.interface.job import JobCodec, JobStatus, Refusal

BUILT = {"inc": True, **EVERYTHING, "n_ports": 2, "thc": None, "feedback": False}
WATCHDOG = 20_000


def run(told):
    """Outcome on three cards, the circuit of `test_job_fuzz`; all but what watchdogs cut short."""
    posted = job_list.from_dicts(told)
    outcome = job_run.cosim(
        "ring:3", "ring", posted, n_active=2, n_engines=2, built=BUILT, watchdog=WATCHDOG
    )
    assert outcome.ok, outcome.first
    return outcome


def beside(name, victim):
    """A job that something befalls, then two that nothing does: of its collective, and another."""
    other = "reduce" if name == "all_reduce" else "all_reduce"
    sizes = {"elems": 900} | victim, {"elems": 700}, {"elems": 500, "collective": other}
    return [{"collective": name} | one for one in sizes]


def who_writes(name):
    """A node that writes all of its result; of reduce and broadcast node 0 is the root."""
    return 1 if name == "broadcast" else 0


@pytest.mark.parametrize("name", COLLECTIVES)
def test_a_node_that_never_posts_stops_only_its_job(name):
    outcome = run(beside(name, {"nodes": [0, 2]}))
    assert not outcome.barked
    assert [one["status"] for one in outcome.jobs] == [JobStatus.STUCK, *[JobStatus.DONE] * 2]


@pytest.mark.parametrize("place", ["source", "result"])
@pytest.mark.parametrize("name", COLLECTIVES)
def test_a_memory_that_errs_ends_only_the_job_that_meets_it(name, place):
    node = who_writes(name) if place == "result" else 0
    outcome = run(beside(name, {"errors": [node, place]}))
    assert [one["status"] for one in outcome.jobs] == [JobStatus.MEMORY, *[JobStatus.DONE] * 2]


@pytest.mark.parametrize("name", COLLECTIVES)
def test_a_memory_that_does_not_answer_is_told_and_the_job_behind_it_is_exact(name):
    victim = {"silent": [who_writes(name), "result", 0, 3 * WATCHDOG]}
    told = beside(name, victim)
    for one in told[1:]:
        one["at"] = 5 * WATCHDOG
    outcome = run(told)
    assert [one["status"] for one in outcome.jobs] == [JobStatus.MEMORY, *[JobStatus.DONE] * 2]


@pytest.mark.parametrize("abort", [300, 1200, 2000])
@pytest.mark.parametrize("name", COLLECTIVES)
def test_an_abort_leaves_the_jobs_beside_it_alone(name, abort):
    outcome = run(beside(name, {"elems": 3000, "abort": abort}))
    assert outcome.jobs[0]["status"] == JobStatus.ABORTED
    assert [one["status"] for one in outcome.jobs[1:]] == [JobStatus.DONE] * 2


WRONG = [
    ({"table": 9}, Refusal.TABLE),
    ({"table": 1}, Refusal.TABLE),  # of the other collective
    ({"elems": 0}, Refusal.LENGTH),
    ({"source": 36}, Refusal.ALIGNMENT),
    ({"result": 36}, Refusal.ALIGNMENT),
    ({"source": 1 << 40}, Refusal.REGION),
    ({"result": (1 << 64) - 64}, Refusal.REGION),
    ({"kind": 3}, Refusal.KIND),
    ({"codec": 6}, Refusal.CODEC),
    ({"codec": JobCodec.THC}, Refusal.CODEC),
    ({"op": 3}, Refusal.OPERATION),
]


@pytest.mark.parametrize("name", COLLECTIVES)
def test_descriptors_that_are_wrong_are_refused_between_jobs_that_are_exact(name):
    told = beside(name, {})
    for wrong, _ in WRONG:
        told += [{"collective": name, "elems": 300} | wrong, {"collective": name, "elems": 300}]
    outcome = run(told)
    ends = [(one["status"], one["detail"]) for one in outcome.jobs[3:]]
    assert ends[::2] == [(JobStatus.REFUSED, reason) for _, reason in WRONG]
    assert {status for status, _ in ends[1::2]} == {JobStatus.DONE}
