"""Who has which engine: by the order of jobs, each out of reset, and nobody hears another's."""

import numpy as np
import pytest
from gradnic.hdl.offload.engine_pool import EnginePool
from gradnic.hdl.offload.job_context import FLUSH_CYCLES
from gradnic.models.offload.engine_pool import EnginePool as Golden
from gradnic.sim.engine.amaranth_run import simulate

CYCLES = 1200


class Context:
    """What a context asks of the pool, at random times; the jobs' order is that of ``age``."""

    def __init__(self, rng):
        self.rng, self.state, self.age, self.wait, self.engine = rng, "free", None, 0, None

    def step(self, age, granted):
        """Go on by a cycle; whether it begins a job, the youngest, number `age`."""
        self.wait -= 1
        if self.state == "free" and self.wait < 0 and age is not None:
            self.state, self.age, self.wait = "pass", age, self.rng.integers(40)
            return True
        if self.state == "pass" and self.wait < 0:  # or it ends, without an engine
            self.state = "ask" if self.rng.random() < 0.9 else "free"
        elif self.state == "ask" and granted:
            self.state, self.wait = "run", self.rng.integers(60)
        elif self.state == "ask" and self.rng.random() < 0.002:
            self.state, self.wait = "free", 3
        elif self.state == "run" and self.wait < 0:
            self.state, self.wait = "free", self.rng.integers(3, 30)
        return False


@pytest.mark.parametrize(("n", "n_engines"), [(2, 1), (3, 2), (4, 1), (4, 2), (4, 3)])
def test_engines_go_to_the_oldest_that_needs_one(n, n_engines):
    part = EnginePool(16, 32, n=n, n_engines=n_engines)
    rng = np.random.default_rng(10 * n + n_engines)
    contexts = [Context(rng) for _ in range(n)]
    granted_ages, waited, rounds, golden = [], 0, 0, Golden()

    async def bench(ctx):
        nonlocal waited, rounds
        age, owners, resets = 0, [None] * n_engines, [0] * n_engines
        epochs = [ctx.get(one.epoch) for one in part.contexts]
        for _ in range(CYCLES):
            grants = ctx.get(part.granted)
            starts = 0
            needs, wants = ([k for k, one in enumerate(contexts) if one.state in states]
                            for states in (("pass", "ask"), ("ask",)))  # fmt: skip
            turn = golden.next(needs, wants)
            for k, one in enumerate(contexts):
                before = one.state
                if one.step(None if starts else age, grants >> k & 1):
                    age, starts = age + 1, 1 << k
                    golden.started(k)
                    ctx.set(part.leases[k].job.job.tensor, one.age & 0xFFFF)
                    ctx.set(part.leases[k].sums, one.age & 0xFFFF)
                    ctx.set(part.gens[k], one.age + 7 & 0xFFFF)
                if (before, one.state) == ("ask", "run"):
                    assert k == turn
                    granted_ages.append(one.age)
                    rounds += 1
            ctx.set(part.started, starts)
            for name, states in (
                ("needs", ("pass", "ask")), ("wants", ("ask",)), ("holds", ("ask", "run")),
            ):  # fmt: skip
                flags = sum((one.state in states) << k for k, one in enumerate(contexts))
                ctx.set(getattr(part, name), flags)
            for k, one in enumerate(contexts):
                controls = {"armed": one.state == "run", "stage": k, "pause": k & 1, "start": 0}
                ctx.set(part.controls[k], controls)
            for e in range(n_engines):
                ctx.set(part.engine_reports[e], {"row": 100 + e, "finished": 1, "quiet": e == 1})
            await ctx.delay(0)
            running = [k for k, one in enumerate(contexts) if one.state == "run"]
            assert len(running) <= n_engines
            heard, leaving = [], []
            for k, one in enumerate(contexts):
                told = ctx.get(part.reports[k])
                if k in running:
                    assert told.finished
                    heard.append(told.row - 100)
                    e = heard[-1]
                    assert told.quiet == (e == 1)
                    engine_controls, engine_leases = (
                        ctx.get(part.engine_controls[e]),
                        ctx.get(part.engine_leases[e]),
                    )
                    assert (
                        engine_controls.stage,
                        engine_controls.pause,
                        engine_controls.closed,
                    ) == (k, k & 1, 0)
                    assert not ctx.get(part.resets) >> e & 1
                    assert engine_leases.job.job.tensor == engine_leases.sums == one.age & 0xFFFF
                    context = ctx.get(part.contexts[e])
                    assert (context.armed, context.gen) == (1, one.age + 7 & 0xFFFF)
                    assert owners[e] in (None, one.age) or resets[e] >= FLUSH_CYCLES
                    owners[e], resets[e] = one.age, 0
                elif grants >> k & 1:  # it has been its until this cycle
                    leaving.append(told.row - 100)
                else:
                    assert (told.finished, told.row, told.quiet) == (0, 0, 1)
            assert len(set(heard)) == len(heard)  # an engine has one context
            for e in range(n_engines):
                engine_controls = ctx.get(part.engine_controls[e])
                epoch = ctx.get(part.contexts[e].epoch)
                reset = ctx.get(part.resets) >> e & 1
                if reset:
                    resets[e] += 1
                    assert not engine_controls.start
                if epoch != epochs[e]:
                    assert reset  # what was on its way vanishes while nothing is taken
                epochs[e] = epoch
                if e not in heard:  # nor does a packet leave as it is about to be reset
                    assert not ctx.get(part.contexts[e].armed)
                    assert e in leaving or (engine_controls.pause, engine_controls.closed) == (1, 1)
            needs = [one.age for one in contexts if one.state in ("pass", "ask")]
            waited += bool(needs) and len(running) < n_engines
            assert not ctx.get(part.strays)
            await ctx.tick()

    simulate(part, bench)
    assert granted_ages == sorted(granted_ages)
    assert rounds > 10 * n_engines


def test_a_context_has_a_free_engine_nine_cycles_after_it_asks():
    part = EnginePool(16, 32, n=2, n_engines=1)

    async def bench(ctx):
        await ctx.tick().repeat(2 * FLUSH_CYCLES)
        for context in (1, 0):
            flag = 1 << context
            ctx.set(part.started, flag)
            ctx.set(part.needs, flag)
            await ctx.tick()
            ctx.set(part.started, 0)
            for name in ("wants", "holds"):
                ctx.set(getattr(part, name), flag)
            cycles = 0
            while not ctx.get(part.granted):
                await ctx.tick()
                cycles += 1
            assert (ctx.get(part.granted), cycles) == (flag, 9)
            for name in ("needs", "wants", "holds"):
                ctx.set(getattr(part, name), 0)
            await ctx.tick().repeat(2 * FLUSH_CYCLES)

    simulate(part, bench)
