"""Indices and packed sums of THC on their way into the adders and out of them."""

import numpy as np
import pytest
from amaranth.sim import Simulator
from gradnic.hdl.thc.level_table import LevelTable, SumPacker
from gradnic.models.thc import Worker, pack

N_BYTES, ELEMS = 16, 256


def passed(dut, settings, writes, beats, n_out, rng):
    """What leaves, [(data, last)], where both sides pause. writes : of levels."""
    found = []

    async def drive(ctx):
        for path, value in settings.items():
            ctx.set(getattr(dut, path), value)
        for index, level in writes:
            ctx.set(dut.write, {"enable": 1, "index": index, "level": level})
            await ctx.tick()
        if hasattr(dut, "write"):
            ctx.set(dut.write, {"enable": 0})
        await ctx.tick().repeat(20)
        for fields in beats:
            await ctx.tick().repeat(int(rng.integers(1, 4)))
            ctx.set(dut.i.payload, fields)
            ctx.set(dut.i.valid, 1)
            await ctx.tick().until(dut.i.ready)
            ctx.set(dut.i.valid, 0)

    async def take(ctx):
        while len(found) < n_out:
            ctx.set(dut.o.ready, int(rng.random() < 0.6))
            _, _, valid, ready, data, last = await ctx.tick().sample(
                dut.o.valid, dut.o.ready, dut.o.p.data, dut.o.p.last
            )
            if valid and ready:
                found.append((data, last))

    simulator = Simulator(dut)
    simulator.add_clock(1e-6)
    simulator.add_testbench(drive)
    simulator.add_testbench(take)
    simulator.run_until(1e-2)
    assert len(found) == n_out
    return found


def cut(octets, **fields):
    """A packet as beats."""
    stops = range(N_BYTES, len(octets) + 1, N_BYTES)
    return [
        {"data": int.from_bytes(octets[k - N_BYTES : k], "little"), "last": k == len(octets)}
        | fields
        for k in stops
    ]


def joined(beats):
    return b"".join(data.to_bytes(N_BYTES, "little") for data, _ in beats)


@pytest.mark.parametrize(
    ("w", "b"),  # b None: 4 bits, and no others
    [(8, None), (12, None), (16, None), (8, 2), (16, 3), (12, 5), (8, 7), (16, 8)],
)
def test_indices_become_levels_and_sums_become_as_wide(w, b):
    rng = np.random.default_rng(w)
    inside, code = (8 if w == 8 else 16), (8, 12, 16).index(w)
    size = b or 4
    table = Worker(1, 0, b=size, g=254).table
    indices, sums = rng.integers(0, 1 << size, ELEMS), rng.integers(0, 1 << w, ELEMS)
    sums[:4] = 0, (1 << w) - 1, 1, 1 << (w - 1)
    beats, want = [], b""
    for _ in range(2):
        plain = pack(indices, size)
        for octets, fields, wide in (
            (plain, {"expand": 1, "plain": 0}, pack(table[indices], inside)),
            (pack(sums, w), {"expand": 0, "plain": 0}, pack(sums, inside)),
            (plain, {"expand": 0, "plain": 1}, plain),
        ):
            beats += cut(octets, **fields)
            want += wide
    dut, settings = LevelTable(N_BYTES, wide=True, bits=8 if b else 4), {"code": code}
    settings |= {"bits": b} if b else {"levels": table.tolist()}
    writes = enumerate(table.tolist() if b else [])
    found = passed(dut, settings, writes, beats, len(want) // N_BYTES, rng)
    assert joined(found) == want
    sums, plain = ELEMS * inside // 8 // N_BYTES, ELEMS * size // 8 // N_BYTES
    ends = np.flatnonzero([last for _, last in found]) + 1
    np.testing.assert_array_equal(ends, np.cumsum([sums, sums, plain] * 2))


def test_sums_of_16_bits_are_packed_to_12_and_others_pass():
    rng = np.random.default_rng(3)
    sums, other = rng.integers(0, 1 << 12, ELEMS), rng.bytes(48)
    sums[:3] = 0, 0xFFF, 0xF0F
    for on, octets, want in ((1, pack(sums, 16), pack(sums, 12)), (0, other, other)):
        beats, n = cut(octets) * 2, len(want) // N_BYTES
        found = passed(SumPacker(N_BYTES), {"on": on}, [], beats, 2 * n, rng)
        assert joined(found) == want * 2
        assert [last for _, last in found] == ([0] * (n - 1) + [1]) * 2
