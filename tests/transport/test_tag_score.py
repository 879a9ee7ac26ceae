"""Sizes of packets' values, while they stream by, against the golden tagger's."""

import numpy as np
import pytest
from gradnic.hdl.transport.tag_score import Scorer
from gradnic.models.transport.tagger import max_score, sum_score
from gradnic.sim.engine import stimulus
from gradnic.sim.engine.amaranth_run import simulate


def packets(n_lanes, unit):
    """Values of packets of one beat to many: corners, and magnitudes around `unit`."""
    rng = stimulus.rng("scores", n_lanes, unit)
    corners = stimulus.float_corners().view(np.float32)
    made = [corners[k : k + 5 * n_lanes] for k in range(0, len(corners), 5 * n_lanes)]
    for n_beats in (1, 1, 2, 3, 7, 64 // n_lanes * 4):
        exponents = rng.integers(max(1, unit - 4), min(255, unit + 20), n_beats * n_lanes)
        bits = rng.integers(2, size=exponents.size) << 31 | exponents << 23
        bits |= rng.integers(1 << 23, size=exponents.size)
        made.append(bits.astype(np.uint32).view(np.float32))
    full = np.frombuffer(np.full(4096, 0x7F7FFFFF, np.uint32).tobytes(), np.float32)
    return [*made, full if n_lanes == 16 else full[:64]]


@pytest.mark.parametrize(
    ("n_lanes", "by_sum", "unit"), [(4, 0, 117), (4, 1, 117), (4, 1, 1), (4, 1, 254), (16, 1, 117)]
)
def test_scores(n_lanes, by_sum, unit):
    part, got = Scorer(n_lanes), []
    made = packets(n_lanes, unit)
    beats, ends = [], []
    for values in made:
        whole = np.zeros(-(-values.size // n_lanes) * n_lanes, np.float32)
        whole[: values.size] = values
        rows = whole.reshape(-1, n_lanes)
        beats += [int.from_bytes(row.tobytes(), "little") for row in rows]
        ends += [len(beats) - 1]
    gaps = stimulus.rng("score gaps").random(len(beats)) < 0.1

    async def bench(ctx):
        ctx.set(part.by_sum, by_sum)
        ctx.set(part.unit, unit)
        cycle, due = 0, {}
        for number, (beat, gap) in enumerate(zip(beats, gaps, strict=True)):
            for push in (0, 1) if gap else (1,):
                ctx.set(part.push, push)
                ctx.set(part.data, beat if push else (1 << 32 * n_lanes) - 1)
                ctx.set(part.last, int(number in ends))
                if push and number in ends:
                    due[cycle + part.latency] = True
                await ctx.tick()
                cycle += 1
                assert ctx.get(part.done) == due.pop(cycle, False)
                if ctx.get(part.done):
                    got.append(ctx.get(part.score))
        ctx.set(part.push, 0)
        for _ in range(part.latency):
            await ctx.tick()
            cycle += 1
            assert ctx.get(part.done) == due.pop(cycle, False)
            if ctx.get(part.done):
                got.append(ctx.get(part.score))

    simulate(part, bench)
    golden = [sum_score(values, unit) if by_sum else max_score(values) for values in made]
    assert got == golden
