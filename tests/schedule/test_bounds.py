"""Bounds against brute force over all cuts, the published table, and schedules that meet them."""

import itertools
import json
from fractions import Fraction

import numpy as np
import pytest
from click.testing import CliRunner
from gradnic.models.schedule.bounds import (
    cuts_are_reached,
    latency_floor,
    latency_floor_cycles,
    node_bound,
    overlapped_cap,
    overlapped_optimum,
    throughput_bound,
)
from gradnic.models.schedule.builders import build
from gradnic.models.schedule.builders.packing import Packing
from gradnic.models.schedule.builders.rows import compile_table
from gradnic.models.schedule.network_model import Network, simulate
from gradnic.models.schedule.topology import Topology, parse

from gradnic.commands import schedule as schedule_tool
from gradnic.commands.simulate import bound_cycles

PUBLISHED = {  # spelling: shard-slots per phase, all-reduce bandwidth with phases overlapped
    "torus:4x4": (3.75, 32 / 15),
    "torus:8x8": (15.75, 128 / 63),
    "mesh:4x4": (7.5, 1.6),
    "mesh:8x8": (31.5, 16 / 9),
    "fattree:4x2": (15, 16 / 30),
    "fattree:8x2": (63, 64 / 126),
    "bigraph:4x8": (31, 32 / 62),
    "bigraph:4x16": (63, 64 / 126),
}


@pytest.mark.parametrize("spelling", PUBLISHED)
def test_published_bounds(spelling):
    slots, bandwidth = PUBLISHED[spelling]
    topology = parse(spelling)
    assert throughput_bound(topology) == Fraction(slots)
    assert node_bound(topology) <= slots
    assert overlapped_cap(topology) == pytest.approx(bandwidth, rel=1e-12)
    if topology.n_nodes <= 32:
        assert overlapped_optimum(topology) == pytest.approx(bandwidth, rel=1e-6)


def test_ports_bind_in_the_bound():
    one = parse("torus:4x4", ports=1)
    assert throughput_bound(one) == 15
    assert overlapped_optimum(one) == pytest.approx(16 / 30, rel=1e-6)
    assert throughput_bound(parse("full:16")) == Fraction(15, 8)
    assert node_bound(one) == 15


def random_graph(rng):
    n, n_switches = int(rng.integers(3, 6)), int(rng.integers(0, 3))
    pairs = list(itertools.permutations(range(n + n_switches), 2))
    while True:
        links = [pair for pair in pairs if rng.random() < 0.55]
        speed = rng.integers(1, 5, len(links))
        try:
            return Topology("random", n, n_switches, np.array(links), speed, ports=8)
        except ValueError:
            continue


def brute_force(topology):
    """max |S with nodes| / bandwidth out of S over all vertex sets that miss a node."""
    best = Fraction(0)
    slowest = min(Fraction(b).limit_denominator(100) for b in topology.bandwidth)
    for bits in range(1, 1 << topology.n_vertices):
        inside = [bits >> v & 1 for v in range(topology.n_vertices)]
        count = sum(inside[: topology.n_nodes])
        if 0 < count < topology.n_nodes:
            out = sum(
                Fraction(b).limit_denominator(100)
                for (x, y), b in zip(topology.links.tolist(), topology.bandwidth, strict=True)
                if inside[x] and not inside[y]
            )
            best = max(best, Fraction(count) / (out / slowest))
    return best


def test_the_bound_is_the_worst_of_all_cuts():
    rng = np.random.default_rng(5)
    for _ in range(100):
        topology = random_graph(rng)
        forward, backward = brute_force(topology), brute_force(topology.reversed())
        got = throughput_bound(topology)
        assert float(got) == pytest.approx(float((forward + backward) / 2), rel=1e-3)
        if (topology.bandwidth % 1 == 0).all():
            assert got == (forward + backward) / 2


_IN_HALF = [[0, 3, 2], [1, 3, 1], [3, 1, 1], [3, 2, 2], [2, 0, 1], [2, 1, 1]]
ONE_WAY = {  # of 3 nodes and a switch: (links, ports, whether cuts are reached)
    "balanced switch": ([[0, 3, 2], [1, 3, 1], [3, 1, 1], [3, 2, 2], [2, 0, 2]], 8, True),
    "more in than out": ([[0, 3, 2], [1, 3, 1], [3, 1, 1], [3, 2, 1], [2, 0, 2]], 8, False),
    "more out than in": ([[0, 3, 1], [1, 3, 1], [3, 1, 1], [3, 2, 2], [2, 0, 2]], 8, False),
    "uneven nodes": (_IN_HALF, 8, True),
    "uneven nodes whose ports bind": (_IN_HALF, 1, False),
}


@pytest.mark.parametrize("name", ONE_WAY)
def test_a_bound_is_called_an_optimum_only_where_trees_reach_it(name, tmp_path):
    links, ports, reached = ONE_WAY[name]
    graph = {"nodes": 3, "switches": 1, "links": links, "directed": True, "ports": ports}
    file, told = tmp_path / "graph.json", tmp_path / "told.json"
    file.write_text(json.dumps(graph))
    assert cuts_are_reached(parse(f"file:{file}")) == reached
    arguments = ["--topology", f"file:{file}", "--algorithm", "best", "--json", str(told)]
    result = CliRunner().invoke(schedule_tool.command, arguments)
    assert result.exit_code == 0, result.output
    said = "exact optimum" if reached else "bound by cuts"
    assert json.loads(told.read_text())["bound_is"] == said


@pytest.mark.parametrize("spelling", [*PUBLISHED, "nvlink:2x4x1", "pcie:2x4x1", "dragonfly:2x1x1"])
def test_links_both_ways_reach_their_cuts(spelling):
    assert cuts_are_reached(parse(spelling))


def test_overlapping_never_loses_and_never_exceeds_the_cap():
    rng = np.random.default_rng(6)
    for _ in range(10):
        topology = random_graph(rng)
        optimum = overlapped_optimum(topology)
        two_phase = topology.n_nodes / (2 * float(throughput_bound(topology)))
        assert two_phase <= optimum * (1 + 1e-6)
        assert optimum <= overlapped_cap(topology) * (1 + 1e-6)


def test_whole_trees_reach_the_linear_program():
    """Tutte and Nash-Williams: the packing of spanning trees equals the LP on symmetric graphs."""
    for spelling, trees, copies in ("mesh:4x4", 8, 5), ("mesh:3x3", 3, 2), ("torus:3x3", 9, 4):
        topology = parse(spelling)
        edges = [(a, b) for a, b in topology.links.tolist() if a < b]
        packing = Packing(topology.n_nodes, edges, [copies] * len(edges), trees)
        assert packing.complete()
        assert overlapped_optimum(topology) == pytest.approx(trees / copies, rel=1e-6)
        more = Packing(topology.n_nodes, edges, [copies] * len(edges), trees + 1)
        assert not more.complete()
        for i in range(trees):
            root, parent = packing.tree(i)
            assert parent[root] == -1
            assert sum(p == -1 for p in parent) == 1
        used = [sum(e in f[a] for f in packing.forests) for e, (a, _) in enumerate(edges)]
        assert max(used) <= copies


def test_the_latency_floor_is_twice_the_diameter():
    for spelling, hops in ("torus:4x4", 8), ("mesh:8x8", 28), ("fattree:4x2", 8), ("full:8", 2):
        assert latency_floor(parse(spelling)) == hops


@pytest.mark.parametrize("latency", [0, 10, 1000])
def test_bound_and_model_read_the_same_latencies(tmp_path, latency):
    """A ring of four with its own latencies, and one link that takes the default, 150."""
    (tmp_path / "all").write_text("".join(f"{v} {(v + 1) % 4} 1 {latency}\n" for v in range(4)))
    (tmp_path / "some").write_text(f"0 1 1 {latency}\n1 2 1 {latency}\n2 3 1 {latency}\n3 0 1\n")
    floors = {}
    for name in "all", "some":
        net = parse(f"file:{tmp_path}/{name}")
        floors[name] = bound_cycles(net, 4096, Network())[2]
        table = compile_table(build(net, "ring"))
        taken = [simulate(table, net, 4096, Network(link_latency=d)).cycles for d in (150, 151)]
        assert taken[0] > floors[name]
        assert (taken[1] > taken[0]) == (name == "some")  # where a link takes the default
    assert floors["all"] == 4 * latency  # two links there, two back
    assert floors["some"] == {0: 0, 10: 60, 1000: 2300}[latency]  # 0-3 at 10, 0-2 at 1000


def test_without_latencies_the_floor_is_in_hops():
    assert latency_floor_cycles(parse("torus:4x4"), 150) == 8 * 150


@pytest.mark.parametrize(
    ("spelling", "bound"),
    [("torus:16x16", Fraction(255, 4)), ("mesh:16x16", Fraction(255, 2)), ("fattree:16x2", 255)],
)
def test_the_bound_of_256_nodes_takes_little_work(spelling, bound, calls):
    found = []
    assert calls(lambda: found.append(throughput_bound(parse(spelling)))) < 1_000_000
    assert found == [bound]
