"""What a context hears of its engine: here a scheduler alone, behind the ports of an engine."""

import pytest
from amaranth.hdl import Module, Signal
from amaranth.lib import wiring
from gradnic.hdl.offload.context_paths import ArrivalSteer, PacketPick
from gradnic.hdl.offload.job_context import JobContext
from gradnic.hdl.offload.job_core import JobCore
from gradnic.hdl.offload.job_engines import run_engine, users_of
from gradnic.hdl.offload.job_records import Prepared
from gradnic.sim.engine.amaranth_run import simulate

from gradnic.interface.job import JobStatus
from gradnic.interface.schedule_table import Layout

LAYOUT = Layout.for_nodes(4, ports=4)
SIZES = {"n_active": 1, "n_tables": 2, "depth": 8, "n_chunks": 4, "n_packets": 16}
SOUND = {"rows": 1, "chunks": 1, "repeats": 1, "iterations": 1, "leaves": 1}


class Engine(wiring.Component):
    """The ports of an engine; of its parts only the scheduler."""

    def __init__(self, whole):
        self.whole = whole
        super().__init__(dict(whole.signature.members.items()))

    def elaborate(self, platform):
        m = Module()
        m.submodules.scheduler = scheduler = self.whole.scheduler
        m.d.comb += [
            self.status.eq(scheduler.status),
            *(getattr(scheduler, name).eq(getattr(self, name))
              for name in ("setup", "start", "table", "table_en", "table_addr", "table_data")),
        ]  # fmt: skip
        return m


class Bench(wiring.Component):
    """Context 0 of a core of which nothing else is there."""

    def __init__(self):
        self.core = core = JobCore(16, 1, LAYOUT, inc=False, **SIZES)
        self.wholes = core.engines  # one that is never built must not die before the process
        core.engines = [Engine(core.engines[0])]
        self.context = JobContext(16, core.address_width)
        self.prepared, self.anew = Signal(Prepared(16, core.address_width)), Signal()
        super().__init__({})

    def elaborate(self, platform):
        m, core = Module(), self.core
        m.submodules.context = self.context
        m.submodules.steer = steer = ArrivalSteer(16, 1)
        m.submodules.pick = pick = PacketPick(16, 1)
        core.renewal = self
        (user,) = users_of(m, core, [self.context], self, None)
        run_engine(m, core, 0, user, steer, pick)
        return m


@pytest.mark.parametrize(
    "wrong",
    [{}, {"rows": 0}, {"rows": 9}, {"chunks": 0}, {"chunks": 5}, {"repeats": 0},
     {"iterations": 0}, None],
)  # fmt: skip
def test_a_table_that_cannot_be_ends_its_job(wrong):
    """Without a watchdog. {} : a table that can; None: one whose row has an operation 3."""
    bench = Bench()
    core, context = bench.core, bench.context

    async def play(ctx):
        if wrong is None:
            for name, value in (("table_en", 1), ("table_data", 3 << LAYOUT.offsets["op"][0])):
                ctx.set(getattr(core, name), value)
            await ctx.tick()
            ctx.set(core.table_en, 0)
        ctx.set(bench.prepared.job.id, 7)
        ctx.set(bench.prepared.table, SOUND | (wrong or {}))
        ctx.set(bench.prepared.live, 1)
        ctx.set(context.quiet, 1)
        ctx.set(context.take, 1)
        await ctx.tick()
        ctx.set(context.take, 0)
        for _ in range(200):
            await ctx.tick()
            if ctx.get(context.record_valid):
                break
        assert ctx.get(context.record_valid) == (wrong != {})
        assert ctx.get(context.busy)
        if wrong != {}:
            record = ctx.get(context.record)
            assert (record.id, record.status) == (7, JobStatus.MEMORY)

    simulate(bench, play)
