"""Switches that sum and multicast: bounds, trees through them, what the checker refuses, sums."""

from dataclasses import replace

import numpy as np
import pytest
from click.testing import CliRunner
from gradnic.models.aggregation.aggregator import Aggregator
from gradnic.models.aggregation.jobs import Config, Job
from gradnic.models.aggregation.star import Faults, Int32Client, run
from gradnic.models.frame.address import Address
from gradnic.models.reduction.float_add import add
from gradnic.models.schedule.all_reduce import all_reduce
from gradnic.models.schedule.bounds import bandwidth_bound, overlapped_optimum
from gradnic.models.schedule.builders import build
from gradnic.models.schedule.builders.rows import compile_table
from gradnic.models.schedule.checker import TableError, check
from gradnic.models.schedule.network_model import Network, simulate
from gradnic.models.schedule.topology import parse

from gradnic import cli

BOTH = "+sum+multicast"

# two boxes of four GPUs: the switches inside can, the one between cannot
INSIDE = "switch 8 9 +sum +multicast\nswitch 10\n" + "".join(
    f"{v} {8 + v // 4} 9\n{v} 10 1\n" for v in range(8)
)


def test_abilities_behind_a_file(tmp_path):
    """Of every switch of any format; a file whose name ends so is that file."""
    file = tmp_path / "net.yml"
    file.write_text("topology: [Switch]\nnpus_count: [4]\nbandwidth: [50]\nlatency: [500]\n")
    found = parse(f"file:{file}{BOTH}", in_network=True)
    assert (found.sums, found.multicasts) == ((4,), (4,))
    assert found.name.endswith(f"net.yml{BOTH}")
    assert parse(f"file:{file}+sum", in_network=True).multicasts == ()
    args = ["schedule", "--topology", f"file:{file}{BOTH}", "--algorithm", "in_network"]
    assert CliRunner().invoke(cli.cli, args).exit_code == 0
    (tmp_path / "ring+sum").write_text("0 1\n1 2\n2 0\n")
    assert parse(f"file:{tmp_path}/ring+sum", in_network=True).sums == ()
    with pytest.raises(ValueError, match="has no switches that could sum"):
        parse(f"file:{tmp_path}/ring+sum+sum", in_network=True)


def made(topology, **options):
    """The schedule in the network, its table and what the checker found."""
    schedule = build(topology, "in_network", **options)
    table = compile_table(schedule)
    return schedule, table, check(table, topology)


@pytest.mark.parametrize(
    ("spelling", "bandwidth", "without"),
    [("fattree:4x1", 1, 2 / 3), ("fattree:4x2", 1, 8 / 15), ("dgx:4x3", 1, 6 / 11),
     ("nvlink:2x4x4", 4, 4), ("nvlink:2x8x8", 8, 16 / 3), ("bigraph:2x4", 1, 4 / 7),
     ("pcie:2x4x1", 1, 5 / 7)],
)  # fmt: skip
def test_trees_reach_the_bound(spelling, bandwidth, without):
    topology = parse(spelling + BOTH, in_network=True)
    schedule, table, report = made(topology)
    assert bandwidth_bound(topology) == pytest.approx(bandwidth, rel=1e-6)
    assert schedule.steady_bandwidth == pytest.approx(bandwidth, rel=1e-6)
    assert report.max_flows == 1
    assert bandwidth_bound(parse(spelling)) == pytest.approx(without, rel=1e-6)
    values = np.random.default_rng(1).integers(-99, 99, (topology.n_nodes, 5000))
    result = all_reduce(table, values, switches=schedule.topology.helpers)
    assert (result == values.sum(axis=0)).all()


def test_only_the_switches_that_can_fork(tmp_path):
    (tmp_path / "net").write_text(INSIDE)
    topology = parse(f"file:{tmp_path}/net", in_network=True)
    assert (topology.sums, topology.multicasts) == ((8, 10), (8, 10))  # by first mention
    schedule, table, _ = made(topology)
    assert schedule.topology.helpers == 2
    assert set(table.rows["node"].tolist()) == set(range(10))
    assert schedule.steady_bandwidth == pytest.approx(bandwidth_bound(topology), rel=1e-6)
    # a file in JSON says the same
    links = ", ".join(f"[{v}, {9 + v // 4}, 9], [{v}, 8, 1]" for v in range(8))
    (tmp_path / "net.json").write_text(
        f'{{"nodes": 8, "switches": 3, "links": [{links}], "sum": [9, 10], "multicast": [9, 10]}}'
    )
    other = parse(f"file:{tmp_path}/net.json", in_network=True)
    assert made(other)[0].steady_bandwidth == schedule.steady_bandwidth


@pytest.mark.parametrize("ability", ["+sum", "+multicast"])
def test_one_ability_alone_leaves_the_bound_as_it_is(ability):
    """Each node still takes in, or sends, what it lacks: ForestColl, and the linear program."""
    for spelling in "fattree:4x1", "dgx:4x3":
        topology = parse(spelling + ability, in_network=True)
        assert overlapped_optimum(topology) == pytest.approx(bandwidth_bound(parse(spelling)))
        assert build(topology, "best").topology.helpers == 0
        with pytest.raises(ValueError, match="no switch that sums and multicasts"):
            build(topology, "in_network")


def test_best_takes_the_switches_and_simulates_near_the_bound():
    for spelling in "fattree:4x2", "dgx:4x3":
        topology, size = parse(spelling + BOTH, in_network=True), 16 << 20
        schedule = build(topology, "best")
        assert schedule.algorithm == "in_network"
        table = compile_table(schedule)
        cycles = simulate(table, topology, size, Network(), compiled=False).cycles
        plain = compile_table(build(parse(spelling), "best"))
        before = simulate(plain, parse(spelling), size, Network(), compiled=False).cycles
        assert size / 16 < cycles < 1.04 * size / 16
        assert before > 1.7 * cycles


def test_a_switch_adds_as_fast_as_its_links_bring_it():
    topology, size = parse("fattree:4x1" + BOTH, in_network=True), 4 << 20
    _, table, _ = made(topology)
    slow = Network(reduce_per_cycle=2)  # of a node: half of a link
    assert simulate(table, topology, size, slow, compiled=False).cycles < 1.04 * size / 16


def test_a_link_that_died_is_gone_around():
    topology = parse("fattree:4x2" + BOTH, in_network=True).without([(16, 20)])
    assert len(topology.sums) == 8
    schedule, _, _ = made(topology, chunks=3)
    assert schedule.repeats == 3 * 16


def rows_of(table, **changes):
    """The table with its first row of a switch (node 4) and operation changed."""
    rows = table.rows.copy()
    at = np.flatnonzero((rows["node"] == 4) & (rows["op"] == changes.pop("op")))[0]
    for name, value in changes.items():
        rows[name][at] = value
    return replace(table, rows=rows)


def test_what_the_checker_refuses():
    topology = parse("fattree:4x1" + BOTH, in_network=True)
    _, table, _ = made(topology)
    for ability, what in ("+sum", "gathers, but does not m"), ("+multicast", "reduces, but does n"):
        with pytest.raises(TableError, match=f"switch 4 {what}"):
            check(table, parse("fattree:4x1" + ability, in_network=True))
    with pytest.raises(TableError, match="the table is for 5 nodes"):
        check(table, parse("fattree:4x1"))
    with pytest.raises(TableError, match="switch 4 reduces what nobody sent it"):
        check(rows_of(table, op=0, wait=0), topology)
    with pytest.raises(TableError, match="wrong number of contributions"):
        check(rows_of(table, op=0, wait=3), topology)
    sends = [0, 1, 2, -1]
    with pytest.raises(TableError, match="never delivered"):
        check(rows_of(table, op=1, sends=sends), topology)


def test_the_switch_is_the_aggregator():
    """Integers: the golden aggregator's answers. Floats: the reduce unit's sum, rank by rank."""
    topology = parse("fattree:4x1" + BOTH, in_network=True)
    _, table, _ = made(topology, chunks=1)
    rng = np.random.default_rng(3)
    whole = rng.integers(-1000, 1000, (4, 512))
    children = tuple(Address(i, 0x020000000000 + i, 0x0A000001 + i) for i in range(4))
    job = Job(5, children, kind="int32", n_slots=8)
    config = Config(0x02AA00000000, 0x0A0000FE, 4, (job,))
    clients = [
        Int32Client(config, job, i, x.astype(np.float32), n_elems=64) for i, x in enumerate(whole)
    ]
    run(Aggregator(config), clients, Faults(loss=0.02), seed=1)
    sums = all_reduce(table, whole, switches=1)
    for client, mine in zip(clients, sums, strict=True):
        assert (client.result() == mine).all()

    floats = (rng.standard_normal((4, 512)) * 2.0 ** rng.integers(-20, 20, (4, 512))).astype("f4")
    result = all_reduce(table, floats, switches=1)
    reduces = table.rows[(table.rows["op"] == 0) & (table.rows["node"] < 4)]
    order = reduces["node"][np.argsort(reduces["rank"])]
    total = floats[order[0]]
    for v in order[1:]:
        total = add(total, floats[v])
    assert (result.view(np.uint32) == total.view(np.uint32)).all()
    assert (total != add(add(floats[3], floats[2]), add(floats[1], floats[0]))).any()
