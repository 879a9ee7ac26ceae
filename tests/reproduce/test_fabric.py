"""The packet model: switches against the golden egress rule, flows against what a link can do."""

import numpy as np
import pytest
from gradnic.models.frame.egress import Egress
from gradnic.sim.reproduce.congestion import COME, WARM, Others, dead_links, mean_size, sizes
from gradnic.sim.reproduce.fabric import (
    CONTROL,
    FRAME,
    Fabric,
    Fifo,
    Packet,
    Priorities,
    Shortest,
    Trimming,
    Word,
)
from gradnic.sim.reproduce.fat_tree import FatTree
from gradnic.sim.reproduce.transports import PAYLOAD, Bounded, Dctcp, Pfabric

from gradnic.interface.formats import IPV4

LIMITS = {"thresholds": (3, 4, 6, 6, 7, 8, 8, 9), "limit": 12}


def frame(important):
    """An IPv4 frame with the ECN field that the tagger gives a packet."""
    head = bytearray(64)
    head[12:15] = 0x08, 0x00, 0x45
    head[15] = 2 if important else 0
    return bytes(head)


def test_priorities_decide_as_the_golden_egress():
    """Random arrivals and departures: taken, dropped, marked and next, one by one."""
    rng = np.random.default_rng(7)
    ours = Priorities(**LIMITS)
    golden = Egress(LIMITS["thresholds"], LIMITS["limit"], cell=64)
    for _ in range(4000):
        if rng.random() < 0.6:
            queue, important = int(rng.integers(8)), bool(rng.random() < 0.5)
            packet = Packet(None, 0, (), queue, important, 0)
            assert ours.put(packet) == golden.enqueue(frame(important), queue, int(important))
        else:
            packet, theirs = ours.get(), golden.dequeue()
            assert (packet is None) == (theirs is None)
            if packet is not None:
                queue, bits = theirs
                assert packet.queue == queue
                assert packet.marked == (IPV4.ecn.get(bits) == 3)


def test_dctcp_marks_above_k_and_drops_at_the_limit():
    queue = Fifo(threshold=2, limit=4)
    packets = [Packet(None, i, (), 0, True, 0) for i in range(5)]
    assert [queue.put(p) for p in packets] == [True, True, True, True, False]
    assert [p.marked for p in packets] == [False, False, True, True, False]
    assert [queue.get().number for _ in range(4)] == [0, 1, 2, 3]
    assert queue.get() is None


def test_pfabric_keeps_the_shortest():
    queue = Shortest(limit=2)
    packets = [Packet(None, i, (), 0, True, remaining) for i, remaining in enumerate((9, 3, 5, 7))]
    assert [queue.put(p) for p in packets] == [True, True, True, False]
    assert [queue.get().remaining for _ in range(2)] == [3, 5]


def test_trimming_cuts_what_would_be_dropped():
    queue = Trimming(**LIMITS, heads=2)
    whole = [Packet(None, i, (), 0, True, 0) for i in range(12)]
    assert all(queue.put(p) and not p.trimmed for p in whole)
    late = [Packet(None, 12 + i, (), 0, True, 0) for i in range(3)]
    assert not queue.put(Word((), 0, None, ()))
    assert [queue.put(p) for p in late] == [True, True, False]
    assert [(p.trimmed, p.n_bytes) for p in late[:2]] == [(True, CONTROL)] * 2
    assert [queue.get().number for _ in range(3)] == [12, 13, 0]
    assert queue.put(late[0])  # at the next switch: a head stays one
    assert queue.get() is late[0]


def test_trimmed_packets_are_asked_for_at_once():
    """Seven into one, half of the packets important: 40 fit a queue; heads bring back the rest."""
    pairs = [(i, 7) for i in range(7)]
    important = np.arange(20) % 2 == 0
    dropped, _, _ = finish(Priorities, Bounded, pairs, 20 * 1408, important=important)
    seconds, fabric, flows = finish(Trimming, Bounded, pairs, 20 * 1408, important=important)
    assert fabric.dropped == 0
    assert sum(run.n_again for flow in flows for run in flow.runs) > 0
    assert all(flow.reception.here.all() for flow in flows)
    assert max(seconds) < 0.95 * max(dropped)
    *_, flows = finish(Trimming, Bounded, pairs, 100 * 1408, p=0.1)
    assert max(1 - flow.reception.n_bytes / flow.n_bytes for flow in flows) > 0


def finish(make, kind, pairs, n_bytes, spines=2, **options):
    """Seconds of flows that start together, in a network of two leaves with four hosts each."""
    fabric = Fabric(2, 4, spines, make)
    flows = [kind(fabric, a, b, n_bytes, seed=i, **options) for i, (a, b) in enumerate(pairs)]
    for flow in flows:
        fabric.at(0.0, flow.start)
    fabric.run(lambda: sum(flow.done is None for flow in flows))
    return [flow.seconds for flow in flows], fabric, flows


KINDS = [(Fifo, Dctcp), (Shortest, Pfabric), (Priorities, Bounded)]


@pytest.mark.parametrize(("make", "kind"), KINDS)
@pytest.mark.parametrize("to", [1, 5])
def test_a_lone_flow_takes_the_line(make, kind, to):
    """1,000 packets alone: at least the wire's time, and little more once windows have opened.

    Ours over two spines: a PROBE goes behind the last packet of its run, and nothing goes again.
    """
    n = 1000
    (seconds,), fabric, (flow,) = finish(make, kind, [(0, to)], n * 1408)
    wire = n * FRAME * 8 / 100e9
    assert fabric.dropped == 0
    assert wire < seconds < 1.6 * wire
    if kind is Bounded:
        assert sum(run.n_again for run in flow.runs) == 0
        assert seconds < 1.15 * wire


def test_dctcp_sends_whole_packets_and_cuts_once_a_window():
    """RFC 8257, 3.3: windows end behind what was sent as they began."""
    flow = Dctcp(Fabric(1, 2, 1, Fifo), 0, 1, 100 * PAYLOAD)
    flow.start()
    windows, alphas = [flow.window], [flow.alpha]
    for number in range(21):  # 20 are sent when the sixth answer is the first mark
        flow._ack(number, marked=number > 4)
        windows.append(flow.window)
        alphas.append(flow.alpha)
        assert number not in range(13, 20) or flow.flying == 7  # of 7.97: no part of one goes
    assert alphas[:11] == [1] + 10 * [15 / 16]  # of the first answer, and from 11 on of ten
    assert alphas[11] == (15 / 16) ** 2 + 6 / 10 / 16
    assert windows[6:21] == 15 * [15 * (1 - 15 / 32)]
    assert windows[21] < windows[20]  # the first of what was sent behind the cut


@pytest.mark.parametrize(("make", "kind"), KINDS)
def test_three_into_one_share_a_link(make, kind):
    """No faster than the link; everything arrives, though packets are dropped on the way."""
    pairs = [(0, 7), (1, 7), (4, 7)]
    seconds, _, flows = finish(make, kind, pairs, 300 * 1408)
    assert max(seconds) > 3 * 300 * FRAME * 8 / 100e9
    for flow in flows:
        here = flow.reception.here if kind is Bounded else np.frombuffer(flow.here, np.uint8)
        assert here.all()


def test_a_bound_lets_a_flow_end_without_all():
    pairs = [(0, 7), (1, 7), (2, 7), (4, 7)]
    _, _, flows = finish(Priorities, Bounded, pairs, 400 * 1408, p=0.1)
    missing = [1 - flow.reception.n_bytes / flow.n_bytes for flow in flows]
    assert all(0 <= m <= 0.1 for m in missing)
    assert max(missing) > 0


def test_important_packets_are_not_dropped_above_the_threshold():
    pairs = [(0, 7), (1, 7)]
    important = np.ones(60, bool)
    _, fabric, _ = finish(Priorities, Bounded, pairs, 60 * 1408, important=important)
    assert fabric.dropped == 0  # 120 packets fit the limit of 250
    _, fabric, _ = finish(Priorities, Bounded, pairs, 60 * 1408, important=~important)
    assert fabric.dropped > 0


def test_a_run_that_cannot_end_says_so():
    fabric = Fabric(1, 2, 1, Fifo)
    with pytest.raises(RuntimeError, match="do not end"):
        fabric.run(lambda: 1)


@pytest.mark.parametrize(("make", "kind"), KINDS)
def test_flows_go_round_links_that_are_down(make, kind):
    """Leaf 0 lost spine 1, leaf 1 spine 2: spines 0 and 3 are left between them."""
    fabric = Fabric(2, 4, 4, make, dead=(0 * 4 + 1, 1 * 4 + 2))
    assert fabric.ways(0, 7) == [0, 3]
    assert fabric.ways(0, 1) == [0]
    used, port = set(), fabric.queues
    pairs = [(i, 7 - i) for i in range(4)] + [(7 - i, i) for i in range(4)]
    flows = [kind(fabric, a, b, 50 * PAYLOAD, seed=i) for i, (a, b) in enumerate(pairs)]
    for at in range(8, 24):  # leaves to spines, spines to leaves
        port[at].put = lambda packet, at=at, put=port[at].put: used.add(at) or put(packet)
    for flow in flows:
        fabric.at(0.0, flow.start)
    fabric.run(lambda: sum(flow.done is None for flow in flows))
    assert used == {8, 11, 12, 15, 16, 17, 22, 23}
    with pytest.raises(ValueError, match="no way is left between hosts 0 and 7"):
        Fabric(2, 4, 2, make, dead=(0 * 2 + 1, 1 * 2 + 0)).ways(0, 7)


@pytest.mark.parametrize(("make", "kind"), KINDS)
def test_links_that_go_down_while_flows_run(make, kind):
    """Spine 1 of two falls at 10 us, and all know at 500: who has one path waits till then;
    ours goes round at once, with half of its packets and other ways for its PROBEs.
    """
    pairs = [(i, 4 + i) for i in range(4)]
    n = 200
    fabric = Fabric(2, 4, 2, make)
    flows = [kind(fabric, a, b, n * PAYLOAD, seed=i) for i, (a, b) in enumerate(pairs)]
    for flow in flows:
        fabric.at(0.0, flow.start)
    fabric.fail([0 * 2 + 1, 1 * 2 + 1], 10e3, 500e3)
    fabric.run(lambda: sum(flow.done is None for flow in flows))
    seconds = [flow.seconds for flow in flows]
    assert fabric.dropped > 0
    if kind is Bounded:
        assert max(seconds) < 500e-6
    else:
        assert min(seconds) < 200e-6  # those that the hash put over spine 0
        assert max(seconds) > 500e-6


def test_paths_of_a_fat_tree():
    """Every way is a path of links that meet: each switch by what its ports lead to."""
    tree = FatTree(4, Fifo)
    assert (tree.n_hosts, tree.n_links) == (16, 32)
    assert [len(tree.ways(0, to)) for to in (1, 2, 4, 15)] == [1, 2, 4, 4]
    ends = {}  # link: the switches at its ends
    for edge in range(8):
        for above in range(2):
            ends[edge * 2 + above] = ("edge", edge), ("above", edge // 2, above)
    for pod in range(4):
        for above in range(2):
            for core in range(2):
                ends[16 + (2 * pod + above) * 2 + core] = (
                    ("above", pod, above),
                    ("core", above, core),
                )
    from_to = {}
    for link, (low, high) in ends.items():
        up, down = tree.ports(link)
        from_to[up], from_to[down] = (low, high), (high, low)
        names = low[1], 8 + 2 * high[1] + high[2] if high[0] == "above" else None
        if low[0] == "above":
            names = 8 + 2 * low[1] + low[2], 16 + 2 * high[1] + high[2]
        assert tree.ends(link) == names
    assert len(from_to) == 64
    for source in range(16):
        for to in set(range(16)) - {source}:
            paths = {tree.path(source, to, way) for way in tree.ways(source, to)}
            assert len(paths) == len(tree.ways(source, to))
            for first, *middle, last in paths:
                assert first == source
                assert last == tree.n_hosts + 64 + to
                at = "edge", source // 2
                for port in middle:
                    assert from_to[port][0] == at
                    at = from_to[port][1]
                assert at == ("edge", to // 2)
    with pytest.raises(ValueError, match="k must be even and at least 2, not 5"):
        FatTree(5, Fifo)


@pytest.mark.parametrize(("make", "kind"), KINDS)
def test_a_fat_tree_carries_all_at_once(make, kind):
    """Every host sends to the one half the tree away: no faster than the line, and all arrives."""
    fabric = FatTree(4, make)
    flows = [kind(fabric, i, (i + 8) % 16, 200 * PAYLOAD, seed=i) for i in range(16)]
    for flow in flows:
        fabric.at(0.0, flow.start)
    fabric.run(lambda: sum(flow.done is None for flow in flows))
    wire = 200 * FRAME * 8 / 100e9
    assert all(flow.seconds > wire for flow in flows)
    if kind is Bounded:  # flows on one path each take 3.3 to 3.9 times that
        assert max(flow.seconds for flow in flows) < 2.5 * wire


def test_dead_links_are_so_many_and_the_same_each_time():
    dead = dead_links(144, 0.1)
    assert len(set(dead)) == 14
    assert all(0 <= link < 144 for link in dead)
    assert dead == dead_links(144, 0.1) != dead_links(144, 0.2)
    assert not dead_links(144, 0.0)


def test_others_bring_the_load_that_was_asked_for():
    """Over many seeds: a web search's sizes are as heavy in the tail as they are published."""
    drawn = sizes(np.random.default_rng(1), 200_000)
    assert drawn.mean() == pytest.approx(mean_size(), rel=0.02)
    assert (drawn <= 33).mean() == pytest.approx(0.4, abs=0.01)
    n_packets = []
    for seed in range(40):
        fabric = Fabric(4, 8, 8, Fifo)
        fabric.send = lambda packet: None  # they begin, and nothing moves
        others = Others(fabric, "DCTCP", 0.4, seed=seed)
        fabric.at(COME + WARM, lambda: None)
        fabric.run(lambda fabric=fabric: fabric.now < COME + WARM)
        n_packets += [flow.n_packets for flow in others.flows]
    offered = sum(n_packets) * fabric.time / (40 * COME * fabric.n_hosts)
    assert offered == pytest.approx(0.4, rel=0.1)


@pytest.mark.parametrize(("kind", "queue"), [("DCTCP", 0), ("ours", 7), ("pFabric", 0)])
def test_others_leave_our_queues_first(kind, queue):
    fabric = Fabric(1, 4, 1, Fifo)
    others = Others(fabric, kind, 0.5)
    fabric.run(lambda: not others.flows)
    assert others.flows[0].queue == queue
    assert isinstance(others.flows[0], Pfabric if kind == "pFabric" else Dctcp)
