"""The checker: broken tables die with a clear line; what passes gives right sums in any order."""

import dataclasses

import numpy as np
import pytest
from gradnic.models.schedule.builders import build
from gradnic.models.schedule.builders.rows import compile_table
from gradnic.models.schedule.checker import _SEND, TableError, check
from gradnic.models.schedule.replay import Block
from gradnic.models.schedule.topology import parse

from gradnic.interface.schedule_table import GATHER, NOP, REDUCE


def table_of(spelling="torus:4x4", algorithm="multitree", **options):
    return compile_table(build(parse(spelling), algorithm, **options))


def changed(table, at, **values):
    """The table with fields of row `at` changed."""
    rows = table.rows.copy()
    for name, value in values.items():
        rows[name][at] = value
    return dataclasses.replace(table, rows=rows)


def find(table, op, sends=True, **fields):
    """Index of the first row of this kind."""
    rows = table.rows
    mask = (rows["op"] == op) & ((rows["sends"][:, 0] >= 0) == sends)
    for name, value in fields.items():
        mask &= rows[name] == value
    return int(np.flatnonzero(mask)[0])


def refuses(table, message, spelling="torus:4x4"):
    with pytest.raises(TableError, match=message) as caught:
        check(table, parse(spelling))
    assert "\n" not in str(caught.value)


def test_a_missing_row_is_named():
    table = table_of()
    for at, message in (
        (find(table, REDUCE), "node 0 never reduces chunk"),
        (find(table, REDUCE, sends=False), "node 0 never reduces chunk 0"),
        (find(table, GATHER), "is gathered before it is final here|is never delivered"),
    ):
        refuses(dataclasses.replace(table, rows=np.delete(table.rows, at)), message)


def test_a_row_twice_is_named():
    table = table_of()
    at = find(table, REDUCE)
    refuses(dataclasses.replace(table, rows=np.insert(table.rows, at, table.rows[at])),
            r"reduces 2 times chunk")  # fmt: skip
    at = find(table, GATHER)
    refuses(dataclasses.replace(table, rows=np.insert(table.rows, at, table.rows[at])),
            "is delivered twice")  # fmt: skip


def test_waiting_for_too_few_or_too_many_is_named():
    table = table_of()
    at = find(table, REDUCE, wait=2)
    for wait in 1, 3, 0:
        refuses(changed(table, at, wait=wait), "before its contributions came|receives a part")
    top = find(table, REDUCE, sends=False)
    refuses(changed(table, top, wait=table.rows["wait"][top] - 1), "wrong number of contributions")


def test_steps_out_of_order_are_named():
    table = table_of()
    at = find(table, REDUCE, wait=2)
    refuses(changed(table, at, step=0), "step 0: node .* is sent before its contributions came")
    at = find(table, REDUCE, step=0)
    refuses(changed(table, at, step=9), "receives|before its contributions came")
    at = int(np.flatnonzero((table.rows["op"] == GATHER) & (table.rows["step"] > 6))[-1])
    refuses(changed(table, at, step=5), "gathered before it is final here|overwritten")


def test_foreign_chunks_peers_and_operations_are_named():
    table = table_of()
    refuses(changed(table, 3, first=16), "row 3 of node 0 names chunks outside 0 to 15")
    refuses(changed(table, 3, first=-1), "names chunks outside 0 to 15")
    refuses(changed(table, 3, count=99), "names chunks outside 0 to 15")
    refuses(changed(table, 3, sends=[4, -1, -1, -1]), "row 3 of node 0 names a peer")
    refuses(changed(table, 3, op=7), "unknown operation")
    refuses(changed(table, 3, step=-1), "step below 0")
    refuses(changed(table, 3, repeat=1), "repeats, but the table has no period")
    refuses(changed(table, 0, node=16), "names a node outside")
    refuses(changed(table, find(table, REDUCE), sends=[0, 1, -1, -1]), "more than one peer")
    refuses(changed(table, find(table, GATHER), sends=-1), "gathers to nobody")
    refuses(table, "table is for 16 nodes, torus:8x8 has 64", "torus:8x8")


def test_a_cycle_is_named_with_its_nodes():
    table = table_of("ring:4", "ring")
    rows = table.rows.copy()
    top = find(table, REDUCE, sends=False)
    chunk = rows["first"][top]
    rows["sends"][top, 0] = 0  # the root passes its sum on to the node that began
    loop = dataclasses.replace(table, rows=rows)
    refuses(loop, f"chunk {chunk} has 0 terminal rows", "ring:4")
    # two nodes that reduce to each other, while another is the root
    table = table_of("full:4")
    rows = table.rows.copy()
    mine = (rows["op"] == REDUCE) & (rows["first"] == 0)
    for a, b in (2, 3), (3, 2):
        peers = table.peers[table.peers["node"] == a]
        to = int(peers["index"][peers["to"] == b][0])
        rows["sends"][np.flatnonzero(mine & (rows["node"] == a))[0], 0] = to
    message = "chunk 0: nodes wait for each other in a cycle, (2 -> 3 -> 2|3 -> 2 -> 3)"
    refuses(dataclasses.replace(table, rows=rows), message, "full:4")


def test_ranks_are_a_permutation_and_late_ones_wait():
    table = table_of()
    at = find(table, REDUCE, rank=1)
    refuses(changed(table, at, rank=0), "has rank 0 twice")
    refuses(changed(table, at, rank=9), "has rank 9 beyond its count")
    full = table_of("full:4")
    mine = (full.rows["first"] == 0) & (full.rows["op"] == REDUCE) & (full.rows["sends"][:, 0] >= 0)
    rows = full.rows.copy()
    rows["rank"][mine] = [1, 2, 0]  # another order of addition is as right as the first
    check(dataclasses.replace(full, rows=rows), parse("full:4"))
    before = check(table_of("bigraph:2x4"), parse("bigraph:2x4")).landing_chunks
    turned = table_of("bigraph:2x4")
    wait = turned.rows["wait"][find(turned, REDUCE, sends=False)]
    mine = (turned.rows["first"] == 0) & (turned.rows["op"] == REDUCE)
    assert wait > 1
    rows = turned.rows.copy()
    sent = mine & (rows["sends"][:, 0] >= 0)
    to = [turned.peers["to"][turned.peers["node"] == v][s]
          for v, s in zip(rows["node"][sent], rows["sends"][sent, 0], strict=True)]  # fmt: skip
    at = np.flatnonzero(sent)[np.array(to) == 0]
    rows["rank"][at] = wait - 1 - rows["rank"][at]  # the first to come is the last to be added
    after = check(dataclasses.replace(turned, rows=rows), parse("bigraph:2x4")).landing_chunks
    assert after > before


def test_broken_paths_are_named():
    table = table_of()
    paths = list(table.paths)
    paths[0], paths[9] = paths[9], paths[0]
    refuses(dataclasses.replace(table, paths=paths), "path breaks at")
    peers = table.peers.copy()
    peers["to"][0] = 7
    refuses(dataclasses.replace(table, peers=peers), "path ends at")


def test_collisions_are_counted_and_named_not_refused():
    table, topology = table_of("torus:4x4"), parse("torus:4x4")
    assert check(table, topology).collision is None
    rows = table.rows
    last = int(rows["step"].max())
    late = rows[(rows["op"] == GATHER) & (rows["step"] == last)]
    named = 0
    for at in np.flatnonzero((rows["op"] == GATHER) & (rows["step"] == last - 1)):
        mine = late[late["node"] == rows["node"][at]]
        if not np.isin(rows["sends"][at, 0], mine["sends"]) or rows["sends"][at, 1] >= 0:
            continue
        moved = rows.copy()
        moved["step"][at] = last
        moved = moved[np.lexsort([moved["op"], moved["step"], moved["node"]])]
        report = check(dataclasses.replace(table, rows=moved), topology)
        node = int(rows["node"][at])
        to = int(table.peers["to"][table.peers["node"] == node][rows["sends"][at, 0]])
        assert report.max_flows == 2
        assert report.collision == f"step {last}, link {node}->{to}: {node}->{to}, {node}->{to}"
        named += 1
    assert named


def test_periodic_tables_are_proven_over_all_stages():
    topology = parse("mesh:4x4")
    table = compile_table(build(topology, "overlapped", chunks=32))
    assert check(table, topology).max_flows == 1
    refuses(changed(table, 3, step=5), "step is beyond the period of 5", "mesh:4x4")
    refuses(changed(table, 3, repeat=0), "repeats, but", "mesh:4x4")
    broken = 0
    for at in range(0, len(table.rows), 7):  # another stage: too early, or onto a taken link
        if table.rows["repeat"][at] > 1:
            early = changed(table, at, repeat=1)
            with pytest.raises(TableError):
                check(early, topology)
            broken += 1
    assert broken > 10
    slow = dataclasses.replace(table, period=4)
    with pytest.raises(TableError):
        check(slow, topology)


def run_in_any_order(table, rng, limit=10_000):
    """Add real numbers as cards would, rows in random order; the sums of all nodes, or None.

    Rows wait as docs/guide/schedules.md says; nothing of steps, links or ranks is used. None:
    stuck.
    """
    n, c = table.n_nodes, table.n_chunks
    values = rng.integers(0, 1 << 40, (n, c))
    want = values.sum(axis=0)
    have, added = values.copy(), np.zeros((n, c), int)
    final, sent = np.zeros((n, c), bool), np.zeros((n, c), bool)
    start = np.searchsorted(table.peers["node"], np.arange(n))
    left = [row for row in table.rows if row["op"] != NOP]
    while left and limit:
        limit -= 1
        ready = []
        for i, row in enumerate(left):
            v, chunk = row["node"], slice(row["first"], row["first"] + row["count"] + 1)
            met = added[v, chunk] == row["wait"] if row["op"] == REDUCE else final[v, chunk]
            if met.all():
                ready.append(i)
        if not ready:
            return None, want
        row = left.pop(int(rng.choice(ready)))
        v, chunk = row["node"], slice(row["first"], row["first"] + row["count"] + 1)
        peers = table.peers[start[v] + row["sends"][row["sends"] >= 0]]["to"]
        if row["op"] == REDUCE:
            sent[v, chunk] = True
            if not len(peers):
                final[v, chunk] = True
        for to in peers:
            if row["op"] == REDUCE:
                have[to, chunk] += have[v, chunk]
                added[to, chunk] += 1
            elif not sent[to, chunk].all():
                return None, want
            else:
                have[to, chunk], final[to, chunk] = have[v, chunk], True
    return (have if final.all() else None), want


@pytest.mark.parametrize(
    ("spelling", "algorithm"),
    [
        ("mesh:3x3", "multitree"), ("ring:5", "ring"), ("torus:3x3", "bfb"), ("mesh:2x3", "ring2d"),
        ("hypercube:3", "halving"), ("bigraph:2x4", "hdrm"), ("fattree:2x2", "dbtree"),
        ("full:4", "bidirectional"), ("bigraph:2x4", "multitree"),
    ],
)  # fmt: skip
def test_what_passes_adds_up_in_any_order(spelling, algorithm):
    table = table_of(spelling, algorithm)
    check(table, parse(spelling))
    rng = np.random.default_rng(7)
    for _ in range(2):
        got, want = run_in_any_order(table, rng)
        assert np.array_equal(got, np.broadcast_to(want, got.shape))


@pytest.mark.parametrize(
    ("spelling", "algorithm"),
    [("mesh:2x3", "multitree"), ("ring:4", "ring"), ("bigraph:2x4", "hdrm")],
)
def test_random_faults_never_slip_through(spelling, algorithm):
    """One field of one row changed: if sums are wrong in some order, the checker must refuse."""
    table, topology = table_of(spelling, algorithm), parse(spelling)
    rng = np.random.default_rng(11)
    wrong = 0
    for _ in range(120):
        at = int(rng.integers(len(table.rows)))
        name = str(rng.choice(["op", "wait", "first", "count", "sends", "step", "rank"]))
        row = table.rows[at]
        if name == "sends":
            value = [int(rng.integers(-1, 3)), -1, -1, -1]
        else:
            value = max(0, int(row[name]) + int(rng.choice([-1, 1])))
        fault = changed(table, at, **{name: value})
        try:
            check(fault, topology)
        except TableError:
            wrong += 1
            continue
        got, want = run_in_any_order(fault, rng)
        assert got is not None
        assert np.array_equal(got, np.broadcast_to(want, got.shape))
    assert wrong > 40


def test_the_replay_itself_sees_double_and_missing_parts():
    """Counting rows finds these first, so the sets of the replay are tried by themselves."""
    move = np.zeros(1, _SEND)
    move["dst"], move["count"] = 1, 1
    block = Block(3, 3, 0, 1)
    block.move(0, move, np.array([0]))
    with pytest.raises(TableError, match="node 1, chunk 0 would count a part twice"):
        block.move(1, move, np.array([0]))
    top = np.zeros(1, [("node", "i4"), ("wait", "i4"), ("first", "i4"), ("count", "i4")])
    top["node"], top["wait"], top["count"] = 1, 1, 1
    with pytest.raises(TableError, match="node 1, chunk 0 is completed without every node's part"):
        block.finish(2, top)


def test_landing_buffers_are_counted():
    report = check(table_of(), parse("torus:4x4"))
    assert report.landing_chunks == 4  # four links can deliver at once
    assert report.landing_chunks_any_order == 7
    report = check(table_of("ring:8", "ring"), parse("ring:8"))
    assert (report.landing_chunks, report.landing_chunks_any_order) == (1, 0)
