"""Cards of RTL that take jobs: memory and completions as of golden cards, over links that lose."""

import re

import pytest
from gradnic.models.offload import job_cluster as golden
from gradnic.models.offload.cluster import LinkFaults
from gradnic.models.schedule.builders import build
from gradnic.models.schedule.builders.rows import compile_table
from gradnic.models.schedule.topology import parse
from gradnic.sim.offload.golden_pair import HARSH, GoldenPair
from gradnic.sim.offload.job_cluster import EVERYTHING, JobCluster

from gradnic.interface.job import (
    QUEUE,
    RING,
    Collective,
    Job,
    JobCodec,
    JobStatus,
    Kind,
    Operation,
    Refusal,
)

N_MEMORY = 1 << 19
HALF = N_MEMORY // 2
TOPOLOGY = parse("ring:3")
TABLES = tuple(compile_table(build(TOPOLOGY, name)) for name in ("ring", "multitree"))
PACKET = 96
N = 3


class Bench(GoldenPair):
    """Three cores. pauses : as of `Cards.pause`; built : options of the cards of RTL."""

    def __init__(self, *, watchdog=0, pauses=None, tables=TABLES, n_active=2, built=EVERYTHING):
        rtl = JobCluster(
            tables,
            TOPOLOGY,
            N_MEMORY,
            6000,
            n_active=n_active,
            packet=PACKET,
            watchdog=watchdog,
            **built,
        )
        twin = golden.JobCluster(
            tables, TOPOLOGY, N_MEMORY, n_active=n_active, packet=PACKET, n_packets=1024,
            settings={"t_probe": 40, "t_retry": 40},
            watchdog=1500 if watchdog else 0,
        )  # fmt: skip
        super().__init__(rtl, twin, pauses=pauses)

    def status(self, node, id):
        return self.rtl.hosts[node].ended[id].record.status


def test_jobs_of_all_sizes_codecs_and_classes_are_exact():
    bench = Bench(pauses=2)
    sizes = (3000, 17, 1, 500, 64, 900, 2000, 48, 16, 6000)
    jobs = [
        bench.job(
            id, elems, table=id % 2, layer=7 - id % 8, in_place=id % 3 == 0,
            codec=JobCodec.INCEPTIONN if id % 4 == 1 else JobCodec.RAW32,
            op=Operation.MAX if id in (2, 6) else Operation.SUM,
        )
        for id, elems in enumerate(sizes)
    ]  # fmt: skip
    bench.post(*jobs)
    bench.run()
    bench.check()
    assert all(bench.status(node, id) == JobStatus.DONE for node in range(N) for id in bench.jobs)
    assert sum(bench.rtl.counts(node)["duplicate"] for node in range(N)) > 0


@pytest.mark.slow  # a card of four contexts to build
@pytest.mark.parametrize("pauses", [36, 49])  # all data before an address; one memory, or two
def test_four_jobs_at_a_time_are_exact_behind_memories_that_pause(pauses):
    built = {"inc": False, "maxima": True}
    bench = Bench(pauses=pauses, tables=TABLES[:1], n_active=4, built=built)
    for id, elems in enumerate((3000, 17, 1, 500, 64, 2000, 900, 48)):
        op = Operation.MAX if id == 3 else Operation.SUM
        bench.post(bench.job(id, elems, layer=7 - id, in_place=id % 3 == 0, op=op))
    most = 0
    for _ in range(20):
        bench.rtl.step(HARSH)
        most = max(most, bench.rtl._get(0, "active").bit_count())
    assert most == 4
    bench.run()
    bench.check()


BAD = [
    {"collective": Collective.REDUCE_SCATTER},
    {"op": Operation.MAX, "codec": JobCodec.INCEPTIONN},
    {"kind": 2},
    {"kind": Kind.BF16, "codec": JobCodec.INCEPTIONN},
    {"codec": JobCodec.THC},
    {"codec": 6},
    {"table": 2},
    {"elems": 0},
    {"elems": (1 << 28) - 1},
    {"source": 32},
    {"result": HALF + 4},
    {"source": N_MEMORY},
    {"result": 1 << 63},
    {"tensor": 0, "gen": 1},
]


def test_bad_descriptors_are_refused_and_the_jobs_beside_them_are_exact():
    bench = Bench(pauses=12)
    posts = []
    for k, told in enumerate(BAD):
        posts.append(bench.job(k, 300))
        fields = {"id": 100 + k, "tensor": 100 + k, "gen": 1, "elems": 300, "source": 0}
        posts.append(Job(**(fields | {"result": HALF} | told)))
    bench.post(*posts)
    bench.run()
    bench.check()
    for node in range(N):
        assert {bench.status(node, 100 + k) for k in range(len(BAD))} == {JobStatus.REFUSED}


def test_a_full_queue_refuses_and_a_full_ring_waits():
    bench = Bench()
    jobs = [bench.job(id, 16) for id in range(QUEUE + RING + 3)]
    for node in range(N):
        bench.rtl.hosts[node].takes_completions = False
        # the clerk takes the oldest out of the queue only when it starts
        taken = [bench.rtl.post_now(node, job) for job in jobs[: QUEUE + 4]]
        assert taken == [True] * QUEUE + [False] * 4
        assert bench.rtl.hosts[node].overruns == 4
        for job in jobs[QUEUE:]:
            bench.rtl.post(node, job)
        for job in jobs:
            bench.golden.post(node, job)
    for _ in range(150):
        bench.rtl.step(HARSH)
    for node in range(N):
        assert not bench.rtl.hosts[node].ended
        assert bench.rtl.hosts[node].to_post  # the queue is full again
        bench.rtl.hosts[node].takes_completions = True
    bench.run()
    bench.check()


@pytest.mark.parametrize(("when", "pauses"), [(300, 0), (1500, None), (3000, 5)])
def test_abort_frees_the_place_and_disturbs_nothing(when, pauses):
    bench = Bench(pauses=pauses)
    jobs = [bench.job(id, 2500 if id else 6000, layer=id % 8) for id in range(6)]
    bench.post(*jobs)
    rtl = bench.rtl
    late = {
        when: lambda: rtl.abort(0, 0), when + 600: lambda: rtl.abort(1, 0),
        when + 700: lambda: rtl.abort(2, 0), when + 701: lambda: rtl.abort(2, 5),
        when + 800: lambda: rtl.abort(0, 5), when + 801: lambda: rtl.abort(1, 5),
    }  # fmt: skip
    bench.run(late=late)
    bench.check(but=(0, 5))
    for node in range(N):
        assert bench.status(node, 0) == JobStatus.ABORTED
        assert bench.status(node, 5) == JobStatus.ABORTED


def test_of_active_jobs_of_one_id_the_oldest_is_aborted():
    bench = Bench()
    twins = [Job(9, tensor=40 + k, gen=1, elems=3000, source=0, result=HALF) for k in range(2)]
    bench.store(bench.normal(3000, 8))
    rtl, card = bench.rtl, bench.golden.cards[0]
    rtl.hosts[0].takes_completions = False
    for job in twins:  # on one node alone, so that none of them ends by itself
        assert rtl.post_now(0, job)
        card.post(job)
    rtl.step(HARSH)
    card.tick(0)
    for active, id in ((0b10, 9), (0, None)):
        rtl.abort(0, id)
        assert card.abort(id)
        rtl.step(HARSH, n_cycles=1000)
        assert rtl._get(0, "active") == active
        assert [bool(active >> k & 1) for k in range(2)] == [
            one is not None for one in card.contexts
        ]
        assert rtl.take(0).status == card.take().status == JobStatus.ABORTED
        assert rtl.take(0) is card.take() is None


def test_an_abort_ends_within_a_thousand_cycles_and_a_frame():
    bench = Bench()
    bench.post(bench.job(0, 6000), nodes=[0, 1])  # node 2 never posts
    for _ in range(12):
        bench.rtl.step(HARSH)
    before = bench.rtl.now
    bench.rtl.abort(0, 0)
    while not bench.rtl.hosts[0].ended:
        bench.rtl.step(HARSH, n_cycles=20)
    assert bench.rtl.now - before < 1000 + PACKET * 4 // 16 + 20
    bench.rtl.abort(1, 0)
    bench.post(bench.job(1, 500), bench.job(2, 500))
    cards = bench.golden.cards
    bench.run(golden_late={200: lambda: cards[0].abort(0), 201: lambda: cards[1].abort(0)})
    bench.check(but=(0,))


def test_a_neighbor_that_never_posts_stops_only_its_job():
    bench = Bench(watchdog=12_000)
    never = bench.job(0, 500)
    bench.post(never, nodes=[0, 1])
    bench.post(*(bench.job(id, 700) for id in range(1, 6)))
    bench.run()
    bench.check(but=(0,))
    assert [bench.status(node, 0) for node in (0, 1)] == [JobStatus.STUCK] * 2


def test_a_stuck_job_tells_the_oldest_row_though_later_ones_have_nothing_to_wait_for():
    bench = Bench(watchdog=12_000)
    bench.post(bench.job(0, 1), bench.job(1, 20), nodes=[0, 1])  # chunks without elements
    bench.run(LinkFaults(delay=20))
    bench.check()
    assert [bench.rtl.hosts[node].ended[0].record.detail for node in (0, 1)] == [2, 4]  # of 5


def test_a_run_in_which_nothing_moves_is_told():
    bench = Bench()
    bench.post(bench.job(0, 500), nodes=[0, 1])  # node 2 never posts
    with pytest.raises(RuntimeError, match=r"cards \[0, 1\] .* at rest for 60\d{3}: no port waits"):
        bench.rtl.run(LinkFaults(delay=20))


def test_a_card_that_keeps_a_burst_waiting_is_told():
    """A bit changes: it takes a range of its result for written, or for one that is to be."""
    told = []
    for after in range(2400, 2700, 100):  # not each time is one under way
        bench = Bench()
        bench.post(bench.job(0, 3000))
        bench.rtl.upset(1, "core.engine0.memory.result_writer.requests.o__valid", after)
        try:
            bench.rtl.run(LinkFaults(delay=20))
        except RuntimeError as error:
            told.append(str(error))
    wanted = r"card 1: gradient_write waits for data for 2\d{3} cycles; "
    assert told
    assert all(re.fullmatch(wanted, text) for text in told)


def test_packets_of_a_job_that_this_node_refused_change_nothing():
    bench = Bench()
    right = bench.job(1, 300)
    bench.post(right, bench.job(2, 300), nodes=[0, 1])
    bench.post(Job(7, 1, 1, 0, 0, 0), bench.jobs[2], right, nodes=[2])
    bench.run()
    bench.check()
    assert bench.rtl.hosts[2].ended[7].record.detail == Refusal.LENGTH


def test_rounds_of_one_tensor_follow_each_other_and_wrap():
    bench = Bench(pauses=10)
    gens = (0xFFFE, 0xFFFF, 0, 1)
    bench.post(*(bench.job(k, 200, tensor=5, gen=gen) for k, gen in enumerate(gens)))
    bench.run()
    bench.check()


def test_a_first_class_job_overtakes_a_large_one():
    bench = Bench()
    bench.post(bench.job(0, 6000, layer=7), bench.job(1, 300, layer=0))
    bench.run(LinkFaults(delay=20))
    bench.check()
    ended = bench.rtl.hosts[0].ended
    assert ended[1].record.cycles < 0.8 * ended[0].record.cycles
