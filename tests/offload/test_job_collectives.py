"""Jobs of each collective: golden cards and cards of RTL, with the same tables and memory."""

from dataclasses import replace

import numpy as np
import pytest
from gradnic.models.offload import job_cluster as golden
from gradnic.models.offload.cluster import LinkFaults
from gradnic.models.schedule.all_reduce import run_table
from gradnic.models.schedule.builders import build
from gradnic.models.schedule.builders.collectives import COLLECTIVES, collective
from gradnic.models.schedule.builders.rows import compile_table
from gradnic.models.schedule.topology import parse
from gradnic.sim.offload import job_list, job_run
from gradnic.sim.offload.job_cluster import EVERYTHING, JobCluster

from gradnic.interface.job import Collective, Job, JobCodec, JobStatus, Refusal, collective_of

HARSH = LinkFaults(loss=0.03, duplicate=0.05, reorder=60, delay=20, seed=4)
N_MEMORY = 1 << 16
TOPOLOGY = parse("ring:3")
N, PACKET, ELEMS = 3, 96, 1000
SOURCE, SHARDS, RESULT = 0, 1 << 13, 1 << 14


def tables_of(*names, root=1):
    schedule = build(TOPOLOGY, "multitree")
    return tuple(compile_table(collective(schedule, name, root=root)) for name in names)


def clusters(tables):
    """Golden cards and cards of RTL, whose circuit is that of `test_job_cluster`."""
    soft = golden.JobCluster(
        tables, TOPOLOGY, N_MEMORY, packet=PACKET, n_packets=1024,
        settings={"t_probe": 40, "t_retry": 40},
    )  # fmt: skip
    return soft, JobCluster(
        tables,
        TOPOLOGY,
        N_MEMORY,
        6000,
        n_active=2,
        packet=PACKET,
        **EVERYTHING,
    )


def fill(soft, rtl, x):
    for node in range(N):
        for memory in (soft.cards[node].memory, rtl.memory(node)):
            memory[:] = 0xEE
            memory[: 4 * ELEMS] = x[node].view(np.uint8)


def play(soft, rtl, *jobs):
    """Let both run the jobs; completions of the golden cards, memory being the same on both."""
    for node in range(N):
        for job in jobs:
            soft.post(node, job)
            rtl.post(node, job)
    soft.run(HARSH)
    rtl.run(HARSH)
    for node in range(N):
        np.testing.assert_array_equal(rtl.memory(node)[:N_MEMORY], soft.cards[node].memory)
        for job in jobs:
            told, want = rtl.hosts[node].ended[job.id].record, soft.ended[node][job.id]
            assert [
                getattr(told, f) for f in ("status", "detail", "leaves_least", "leaves_most")
            ] == [getattr(want, f) for f in ("status", "detail", "leaves_least", "leaves_most")]
    return [soft.ended[node] for node in range(N)]


def words(soft, node, at):
    return soft.cards[node].memory[at : at + 4 * ELEMS].view(np.uint32)


def noise(seed):
    rng = np.random.default_rng(seed)
    shape = N, ELEMS
    return (rng.standard_normal(shape) * 10.0 ** rng.integers(-20, 20, shape)).astype(np.float32)


@pytest.mark.parametrize("codec", [JobCodec.RAW32, JobCodec.INCEPTIONN])
def test_reduce_scatter_then_all_gather_is_the_all_reduce_bit_for_bit(codec):
    scatter, gather = tables_of("reduce_scatter", "all_gather")
    soft, rtl = clusters((scatter, gather))
    x = noise(5)
    fill(soft, rtl, x)
    (ended,) = {
        (told[1].status, told[1].leaves_least, told[1].leaves_most)
        for told in play(soft, rtl, Job(1, 1, 1, ELEMS, SOURCE, SHARDS, table=0, codec=codec,
                                        collective=Collective.REDUCE_SCATTER))
    }  # fmt: skip
    assert ended == (JobStatus.DONE, N, N)
    _, here = run_table(scatter, x)
    for node in range(N):
        assert (words(soft, node, SHARDS)[~here[node]] == 0xEEEEEEEE).all()
    (ended,) = {
        (told[2].status, told[2].leaves_least, told[2].leaves_most)
        for told in play(soft, rtl, Job(2, 2, 1, ELEMS, SHARDS, RESULT, table=1, codec=codec,
                                        collective=Collective.ALL_GATHER))
    }  # fmt: skip
    assert ended == (JobStatus.DONE, 1, 1)
    whole, _ = clusters(tables_of("all_reduce", "reduce"))
    for node in range(N):
        whole.cards[node].memory[: 4 * ELEMS] = x[node].view(np.uint8)
        whole.post(node, Job(1, 1, 1, ELEMS, SOURCE, RESULT, codec=codec))
    whole.run(LinkFaults())
    for node in range(N):
        np.testing.assert_array_equal(words(soft, node, RESULT), words(whole, node, RESULT))


def test_reduce_and_broadcast_side_by_side_with_jobs_that_name_the_wrong_table():
    soft, rtl = clusters(tables_of("reduce", "broadcast"))
    x = noise(6)
    fill(soft, rtl, x)
    ended = play(
        soft, rtl,
        Job(1, 1, 1, ELEMS, SOURCE, SHARDS, table=0, collective=Collective.REDUCE),
        Job(2, 2, 1, ELEMS, SOURCE, RESULT, table=0),
        Job(3, 3, 1, ELEMS, SOURCE, RESULT, table=1, collective=Collective.REDUCE),
        Job(4, 4, 1, ELEMS, SOURCE, RESULT, table=1, collective=Collective.BROADCAST),
        Job(5, 5, 1, ELEMS, SOURCE, RESULT, table=1, collective=5),
    )  # fmt: skip
    for node, told in enumerate(ended):
        for id, reason in ((2, Refusal.TABLE), (3, Refusal.TABLE), (5, Refusal.COLLECTIVE)):
            assert (told[id].status, told[id].detail) == (JobStatus.REFUSED, reason)
        assert (told[1].status, told[1].leaves_most) == (JobStatus.DONE, N * (node == 1))
        assert (told[4].status, told[4].leaves_least) == (JobStatus.DONE, 1)
        np.testing.assert_array_equal(words(soft, node, RESULT), x[1].view(np.uint32))
        if node != 1:
            assert (words(soft, node, SHARDS) == 0xEEEEEEEE).all()


@pytest.mark.parametrize("name", COLLECTIVES)
def test_packets_of_a_job_that_a_node_refused_change_nothing(name):
    """It posts the right one behind the job that is beside it, and all end."""
    soft, rtl = clusters(tables_of(name, "reduce" if name == "all_reduce" else "all_reduce"))
    fill(soft, rtl, noise(7))
    right = Job(1, 1, 1, ELEMS, SOURCE, RESULT, collective=Collective[name.upper()])
    beside = replace(right, id=2, tensor=2, elems=600, result=SHARDS)
    wrong = replace(right, id=7, elems=0)
    jobs = [[right, beside], [right, beside], [wrong, beside, right]]
    for node, posts in enumerate(jobs):
        for job in posts:
            soft.post(node, job)
            rtl.post(node, job)
    soft.run(HARSH)
    rtl.run(HARSH)
    for node, posts in enumerate(jobs):
        np.testing.assert_array_equal(rtl.memory(node)[:N_MEMORY], soft.cards[node].memory)
        ends = {job.id: rtl.hosts[node].ended[job.id].record for job in posts}
        assert {ends[id].status for id in (1, 2)} == {JobStatus.DONE}
        if node == 2:
            assert (ends[7].status, ends[7].detail) == (JobStatus.REFUSED, Refusal.LENGTH)


def test_a_root_makes_its_values_final_while_it_forgets_the_job_before():
    """63 packet numbers take longer to forget than a round to begin: no packet is lost by it."""
    soft, rtl = clusters(tables_of("broadcast", "reduce"))
    n_elems, result = 6000, 1 << 15
    x = np.random.default_rng(8).standard_normal((2, n_elems)).astype(np.float32)
    job = Job(1, 1, 1, n_elems, SOURCE, result, collective=Collective.BROADCAST)
    for turn, values in enumerate(x):
        for node in range(N):
            for memory in (soft.cards[node].memory, rtl.memory(node)):
                memory[:] = 0xEE
                memory[: values.nbytes] = values.view(np.uint8)
        ended = play(soft, rtl, replace(job, id=turn, gen=1 + turn))
        for node in range(N):
            assert ended[node][turn].status == JobStatus.DONE
            got = rtl.memory(node)[result:][: values.nbytes].view(np.float32)
            np.testing.assert_array_equal(got, values)


def test_a_table_tells_its_collective():
    names = ("all_reduce", "reduce_scatter", "all_gather", "reduce", "broadcast")
    assert [collective_of(table) for table in tables_of(*names)] == list(Collective)


def test_jobs_of_a_file_get_a_table_for_each_collective_and_root():
    posted = job_list.from_dicts([
        {"elems": 64}, {"elems": 64, "collective": "reduce", "root": 2},
        {"elems": 64, "collective": 3, "root": 2}, {"elems": 64, "collective": "broadcast"},
        {"elems": 64, "collective": "broadcast", "table": 0},
    ])  # fmt: skip
    tables, made = job_run._tables(build(TOPOLOGY, "ring"), TOPOLOGY, posted)
    assert [one.job.table for one in made] == [0, 1, 1, 2, 0]
    assert [collective_of(table).name for table in tables] == ["ALL_REDUCE", "REDUCE", "BROADCAST"]
    wrong = job_list.from_dicts([{"elems": 64, "collective": "reduce", "root": 3}])
    with pytest.raises(ValueError, match="root must be 0 to 2, not 3"):
        job_run._tables(build(TOPOLOGY, "ring"), TOPOLOGY, wrong)
    with pytest.raises(ValueError, match="job 0: collective must be all_reduce, reduce_scatter, "):
        job_list.from_dicts([{"elems": 64, "collective": "scatter"}])
