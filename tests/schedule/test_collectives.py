"""Collectives out of an all-reduce: proven everywhere, and both halves together are the whole."""

import dataclasses

import numpy as np
import pytest
from gradnic.models.schedule.all_reduce import all_reduce, chunk_length, run_table
from gradnic.models.schedule.bounds import collective_bound
from gradnic.models.schedule.builders import ALGORITHMS, build
from gradnic.models.schedule.builders.collectives import COLLECTIVES, collective
from gradnic.models.schedule.builders.rows import compile_table
from gradnic.models.schedule.checker import TableError, check
from gradnic.models.schedule.network_model import Network, simulate
from gradnic.models.schedule.topology import parse

from gradnic.interface.schedule_table import GATHER

from .test_builders import TOPOLOGIES

ONE_PHASE = tuple(COLLECTIVES)[1:]
SLOW = {"best", "multistart", "overlapped", "forest"}  # these are built from the others, or long


def table_of(spelling="torus:4x4", algorithm="multitree", name="reduce_scatter", root=0, **options):
    return compile_table(collective(build(parse(spelling), algorithm, **options), name, root=root))


def where(schedule, name, n_elems, root):
    """What must be where: bool (n_nodes, n_elems)."""
    n_nodes = schedule.topology.n_nodes
    if name in ("all_gather", "broadcast"):
        return np.ones((n_nodes, n_elems), bool)
    if name == "reduce":
        return np.broadcast_to(np.arange(n_nodes)[:, None] == root, (n_nodes, n_elems))
    chunks = np.arange(n_elems) // chunk_length(n_elems, schedule.chunks_total)
    owner = np.resize(schedule.roots, schedule.chunks_total)[chunks]
    return np.arange(n_nodes)[:, None] == owner


@pytest.mark.parametrize("spelling", TOPOLOGIES)
def test_each_collective_puts_values_where_they_belong(spelling):
    rng, topology = np.random.default_rng(1), parse(spelling)
    n_elems = 16 * 2 * topology.n_nodes - 5
    x = rng.integers(-9, 9, (topology.n_nodes, n_elems))
    n_done = 0
    for algorithm in ALGORITHMS:
        if algorithm in SLOW or (topology.n_nodes > 16 and algorithm != "multitree"):
            continue
        try:
            schedule = build(topology, algorithm)
        except ValueError:
            continue  # it does not fit here: `test_builders` says where
        root = int(schedule.roots[-1])
        for name in ONE_PHASE:
            if algorithm == "dbtree" and name not in ("reduce", "broadcast"):
                shares = np.bincount(schedule.roots, minlength=topology.n_nodes)
                if shares.min() == shares.max():
                    continue  # of two nodes
                with pytest.raises(ValueError, match=f"chunks at node .*: {name} needs equal"):
                    collective(schedule, name)
                continue
            made = collective(schedule, name, root=root)
            table = compile_table(made)
            report = check(table, topology, name, root=root)
            assert report.steps == made.steps
            slots = report.chunk_slots * topology.n_nodes / made.chunks_total
            assert slots == pytest.approx(made.slots_total, rel=1e-12)
            bound = float(collective_bound(topology, name, root))
            assert made.slots_total >= bound * (1 - 1e-12)
            result, here = run_table(table, x)
            wanted = where(made, name, n_elems, root)
            np.testing.assert_array_equal(here, wanted)
            if name in ("reduce_scatter", "reduce"):
                want = np.broadcast_to(x.sum(axis=0), x.shape)
            else:
                source = where(made, "reduce_scatter" if name == "all_gather" else "reduce",
                               n_elems, root)  # fmt: skip
                want = np.broadcast_to((x * source).sum(axis=0), x.shape)
            np.testing.assert_array_equal(result[here], want[here])
            n_done += 1
    assert n_done >= 4


@pytest.mark.parametrize(
    ("spelling", "algorithm"),
    [("torus:4x4", "multitree"), ("mesh:3x3", "best"), ("bigraph:2x8", "hdrm"),
     ("torus:3x5", "ring"), ("torus:2x4", "forest"), ("dragonfly:2x1x2", "multistart")],
)  # fmt: skip
def test_the_two_halves_are_the_all_reduce_bit_for_bit(spelling, algorithm):
    rng, schedule = np.random.default_rng(2), build(parse(spelling), algorithm)
    shape = schedule.topology.n_nodes, 1000
    x = (rng.standard_normal(shape) * 10.0 ** rng.integers(-20, 20, shape)).astype(np.float32)
    shards, _ = run_table(compile_table(collective(schedule, "reduce_scatter")), x)
    both, here = run_table(compile_table(collective(schedule, "all_gather")), shards)
    assert here.all()
    whole = all_reduce(compile_table(schedule), x)
    np.testing.assert_array_equal(both.view(np.uint32), whole.view(np.uint32))


def test_a_table_of_another_collective_is_refused():
    torus = parse("torus:4x4")
    for made, asked, message in (
        ("all_reduce", "reduce_scatter", "chunk 0 is gathered, must stay at its root"),
        ("all_reduce", "all_gather", "node 0 reduces, where nothing is to be added"),
        ("reduce_scatter", "all_reduce", "is never delivered"),
        ("reduce_scatter", "reduce", "chunk 1 is at node 1, must be at the root, 0"),
        ("all_gather", "reduce_scatter", "never reduces"),
        ("all_gather", "broadcast", "chunk 1 is at node 1, must be at the root, 0"),
        ("reduce", "reduce_scatter", "node 1 has 0 chunks, node 0 has 16"),
        ("broadcast", "all_gather", "node 1 has 0 chunks, node 0 has 16"),
    ):
        with pytest.raises(TableError, match=message):
            check(table_of(name=made), torus, asked)
    table = table_of(name="all_gather")
    at = int(np.flatnonzero(table.rows["op"] == GATHER)[0])
    with pytest.raises(TableError, match=r"is gathered before it is final here|never delivered"):
        check(dataclasses.replace(table, rows=np.delete(table.rows, at)), torus, "all_gather")


def test_errors_name_value_and_limit():
    schedule = build(parse("torus:4x4"), "dbtree")
    with pytest.raises(ValueError, match="dbtree has no tree of root 3, but of 0, 15"):
        collective(schedule, "reduce", root=3)
    with pytest.raises(ValueError, match="collective must be one of all_reduce"):
        collective(schedule, "scatter")


def test_the_network_model_runs_each_half_in_about_half_the_time():
    torus, network = parse("torus:4x4"), Network()
    schedule = build(torus, "multitree")
    cycles = {
        name: simulate(compile_table(collective(schedule, name)), torus, 1 << 20, network).cycles
        for name in COLLECTIVES
    }
    halves = cycles["reduce_scatter"] + cycles["all_gather"]
    assert 0.95 < halves / cycles["all_reduce"] < 1.1
    for name in ONE_PHASE:
        bound = float(collective_bound(torus, name)) * (1 << 20) / 16 / 16
        assert cycles[name] >= bound
