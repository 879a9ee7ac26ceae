"""Byte routing: prefix sums, packing and unpacking at every lane count, each latency exact."""

import numpy as np
import pytest
from gradnic.hdl.inceptionn.byte_network import Compactor, PrefixSum, Spreader, plane_bit
from gradnic.models.inceptionn import byte_network as golden
from gradnic.sim.engine import stimulus
from gradnic.sim.engine.amaranth_run import simulate

LANES = [4, 8, 16, 32]


def packed(values, width):
    return sum(int(value) << width * k for k, value in enumerate(values))


def beats(n_lanes, n):
    """(Tags, starts, payloads, columns, which hold a byte): all equal tags first, then noise."""
    rng = stimulus.rng("byte routing", n_lanes)
    n_bytes = 4 * n_lanes
    cases = [(np.full(n_lanes, tag), 7 * k % n_bytes) for k in range(5) for tag in range(4)]
    cases += [(rng.integers(0, 4, n_lanes), int(rng.integers(n_bytes))) for _ in range(n)]
    result = []
    for tags, base in cases:
        starts = (base + golden.offsets(tags)[:-1]) % n_bytes
        payload = rng.integers(0, 1 << 32, n_lanes, np.uint32)
        placed = golden.columns(golden.packed(payload, tags), base, n_bytes)
        result.append((tags, starts, payload, *placed))
    return result


@pytest.mark.parametrize("n_lanes", LANES)
def test_prefix_sum(n_lanes):
    dut = PrefixSum(n_lanes)
    width = n_lanes.bit_length() + 1
    jobs = beats(n_lanes, 30)

    async def bench(ctx):
        for cycle in range(len(jobs) + dut.latency):
            if cycle >= dut.latency:
                *offsets, total = golden.offsets(jobs[cycle - dut.latency][0])
                assert ctx.get(dut.offsets) == packed(offsets, width)
                assert ctx.get(dut.total) == total
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
                *_, columns, present = jobs[cycle - dut.latency]
                got, mask = ctx.get(dut.columns), ctx.get(dut.present)
                planes = [mask >> (j % 4 * n_lanes + j // 4) & 1 for j in range(4 * n_lanes)]
                assert planes == present.tolist()
                got = np.frombuffer(got.to_bytes(4 * n_lanes, "little"), np.uint8)
                np.testing.assert_array_equal(got[present], columns[present])
            if cycle < len(jobs):
                ctx.set(dut.tags, packed(jobs[cycle][0], 2))
                ctx.set(dut.starts, packed(jobs[cycle][1], width))
            if 0 < cycle <= len(jobs):
                ctx.set(dut.payload, packed(jobs[cycle - 1][2], 32))
            await ctx.tick()

    simulate(dut, bench)


def sent(payload, tags):
    """Payloads as their tags send them."""
    return payload & np.array([0, 0xFF, 0xFFFF, 0xFFFFFFFF], np.uint32)[tags]


@pytest.mark.parametrize("n_lanes", LANES)
def test_spreader(n_lanes):
    dut = Spreader(n_lanes)
    width = n_lanes.bit_length() + 1
    jobs = beats(n_lanes, 40)

    async def bench(ctx):
        for cycle in range(len(jobs) + dut.latency):
            if cycle >= dut.latency:
                tags, _, payload, *_ = jobs[cycle - dut.latency]
                octets = ctx.get(dut.payload).to_bytes(4 * n_lanes, "little")
                got = golden.packed(np.frombuffer(octets, "<u4"), tags)
                np.testing.assert_array_equal(golden.spread(got, tags), sent(payload, tags))
            if cycle < len(jobs):
                ctx.set(dut.tags, packed(jobs[cycle][0], 2))
                ctx.set(dut.starts, packed(jobs[cycle][1], width))
            if dut.lead <= cycle < len(jobs) + dut.lead:
                ctx.set(dut.columns, packed(jobs[cycle - dut.lead][3], 8))
            await ctx.tick()

    simulate(dut, bench)


def test_plane_bit():
    assert [plane_bit(4, list(range(16)), column) for column in range(6)] == [0, 4, 8, 12, 1, 5]


@pytest.mark.parametrize("part", [PrefixSum, Compactor, Spreader])
def test_parameters(part):
    with pytest.raises(ValueError, match="n_lanes must be 4, 8, 16 or 32, not 5"):
        part(5)


def test_the_model_goes_round_the_beat():
    tags, payload = np.array([3, 0, 1, 2]), np.array([0x44332211, 9, 0x55, 0x7766], np.uint32)
    octets = golden.packed(payload, tags)
    assert octets.tolist() == [0x11, 0x22, 0x33, 0x44, 0x55, 0x66, 0x77]
    assert golden.offsets(tags).tolist() == [0, 4, 4, 5, 7]
    columns, present = golden.columns(octets, 13, 16)
    assert columns.tolist() == [0x44, 0x55, 0x66, 0x77, *[0] * 9, 0x11, 0x22, 0x33]
    assert present.tolist() == [True] * 4 + [False] * 9 + [True] * 3
    assert golden.spread(octets, tags).tolist() == [0x44332211, 0, 0x55, 0x7766]
