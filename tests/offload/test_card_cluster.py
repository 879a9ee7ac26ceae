"""Whole cards that take jobs, by their registers: jobs, refusals, aborts, and memory that fails."""

import pytest
from gradnic.models.offload import job_cluster as golden
from gradnic.models.offload.cluster import LinkFaults
from gradnic.models.schedule.builders import build
from gradnic.models.schedule.builders.rows import compile_table
from gradnic.models.schedule.topology import parse
from gradnic.sim.offload.card_cluster import CardCluster
from gradnic.sim.offload.golden_pair import HARSH, GoldenPair
from gradnic.sim.offload.host_cluster import HostCluster

from gradnic.interface.job import QUEUE, Job, JobCodec, JobStatus, Kind, Refusal

N_MEMORY = 1 << 18
HALF = N_MEMORY // 2
TOPOLOGY = parse("ring:2")
TABLES = (compile_table(build(TOPOLOGY, "ring")),)
PACKET, N = 96, 2
WATCHDOG = 6000


class Bench(GoldenPair):
    """Two cards with registers."""

    align = 4096

    def __init__(self, *, watchdog=0, n_memory=N_MEMORY, n_elems=6000, thc=None, pauses=None):
        # one build for these and for hosts that speak in frames: tests/offload/test_host_cluster.py
        cluster = HostCluster if thc is None else CardCluster
        rtl = cluster(
            TABLES, TOPOLOGY, n_memory, n_elems, packet=PACKET, watchdog=watchdog, t_probe=500,
            inc=False, thc=thc, n_ports=2,
        )  # fmt: skip
        twin = golden.JobCluster(
            TABLES, TOPOLOGY, n_memory, n_active=2, packet=PACKET, gives_up=False,
            n_packets=1024, settings={"t_probe": 40, "t_retry": 40}, thc=thc,
        )  # fmt: skip
        super().__init__(rtl, twin, pauses=pauses)

    def status(self, id):
        return [host.ended[id].record.status for host in self.rtl.hosts]


BAD = [
    ({"codec": JobCodec.INCEPTIONN}, Refusal.CODEC),  # the card was built without
    ({"codec": 7}, Refusal.CODEC),
    ({"kind": Kind.BF16, "codec": JobCodec.THC, "feedback": 1}, None),  # no THC
    ({"table": 1}, Refusal.TABLE),
    ({"table": 15}, Refusal.TABLE),
    ({"elems": 0}, Refusal.LENGTH),
    ({"source": 32}, Refusal.ALIGNMENT),
    ({"result": N_MEMORY}, Refusal.REGION),
    ({"source": 1 << 40}, Refusal.REGION),
    ({"p_q16": 1}, Refusal.SHARE),
    ({"tensor": 0, "gen": 1}, Refusal.ROUND),
]


def test_jobs_by_registers_are_exact_and_bad_descriptors_are_refused():
    bench = Bench(pauses=2)
    sizes = (3000, 17, 1, 500, 64, 900, 48, 16, 6000, 320, 33)
    for k, ((fields, _), elems) in enumerate(zip(BAD, sizes, strict=True)):
        bench.post(bench.job(k, elems, layer=7 - k % 8))
        told = {"id": 100 + k, "tensor": 100 + k, "gen": 1, "elems": 300, "source": 0}
        bad = Job(**(told | {"result": HALF} | fields))
        for node in range(N):
            bench.rtl.post(node, bad)
    bench.run()
    for host in bench.rtl.hosts:
        for k, (_, reason) in enumerate(BAD):
            record = host.ended.pop(100 + k).record
            assert record.status == JobStatus.REFUSED
            assert reason in (None, record.detail), k
    bench.check()
    counts = [bench.rtl.counts(node) for node in range(N)]
    assert all(one["accepted"] and one["sent"] and one["retransmitted"] for one in counts)
    assert sum(one["duplicate"] for one in counts) > 0
    assert bench.rtl.drivers[0].get("status")["n_active"] == 2


def test_a_full_queue_refuses_by_registers_and_an_abort_spares_the_others():
    bench = Bench(pauses=11)
    jobs = [bench.job(id, 400) for id in range(QUEUE + 2)]
    rtl = bench.rtl
    taken = [rtl.post_now(0, job) for job in [*jobs, jobs[0], jobs[1]]]  # node 1 comes later
    assert taken == [True] * len(jobs) + [False] * 2  # two are active
    assert rtl.hosts[0].overruns == 2
    for job in jobs:
        rtl.post(1, job)
        bench.golden.post(0, job)
        bench.golden.post(1, job)
    for id in (0, 9):  # one that is active, one that waits
        rtl.abort(0, id)
    bench.run(late={4000: lambda: rtl.abort(1, 0), 4001: lambda: rtl.abort(1, 9)})
    bench.check(but=(0, 9))
    assert [bench.status(id)[0] for id in (0, 9)] == [JobStatus.ABORTED] * 2


@pytest.mark.parametrize("what", ["source", "result", "landing"])
def test_memory_errors_end_the_job_that_meets_them(what):
    bench = Bench(watchdog=WATCHDOG)
    jobs = [bench.job(id, 700, layer=id) for id in range(5)]
    if what == "landing":  # of the second context, whichever job has it
        begin, memory, first = bench.rtl.landing_bytes, 1, 2
    else:
        begin, memory, first = getattr(jobs[1], what), 0, len(jobs)
    bench.rtl.spoil(0, begin, begin + 4096, "errors", memory=memory)
    bench.post(*jobs[:first])
    while 1 not in bench.rtl.hosts[0].ended:
        bench.rtl.step(HARSH)
    bench.rtl.spoil(0, 0, 0, "sound", memory=memory)
    bench.post(*jobs[first:])
    bench.run()
    assert [bench.status(id)[0] for id in bench.jobs].count(JobStatus.MEMORY) == 1
    bench.check(but=[1])
    assert bench.status(1) == [JobStatus.MEMORY, JobStatus.STUCK]
    driver = bench.rtl.drivers[0]
    assert driver.read("failed") > driver.read("outside") == 0
    assert [driver.get("events")[name] for name in ("failed", "outside")] == [1, 0]


def test_a_memory_that_does_not_answer_is_told_and_leaves_no_trace():
    bench = Bench(watchdog=WATCHDOG)
    early = [bench.job(id, 700) for id in range(2)]
    bench.post(*early)
    rtl = bench.rtl
    rtl.spoil(0, early[1].source, early[1].source + 4096, "silent")
    late = [bench.job(id, 700) for id in range(2, 6)]
    for _ in range(120):
        rtl.step(HARSH)
    assert rtl.hosts[0].ended[1].record.status == JobStatus.MEMORY  # before it has answered
    assert rtl.drivers[0].get("status")["active"]
    rtl.spoil(0, 0, 0, "sound")
    bench.post(*late)
    bench.run()
    gone = [id for id in (0, 1) if bench.status(id) != [JobStatus.DONE] * 2]
    assert 1 in gone
    bench.check(but=gone)


def test_a_job_of_the_first_class_is_hardly_later_for_a_large_one_before_it():
    def cycles(*, large, layer):
        bench = Bench(n_memory=1 << 20, n_elems=60_000)
        if large:
            bench.post(bench.job(0, 60_000, layer=7))
        job = bench.job(1, 4000, layer=layer)
        bench.golden.post(0, job)
        bench.golden.post(1, job)
        late = {6000: lambda: [bench.rtl.post(node, job) for node in range(N)]}
        bench.run(LinkFaults(delay=50), late=late)
        bench.check()
        return max(host.ended[1].record.cycles for host in bench.rtl.hosts)

    alone = cycles(large=False, layer=0)
    assert cycles(large=True, layer=0) < 1.5 * alone
    assert cycles(large=True, layer=7) > 2 * alone  # the same job, in its turn


@pytest.mark.slow  # a card with THC and registers of its own to build
def test_settings_of_thc_by_registers():
    """Indices of 3 bits, 2 nodes of 200 levels, whose sums have 12; a pass that fails counts."""
    bench = Bench(thc={"B": 64, "b": 3, "g": 200}, watchdog=WATCHDOG)
    bench.post(
        bench.job(1, 1000, codec=JobCodec.THC, gen=2),
        bench.job(2, 3000, codec=JobCodec.THC, gen=2),
        bench.job(3, 500),
    )
    bench.run()
    bench.check()
    assert bench.status(1) == bench.status(2) == [JobStatus.DONE] * N
    driver = bench.rtl.drivers[0]
    assert driver.read("failed") == driver.get("events")["failed"] == 0
    job = bench.job(4, 1000, codec=JobCodec.THC, gen=2)
    bench.rtl.spoil(0, job.source, job.source + 1024, "errors")
    bench.post(job)
    bench.run()
    bench.check(but=[4])
    assert bench.status(4) == [JobStatus.MEMORY, JobStatus.STUCK]
    assert driver.read("failed") == driver.get("events")["failed"] == 1
