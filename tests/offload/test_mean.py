"""Means: one product where the root completes a sum, on golden cards."""

import numpy as np
import pytest
from gradnic.models import inceptionn
from gradnic.models.offload import bf16, mean
from gradnic.models.offload.cluster import LinkFaults
from gradnic.models.offload.jobs import JobCluster
from gradnic.models.schedule.all_reduce import add, all_reduce
from gradnic.models.schedule.builders import build
from gradnic.models.schedule.builders.rows import compile_table
from gradnic.models.schedule.topology import parse

from gradnic.interface.job import Job, JobCodec, JobStatus, Kind, Operation, Refusal

TOPOLOGY = parse("torus:2x2")
TABLE = compile_table(build(TOPOLOGY, "multitree"))
RESULT = 1 << 15
HARSH = LinkFaults(loss=0.05, duplicate=0.1, reorder=30)


def test_products_are_numpys_but_for_what_is_subnormal():
    rng = np.random.default_rng(2)
    values = rng.integers(0, 1 << 32, 50_000, dtype=np.uint64).astype(np.uint32).view(np.float32)
    for leaves in (1, 2, 3, 7, 64, 255):
        got = mean.scaled(values, leaves)
        with np.errstate(all="ignore"):
            want = values * (np.float32(1) / np.float32(leaves))
        normal = (np.abs(values) >= mean.LEAST) & (np.abs(want) >= mean.LEAST)
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
    want = after(mean.scaled(sums, TOPOLOGY.n_nodes))
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


def test_a_card_without_it_refuses_means():
    card = JobCluster((TABLE,), TOPOLOGY, 4096, scale=False).cards[0]
    assert card.refusal(Job(1, 1, 1, 64, 0, 0, op=Operation.MEAN)) == Refusal.OPERATION
