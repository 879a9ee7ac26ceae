"""A paper in points, as a cluster runs it, is the paper as one process runs it."""

import json

from gradnic.sim.reproduce import multitree, papers


def made_up(network, algorithm, n_bytes, flow=None):
    """Numbers that tell all points apart."""
    return 1000 + len(network) * 7 + len(algorithm) * 31 + n_bytes // 1024 + 5 * bool(flow)


def test_points_make_the_paper(monkeypatch):
    alone = multitree.run(True, lambda _: None, made_up).as_json()
    work = papers.work(["multitree"], quick=True)
    assert len(work) > 100
    keys = [tuple(item["point"]) for item in work]
    assert len(set(keys)) == len(keys)
    found = papers.joined(json.loads(json.dumps(work)), [made_up(*key) for key in keys])
    assert json.dumps(found["papers"]) == json.dumps([alone])
    assert found["claims"] == alone["claims"]
    monkeypatch.setattr(multitree, "measure", made_up)
    assert [papers.part(**item) for item in work] == [made_up(*key) for key in keys]


def test_a_paper_without_points_is_one_run():
    assert papers.work(["eflops", "multitree"], quick=True)[0] == {"name": "eflops", "quick": True}
