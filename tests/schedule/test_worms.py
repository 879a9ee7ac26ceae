"""Buffers of switches that fill: beside a network of flits, and by hand."""

import heapq
import itertools
from collections import deque
from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest
from gradnic.models.schedule.builders import build
from gradnic.models.schedule.builders.rows import compile_table
from gradnic.models.schedule.network_model import Network, simulate
from gradnic.models.schedule.topology import Topology, parse
from gradnic.models.schedule.traffic import Traffic
from gradnic.models.schedule.worms import DONE, HEAD, PART, RELEASE, Worms

FLIT = 16
PLAIN = Network(start=0, issue=0, receive=0, add=0, block=0, reduce_per_cycle=1 << 20)


def flits(table, topology, n_bytes, network, *, channels=False, by_flit=False):
    """Cycles of the whole table, flit by flit, by rules that fit on a page.

    Links carry whole flits, as many a cycle as their bandwidth. A message takes a link with as many
    of these as the narrowest of its path has, in order of heads, and keeps them to its last flit.
    Each link has a buffer at its end, and credits: a flit spends one as it leaves, and it returns a
    latency after the flit has gone on, at the earliest a cycle after it came, and at nodes at once.
    Any flit in a buffer may go on, if its message has the link ahead.
    channels : a virtual one for each hop of a path, with messages, credits and a buffer of its own,
    and a link of one flit a cycle carries what can go on of the message whose head came first.
    by_flit : channels take turns instead, flit by flit.
    """
    t = Traffic(table, topology, n_bytes // 4)
    latency = topology.latencies(network.link_latency).astype(int).tolist()
    width = topology.bandwidth.astype(int).tolist()
    size = np.ceil(network.wire_bytes(t.floats, t.is_reduce) / FLIT).astype(int).tolist()
    paths = [t.paths[p] for p in t.path]
    rate = [min(width[link] for link in path) for path in paths]
    n_links, n_channels = topology.n_links, max(map(len, paths)) if channels else 1
    credits = [[network.buffer // FLIT * n] * n_channels for n in width]
    flying = [deque() for _ in range(n_links)]  # (when, message, hop, flits)
    back = [deque() for _ in range(n_links)]  # (when, channel, credits)
    line = [[deque() for _ in range(n_channels)] for _ in range(n_links)]  # (message, hop) whose
    # head waits for the link
    queue = [deque() for _ in range(n_links)]  # the sender's messages, in table order
    has = [[[] for _ in range(n_channels)] for _ in range(n_links)]  # (message, hop) it has
    came, latest = {}, [0] * n_links  # when heads came; the channel that sent last
    here = {}  # (message, hop): flits that may go on over this hop
    left = {}  # (message, hop): flits that have yet to
    for m, path in enumerate(paths):
        queue[path[0]].append(m)
    need, turn = t.need.tolist(), t.first_rows.tolist()
    ends = [*turn[1:], len(need)]
    ready, done, finish = set(), 0, 0

    def supply(source):
        for i in range(t.feed_start[source], t.feed_start[source + 1]):
            need[t.feeds[i]] -= t.feed_count[i]

    def issue(now):
        nonlocal done, finish
        found = True
        while found:
            found = False
            for v in range(t.n_nodes):
                while turn[v] < ends[v] and not need[turn[v]]:
                    row, found = turn[v], True
                    turn[v] += 1
                    if t.terminal_source[row] >= 0:
                        finish = max(finish, now + 1)
                        supply(t.terminal_source[row])
                    for m in range(t.send_start[row], t.send_start[row + 1]):
                        ready.add(m)
                        if not size[m]:  # of chunks without floats
                            queue[paths[m][0]].remove(m)
                            done += 1
                            supply(m)

    now = 0
    while True:
        heads = []
        for link in range(n_links):
            while back[link] and back[link][0][0] <= now:
                _, channel, n = back[link].popleft()
                credits[link][channel] += n
            while flying[link] and flying[link][0][0] <= now:
                _, m, hop, n = flying[link].popleft()
                path = paths[m]
                if hop + 1 == len(path):
                    back[link].append((now - 1 + latency[link], hop * channels, n))
                    left[m, "end"] = left.get((m, "end"), size[m]) - n
                    if not left[m, "end"]:
                        done += 1
                        finish = max(finish, now)
                        supply(m)
                    continue
                if (m, hop + 1) not in left:
                    left[m, hop + 1] = size[m]
                    heads.append((m, hop + 1))
                here[m, hop + 1] = here.get((m, hop + 1), 0) + n
        for m, hop in sorted(heads):
            line[paths[m][hop]][hop * channels].append((m, hop))
            came[m, hop] = now, m
        issue(now)
        if done == len(paths):
            return finish
        for link in range(n_links):
            for waits, taken in zip(line[link], has[link], strict=True):
                room = width[link] - sum(rate[m] for m, _ in taken)
                while waits and room >= rate[waits[0][0]]:
                    taken.append(waits.popleft())
                    room -= rate[taken[-1][0]]
                while taken is has[link][0] and not waits and queue[link]:
                    m = queue[link][0]
                    if m not in ready or room < rate[m]:
                        break
                    queue[link].popleft()
                    taken.append((m, 0))
                    came[m, 0] = now, -1
                    left[m, 0] = here[m, 0] = size[m]
                    room -= rate[m]
            found = sorted(itertools.chain(*has[link]), key=came.get)
            if by_flit:
                found.sort(key=lambda one: (one[1] - latest[link] - 1) % n_channels)
            free = width[link]
            for m, hop in found:
                channel = hop * channels
                n = min(rate[m], here[m, hop], credits[link][channel], free)
                if not n:
                    continue
                free -= n
                here[m, hop] -= n
                left[m, hop] -= n
                credits[link][channel] -= n
                flying[link].append((now + 1 + latency[link], m, hop, n))
                latest[link] = hop
                if hop:
                    before = paths[m][hop - 1]
                    back[before].append((now + latency[before], (hop - 1) * channels, n))
                if not left[m, hop]:
                    has[link][channel].remove((m, hop))
        if not any(flying) and not any(back):
            raise RuntimeError(f"nothing moves after {now} cycles")
        now += 1


def machine(rng):
    """Nodes on up to three switches, with trunks that are as fast as nodes' links or faster."""
    while True:
        n, n_switches = int(rng.integers(2, 7)), int(rng.integers(1, 4))
        pairs = [(v, n + int(rng.integers(n_switches))) for v in range(n)]
        trunks = [pair for pair in itertools.combinations(range(n, n + n_switches), 2)
                  if rng.random() < 0.8]  # fmt: skip
        speed = [1] * n + rng.choice([1, 1, 2, 3], len(trunks)).tolist()
        links = np.array(pairs + trunks + [(b, a) for a, b in pairs + trunks])
        try:
            return Topology("random", n, n_switches, links, speed * 2, ports=1)
        except ValueError:
            continue


@pytest.mark.parametrize("first", range(0, 40, 10))
def test_cycles_are_those_of_a_network_of_flits(first):
    """On switches with full buffers, worms that wait for each other, and credits that run out."""
    ratios, held = [], 0
    for seed in range(first, first + 10):
        rng = np.random.default_rng(seed)
        topology = machine(rng)
        algorithm = str(rng.choice(["ring", "bidirectional", "multitree", "forest", "dbtree"]))
        try:
            table = compile_table(build(topology, algorithm))
        except ValueError:
            continue  # does not fit
        n_bytes = int(rng.choice([4000, 16000]))
        latency, buffer = int(rng.choice([0, 3, 20])), int(rng.choice([320, 640, 2048]))
        network = replace(PLAIN, link_latency=latency, buffer=buffer)
        expected = flits(table, topology, n_bytes, network)
        got = simulate(table, topology, n_bytes, network).cycles
        assert abs(got / expected - 1) < 0.01, (seed, algorithm, expected, got)
        ratios.append(got / expected)
        free = simulate(table, topology, n_bytes, replace(network, buffer=1 << 20)).cycles
        held += free != got
    assert held >= 2
    assert abs(np.mean(ratios) - 1) < 0.002
    assert sum(ratio == 1 for ratio in ratios) > len(ratios) / 2


@pytest.mark.parametrize(
    ("spelling", "algorithm", "buffer"),
    [
        ("dgx:4x1", "bidirectional", 640),
        ("dgx:4x1", "halving", 640),
        ("dgx:2x2", "multitree", 640),
        ("fattree:2x2", "bidirectional", 5088),
        ("bigraph:2x2", "bidirectional", 1280),
        ("dragonfly:2x1x2", "multitree", 640),
    ],
)
def test_cycles_are_those_of_flits_to_one(spelling, algorithm, buffer):
    topology = parse(spelling)
    table = compile_table(build(topology, algorithm))
    network = replace(PLAIN, link_latency=10, buffer=buffer)
    got = simulate(table, topology, 32 << 10, network).cycles
    assert got == flits(table, topology, 32 << 10, network)


def test_worms_that_wait_in_a_circle_take_virtual_channels():
    """Four switches in a ring, two nodes each: with one buffer a link nothing moves any more."""
    pairs = [(v, 8 + v // 2) for v in range(8)] + [(8 + a, 8 + (a + 1) % 4) for a in range(4)]
    topology = Topology("ring of switches", 8, 4, np.array(pairs + [p[::-1] for p in pairs]))
    table = compile_table(build(topology, "halving"))
    network = replace(PLAIN, link_latency=3, buffer=160)
    with pytest.raises(RuntimeError, match="nothing moves after 1837 cycles"):
        flits(table, topology, 16000, network)
    one, other = (
        simulate(table, topology, 16000, network, compiled=compiled) for compiled in (False, True)
    )
    assert one == other
    free = simulate(table, topology, 16000, replace(network, buffer=1 << 20)).cycles
    assert free < one.cycles < 1.3 * free
    assert one.cycles == pytest.approx(
        flits(table, topology, 16000, network, channels=True), rel=0.001
    )
    # turns by flit slow the worms that share a link, and what waits for their ends: not modelled
    assert flits(table, topology, 16000, network, channels=True, by_flit=True) > 1.2 * one.cycles


@pytest.mark.parametrize(
    ("spelling", "algorithm", "n_bytes", "latency", "buffer"),
    [
        ("dragonfly:2x1x2", "forest", 32000, 20, 5088),
        ("dragonfly:3x1x1", "dbtree", 36000, 20, 5088),
        ("dragonfly:2x1x2", "bidirectional", 32000, 20, 5088),
        ("dragonfly:2x2x2", "multitree", 48000, 3, 640),
        ("dragonfly:2x1x2", "multitree", 32000, 3, 320),
    ],
)
def test_channels_of_dragonflies_are_those_of_flits_to_one(
    spelling, algorithm, n_bytes, latency, buffer
):
    topology = parse(spelling)
    table = compile_table(build(topology, algorithm))
    network = replace(PLAIN, link_latency=latency, buffer=buffer)
    got = simulate(table, topology, n_bytes, network).cycles
    assert got == flits(table, topology, n_bytes, network, channels=True)


def alone(paths, sizes, *, buffer, width=1.0, latency=10):
    """Cycles at which messages are done that start at once, in turn where they share a link, at one
    flit a cycle; buffer : flits. width : flits a cycle of link 0.
    """
    events, done = [], {}
    n = max(itertools.chain(*paths)) + 1
    lines = [sum(path[0] == place for path in paths) for place in range(n)]
    first = [path[0] for path in paths]
    ends = {path[-1] for path in paths}
    speed = [FLIT * width] + [float(FLIT)] * (n - 1)
    state = SimpleNamespace(
        traffic=SimpleNamespace(
            paths=paths, path=np.arange(len(paths)), n_places=n, queue_lengths=lines,
            position=np.array([first[:m].count(first[m]) for m in range(len(paths))]),
        ),
        pools=paths,
        pool_size=[np.inf if place in ends else buffer * speed[place] for place in range(n)],
        pool_grain=[0.0] * n, mixed=[False] * n, latency=[latency] * n, room=speed,
        round_trip=[0] * n, receive=0,
        network=replace(PLAIN, link_latency=latency), wire=FLIT * np.array(sizes, float),
        cycles=np.array(sizes), rate=[float(FLIT)] * len(paths), credits=[0.0] * n,
    )  # fmt: skip
    worms = Worms(state, lambda event: heapq.heappush(events, event), lambda *_: None)
    for m in range(len(paths)):
        worms.ready(m, 0)
    while events:
        now, kind, m, *where = heapq.heappop(events)
        if kind == DONE:
            done[m] = now
        else:
            {RELEASE: worms.release, PART: worms.part, HEAD: worms.head}[kind](
                *([] if kind == RELEASE else [m]), *where, now
            )
    return [done[m] for m in range(len(paths))]


def test_what_a_full_buffer_holds_back():
    """Two nodes send 160 flits to one; the second one's next message goes elsewhere.

    The first has the output in 11 to 171. The second waits behind it: done at 171 + 160 + 10.
    """
    paths, sizes = [(0, 2), (1, 2), (1, 3)], [160, 160, 160]
    # 320 flits: the third starts at 160, and passes the second in the switch
    assert alone(paths, sizes, buffer=320) == [181, 341, 160 + 11 + 160 + 10]
    # 224: 64 of them are enough for its round trip of 21
    assert alone(paths, sizes, buffer=224) == [181, 341, 341]
    # 160: the second fills it, and its first credit returns at 171 + 10
    assert alone(paths, sizes, buffer=160) == [181, 341, 181 + 11 + 160 + 10]
    # 159: its last flit goes with that credit, and the third behind it
    assert alone(paths, sizes, buffer=159) == [181, 341, 182 + 11 + 160 + 10]
    # 64: the other 96 flits go at 181 to 277
    assert alone(paths, sizes, buffer=64) == [181, 341, 277 + 11 + 160 + 10]


def test_messages_on_a_wide_link_have_their_shares_of_its_buffer():
    """One that waits leaves the other its half: three messages on a link of two flits a cycle."""
    paths, sizes = [(1, 2), (0, 2), (0, 3)], [160, 160, 160]
    for buffer in (32, 80, 400):
        assert alone(paths, sizes, buffer=buffer, width=2.0) == [181, 341, 181]
    # a fourth starts when one of both ends: the waiting one, of 80 flits in 160 of buffer
    assert alone([*paths, (0, 3)], [160, 80, 160, 160], buffer=80, width=2.0)[3] == 341


def test_a_worm_that_waits_is_looked_at_at_one_time(monkeypatch, tmp_path):
    """With two, each look at either told both again, and their number doubled with each part."""
    edges = "".join(f"{v} {(v + 1) % 8}\n" for v in range(8))
    (tmp_path / "ring").write_text(edges)
    topology = parse(f"file:{tmp_path / 'ring'}")  # no wrap is known: worms take channels
    given = compile_table(build(topology, "halving")), topology, 1 << 24
    network = Network(link_bytes_per_cycle=50, buffer=15_000)
    looks, part = [], Worms.part

    def look(self, m, hop, now):
        looks.append(now)
        assert len(looks) < 100_000
        part(self, m, hop, now)

    monkeypatch.setattr(Worms, "part", look)
    slow = simulate(*given, network, compiled=False)
    assert looks
    assert slow.cycles == simulate(*given, network, compiled=True).cycles
