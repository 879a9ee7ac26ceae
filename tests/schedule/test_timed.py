"""Trees and orders of rows for offload cards: proven, and as fast in RTL as the model says."""

import numpy as np
import pytest
from gradnic.models.schedule.all_reduce import all_reduce
from gradnic.models.schedule.builders.fastest import cut, fastest
from gradnic.models.schedule.builders.rows import compile_table
from gradnic.models.schedule.builders.timed import timed
from gradnic.models.schedule.checker import check
from gradnic.models.schedule.network_model import Network, of_offload_card, simulate
from gradnic.models.schedule.topology import parse

from gradnic.interface.schedule_table import REDUCE

CARDS = of_offload_card(16, 4)


@pytest.mark.parametrize("spelling", ["torus:2x2", "mesh:3x3", "ring:5", "hypercube:3", "ring:2"])
@pytest.mark.parametrize(("chunks", "lag", "ahead"), [(1, 0, 1), (2, 2, 0.5), (3, 1, 1)])
def test_every_card_gets_every_sum(spelling, chunks, lag, ahead):
    topology = parse(spelling)
    n, n_floats = topology.n_nodes, 5000
    schedule = timed(topology, 4 * n_floats, CARDS, chunks=chunks, lag=lag, ahead=ahead)
    table = compile_table(schedule)
    check(table, topology)
    values = np.random.default_rng(0).integers(-99, 99, (n, n_floats))
    np.testing.assert_array_equal(all_reduce(table, values), np.tile(values.sum(0), (n, 1)))
    for node in range(n):  # a row a step: nothing but the order of issue decides
        steps = table.rows["step"][table.rows["node"] == node]
        assert len(set(steps.tolist())) == len(steps)
    assert len(table.rows) == n * chunks * (1 + 2 * (n - 1))


def test_roots_add_before_they_are_asked_for_it():
    """A root's sums are made when they can be, and other rows go before its first gather row."""
    table = compile_table(timed(parse("torus:4x4"), 1 << 18, CARDS, chunks=2, lag=2, ahead=0.5))
    apart = 0
    for node in range(16):
        rows = table.rows[table.rows["node"] == node]
        for row in rows[(rows["op"] == REDUCE) & (rows["sends"] < 0).all(axis=1)]:
            gathers = (rows["op"] != REDUCE) & (rows["first"] == row["first"])
            apart += int(rows["step"][gathers].min() - row["step"]) > 1
    assert apart > 8


@pytest.mark.parametrize(("n_floats", "chunks", "cycles"), [(65536, 2, 12051), (16384, 2, 5718)])
def test_best_takes_what_rtl_takes(n_floats, chunks, cycles):
    """RTL of `gradnic cosim card --topology torus:4x4 --algorithm best --lanes 16 --port-lanes 4
    --elements 65536` and so on, 27 November 2026.
    """
    topology = parse("torus:4x4")
    schedule, tries = fastest(topology, 4 * n_floats, CARDS)
    assert (schedule.algorithm, schedule.chunks) == ("timed", chunks)
    assert abs(tries[0].cycles / cycles - 1) < 0.05
    others = {one.algorithm: one.cycles for one in reversed(tries)}
    assert tries[0].cycles < min(others["multitree"], others["bfb"])
    assert (
        tries[0].cycles == simulate(compile_table(schedule), topology, 4 * n_floats, CARDS).cycles
    )


def test_a_million_floats_take_what_rtl_takes():
    """RTL, as `test_best_takes_what_rtl_takes`, of --elements 1048576, 27 November 2026."""
    topology, n_bytes = parse("torus:4x4"), 4 << 20
    table = compile_table(timed(topology, n_bytes, CARDS, chunks=24, lag=0, ahead=0.5))
    assert abs(simulate(table, topology, n_bytes, CARDS).cycles / 139560 - 1) < 0.03


def test_rows_stay_one_run_where_they_can():
    """Chunks that `fastest` tries: a run of up to 16 whole packets, or one."""
    topology = parse("ring:3")
    for n_floats, chunks in (
        (65536, {4, 6, 8, 12, 16}),
        (4096, {1, 2, 3, 4}),
        (2000, {1}),
        (600, {1}),
    ):
        _, tries = fastest(topology, 4 * n_floats, CARDS)
        assert {one.chunks for one in tries if one.algorithm == "timed"} == chunks


def test_rows_of_other_algorithms_are_one_run_where_ports_are_narrow():
    """Chunks that `cut` takes unless told: MultiTree's and BFB's; rings' rows stay as long."""
    topology, n_bytes = parse("torus:3x3"), 4 * 262144

    def chunks(algorithm, cards=CARDS):
        return cut(topology, algorithm, n_bytes, cards).chunks

    assert chunks("multitree") in (6, 8, 12)
    assert chunks("bfb") in (6, 8, 12)
    assert (chunks("ring"), chunks("ring2d")) == (1, 2)
    assert chunks("multitree", of_offload_card(16)) == 1
    tried = []
    assert cut(topology, "multitree", 4 * 9 * 352, CARDS, on_try=tried.append).chunks == 1
    assert not tried  # there is but one
    cut(topology, "multitree", n_bytes, CARDS, on_try=tried.append)
    assert f"multitree, {int(chunks('multitree'))} chunks a shard" in tried


def test_what_it_refuses():
    for spelling, ports in ("fattree:4x1", None), ("torus:4x4", 1):
        with pytest.raises(ValueError, match="timed needs direct two-way links"):
            timed(parse(spelling, ports=ports), 4096, CARDS)
    with pytest.raises(ValueError, match="network of offload cards"):
        timed(parse("ring:4"), 4096, Network())
