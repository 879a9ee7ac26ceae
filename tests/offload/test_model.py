"""Golden offload cards: exact under faults, bounded under loss, and nothing trusted."""

import contextlib

import numpy as np
import pytest
from gradnic.models import inceptionn
from gradnic.models.frame.ipv4 import ip_checksum
from gradnic.models.offload.cluster import Cluster, LinkFaults, all_reduce
from gradnic.models.offload.codec import Inceptionn, Norms, Raw, Thc
from gradnic.models.schedule.all_reduce import add
from gradnic.models.schedule.all_reduce import all_reduce as in_order
from gradnic.models.schedule.builders import build
from gradnic.models.schedule.builders.rows import compile_table
from gradnic.models.schedule.topology import parse
from gradnic.models.thc import worker as thc
from gradnic.models.transport.pace import LINE
from gradnic.sim.frame import frames as makers

from gradnic.interface.formats import GRADNIC, IPV4, UDP, Op

HARSH = LinkFaults(loss=0.1, duplicate=0.1, mark=0.2, reorder=30)


def cluster(spelling, algorithm, codec, n, **options):
    topology = parse(spelling)
    table = compile_table(build(topology, algorithm))
    made = Cluster(table, topology, n, codec(topology.n_nodes), **options)
    return made, np.random.default_rng(1).standard_normal((topology.n_nodes, n), np.float32)


def total(made, name):
    return sum(card.counters[name] for card in made.cards)


@pytest.mark.parametrize(
    ("spelling", "algorithm", "n", "packet"),
    [
        ("torus:2x2", "multitree", 5000, 112),
        ("ring:3", "ring", 1000, 352),
        ("ring:5", "ring", 17, 16),
        ("bigraph:2x4", "hdrm", 3000, 48),
        ("hypercube:3", "bfb", 3001, 64),
        ("mesh:2x3", "overlapped", 1000, 16),
    ],
)
def test_without_bound_every_replica_is_exact(spelling, algorithm, n, packet):
    made, x = cluster(spelling, algorithm, Raw, n, packet=packet, spray="least_marked", n_paths=4)
    made.arm(0xFFFF, x)
    made.run(HARSH)
    want = in_order(made.table, x)
    np.testing.assert_array_equal(made.results(0xFFFF).view(np.uint32), want.view(np.uint32))
    assert made.missing(0xFFFF) == 0
    assert total(made, "duplicate") > 0
    assert total(made, "retransmitted") > 0


def test_a_dead_path_holds_nothing_up():
    made, x = cluster("torus:2x2", "multitree", Raw, 5000, packet=112, n_paths=8)
    made.arm(1, x)
    made.run(LinkFaults(dead=(0, 5)))
    want = in_order(made.table, x)
    np.testing.assert_array_equal(made.results(1).view(np.uint32), want.view(np.uint32))
    assert total(made, "retransmitted") > 0


@pytest.mark.parametrize("settings", [{}, {"mode": "paper", "prescale": -2}])
def test_inceptionn_on_a_bigraph(settings):
    made, x = cluster("bigraph:2x8", "hdrm", lambda n: Inceptionn(n, **settings), 6000, packet=336)
    made.arm(1, x)
    made.run(LinkFaults(loss=0.001, seed=5))

    def image(values):
        return inceptionn.image(values, **settings)

    want = in_order(made.table, x, combine=lambda a, b: add(a, image(b)), image=image)
    np.testing.assert_array_equal(made.results(1).view(np.uint32), want.view(np.uint32))


@pytest.mark.parametrize(("n", "w"), [(4, 8), (16, 12)])
def test_thc_along_trees(n, w):
    side = {4: "torus:2x2", 16: "torus:4x4"}[n]
    made, x = cluster(side, "multitree", lambda n: Thc(thc.Worker(n, 42, B=256)), 40_000)
    assert made.codec.w == w
    made.arm(9, x)
    made.run(LinkFaults(loss=0.02, reorder=20))
    worker = made.codec.worker
    norms = np.maximum.reduce([worker.norms(row) for row in x])
    codes = [worker.encode(row, norms, round=9, worker=v, tensor=1) for v, row in enumerate(x)]
    want = worker.decode(sum(worker.table[z] for z in codes), norms, round=9, tensor=1)
    np.testing.assert_array_equal(made.floats(9), np.broadcast_to(want[:40_000], x.shape))
    with pytest.raises(ValueError, match="g must be even where packets may miss, not 15"):
        cluster(side, "multitree", lambda n: Thc(thc.Worker(n, 42, g=15)), 40_000, p=0.1)


def own_values(made, gen):
    return np.stack([card.rounds[1, gen].own for card in made.cards])


@pytest.mark.parametrize(("p", "loss", "seed"), [(0.02, 0.05, 1), (0.3, 0.2, 2), (0.3, 0.2, 3)])
def test_the_bound_holds_end_to_end(p, loss, seed):
    made, x = cluster("torus:3x3", "multitree", Raw, 9000, packet=16, p=p, per_tick=4)
    made.arm(2, x)
    made.run(LinkFaults(loss=loss, reorder=9, seed=seed))
    replicas = made.results(2)
    assert (replicas.view(np.uint32) == replicas[0].view(np.uint32)).all()
    given_up = made.given_up(2)
    want, leaves = all_reduce(made.plan, made.codec, own_values(made, 2), np.array, given_up)
    np.testing.assert_array_equal(replicas[0].view(np.uint32), want.view(np.uint32))
    for card in made.cards:
        np.testing.assert_array_equal(card.rounds[1, 2].leaves, leaves)
        for reception in card.rounds[1, 2].up.values():
            assert reception.lost <= reception.total - reception.need
    assert 0 < made.missing(2) <= p


def test_the_acceptance_run_of_five_papers():
    """Trees, integer sums, losses: what is given up decodes to zero, the same everywhere."""
    made, x = cluster(
        "torus:4x4", "multitree", lambda n: Thc(thc.Worker(n, 42, B=64), C=64), 20_000, p=0.02,
        n_paths=8, per_tick=4, spray="random",
    )  # fmt: skip
    made.arm(4, x)
    made.run(LinkFaults(loss=0.01, reorder=9, seed=2))
    given_up = made.given_up(4)
    want, _leaves = all_reduce(made.plan, made.codec, own_values(made, 4), np.array, given_up)
    assert (made.results(4) == want).all()
    assert 0 < made.missing(4) <= 0.02
    floats, mean = made.floats(4)[0], x.mean(axis=0)
    assert np.square(floats - mean).sum() < 0.06 * np.square(mean).sum()


def test_the_root_scales_up_what_is_left():
    made, x = cluster("ring:3", "ring", lambda n: Raw(n, rescale=True), 3000, packet=16, p=0.5)
    x[:] = 2.0
    made.arm(0, x)
    made.run(LinkFaults(loss=0.3))
    assert made.missing(0) > 0.02
    assert (made.results(0) == 6).all()


def test_a_round_that_is_not_armed_waits():
    made, x = cluster("ring:3", "ring", Raw, 500)
    for v in (0, 2):
        made.arm_one(v, 7, x[v])
    made.run(LinkFaults(), late={300: lambda: made.arm_one(1, 7, x[1])})
    np.testing.assert_array_equal(made.results(7), in_order(made.table, x))
    assert made.cards[1].counters["not_ready"] > 0
    assert sum(made.cards[1].counters[name] for name in ("stale", "config")) == 0


def test_rounds_follow_each_other_and_late_copies_are_stale():
    made, x = cluster("torus:2x2", "multitree", Raw, 2000, packet=64)
    faults = LinkFaults(duplicate=0.5, loss=0.1, reorder=40)
    for gen in (0xFFFE, 0xFFFF, 0, 1):
        made.arm(gen, x + np.float32(gen % 5))
        while not all(card.idle() for card in made.cards):
            with contextlib.suppress(RuntimeError):  # a step at a time: copies stay on the wire
                made.run(faults, limit=made.now + 1)
        want = in_order(made.table, x + np.float32(gen % 5))
        np.testing.assert_array_equal(made.results(gen), want)
        for card in made.cards:
            card.release(1, gen)
    assert total(made, "stale") > 0
    made.arm(5, x)
    made.arm(6, x)
    with pytest.raises(ValueError, match=r"has rounds \[5, 6\]: cannot arm 7"):
        made.arm(7, x)


def one_packet():
    """A cluster of two cards' worth of state, and a good frame from card 0 to card 1."""
    made, x = cluster("ring:3", "ring", Raw, 500, packet=64)
    made.arm(6, x)
    sent = made.cards[0].tick(0) + made.cards[0].tick(1)
    port = made.cards[1].settings.peers[0].port
    return made.cards[1], port, sent[0][1]


def changed(frame, **fields):
    frame = bytearray(frame)
    for name, value in fields.items():
        GRADNIC[name].put(frame, value)
    return bytes(frame)


@pytest.mark.parametrize(
    ("fields", "reason"),
    [
        ({"op": 9}, "format"),
        ({"set": 1}, "format"),
        ({"src": 2}, "owner"),
        ({"tensor": 2}, "config"),
        ({"op": Op.INC}, "config"),
        ({"op": Op.THC_SUM}, "config"),
        ({"tree": 1}, "config"),
        ({"slot": 9}, "config"),
        ({"seq": 1}, "config"),
        ({"seq": 1 << 20}, "config"),
        ({"elems": 63}, "length"),
        ({"arg": 0}, "config"),
        ({"arg": 2 << 20}, "config"),
        ({"arg": 1 << 20 | 1}, "config"),
        ({"ph": 1}, "early"),
        ({"gen": 5, "set": 1}, "stale"),
        ({"gen": 7, "set": 1}, "not_ready"),
    ],
)
def test_wrong_fields_change_nothing(fields, reason):
    card, port, frame = one_packet()
    card.receive(changed(frame, **fields), port, 0)
    assert {k: v for k, v in card.counters.items() if v} == {reason: 1}
    round_ = card.rounds[1, 6]
    assert not any(r.here.any() for r in [*round_.up.values(), *round_.down.values()])
    card.receive(frame, port, 0)
    card.receive(frame, port, 0)
    assert (card.counters["data"], card.counters["duplicate"]) == (1, 1)


def test_damaged_and_foreign_frames():
    card, port, frame = one_packet()
    card.receive(frame, port, 0, bad=True)
    card.receive(frame[:-1], port, 0)
    card.receive(frame[:24] + b"\0\0" + frame[26:], port, 0)
    card.receive(frame, 1 - port, 0)
    assert {k: v for k, v in card.counters.items() if v} == {
        "bad": 1, "length": 1, "checksum": 1, "owner": 1,
    }  # fmt: skip
    stranger = bytearray(frame)  # a server's answer to a host's socket, whose bytes fit
    IPV4.source.put(stranger, 0x08080808)
    foreign = [b"\xff" * 60, changed(frame, job=8), frame[:36] + b"\0\1" + frame[38:]]
    foreign += [changed(frame, ver=2), makers.refreshed(stranger)]
    foreign += makers.replies(np.random.default_rng(1)).values()
    for other in foreign:
        assert card.receive(other, 0, 0) == []
    assert card.to_host == [(0, other) for other in foreign]


def test_a_probe_of_another_range_is_refused():
    card, port, frame = one_packet()
    number = card.rounds[1, 6].tensor.plan.number(16 * GRADNIC.seq.get(frame))
    probe = bytearray(changed(frame[:64], op=15, p0=1, seq=number, elems=65535))
    IPV4.total_length.put(probe, 50)
    UDP.length.put(probe, 30)
    IPV4.checksum.put(probe, ip_checksum(probe[14:34]))
    assert card.receive(bytes(probe), port, 0) == []
    assert card.counters["config"] == 1
    (answer,) = card.receive(changed(probe, elems=1), port, 0)
    assert GRADNIC.p0.get(answer[1]) & 15 == 2


def test_importance_follows_the_partial_sums():
    made, x = cluster("ring:3", "ring", Raw, 3000, packet=16, p=0.2, source="histogram", per_tick=8)
    x *= np.repeat(np.float32(2.0) ** np.resize([0, 0, -12], 188), 16)[:3000]
    for gen in (0, 1):
        made.arm(gen, x)
        made.run(LinkFaults())
        runs = [r for card in made.cards for r in card.rounds[1, gen].runs if not r.ph]
        marks = np.array([packet.important for run in runs for packet in run.packets])
        small = np.array([abs(p.values).max() < 2**-8 for run in runs for p in run.packets])
        assert marks.mean() >= 0.5
        assert marks[small].all() if gen == 0 else not marks[small].any()
        for card in made.cards:
            card.release(1, gen)


def test_marks_and_long_round_trips_slow_the_sender_down():
    times, rates = {}, {}
    for pace in ("off", "ce", "rtt"):
        made, x = cluster("ring:3", "ring", Raw, 40_000, segment=8, pace=pace, low=5, high=15)
        made.arm(1, x)
        times[pace] = made.run(LinkFaults(mark=0.5, delay=10))
        np.testing.assert_array_equal(made.results(1), in_order(made.table, x))
        rates[pace] = min(p.rate for card in made.cards for p in card.paces.values())
    assert rates["ce"] < rates["off"] == LINE > rates["rtt"]
    assert times["off"] < min(times["ce"], times["rtt"])


def test_norms_take_the_largest_bits():
    norms = Norms()
    a, b = np.float32([1, 0, np.inf]).view(np.uint32), np.float32([0.5, 2, 3]).view(np.uint32)
    assert norms.add(a, b).view(np.float32).tolist() == [1, 2, np.inf]


@pytest.mark.parametrize(
    ("codec", "values", "words"),
    [
        (Norms(), np.float32([1.5]), "values must be uint32, not float32"),
        (Raw(2), np.array([0x3F800000], np.uint32), "values must be float32, not uint32"),
        (Inceptionn(2), np.array([1]), "values must be float32, not int64"),
    ],
)
def test_values_of_another_kind_are_refused(codec, values, words):
    with pytest.raises(ValueError, match=words):
        codec.own(values)
