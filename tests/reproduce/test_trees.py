"""Optimal trees: what is measured of a network, and the claims made of it."""

import pytest
from gradnic.models.schedule.checker import TableError
from gradnic.sim.reproduce import papers, trees


def test_a_network_s_trees_are_built_checked_and_counted(monkeypatch):
    nodes, bound, slots, chunks, entries, seconds = trees.measure("nvlink:2x8x1")
    assert (nodes, bound) == (16, 8.0)  # 15 of 16 shards of the others over 8 x 1 NICs a box
    assert bound < slots < 1.01 * bound
    assert chunks > 1
    assert entries > 2 * 15
    assert 0 < seconds < 60

    def refuse(table, topology):
        raise TableError("not an all-reduce")

    monkeypatch.setattr(trees, "check", refuse)
    with pytest.raises(TableError, match="not an all-reduce"):
        trees.measure("dgx:8x2")


def test_claims_are_the_worst_network_and_the_slowest_large_one():
    """Quick runs have no seconds, which are not the same twice."""

    def made_up(network):
        at = trees.NETWORKS.index(network)
        return [128 if network.startswith("nvlink:16") else 16, 10.0, 10.0 + at / 100, 2.0, 40,
                70.0 - at]  # fmt: skip

    whole = papers.joined(
        papers.work(["trees"], quick=False),
        [made_up(*key) for key in trees.points(quick=False)],
    )
    above, seconds = whole["claims"]
    worst = 0.1 * (len(trees.NETWORKS) - 1)
    assert above["ours"] == pytest.approx(worst)
    assert not above["holds"]
    assert trees.NETWORKS[-1] in above["differs"]
    assert seconds["ours"] == 70.0 - trees.NETWORKS.index("nvlink:16x8x1")
    quick = trees.run(True, lambda _: None, made_up).as_json()
    assert len(quick["claims"]) == 1
    assert "build, CPU s" not in quick["tables"][0]["columns"]
    assert [len(row) for row in quick["tables"][0]["rows"]] == [7] * len(trees.QUICK)
