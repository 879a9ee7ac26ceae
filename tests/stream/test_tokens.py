"""A count for a queue: beat for beat what the queue does."""

import numpy as np
import pytest
from amaranth.hdl import Module
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out
from gradnic.hdl.stream.fifo import FIFO
from gradnic.hdl.stream.tokens import Tokens
from gradnic.sim.engine.amaranth_run import simulate


class Both(wiring.Component):
    """The two side by side; flags of the queue, then of the count."""

    valid: In(1)
    ready: In(1)
    i_ready: Out(2)
    o_valid: Out(2)

    def __init__(self, depth):
        self.parts = FIFO(1, depth), Tokens(depth)
        super().__init__()

    def elaborate(self, platform):
        m = Module()
        for k, part in enumerate(self.parts):
            m.submodules[f"part{k}"] = part
            m.d.comb += [
                part.i.valid.eq(self.valid),
                part.o.ready.eq(self.ready),
                self.i_ready[k].eq(part.i.ready),
                self.o_valid[k].eq(part.o.valid),
            ]
        return m


@pytest.mark.parametrize("depth", [2, 3, 16, 64])
def test_tokens_move_as_beats_of_a_queue_do(depth):
    """Empty, full, and between: shares of cycles in which beats come and go change over time."""
    part, rng = Both(depth), np.random.default_rng(depth)
    seen = set()

    async def bench(ctx):
        for _ in range(40):
            comes, goes = rng.choice([0.0, 0.2, 0.8, 1.0], 2)
            for _ in range(100):
                ctx.set(part.valid, int(rng.random() < comes))
                ctx.set(part.ready, int(rng.random() < goes))
                flags = ctx.get(part.i_ready), ctx.get(part.o_valid)
                assert set(flags) <= {0, 3}, flags
                seen.add(flags)
                await ctx.tick()

    simulate(part, bench)
    assert len(seen) >= 3  # empty, full, and between
