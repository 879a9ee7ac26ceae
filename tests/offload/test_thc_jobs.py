"""Golden cards whose jobs have codec THC: gradients in, means out, norms and sums on the way."""

from dataclasses import replace

import numpy as np
import pytest
from gradnic.models.offload import bf16
from gradnic.models.offload.cluster import LinkFaults, all_reduce
from gradnic.models.offload.codec import Thc
from gradnic.models.offload.job_cluster import JobCluster
from gradnic.models.offload.plan import Plan
from gradnic.models.offload.thc_job import ThcJob
from gradnic.models.schedule.all_reduce import all_reduce as raw_sums
from gradnic.models.schedule.builders import build
from gradnic.models.schedule.builders.rows import compile_table
from gradnic.models.schedule.topology import parse
from gradnic.models.thc import Worker

from gradnic.interface.job import Job, JobCodec, JobStatus, Kind, Operation, Refusal

HARSH = LinkFaults(loss=0.05, duplicate=0.1, reorder=30)
MEMORY = 1 << 19


class Bench:
    """A cluster, and THC jobs on gradients of its own."""

    def __init__(self, spelling="ring:3", algorithm="ring", thc=None, **options):
        topology = parse(spelling)
        self.n = topology.n_nodes
        self.table = compile_table(build(topology, algorithm))
        options.setdefault("settings", {"t_probe": 40, "t_retry": 40})
        self.thc = {"B": 64, **(thc or {})}
        self.cluster = JobCluster((self.table,), topology, MEMORY, thc=self.thc, **options)
        self.rng = np.random.default_rng(3)
        self.at, self.sources = 0, {}

    def place(self, values):
        """Put values float32 (n, elems) into all memories; their address."""
        at = self.at
        for card, mine in zip(self.cluster.cards, values, strict=True):
            card.memory[at : at + mine.nbytes] = mine.view(np.uint8)
        self.at += -(-values[0].nbytes // 64) * 64
        return at

    def job(self, id, elems, **fields):
        x = self.rng.standard_normal((self.n, elems)).astype(np.float32) / 8
        told = {"tensor": id, "gen": 2, "codec": JobCodec.THC, "seed": 17 + id}
        job = Job(id, elems=elems, source=self.place(x), result=self.place(np.zeros_like(x)),
                  **(told | fields))  # fmt: skip
        self.sources[id] = x
        return job

    def post(self, *jobs):
        for node in range(self.n):
            for job in jobs:
                self.cluster.post(node, job)

    def floats(self, node, at, elems):
        return self.cluster.cards[node].memory[at : at + 4 * elems].view(np.float32)

    def want(self, job, x):
        """(mean, residuals) by the workers alone, and the table's sums: no cards at all."""
        worker = Worker(self.n, job.seed, sign_round=job.gen, **self.thc)
        codec = Thc(worker)
        padded = np.zeros((self.n, -(-job.elems // codec.unit) * codec.unit), np.float32)
        padded[:, : job.elems] = x
        norms = np.max([worker.norms(one) for one in padded], axis=0)
        codes = [
            worker.encode(one, norms, round=job.gen, worker=node, tensor=job.tensor)
            for node, one in enumerate(padded)
        ]
        plan = Plan(self.table, padded.shape[1], unit=codec.unit, packet=codec.C)
        levels = np.array([worker.table[one] for one in codes])
        sums, _ = all_reduce(plan, codec, levels, lambda part: part, {})
        mean = worker.decode(sums, norms, round=job.gen, tensor=job.tensor)
        lost = [
            worker.residual(one, code, norms, tensor=job.tensor)[: job.elems]
            for one, code in zip(padded, codes, strict=True)
        ]
        return mean[: job.elems], lost

    def check(self, job, x=None):
        """Done everywhere, with the workers' bits; returns the mean and the residuals."""
        mean, lost = self.want(job, self.sources[job.id] if x is None else x)
        for node in range(self.n):
            told = self.cluster.ended[node][job.id]
            assert (told.status, told.leaves_least) == (JobStatus.DONE, self.n)
            found = self.floats(node, job.result, job.elems)
            np.testing.assert_array_equal(found.view(np.uint32), mean.view(np.uint32))
        return mean, lost


@pytest.mark.parametrize(
    ("b", "g", "n"),
    [
        (2, 30, 3), (4, 30, 3), (8, 254, 3), (3, 100, 4), (4, 30, 9),
        pytest.param(4, 30, 64, marks=pytest.mark.slow),  # half a minute
    ],
)  # fmt: skip
def test_job_gives_what_workers_and_their_sums_give(b, g, n):
    where = ("torus:8x8", "multitree") if n == 64 else (f"ring:{n}", "ring")
    bench = Bench(*where, thc={"b": b, "g": g}, packet=32)
    jobs = [bench.job(1, 2500), bench.job(2, 1024)]  # 9 nodes and 30: sums of 12 bits
    bench.post(*jobs)
    bench.cluster.run(LinkFaults(reorder=5))
    for job in jobs:
        mean, _ = bench.check(job)
    exact = bench.sources[2].mean(axis=0)
    assert ((mean - exact) ** 2).sum() / (exact**2).sum() < {2: 0.9, 3: 0.3, 4: 0.06, 8: 0.03}[b]


def test_jobs_with_thc_and_raw_ones_share_links_that_lose():
    bench = Bench("mesh:2x2", "multitree", packet=32, n_active=3)
    jobs = [bench.job(k, 300 + 700 * k, layer=7 - k) for k in range(4)]
    raw = bench.job(9, 2000, codec=JobCodec.RAW32, layer=3)
    bench.post(*jobs[:2], raw, *jobs[2:])
    bench.cluster.run(HARSH)
    for job in jobs:
        bench.check(job)
    want = raw_sums(bench.table, bench.sources[9])
    for node in range(bench.n):
        np.testing.assert_array_equal(bench.floats(node, raw.result, 2000), want[node])


def test_feedback_carries_what_was_lost_into_the_next_job():
    bench = Bench(packet=32)
    gradients, carried = bench.rng.standard_normal((4, bench.n, 700)).astype(np.float32), 0.0
    gradients[2, 1, 100] = np.inf  # an overflow is not heard of again
    residual = bench.place(np.zeros((bench.n, 2 * 704), np.float32))  # halves of whole 64 bytes
    for k, x in enumerate(gradients):
        job = Job(
            k, 5, 2 + 2 * k, 700, bench.place(x), bench.place(np.zeros_like(x)),
            codec=JobCodec.THC, feedback=1, residual=residual // 64, half=k % 2,
        )  # fmt: skip
        before = [bench.floats(node, job.residual_at(k % 2), 700).copy() for node in range(3)]
        bench.post(job)
        bench.cluster.run(HARSH)
        _, lost = bench.check(job, x + carried)
        for node in range(bench.n):
            old, new = (bench.floats(node, job.residual_at(h), 700) for h in (k % 2, 1 - k % 2))
            np.testing.assert_array_equal(old, before[node])
            np.testing.assert_array_equal(new, lost[node])
        carried = np.array(lost)
        assert np.isfinite(carried).all()
        assert carried.any()
        assert carried[:, 64:128].any() == (k != 2)


def test_bf16_in_memory_is_rounded_at_both_ends_and_mean_is_what_thc_gives():
    bench = Bench(packet=32)
    x = bf16.narrow(bench.rng.standard_normal((3, 700)).astype(np.float32))
    at, result = bench.place(x), bench.place(np.zeros_like(x))
    residual = bench.place(np.zeros((3, 2 * 704), np.float32))
    job = Job(1, 5, 2, 700, at, result, op=Operation.MEAN, kind=Kind.BF16, codec=JobCodec.THC,
              feedback=1, residual=residual // 64)  # fmt: skip
    bench.post(job)
    bench.cluster.run(HARSH)
    mean, lost = bench.want(job, bf16.widen(x))
    for node in range(3):
        assert bench.cluster.ended[node][1].status == JobStatus.DONE
        found = bench.cluster.cards[node].memory[result : result + 1400].view("<u2")
        np.testing.assert_array_equal(found, bf16.narrow(mean))
        np.testing.assert_array_equal(bench.floats(node, job.residual_at(1), 700), lost[node])


def test_dice_and_signs_are_a_function_of_seed_tensor_and_gen():
    x, results = None, []
    for seed, tensor, gen in ((1, 1, 2), (1, 1, 2), (2, 1, 2), (1, 2, 2), (1, 1, 4)):
        bench = Bench(packet=32)
        job = bench.job(1, 256, seed=seed, tensor=tensor, gen=gen)
        assert x is None or (x == bench.sources[1]).all()
        x = bench.sources[1]
        bench.post(job)
        bench.cluster.run(LinkFaults())
        results.append(bench.check(job)[0].tobytes())
    assert results[0] == results[1]
    assert len(set(results)) == 4


@pytest.mark.parametrize(
    ("when", "gens"), [(1, {1}), (160, {1}), (240, {1, 2}), (320, {2}), (400, {2})]
)
def test_abort_in_each_round_leaves_the_job_beside_it_alone(when, gens):
    bench = Bench(packet=32, n_active=2)
    first, second = bench.job(1, 3000), bench.job(2, 3000)
    again = Job(3, 1, 4, 3000, first.source, first.result, codec=JobCodec.THC, seed=5)
    bench.post(first, second)
    stages = set()

    def abort():
        for card in bench.cluster.cards:
            stages.update(c.round.gen for c in card.contexts if c and c.job.id == 1)
            card.abort(1)

    late = {when: abort}
    bench.cluster.run(HARSH, late=late)
    bench.check(second)
    assert stages == gens
    assert all(ended[1].status == JobStatus.ABORTED for ended in bench.cluster.ended)
    bench.post(again)  # its place is free, and nothing of the old one is taken for it
    bench.cluster.run(HARSH)
    bench.check(again, bench.sources[1])


def test_refusals_leave_memory_alone():
    bench = Bench(packet=32, n_packets=64)
    card = bench.cluster.cards[0]
    good = bench.job(1, 600)

    def reason(**fields):
        return card.refusal(replace(good, **fields))

    assert reason() == Refusal.NONE
    assert reason(elems=64 * 1024) == Refusal.LENGTH
    assert reason(feedback=1, residual=MEMORY // 64 - 76) == Refusal.NONE  # 2 x 38 x 64 bytes
    assert reason(feedback=1, residual=MEMORY // 64 - 75) == Refusal.REGION
    assert reason(feedback=1, codec=JobCodec.RAW32) == Refusal.FEEDBACK
    card.judge.thc = {"g": 1 << 15}
    assert reason() == Refusal.CODEC
    card.judge.thc = {"g": 31}
    assert reason() == Refusal.NONE
    assert reason(p_q16=1) == Refusal.CODEC  # 31 / 2 stands for what misses
    assert reason(p_q16=1, codec=JobCodec.RAW32) == Refusal.NONE
    card.judge.gives_up = False
    assert reason(p_q16=1) == Refusal.SHARE
    card.judge.thc, card.judge.gives_up = {"g": 32}, True
    assert reason(p_q16=1) == Refusal.NONE
    card.judge.thc = None
    assert reason() == Refusal.CODEC
    card.judge.thc = bench.thc
    bench.post(good)
    bench.cluster.run(LinkFaults())
    # norms have the GEN before: it must be after what was last, too
    assert reason(gen=3) == Refusal.ROUND
    assert reason(gen=4) == Refusal.NONE
    assert reason(gen=3, codec=JobCodec.RAW32) == Refusal.NONE


def test_cards_clip_under_a_norm_below_their_own():
    """As their circuit does, in the indices that are sent and in what they lose."""
    bench = Bench()
    job = bench.job(1, 3000)
    step = ThcJob(job, bench.table, 1, bench.sources[1][1], 32, bench.thc)
    agreed = step.norm_round()
    agreed.result[:] = agreed.own - np.where(agreed.own, 1 << 23, 0).astype(np.uint32)
    sent = step.index_round(agreed)
    sent._encode(range(sent.tensor.plan.n_packets))
    told = {"round": job.gen, "worker": 1, "tensor": job.tensor}
    codes = step.worker.encode(step.padded, agreed.result, **told, clips=True)
    assert (codes[:2900].reshape(-1, 50) != 8).any(axis=1).all()
    np.testing.assert_array_equal(sent.codes, codes)
    lost = step.worker.residual(step.padded, codes, agreed.result, tensor=job.tensor)
    np.testing.assert_array_equal(step.residual(), lost[:3000])


@pytest.mark.parametrize("seed", range(4))
def test_rounds_of_one_tensor_wait_for_indices_that_are_to_come(seed):
    bench = Bench(n_active=4, watchdog=20_000)
    raw = {"tensor": 1, "codec": JobCodec.RAW32}
    jobs = [bench.job(0, 3000, tensor=1, gen=10), bench.job(1, 16, **raw, gen=13)]
    jobs += [bench.job(2, 100, tensor=1, gen=20), bench.job(3, 16, **raw, gen=21)]
    bench.post(*jobs)
    bench.cluster.run(replace(HARSH, loss=0.3, seed=seed))
    for ended in bench.cluster.ended:
        assert {told.status for told in ended.values()} == {JobStatus.DONE}
    bench.check(jobs[0])
    bench.check(jobs[2])
