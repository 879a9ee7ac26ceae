"""Passes of THC jobs against golden workers: all that they read, write and tell, and their rate.

`test_pass` plays each beside a memory in the batch engine: both types, with and without residuals,
pauses, errors. `test_pass_over_axi`, minutes and slow, puts cocotbext-axi's memories, which hold
AXI's rules, in its place; in the quick tests the proofs of ports hold those
(``tests/proof/test_port_proofs.py``). Whole jobs are in ``test_thc_cluster.py``.
"""

import logging

import cocotb
import numpy as np
import pytest
from amaranth.hdl import Module, Value
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out
from cocotb.triggers import ClockCycles, RisingEdge
from cocotbext.axi import AxiRamRead, AxiRamWrite, AxiReadBus, AxiWriteBus
from gradnic.hdl.offload.thc_encode_pass import EncodePass
from gradnic.hdl.offload.thc_memory import BlockReader, BurstWriter, Pad
from gradnic.hdl.offload.thc_pass import PassJob, ThcCell, ThcRules, in_half_beats
from gradnic.models.thc import Worker
from gradnic.sim.engine import amaranth_run, batch
from gradnic.sim.engine.drivers import given, options, reset
from gradnic.sim.engine.runner import simulate
from gradnic.sim.mutation import passes
from gradnic.sim.offload.pass_stand import KINDS, PLACES, SIZE, WIDTH, WRITES, Turn, constant


@pytest.mark.parametrize("n_bytes", [16, 8])
@pytest.mark.parametrize("kind", KINDS)
def test_pass(kind, n_bytes):
    passes.play(batch.build(passes.component(kind, n_bytes)), kind, n_bytes)


class Halved(wiring.Component):
    """`in_half_beats` of a card's job, a cycle later."""

    wide: In(PassJob(16, WIDTH))
    narrow: Out(PassJob(8, WIDTH))

    def elaborate(self, platform):
        m = Module()
        m.d.sync += in_half_beats(self.narrow, self.wide)
        return m


def test_a_job_in_half_beats_is_the_same_job():
    """Of every length: each pass asks for as many elements, at the same places."""
    part, n = Halved(), 2000
    x = np.zeros(3, np.float32)

    async def bench(ctx):
        for size in range(1, n):
            turn.x = np.broadcast_to(x[:1], size)
            ctx.set(part.wide, turn.job(16))
            await ctx.tick()
            want = constant(PassJob(8, WIDTH), **turn.job(8))
            assert ctx.get(part.narrow.as_value()) == want, size

    turn = Turn(Worker(3, 4, B=64), x, x)
    amaranth_run.simulate(part, bench)


@pytest.mark.parametrize("name", ["head", "tail"])
@pytest.mark.parametrize("bit", [0, 1])
def test_a_writer_whose_queue_of_ranges_changes_writes_nothing_wrong(name, bit):
    part = BurstWriter(16, 32)
    n_beats = 160

    async def bench(ctx):
        pointer, port = getattr(part.ranges, name), part.port
        beats, bursts, memory = 0, [], {}
        ctx.set(part.region, {"first": 0x40, "n_beats": n_beats})
        for name_ in ("awready", "wready"):
            ctx.set(getattr(port, name_), 1)
        for cycle in range(400):
            ctx.set(part.i.valid, 1)
            ctx.set(part.i.payload, beats)
            if cycle == 70:
                ctx.set(pointer, ctx.get(pointer) ^ 1 << bit)
            if ctx.get(port.awvalid):
                first = ctx.get(port.awaddr) // 16
                bursts += range(first, first + ctx.get(port.awlen) + 1)
            if ctx.get(port.wvalid):
                memory[bursts.pop(0)] = ctx.get(port.wdata)
            taken = ctx.get(part.i.ready)
            await ctx.tick()
            beats += taken
        assert 16 <= len(memory) < n_beats
        assert memory == {0x40 + beat: beat for beat in range(len(memory))}
        assert not ctx.get(part.done)

    amaranth_run.simulate(part, bench)


def _left(part, ports, queue, name, bit, at, settings, n_cycles):
    """What leaves a part that reads memory: {port: values in order}. Memory has its own addresses
    as floats near 1. In cycle `at`, if any, a bit of the register `name` of `queue` changes.
    """
    *reads, outs = ports
    left, answers = {out: [] for out in outs}, dict.fromkeys(outs, 0)

    async def bench(ctx):
        bursts = {port: [] for port in reads}
        for field, value in settings.items():
            ctx.set(getattr(part, field), value)
        ctx.set(part.start, 1)
        for cycle in range(n_cycles):
            if cycle == at:
                register = getattr(getattr(part, queue), name)
                ctx.set(register, ctx.get(register) ^ 1 << bit)
            for name_, beats in bursts.items():
                port = getattr(part, name_)
                ctx.set(port.arready, 1)
                ctx.set(port.rvalid, bool(beats))
                if beats:
                    words = (0x3F800000 + 4 * beats[0][0] + lane for lane in range(4))
                    ctx.set(port.rdata, sum(word << 32 * lane for lane, word in enumerate(words)))
                    ctx.set(port.rlast, beats[0][1])
                if ctx.get(port.rvalid) and ctx.get(port.rready):
                    beats.pop(0)
                if ctx.get(port.arvalid):
                    first, less_1 = ctx.get(port.araddr) // 16, ctx.get(port.arlen)
                    beats += [(first + k, k == less_1) for k in range(less_1 + 1)]
            for out, got in left.items():
                port = getattr(part, out)
                if out.endswith("write"):
                    ctx.set(port.awready, 1)
                    ctx.set(port.wready, 1)
                    ctx.set(port.bvalid, answers[out] > 0)
                    if ctx.get(port.wvalid):
                        got.append(ctx.get(port.wdata))
                    ended = ctx.get(port.wvalid) and ctx.get(port.wlast)
                    answers[out] += ended - (answers[out] > 0 and ctx.get(port.bready))
                else:
                    ctx.set(port.ready, cycle % 3 > 0)
                    if ctx.get(port.valid) and ctx.get(port.ready):
                        got.append(ctx.get(Value.cast(port.payload)))
            await ctx.tick()

    amaranth_run.simulate(part, bench)
    return left


def _stops(make, ports, queue, name, bit, at, settings, n_cycles):
    """What leaves is right up to a bit that changes, and soon ends."""
    whole = _left(make(), ports, queue, name, bit, None, settings, n_cycles)
    left = _left(make(), ports, queue, name, bit, at, settings, n_cycles)
    for out, values in left.items():
        assert values == whole[out][: len(values)], out
    assert any(len(left[out]) < len(whole[out]) for out in left)


@pytest.mark.parametrize("queue", ["kinds", "words"])
@pytest.mark.parametrize("name", ["head", "tail"])
@pytest.mark.parametrize("bit", [0, 1])
def test_a_reader_whose_queues_change_gives_nothing_wrong(queue, name, bit):
    settings = {
        "log4": 0,
        "n_blocks": 32,
        "n_beats": 512,
        "halves": 0,
        "regions": [{"first": 0x40, "n_beats": 8}, {"first": 0x80, "n_beats": 512}],
    }
    ports = "port", ("norms", "beats")
    _stops(lambda: BlockReader(16, 32), ports, queue, name, bit, 340, settings, 900)


@pytest.mark.parametrize("queue", ["norm_queue", "kept"])
def test_a_residual_whose_queues_change_is_not_written_wrongly(queue):
    job = {"source": 0x100, "norms": 0x40, "n_beats": 512, "n_blocks": 32, "feedback": 1}
    job |= {"own_norms": 0x60, "indices": 0x400, "residual": 0x800, "kept": 0xC00, "seed": 3}
    rules = {"log4": 0, "t_fixed": 300, "unit": 1 << 22, "g": 30, "middle": 15}
    settings = {"job": job, "rules": rules | {"own_scale": 0x3C000000, "bits": 4}}
    ports = "read", "residual_read", ("write", "residual_write")

    def make():
        return EncodePass(16, 32, block=64, feedback=True)

    _stops(make, ports, queue, "tail", 0, 400, settings, 800)


def pauses(rng, share):
    while True:
        yield bool(rng.random() < share)


def memories(dut, share, rng):
    """The sides of the pass's memory by name; their channels pause with a share of cycles."""
    rams = {}
    for kind, bus, prefix in (
        (AxiRamRead, AxiReadBus, "read"),
        (AxiRamWrite, AxiWriteBus, "write"),
        (AxiRamRead, AxiReadBus, "residual_read"),
        (AxiRamWrite, AxiWriteBus, "residual_write"),
    ):
        if not hasattr(dut, f"{prefix}__{'arvalid' if kind is AxiRamRead else 'awvalid'}"):
            continue
        ram = kind(bus.from_prefix(dut, prefix, bus_separator="__"), dut.clk, dut.rst, size=SIZE)
        ram.log.setLevel(logging.WARNING)
        for name in ("ar_channel", "r_channel", "aw_channel", "w_channel", "b_channel"):
            if share and hasattr(ram, name):
                getattr(ram, name).set_pause_generator(pauses(rng, share))
        rams[prefix] = ram
    return rams


async def load(dut, turn):
    """Settings, and the quantizers' table."""
    dut.rules.value = constant(ThcRules, **turn.rules())
    if not hasattr(dut, "cell"):
        return
    dut.node.value = turn.node
    for cell in turn.cells():
        dut.cell.value = constant(ThcCell, **cell)
        await RisingEdge(dut.clk)
    dut.cell.value = 0


async def play(dut, rams, kind, n_bytes, turn):
    """Run one pass; its cycles, once memory has what it must."""
    rng = np.random.default_rng(cocotb.RANDOM_SEED)
    wanted = turn.images
    for name in ("start", "job", "rules", "node", "cell"):
        if hasattr(dut, name):
            getattr(dut, name).value = 0
    reads, writes = rams["read"], rams["write"]
    for name, place in PLACES.items():
        reads.write(place, wanted[name])
    before = rng.integers(0, 256, SIZE, dtype=np.uint8).tobytes()
    writes.write(0, before)
    if turn.carried is not None:
        rams["residual_read"].write(PLACES["residual"], wanted["residual"])
    if "residual_write" in rams:
        rams["residual_write"].write(0, before)
    await reset(dut)
    await load(dut, turn)
    dut.job.value = constant(PassJob(n_bytes, 64), **turn.job(n_bytes))
    dut.start.value = 1
    cycles, checks = 0, {}
    while not dut.done.value:
        await RisingEdge(dut.clk)
        cycles += 1
        assert not dut.failed.value
        assert cycles < 40_000
        if kind == "encode" and (check := int(dut.check.value)) & 1:
            checks[check >> 1 & 0xFFFF] = check >> 17
    await ClockCycles(dut.clk, 50)
    name = WRITES[kind]
    found = bytearray(writes.read(0, SIZE))
    place, size = PLACES[name], len(wanted[name])
    assert found[place : place + size] == wanted[name]
    spare = -size % n_bytes if kind == "norm" else 0  # norms end with their beat
    found[place : place + size + spare] = before[place : place + size + spare]
    assert bytes(found) == before
    if "residual_write" in rams:
        place, size = PLACES["kept"], len(wanted["kept"])
        found = bytearray(rams["residual_write"].read(0, SIZE))
        assert found[place : place + size] == wanted["kept"]
        found[place : place + size] = before[place : place + size]
        assert bytes(found) == before
    if kind == "encode":
        assert checks == dict(enumerate(turn.checks().tolist()))
    return cycles


@cocotb.test()
@cocotb.parametrize(share=[0, 0.4])
async def memory_as_golden(dut, share):
    worker = Worker(3, 77, sign_round=9, B=options()["block"])
    n = options()["n_bytes"]
    rams = memories(dut, share, np.random.default_rng(cocotb.RANDOM_SEED))
    carried = given()["carried"]
    for turn, size in enumerate((1, 1000, 2048, 2500)):
        x, more = given()["x"][:size], carried[:size] if options()["feedback"] and turn else None
        cycles = await play(dut, rams, options()["kind"], n, Turn(worker, x, more, turn % 2))
        dut.start.value = 0
    if not share:
        beats = 4 * 1024 * -(-size // 1024) // n  # fixed: keys, blocks on their way, answers
        more = 4 * worker.B * 4 // n + 100 if options()["feedback"] else 0
        assert cycles < beats + 2 * worker.B * 4 // n + 400 + more


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::DeprecationWarning:cocotbext")
@pytest.mark.parametrize("kind", KINDS)
def test_pass_over_axi(kind):
    x, carried = passes.values()
    n_bytes, block, feedback = 16, 64, kind != "decode"
    more = {"feedback": True} if feedback else {}
    simulate(
        KINDS[kind](n_bytes, 64, block=block, bf16=True, **more), __file__,
        tests=["memory_as_golden"], simulator="verilator", data={"x": x, "carried": carried},
        options={"n_bytes": n_bytes, "kind": kind, "block": block, "feedback": feedback},
    )  # fmt: skip


@pytest.mark.parametrize("stall", [1, 5])
def test_what_comes_behind_a_gradient_does_not_stay_in_memory(stall):
    """Of BF16 that is half a beat of memory, whose port never came to rest."""
    pad, out, taken = Pad(4, width=8), [], []

    async def feed(ctx):
        ctx.set(pad.n_beats, 3)
        ctx.set(pad.tail, 2)
        await ctx.tick().repeat(2)
        for k in range(4):
            ctx.set(pad.i.p.data, int.from_bytes(bytes([k + 1] * 16), "little"))
            ctx.set(pad.i.valid, 1)
            await ctx.tick().until(pad.i.ready)
            taken.append(k)
        ctx.set(pad.i.valid, 0)

    async def drain(ctx):
        await ctx.tick().repeat(stall)
        ctx.set(pad.o.ready, 1)
        while len(out) < 6:
            *_, word = await ctx.tick().sample(pad.o.payload).until(pad.o.valid)
            out.append(word.to_bytes(16, "little"))

    amaranth_run.simulate(pad, drain, feed)
    assert taken == [0, 1, 2, 3]
    assert out == [bytes([1] * 16), bytes([2] * 16), bytes([3] * 8 + [0] * 8), *[bytes(16)] * 3]
