"""Values of a few bits each into beats without gaps, and out of them, as the golden pack does."""

import numpy as np
import pytest
from gradnic.hdl.thc.bit_packer import BitPacker, BitUnpacker
from gradnic.models.thc.bit_packer import pack, unpack
from gradnic.sim.engine import batch, stimulus
from gradnic.sim.engine.amaranth_run import simulate

LANES = 4


def values_of(name, width, n):
    """All zeros and all ones, each beat, and noise: shape (n, LANES)."""
    values = stimulus.rng(name, width).integers(0, 1 << width, (n, LANES))
    values[:4] = np.array([0, (1 << width) - 1, 1, 1 << width - 1])[:, None]
    return values


@pytest.mark.parametrize("duty", [1.0, 0.5])
def test_packed(duty):
    """All widths one after the other, at full rate and with gaps; a beat out fills after 8 bits."""
    part = batch.build(BitPacker(LANES)).instance()
    for bits in range(1, 9):
        values = values_of("packer", bits, 64)
        comes = stimulus.rng("packer gaps", duty).random(300) < duty
        comes[0] = False  # what stands while the circuit is reset, and width is taken over
        comes &= np.cumsum(comes) <= len(values)
        assert comes.sum() == len(values)
        beats = np.zeros(len(comes), np.int64)
        beats[comes] = (values << 8 * np.arange(LANES)).sum(axis=1)
        run = part.run(
            signals={"bits": bits, "valid": comes, "values": beats},
            trace=["done", "merged", "octets"],
            drain=False,
            max_cycles=len(comes) + BitPacker.latency + 1,
        )
        done, merged = (run.traces[name].astype(bool) for name in ("done", "merged"))
        got = run.traces["octets"][done].astype("<u4").tobytes()
        assert got == pack(values.reshape(-1), bits)
        full = np.cumsum(comes) * bits // 8
        fills = np.diff(full, prepend=0).astype(bool)
        came = np.flatnonzero(comes) + BitPacker.latency
        assert list(np.flatnonzero(done)) == list(np.flatnonzero(fills) + BitPacker.latency)
        assert sorted([*np.flatnonzero(done), *np.flatnonzero(merged)]) == list(came)


@pytest.mark.parametrize(("code", "width"), [(0, 8), (1, 12), (2, 16)])
@pytest.mark.parametrize("duty", [1.0, 0.6])
def test_unpacked(code, width, duty):
    values = values_of("unpacker", width, 32)
    octets, size = pack(values.reshape(-1), width), 2 * LANES
    words = [octets[k : k + size] for k in range(0, len(octets), size)]
    rng, part, got, when = stimulus.rng("unpacker", duty), BitUnpacker(LANES), [], []
    noise = rng.bytes(size)

    async def bench(ctx):
        ctx.set(part.code, code)
        await ctx.tick().repeat(2)
        waiting, coming = list(words), [noise, noise]  # a beat comes 2 cycles after it was taken
        for cycle in range(120):
            ctx.set(part.available, int(bool(waiting) and rng.random() < duty))
            ctx.set(part.open, int(rng.random() < duty))
            ctx.set(part.word, int.from_bytes(coming.pop(0), "little"))
            if ctx.get(part.produces):
                when.append(cycle + part.latency)
            if ctx.get(part.done):
                assert when[len(got)] == cycle
                got.append(list(ctx.get(part.values)))
            coming.append(waiting.pop(0) if ctx.get(part.take) else noise)
            await ctx.tick()
        assert waiting == []

    simulate(part, bench)
    wanted = unpack(octets, width, values.size).reshape(values.shape)
    np.testing.assert_array_equal(got, wanted)
    if duty == 1.0:
        assert when == list(range(when[0], when[0] + len(values)))


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: BitPacker(0), "lanes must be at least 2, not 0"),
        (lambda: BitPacker(3), "lanes must be a multiple of 2, not 3"),
        (lambda: BitUnpacker(5), "lanes must be a multiple of 2, not 5"),
    ],
)
def test_errors_name_the_value_and_the_limit(call, message):
    with pytest.raises(ValueError, match=message):
        call()
