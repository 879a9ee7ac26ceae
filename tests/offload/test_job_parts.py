"""Queue, clerk and history of a card with jobs, against the golden card and plan."""

from dataclasses import replace

import numpy as np
import pytest
from gradnic.hdl.offload.job_clerk import JobClerk
from gradnic.hdl.offload.job_core import JobCore
from gradnic.hdl.offload.job_queue import Divider, JobQueue
from gradnic.models.offload.job_cluster import JobCluster
from gradnic.models.offload.job_sums import unit_of
from gradnic.models.offload.plan import Plan
from gradnic.models.schedule.builders import build
from gradnic.models.schedule.builders.rows import compile_table
from gradnic.models.schedule.topology import parse
from gradnic.sim.engine.amaranth_run import simulate

from gradnic.host.jobs import JobDriver
from gradnic.interface.job import (
    QUEUE,
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


def test_division_is_numpys():
    part, rng = Divider(25), np.random.default_rng(1)
    pairs = [(0, 1), (2**25 - 1, 1), (2**25 - 1, 2**25 - 1), (5, 9)]
    # digits in front that are 0, and how long that takes
    steps = {2**10 - 1: 6, 2**10: 10, 2**18 - 1: 10, 2**18: 14}
    pairs += [(a, b) for a in steps for b in (1, 3, a - 1, a, a + 1)]
    pairs += [(int(a), int(b)) for a, b in zip(*rng.integers(1, 2**25, (2, 20)), strict=True)]
    pairs += [(int(a), int(b)) for a, b in zip(*rng.integers(1, 2**9, (2, 20)), strict=True)]

    async def bench(ctx):
        for a, b in pairs:
            ctx.set(part.a, a)
            ctx.set(part.b, b)
            ctx.set(part.start, 1)
            await ctx.tick()
            ctx.set(part.start, 0)
            cycles = 1
            while not ctx.get(part.done):
                await ctx.tick()
                cycles += 1
            assert cycles == steps.get(a, cycles)
            assert (ctx.get(part.quotient), ctx.get(part.remainder)) == divmod(a, b)

    simulate(part, bench)


def test_the_queue_keeps_order_refuses_when_full_and_marks_the_oldest():
    part, rng = JobQueue(), np.random.default_rng(2)
    waiting = []  # [id, aborted]

    async def bench(ctx):
        taken = 0
        for turn in range(600):
            full_or_low = 0.8 if turn // 60 % 2 else 0.3
            ctx.set(part.now, turn)
            does = rng.random()
            if does < 0.15:
                id = int(rng.integers(0, 20))
                any_ = int(rng.random() < 0.2)
                ctx.set(part.abort.p, {"id": id, "any": any_})
                ctx.set(part.abort.valid, 1)
                await ctx.tick().until(part.abort.ready)
                ctx.set(part.abort.valid, 0)
                mine = [one for one in waiting if (any_ or one[0] == id) and not one[1]]
                if mine:
                    mine[0][1] = 1
                await ctx.tick()
            elif rng.random() < full_or_low:
                id = int(rng.integers(0, 20))
                assert ctx.get(part.post.ready) == (len(waiting) < QUEUE)
                if len(waiting) < QUEUE:
                    waiting.append([id, 0])
                ctx.set(part.post.p, {"id": id, "gen": turn})
                ctx.set(part.post.valid, 1)
                await ctx.tick()
                ctx.set(part.post.valid, 0)
            elif waiting:
                assert ctx.get(part.present)
                assert [ctx.get(part.oldest.job.id), ctx.get(part.aborted)] == waiting.pop(0)
                assert ctx.get(part.oldest.posted) == ctx.get(part.oldest.job.gen)
                taken += 1
                ctx.set(part.pop, 1)
                await ctx.tick()
                ctx.set(part.pop, 0)
            assert ctx.get(part.busy) == bool(waiting)
        assert taken > 100

    simulate(part, bench)


def test_the_queue_looks_for_no_job_that_begins_right_then():
    part = JobQueue()

    async def bench(ctx):
        for _ in range(2):
            ctx.set(part.post.p, {"id": 5})
            ctx.set(part.post.valid, 1)
            await ctx.tick()
        ctx.set(part.post.valid, 0)
        await ctx.tick()
        ctx.set(part.pop, 1)  # the first one is active now, and is called so a cycle later
        ctx.set(part.abort.p, {"id": 5})
        await ctx.tick()
        ctx.set(part.pop, 0)
        ctx.set(part.abort.valid, 1)
        await ctx.tick()
        ctx.set(part.abort.valid, 0)
        for _ in range(8):
            await ctx.tick()
        assert (ctx.get(part.oldest.job.id), ctx.get(part.aborted)) == (5, 0)

    simulate(part, bench)


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


HALF = {"kind": Kind.BF16}
WITH_BF16 = [
    ({"op": Operation.MEAN}, Refusal.NONE),
    *(({"op": one}, Refusal.OPERATION) for one in (2, 3)),
    (HALF, Refusal.NONE),
    ({"codec": JobCodec.RAW16}, Refusal.NONE),
    (HALF | {"codec": JobCodec.RAW16}, Refusal.NONE),
    (HALF | {"codec": JobCodec.INCEPTIONN}, Refusal.CODEC),
    ({"kind": 2}, Refusal.KIND),
    (HALF | {"result": N_MEMORY - 640}, Refusal.NONE),
    (HALF | {"result": N_MEMORY - 576}, Refusal.REGION),
]


def test_a_card_with_bf16_and_means_takes_them_but_no_bf16_with_inceptionn():
    part = JobClerk(16, 32, inc=True, bf16=True, scale=True, **CLERK)

    async def bench(ctx):
        clerk(ctx, part, 96)
        await load(ctx, part, 0, TABLES[0])
        for told, reason in WITH_BF16:
            record, _ = await clerk_says(ctx, part, Job(**(RIGHT | told)))
            found = Refusal.NONE if record is None else Refusal(record.detail)
            assert found == reason, told

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


RIGHT = {"id": 9, "tensor": 5, "gen": 1, "elems": 300, "source": 0, "result": 1 << 16}
BAD = [
    ({}, Refusal.NONE),
    *(({"collective": one}, Refusal.COLLECTIVE) for one in (5, 6, 7)),
    *(({"collective": one}, Refusal.TABLE) for one in list(Collective)[1:]),
    *(({"op": one}, Refusal.OPERATION) for one in (1, 2, 3)),
    *(({"kind": one}, Refusal.KIND) for one in (Kind.BF16, 2, 3)),
    *(({"codec": one}, Refusal.CODEC) for one in (JobCodec.RAW16, JobCodec.THC, 4, 7)),
    ({"codec": JobCodec.INCEPTIONN}, Refusal.NONE),
    *(({"table": one}, Refusal.TABLE) for one in (1, 3, 4, 15)),
    ({"elems": 0}, Refusal.LENGTH),
    ({"elems": (1 << 28) - 1}, Refusal.LENGTH),
    ({"elems": N_PACKETS * 96}, Refusal.NONE),
    ({"elems": N_PACKETS * 96 + 1}, Refusal.LENGTH),
    ({"source": 32}, Refusal.ALIGNMENT),
    ({"result": 4}, Refusal.ALIGNMENT),
    ({"result": N_MEMORY - 1216}, Refusal.NONE),
    ({"result": N_MEMORY - 1152}, Refusal.REGION),
    ({"source": N_MEMORY}, Refusal.REGION),
    ({"source": 1 << 32}, Refusal.REGION),
    ({"source": 1 << 63}, Refusal.REGION),
    ({"p_q16": 1}, Refusal.SHARE),
    *(({"tensor": 7, "gen": gen}, Refusal.ROUND) for gen in (3, 2, 0x8003)),
    ({"tensor": 7, "gen": 4}, Refusal.NONE),
    *(({"tensor": 8, "gen": gen}, Refusal.ROUND) for gen in (9, 0x8009)),
    ({"collective": 5, "op": 1, "kind": 1, "table": 9, "elems": 0}, Refusal.COLLECTIVE),
    ({"collective": 1, "op": 1, "kind": 1, "table": 9, "elems": 0}, Refusal.OPERATION),
    ({"table": 9, "elems": 0, "source": 1}, Refusal.TABLE),
    ({"elems": 0, "source": 1}, Refusal.LENGTH),
]


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


def test_jobs_without_room_in_landing_areas_or_scratch_are_refused():
    """Or without any: an address that nobody wrote is none."""
    part = JobClerk(16, 32, inc=True, thc=True, **CLERK)
    topology = parse("ring:2")
    table = compile_table(build(topology, "ring"))
    reasons = set()

    async def bench(ctx):
        clerk(ctx, part, 96)
        ctx.set(part.bits, 4)
        await load(ctx, part, 0, table, scale=1)
        jobs = [
            Job(1, 1, 2, elems, 0, 0, codec=codec)
            for codec in (JobCodec.THC, JobCodec.RAW32) for elems in (100, 1025)
        ]  # fmt: skip
        n_ranks = CLERK["n_ranks"]
        areas = [1024 * n_ranks, 448 * n_ranks, 2048 * n_ranks, 4160 * n_ranks]
        scratches = [2 * 64 + 1024 * 12 // 8, 2 * 128 + 2048 * 12 // 8]
        for bytes_, scratch, placed, scratch_placed in [
            *((area + more, 1 << 20, True, True) for area in areas for more in (-16, 0)),
            *((1 << 20, one + more, True, True) for one in scratches for more in (-16, 0)),
            (1 << 20, 1 << 20, False, True), (1 << 20, 1 << 20, True, False),
            (0, 0, False, False),
        ]:  # fmt: skip
            ctx.set(part.landing, bytes_ // 16)
            ctx.set(part.scratch, scratch // 16)
            ctx.set(part.unplaced, not placed)
            ctx.set(part.scratch_unplaced, not scratch_placed)
            card, _ = JobCluster(
                (table,), topology, N_MEMORY, packet=96, thc={"B": 64}, n_ranks=n_ranks,
                landing=bytes_, scratch=scratch, placed=placed, scratch_placed=scratch_placed,
            ).cards  # fmt: skip
            for job in jobs:
                record, _ = await clerk_says(ctx, part, job)
                found = Refusal.NONE if record is None else record.detail
                assert found == card.refusal(job), (job, bytes_, scratch, placed, scratch_placed)
                reasons.add((job.codec, Refusal(found)))

    simulate(part, bench)
    told = (Refusal.NONE, Refusal.LENGTH, Refusal.REGION)
    assert reasons == {(codec, one) for codec in (JobCodec.THC, JobCodec.RAW32) for one in told}


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


def test_bad_descriptors_are_refused_for_the_first_reason():
    part = JobClerk(16, 32, inc=True, **CLERK)

    async def history(ctx):
        while True:
            tensor = ctx.get(part.asked)
            ctx.set(part.over, {"valid": tensor == 7, "tensor": 7, "gen": 3})
            await ctx.tick()

    async def bench(ctx):
        clerk(ctx, part, 96)
        await load(ctx, part, 0, compile_table(build(parse("ring:2"), "ring")))
        ctx.set(part.contexts[1], {"armed": 1, "tensor": 8, "gen": 9})
        for told, reason in BAD:
            record, _ = await clerk_says(ctx, part, Job(**(RIGHT | told)))
            if reason == Refusal.NONE:
                assert record is None, told
            else:
                assert (record.id, record.status) == (9, JobStatus.REFUSED)
                assert record.detail == reason, told
        record, _ = await clerk_says(ctx, part, Job(**(RIGHT | {"elems": 0})), aborted=1)
        assert (record.status, record.detail) == (JobStatus.ABORTED, 0)

    simulate(part, bench, history)


def test_packets_that_the_card_cannot_make_are_refused():
    part = JobClerk(16, 32, inc=True, **CLERK)
    table = compile_table(build(parse("ring:2"), "ring"))

    async def bench(ctx):
        clerk(ctx, part, 96)
        await load(ctx, part, 0, table)
        for packet in (0, 16, 336, 352, 368, 4080):
            ctx.set(part.packet, packet // 16)
            card, _ = JobCluster((table,), parse("ring:2"), N_MEMORY, packet=packet).cards
            for job in (Job(**RIGHT), Job(**(RIGHT | {"source": 1}))):
                record, _ = await clerk_says(ctx, part, job)
                found = Refusal.NONE if record is None else record.detail
                assert found == card.refusal(job), packet
                assert (found == Refusal.LENGTH) == (packet not in (16, 336, 352))

    simulate(part, bench)


def test_a_card_without_inceptionn_refuses_it():
    part = JobClerk(16, 32, inc=False, **CLERK)

    async def bench(ctx):
        clerk(ctx, part, 96)
        await load(ctx, part, 0, TABLES[0])
        record, _ = await clerk_says(ctx, part, Job(**(RIGHT | {"codec": JobCodec.INCEPTIONN})))
        assert record.detail == Refusal.CODEC

    simulate(part, bench)
