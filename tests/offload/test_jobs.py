"""Golden cards that take jobs: sizes, codecs and classes side by side, over links that lose."""

from dataclasses import replace

import numpy as np
import pytest
from gradnic.models import inceptionn
from gradnic.models.offload.card import Settings
from gradnic.models.offload.cluster import LinkFaults
from gradnic.models.offload.job_card import JobCard
from gradnic.models.offload.job_cluster import JobCluster
from gradnic.models.schedule.all_reduce import add, all_reduce
from gradnic.models.schedule.builders import build
from gradnic.models.schedule.builders.collectives import collective
from gradnic.models.schedule.builders.rows import compile_table
from gradnic.models.schedule.builders.schedule import NOP
from gradnic.models.schedule.topology import parse
from gradnic.models.transport.tagger import Rules

from gradnic.interface.job import (
    COMPLETION,
    DESCRIPTOR,
    QUEUE,
    RING,
    Collective,
    Completion,
    Job,
    JobCodec,
    JobStatus,
    Kind,
    Operation,
    Refusal,
    words,
)

HARSH = LinkFaults(loss=0.05, duplicate=0.1, reorder=30)
MEMORY = 1 << 19
HALF = MEMORY // 2


def image(values):
    return inceptionn.image(values) if values.size else values


class Bench:
    """A cluster, and jobs on gradients of its own."""

    def __init__(self, spelling="ring:3", algorithms=("ring",), **options):
        topology = parse(spelling)
        self.n = topology.n_nodes
        self.tables = tuple(compile_table(build(topology, name)) for name in algorithms)
        options.setdefault("settings", {"t_probe": 40, "t_retry": 40})
        self.cluster = JobCluster(self.tables, topology, MEMORY, **options)
        self.rng = np.random.default_rng(3)
        self.jobs, self.values, self.at = {}, {}, 0

    def job(self, id, elems, *, in_place=False, **fields):
        """A job with a place of its own in memory, where each node has other values."""
        told = {
            "tensor": id,
            "gen": 1,
            "source": self.at,
            "result": self.at + HALF * (not in_place),
        }
        job = Job(id, elems=elems, **(told | fields))
        values = self.rng.standard_normal((self.n, elems)).astype(np.float32) / 8
        for card, mine in zip(self.cluster.cards, values, strict=True):
            card.memory[self.at : self.at + 4 * elems] = mine.view(np.uint8)
        self.at += -(-4 * elems // 64) * 64
        self.jobs[id], self.values[id] = job, values
        return job

    def post(self, *jobs, nodes=None):
        for node in range(self.n) if nodes is None else nodes:
            for job in jobs:
                self.cluster.post(node, job)

    def result(self, node, id):
        job = self.jobs[id]
        return self.cluster.cards[node].memory[job.result : job.result + 4 * job.elems]

    def check(self, id, nodes=None):
        """The job is done on these nodes, and its result is the sum in the table's order."""
        job = self.jobs[id]
        coded = job.codec == JobCodec.INCEPTIONN
        how = {"combine": lambda a, b: add(a, image(b)), "image": image} if coded else {}
        want = all_reduce(self.tables[job.table], self.values[id], **how)
        for node in range(self.n) if nodes is None else nodes:
            told = self.cluster.ended[node][id]
            assert (told.status, told.leaves_least) == (JobStatus.DONE, self.n)
            np.testing.assert_array_equal(self.result(node, id), want[node].view(np.uint8))


def test_records_are_as_documented():
    job = Job(
        0x1234, 0x5678, 0x9ABC, 0x0FEDCBA9, 0x0102030405060708, 0x1112131415161718, table=9,
        collective=4, op=2, kind=1, codec=3, layer=5, p_q16=0xBEEF, seed=0xCAFED00D, feedback=1,
        half=1, residual=0xFEEDF00D,
    )  # fmt: skip
    octets = bytes.fromhex(
        "1234 42 13 59 03 beef 5678 9abc 0fedcba9 0102030405060708 1112131415161718 cafed00d"
        "feedf00d"
    )
    assert job.pack() == octets
    assert Job.parse(octets) == job
    assert job.residual_at(1) - job.residual_at(0) == -(-4 * job.elems // 64) * 64
    assert words(octets)[:2] == [0x12344213, 0x5903BEEF]
    told = Completion(7, JobStatus.SHORT, 0, 1 << 40, 2, 3, 0x123456789)
    octets = bytes.fromhex("0007 0000 01 00 0002 0003 0000 0000010000000000 0000000123456789")
    assert told.pack() == octets
    assert Completion.parse(octets) == told
    assert (DESCRIPTOR.n_bytes, COMPLETION.n_bytes) == (40, 28)
    with pytest.raises(ValueError, match="elems must be 0 to 268435455, not 268435456"):
        Job(1, 1, 1, 1 << 28, 0, 0)
    with pytest.raises(ValueError, match="descriptor must have 40 bytes, not 28"):
        Job.parse(octets)


def test_a_card_with_jobs_has_no_histogram_of_the_round_before():
    settings = Settings(7, 0, (), {0: None}, tagger=Rules(n_layers=1, source="histogram"))
    with pytest.raises(ValueError, match="not histogram"):
        JobCard(settings, (), np.zeros(64, np.uint8))


@pytest.mark.parametrize("n_active", [1, 2, 4])
def test_jobs_of_all_sizes_codecs_and_classes_are_exact(n_active):
    bench = Bench("ring:3", ("ring", "multitree"), n_active=n_active, packet=64)
    sizes = (3000, 17, 1, 500, 64, 900, 2000, 48)
    jobs = [
        bench.job(
            id, elems, table=id % 2, layer=7 - id % 8, in_place=id % 3 == 0,
            codec=JobCodec.INCEPTIONN if id % 4 == 1 else JobCodec.RAW32,
        )
        for id, elems in enumerate(sizes)
    ]  # fmt: skip
    bench.post(*jobs)
    bench.cluster.run(HARSH)
    for id in bench.jobs:
        bench.check(id)


def test_a_share_may_miss_and_the_completion_says_so():
    bench = Bench("torus:2x2", ("multitree",), packet=16)
    jobs = [bench.job(k, 2000, p_q16=6000 * k) for k in range(3)]
    bench.post(*jobs)
    bench.cluster.run(LinkFaults(loss=0.05, reorder=9))
    bench.check(0)
    ended = [bench.cluster.ended[v] for v in range(bench.n)]
    for id in (1, 2):
        assert {told[id].status for told in ended} == {JobStatus.SHORT}
        assert len({(told[id].leaves_least, told[id].leaves_most) for told in ended}) == 1
        assert ended[0][id].leaves_least < 4 == ended[0][id].leaves_most
        results = [bench.result(v, id).tobytes() for v in range(bench.n)]
        assert len(set(results)) == 1
        assert any(told[id].given_up for told in ended)


def ends(bench, id):
    return max(told[id].cycles for told in bench.cluster.ended)


def test_a_first_class_job_overtakes_a_large_one():
    alone = Bench(n_active=2, packet=64)
    alone.post(alone.job(1, 2000, layer=0))
    alone.cluster.run(LinkFaults())
    bench = Bench(n_active=2, packet=64)
    bench.post(bench.job(0, 40_000, layer=7), bench.job(1, 2000, layer=0))
    bench.cluster.run(LinkFaults())
    bench.check(0)
    bench.check(1)
    assert ends(bench, 1) <= 1.3 * ends(alone, 1)
    assert ends(bench, 1) < ends(bench, 0) / 5
    one = Bench(n_active=1, packet=64)
    one.post(one.job(0, 40_000, layer=7), one.job(1, 2000, layer=0))
    one.cluster.run(LinkFaults())
    assert ends(one, 1) > ends(one, 0)


BAD = [
    ({"collective": Collective.REDUCE_SCATTER}, Refusal.TABLE),
    ({"collective": Collective.ALL_GATHER}, Refusal.TABLE),
    ({"collective": Collective.REDUCE}, Refusal.TABLE),
    ({"collective": Collective.BROADCAST}, Refusal.TABLE),
    ({"collective": 5}, Refusal.COLLECTIVE),
    ({"op": Operation.MAX, "codec": JobCodec.INCEPTIONN}, Refusal.OPERATION),
    ({"op": 3}, Refusal.OPERATION),
    ({"op": Operation.MEAN, "codec": JobCodec.THC}, Refusal.CODEC),
    ({"op": 3}, Refusal.OPERATION),
    ({"kind": 2}, Refusal.KIND),
    ({"kind": Kind.BF16, "codec": JobCodec.INCEPTIONN}, Refusal.CODEC),
    ({"kind": Kind.BF16, "codec": JobCodec.THC}, Refusal.CODEC),
    ({"codec": JobCodec.THC}, Refusal.CODEC),
    ({"codec": 7}, Refusal.CODEC),
    ({"table": 1}, Refusal.TABLE),
    ({"elems": 0}, Refusal.LENGTH),
    ({"elems": (1 << 28) - 1}, Refusal.LENGTH),
    ({"source": 32}, Refusal.ALIGNMENT),
    ({"result": HALF + 4}, Refusal.ALIGNMENT),
    ({"source": MEMORY}, Refusal.REGION),
    ({"result": MEMORY - 64}, Refusal.REGION),
    ({"result": 1 << 63}, Refusal.REGION),
    ({"tensor": 1, "gen": 1}, Refusal.ROUND),
    ({"tensor": 1, "gen": 0x8001}, Refusal.ROUND),
]


@pytest.mark.parametrize(("fields", "reason"), BAD)
def test_a_bad_descriptor_is_refused_and_its_neighbors_are_not(fields, reason):
    bench = Bench()
    before, after = bench.job(1, 300), bench.job(2, 300)
    told = {"id": 9, "tensor": 9, "gen": 1, "elems": 300, "source": 0, "result": HALF}
    bench.post(before, Job(**(told | fields)), after)
    bench.cluster.run(HARSH)
    for ended in bench.cluster.ended:
        assert (ended[9].status, ended[9].detail) == (JobStatus.REFUSED, reason)
    bench.check(1)
    bench.check(2)


def test_a_node_that_refused_may_be_given_the_right_descriptor():
    bench = Bench()
    right = bench.job(1, 300)
    wrong = Job(7, 1, 1, 0, 0, 0)
    bench.post(right, bench.job(2, 300), nodes=[0, 1])
    bench.post(wrong, bench.jobs[2], right, nodes=[2])
    bench.cluster.run(HARSH)
    assert bench.cluster.ended[2][7].detail == Refusal.LENGTH
    bench.check(1)
    bench.check(2)


def test_a_full_queue_refuses_and_a_full_ring_waits():
    bench = Bench()
    bench.cluster.taking.clear()
    jobs = [bench.job(id, 16) for id in range(QUEUE + RING + 3)]
    for card in bench.cluster.cards:
        taken = [card.post(job) for job in jobs]
        assert taken == [True] * QUEUE + [False] * (RING + 3)
        assert card.overruns == RING + 3
        assert card.queue.waiting[-1].job == jobs[QUEUE - 1]
    bench.post(*jobs[QUEUE:])
    for _ in range(3000):
        bench.cluster.step(HARSH)
    for card in bench.cluster.cards:
        assert len(card.completions) == RING
        assert len(card.queue) == QUEUE  # and three with the host
    bench.cluster.taking.update(range(bench.n))
    bench.cluster.run(HARSH)
    for id in bench.jobs:
        bench.check(id)


@pytest.mark.parametrize("when", [1, 60, 200])
@pytest.mark.parametrize("codec", [JobCodec.RAW32, JobCodec.INCEPTIONN])
def test_abort_frees_the_place_and_disturbs_nothing(when, codec):
    bench = Bench(n_active=2, packet=64)
    jobs = [bench.job(id, 1500, codec=codec, layer=id % 8) for id in range(5)]
    bench.post(*jobs)
    cards = bench.cluster.cards
    late = {
        when: lambda: cards[0].abort(0), when + 90: lambda: cards[1].abort(0),
        when + 150: lambda: cards[2].abort(0), when + 151: lambda: cards[2].abort(3),
        when + 160: lambda: cards[0].abort(3), when + 170: lambda: cards[1].abort(3),
    }  # fmt: skip
    bench.cluster.run(HARSH, late=late)
    for id in (1, 2, 4):
        bench.check(id)
    for ended in bench.cluster.ended:
        assert ended[0].status == JobStatus.ABORTED
        assert ended[3].status in (JobStatus.ABORTED, JobStatus.DONE)
    assert bench.cluster.ended[2][3].status == JobStatus.ABORTED
    assert not cards[0].abort(0)


def test_whatever_its_id_the_oldest_job_is_aborted():
    bench = Bench(n_active=2, packet=64)
    card = bench.cluster.cards[0]
    for k, id in enumerate((7, 3, 5, 3)):
        card.post(replace(bench.job(k, 500), id=id))
    card.tick(0)
    assert card.abort()
    assert card.take().id == 7
    card.tick(1)  # the oldest that waited begins in its place
    for aborted in ([3], [3, 5], [3, 5, 3]):
        assert card.abort()
        card.tick(2)
        assert [told.id for told in card.completions] == aborted
        assert {told.status for told in card.completions} == {JobStatus.ABORTED}
    assert card.idle()
    assert not card.abort()


def test_a_neighbor_that_never_posts_stops_only_its_job():
    bench = Bench(n_active=2, packet=64, watchdog=1500)
    bench.post(bench.job(0, 500), bench.job(1, 500), nodes=[0, 1])
    bench.post(bench.jobs[1], bench.job(2, 500), nodes=[2])
    bench.post(bench.jobs[2], nodes=[0, 1])
    bench.cluster.run(HARSH)
    for node in (0, 1):
        assert bench.cluster.ended[node][0].status == JobStatus.STUCK
    assert 0 not in bench.cluster.ended[2]
    bench.check(1)
    bench.check(2)


def test_a_row_that_does_nothing_is_counted_and_out():
    """A stuck leaf of a broadcast says that its one row is out, as a card does."""
    topology = parse("ring:3")
    table = compile_table(collective(build(topology, "ring"), "broadcast"))
    (leaf,) = table.rows["node"][table.rows["op"] == NOP]
    cards = JobCluster((table,), topology, MEMORY, settings={"t_probe": 40, "t_retry": 40},
                       watchdog=1500)  # fmt: skip
    cards.post(leaf, Job(1, 1, 1, 500, 0, HALF, collective=Collective.BROADCAST))
    cards.run(LinkFaults())
    told = cards.ended[leaf][1]
    assert (told.status, told.detail) == (JobStatus.STUCK, 1)


def test_rounds_of_one_tensor_follow_each_other_and_wrap():
    bench = Bench(packet=64)
    gens = (0xFFFE, 0xFFFF, 0, 1)
    bench.post(*(bench.job(k, 200, tensor=5, gen=gen) for k, gen in enumerate(gens)))
    bench.cluster.run(HARSH)
    for id in bench.jobs:
        bench.check(id)


@pytest.mark.parametrize("before", [1 << 32, (1 << 32) - 200, 5 * (1 << 32) + 7])
def test_time_is_longer_than_its_stamps(before):
    bench = Bench(packet=64)
    bench.cluster.now = before
    bench.post(*(bench.job(id, 500) for id in range(3)))
    bench.cluster.run(HARSH, limit=before + 20_000)
    for id in bench.jobs:
        bench.check(id)


def test_a_card_that_was_stuck_ends_what_is_active_and_goes_on():
    bench = Bench(n_active=2, packet=64)
    bench.post(*(bench.job(id, 1500) for id in range(4)))
    cards = bench.cluster.cards
    late = {60: cards[0].renew}  # and hosts abort these jobs on the other nodes
    late |= {70 + 2 * node + id: lambda node=node, id=id: cards[node].abort(id)
             for node in (1, 2) for id in (0, 1)}  # fmt: skip
    bench.cluster.run(HARSH, late=late)
    for node, ended in enumerate(bench.cluster.ended):
        status = JobStatus.ABORTED if node else JobStatus.MEMORY
        assert [ended[id].status for id in (0, 1)] == [status] * 2
    bench.check(2)
    bench.check(3)
