"""A paper in points, as a cluster runs it, is the paper as one process runs it."""

import json
import zlib

import pytest
from gradnic.sim.reproduce import accuracy_time, dlcp, multitree, papers


def made_up(network, algorithm, n_bytes, flow=None):
    """Numbers that tell all points apart."""
    return 1000 + len(network) * 7 + len(algorithm) * 31 + n_bytes // 1024 + 5 * bool(flow)


def test_points_make_the_paper(monkeypatch):
    alone = multitree.run(True, lambda _: None, made_up).as_json()
    work = json.loads(json.dumps(papers.work(["multitree"], quick=True)))
    monkeypatch.setattr(multitree, "cycles", made_up)
    tables = [tuple(item["point"][:2]) for item in work]
    assert 30 < len(set(tables)) == len(tables)  # each is built once
    found = papers.joined(work, [papers.part(**item) for item in work])
    assert json.dumps(found["papers"]) == json.dumps([alone])
    assert found["claims"] == alone["claims"]


@pytest.mark.parametrize("network", ["model", "ns3", "rtl"])
def test_runs_of_networks_make_dlcp(monkeypatch, network):
    """All that is measured is a run of its own: on our network, on ns-3, by cards of RTL."""

    def number(*key):
        at = zlib.crc32(json.dumps(key).encode()) % 1000
        return [100.0 + at + i for i in range(7)]

    monkeypatch.setattr(dlcp, "_stretch_points", lambda p, _: [2 - p] * 3)
    alone = dlcp.run(True, lambda _: None, number, network).as_json()
    work = json.loads(json.dumps(papers.work(["dlcp"], quick=True, network=network)))
    found = papers.joined(work, [number(*item["point"]) for item in work])
    assert json.dumps(found["papers"]) == json.dumps([alone])
    what = [item["point"][0] for item in work]
    assert set(what) == {"flows"} | {"ns3": {"small", "tcp", "all-reduce"}, "rtl": {"cards"}}.get(
        network, set()
    )
    assert what.count("cards") in (0, 3 * (1 + 3 * 3))
    assert len(what) == len({json.dumps(item) for item in work})


def learned(variant, model, epochs, seed):
    """A made-up training run: all variants, models and seeds apart."""
    at = len(variant) / 100 + seed / 50
    return {
        "accuracy": [0.1 + 0.89 * (1 - 0.2 ** (i * (1 + at))) for i in range(epochs + 1)],
        "nmse": at, "wire_ratio": 2 + at,
    }  # fmt: skip


def test_training_runs_make_the_page_of_two_networks(monkeypatch):
    """Each seed is a run; two networks in one dict do not mix."""
    monkeypatch.setattr(accuracy_time, "task_of", lambda model: (None, [], 5000 + len(model)))
    models = ("mlp", "conv")
    alone = [accuracy_time.run(True, lambda _: None, learned, model=m).as_json() for m in models]
    work = [i for m in models for i in papers.work(["time-to-accuracy"], quick=True, model=m)]
    found = papers.joined(work, [learned(*item["point"]) for item in work])
    assert json.dumps(found["papers"]) == json.dumps(alone)
    assert [paper["paper"] for paper in alone] == ["time-to-accuracy", "time-to-accuracy, conv"]
    seeds = {tuple(item["point"][:3]): 0 for item in work}
    for item in work:
        seeds[tuple(item["point"][:3])] += 1
    assert set(seeds.values()) == {2}
    rows = alone[0]["tables"][0]["rows"]
    assert all(row[3] > 0 and row[5] > 0 for row in rows)  # deviations over the seeds


def test_a_paper_without_points_is_one_run():
    assert papers.work(["eflops", "multitree"], quick=True)[0] == {"name": "eflops", "quick": True}
