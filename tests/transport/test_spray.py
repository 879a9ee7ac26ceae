"""Paths: the rules by themselves, and the circuit path for path under marks and stalls."""

import numpy as np
import pytest
from gradnic.hdl.transport.spray import Spray
from gradnic.models.transport import spray
from gradnic.sim.engine import batch, stimulus


@pytest.mark.parametrize("n", [2, 8, 32])
@pytest.mark.parametrize("rule", range(3))
@pytest.mark.parametrize("o", [1, 0.4])
@pytest.mark.parametrize("silent", [0, 1])
def test_paths(n, rule, o, silent):
    rng = stimulus.rng("spray", n, rule)
    model = batch.build(Spray(n, seed=77))
    marks = rng.integers(0, n, 400)
    run = model.run(
        {"marks": model.pack("marks", marks)}, signals={"rule": rule, "silent": silent},
        drain=False, stalls={"marks": 0.2, "paths": o}, max_cycles=3000,
    )  # fmt: skip
    golden = spray.Spray(n, spray.SPRAYS[rule], seed=77)
    marked = dict(zip(run.taken["marks"].tolist(), marks.tolist(), strict=False))
    paths, taken = [], set(run.taken["paths"].tolist())
    offered = False
    for cycle in range(1, int(run.taken["paths"][-1]) + 1):  # none is chosen in the first
        if cycle in taken:
            offered = False
        if cycle in marked and rule == 2:
            golden.mark(marked[cycle], silent=bool(silent))
        elif not offered and not (cycle - 1 in marked and rule == 2):
            paths.append(golden.next())
            offered = True
    n_taken = len(run.taken["paths"])
    assert n_taken > 900
    assert run.unpack("paths").tolist() == paths[:n_taken]
    assert rule == 2 or set(paths) == set(range(n))


def test_paths_round_robin_and_random():
    assert [spray.Spray(3).next() for _ in range(1)] == [0]
    s = spray.Spray(3)
    assert [s.next() for _ in range(7)] == [0, 1, 2, 0, 1, 2, 0]
    s = spray.Spray(5, "random", seed=9)
    got = [s.next() for _ in range(5000)]
    assert np.bincount(got, minlength=5).min() > 900
    assert spray.xorshift(1) == 0x00042021


def test_least_recently_marked_path():
    s = spray.Spray(4, "least_marked")
    assert [s.next() for _ in range(3)] == [0, 1, 2]
    s.mark(3)
    assert [s.next() for _ in range(4)] == [0, 1, 2, 0]
    for path in (0, 1, 2):
        s.mark(path)
    assert [s.next() for _ in range(3)] == [3, 3, 3]  # all are marked: the oldest
    s.mark(3)
    assert s.next() == 0


def test_a_silent_path_is_left_and_lost_probes_do_not_end_the_spraying():
    s = spray.Spray(4, "least_marked")
    for path in (0, 1, 3):
        s.mark(path)
    assert s.next() == 2  # dead, it has no mark
    assert s.again(2) != 2
    assert {s.next() for _ in range(8)} == set(range(4))  # all go without a mark again
    for _ in range(20):
        s.again(s.next())
    assert len({s.next() for _ in range(8)}) > 1


def test_parameters():
    with pytest.raises(ValueError, match="n_paths must be a power of two from 2 to 32, not 3"):
        Spray(3)
    with pytest.raises(ValueError, match="random, least_marked, not 'none'"):
        spray.Spray(3, "none")
