"""Visits to all slots: who is closed, in which order and how soon, and who is forgotten."""

import pytest
from amaranth.hdl import Const
from gradnic.hdl.aggregation.slot_records import JobRegisters, Record
from gradnic.hdl.aggregation.slot_sweep import Sweep
from gradnic.models.aggregation.jobs import Job
from gradnic.models.aggregation.slot_sweep import is_late, is_of
from gradnic.models.aggregation.slot_verdict import Record as Golden
from gradnic.models.frame.address import Address
from gradnic.sim.engine import stimulus
from gradnic.sim.engine.amaranth_run import simulate

from gradnic.interface.formats import Op

WIDTH = 4  # 8 slots of two sets
PLACES = 2**WIDTH
PER_RECORD = 8  # cycles


def job(number, first_slot, n_slots, **more):
    children = (Address(0, 0, 0), Address(1, 1, 1))
    own = {"first_slot": first_slot, "n_slots": n_slots, "C": 64, "close": "bounded"}
    return Job(number, children, **own | more)


JOBS = [job(9, 0, 3, deadline=100), job(4, 3, 1), job(5, 4, 4, deadline=2**32 - 1)]


def any_records(rng, now):
    """Records of all places: some are late, just late or nearly; some closed, norms, or none."""
    records = []
    for place in range(PLACES):
        owner = next((one for one in JOBS if one.owns(place >> 1)), None)
        age = int(rng.choice([0, 1, 99, 100, 101, 2**31, 2**32 - 1, rng.integers(200)]))
        claim = {
            "op": Op.NORM if rng.random() < 0.1 else Op.THC_IDX,
            "tensor": int(rng.choice([0, 6, 7])),
        }
        record = Golden(int(rng.integers(2**16)), owner, claim, (now - age) % 2**32)
        record.closed = bool(rng.random() < 0.2)
        records.append(record if rng.random() < 0.9 else None)
    return records


class Stand:
    """The circuit beside a store of golden records, which it reads and whose slots it closes."""

    def __init__(self, rng, *, reads=1.0, takes=1.0):
        self.rng, self.reads, self.takes = rng, reads, takes
        self.part = Sweep(len(JOBS), WIDTH)
        self.records = [None] * PLACES
        self.closed, self.erased, self.cycle = [], [], 0
        self.shown = [None, None]  # records that were asked for in the last two cycles

    def run(self, *steps):
        """Play the steps, functions of (stand, ctx)."""

        async def bench(ctx):
            registers = 0
            for k, one in enumerate(JOBS):
                fields = {n: getattr(one, n) for n in ("first_slot", "n_slots", "deadline")}
                registers |= JobRegisters.const(fields).as_value().value << k * JobRegisters.size
            jobs = self.part.jobs.as_value()
            ctx.set(jobs, Const(registers, len(jobs)).value)
            ctx.set(self.part.resting, 1)
            for step in steps:
                await step(self, ctx)

        simulate(self.part, bench)

    async def tick(self, ctx, n=1):
        """`n` cycles."""
        part = self.part
        for _ in range(n):
            may = self.rng.random() < self.reads
            ctx.set(part.may_read, int(may))
            ctx.set(part.close.ready, int(self.rng.random() < self.takes))
            ctx.set(part.record, row(self.shown[0], self.rng))
            await ctx.delay(0)
            place = ctx.get(part.place)
            self.shown = [self.shown[1], (self.records[place] if may else "noise")]
            if ctx.get(part.close.valid) and ctx.get(part.close.ready):
                place = ctx.get(part.close.p.place)
                self.closed.append((place, ctx.get(part.close.p.gen)))
                self.records[place].closed = True
            if ctx.get(part.erase):
                self.erased.append(ctx.get(part.erase_place))
                self.records[self.erased[-1]] = None
            self.cycle += 1
            await ctx.tick()

    async def pulse(self, ctx, signal):
        ctx.set(signal, 1)
        await self.tick(ctx)
        ctx.set(signal, 0)

    async def settle(self, ctx):
        """On, until nothing has been closed or forgotten for longer than a visit takes."""
        while True:
            before = len(self.closed), len(self.erased)
            await self.tick(ctx, int(2 * PER_RECORD * PLACES / self.reads))
            if before == (len(self.closed), len(self.erased)):
                return

    def late(self, now):
        """(place, generation) of the slots past their deadline, lowest first."""
        return [(k, r.gen) for k, r in enumerate(self.records) if r and is_late(r, now)]

    def of(self, enough, tensors):
        """The same of those of which enough has come."""
        found = []
        for place, record in enumerate(self.records):
            for k, one in enumerate(JOBS):
                if record and enough[k] and is_of(record, one.job, tensors[k]):
                    found.append((place, record.gen))
        return found


def row(record, rng):
    """What the store shows."""
    if record == "noise":  # the store was somebody else's in that cycle
        return Record.from_bits(int.from_bytes(rng.bytes(Record.size // 8), "little"))
    if record is None:
        return {"valid": 0, "opened": 0}
    return {
        "valid": 1,
        "closed": int(record.closed),
        "job": JOBS.index(record.job) if record.job in JOBS else 0,
        "gen": record.gen,
        "opened": record.opened,
        **record.claim,
    }


@pytest.mark.parametrize(("reads", "takes"), [(1, 1), (0.6, 0.3)])
def test_whoever_is_due_is_closed_lowest_first(reads, takes):
    rng = stimulus.rng("sweep", reads, takes)
    stand = Stand(rng, reads=reads, takes=takes)

    async def visits(stand, ctx):
        await stand.settle(ctx)
        assert stand.erased == list(range(PLACES))  # a reset forgets all
        for turn in range(4):
            now = int(rng.choice([0, 50, 2**31, 2**32 - 1]))
            ctx.set(stand.part.now, now)
            stand.records, stand.closed = any_records(rng, now), []
            wanted = stand.late(now)
            if turn % 2:
                tensors, enough = [6, 7, 0], [int(rng.random() < 0.7) for _ in JOBS]
                for k in range(len(JOBS)):
                    ctx.set(stand.part.tensors[k], tensors[k])
                ctx.set(stand.part.enough, sum(one << k for k, one in enumerate(enough)))
                wanted = stand.of(enough, tensors)
                await stand.pulse(ctx, stand.part.crossed)
                assert ctx.get(stand.part.blocks)
            else:
                await stand.pulse(ctx, stand.part.tick)
            await stand.settle(ctx)
            assert stand.closed == wanted
            assert not ctx.get(stand.part.blocks)

    stand.run(visits)
    assert len(stand.erased) == PLACES


def test_ticks_close_together_and_the_rate():
    """A tick in a visit asks for one more; 8 cycles a record, a few more for one that closes."""
    rng = stimulus.rng("sweep rate")
    stand = Stand(rng)

    async def visits(stand, ctx):
        await stand.settle(ctx)
        stand.records = any_records(rng, 1000)
        ctx.set(stand.part.now, 1000)
        wanted = stand.late(1000)
        await stand.pulse(ctx, stand.part.tick)
        await stand.tick(ctx, PER_RECORD * PLACES // 2)
        first = next(k for k, r in enumerate(stand.records) if r and r.job is JOBS[0])
        again = Golden(7, JOBS[0], {"op": Op.THC_IDX, "tensor": 0}, 0)
        stand.records[first] = again  # behind the visit: the next one comes for it
        await stand.pulse(ctx, stand.part.tick)
        await stand.tick(ctx, PER_RECORD * PLACES // 2 + 4 * len(wanted) + 4)
        assert stand.closed[: len(wanted)] == wanted
        await stand.tick(ctx, PER_RECORD * PLACES + 8)
        assert stand.closed == [*wanted, (first, 7)]

    stand.run(visits)


@pytest.mark.parametrize("visit", [False, True])
def test_one_job_is_forgotten(visit):
    """And a visit that this breaks off still closes all that are late."""
    rng = stimulus.rng("sweep clear")
    stand = Stand(rng)

    async def clears(stand, ctx):
        await stand.settle(ctx)
        for k, one in enumerate(JOBS):
            stand.records, stand.erased, stand.closed = any_records(rng, 500), [], []
            ctx.set(stand.part.now, 500)
            late = stand.late(500)
            if visit:
                await stand.pulse(ctx, stand.part.tick)
                await stand.tick(ctx, int(rng.integers(1, 40)))
            ctx.set(stand.part.clear_job, k)
            await stand.pulse(ctx, stand.part.clear)
            assert ctx.get(stand.part.busy)
            await stand.tick(ctx, 2 * PLACES)
            assert not ctx.get(stand.part.busy)
            await stand.settle(ctx)
            assert stand.erased == [p for p in range(PLACES) if one.owns(p >> 1)]
            kept = [found for found in late if not one.owns(found[0] >> 1)]
            closed = [found for found in stand.closed if not one.owns(found[0] >> 1)]
            assert closed == (kept if visit else [])

    stand.run(clears)
