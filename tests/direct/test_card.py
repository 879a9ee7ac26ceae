"""Clusters of cards on the flit layer, and each node's share of a round."""

import dataclasses

import numpy as np
import pytest
from gradnic.models.schedule.builders import build
from gradnic.models.schedule.builders.rows import compile_table
from gradnic.models.schedule.topology import parse
from gradnic.sim.direct import cluster as flit_cluster
from gradnic.sim.direct.cluster import Cluster, Wires, cosim
from gradnic.sim.engine import stimulus
from gradnic.sim.engine.cluster_library import GOES_ON

from gradnic.interface.flit import Share, contributions

SPEED = Wires(latency=20)


def test_shares():
    share = Share(8, 100, 4, np.array([2, 0, 1, 3]))
    assert (share.chunk_floats, share.chunk_words, share.live) == (32, 4, 4)
    assert share.chunk_flits == (8, 1)
    assert share.n_places == 6
    assert share.base.tolist() == [0, 2, 2, 3]
    values = np.arange(100, dtype=np.float32)
    words = share.to_words(values)
    assert words.shape == (16, 8)
    np.testing.assert_array_equal(share.from_words(words), values)
    assert Share(8, 20, 4, np.zeros(4, int)).live == 2  # two chunks are empty


def gradients(n_nodes, n_floats, name):
    """Everyday floats, with corners: NaN, Inf, zeros of both signs, subnormals, the largest."""
    rng = stimulus.rng(name, n_nodes, n_floats)
    values = rng.standard_normal((n_nodes, n_floats)).astype(np.float32)
    corners = np.array([0, 1 << 31, 1, 0x7FC00123, 0x7F800000, 0xFF800000, 0x7F7FFFFF], np.uint32)
    odd = rng.random(values.shape) < 0.1
    values[odd] = rng.choice(corners, odd.sum()).view(np.float32)
    return values


def table_of(spelling, algorithm, **options):
    topology = parse(spelling)
    return compile_table(build(topology, algorithm, **options)), topology


@pytest.mark.parametrize("packets", [False, True])
@pytest.mark.parametrize(
    ("spelling", "algorithm", "n_floats"),
    [
        ("mesh:2x2", "multitree", 300),
        ("mesh:2x2", "multitree", 20),  # two empty chunks, a short one
        ("ring:4", "ring", 517),
        ("mesh:2x2", "multitree", 5000),  # messages longer than the credits
    ],
)
def test_four_nodes(spelling, algorithm, n_floats, packets):
    table, topology = table_of(spelling, algorithm)
    values = gradients(4, n_floats, "four")
    cluster = Cluster(table, topology, n_floats, wires=SPEED, n_lanes=8, packets=packets)
    for round in range(2):  # twice in a row
        result = cosim(table, topology, values[::-1] if round else values, cluster=cluster)
        assert result.ok, result.first
    heads = int(result.result.links["heads"].sum())
    if packets and n_floats == 5000:  # chunks of 316 and 302 flits, each sent six times
        assert heads == 6 * (3 * 20 + 19)
    elif n_floats == 5000:
        assert heads == 6 * 4


@pytest.mark.parametrize("duty", [0.9, 0.3])
def test_stalls_and_late_starts_change_nothing_but_time(duty):
    table, topology = table_of("mesh:2x2", "multitree")
    values = gradients(4, 300, "stalls")
    cluster = Cluster(table, topology, 300, wires=SPEED, n_lanes=8)
    for seed in range(4):
        starts = stimulus.rng("starts", seed).integers(0, 500, 4)
        result = cosim(
            table, topology, values, cluster=cluster, duty=duty, seed=seed, starts=starts
        )
        assert result.ok, result.first


def test_a_run_hears_signals(interrupted):
    """Ctrl-C does not wait for the end of a run, here of 20 million cycles without a flit."""
    topology = parse("ring:2")
    table = compile_table(build(topology, "ring"))
    cluster = Cluster(table, topology, 300, wires=SPEED, n_lanes=8)
    values = np.ones((2, 300), np.float32)
    interrupted(lambda: cluster.run(values, duty=0, max_cycles=20_000_000))
    assert cluster._library.cluster_go(cluster._self, 1) == GOES_ON


def test_a_child_that_never_sends_is_named():
    """Node 3 never starts: the others wait, lose nothing, and say which row is stuck."""
    table, topology = table_of("mesh:2x2", "multitree")
    cluster = Cluster(table, topology, 300, wires=SPEED, n_lanes=8, watchdog=2000)
    result = cosim(
        table,
        topology,
        gradients(4, 300, "silent"),
        cluster=cluster,
        starts=[0, 0, 0, 1 << 40],
        max_cycles=8000,
    )
    assert not result.ok
    assert result.cycles is None
    assert "stuck" in result.first
    for node in range(3):
        status = result.result.status[node]
        assert status["stuck"]
        assert status["running"]
        assert not status["overflow"]
        row = table.of(node)[status["row"]]
        if row["op"] == 0:
            assert row["wait"] > 0
        assert row["first"] == status["chunk"]


@pytest.mark.parametrize("how", ["abort", "abort between rounds", "fault"])
def test_no_start_behind_a_round_that_was_broken_off(how):
    """Flits of it wait everywhere, and are the next round's to whoever takes them."""
    table, topology = table_of("ring:3", "ring")
    cluster = Cluster(table, topology, 96, wires=SPEED, n_lanes=8, watchdog=3000)
    values = gradients(3, 96, "broken")
    if how == "fault":
        for node in range(3):
            cluster._write(node, "table", [3])  # no operation has this number
        assert cluster.run(values, max_cycles=200).status[0]["fault"]
    else:
        done = cluster.run(values, max_cycles=60 if how == "abort" else 2000).done
        assert (done >= 0).all() == (how != "abort")
        strobe(cluster, "abort")
    assert all(cluster._status(node)["broken"] for node in range(3))
    with pytest.raises(ValueError, match=r"node 0 takes no start: .* must be reset"):
        cluster.run(values)
    strobe(cluster, "start")  # nor does the circuit
    done = np.zeros((1, 1), np.uint8)
    for node in [0, 1, 2] * 100:
        cluster._library.cluster_tick(cluster._self, node)
        number, _ = cluster._ports["done"]
        cluster._library.cluster_get(cluster._self, node, number, done.ctypes.data)
        assert not done[0, 0]
        assert not cluster._status(node)["running"]


def strobe(cluster, name):
    """One cycle of a plain input of all cards, in which links stand still."""
    for node in range(cluster.table.n_nodes):
        cluster._set(node, name, 1)
        cluster._library.cluster_tick(cluster._self, node)
        cluster._set(node, name, 0)


@pytest.mark.parametrize(
    ("spelling", "algorithm"),
    [("bigraph:2x4", "hdrm"), ("bigraph:2x4", "multitree"), ("fattree:2x3", "multitree")],
)
def test_switches(spelling, algorithm):
    table, topology = table_of(spelling, algorithm)
    values = gradients(8, 700, "switches")
    cluster = Cluster(table, topology, 700, wires=SPEED, n_lanes=8)
    for duty in (1.0, 0.6):
        result = cosim(table, topology, values, cluster=cluster, duty=duty)
        assert result.ok, result.first


def test_a_wrong_rank_is_seen():
    """Two contributions in each other's place: other bits, so the comparison can fail."""
    table, topology = table_of("mesh:2x2", "multitree")
    values = np.random.default_rng(1).standard_normal((4, 300)).astype(np.float32)
    rows = table.rows.copy()
    children = np.isin(rows["node"], (1, 2)) & (rows["op"] == 0) & (rows["first"] == 0)
    assert sorted(rows["rank"][children]) == [0, 1]
    rows["rank"][children] = 1 - rows["rank"][children]
    turned = dataclasses.replace(table, rows=rows)
    np.testing.assert_array_equal(contributions(turned), contributions(table))
    got = Cluster(turned, topology, 300, wires=SPEED, n_lanes=8).run(values).replicas
    assert (got == flit_cluster.all_reduce(turned, values)).all()
    assert (got != flit_cluster.all_reduce(table, values)).any()


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"n_lanes": 12}, "n_lanes must be 8, 16 or 32"),
        ({"wires": {"latency": 0}}, "link latency must be 1 or more, not 0"),
        ({"wires": {"bytes_per_cycle": 20}}, "above 0 and at most 16, not 20"),
        ({"spelling": "mesh:2x3", "algorithm": "ring2d"}, "cards never forward"),
    ],
)
def test_errors(options, message):
    table, topology = table_of(
        options.get("spelling", "mesh:2x2"), options.get("algorithm", "multitree")
    )

    def make():
        wires = Wires(**options.get("wires", {}))
        Cluster(table, topology, 100, wires=wires, n_lanes=options.get("n_lanes", 8))

    with pytest.raises(ValueError, match=message):
        make()
