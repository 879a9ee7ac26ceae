"""Means and maxima: one product where the root completes a sum, in the model and the circuit."""

import numpy as np
import pytest
from gradnic.hdl.offload.scaler import Scaler, factors
from gradnic.hdl.stream.fifo import FIFO
from gradnic.models import inceptionn
from gradnic.models.offload import bf16, scaler
from gradnic.models.offload.cluster import LinkFaults
from gradnic.models.offload.job_cluster import JobCluster
from gradnic.models.schedule.all_reduce import add, all_reduce
from gradnic.models.schedule.builders import build
from gradnic.models.schedule.builders.rows import compile_table
from gradnic.models.schedule.topology import parse
from gradnic.sim.engine import batch

from gradnic.interface.job import Job, JobCodec, JobStatus, Kind, Operation, Refusal

TOPOLOGY = parse("torus:2x2")
TABLE = compile_table(build(TOPOLOGY, "multitree"))
RESULT = 1 << 15
HARSH = LinkFaults(loss=0.05, duplicate=0.1, reorder=30)


def test_products_are_numpys_but_for_what_is_subnormal():
    rng = np.random.default_rng(2)
    values = rng.integers(0, 1 << 32, 50_000, dtype=np.uint64).astype(np.uint32).view(np.float32)
    for leaves in (1, 2, 3, 7, 64, 255):
        got = scaler.scaled(values, leaves)
        with np.errstate(all="ignore"):
            want = values * (np.float32(1) / np.float32(leaves))
        normal = (np.abs(values) >= scaler.LEAST) & (np.abs(want) >= scaler.LEAST)
        np.testing.assert_array_equal(got[normal].view(np.uint32), want[normal].view(np.uint32))
        nan = np.isnan(values)
        assert (got[nan].view(np.uint32) == 0x7FC00000).all()
        assert (got[~normal & ~nan].view(np.uint32) == 0).all()


def image(values):
    return inceptionn.image(values) if values.size else values


@pytest.mark.parametrize(
    ("codec", "how", "after"),
    [
        (JobCodec.RAW32, {}, lambda x: x),
        (JobCodec.INCEPTIONN, {"combine": lambda a, b: add(a, image(b))}, image),
    ],
)
def test_a_job_of_a_mean_is_its_sum_times_the_factor(codec, how, after):
    rng = np.random.default_rng(5)
    x = rng.standard_normal((TOPOLOGY.n_nodes, 1000)).astype(np.float32)
    x[0, :2], x[1, :2] = [np.inf, np.nan], [1, 2]
    cluster = JobCluster((TABLE,), TOPOLOGY, 2 * RESULT, packet=64)
    for node, card in enumerate(cluster.cards):
        card.memory[:4000] = x[node].view(np.uint8)
        cluster.post(node, Job(1, 1, 1, 1000, 0, RESULT, op=Operation.MEAN, codec=codec))
    cluster.run(HARSH)
    sums = all_reduce(TABLE, x, **how)[0]
    want = after(scaler.scaled(sums, TOPOLOGY.n_nodes))
    for node, card in enumerate(cluster.cards):
        assert cluster.ended[node][1].status == JobStatus.DONE
        got = card.memory[RESULT : RESULT + 4000].view(np.uint32)
        np.testing.assert_array_equal(got, want.view(np.uint32))


def test_a_mean_counts_the_leaves_that_are_in_it_and_may_be_bf16():
    rng = np.random.default_rng(6)
    x = rng.standard_normal((1, 2000)).astype(np.float32).repeat(TOPOLOGY.n_nodes, axis=0)
    cluster = JobCluster((TABLE,), TOPOLOGY, 2 * RESULT, packet=32)
    for node, card in enumerate(cluster.cards):
        card.memory[:4000] = bf16.narrow(x[node]).view(np.uint8)
        cluster.post(node, Job(1, 1, 1, 2000, 0, RESULT, op=Operation.MEAN, kind=Kind.BF16,
                               p_q16=20000))  # fmt: skip
    cluster.run(LinkFaults(loss=0.1, reorder=9))
    assert cluster.ended[0][1].leaves_least < 4
    for card in cluster.cards:  # all contributions are the same, so is their mean, but for rounding
        got = bf16.widen(card.memory[RESULT : RESULT + 4000].view("<u2"))
        np.testing.assert_allclose(got, bf16.image(x[0]), rtol=2**-8)


@pytest.mark.parametrize("kind", list(Kind))
def test_a_job_of_maxima_is_numpys_and_one_that_adds_nothing_leaves_it(kind):
    rng = np.random.default_rng(7)
    x = bf16.image(rng.standard_normal((TOPOLOGY.n_nodes, 1000)).astype(np.float32))
    x[0, :3], x[1, :3] = [np.inf, np.nan, -0.0], [-np.inf, 1, 0.0]
    x[2:, 2] = -0.0
    cluster = JobCluster((TABLE,), TOPOLOGY, 2 * RESULT, packet=64)
    for node, card in enumerate(cluster.cards):
        stored = bf16.narrow(x[node]) if kind == Kind.BF16 else x[node]
        card.memory[: stored.nbytes] = stored.view(np.uint8)
        cluster.post(node, Job(1, 1, 1, 1000, 0, RESULT, op=Operation.MAX, kind=kind))
    cluster.run(HARSH)
    want = np.max(x, axis=0)
    want[1:3] = np.nan, 0.0
    want = bf16.narrow(want) if kind == Kind.BF16 else want.view(np.uint32)
    for card in cluster.cards:
        got = card.memory[RESULT : RESULT + want.nbytes].view(want.dtype)
        np.testing.assert_array_equal(got, want)


def test_a_card_without_it_refuses_means_and_maxima():
    card = JobCluster((TABLE,), TOPOLOGY, 4096, scale=False, maxima=False).cards[0]
    for op in Operation.MEAN, Operation.MAX:
        assert card.refusal(Job(1, 1, 1, 64, 0, 0, op=op)) == Refusal.OPERATION


@pytest.mark.parametrize(("i_duty", "o_duty"), [(1, 1), (0.5, 1), (1, 0.3)])
@pytest.mark.parametrize("on", [1, 0])
def test_the_circuit_scales_as_the_model(on, i_duty, o_duty):
    lanes, leaves = 4, 7
    rng = np.random.default_rng(8)
    bits = rng.integers(0, 1 << 32, 4 * 3000, dtype=np.uint64).astype(np.uint32)
    bits[::5] = bits[::5] & 0x80000000 | rng.integers(0x00600000, 0x03000000, bits[::5].size)
    bits[::17] |= 0x7F800000
    bits[::34] &= 0xFF800000
    values = bits.view(np.float32)
    last = (rng.random(3000) < 0.1).astype(np.uint8)
    want = scaler.scaled(values, leaves) if on else values
    model = batch.build(Scaler(lanes))
    i, o = (
        model.pack(port, data=one.view(np.uint8).reshape(-1, 4 * lanes), last=last)
        for port, one in (("i", values), ("o", want))
    )
    signals = {"on": on, "factor": factors()[leaves]}
    run = model.run({"i": i}, stalls={"i": i_duty, "o": o_duty}, signals=signals, seed=3)
    run.check(o=o)
    if i_duty == o_duty == 1:
        latency = Scaler.latency if on else FIFO.latency
        np.testing.assert_array_equal(run.taken["o"], run.taken["i"] + latency)


def test_factors_are_the_models():
    want = [scaler.factor(leaves).view(np.uint32) for leaves in range(1, 256)]
    assert factors()[1:] == want
