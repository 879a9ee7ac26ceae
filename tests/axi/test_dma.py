"""Memory engines against cocotbext-axi's memory: whole contents, bursts, refusals, rate."""

import logging
from functools import partial

import cocotb
import numpy as np
import pytest
from cocotb.triggers import ClockCycles, FallingEdge, RisingEdge, with_timeout
from cocotbext.axi import AxiRamRead, AxiRamWrite, AxiReadBus, AxiWriteBus
from gradnic.hdl.axi.bursts import Range
from gradnic.hdl.axi.dma import ReadEngine, WriteEngine
from gradnic.hdl.stream.beats import Beat
from gradnic.sim.engine import amaranth_run, encoding
from gradnic.sim.engine.drivers import Stream, collect, drive, given, options, reset, rests
from gradnic.sim.engine.runner import simulate

BASE = 0x2FC0  # of the region: the middle of a page
SIZE = 400  # beats of the region
SECOND = 0x1000  # base of the other region, of the reader alone


def ranges(rng, n, longest):
    """(offset, n_beats) of ranges within the region, corners first."""
    fixed = [(0, 1), (0, SIZE), (SIZE - 1, 1), (5, 0), (1, 16), (15, 2), (16, 16), (7, 40)]
    offsets = rng.integers(0, SIZE, n)
    lengths = np.minimum(rng.integers(0, longest, n), SIZE - offsets)
    return fixed + list(zip(offsets.tolist(), lengths.tolist(), strict=True))


def pauses(rng, share):
    while True:
        yield bool(rng.random() < share)


def memory(dut, kind, bus, share, rng):
    """A memory of 64 KiB at the port of an engine; its channels pause with a share of cycles."""
    ram = kind(bus.from_prefix(dut, "port", bus_separator="__"), dut.clk, dut.rst, size=2**16)
    ram.log.setLevel(logging.WARNING)
    if share:
        for name in ("ar_channel", "r_channel", "aw_channel", "w_channel", "b_channel"):
            if hasattr(ram, name):
                getattr(ram, name).set_pause_generator(pauses(rng, share))
    return ram


async def watch(dut, prefix, n_bytes, bursts, pulses, names):
    """Record the bursts on an address channel, and count cycles in which each of `names` is 1."""
    while True:
        await FallingEdge(dut.clk)
        for name in names:
            pulses[name] = pulses.get(name, 0) + int(getattr(dut, name).value)
        if (
            getattr(dut, f"port__{prefix}valid").value
            and getattr(dut, f"port__{prefix}ready").value
        ):
            address = int(getattr(dut, f"port__{prefix}addr").value)
            length = int(getattr(dut, f"port__{prefix}len").value) + 1
            bursts.append((address, length * n_bytes))
        await RisingEdge(dut.clk)


def check_bursts(bursts, n_bytes, bases):
    for address, length in bursts:
        assert any(base <= address <= base + SIZE * n_bytes - length for base in bases)
        assert address // 4096 == (address + length - 1) // 4096


def register(dut, n_bytes):
    n_regions = options()["n_regions"]
    shape = ReadEngine(n_bytes, n_regions=n_regions).splitter.regions_shape
    bases = (SECOND, BASE)[-n_regions:]
    regions = [{"first": base // n_bytes, "n_beats": SIZE} for base in bases]
    dut.regions.value = shape.const(regions).as_value().value


@cocotb.test()
@cocotb.parametrize(share=[0, 0.4])
async def read_ranges(dut, share):
    rng = np.random.default_rng(cocotb.RANDOM_SEED)
    n = options()["n_bytes"]
    data = given()["data"]
    register(dut, n)
    await reset(dut, inputs=["ranges"], outputs=["beats"])
    ram = memory(dut, AxiRamRead, AxiReadBus, share, rng)
    ram.write(0, data.tobytes())
    bursts, pulses = [], {}
    cocotb.start_soon(watch(dut, "ar", n, bursts, pulses, ["refused", "failed"]))
    asked = ranges(rng, 40, 60)
    outside = [(SIZE, 1), (SIZE - 1, 2), (2**24 - 1, 2), (0, SIZE + 1)]
    asked = [*asked, *outside, *ranges(rng, 10, 60)]
    regions = [data[base : base + SIZE * n].reshape(SIZE, n) for base in (SECOND, BASE)]
    numbers = rng.integers(0, 2, len(asked))
    wanted, last, n_refused = [], [], 0
    for (offset, length), number in zip(asked, numbers, strict=True):
        words = regions[number]
        inside = offset + length <= SIZE
        n_refused += length > 0 and not inside
        wanted.append(words[offset : offset + length] if inside else np.zeros((length, n), "u1"))
        last += [0] * (length - 1) + [1] * (length > 0)
    wanted = encoding.pack(Beat(8 * n), data=np.concatenate(wanted), last=np.array(last))
    offsets, lengths = np.array(asked).T
    jobs = encoding.pack(Range(2), offset=offsets, n_beats=lengths, region=numbers)
    cocotb.start_soon(drive(Stream(dut, "ranges"), jobs, rng, 1 - share))
    got, _ = await with_timeout(
        collect(Stream(dut, "beats"), rng, 1 - share, n_beats=len(wanted)), 1000, "us"
    )
    np.testing.assert_array_equal(got, wanted)
    await rests(Stream(dut, "beats"), 50)
    assert pulses == {"refused": n_refused, "failed": 0}
    check_bursts(bursts, n, (SECOND, BASE))


@cocotb.test()
async def read_rate(dut):
    """A long range, and packets of 22 beats that start anywhere, leave without a gap."""
    rng = np.random.default_rng(1)
    n = options()["n_bytes"]
    register(dut, n)
    await reset(dut, inputs=["ranges"], outputs=["beats"])
    memory(dut, AxiRamRead, AxiReadBus, 0, rng)
    asked = [(0, SIZE)] + [(22 * k % (SIZE - 22), 22) for k in range(30)]
    offsets, lengths = np.array(asked).T
    jobs = encoding.pack(Range(2), offset=offsets, n_beats=lengths, region=1)
    cocotb.start_soon(drive(Stream(dut, "ranges"), jobs, rng))
    total = int(lengths.sum())
    _, taken = await with_timeout(collect(Stream(dut, "beats"), rng, n_beats=total), 1000, "us")
    gaps = np.diff(taken) - 1
    assert not gaps[1:].any()
    assert gaps[0] <= 1  # the first burst is a single beat, and the next 2 cycles behind it


@cocotb.test()
@cocotb.parametrize(share=[0, 0.4])
async def write_ranges(dut, share):
    rng = np.random.default_rng(cocotb.RANDOM_SEED)
    n = options()["n_bytes"]
    register(dut, n)
    await reset(dut, inputs=["ranges", "beats"])
    ram = memory(dut, AxiRamWrite, AxiWriteBus, share, rng)
    before = rng.integers(0, 256, 2**16, dtype=np.uint8)
    ram.write(0, before.tobytes())
    bursts, pulses = [], {}
    cocotb.start_soon(watch(dut, "aw", n, bursts, pulses, ["done", "stored", "refused"]))
    asked = [*ranges(rng, 30, 60), (SIZE, 3), (SIZE - 1, 2), *ranges(rng, 10, 60)]
    wanted = before.copy()
    region = wanted[BASE : BASE + SIZE * n].reshape(SIZE, n)
    beats = {"data": [], "keep": []}
    for offset, length in asked:
        data = rng.integers(0, 256, (length, n), dtype=np.uint8)
        keep = np.ones((length, n), bool)
        if length:
            keep[-1, rng.integers(1, n + 1) :] = False
        if offset + length <= SIZE:
            region[offset : offset + length][keep] = data[keep]
        beats["data"].append(data)
        beats["keep"].append(np.packbits(keep, axis=1, bitorder="little"))
    beats = encoding.pack(
        WriteEngine(n).beat, **{name: np.concatenate(rows) for name, rows in beats.items()}
    )
    offsets, lengths = np.array(asked).T
    jobs = encoding.pack(Range(), offset=offsets, n_beats=lengths)
    cocotb.start_soon(drive(Stream(dut, "ranges"), jobs, rng, 1 - share))
    taken = await with_timeout(drive(Stream(dut, "beats"), beats, rng, 1 - share), 1000, "us")
    await ClockCycles(dut.clk, 200)
    assert ram.read(0, 2**16) == wanted.tobytes()
    n_done = int((lengths > 0).sum())
    assert pulses == {"done": n_done, "stored": n_done - 2, "refused": 2}
    check_bursts(bursts, n, (BASE,))
    if not share:
        gaps = np.diff(taken[: 1 + SIZE]) - 1  # the first burst is a single beat, then all of it
        assert not gaps.any()


@cocotb.test()
async def addresses_wait_for_beats(dut):
    """No address leaves before all beats of its burst are in the engine."""
    rng = np.random.default_rng(cocotb.RANDOM_SEED)
    n = options()["n_bytes"]
    register(dut, n)
    await reset(dut, inputs=["ranges", "beats"])
    memory(dut, AxiRamWrite, AxiWriteBus, 0.2, rng)
    came, promised, early = 0, 0, []

    async def look():
        nonlocal came, promised
        while True:
            await FallingEdge(dut.clk)
            if dut.port__awvalid.value and dut.port__awready.value:
                promised += int(dut.port__awlen.value) + 1
                if promised > came:
                    early.append((promised, came))
            came += bool(dut.beats__valid.value and dut.beats__ready.value)
            await RisingEdge(dut.clk)

    cocotb.start_soon(look())
    lengths = np.array([1, 16, 17, 40, 3, 33, *rng.integers(1, 50, 40)])
    jobs = encoding.pack(Range(), offset=rng.integers(0, SIZE - 50, len(lengths)), n_beats=lengths)
    total = int(lengths.sum())
    data = rng.integers(0, 256, (total, n), dtype=np.uint8)
    keep = np.full((total, n // 8), 255, np.uint8)
    beats = encoding.pack(WriteEngine(n).beat, data=data, keep=keep)
    cocotb.start_soon(drive(Stream(dut, "ranges"), jobs, rng))  # all of them ahead of their beats
    await with_timeout(drive(Stream(dut, "beats"), beats, rng, 0.3), 1000, "us")
    await ClockCycles(dut.clk, 200)
    assert promised == came == total
    assert not early


@pytest.mark.filterwarnings("ignore::DeprecationWarning:cocotbext")
@pytest.mark.parametrize("n_bytes", [16, 64])
def test_reads(n_bytes):
    data = np.random.default_rng(n_bytes).integers(0, 256, 2**16, dtype=np.uint8)
    simulate(
        ReadEngine(n_bytes, n_regions=2),
        __file__,
        tests=["read_ranges", "read_rate"],
        data={"data": data},
        options={"n_bytes": n_bytes, "n_regions": 2},
    )


@pytest.mark.filterwarnings("ignore::DeprecationWarning:cocotbext")
@pytest.mark.parametrize("n_bytes", [16, 64])
def test_writes(n_bytes):
    options = {"n_bytes": n_bytes, "n_regions": 1}
    tests = ["write_ranges", "addresses_wait_for_beats"]
    simulate(WriteEngine(n_bytes), __file__, tests=tests, options=options)


@pytest.mark.parametrize("name", [None, "head", "tail"])
@pytest.mark.parametrize("queue", ["store", "to_send", "awaited"])
def test_a_range_whose_beats_are_not_where_they_should_be_is_not_stored(queue, name):
    """Queues of bursts stand still, so that later ranges are not done either."""
    engine = WriteEngine(16)

    async def answers(ctx, part):
        """A memory that takes all, and answers in the cycle behind the last beat of a burst."""
        ctx.set(part.port.awready, 1)
        ctx.set(part.port.wready, 1)
        while True:
            last = ctx.get(part.port.wvalid & part.port.wlast)
            await ctx.tick()
            ctx.set(part.port.bvalid, last)

    async def bench(ctx, part):
        ctx.set(part.regions[0].n_beats, SIZE)
        told, sent = [], 0
        for cycle in range(150):
            ctx.set(part.ranges.valid, cycle in (20, 50, 90))
            ctx.set(part.ranges.p.n_beats, 16)
            ctx.set(part.beats.valid, sent < 48 and cycle // 50 >= sent // 16)
            if cycle == 60 and name:  # of the second range, some have left
                pointer = getattr(getattr(part, queue), name)
                ctx.set(pointer, ctx.get(pointer) ^ 4)
            sent += ctx.get(part.beats.valid & part.beats.ready)
            if ctx.get(part.done):
                told.append(ctx.get(part.stored))
            await ctx.tick()
        wrong = [1, 0, 0] if queue == "store" else [1]
        assert told == (wrong if name else [1, 1, 1])

    amaranth_run.simulate(engine, partial(bench, part=engine), partial(answers, part=engine))


@pytest.mark.parametrize("name", [None, "busy", "offered", "left", "enters", "leaves"])
@pytest.mark.parametrize("waits", [False, True])
def test_a_splitter_that_does_not_know_its_range_any_more_sends_no_burst(name, waits):
    """A register changes between two ranges, or in one whose burst waits."""
    engine = ReadEngine(16)

    async def bench(ctx, part):
        ctx.set(part.regions[0].n_beats, SIZE)
        ctx.set(part.beats.ready, 1)
        asked, told = [], 0
        for cycle in range(120):
            ctx.set(part.ranges.valid, cycle in (20, 60))
            ctx.set(part.ranges.p.n_beats, 40)
            # the second burst waits, or the engine is idle
            ctx.set(part.port.arready, cycle > 50 or not waits)
            if cycle == 48 and name:
                register = getattr(part.splitter, name)
                ctx.set(register, ctx.get(register) ^ 1)
                asked.append("changed")
            if ctx.get(part.port.arvalid & part.port.arready):
                asked.append(ctx.get(part.port.araddr))
            told += ctx.get(part.failed)
            await ctx.tick()
        whole = [0, 256, 512]
        if name is None:
            assert (told, asked) == (0, [*whole, *whole])
        elif name == "left" and not waits:
            assert (told, asked) == (0, [*whole, "changed", *whole])  # no range knows it
        else:
            assert told == 1
            assert len(asked) <= 4, asked

    amaranth_run.simulate(engine, partial(bench, part=engine))


@pytest.mark.parametrize(("at", "stored"), [(None, [1, 1, 1]), (14, [0, 0, 0]), (30, [1, 0, 0])])
def test_a_range_with_a_beat_more_or_less_is_not_stored(at, stored):
    """at : beat whose `last` is another one."""
    engine = WriteEngine(16, ends=True)

    async def bench(ctx, part):
        ctx.set(part.regions[0].n_beats, SIZE)
        ctx.set(part.port.awready, 1)
        ctx.set(part.port.wready, 1)
        told, sent, last = [], 0, 0
        for cycle in range(150):
            ctx.set(part.ranges.valid, cycle in (20, 50, 90))
            ctx.set(part.ranges.p.n_beats, 16)
            ctx.set(part.beats.valid, sent < 48)
            ctx.set(part.beats.p.last, (sent % 16 == 15) ^ (sent == at))
            ctx.set(part.port.bvalid, last)
            sent += ctx.get(part.beats.valid & part.beats.ready)
            last = ctx.get(part.port.wvalid & part.port.wlast)
            if ctx.get(part.done):
                told.append(ctx.get(part.stored))
            await ctx.tick()
        assert told == stored

    amaranth_run.simulate(engine, partial(bench, part=engine))


def test_a_reader_whose_store_stops_has_failed_once():
    engine = ReadEngine(16)

    async def bench(ctx, part):
        told = 0
        for cycle in range(60):
            if cycle == 20:
                ctx.set(part.store.issued, 1)
            told += ctx.get(part.failed)
            await ctx.tick()
        assert told == 1

    amaranth_run.simulate(engine, partial(bench, part=engine))


def test_parameters_are_checked():
    with pytest.raises(ValueError, match="from 2 to 64, not 128"):
        ReadEngine(64, burst_beats=128, store_beats=512)
    with pytest.raises(ValueError, match="at least 64, not 32"):
        ReadEngine(64, store_beats=32)
    with pytest.raises(ValueError, match="from 4 to 128, not 3"):
        WriteEngine(3)
