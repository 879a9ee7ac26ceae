"""Random lists of jobs: what is drawn fits one build of a card, and a difference is seen."""

import json
from types import SimpleNamespace

import numpy as np
import pytest
from click.testing import CliRunner
from gradnic.models.offload.plan import Plan
from gradnic.models.schedule import builders
from gradnic.models.schedule.builders.rows import compile_table
from gradnic.models.schedule.topology import parse
from gradnic.sim.offload import job_fuzz, job_list, job_run
from gradnic.sim.offload.job_cluster import EVERYTHING, Ended

from gradnic import cli
from gradnic.interface.job import Completion, JobStatus

BUILT = {"inc": True, **EVERYTHING, "n_active": 2, "n_engines": 2, "n_ports": 2, "thc": None,
         "feedback": False}  # fmt: skip


@pytest.mark.parametrize("seed", range(1, 9))
def test_what_is_drawn_fits_and_is_drawn_again(seed):
    built = job_fuzz.card_of(seed)
    for k in range(20):
        case, again = (job_fuzz.list_of(seed, k, built, 4) for _ in range(2))
        assert case == again
        posted = case["posted"]
        job_list.check_apart([one for one in posted if one.job.elems < job_list.TOO_LONG])
        partly = [one.job.tensor for one in posted if one.nodes or one.errors]
        assert len(partly) < built["n_engines"]
        assert all(sum(one.job.tensor == t for one in posted) == 1 for t in partly)
        assert not partly or case["options"]["watchdog"]


@pytest.mark.parametrize(("topology", "algorithm"), job_fuzz.NETWORKS)
def test_one_build_serves_all_networks(topology, algorithm):
    table = compile_table(builders.build(parse(topology), algorithm))
    plan = Plan(table, 16 * table.n_chunks * table.repeats)
    ranks = [t.rank for into in plan.up for told in into.values() for t in told.values()]
    assert max(ranks) < 2
    assert int(np.bincount(table.rows["node"]).max()) <= 64


def test_all_codecs_kinds_and_faults_of_jobs_are_drawn():
    seen, cases = set(), []
    for seed in range(1, 30):
        built = job_fuzz.card_of(seed)
        cases += [job_fuzz.list_of(seed, k, built, 4) for k in range(10)]
    for one in (one for case in cases for one in case["posted"]):
        job = one.job
        seen |= {
            ("codec", min(job.codec, 4)),
            ("kind", job.kind),
            ("op", job.op),
            ("class", job.layer),
        }
        seen |= {("collective", min(job.collective, 5)), ("feedback", job.feedback)}
        seen |= {"in place"} if job.source == job.result else set()
        seen |= {"partly"} if one.nodes else set()
        seen |= {"aborted"} if one.abort is not None else set()
        seen |= {one.errors[1]} if one.errors else set()
        seen |= {"misses"} if job.p_q16 else set()
    wanted = {("codec", k) for k in range(5)} | {("kind", k) for k in range(4)}
    wanted |= {("op", k) for k in range(4)} | {("class", k) for k in range(8)}
    wanted |= {("collective", k) for k in range(6)} | {("feedback", k) for k in range(2)}
    assert wanted | {"in place", "partly", "aborted", "misses", *job_list.PLACES} <= seen


def test_a_list_agrees_and_one_that_differs_is_told(monkeypatch):
    """And with golden cards whose results have one bit of their own."""
    monkeypatch.setattr(job_fuzz, "card_of", lambda seed: BUILT)
    told = job_fuzz.fuzz(8, seed=1)
    assert told["jobs"] >= 8
    assert told["statuses"]["done"] > 4
    golden = job_run.cards_say

    def wrong(*arguments):
        want = golden(*arguments)
        for status, _, left, _ in want.values():
            if status == JobStatus.DONE:
                left[-1] ^= 1
        return want

    monkeypatch.setattr(job_run, "cards_say", wrong)
    with pytest.raises(job_fuzz.Differs, match=r"list 0: job .* 1 bytes of what it leaves") as told:
        job_fuzz.fuzz(8, seed=5)  # none of whose jobs lets a share miss
    assert told.value.case["list"] == 0
    assert told.value.case["jobs"]


def test_a_case_has_the_levels_of_its_list(monkeypatch):
    wrong = SimpleNamespace(ok=False, first="job 0")
    monkeypatch.setattr(job_fuzz, "cosim", lambda *arguments, **options: wrong)
    with pytest.raises(job_fuzz.Differs, match="list 3: job 0") as told:
        job_fuzz.fuzz(1, seed=8, start=3)
    case = json.loads(json.dumps(told.value.case))
    assert set(case["built"]["thc"]) == {"B", "b", "g", "w"}


def one_job(status, **told):
    """(posted, cluster of one node, what is wanted, memory before) of a job of 16 floats."""
    posted = job_list.from_dicts([{"elems": 16}])
    memory = np.zeros(256, np.uint8)
    ended = {0: Ended(0, 90, Completion(0, status, **told))}
    cluster = SimpleNamespace(hosts=[SimpleNamespace(ended=ended)], memory=lambda node: memory)
    want = {(0, 0): (JobStatus.DONE, 0, np.zeros(64, np.uint8), (0, 2, 2))}
    return posted, cluster, want, memory.copy()[None]


def test_bytes_that_no_job_may_write_are_compared():
    posted, cluster, want, before = one_job(JobStatus.DONE, leaves_least=2, leaves_most=2)
    assert job_run._compare(cluster, posted, want, before) == (0, "")
    cluster.memory(0)[200:203] = 1
    told = job_run._compare(cluster, posted, want, before)
    assert told == (3, "3 bytes of node 0 that no job may write, from 200")


def test_what_a_refused_job_writes_is_no_result():
    posted, cluster, want, before = one_job(JobStatus.REFUSED)
    want[0, 0] = JobStatus.REFUSED, 0, None, None
    cluster.memory(0)[64] = 1
    assert job_run._compare(cluster, posted, want, before)[0] == 1


def test_leaves_of_a_completion_are_compared():
    posted, cluster, want, before = one_job(JobStatus.DONE, leaves_least=1, leaves_most=2)
    n_wrong, first = job_run._compare(cluster, posted, want, before)
    assert n_wrong == 1
    assert first == (
        "job 0 on node 0: given up, fewest and most leaves are (0, 1, 2), not (0, 2, 2)"
    )


@pytest.mark.parametrize(("abort", "n_wrong"), [(None, 1), (80, 0), (91, 1)])
def test_an_abort_explains_what_ends_behind_it(abort, n_wrong):
    posted, cluster, want, before = one_job(JobStatus.ABORTED)
    posted[0].abort = abort
    assert job_run._compare(cluster, posted, want, before)[0] == n_wrong


@pytest.mark.parametrize(
    ("status", "errors", "n_wrong"),
    [
        (JobStatus.MEMORY, None, 1), (JobStatus.MEMORY, (0, "source"), 0),
        (JobStatus.MEMORY, (1, "source"), 1), (JobStatus.STUCK, (1, "source"), 0),
        (JobStatus.ABORTED, (0, "source"), 1),
    ],
)  # fmt: skip
def test_memory_that_fails_explains_its_status_and_that_others_wait(status, errors, n_wrong):
    posted, cluster, want, before = one_job(status)
    posted[0].errors = errors
    assert job_run._compare(cluster, posted, want, before)[0] == n_wrong


@pytest.mark.parametrize(
    ("arguments", "line"),
    [
        (["--frames", "7"], "--frames is for frames, not for --card jobs"),
        (["--lanes", "32"], "cards with jobs have 4, 8 or 16 lanes, not 32"),
    ],
)
def test_options_of_other_cards_are_refused(arguments, line):
    told = CliRunner().invoke(cli.cli, ["fuzz", "--card", "jobs", *arguments])
    assert told.exit_code == 2
    assert line in told.output
