"""Byte routing: prefix sums, packing and unpacking at every lane count, each latency exact."""

import numpy as np
import pytest
from gradnic.hdl.inceptionn.byte_network import Compactor, PrefixSum, Spreader, plane_bit
from gradnic.sim.engine import stimulus
from gradnic.sim.engine.amaranth_run import simulate

SIZES = np.array([0, 1, 2, 4])
LANES = [4, 8, 16, 32]


def packed(values, width):
    return sum(int(value) << width * k for k, value in enumerate(values))


def beats(n_lanes, n):
    """Tags, starts and lane bytes: all equal tags at every start first, then noise."""
    rng = stimulus.rng("byte routing", n_lanes)
    n_bytes = 4 * n_lanes
    cases = [(np.full(n_lanes, tag), 7 * k % n_bytes) for k in range(5) for tag in range(4)]
    cases += [(rng.integers(0, 4, n_lanes), int(rng.integers(n_bytes))) for _ in range(n)]
    result = []
    for tags, base in cases:
        ends = np.cumsum(SIZES[tags])
        starts = (base + ends - SIZES[tags]) % n_bytes
        result.append((tags, starts, rng.integers(0, 256, (n_lanes, 4))))
    return result


def columns_of(n_lanes, tags, starts, data):
    columns = [None] * (4 * n_lanes)
    for lane in range(n_lanes):
        for byte in range(SIZES[tags[lane]]):
            columns[(starts[lane] + byte) % len(columns)] = int(data[lane, byte])
    return columns


@pytest.mark.parametrize("n_lanes", LANES)
def test_prefix_sum(n_lanes):
    dut = PrefixSum(n_lanes)
    width = n_lanes.bit_length() + 1
    jobs = beats(n_lanes, 30)

    async def bench(ctx):
        for cycle in range(len(jobs) + dut.latency):
            if cycle >= dut.latency:
                sizes = SIZES[jobs[cycle - dut.latency][0]]
                assert ctx.get(dut.offsets) == packed(np.cumsum(sizes) - sizes, width)
                assert ctx.get(dut.total) == sizes.sum()
            if cycle < len(jobs):
                ctx.set(dut.tags, packed(jobs[cycle][0], 2))
            await ctx.tick()

    simulate(dut, bench)


@pytest.mark.parametrize("n_lanes", LANES)
def test_compactor(n_lanes):
    dut = Compactor(n_lanes)
    width = n_lanes.bit_length() + 1
    jobs = beats(n_lanes, 40)

    async def bench(ctx):
        for cycle in range(len(jobs) + dut.latency):
            if cycle >= dut.latency:
                columns = columns_of(n_lanes, *jobs[cycle - dut.latency])
                got, present = ctx.get(dut.columns), ctx.get(dut.present)
                for j, byte in enumerate(columns):
                    assert present >> (j % 4 * n_lanes + j // 4) & 1 == (byte is not None)
                    assert byte is None or got >> 8 * j & 255 == byte
            if cycle < len(jobs):
                ctx.set(dut.tags, packed(jobs[cycle][0], 2))
                ctx.set(dut.starts, packed(jobs[cycle][1], width))
            if 0 < cycle <= len(jobs):
                ctx.set(dut.payload, packed(jobs[cycle - 1][2].ravel(), 8))
            await ctx.tick()

    simulate(dut, bench)


@pytest.mark.parametrize("n_lanes", LANES)
def test_spreader(n_lanes):
    dut = Spreader(n_lanes)
    width = n_lanes.bit_length() + 1
    jobs = beats(n_lanes, 40)

    async def bench(ctx):
        for cycle in range(len(jobs) + dut.latency):
            if cycle >= dut.latency:
                tags, _, data = jobs[cycle - dut.latency]
                got = ctx.get(dut.payload)
                for lane in range(n_lanes):
                    for byte in range(SIZES[tags[lane]]):
                        assert got >> 8 * (4 * lane + byte) & 255 == data[lane, byte]
            if cycle < len(jobs):
                ctx.set(dut.tags, packed(jobs[cycle][0], 2))
                ctx.set(dut.starts, packed(jobs[cycle][1], width))
            if dut.lead <= cycle < len(jobs) + dut.lead:
                columns = columns_of(n_lanes, *jobs[cycle - dut.lead])
                ctx.set(dut.columns, packed([byte or 0 for byte in columns], 8))
            await ctx.tick()

    simulate(dut, bench)


def test_plane_bit():
    assert [plane_bit(4, list(range(16)), column) for column in range(6)] == [0, 4, 8, 12, 1, 5]


@pytest.mark.parametrize("part", [PrefixSum, Compactor, Spreader])
def test_parameters(part):
    with pytest.raises(ValueError, match="n_lanes must be 4, 8, 16 or 32, not 5"):
        part(5)
