"""Ranges of PROBEs, packet by packet, against the golden bytes that they lack and their bitmap."""

import numpy as np
import pytest
from gradnic.hdl.transport.probe_scan import ProbeScan
from gradnic.hdl.transport.records import BODY, RUN
from gradnic.models.transport.allowances import weighed_bytes
from gradnic.models.transport.probe_scan import bitmap, missing_bytes
from gradnic.sim.engine import stimulus
from gradnic.sim.engine.amaranth_run import simulate

MOST_CYCLES = 10  # with ``multiply``: leaves have 8 bits, so ``busy`` has ended before


def ranges(rng):
    """(packets before the range, elements of each, which are closed, leaves), corners first."""
    full = np.full(RUN, 4080)
    yield 7, full, np.zeros(RUN, bool), 255  # as much as can be missing
    yield 0, full, np.ones(RUN, bool), 255
    yield 0, full, np.zeros(RUN, bool), 1
    yield 3, full[:1], np.zeros(1, bool), 128
    yield 7, full[:1], np.ones(1, bool), 0
    for _ in range(80):
        n = int(rng.choice([1, 2, RUN, rng.integers(1, RUN + 1)]))
        elems = np.full(n, 16 * rng.integers(1, 256))
        elems[-1] = rng.integers(1, elems[0] + 1)  # only the last one of a tensor may be short
        closed = rng.random(n) < rng.choice([0.02, 0.5, 0.98])
        yield int(rng.integers(8)), elems, closed, int(rng.integers(256))


@pytest.mark.parametrize("most_bits", [4, 8])
def test_what_a_range_lacks_equals_golden(most_bits):
    part, rng = ProbeScan(most_bits), stimulus.rng("probe_scan")

    async def strobe(ctx, name):
        ctx.set(getattr(part, name), 1)
        await ctx.tick()
        ctx.set(getattr(part, name), 0)

    async def bench(ctx):
        for n_before, elems, closed, leaves in ranges(rng):
            thc, pauses = rng.integers(2, size=2).tolist()
            elem_bits = (int(rng.integers(2, 9)) if most_bits > 4 else 4) if thc else 32
            ctx.set(part.first_bit, n_before)
            await strobe(ctx, "start")
            for n_elems, is_closed in zip(elems.tolist(), closed.tolist(), strict=True):
                ctx.set(part.elems, n_elems)
                ctx.set(part.closed, is_closed)
                await strobe(ctx, "packet_valid")
                ctx.set(part.elems, int(rng.integers(4096)))  # of nobody
                ctx.set(part.closed, int(rng.integers(2)))
                if pauses:
                    await ctx.tick().repeat(int(rng.integers(1, 4)))
            await ctx.tick().repeat(2)
            weighed = [weighed_bytes(n_elems, elem_bits, leaves) for n_elems in elems.tolist()]
            assert ctx.get(part.missing) == (not closed.all())
            ctx.set(part.leaves, leaves)
            ctx.set(part.thc, thc)
            if most_bits > 4:
                ctx.set(part.bits, elem_bits if thc else int(rng.integers(16)))
            await strobe(ctx, "multiply")
            ctx.set(part.leaves, int(rng.integers(256)))
            cycles = 1
            while ctx.get(part.busy) and cycles < MOST_CYCLES:
                await ctx.tick()
                cycles += 1
            assert cycles == 1 + leaves.bit_length() < MOST_CYCLES
            assert ctx.get(part.lost) == missing_bytes(np.array(weighed), closed)
            body = ctx.get(part.body).to_bytes(BODY, "little")
            assert body == bitmap(closed, n_before).ljust(BODY, b"\0")

    simulate(part, bench)
