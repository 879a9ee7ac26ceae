"""Random lists of jobs: what is drawn fits one build of a card, and a difference is seen."""

import json
import re
from types import SimpleNamespace

import numpy as np
import pytest
from click.testing import CliRunner
from gradnic.models.offload.cluster import LinkFaults, addresses
from gradnic.models.offload.plan import Plan
from gradnic.models.schedule import builders
from gradnic.models.schedule.builders.rows import compile_table
from gradnic.models.schedule.topology import parse
from gradnic.sim.offload import job_fuzz, job_judge, job_list, job_run
from gradnic.sim.offload.foreign import Foreign
from gradnic.sim.offload.job_cluster import EVERYTHING, Ended
from gradnic.sim.offload.job_hosts import ReachedCards

from gradnic import cli
from gradnic.interface.formats import GRADNIC, Op
from gradnic.interface.job import ALIGN, Completion, JobStatus
from gradnic.interface.offload import Subtype

BUILT = {"inc": True, **EVERYTHING, "n_active": 2, "n_engines": 2, "n_ports": 2, "thc": None,
         "feedback": False}  # fmt: skip
NETWORKS = [(*network, 2) for network in job_fuzz.NETWORKS]
NETWORKS += [(*network, 4) for network in job_fuzz.LARGER]


@pytest.mark.parametrize("seed", range(1, 9))
def test_what_is_drawn_fits_and_is_drawn_again(seed):
    built = job_fuzz.card_of(seed)
    for k in range(20):
        case, again = (job_fuzz.list_of(seed, k, built, 4) for _ in range(2))
        assert case == again
        posted = case["posted"]
        aligned = [one for one in posted if not (one.job.source | one.job.result) % ALIGN]
        job_list.check_apart([one for one in aligned if one.job.elems < job_list.TOO_LONG])
        partly = [one.job.tensor for one in posted if one.nodes or one.errors]
        assert len(partly) < built["n_engines"]
        assert all(sum(one.job.tensor == t for one in posted) == 1 for t in partly)
        watchdog = case["options"].get("watchdog")
        assert watchdog is None or 1000 < watchdog < 2_000_000  # whatever a refused job says
        assert watchdog or not partly


@pytest.mark.parametrize(("topology", "algorithm", "most"), NETWORKS)
def test_one_build_serves_all_networks(topology, algorithm, most):
    """Of at most so many ports, and contributions to a chunk."""
    table = compile_table(builders.build(parse(topology), algorithm))
    plan = Plan(table, 16 * table.n_chunks * table.repeats)
    ranks = [t.rank for into in plan.up for told in into.values() for t in told.values()]
    assert max(ranks) < most
    ports = [a.port for book in addresses(table, parse(topology)) for a in book.values()]
    assert max(ports) < most
    assert int(np.bincount(table.rows["node"]).max()) <= 64


def test_all_codecs_kinds_and_faults_of_jobs_are_drawn():
    seen, cases = set(), []
    for seed in range(1, 60):
        built = job_fuzz.card_of(seed)
        cases += [job_fuzz.list_of(seed, k, built, 4) for k in range(20)]
    for case in cases:
        seen |= {("port", case["built"]["port_bytes"]), ("ports", case["built"]["n_ports"])}
        seen |= {("passes", case["built"]["pass_bytes"])}
        seen |= {("queues", case["built"]["queues"]), ("others", case["options"]["foreign"])}
        seen |= {"long"} if case["long"] else set()
        seen |= {"room"} if case["options"]["room"] else set()
        seen |= {("reached", id < 0) for _, _, id, _ in case["options"]["reaches"]}
        seen |= {(name, case["options"][name]) for name in ("packet", "corners", "chunks")}
        marks = case["options"]["marks"]
        seen |= {("spray", marks["skew"] > 0), ("rule", marks["rule"])} if marks else set()
        seen |= {("tags", bool(marks and marks["tags"]))}
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
        seen |= {one.errors[1], ("errors", len(one.errors))} if one.errors else set()
        seen |= {("silent", one.silent[1])} if one.silent else set()
        seen |= {"misses"} if job.p_q16 else set()
    wanted = {("codec", k) for k in range(5)} | {("kind", k) for k in range(4)}
    wanted |= {("op", k) for k in range(4)} | {("class", k) for k in range(8)}
    wanted |= {("collective", k) for k in range(6)} | {("feedback", k) for k in range(2)}
    wanted |= {("port", n) for n in (4, 8, 16)} | {("ports", n) for n in (2, 4)} | {"long"}
    wanted |= {("passes", None), ("passes", 8)}
    wanted |= {("queues", held) for held in (None, *job_fuzz.QUEUES)}
    wanted |= {("others", share) for share in (0.0, 0.1, 0.5)}
    wanted |= {("reached", False), ("reached", True)}
    wanted |= {("packet", n) for n in (*job_fuzz.PACKETS, job_run.PACKET)}
    wanted |= {("corners", share) for share in (0.0, 0.001, 0.1)}
    wanted |= {("spray", False), ("spray", True), ("tags", False), ("tags", True)}
    wanted |= {("rule", k) for k in range(3)}
    wanted |= {("chunks", n) for n in (None, 1, 2, 3)}
    wanted |= {("silent", place) for place in job_list.PLACES}
    wanted |= {("errors", 2), ("errors", 4)}  # for ever, for a time
    assert wanted | {"in place", "partly", "aborted", "misses", "room", *job_list.PLACES} <= seen


def test_a_list_agrees_and_one_that_differs_is_told(monkeypatch):
    """And with golden cards whose results have one bit of their own."""
    monkeypatch.setattr(job_fuzz, "card_of", lambda seed: BUILT)
    told = job_fuzz.fuzz(8, seed=7)
    assert told["jobs"] >= 8
    assert told["statuses"]["done"] > 4
    golden = job_run.cards_say

    def wrong(*arguments, **options):
        want = golden(*arguments, **options)
        for status, _, left, _ in want.values():
            if status == JobStatus.DONE:
                left[-1] ^= 1
        return want

    monkeypatch.setattr(job_run, "cards_say", wrong)
    with pytest.raises(job_fuzz.Differs, match=r"list 0: job .* 1 bytes of what it leaves") as told:
        job_fuzz.fuzz(8, seed=7)  # none of whose jobs lets a share miss
    assert told.value.case["list"] == 0
    assert told.value.case["jobs"]


def test_a_case_has_the_levels_of_its_list(monkeypatch):
    wrong = SimpleNamespace(ok=False, first="job 0")
    monkeypatch.setattr(job_fuzz, "cosim", lambda *arguments, **options: wrong)
    with pytest.raises(job_fuzz.Differs, match="list 3: job 0") as told:
        job_fuzz.fuzz(1, seed=4, start=3)
    case = json.loads(json.dumps(told.value.case))
    assert set(case["built"]["thc"]) == {"B", "b", "g", "w"}


def run_raw(told, network=("ring:2", "ring"), **options):
    built = {key: value for key, value in BUILT.items() if key not in ("n_active", "n_engines")}
    posted = job_list.from_dicts(told)
    return job_run.cosim(*network, posted, n_active=2, n_engines=2, built=built, **options)


def test_no_probe_goes_again_before_answers_come_over_long_links():
    outcome = run_raw([{"elems": 2000}], faults=LinkFaults(delay=4000))
    heads = [GRADNIC.parse(frame) for *_, frame in outcome.sent]
    asked = [h["seq"] for h in heads if (h["op"], h["p0"]) == (Op.CONTROL, Subtype.PROBE)]
    assert len(asked) == 2 * 2  # chunks, and ways


@pytest.mark.parametrize("place", ["source", "result", "landing"])
def test_a_memory_that_answers_late_is_waited_for(place):
    """Without a watchdog, or with one that waits as long; a job beside it, too."""
    told = [{"elems": 2000}, {"elems": 500, "at": 400}]
    quick = run_raw(told)
    told[0]["silent"] = [1, place, 0, 9000]
    late = run_raw(told, watchdog=60_000)
    assert quick.ok
    assert late.ok, late.first
    assert not late.barked
    assert late.jobs[0]["done"] > 9000 > quick.jobs[0]["done"]


def test_a_memory_that_answers_too_late_ends_jobs_by_the_watchdog():
    """What it ends is not compared; those behind it are as they must be."""
    told = [{"elems": 2000, "silent": [1, "source", 0, 40_000]}, {"elems": 500, "at": 70_000}]
    outcome = run_raw(told, watchdog=6000)
    assert outcome.ok, outcome.first
    assert outcome.barked == 2
    assert [one["status"] for one in outcome.jobs] == [JobStatus.MEMORY, JobStatus.DONE]


@pytest.mark.parametrize("is_sound", [False, True])
def test_a_watchdog_waits_for_as_long_as_a_job_takes(is_sound):
    """One node is rid of a job that hangs on the others, begins the third, and waits for them."""
    told = [{"elems": 16, "errors": [1, "source"]}, *[{"elems": 16, "bytes": 64}] * 3]
    jobs = [one.job for one in job_list.from_dicts(told)]
    options = {"t_probe": 400, "memory_latency": 900}
    watchdog = job_judge.sound_watchdog(400, LinkFaults(), jobs, 16, n_nodes=2, memory_latency=900)
    outcome = run_raw(told, watchdog=watchdog if is_sound else 1700, **options)
    assert outcome.ok, outcome.first
    assert (outcome.barked == 0) is is_sound


def test_memory_fails_where_no_shorter_job_reaches(monkeypatch):
    """Where its second half lands; a job whose landing area others cover has no such place, which
    is told before a card is built.
    """
    told = [{"elems": 2000, "errors": [1, "landing"]}, {"elems": 500}]
    outcome = run_raw(told, watchdog=20_000)
    assert outcome.ok, outcome.first
    assert [one["status"] for one in outcome.jobs] == [JobStatus.MEMORY, JobStatus.DONE]
    monkeypatch.setattr(job_run, "JobCluster", None)
    line = "job 0: landing must be longer than that of all other jobs, 16000 bytes, not 8000"
    with pytest.raises(ValueError, match=line):
        run_raw([told[0], {"elems": 4000}])


@pytest.mark.parametrize("until", [4500, 5000])
def test_memory_that_fails_for_a_time_ends_the_job_that_meets_it(until):
    """Not the one behind. An answer that comes later still tells of what was not stored."""
    told = [{"elems": 2000, "errors": [1, "result", 0, until]}, {"elems": 2000, "at": 30_000}]
    outcome = run_raw(told, watchdog=20_000, memory_latency=900)
    assert outcome.ok, outcome.first
    assert [one["status"] for one in outcome.jobs] == [JobStatus.MEMORY, JobStatus.DONE]
    told[0]["errors"][2:] = [20_000, 100]  # behind its end
    assert [one["status"] for one in run_raw(told).jobs] == [JobStatus.DONE] * 2


def test_jobs_that_areas_have_no_room_for_are_refused():
    outcome = run_raw([{"elems": 500}, {"elems": 513}, {"elems": 512}], room=500)  # 64 bytes each
    assert outcome.ok, outcome.first
    assert [one["status"] for one in outcome.jobs] == [
        JobStatus.DONE, JobStatus.REFUSED, JobStatus.DONE
    ]  # fmt: skip


def test_probes_that_fill_a_slow_link_are_waited_for():
    """As in list 4 of seed 105: PROBEs and answers take a link longer than until the next ones."""
    told = [{"elems": 700}] * 2
    faults = LinkFaults(loss=0.05, delay=200, reorder=100, seed=5)
    slow = {"t_probe": 40, "link_bytes": 2, "foreign": 0.5}
    outcome = run_raw(told, ("hypercube:2", "bfb"), faults=faults, **slow)
    assert outcome.ok, outcome.first


def test_a_watchdog_waits_for_probes_that_fill_a_slow_link():
    """By `t_probe` alone it would be 7,952 cycles, and both jobs were stuck."""
    told, faults = [{"elems": 16}] * 2, LinkFaults(loss=0.05, delay=200, reorder=100, seed=5)
    jobs = [one.job for one in job_list.from_dicts(told)]
    watchdog = job_judge.sound_watchdog(40, faults, jobs, 1, n_nodes=4, n_chunks=16)
    slow = {"t_probe": 40, "link_bytes": 2, "foreign": 0.5, "watchdog": watchdog}
    outcome = run_raw(told, ("hypercube:2", "bfb"), faults=faults, **slow)
    assert outcome.ok, outcome.first
    assert not outcome.barked
    assert [one["status"] for one in outcome.jobs] == [JobStatus.DONE] * 2


def test_frames_of_others_pass_in_order_and_one_that_does_not_is_told(monkeypatch):
    outcome = run_raw([{"elems": 2000}] * 3, foreign=0.5, link_bytes=8)
    assert outcome.ok, outcome.first
    told = Foreign.told

    def one_less(self):
        counts, times = told(self)
        assert counts["made"] == counts["good"] > 20
        return counts | {"good": counts["good"] - 1}, times

    monkeypatch.setattr(Foreign, "told", one_less)
    outcome = run_raw([{"elems": 2000}] * 3, foreign=0.5, link_bytes=8)
    assert outcome.mismatches == 1
    assert re.match(r"(\d+) frames of others, \d+ came as they were, 0 otherwise", outcome.first)


def test_hosts_reach_memory_by_frames_while_jobs_run(monkeypatch):
    """What they write is where no job reaches, and what they read is compared: once with zeros."""
    reach = ReachedCards.reach

    def zeros(self, node, address, octets, write):
        reach(self, node, address, octets if write else bytes(len(octets)), write)

    monkeypatch.setattr(ReachedCards, "reach", zeros)
    outcome = job_run.cosim(
        "ring:3", "ring", job_list.from_dicts([{"elems": 1000}]),
        built={"inc": False, "host": True},
        reaches=[(0, 1, -1, 2048), (500, 2, 0, 4000), (900, 0, -1, 64)],
    )  # fmt: skip
    assert (outcome.mismatches, outcome.first) == (1, "host of node 2 reads other bytes from 0 on")
    assert outcome.jobs[0]["status"] == JobStatus.DONE


def test_hosts_wait_for_memory_that_is_silent():
    """And it answers at its time, whatever they wait for."""
    told = {"elems": 1000, "silent": [2, "source", 0, 12_000]}
    outcome = job_run.cosim(
        "ring:3", "ring", job_list.from_dicts([told]), built={"inc": False, "host": True},
        reaches=[(500, 2, 0, 4000), (600, 1, -1, 64)],
    )  # fmt: skip
    assert outcome.ok, outcome.first
    assert 12_000 < outcome.jobs[0]["done"] < 25_000


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
    assert job_judge.compare(cluster, posted, want, before) == (0, "")
    cluster.memory(0)[200:203] = 1
    told = job_judge.compare(cluster, posted, want, before)
    assert told == (3, "3 bytes of node 0 that no job may write, from 200")


def test_what_a_refused_job_writes_is_no_result():
    posted, cluster, want, before = one_job(JobStatus.REFUSED)
    want[0, 0] = JobStatus.REFUSED, 0, None, None
    cluster.memory(0)[64] = 1
    assert job_judge.compare(cluster, posted, want, before)[0] == 1


def test_leaves_of_a_completion_are_compared():
    posted, cluster, want, before = one_job(JobStatus.DONE, leaves_least=1, leaves_most=2)
    n_wrong, first = job_judge.compare(cluster, posted, want, before)
    assert n_wrong == 1
    assert first == (
        "job 0 on node 0: given up, fewest and most leaves are (0, 1, 2), not (0, 2, 2)"
    )


@pytest.mark.parametrize(("abort", "n_wrong"), [(None, 1), (80, 0), (91, 1)])
def test_an_abort_explains_what_ends_behind_it(abort, n_wrong):
    posted, cluster, want, before = one_job(JobStatus.ABORTED)
    posted[0].abort = abort
    assert job_judge.compare(cluster, posted, want, before)[0] == n_wrong


@pytest.mark.parametrize(
    ("status", "errors", "n_wrong"),
    [
        (JobStatus.MEMORY, None, 1), (JobStatus.MEMORY, (0, "source"), 0),
        (JobStatus.MEMORY, (1, "source"), 1), (JobStatus.STUCK, (1, "source"), 0),
        (JobStatus.ABORTED, (0, "source"), 1), (JobStatus.DONE, (0, "source"), 1),
        (JobStatus.DONE, (0, "landing"), 0), (JobStatus.DONE, (1, "source"), 0),
        (JobStatus.DONE, (0, "source", 9, 1), 0), (JobStatus.MEMORY, (0, "source", 9, 1), 0),
    ],
)  # fmt: skip
def test_memory_that_fails_explains_its_status_and_that_others_wait(status, errors, n_wrong):
    posted, cluster, want, before = one_job(status, leaves_least=2, leaves_most=2)
    posted[0].errors = errors
    assert job_judge.compare(cluster, posted, want, before)[0] == n_wrong


@pytest.mark.parametrize(
    ("arguments", "line"),
    [
        (["--frames", "7"], "--frames is for frames, not for --card jobs"),
        (["--rounds", "7"], "--rounds is for --card rounds"),
        (["--lanes", "32"], "--lanes must be 4, 8 or 16 with --card jobs, not 32"),
    ],
)
def test_options_of_other_cards_are_refused(arguments, line):
    told = CliRunner().invoke(cli.cli, ["fuzz", "--card", "jobs", *arguments])
    assert told.exit_code == 2
    assert line in told.output
