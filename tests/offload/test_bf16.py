"""BF16 in memory and on the wire: golden cards against sums by hand; every word, every rounding."""

import numpy as np
import pytest
from gradnic.hdl.offload.bf16 import Narrow, Widen
from gradnic.models.offload import bf16
from gradnic.models.offload.cluster import LinkFaults
from gradnic.models.offload.job_cluster import JobCluster
from gradnic.models.schedule.all_reduce import all_reduce
from gradnic.models.schedule.builders import build
from gradnic.models.schedule.builders.collectives import collective
from gradnic.models.schedule.builders.rows import compile_table
from gradnic.models.schedule.topology import parse
from gradnic.sim.engine import batch
from gradnic.sim.offload.job_cluster import EVERYTHING
from gradnic.sim.offload.job_cluster import JobCluster as RtlCluster

from gradnic.interface.formats import GRADNIC, HEAD_BYTES, Op
from gradnic.interface.job import Job, JobCodec, JobStatus, Kind, Operation, Refusal

HARSH = LinkFaults(loss=0.05, duplicate=0.1, reorder=30)
TOPOLOGY = parse("torus:2x2")
TABLE = compile_table(build(TOPOLOGY, "multitree"))
RESULT = 1 << 15
OPERATIONS = Operation.MEAN, Operation.MEAN, Operation.SUM, Operation.SUM, Operation.MAX


def test_every_word_comes_back_and_nan_is_one():
    words = np.arange(1 << 16, dtype=np.uint16)
    values = bf16.widen(words)
    nan = np.isnan(values)
    assert nan.sum() == 2 * 127
    np.testing.assert_array_equal(bf16.narrow(values), np.where(nan, 0x7FC0, words))


def test_rounding_is_to_nearest_even_by_exact_arithmetic():
    rng = np.random.default_rng(4)
    bits = rng.integers(0, 1 << 32, 200_000, dtype=np.uint64).astype(np.uint32)
    corners = np.array([0, 0x8000, 0x8001, 0x7FFF, 0x18000, 0x3F808000, 0x3F818000, 0x7F7FFFFF,
                        0x7F7F7FFF, 0x7F7F8000, 0x7F800000, 0x7F800001, 0x00007FFF, 0x00008001],
                       np.uint32)  # fmt: skip
    bits = np.concatenate([corners, corners | 0x80000000, bits])
    values = bits.view(np.float32)
    got = bf16.narrow(values)
    finite = np.isfinite(values)
    exact = values[finite].astype(np.float64)
    below = (bits[finite] >> 16).astype(np.uint32)
    low = (below << 16).view(np.float32).astype(np.float64)
    step = ((below & 0x7F80) << 16).astype(np.uint32)  # the place of the word's last bit
    scale = np.maximum(step >> 23, 1).astype(np.int64) - 127 - 7
    high = low + np.copysign(np.ldexp(1.0, scale), np.where(below >> 15, -1.0, 1.0))
    to_low, to_high = np.abs(exact - low), np.abs(exact - high)
    up = (to_high < to_low) | ((to_high == to_low) & (below & 1 == 1))
    np.testing.assert_array_equal(got[finite], (below + up).astype(np.uint16))
    assert (got[np.isnan(values)] == 0x7FC0).all()
    np.testing.assert_array_equal(bf16.narrow(np.array([np.inf, -np.inf])), [0x7F80, 0xFF80])


@pytest.mark.parametrize("words", [np.float32([1.5]), np.array([0x3F80]), [70000]])
def test_what_is_no_word_is_refused(words):
    with pytest.raises(ValueError, match=r"words must be uint16, not (float32|int64)"):
        bf16.widen(words)


def run(kind, codec, x, faults=HARSH, **fields):
    """Results of all nodes as they lie in memory, and the frames that were sent."""
    cluster = JobCluster((TABLE,), TOPOLOGY, 2 * RESULT, packet=64,
                         settings={"t_probe": 40, "t_retry": 40})  # fmt: skip
    frames, send = [], cluster._send
    cluster._send = lambda node, port, frame, told: (frames.append(frame),
                                                     send(node, port, frame, told))  # fmt: skip
    job = Job(1, 1, 1, x.shape[1], 0, RESULT, kind=kind, codec=codec, **fields)
    size = 2 if kind == Kind.BF16 else 4
    for node, (card, mine) in enumerate(zip(cluster.cards, x, strict=True)):
        stored = bf16.narrow(mine) if kind == Kind.BF16 else mine
        card.memory[:] = 0xEE
        card.memory[: size * mine.size] = stored.view(np.uint8)
        cluster.post(node, job)
    cluster.run(faults)
    for ended in cluster.ended:
        assert ended[1].status == JobStatus.DONE, ended[1]
    results = np.stack([
        card.memory[RESULT : RESULT + size * x.shape[1]].view("<u2" if size == 2 else "<u4")
        for card in cluster.cards
    ])  # fmt: skip
    for card in cluster.cards:
        assert (card.memory[RESULT + size * x.shape[1] :] == 0xEE).all()
    return results, frames


@pytest.mark.parametrize("n_elems", [1, 33, 1000])
@pytest.mark.parametrize(
    ("kind", "codec"),
    [(Kind.FP32, JobCodec.RAW16), (Kind.BF16, JobCodec.RAW32), (Kind.BF16, JobCodec.RAW16)],
)
def test_sums_are_float32_in_order_and_rounded_once_a_hop(kind, codec, n_elems):
    rng = np.random.default_rng(n_elems)
    shape = TOPOLOGY.n_nodes, n_elems
    x = (rng.standard_normal(shape) * 10.0 ** rng.integers(-30, 30, shape)).astype(np.float32)
    x[0, :1], x[1, :1] = np.inf, -np.inf
    results, frames = run(kind, codec, x)
    own = bf16.image(x) if kind == Kind.BF16 else x
    # chunks as the cards cut them: multiples of 32, by tables of chunks of twice 16
    n_chunks, unit = TABLE.n_chunks, 32
    chunk = -(-n_elems // (unit * n_chunks)) * unit
    padded = np.zeros((shape[0], chunk * n_chunks), np.float32)
    padded[:, :n_elems] = own
    hop = bf16.image if codec == JobCodec.RAW16 else None
    want = all_reduce(TABLE, padded, image=bf16.image, hop=hop)[:, :n_elems]
    want = bf16.narrow(want) if kind == Kind.BF16 else want.view(np.uint32)
    np.testing.assert_array_equal(results, want)
    assert len(np.unique(results, axis=0)) == 1
    data = [frame for frame in frames if GRADNIC.op.get(frame) != Op.CONTROL]
    assert {GRADNIC.op.get(f) for f in data} == {Op.RAW16 if codec == JobCodec.RAW16 else Op.RAW}
    width = 2 if codec == JobCodec.RAW16 else 4
    assert all(len(f) - HEAD_BYTES == width * GRADNIC.elems.get(f) for f in data)
    assert all(GRADNIC.seq.get(f) % 2 == 0 for f in data)


def test_bf16_in_place_and_cards_without_it():
    rng = np.random.default_rng(9)
    x = rng.standard_normal((TOPOLOGY.n_nodes, 500)).astype(np.float32)
    apart, _ = run(Kind.BF16, JobCodec.RAW16, x)
    cluster = JobCluster((TABLE,), TOPOLOGY, 2 * RESULT, packet=64)
    for node, card in enumerate(cluster.cards):
        card.memory[:1000] = bf16.narrow(x[node]).view(np.uint8)
        cluster.post(node, Job(1, 1, 1, 500, 0, 0, kind=Kind.BF16, codec=JobCodec.RAW16))
    cluster.run(LinkFaults())
    for node, card in enumerate(cluster.cards):
        np.testing.assert_array_equal(card.memory[:1000].view("<u2"), apart[node])
    for options in {"bf16": False}, {"packet": 48}:
        card = JobCluster((TABLE,), TOPOLOGY, 4096, **options).cards[0]
        for fields, reason in (
            ({"kind": Kind.BF16}, Refusal.KIND),
            ({"codec": JobCodec.RAW16}, Refusal.CODEC),
        ):
            assert card.refusal(Job(1, 1, 1, 64, 0, 0, **fields)) == reason


N_BYTES = 16
LANES = N_BYTES // 4


def beats(model, port, ranges, words):
    """Beats of ranges of values: float32 or BF16 words, filled up to whole beats."""
    data, last = [], []
    per = N_BYTES // words.itemsize
    for part in ranges:
        n = -(-part.size // per)
        whole = np.zeros(n * per, part.dtype)
        whole[: part.size] = part
        data.append(whole.view(np.uint8).reshape(n, N_BYTES))
        last.append(np.arange(n) == n - 1)
    return model.pack(port, data=np.concatenate(data), last=np.concatenate(last).astype(np.uint8))


@pytest.mark.parametrize(("i_duty", "o_duty"), [(1, 1), (0.5, 1), (1, 0.3), (0.5, 0.5)])
@pytest.mark.parametrize("on", [1, 0])
def test_circuits_widen_and_round_as_the_model(on, i_duty, o_duty):
    rng = np.random.default_rng(7)
    bits = rng.integers(0, 1 << 32, 4000, dtype=np.uint64).astype(np.uint32)
    bits[::7] = bits[::7] & 0xFFFF0000 | rng.choice([0, 0x7FFF, 0x8000, 0x8001], bits[::7].size)
    bits[::13] |= 0x7F800000
    values = bits.view(np.float32)
    cuts = np.sort(rng.choice(np.arange(1, 1000), 90, replace=False)) * LANES
    wide = np.split(values, cuts[cuts < values.size])
    narrowed = [bf16.narrow(part) for part in wide]
    filled = [bf16.widen(part) for part in narrowed]
    narrow, widen = batch.build(Narrow(N_BYTES)), batch.build(Widen(N_BYTES))
    stalls = {"i": i_duty, "o": o_duty}
    i = beats(narrow, "i", wide, values)
    o = beats(narrow, "o", narrowed, narrowed[0]) if on else i
    narrow.run({"i": i}, stalls=stalls, signals={"on": on}, seed=3).check(o=o)
    back = beats(widen, "o", filled, values)
    odd = np.array([-(-part.size // LANES) % 2 for part in wide], np.uint8)[:, None]
    inputs = {"i": o, "odd": odd} if on else {"i": back}
    widen.run(inputs, stalls=stalls, signals={"on": on}, seed=4).check(o=back)


@pytest.mark.parametrize("seed", [1, 2])
def test_jobs_with_bf16_on_cards_of_rtl(seed):
    """All kinds and codecs side by side, sums and means, some in place, with what is refused."""
    ring = parse("ring:3")
    tables = tuple(
        compile_table(collective(build(ring, "multitree"), name))
        for name in ("all_reduce", "reduce_scatter")
    )
    soft = JobCluster(
        tables, ring, 2 * RESULT, packet=96, n_packets=1024,
        settings={"t_probe": 40, "t_retry": 40},
    )  # fmt: skip
    hard = RtlCluster(tables, ring, 2 * RESULT, 6000, n_active=2, packet=96, **EVERYTHING)
    rng, at, jobs = np.random.default_rng(seed), 0, []
    kinds = [(kind, codec) for kind in Kind for codec in JobCodec if codec != JobCodec.THC]
    for node in range(3):
        soft.cards[node].memory[:] = hard.memory(node)[:] = 0xEE
    for id, (kind, codec) in enumerate(kinds * 2):
        elems = int(rng.choice([1, 16, 33, 500, 700])) if seed > 1 else (300, 31, 64)[id % 3]
        size = 2 if kind == Kind.BF16 else 4
        if kind == Kind.FP32:
            elems = -(-elems // 4) * 4  # results are written in whole beats
        table = int(id % 4 == 3)
        jobs.append(Job(id, id, 1, elems, at, at if id % 3 == 2 else RESULT + at, kind=kind,
                        codec=codec, table=table, collective=table, layer=id % 8,
                        op=OPERATIONS[id % 5]))  # fmt: skip
        for node in range(3):
            x = rng.standard_normal(elems).astype(np.float32)
            octets = (bf16.narrow(x) if kind == Kind.BF16 else x).view(np.uint8)
            soft.cards[node].memory[at : at + size * elems] = octets
            hard.memory(node)[at : at + size * elems] = octets
        at += -(-size * elems // 64) * 64
    for node in range(3):
        for job in jobs:
            soft.post(node, job)
            hard.post(node, job)
    faults = LinkFaults(loss=0.03, duplicate=0.05, reorder=60, delay=20, seed=seed)
    soft.run(faults)
    hard.run(faults)
    for node in range(3):
        for job in jobs:
            told, want = hard.hosts[node].ended[job.id].record, soft.ended[node][job.id]
            assert (told.status, told.detail) == (want.status, want.detail), (job, told)
            wrong = job.kind == Kind.BF16 and job.codec == JobCodec.INCEPTIONN
            assert told.status == (JobStatus.REFUSED if wrong else JobStatus.DONE)
            size = 2 if job.kind == Kind.BF16 else 4
            span = slice(job.result, job.result + size * job.elems)
            np.testing.assert_array_equal(hard.memory(node)[span], soft.cards[node].memory[span])
            if job.kind == Kind.BF16 and job.result != job.source:  # half beats are written alone
                rest = slice(job.result + 2 * (-(-job.elems // 4) * 4), -(-span.stop // 64) * 64)
                assert (hard.memory(node)[rest] == 0xEE).all()
