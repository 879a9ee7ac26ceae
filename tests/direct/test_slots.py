"""Whose turn it is among slots, as the golden round robin has it, and who is chosen."""

import numpy as np
import pytest
from amaranth.hdl import Module
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out
from gradnic.hdl.direct.slots import first_set, number, round_robin, select
from gradnic.models.direct.slots import RoundRobin
from gradnic.sim.engine import stimulus
from gradnic.sim.engine.amaranth_run import simulate

VALUES = (7, 0, 3, 12, 9, 1, 15, 4, 8, 2)


class Turns(wiring.Component):
    """Slots that ask; the one that is served, by its mark, number and value."""

    def __init__(self, n):
        super().__init__(
            {
                "asks": In(n),
                "goes": In(1),
                "grant": Out(n),
                "first": Out(n),
                "number": Out(range(n)),
                "value": Out(4),
            }
        )

    def elaborate(self, platform):
        m = Module()
        grant = round_robin(m, self.asks, self.goes, name="turn")
        m.d.comb += [
            self.grant.eq(grant),
            self.first.eq(first_set(self.asks)),
            self.number.eq(number(grant)),
            self.value.eq(select(grant, VALUES[: len(grant)])),
        ]
        return m


@pytest.mark.parametrize("n", [2, 3, 6, 10])
def test_turns(n):
    """All ask, one asks, nobody; then any; where the turn stays it stays with the same."""
    rng, part, golden = stimulus.rng("turns", n), Turns(n), RoundRobin(n)
    rows = [np.ones(n, bool)] * (2 * n) + list(np.eye(n, dtype=bool)) + [np.zeros(n, bool)]
    rows += [rng.random(n) < rng.choice([0.1, 0.5, 0.9]) for _ in range(400)]

    async def bench(ctx):
        for k, asks in enumerate(rows):
            goes = k < 3 * n or rng.random() < 0.7
            ctx.set(part.asks, sum(int(bit) << j for j, bit in enumerate(asks)))
            ctx.set(part.goes, int(goes))
            turn = golden.grant(asks.tolist(), goes=goes)
            served = turn is not None
            assert ctx.get(part.grant) == (1 << turn if served else 0)
            assert ctx.get(part.number) == (turn if served else 0)
            assert ctx.get(part.value) == (VALUES[turn] if served else 0)
            assert ctx.get(part.first) == (1 << int(np.argmax(asks)) if asks.any() else 0)
            await ctx.tick()

    simulate(part, bench)


def test_nobody_waits_longer_than_a_round():
    golden, rng = RoundRobin(5), stimulus.rng("fair")
    waits = 0
    for _ in range(500):
        asks = (rng.random(5) < 0.6).tolist()
        asks[3] = True
        waits = 0 if golden.grant(asks) == 3 else waits + 1
        assert waits < 5
