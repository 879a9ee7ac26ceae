"""Rows and tails of units back to back and with gaps, each as the golden packer leaves it."""

import numpy as np
import pytest
from gradnic.hdl.inceptionn.packer import Packer
from gradnic.models.inceptionn.byte_network import offsets, packed
from gradnic.models.inceptionn.packer import rows_and_tail
from gradnic.sim.engine import stimulus
from gradnic.sim.engine.amaranth_run import simulate


def word(values, width):
    return sum(int(value) << width * k for k, value in enumerate(values))


def units_of(n_lanes, rng):
    """(First column, tags and payloads of each beat): nothing, all, one byte; then any."""
    n_bytes = 4 * n_lanes
    cases = [(base, np.full((2, n_lanes), tag)) for tag in range(4) for base in (0, n_bytes - 2)]
    single = np.zeros((1, n_lanes), int)
    single[0, -1] = 1
    cases += [(base, single) for base in (0, n_bytes - 2)]
    cases += [
        (2 * int(rng.integers(n_bytes // 2)), rng.integers(0, 4, (n, n_lanes)))
        for n in rng.integers(1, 9, 12)
    ]
    return [(base, tags, rng.integers(0, 1 << 32, tags.shape, np.uint32)) for base, tags in cases]


@pytest.mark.parametrize("n_lanes", [4, 8])
@pytest.mark.parametrize("duty", [1.0, 0.6])
def test_rows_and_tails(n_lanes, duty):
    """Each leaves so many cycles after the beat that reaches its end, whatever else comes."""
    rng, part, n_bytes = stimulus.rng("packer", n_lanes, duty), Packer(n_lanes), 4 * n_lanes
    width = n_lanes.bit_length() + 1
    beats, due = [], {"row": [], "tail": []}  # cycles
    golden = {"row": [], "tail": []}
    for base, tags, payload in units_of(n_lanes, rng):
        rows, tail = rows_and_tail(packed(payload.ravel(), tags.ravel()), base, n_bytes)
        golden["row"] += list(rows)
        golden["tail"].append(tail)
        column = base
        for k, (its_tags, its_payload) in enumerate(zip(tags, payload, strict=True)):
            while rng.random() >= duty:
                beats.append(None)
            *before, total = column + offsets(its_tags)
            fills, last = total >= n_bytes, k == len(tags) - 1
            beats.append((np.array(before) % n_bytes, its_tags, its_payload, column, fills, last))
            for name, ends in (("row", fills), ("tail", last)):
                if ends:
                    due[name].append(len(beats) + part.latency)
            column = total % n_bytes
    got, when = ({name: [] for name in due} for _ in range(2))

    async def bench(ctx):
        line = [None, *beats, *[None] * (part.latency + 3)]
        for cycle in range(1, len(line)):
            early, late, now = line[cycle], line[cycle - 2], line[cycle - 1]
            for name in ("row", "tail"):
                if ctx.get(getattr(part, f"{name}_en")):
                    octets = ctx.get(getattr(part, f"{name}_data")).to_bytes(n_bytes, "little")
                    got[name].append(np.frombuffer(octets, np.uint8))
                    when[name].append(cycle)
            ctx.set(part.base, int(early[3]) if early else int(rng.integers(n_bytes)))
            ctx.set(part.row, int(early is not None and early[4]))
            ctx.set(part.last, int(early is not None and early[5]))
            ctx.set(part.starts, word(now[0], width) if now else 0)
            ctx.set(part.tags, word(now[1], 2) if now else 0)
            ctx.set(part.payload, word(late[2], 32) if late else 0)
            await ctx.tick()

    simulate(part, bench)
    for name, wanted in golden.items():
        assert len(got[name]) == len(wanted)
        for mine, its in zip(got[name], wanted, strict=True):
            np.testing.assert_array_equal(mine[its >= 0], its[its >= 0])
        assert when[name] == due[name]


def test_the_model_has_a_tail_for_each_unit():
    rows, tail = rows_and_tail(np.arange(5, dtype=np.uint8), 3, 4)
    assert rows.tolist() == [[-1, -1, -1, 0], [1, 2, 3, 4]]
    assert tail.tolist() == [-1] * 4
    rows, tail = rows_and_tail(np.arange(2, dtype=np.uint8), 1, 4)
    assert rows.tolist() == []
    assert tail.tolist() == [-1, 0, 1, -1]
