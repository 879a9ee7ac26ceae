"""The star's INT32 clients over links with faults; those of THC are in test_aggregate."""

import numpy as np
import pytest
from gradnic.models.aggregation.aggregator import Aggregator
from gradnic.models.aggregation.jobs import Config, Job
from gradnic.models.aggregation.star import Faults, Int32Client, run
from gradnic.models.aggregation.switchml_worker import exponent, factor, quantize
from gradnic.models.frame.address import Address

from gradnic.errors import Unfinished


def config(n, **changes):
    children = tuple(Address(i, 0x020000000000 + i, 0x0A000001 + i) for i in range(n))
    job = Job(5, children, kind="int32", **{"n_slots": 8} | changes)
    return Config(0x02AA00000000, 0x0A0000FE, n, (job,))


def reduced(gradients, n_elems):
    """The same sum without a network."""
    n, size = gradients.shape
    out = np.zeros(size, np.float32)
    for at in range(0, size, n_elems):
        part = np.pad(gradients[:, at : at + n_elems], ((0, 0), (0, max(0, at + n_elems - size))))
        scale = factor(max(exponent(x) for x in part), n)
        total = sum(quantize(x, scale).astype(np.int64) for x in part if np.isfinite(scale))
        sums = np.broadcast_to(total, n_elems).astype(np.float32) / scale
        out[at : at + n_elems] = sums[: size - at]
    return out


@pytest.mark.parametrize("overflow", ["wrap", "saturate", "error"])
@pytest.mark.parametrize(
    "faults",
    [Faults(), Faults(loss=0.05, duplicate=0.1, reorder=64), Faults(loss=0.1, reorder=5000)],
    ids=["clean", "loss 5 %, reordered", "loss 10 %, later than the timer"],
)
@pytest.mark.parametrize("k0", [0, (8 << 16) - 5], ids=["start", "generation wraps"])
def test_every_worker_gets_the_fixed_point_sum(overflow, faults, k0):
    rng = np.random.default_rng(4)
    scales = np.float32(2.0) ** rng.integers(-20, 20, 3000)
    gradients = (rng.standard_normal((4, 3000)) * scales).astype(np.float32)
    gradients[:, 500:900] = 0
    setup = config(4, overflow=overflow)
    clients = [
        Int32Client(setup, setup.jobs[0], i, x, n_elems=64, tensor=3, k0=k0)
        for i, x in enumerate(gradients)
    ]
    unit = Aggregator(setup)
    run(unit, clients, faults, seed=1)
    for client in clients:
        assert client.result().tobytes() == clients[0].result().tobytes()
        assert client.result().tobytes() == reduced(gradients, 64).tobytes()
    assert unit.counters["overflow"] == 0
    np.testing.assert_allclose(clients[0].result(), gradients.sum(axis=0), rtol=1e-6, atol=0.1)


def test_a_dead_worker_is_left_behind():
    rng = np.random.default_rng(2)
    gradients = rng.standard_normal((3, 2000)).astype(np.float32)
    setup = config(3, deadline=3000)
    clients = [Int32Client(setup, setup.jobs[0], i, x, n_elems=64) for i, x in enumerate(gradients)]
    unit = Aggregator(setup)
    run(unit, clients, Faults(loss=0.01, reorder=30, death=((2, 60),)), seed=2)
    assert unit.counters["partial"] > 0
    assert clients[0].result().tobytes() == clients[1].result().tobytes()
    with pytest.raises(ValueError, match="packets have no answer yet"):
        clients[2].result()


def test_who_is_dead_from_the_start_sends_nothing():
    setup, x = config(2, deadline=3000), np.ones((2, 200), np.float32)
    both = [Int32Client(setup, setup.jobs[0], i, one, n_elems=64) for i, one in enumerate(x)]
    unit = Aggregator(setup)
    run(unit, both, Faults(death=((0, 0), (1, 0))))
    assert unit.counters["accepted"] == 0
    assert not any(client.done for client in both)


def clients(n, setting, size=20_000):
    x = np.random.default_rng(8).normal(0, 0.1, (n, size)).astype(np.float32)
    return [Int32Client(setting, setting.jobs[0], i, x[i], n_elems=256) for i in range(n)]


@pytest.mark.parametrize("seed", range(3))
def test_a_star_that_loses_a_third_of_its_frames_ends_soon(seed):
    """What was lost often is not asked for ever more seldom."""
    setting = config(3)
    workers = clients(3, setting)
    finished = run(Aggregator(setting), workers, Faults(loss=0.3), seed=seed)
    assert all(worker.done for worker in workers)
    assert finished < 1_000_000


def test_a_star_that_does_not_end_says_who_waits():
    setting = config(2)
    workers = clients(2, setting, 300)
    with pytest.raises(Unfinished, match=r"workers \[0, 1\] are not done at time 5000"):
        run(Aggregator(setting), workers, Faults(loss=0.9999), limit=5000)
