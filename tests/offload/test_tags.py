"""Importance, marks and pacing of offload cards in RTL: as the golden tagger and pace say."""

from dataclasses import replace

import numpy as np
import pytest
from gradnic.hdl.transport.spray import LEAST_MARKED, ROUND_ROBIN
from gradnic.hdl.transport.tagger import HISTOGRAM, HOST
from gradnic.models.frame.egress import CE
from gradnic.models.frame.ipv4 import gradnic_frame
from gradnic.models.offload.cluster import LinkFaults, all_reduce
from gradnic.models.offload.codec import Inceptionn, Raw
from gradnic.models.schedule.builders import build
from gradnic.models.schedule.builders.rows import compile_table
from gradnic.models.schedule.topology import parse
from gradnic.models.transport import tagger
from gradnic.sim.offload.cluster import GEN, JOB, TENSOR, OffloadCluster

from gradnic.interface.formats import GRADNIC, HEAD_BYTES, IPV4, UDP, Op
from gradnic.interface.offload import Subtype

N = 3000
THRESHOLD = 120


def cards(codec, **options):
    topology = parse("ring:2")
    table = compile_table(build(topology, "ring"))
    return OffloadCluster(table, topology, N, codec, packet=64, **options)


def values(seed):
    rng = np.random.default_rng(seed)
    scale = 2.0 ** rng.integers(-20, 4, (2, N // 60, 1))
    return (rng.standard_normal((2, N // 60, 60)) * scale).reshape(2, N).astype(np.float32)


def tags(frames, node):
    """(header, ToS, payload) of the packets of sums that a node sent, in order."""
    for frame in frames:
        head = GRADNIC.parse(frame)
        if head["src"] == node and head["op"] in (Op.RAW, Op.INC) and not head["ph"]:
            yield head, IPV4.tos.get(frame), frame[HEAD_BYTES:]


@pytest.mark.parametrize("score", ["max", "sum"])
def test_sizes_make_packets_important(score):
    by_sum = score == "sum"
    threshold = 60 if by_sum else THRESHOLD
    cluster = cards(
        Raw(2), layer=3,
        tags={"source": HOST, "threshold": threshold, "by_sum": by_sum, "unit": 110,
              "back_layer_start": 5, "pull_all_important": 1},
    )  # fmt: skip
    rules = tagger.Rules(
        n_layers=8, score=score, unit=110, back_layer_start=5, source="host", n_tensors=1
    )
    golden = tagger.Tagger(rules)
    golden.thresholds[0].value = threshold
    x = values(1)
    result = cluster.run(x, LinkFaults(loss=0.05, seed=2))
    assert (result.replicas == x[0] + x[1]).all()
    seen = set()
    for node in range(2):
        for head, tos, payload in tags(result.frames, node):
            floats = np.frombuffer(payload, "<f4")
            tag = golden.tag(tagger.Packet(0, 3, tagger.PUSH, True, head["elems"]), floats)
            assert (head["imp"], head["lc"], tos) == (tag.important, tag.queue, tag.tos)
            seen.add(tag.important)
    assert seen == {0, 1}
    for frame in result.frames:
        head = GRADNIC.parse(frame)
        if head["ph"] or head["op"] == Op.CONTROL:
            assert head["imp"] == 1


def test_a_round_sets_the_next_threshold():
    rules = {"source": HISTOGRAM, "share": 64, "back_layer_start": 5}
    cluster = cards(Inceptionn(2), tags=rules)
    golden = tagger.Rules(n_layers=8, source="histogram", share=64, back_layer_start=5)
    goldens = [tagger.Tagger(golden) for _ in range(2)]
    for gen in (1, 2, 3):
        x = values(gen)
        frames = [f for f in cluster.run(x, gen=gen).frames if GRADNIC.parse(f)["gen"] == gen]
        important = 0
        for node in range(2):
            for head, _, _ in tags(frames, node):
                at = 16 * head["seq"]
                floats = x[node, at : at + head["elems"]]
                tag = goldens[node].tag(tagger.Packet(0, 0, elems=head["elems"]), floats)
                assert head["imp"] == tag.important, (gen, node, at)
                important += tag.important
            goldens[node].end_round(0)
        assert gen == 1 or 0 < important < 2 * 47


def test_a_paced_card_slows_down_and_is_exact():
    x = values(4)
    fast = cards(Raw(2))
    slow = cards(Raw(2), pace={"rule": 2, "floor": 2048, "step": 256, "low": 10, "high": 20})
    cycles = []
    for cluster in (fast, slow):
        for gen in range(1, 9):  # an answer each round and direction, and the rate falls by 1/8
            result = cluster.run(x, LinkFaults(delay=100), gen=gen)
            assert (result.replicas == x[0] + x[1]).all()
        cycles.append(result.cycles)
    assert cycles[1] > 1.5 * cycles[0]


def test_queues_drop_what_may_be_lost_and_mark_the_rest():
    """Incast through a switch: unimportant packets are dropped, important ones marked and paced."""
    topology = parse("fattree:5x1")  # 5 nodes: as many ranks as the other tests' cards have
    table = compile_table(build(topology, "multitree"))
    rng = np.random.default_rng(7)
    scale = 2.0 ** rng.integers(-20, 4, (5, 320, 1))
    x = (rng.standard_normal((5, 320, 60)) * scale).reshape(5, -1).astype(np.float32)
    found = {}
    for name, tags in (
        ("all", None),
        (
            "some",
            {
                "source": HOST,
                "threshold": THRESHOLD,
                "back_layer_start": 5,
                "pull_all_important": 1,
            },
        ),
    ):
        cluster = OffloadCluster(
            table, topology, x.shape[1], Raw(5), packet=64, tags=tags, p=0.5, t_probe=4000,
            queues=(1 << 20, 600), pace={"rule": 1, "floor": 4096, "step": 512},
        )  # fmt: skip
        result = cluster.run(x, LinkFaults(delay=20))
        assert result.cycles is not None
        golden, _leaves = all_reduce(cluster.plan, Raw(5), x, lambda v: v, result.given_up)
        assert (result.replicas == golden).all()
        found[name] = result
    assert found["all"].dropped == 0
    assert found["all"].marked > 0
    assert found["some"].dropped > 0
    answers = [GRADNIC.parse(f) for f in found["all"].frames]
    assert any(h["op"] == Op.CONTROL and h["p0"] in (2, 3) and h["p1"] for h in answers)
    assert any(h["op"] == Op.CONTROL and h["p0"] in (2, 3) and h["ecn"] for h in answers)


def test_queues_of_cards_drop_and_mark_on_their_way_out():
    """Lines of half the ports' rate: small packets are dropped from the threshold on and made anew,
    large ones are marked, and each frame that a card counts as sent is on the wire.
    """
    tags = {"source": HOST, "threshold": THRESHOLD, "back_layer_start": 5, "pull_all_important": 1}
    cluster = cards(Raw(2), layer=3, tags=tags, queues=(4096, 1024), egress=True, port_bytes=4,
                    thc=False, inc=False)  # fmt: skip
    x = values(6)
    result = cluster.run(x, link_bytes=2, max_cycles=240_000)
    assert (result.replicas == x[0] + x[1]).all()
    assert result.dropped
    assert result.marked
    for node in range(2):
        told = cluster.queued(node).sum(axis=0)
        left = [f for f in result.frames if GRADNIC.src.get(f) == node]
        assert told[..., :2].sum() == len(left)
        assert told[1, :, 1].sum() == sum(IPV4.ecn.get(f) == CE for f in left)
        assert told[0, 3, 2]  # small ones of layer 3
        assert not told[1, :, 2].any()
        assert not told[0, [0, 1, 2, 4, 5, 6, 7]].any()


@pytest.mark.parametrize("rule", [ROUND_ROBIN, LEAST_MARKED])
def test_probes_leave_dead_paths(rule):
    """Half of the paths carry nothing, either way, and never mark a packet: PROBEs that go again
    take others, and all sums end.
    """
    cluster = cards(Raw(2), skew=50, rule=rule)
    x = values(7)
    dead = (0, 2, 3, 7)
    result = cluster.run(x, LinkFaults(delay=20, dead=dead), max_cycles=400_000)
    assert result.cycles is not None
    assert (result.replicas == x[0] + x[1]).all()
    base, lost = cluster.books[0][0].udp_port, 0
    for sent, frame in zip(result.sent, result.frames, strict=True):
        falls = UDP.source_port.get(frame) - base in dead
        assert sent["copies"] == (not falls)
        head = GRADNIC.parse(frame)
        lost += falls and head["op"] == Op.CONTROL and head["p0"] == Subtype.PROBE
    assert lost


def test_a_marked_path_is_left():
    """An answer that echoes congestion on paths 3 and 6: packets take the others from then on."""
    cluster = cards(Raw(2), skew=50, rule=LEAST_MARKED)
    own, other = (cluster.books[0][node] for node in range(2))
    base = own.udp_port
    stop = {"op": Op.CONTROL, "p0": Subtype.STOP, "ecn": 1, "src": 1, "job": JOB}
    stop |= {"tensor": TENSOR, "gen": GEN, "set": GEN & 1}
    for path in (3, 6):
        told = gradnic_frame(replace(other, udp_port=base + path), own, 2, stop, b"")
        cluster.inject(0, other.port, path, told)
    x = values(5)
    result = cluster.run(x, LinkFaults(loss=0.02, delay=20, seed=3))
    assert (result.replicas == x[0] + x[1]).all()
    used, asked = {0: set(), 1: set()}, {}
    for sent, frame in zip(result.sent, result.frames, strict=True):
        head, path = GRADNIC.parse(frame), UDP.source_port.get(frame) - base
        is_probe = head["op"] == Op.CONTROL and head["p0"] == Subtype.PROBE
        if head["op"] == Op.CONTROL and not is_probe:
            assert path == asked[1 - head["src"], head["arg"]]
        elif sent["at"] > 250:
            used[head["src"]].add(path)
        if is_probe:
            asked[head["src"], head["arg"]] = path
    assert used == {0: set(range(8)) - {3, 6}, 1: set(range(8))}
