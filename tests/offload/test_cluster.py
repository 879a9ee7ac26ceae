"""Offload cards in RTL: whole all-reduces over bad links, equal to the golden sums bit for bit."""

from functools import cache

import numpy as np
import pytest
from gradnic.hdl.transport.records import RUN
from gradnic.models.offload.cluster import LinkFaults, all_reduce
from gradnic.models.offload.codec import Raw, Thc
from gradnic.models.schedule.builders import build
from gradnic.models.schedule.builders.rows import compile_table
from gradnic.models.schedule.topology import parse
from gradnic.models.thc.worker import Worker
from gradnic.sim.frame import frames as makers
from gradnic.sim.offload import cluster as cluster_module
from gradnic.sim.offload import run as offload_run
from gradnic.sim.offload.cluster import OffloadCluster
from gradnic.sim.offload.dram import Timing

from gradnic.errors import Unfinished
from gradnic.interface.formats import ETHERNET, GRADNIC, Op
from gradnic.interface.offload import Subtype

BAD = LinkFaults(loss=0.05, duplicate=0.05, reorder=300, seed=3)
WORSE = LinkFaults(loss=0.2, duplicate=0.1, reorder=1000, seed=4)
#: Four ports of a quarter each, with queues that never fill: the build of `test_tags`, too.
SMALL = {"port_bytes": 4, "thc": False, "inc": False, "queues": (1 << 20, 1 << 20), "egress": True}
SHAPES = [("ring:2", "ring"), ("mesh:2x2", "multitree"), ("full:4", "halving")]


@cache
def plan(spelling, algorithm):
    topology = parse(spelling)
    return compile_table(build(topology, algorithm)), topology


def gradients(n_nodes, n, seed=1):
    rng = np.random.default_rng(seed)
    scale = 10.0 ** rng.integers(-4, 3, (n_nodes, n))
    return (rng.standard_normal((n_nodes, n)) * scale).astype(np.float32)


def test_a_probe_that_is_asked_again_is_no_packet_that_is_sent_again():
    start = bytes(GRADNIC.start)
    frames = [
        (at, 0, 0, 1, start + GRADNIC.pack(op=op, retx=retx))
        for at, (op, retx) in enumerate([(Op.CONTROL, 1), (Op.RAW, 1), (Op.RAW, 0)])
    ]
    told = offload_run.Outcome(2, 352, 9, 0, 0.0, 0, frames).summary()
    assert (told["data_again"], told["control_frames"]) == (1, 1)


def test_the_error_of_a_sum_is_of_its_finite_values():
    """JSON has no NaN: Inf less Inf, and a sum beyond FP32, are counted and left out."""
    x = np.float32([[1, np.inf, np.nan, 3e38, np.inf, 2], [1, -np.inf, 1, 3e38, 1, 2]])
    with np.errstate(all="ignore"):
        result = x.sum(axis=0).astype(np.float64)
    result[-1] += 2
    assert offload_run.error_of(result, x) == {"nmse": 4 / 20, "not_finite": 4}
    assert offload_run.error_of(result[1:5], x[:, 1:5]) == {"nmse": None, "not_finite": 4}
    assert offload_run.error_of(np.ones(2), np.zeros((2, 2))) == {"nmse": 2, "not_finite": 0}


@pytest.mark.parametrize(("spelling", "algorithm"), SHAPES)
@pytest.mark.parametrize("codec", offload_run.CODECS)
@pytest.mark.parametrize("faults", [LinkFaults(), BAD], ids=["clean", "bad"])
@pytest.mark.parametrize(
    ("n_bytes", "packet"), [(16, 112), pytest.param(128, 96, marks=pytest.mark.slow)]
)
def test_reliable_sums_are_exact(spelling, algorithm, codec, faults, n_bytes, packet):
    table, topology = plan(spelling, algorithm)
    x = gradients(topology.n_nodes, 1531)
    outcome, replicas = offload_run.run(
        table, topology, x, codec, faults=faults, packet=packet, block=64, n_bytes=n_bytes
    )
    assert outcome.ok, outcome.first
    assert outcome.lost == 0
    assert (replicas == replicas[0]).all()
    found = outcome.summary()
    assert (found["data_again"] > 0) == (found["frames_lost"] > 0) == (faults.loss > 0)


@pytest.mark.parametrize(
    ("codec", "built"),
    [
        ("none", SMALL),
        pytest.param("none", {**SMALL, "queues": None, "egress": False}, marks=pytest.mark.slow),
        *(pytest.param(c, {"thc": False}, marks=pytest.mark.slow) for c in ("none", "inceptionn")),
        pytest.param("thc", {"inc": False}, marks=pytest.mark.slow),
    ],
)
def test_card_without_codecs_sums_the_same(codec, built):
    table, topology = plan("mesh:2x2", "multitree")
    x = gradients(topology.n_nodes, 1531)
    outcome, replicas = offload_run.run(
        table, topology, x, codec, faults=BAD, packet=112, block=64, **built
    )
    assert outcome.ok, outcome.first
    assert (replicas == replicas[0]).all()


def test_each_run_is_asked_for_once():
    """PROBEs and answers wait behind narrow ports' stores, and no PROBE goes again meanwhile: that
    costs receivers time, so that answers come later still.
    """
    topology = parse("mesh:2x2")
    table = compile_table(build(topology, "multitree", chunks=4))
    x = gradients(4, 20_000)
    outcome, _ = offload_run.run(table, topology, x, **SMALL)
    assert outcome.ok, outcome.first
    heads = [GRADNIC.parse(frame) for *_, frame in outcome.frames]
    asked = [h["seq"] for h in heads if (h["op"], h["p0"]) == (Op.CONTROL, Subtype.PROBE)]
    assert len(asked) == 16 * 2 * 3  # chunks, ways, edges of a tree


@pytest.mark.parametrize("seed", range(4))
def test_probes_of_narrow_ports_may_be_lost_in_a_row(seed):
    """The next one is far off there, and cards that wait for it do not hang."""
    table, topology = plan("mesh:2x2", "multitree")
    x = gradients(4, 1000)
    faults = LinkFaults(loss=0.3, seed=seed)
    outcome, _ = offload_run.run(table, topology, x, faults=faults, **SMALL)
    assert outcome.ok, outcome.first


@pytest.mark.parametrize("codec", offload_run.CODECS)
def test_loss_stays_within_its_bound(codec):
    table, topology = plan("mesh:2x2", "multitree")
    x = gradients(4, 12000)
    outcome, replicas = offload_run.run(
        table, topology, x, codec, faults=WORSE, p=0.1, packet=112, block=64
    )
    assert outcome.ok, outcome.first
    assert outcome.lost <= 0.1
    assert (outcome.lost > 0) == (outcome.n_given_up > 0)
    assert (replicas == replicas[0]).all()
    if codec != "thc":  # there an allowance is less than one packet of 1024 values
        assert outcome.n_given_up


@pytest.mark.parametrize("at_share", [False, True])
def test_ranges_close_by_their_allowance_or_by_the_share(at_share):
    """A chunk of two ranges: half of it is not the 60 % from which on all else may miss, but what
    the first range lacks fits the allowance. With these seeds no PROBE or BITMAP of one is lost.
    """
    table, topology = plan("ring:2", "ring")
    x = gradients(2, 4 * RUN * 64)
    for seed in (1, 2, 3, 5, 7):
        cluster = OffloadCluster(table, topology, x.shape[1], Raw(2), packet=64, p=0.4,
                                 at_share=at_share)  # fmt: skip
        faults = LinkFaults(loss=0.05, delay=20, seed=seed)
        result = cluster.run(x, faults, max_cycles=50_000)
        assert result.cycles is not None
        halves = [0, 0]
        for numbers in result.given_up.values():
            for number in numbers:
                halves[number // RUN % 2] += 1
        assert halves[1]
        assert (halves[0] == 0) == at_share


def test_rounds_follow_each_other():
    """All frames of a round come again in the next, STOPs too, and change nothing."""
    table, topology = plan("ring:2", "ring")
    cluster = OffloadCluster(table, topology, 700, Raw(2), packet=64)
    rng = np.random.default_rng(4)
    for gen in range(1, 5):
        x = gradients(2, 700, seed=gen)
        result = cluster.run(x, WORSE, gen=gen, max_cycles=50_000)
        assert result.cycles is not None
        np.testing.assert_array_equal(result.replicas, [x[0] + x[1]] * 2)
        for frame in 10 * result.frames:
            node = frame[ETHERNET.source.byte - 1]
            port = cluster.books[node][1 - node].port
            cluster.inject(node, port, int(rng.integers(result.cycles)), frame)


def test_each_card_goes_on_when_it_has_finished():
    """Some are in the next round, of another tensor, while others still ask about the last."""
    table, topology = plan("mesh:2x2", "multitree")
    cluster = OffloadCluster(table, topology, 1000, Raw(4), packet=64, t_probe=600)
    faults = LinkFaults(loss=0.2, duplicate=0.1, reorder=150, seed=4)
    rounds = [gradients(4, 1000, seed) for seed in range(4)]
    rng = np.random.default_rng(8)
    n_done, idle, begins = [0] * 4, [True] * 4, rng.integers(1000, size=4)
    replicas = [{} for _ in rounds]
    for now in range(0, 100_000, 100):
        for node, k in enumerate(n_done):
            if idle[node] and k < len(rounds) and now >= begins[node]:
                cluster.start(node, rounds[k][node], gen=0xFFFE + k & 0xFFFF, tensor=1 + k % 2)
                idle[node] = False
        _, done = cluster.advance(faults, max_cycles=100)
        for node in np.flatnonzero((done >= 0) & ~np.array(idle)):
            replicas[n_done[node]][node] = cluster.replica(node)
            n_done[node], idle[node] = n_done[node] + 1, True
            begins[node] = now + rng.choice([0, 1000])
        if min(n_done) == len(rounds):
            break
    assert n_done == [len(rounds)] * 4
    for x, got in zip(rounds, replicas, strict=True):
        want, _ = all_reduce(cluster.plan, cluster.codec, x, np.array, {})
        for replica in got.values():
            np.testing.assert_array_equal(replica.view(np.uint32), want.view(np.uint32))
    assert sum(cluster.counts(node)["not_ready"] for node in range(4)) > 10


def test_sums_under_other_norms_are_refused():
    table, topology = plan("ring:2", "ring")
    codec = Thc(Worker(2, 1, g=30, B=64))
    rng = np.random.default_rng(7)
    n_elems = 2 * codec.unit
    indices = rng.integers(0, 16, (2, n_elems))
    norms = rng.integers(0, 2**31, n_elems // 64, dtype=np.uint32)
    others = norms.copy()
    others[-1] ^= 1 << 19  # the highest bit of a check, of the last packet alone
    for known, right in ((norms, True), (others, False)):
        cluster = OffloadCluster(table, topology, n_elems, codec)
        cluster.agree(0, norms, 64)
        cluster.agree(1, known, 64)
        result = cluster.run(indices, max_cycles=20000)
        assert (result.cycles is not None) == right
        assert any(cluster.counts(node)["config"] for node in range(2)) != right
        heads = [GRADNIC.parse(frame) for frame in result.frames]
        for h in heads:
            if h["op"] in (Op.THC_IDX, Op.THC_SUM):
                mine = (norms, known)[h["src"]]
                number = cluster.plan.number(16 * h["seq"])
                assert h["arg"] & 0xFFFFF == cluster.plan.check(number, mine, 64)
        if right:
            sums = codec.worker.table[indices].sum(axis=0)
            np.testing.assert_array_equal(result.replicas, [sums] * 2)


def test_foreign_frames_pass_untouched():
    table, topology = plan("ring:2", "ring")
    cluster = OffloadCluster(table, topology, 3000, Raw(2))
    rng = np.random.default_rng(5)
    sent = {0: [], 1: []}
    for node in sent:
        port = cluster.books[node][1 - node].port
        for frame in makers.foreign_frames(rng).values():
            if len(frame) < ETHERNET.stop:
                continue
            frame = (0x020000000000 + 1 - node).to_bytes(6, "big") + frame[6:]
            cluster.send(node, port, frame)
            sent[node].append(frame)
    x = gradients(2, 3000)
    result = cluster.run(x)
    np.testing.assert_array_equal(result.replicas, [x[0] + x[1]] * 2)
    for node in sent:
        assert cluster.to_host(1 - node, cluster.books[1 - node][node].port) == sent[node]


def test_a_child_that_never_sends_is_waited_for():
    table, topology = plan("ring:2", "ring")
    cluster = OffloadCluster(table, topology, 700, Raw(2), packet=64)
    result = cluster.run(gradients(2, 700), LinkFaults(loss=0.999, seed=1), max_cycles=20000)
    assert result.cycles is None
    assert [status["done"] for status in result.status] == [0, 0]


def test_a_long_round_takes_the_time_of_its_elements(monkeypatch):
    monkeypatch.setattr(cluster_module, "MOST", 500)
    table, topology = plan("ring:2", "ring")
    cluster = OffloadCluster(table, topology, 1531, Raw(2), packet=64)
    assert cluster.run(gradients(2, 1531)).cycles > 500
    monkeypatch.setattr(cluster_module, "SLOW", 0)
    with pytest.raises(Unfinished, match=r"cards \[0, 1\] are not done after 5\d\d cycles"):
        cluster.run(gradients(2, 1531), gen=2)


def test_a_round_in_which_nothing_moves_is_told():
    table, topology = plan("ring:2", "ring")
    cluster = OffloadCluster(table, topology, 700, Raw(2), packet=64)
    silent = 2
    cluster.call("spoil", 0, 0, 0, 1 << 20, silent)
    with pytest.raises(RuntimeError, match=r"cards \[0, 1\] .* after 6\d{4} cycles: no port waits"):
        cluster.run(gradients(2, 700))


def test_a_card_that_keeps_a_burst_waiting_is_told():
    """It forgets one that it has asked for; a run of so many cycles is not watched."""
    table, topology = plan("ring:2", "ring")
    x, lost = gradients(2, 1531), "memory.landing_reader.asked.valid6"

    def run(**limit):
        cluster = OffloadCluster(table, topology, 1531, Raw(2), packet=64)
        cluster.upset(1, lost, 700)
        return cluster.run(x, **limit)

    with pytest.raises(RuntimeError, match=r"1: landing_read waits for room for 2\d{3} cycles"):
        run()
    assert run(max_cycles=30_000).cycles is None


def test_memory_with_rows_slows_cards_down_and_changes_nothing():
    """DRAM of one channel and of two, slower and faster than a beat each way in each cycle."""
    table, topology = plan("ring:2", "ring")
    cluster = OffloadCluster(table, topology, 4096, Raw(2), packet=112)
    cycles = []
    ideal = Timing()
    slow = Timing(1, 256, 8.0, 1024, 4, 10, 8, 500, 40)
    fast = Timing(2, 256, 24.0, 1024, 4, 10, 8, 500, 40)
    for gen, timing in enumerate((ideal, slow, fast, ideal), start=1):
        cluster.dram(timing, timing)
        x = gradients(2, 4096, seed=gen)
        result = cluster.run(x, gen=gen, max_cycles=50_000)
        np.testing.assert_array_equal(result.replicas, [x[0] + x[1]] * 2)
        cycles.append(result.cycles)
    first, slowest, faster, again = cycles
    assert abs(first - again) < 0.02 * first
    assert slowest > 1.5 * first
    assert faster < 1.2 * first


def test_no_probe_goes_again_before_answers_come_over_long_links():
    faults = LinkFaults(delay=4000)
    outcome, _ = offload_run.cosim("mesh:2x2", "ring", gradients(4, 1000), faults=faults)
    heads = [GRADNIC.parse(frame) for *_, frame in outcome.frames]
    asked = [h["seq"] for h in heads if (h["op"], h["p0"]) == (Op.CONTROL, Subtype.PROBE)]
    assert len(asked) == 4 * 2 * 3  # chunks, ways, edges of a tree


@pytest.mark.parametrize("spelling", ["bigraph:2x2", "dgx:2x2"])
def test_frames_that_meet_between_switches_take_turns(spelling):
    """Pairs of two halves share a link, or one twice as fast, which the network model knows."""
    _, found = offload_run.cosim(spelling, "halving", gradients(4, 8192))
    assert abs(found["model_cycles"] / found["cycles"] - 1) < 0.03
