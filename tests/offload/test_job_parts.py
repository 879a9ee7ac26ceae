"""The clerk of a card with jobs, against the golden plan."""

from dataclasses import replace

import numpy as np
import pytest
from gradnic.hdl.offload.job_clerk import JobClerk
from gradnic.hdl.offload.job_core import JobCore
from gradnic.models.offload.job_sums import unit_of
from gradnic.models.offload.plan import Plan
from gradnic.models.schedule.builders import build
from gradnic.models.schedule.builders.rows import compile_table
from gradnic.models.schedule.topology import parse
from gradnic.sim.engine.amaranth_run import simulate

from gradnic.host.jobs import JobDriver
from gradnic.interface.job import (
    Collective,
    Job,
    JobCodec,
    JobStatus,
    Kind,
    Operation,
    Refusal,
)
from gradnic.interface.schedule_table import Layout


def fields(job):
    return {name: int(getattr(job, name)) for name in job.__dataclass_fields__}


def test_a_card_with_thc_has_room_for_its_packets():
    with pytest.raises(ValueError, match="max_elems must be 256 or more with THC, not 128"):
        JobCore(16, 1, Layout.for_nodes(4, ports=1), thc=True, max_elems=128)


N_PACKETS = 1024
CLERK = {"n_ranks": 4, "n_packets": N_PACKETS, "max_elems": 352, "n_tables": 4, "n_contexts": 2}
N_MEMORY = 1 << 22


async def clerk_says(ctx, part, job, *, aborted=0):
    """(record or None, prepared) of one job."""
    ctx.set(part.oldest.job, fields(job))
    ctx.set(part.aborted, aborted)
    ctx.set(part.present, 1)
    for _ in range(400):
        await ctx.tick()
        if ctx.get(part.starts):
            break
        if ctx.get(part.record_valid):
            ctx.set(part.record_ready, 1)
            break
    else:
        raise AssertionError("the clerk says nothing")
    assert ctx.get(part.pop)
    record = ctx.get(part.record)
    started = ctx.get(part.starts)
    prepared = ctx.get(part.prepared)
    await ctx.tick()
    ctx.set(part.present, 0)
    ctx.set(part.record_ready, 0)
    await ctx.tick()
    return (None if started else record), prepared


def clerk(ctx, part, packet):
    ctx.set(part.packet, packet // 16)
    ctx.set(part.regions[0].n_beats, N_MEMORY // 16)
    ctx.set(part.landing, 4 * N_MEMORY // 16)
    ctx.set(part.room, 1)
    ctx.set(part.free, 1)


async def load(ctx, part, index, table, scale=0, code=0):
    told = {
        "code": code,
        "valid": 1,
        "rows": 3,
        "chunks": table.n_chunks * table.repeats,
        "leaves": table.n_nodes,
        "scale": scale,
    }
    ctx.set(part.table_write, {"enable": 1, "index": index, "table": told})
    await ctx.tick()
    ctx.set(part.table_write, {})


TABLES = [
    compile_table(build(parse(spelling), name))
    for spelling, name in (("ring:3", "ring"), ("torus:2x2", "multitree"), ("ring:2", "ring"))
]


@pytest.mark.parametrize("packet", [16, 96, 352])
@pytest.mark.parametrize("kind", [None, *Kind])
def test_tensors_are_cut_as_the_plan_says(packet, kind):
    """kind : None: a card without BF16. With it odd ids have packets of BF16."""
    half = kind == Kind.BF16
    part = JobClerk(16, 32, inc=True, bf16=kind is not None, **CLERK)
    rng = np.random.default_rng(packet)

    async def bench(ctx):
        clerk(ctx, part, packet)
        for index, table in enumerate(TABLES):
            await load(ctx, part, index, table)
        sizes = [1, 15, 16, 17, 63, 64, 65, packet * 12, packet * 12 + 1, 9999]
        sizes += [int(n) for n in rng.integers(1, 60 * packet, 12)]
        for k, n in enumerate(sizes):
            index = k % 3
            codec = JobCodec(k % 2 and kind is not None)
            job = Job(k, k, 1, n, 64 * k, 128 * k, table=index, kind=kind or 0, codec=codec)
            plan = Plan(TABLES[index], n, unit=unit_of(job), packet=packet)
            record, told = await clerk_says(ctx, part, job)
            if packet % 32 and unit_of(job) > 16:
                reason = Refusal.KIND if half else Refusal.CODEC
                assert (record.status, record.detail) == (JobStatus.REFUSED, reason)
                continue
            assert record is None
            last = (n - 1) // plan.chunk
            rest = n - last * plan.chunk
            cut = told.geometry
            assert (cut.packet, cut.chunk, cut.per_chunk) == (
                packet // 16, plan.chunk // 16, plan.per_chunk
            )  # fmt: skip
            assert (cut.last_chunk, told.live) == (last, last + 1)
            assert cut.last_per_chunk == -(-rest // packet)
            assert cut.tail == plan.chunk - (plan.per_chunk - 1) * packet
            assert cut.last_tail == rest - (cut.last_per_chunk - 1) * packet
            assert told.n_beats == -(-n // (8 if half else 4))
            assert told.area == -(-n // 16) * 4
            assert told.n_numbers == plan.n_chunks * cut.per_chunk
            assert (told.source, told.result) == (4 * k, 8 * k)

    simulate(part, bench)


@pytest.mark.parametrize("log4", [0, 1, 2])
def test_tensors_of_thc_are_cut_twice(log4):
    """Indices in packets of 1,024, norms like any tensor; scratch holds norms twice, and both."""
    part = JobClerk(16, 32, inc=True, thc=True, feedback=log4 == 0, bf16=log4 == 0,
                    gives_up=log4 > 0, **CLERK)  # fmt: skip
    rng = np.random.default_rng(log4)
    block, packet = 64 << 2 * log4, 32

    def check_cut(cut, live, plan):
        last = (plan.n_elems - 1) // plan.chunk
        rest = plan.n_elems - last * plan.chunk
        assert (cut.packet, cut.chunk) == (plan.packet // 16, plan.chunk // 16)
        assert (cut.per_chunk, cut.last_chunk, live) == (plan.per_chunk, last, last + 1)
        assert cut.last_per_chunk == -(-rest // plan.packet)
        assert cut.tail == plan.chunk - (plan.per_chunk - 1) * plan.packet
        assert cut.last_tail == rest - (cut.last_per_chunk - 1) * plan.packet

    async def bench(ctx):
        clerk(ctx, part, packet)
        b, w = (4, 3, 8)[log4], (8, 12, 16)[log4]  # bits of an index, of a sum
        ctx.set(part.log4, log4)
        ctx.set(part.bits, b)
        ctx.set(part.scratch, 1 << 20)
        for index, table in enumerate(TABLES):
            await load(ctx, part, index, table, scale=1, code=log4)
        sizes = [1, 1023, 1024, 1025, 5 * 1024, *(int(n) for n in rng.integers(1, 20000, 8))]
        for k, n in enumerate(sizes):
            table, padded = TABLES[k % 3], -(-n // 1024) * 1024
            kind = Kind.BF16 if part.bf16 and k % 2 else Kind.FP32
            job = Job(k, k, 2, n, 0, 64 * k, table=k % 3, codec=JobCodec.THC, kind=kind)
            record, told = await clerk_says(ctx, part, job)
            assert record is None
            plan = Plan(table, padded, unit=1024, packet=1024 if w == 8 else 512)
            check_cut(told.geometry, told.live, plan)
            plan = Plan(table, padded // block, packet=packet)
            check_cut(told.norms, told.norms_live, plan)
            assert told.n_numbers >= plan.n_chunks * plan.per_chunk
            norms = -(-padded // block // 16) * 4
            assert (told.n_blocks, told.n_beats, told.area) == (
                padded // block, -(-n // (8 if kind else 4)), padded * w // 128,
            )  # fmt: skip
            assert (told.at_norms, told.at_indices) == (norms, 2 * norms)
            assert told.at_sums == 2 * norms + padded * b // 128
        ctx.set(part.scratch, told.at_sums + told.area - 1)
        record, _ = await clerk_says(ctx, part, job)
        assert record.detail == Refusal.LENGTH
        ctx.set(part.scratch, told.at_sums + told.area)
        room = N_MEMORY // 64 - 2 * -(-job.elems // 16)
        outside = Refusal.REGION if part.feedback else Refusal.FEEDBACK
        for bad, reason in (
            ({}, Refusal.NONE),
            ({"feedback": 1}, Refusal.NONE if part.feedback else Refusal.FEEDBACK),
            ({"feedback": 1, "residual": room + 1, "half": 1}, outside),
            ({"feedback": 1, "residual": 1 << 31}, outside),
            ({"feedback": 1, "residual": room}, Refusal.NONE if part.feedback else outside),
            ({"op": Operation.MEAN}, Refusal.NONE),
            ({"collective": Collective.REDUCE_SCATTER}, Refusal.CODEC),
            ({"kind": Kind.BF16}, Refusal.NONE if part.bf16 else Refusal.KIND),
            ({"gen": 11}, Refusal.NONE),
            ({"tensor": 8, "gen": 10}, Refusal.ROUND),  # its norms have gen 9
        ):
            ctx.set(part.contexts[1], {"armed": 1, "tensor": 8, "gen": 9})
            record, _ = await clerk_says(ctx, part, replace(job, **bad))
            assert (Refusal.NONE if record is None else record.detail) == reason
        for odd in range(2):  # half of an odd g stands for no leaf
            ctx.set(part.odd, odd)
            for codec, reason in ((JobCodec.THC, Refusal.CODEC), (JobCodec.RAW32, Refusal.NONE)):
                reason = (reason if odd else Refusal.NONE) if part.gives_up else Refusal.SHARE
                for p_q16 in 0, 1, 1 << 15:
                    one = replace(job, codec=codec, p_q16=p_q16, gen=job.gen + 1)
                    record, _ = await clerk_says(ctx, part, one)
                    found = Refusal.NONE if record is None else record.detail
                    assert found == (reason if p_q16 else Refusal.NONE), (odd, codec, p_q16)
        ctx.set(part.odd, 0)
        await load(ctx, part, job.table, TABLES[job.table])  # sums that fit no byte
        record, _ = await clerk_says(ctx, part, job)
        assert record.detail == Refusal.CODEC

    simulate(part, bench)


def test_landing_areas_that_a_driver_asks_for_are_large_enough():
    """Also for sums of THC of a few elements, which are whole packets."""
    part = JobClerk(
        64, 32, inc=True, thc=True, n_ranks=4, n_packets=N_PACKETS, max_elems=352, n_tables=4,
        n_contexts=2,
    )  # fmt: skip
    driver = JobDriver(None, None, n_ranks=4)

    async def bench(ctx):
        clerk(ctx, part, 352)
        ctx.set(part.log4, 2)
        ctx.set(part.bits, 4)
        ctx.set(part.scratch, 1 << 20)
        ctx.set(part.regions[0].n_beats, 1 << 16)
        for code in (0, 2):
            await load(ctx, part, 0, TABLES[0], scale=1, code=code)
            for elems in (1, 500, 1030):
                ctx.set(part.landing, driver.landing_bytes(elems) // 64)
                for codec in (JobCodec.THC, JobCodec.RAW32):
                    job = Job(1, 1, 2, elems, 0, 0, codec=codec)
                    record, _ = await clerk_says(ctx, part, job)
                    assert record is None

    simulate(part, bench)


@pytest.mark.parametrize("thc", [False, True])
def test_no_job_starts_beside_one_of_its_tensor(thc):
    part = JobClerk(16, 32, inc=True, thc=thc, **CLERK)
    job = Job(1, 8, 10, 100, 0, 0)

    async def bench(ctx):
        clerk(ctx, part, 96)
        await load(ctx, part, 0, compile_table(build(parse("ring:2"), "ring")))
        ctx.set(part.contexts[1], {"armed": 1, "tensor": 8, "gen": 9})
        ctx.set(part.oldest.job, fields(job))
        ctx.set(part.present, 1)
        for _ in range(200):
            await ctx.tick()
            assert not ctx.get(part.starts)
            assert not ctx.get(part.record_valid)
        ctx.set(part.contexts[1].tensor, 7)
        await ctx.tick()
        assert ctx.get(part.starts)

    simulate(part, bench)


def test_a_job_that_was_aborted_as_it_waited_ends_so_whatever_is_wrong_with_it():
    part = JobClerk(16, 32, inc=True, **CLERK)

    async def bench(ctx):
        clerk(ctx, part, 96)
        await load(ctx, part, 0, compile_table(build(parse("ring:2"), "ring")))
        job = Job(9, 5, 1, 0, 0, 1 << 16)
        for aborted, ends in (
            (0, (9, JobStatus.REFUSED, Refusal.LENGTH)), (1, (9, JobStatus.ABORTED, 0)),
        ):  # fmt: skip
            record, _ = await clerk_says(ctx, part, job, aborted=aborted)
            assert (record.id, record.status, record.detail) == ends

    simulate(part, bench)
