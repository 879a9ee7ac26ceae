"""The network model beside clusters of RTL cards: cycles of the same all-reduce, within 3 %."""

import numpy as np
import pytest
from gradnic.models.schedule.builders import build
from gradnic.models.schedule.builders.rows import compile_table
from gradnic.models.schedule.network_model import of_card, simulate
from gradnic.models.schedule.topology import parse
from gradnic.sim.direct.cluster import Cluster, Wires, cosim


def both(spelling, algorithm, n_floats, n_lanes, latency=150, **options):
    """(cycles by RTL, by the model) of raw floats."""
    topology = parse(spelling)
    table = compile_table(build(topology, algorithm, **options))
    values = np.random.default_rng(1).standard_normal((topology.n_nodes, n_floats))
    cluster = Cluster(table, topology, n_floats, n_lanes=n_lanes, wires=Wires(latency=latency))
    result = cosim(table, topology, values.astype(np.float32), cluster=cluster)
    assert result.ok, result.first
    model = simulate(table, topology, 4 * n_floats, of_card(n_lanes, link_latency=latency))
    print(f"{spelling} {algorithm} {n_floats} floats: {result.cycles} RTL, {model.cycles} model")
    return result.cycles, model.cycles


@pytest.mark.parametrize("n_floats", [64, 1024, 8000])
@pytest.mark.parametrize("algorithm", ["ring", "multitree"])
def test_four_nodes(algorithm, n_floats):
    rtl, model = both("mesh:2x2", algorithm, n_floats, 16)
    assert abs(model / rtl - 1) < 0.03


def test_four_nodes_with_two_trees_a_root():
    """Chunks of 1,008 floats: three blocks and most of a fourth, which takes its turns, too."""
    rtl, model = both("mesh:2x2", "multitree", 8000, 16, chunks=2)
    assert abs(model / rtl - 1) < 0.03


@pytest.mark.parametrize("latency", [500, 1000, 5000])
@pytest.mark.parametrize("options", [("ring", {}), ("multitree", {}), ("multitree", {"chunks": 2})])
def test_links_longer_than_credits_reach(options, latency):
    """318 flits leave at full speed, the rest as credits come back, 2 latencies and 4 later."""
    algorithm, options = options
    rtl, model = both("mesh:2x2", algorithm, 8192, 16, latency, **options)
    assert abs(model / rtl - 1) < 0.01


@pytest.mark.parametrize("algorithm", ["ring", "multitree"])
@pytest.mark.parametrize("spelling", ["fattree:4x1", "bigraph:2x2"])
def test_credits_through_switches(spelling, algorithm):
    """A worm waits for the credits of its first link; behind it, its flits come in bursts."""
    rtl, model = both(spelling, algorithm, 8192, 32, 1000)
    assert abs(model / rtl - 1) < 0.01


@pytest.mark.parametrize("algorithm", ["multitree", "ring"])
def test_trunks_that_are_faster_than_a_port(algorithm):
    """A trunk of four lanes has a worm on each: one by one they take 2.6 times as long."""
    rtl, model = both("dgx:4x2", algorithm, 8192, 32, 10)
    assert abs(model / rtl - 1) < 0.01


@pytest.mark.slow
@pytest.mark.parametrize("n_floats", [1024, 8192, 65536])
@pytest.mark.parametrize("spelling", ["torus:4x4", "mesh:4x4"])
@pytest.mark.parametrize("algorithm", ["ring", "multitree"])
def test_sixteen_nodes(algorithm, spelling, n_floats):
    rtl, model = both(spelling, algorithm, n_floats, 32)
    assert abs(model / rtl - 1) < 0.03


@pytest.mark.slow
def test_sixteen_nodes_with_two_trees_a_root():
    rtl, model = both("torus:4x4", "multitree", 262144, 32, chunks=2)
    assert abs(model / rtl - 1) < 0.03
