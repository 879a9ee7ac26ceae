"""Jobs that let a share miss: allowances, golden cards and cards of RTL, against sums by order."""

import numpy as np
import pytest
from gradnic.models.offload import bf16
from gradnic.models.offload import job_cluster as golden
from gradnic.models.offload.cluster import LinkFaults
from gradnic.models.offload.job_sums import ends
from gradnic.models.offload.plan import Plan
from gradnic.models.schedule.builders import build
from gradnic.models.schedule.builders.collectives import collective
from gradnic.models.schedule.builders.rows import compile_table
from gradnic.models.schedule.topology import parse
from gradnic.models.transport.allowance_walk import allowance
from gradnic.sim.offload.job_cluster import EVERYTHING, JobCluster

from gradnic.interface.job import Job, JobCodec, JobStatus, Kind, Operation, collective_of

N, PACKET, N_MEMORY = 3, 96, 1 << 19
HALF = N_MEMORY // 2
TOPOLOGY = parse("ring:3")
SUMS = build(TOPOLOGY, "multitree")
TABLES = (
    compile_table(build(TOPOLOGY, "ring")),
    compile_table(SUMS),
    compile_table(collective(SUMS, "reduce_scatter")),
    compile_table(collective(SUMS, "all_gather")),
)
LOSSY = LinkFaults(loss=0.12, duplicate=0.05, reorder=60, delay=20, seed=4)
P = 6500  # of 65,536, per hop
NAMES = ("status", "given_up", "leaves_least", "leaves_most")


def jobs(rng):
    """Jobs side by side: all types, codecs and tables, with a share that may miss and without."""
    kinds = [
        {"elems": 9000}, {"elems": 6000, "op": Operation.MEAN, "table": 1, "layer": 5},
        {"elems": 7001, "codec": JobCodec.INCEPTIONN, "table": 1}, {"elems": 4000, "p_q16": 0},
        {"elems": 6016, "kind": Kind.BF16, "codec": JobCodec.RAW16, "layer": 7},
        {"elems": 6400, "kind": Kind.BF16, "table": 1}, {"elems": 17}, {"elems": 8192, "table": 2},
        {"elems": 2000, "table": 3}, {"elems": 5000, "codec": JobCodec.RAW16, "layer": 1},
    ]  # fmt: skip
    at, made = 0, []
    for id, told in enumerate(kinds):
        table = TABLES[told.get("table", 0)]
        fields = {"id": id, "tensor": id, "gen": 1, "p_q16": P, "collective": collective_of(table)}
        in_place = id % 4 == 0  # where results come before own partials have left
        place = {"source": at, "result": at + HALF * (not in_place)}
        made.append(Job(**(fields | place | told)))
        at += -(-4 * told["elems"] // 64) * 64
    values = [rng.standard_normal((N, job.elems)).astype(np.float32) / 8 for job in made]
    return made, [
        bf16.image(x) if job.kind == Kind.BF16 else x for job, x in zip(made, values, strict=True)
    ]


def fill(memory, job, x):
    octets = (bf16.narrow(x) if job.kind == Kind.BF16 else x).view(np.uint8)
    memory[job.source : job.source + octets.size] = octets


def check(job, x, given_up, ended, memories):
    """Completions and memory of all nodes, against the sums without what was given up."""
    told = ends(job, TABLES[job.table], x, given_up, packet=PACKET)
    for node, (want, values, here) in enumerate(told):
        found = [getattr(ended[node], name) for name in NAMES]
        assert found == [getattr(want, name) for name in NAMES], (job.id, node)
        values = bf16.narrow(values) if job.kind == Kind.BF16 else values.view(np.uint32)
        octets = memories[node][job.result : job.result + values.nbytes]
        np.testing.assert_array_equal(octets.view(values.dtype)[here], values[here])
        if collective_of(TABLES[job.table]) != 1:
            assert here.all()
        for (at, source), numbers in given_up.items():
            assert at != node or len(numbers) == len(set(numbers)), source


def bound(job, node):
    """Bytes that a node may give up of a job, times their leaves."""
    plan = Plan(TABLES[job.table], job.elems, packet=PACKET)
    octets = [4 * int(plan.elems[plan.packets(c, c + 1)].sum()) for c in range(plan.n_chunks)]
    return sum(
        allowance([(octets[chunk], one.leaves) for chunk, one in told.items()], job.p_q16)
        for told in plan.up[node].values()
    )


@pytest.mark.parametrize("at_share", [False, True])
def test_golden_cards_leave_the_sums_without_what_they_gave_up(at_share):
    made, values = jobs(np.random.default_rng(2))
    cluster = golden.JobCluster(
        TABLES, TOPOLOGY, N_MEMORY, packet=PACKET,
        settings={"t_probe": 40, "t_retry": 40, "at_share": at_share},
    )  # fmt: skip
    rounds = {}
    for node, card in enumerate(cluster.cards):
        for job, x in zip(made, values, strict=True):
            fill(card.memory, job, x[node])
            cluster.post(node, job)
    while cluster.busy():
        cluster.step(LOSSY)
        for node, card in enumerate(cluster.cards):
            rounds |= {(node, *key): one for key, one in card.rounds.items()}
    n_short = 0
    for job, x in zip(made, values, strict=True):
        given_up = {
            (node, source): np.flatnonzero((r.sizes > 0) & ~r.here)
            for node in range(N)
            for source, r in rounds[node, job.tensor, job.gen].up.items()
        }
        ended = [told[job.id] for told in cluster.ended]
        check(job, x, given_up, ended, [card.memory for card in cluster.cards])
        n_short += ended[0].status == JobStatus.SHORT
    assert n_short > (0 if at_share else 3)


def test_a_newer_round_of_a_tensor_does_not_end_an_older_one_that_is_set_up():
    """One node posts later: what its neighbors send of a job whose allowances it still works out
    comes beside a job of the same tensor, which has none and would be ready first.
    """
    older = Job(0, 5, 1, 640, 0, HALF, p_q16=P)
    newer = Job(1, 5, 2, 640, 4096, HALF + 4096)
    cluster = JobCluster(TABLES, TOPOLOGY, N_MEMORY, 9000, packet=PACKET, t_probe=400, **EVERYTHING)
    for node in range(1, N):
        cluster.post(node, older)
        cluster.post(node, newer)
    cluster.step(n_cycles=900)
    cluster.post(0, older)
    cluster.post(0, newer)
    cluster.run(LinkFaults(), max_cycles=40_000)
    for host in cluster.hosts:
        assert [host.ended[k].record.status for k in range(2)] == [JobStatus.DONE] * 2


@pytest.mark.parametrize(("at_share", "n_busy"), [(False, 0), (True, 0), (False, 3)])
def test_cards_of_rtl_leave_the_sums_without_what_they_gave_up(at_share, n_busy):
    """Several jobs at once over links that lose: sums and counts bit for bit, loss in its bound.

    n_busy : cycles of each 13 in which a host is at work, and what is given up is told, too.
    """
    made, values = jobs(np.random.default_rng(2))
    cluster = JobCluster(
        TABLES, TOPOLOGY, N_MEMORY, 9000, packet=PACKET, at_share=at_share, **EVERYTHING
    )  # fmt: skip
    for node in range(N):
        for job, x in zip(made, values, strict=True):
            fill(cluster.memory(node), job, x[node])
            cluster.post(node, job)
    while n_busy and not cluster.idle():
        cluster.step(LOSSY, n_cycles=10)
        for node in range(N):
            cluster._tick(node, n_busy)
    cluster.run(LOSSY, max_cycles=400_000)
    n_short = 0
    for job, x in zip(made, values, strict=True):
        given_up = cluster.given_up.get((job.tensor, job.gen), {})
        ended = [host.ended[job.id].record for host in cluster.hosts]
        check(job, x, given_up, ended, [cluster.memory(node) for node in range(N)])
        assert all(one.given_up <= bound(job, node) for node, one in enumerate(ended))
        n_short += ended[0].status == JobStatus.SHORT
        if not job.p_q16:
            assert {one.status for one in ended} == {JobStatus.DONE}
    assert n_short > (0 if at_share else 3)
