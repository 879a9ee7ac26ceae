"""Cards of RTL with THC jobs: gradients in, means out, as of golden cards, over links that lose."""

from dataclasses import replace

import numpy as np
import pytest
from gradnic.models.offload import bf16
from gradnic.models.offload import job_cluster as golden
from gradnic.models.schedule.builders import build
from gradnic.models.schedule.builders.rows import compile_table
from gradnic.models.schedule.topology import parse
from gradnic.sim.offload.golden_pair import GoldenPair
from gradnic.sim.offload.job_cluster import JobCluster

from gradnic.interface.job import (
    QUEUE,
    THC_PACKET,
    Collective,
    Job,
    JobCodec,
    JobStatus,
    Kind,
    Operation,
    Refusal,
)

N_MEMORY, N = 1 << 18, 3
HALF = N_MEMORY // 2
TOPOLOGY = parse("ring:3")
TABLE = compile_table(build(TOPOLOGY, "ring"))
THC = {"B": 64}
ERRORS = 1  # what memory answers, of the engine


class Bench(GoldenPair):
    """Three cores with THC, whose gradients may be BF16. pauses : as of `Cards.pause`."""

    def __init__(self, *, thc=THC, pauses=None, feedback=True, **options):
        rtl = JobCluster(
            (TABLE,), TOPOLOGY, N_MEMORY, 5000, thc=thc, t_probe=500, packet=96,
            feedback=feedback, bf16=True, bits=8, gives_up=True, **options,
        )  # fmt: skip
        twin = golden.JobCluster(
            (TABLE,), TOPOLOGY, N_MEMORY, packet=96, thc=thc,
            n_packets=rtl.n_packets, settings={"t_probe": 40, "t_retry": 40},
        )  # fmt: skip
        super().__init__(rtl, twin, pauses=pauses)

    def job(self, id, elems, *, spoil=(), **fields):
        """A job on values of its own; those at `spoil`, (node, element, value), are not normal."""
        told = {"tensor": id, "gen": 2, "source": self.at, "result": self.at + HALF, "seed": id}
        self.jobs[id] = job = Job(id, elems=elems, **({"codec": JobCodec.THC} | told | fields))
        values = self.normal(elems, 8)
        for node, element, value in spoil:
            values[node, element] = value
        self.store(bf16.narrow(values) if job.kind == Kind.BF16 else values)
        self.take(4 * elems)
        if job.feedback and "residual" not in fields:
            self.jobs[id] = job = replace(job, residual=self.at // 64)
            self.store(self.normal(elems, 64))
            self.take(4 * elems)
            self.take(4 * elems)
        return job

    def residual(self, node, job, half):
        at = job.residual_at(half)
        return self.rtl.memory(node)[at : at + 4 * job.elems].view(np.uint32)

    def check(self, *, but=()):
        """Completions and memory are golden, but of jobs `but`."""
        for node in range(N):
            for id, job in self.jobs.items():
                if id in but:
                    continue
                found, want = self.rtl.hosts[node].ended[id].record, self.golden.ended[node][id]
                assert (found.status, found.detail, found.leaves_least) == (
                    want.status, want.detail, want.leaves_least
                )  # fmt: skip
                size = 2 if job.kind == Kind.BF16 else 4
                places = [(job.result, size)]
                places += [(job.residual_at(k), 4) for k in range(2) if job.feedback]
                for at, size in places:
                    mine, other = (
                        memory[at : at + size * job.elems] for memory in self.memories(node)
                    )
                    np.testing.assert_array_equal(mine, other)


@pytest.mark.parametrize(
    "built",
    [
        {},
        {"pass_bytes": 8},
        pytest.param({"n_engines": 1}, marks=pytest.mark.slow),
        pytest.param({"n_active": 4, "n_engines": 2}, marks=pytest.mark.slow),
    ],
)
def test_jobs_with_thc_beside_raw_ones_are_golden_where_packets_are_lost(built):
    bench = Bench(pauses=2, **built)
    jobs = [
        bench.job(1, 1000), bench.job(2, 4096, layer=3), bench.job(3, 700, codec=JobCodec.RAW32),
        bench.job(4, 1, layer=1, kind=Kind.BF16), bench.job(5, 2500, tensor=1, gen=4),
        bench.job(6, 3000, spoil=[(0, 70, np.inf), (1, 130, 1e-42), (2, 2999, -1e30)], feedback=1),
        bench.job(7, 900, gen=3, tensor=2),  # its norms have the GEN of job 2
        bench.job(8, 900, feedback=1, kind=Kind.BF16, op=Operation.MEAN),
        bench.job(9, 300, feedback=1, codec=JobCodec.RAW32),
    ]  # fmt: skip
    bench.post(*jobs)
    bench.run()
    bench.check()
    assert bench.golden.ended[0][7].detail == Refusal.ROUND
    assert bench.golden.ended[0][9].detail == Refusal.FEEDBACK
    for node in range(N):  # an overflow is not heard of again, whoever had it
        kept = bench.residual(node, jobs[5], 1).view(np.float32)
        assert np.isfinite(kept).all()
        assert not kept[64:128].any()
        assert kept[:64].any()
    next_ = bench.job(10, 900, feedback=1, half=1, residual=jobs[7].residual)
    bench.post(next_)
    bench.run()
    bench.check(but=[8])
    assert (bench.residual(0, next_, 0) != bench.residual(0, next_, 1)).any()
    assert np.isnan(bench.rtl.memory(1)[jobs[5].result + 256 :][:256].view(np.float32)).all()


@pytest.mark.parametrize(
    "thc", [{"b": 3, "g": 31}, {"b": 7, "g": 126}, {"b": 8, "g": 254, "w": 16}]
)
def test_indices_of_2_to_8_bits_and_sums_of_12_and_16_are_golden(thc):
    """3 nodes of 126 levels need 12 bits; 16 are asked for. With an odd g nothing may miss."""
    bench = Bench(thc=THC | thc, pauses={3: 9}.get(thc["b"]))
    jobs = [
        bench.job(1, 1000), bench.job(2, 4096, layer=3), bench.job(3, 700, codec=JobCodec.RAW32),
        bench.job(4, 1, layer=1, kind=Kind.BF16), bench.job(5, 2500, feedback=1),
        bench.job(6, 3000, spoil=[(0, 70, np.inf), (1, 130, 1e-42), (2, 2999, -1e30)]),
        bench.job(7, 800, p_q16=1),  # of so few bytes none may miss
    ]  # fmt: skip
    bench.post(*jobs)
    bench.run()
    bench.check()
    assert bench.golden.ended[0][7].detail == (Refusal.CODEC if thc["g"] % 2 else Refusal.NONE)


def run_with_an_abort(bench, when):
    """All nodes abort job 1 in cycle `when`; the others must be golden, and it ended or aborted."""

    def abort():
        for node in range(N):
            bench.rtl.abort(node, 1)

    bench.run(late={when: abort})
    bench.check(but=[1])
    for node in range(N):
        assert bench.rtl.hosts[node].ended[1].record.status in (JobStatus.ABORTED, JobStatus.DONE)


@pytest.mark.parametrize(
    ("when", "pauses", "n_engines"),
    [
        (1, None, 2), (600, 12, 2), (1200, None, 2), (2000, 2, 2), (2800, None, 2), (3600, 5, 2),
        pytest.param(2000, 2, 1, marks=pytest.mark.slow),
        pytest.param(2800, None, 1, marks=pytest.mark.slow),
    ],
)  # fmt: skip
def test_an_abort_in_any_step_leaves_the_job_beside_it_alone(when, pauses, n_engines):
    """On one node, then on the others: all places are free again, and jobs in them are golden."""
    bench = Bench(pauses=pauses, n_engines=n_engines)
    first, second = bench.job(1, 5000, feedback=1), bench.job(2, 3000)
    before = [bench.residual(node, first, 0).copy() for node in range(N)]
    bench.post(first, second)
    run_with_an_abort(bench, when)
    for node in range(N):
        np.testing.assert_array_equal(bench.residual(node, first, 0), before[node])
    again = [
        bench.job(3, 5000, tensor=1, gen=4, feedback=1, residual=first.residual), bench.job(4, 600)
    ]  # fmt: skip
    bench.post(*again)
    bench.run()
    bench.check(but=[1])


@pytest.mark.parametrize(
    ("when", "pass_bytes"),
    [
        (2500, 8),
        *(pytest.param(when, size, marks=pytest.mark.slow)
          for size in (None, 8) for when in (1500, 2500, 4000, 6000) if (when, size) != (2500, 8)),
    ],
)  # fmt: skip
def test_one_job_at_a_time_encodes_and_decodes_with_one_transform(when, pass_bytes):
    """Without feedback; the first is aborted on all nodes, wherever it is. At 2500 and 6000 with
    8 bytes job 5 never ended while an encoder at rest heard the transform.
    """
    bench = Bench(n_active=1, feedback=False, pauses=3, pass_bytes=pass_bytes)
    bench.post(
        bench.job(1, 5000), bench.job(2, 1000), bench.job(3, 700, codec=JobCodec.RAW32),
        bench.job(4, 2500, kind=Kind.BF16), bench.job(5, 60), bench.job(6, 4096),
    )  # fmt: skip
    run_with_an_abort(bench, when)


def test_a_node_that_never_posts_stops_only_its_job():
    bench = Bench(watchdog=12_000)
    never = bench.job(1, 3000, feedback=1)
    before = [bench.residual(node, never, 0).copy() for node in range(N)]
    for node in (0, 1):
        bench.rtl.post(node, never)
    bench.post(
        bench.job(2, 2000), bench.job(3, 700, codec=JobCodec.RAW32), bench.job(4, 900, feedback=1)
    )  # fmt: skip
    bench.run()
    bench.check(but=[1])
    ended = [host.ended for host in bench.rtl.hosts]
    assert [told[1].record.status for told in ended[:2]] == [JobStatus.STUCK] * 2
    assert 1 not in ended[2]
    for node in range(N):
        np.testing.assert_array_equal(bench.residual(node, never, 0), before[node])


WRONG = [
    {"collective": Collective.REDUCE_SCATTER}, {"op": Operation.MAX}, {"kind": 2}, {"codec": 6},
    {"table": 1}, {"table": 9}, {"elems": 0}, {"elems": 1 << 27}, {"source": 36},
    {"result": HALF + 4}, {"source": N_MEMORY}, {"result": 1 << 63},
    {"feedback": 1, "residual": (1 << 32) - 1}, {"tensor": 1, "gen": 3},
]  # fmt: skip


def test_descriptors_that_are_wrong_are_refused_between_jobs_that_are_golden():
    bench = Bench(pauses=12)
    posts = [bench.job(1, 320)]
    for k, told in enumerate(WRONG):
        fields = {"source": 0, "result": HALF, "codec": JobCodec.THC, "elems": 320, "gen": 2}
        posts.append(Job(id=100 + k, **({"tensor": 100 + k} | fields | told)))
        posts.append(bench.job(2 + k, 320))
    bench.post(*posts)
    bench.run()
    bench.check()
    for node in range(N):
        ended, want = bench.rtl.hosts[node].ended, bench.golden.ended[node]
        for k in range(len(WRONG)):
            found = ended[100 + k].record
            assert (found.status, found.detail) == (JobStatus.REFUSED, want[100 + k].detail)
        mine, other = bench.rtl.memory(node)[:N_MEMORY], bench.golden.cards[node].memory
        np.testing.assert_array_equal(mine, other)  # and nothing else is written


def test_packets_of_a_job_that_a_node_refused_change_nothing():
    """Of its norms first. It posts the right one behind the job that is beside it."""
    bench = Bench()
    right, beside = bench.job(1, 3000), bench.job(2, 900)
    wrong = replace(right, id=7, elems=0)
    for node, jobs in enumerate(([right, beside], [right, beside], [wrong, beside, right])):
        for job in jobs:
            bench.rtl.post(node, job)
            bench.golden.post(node, job)
    bench.run()
    bench.check()
    assert bench.rtl.hosts[2].ended[7].record.detail == Refusal.LENGTH


def test_a_full_queue_refuses_and_loses_nothing():
    bench = Bench()
    jobs = [bench.job(k, 64) for k in range(QUEUE + 6)]
    for node in range(N):
        taken = [bench.rtl.post_now(node, job) for job in jobs[: QUEUE + 4]]
        assert taken == [True] * QUEUE + [False] * 4
        assert bench.rtl.hosts[node].overruns == 4
        for job in jobs[QUEUE:]:
            bench.rtl.post(node, job)
        for job in jobs:
            bench.golden.post(node, job)
    bench.run()
    bench.check()
    assert {ended.record.status for ended in bench.rtl.hosts[0].ended.values()} == {JobStatus.DONE}


@pytest.mark.parametrize("place", ["source", "residual", "indices", "kept", "sums", "result"])
def test_a_memory_that_does_not_answer_a_pass_is_told_and_leaves_no_trace(place):
    bench = Bench(watchdog=3000)
    job, rtl = bench.job(1, 5000, feedback=1), bench.rtl
    before = bench.residual(0, job, 0).copy()
    scratch = rtl.n_memory  # norms twice, indices, sums
    indices = scratch + 2 * -(-5 * THC_PACKET // 64 // 16) * 64
    sums = indices + 5 * THC_PACKET // 2
    begin = {
        "source": job.source, "result": job.result, "indices": indices, "sums": sums,
        "residual": job.residual_at(0), "kept": job.residual_at(1),
    }[place]  # fmt: skip
    rtl.spoil(0, begin + 1024, begin + 2048, "silent")
    bench.post(job)
    for _ in range(100):
        rtl.step()
    assert rtl.hosts[0].ended[1].record.status == JobStatus.MEMORY  # before it has answered
    rtl.spoil(0, 0, 0, "sound")
    for node in (1, 2):
        rtl.abort(node, 1)
    late = bench.job(2, 5000, feedback=1)
    bench.post(late)
    bench.run()
    bench.check(but=[1])
    np.testing.assert_array_equal(bench.residual(0, job, 0), before)


@pytest.mark.parametrize("place", ["source", "norms", "sums", "result", "residual", "kept"])
def test_a_memory_that_errs_ends_the_job_on_that_node_and_no_other_job(place):
    bench = Bench()
    first, second = bench.job(1, 5000, feedback=1), bench.job(2, 3000)
    scratch = bench.rtl.n_memory  # of the first context, where the first job is
    begin = {
        "source": first.source, "norms": scratch,
        "sums": scratch + bench.rtl.scratch_bytes // 2, "result": first.result,
        "residual": first.residual_at(0), "kept": first.residual_at(1),
    }[place]  # fmt: skip
    bench.rtl.call("spoil", 0, 0, begin, begin + 1024, ERRORS)
    bench.post(first, second)

    def abort():
        for node in (1, 2):
            bench.rtl.abort(node, 1)

    bench.run(late={20_000: abort})
    bench.check(but=[1])
    statuses = [bench.rtl.hosts[node].ended[1].record.status for node in range(N)]
    assert statuses[0] == JobStatus.MEMORY
    assert set(statuses[1:]) <= {JobStatus.ABORTED, JobStatus.DONE}
