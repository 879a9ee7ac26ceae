"""Golden all-reduce of tables: exact integers, float32 in rank order, images, NaN."""

import dataclasses

import numpy as np
import pytest
from gradnic.models.schedule.all_reduce import NAN, all_reduce, chunk_length
from gradnic.models.schedule.builders import build
from gradnic.models.schedule.builders.rows import compile_table
from gradnic.models.schedule.topology import parse

CASES = [
    ("torus:4x4", "multitree", {}), ("mesh:3x3", "multitree", {"chunks": 2}),
    ("torus:3x5", "ring", {}), ("mesh:4x4", "overlapped", {"chunks": 2}),
    ("bigraph:4x8", "hdrm", {}), ("fattree:4x2", "dbtree", {}), ("torus:4x4", "ring2d", {}),
    ("hypercube:3", "bfb", {"chunks": 3}),
]  # fmt: skip


@pytest.mark.parametrize(("spelling", "algorithm", "options"), CASES)
@pytest.mark.parametrize("n_elems", [1, 17, 1000, 4099])
def test_integers_sum_exactly_on_every_node(spelling, algorithm, options, n_elems):
    topology = parse(spelling)
    table = compile_table(build(topology, algorithm, **options))
    values = np.random.default_rng(3).integers(-(1 << 40), 1 << 40, (topology.n_nodes, n_elems))
    got = all_reduce(table, values)
    assert np.array_equal(got, np.broadcast_to(values.sum(axis=0), values.shape))
    top = all_reduce(table, values, combine=np.maximum)
    assert np.array_equal(top, np.broadcast_to(values.max(axis=0), values.shape))


def test_a_ring_adds_in_the_order_of_its_nodes():
    table = compile_table(build(parse("ring:4"), "ring"))
    rng = np.random.default_rng(4)
    x = (rng.standard_normal((4, 64)) * 10.0 ** rng.integers(-6, 6, (4, 64))).astype(np.float32)
    got = all_reduce(table, x)
    want = np.empty(64, np.float32)
    for shard in range(4):  # begins behind its owner, each node adds what comes to its own
        part = slice(shard * 16, shard * 16 + 16)
        total = x[(shard + 1) % 4, part]
        for i in range(2, 5):
            total = x[(shard + i) % 4, part] + total
        want[part] = total
    assert np.array_equal(got.view(np.uint32), np.broadcast_to(want.view(np.uint32), (4, 64)))


def test_ranks_decide_the_order_of_addition():
    table = compile_table(build(parse("full:4"), "multitree"))
    x = np.zeros((4, 64), np.float32)
    x[1, 0], x[2, 0], x[3, 0] = 1e8, -1e8, 3.0  # at root 0: ranks by source
    assert all_reduce(table, x)[2, 0] == np.float32(3.0)
    rows = table.rows.copy()
    mine = np.flatnonzero((rows["first"] == 0) & (rows["op"] == 0) & (rows["sends"][:, 0] >= 0))
    assert rows["rank"][mine].tolist() == [0, 1, 2]
    rows["rank"][mine] = [1, 2, 0]  # (3 + 1e8) - 1e8 loses the 3 to rounding
    assert all_reduce(dataclasses.replace(table, rows=rows), x)[2, 0] == np.float32(0.0)


def test_nan_has_one_pattern_and_images_reach_every_replica():
    table = compile_table(build(parse("torus:4x4"), "multitree"))
    x = np.ones((16, 300), np.float32)
    x[3, 5], x[4, 5] = np.inf, -np.inf
    x[7].view(np.uint32)[9] = 0xFFC12345
    got = all_reduce(table, x)
    assert (got.view(np.uint32)[:, [5, 9]] == NAN).all()
    assert (np.delete(got, [5, 9], axis=1) == 16).all()
    halves = all_reduce(table, np.ones((16, 300), np.float32), image=lambda chunk: chunk / 2)
    assert (halves == 8).all()


def test_wrong_shapes_and_tables_are_named():
    table = compile_table(build(parse("ring:4"), "ring"))
    with pytest.raises(ValueError, match=r"gradients must be \(4, n_elems\), not \(3, 8\)"):
        all_reduce(table, np.zeros((3, 8), np.float32))
    fewer = dataclasses.replace(table, rows=np.delete(table.rows, 0))
    with pytest.raises(ValueError, match="node 1 has 0 contributions of chunk 3, not 1"):
        all_reduce(fewer, np.zeros((4, 8), np.float32))


def test_chunks_are_multiples_of_sixteen():
    assert [chunk_length(n, 4) for n in (1, 64, 65, 128, 129)] == [16, 16, 32, 32, 48]
