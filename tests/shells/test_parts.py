"""The parts that the shells share, alone: sizer, register windows, crossings, reset handshake.

Parts with two clocks run in Amaranth's simulator, which takes any number of them.
"""

from functools import cache, partial

import numpy as np
import pytest
from amaranth.hdl import Module, Signal
from amaranth.lib import data, stream, wiring
from amaranth.lib.wiring import In, Out
from amaranth.sim import Simulator
from gradnic.hdl.axi.axis import Lite
from gradnic.hdl.axi.register_bank import RegisterBank
from gradnic.hdl.shells.common.crossing import Crossing
from gradnic.hdl.shells.common.fan import LiteFan, side_by_side
from gradnic.hdl.shells.common.tap_registers import PulseCrossing, TapRegisters
from gradnic.hdl.shells.corundum.completions import Completions
from gradnic.hdl.shells.opennic.resets import ResetHandshake
from gradnic.hdl.shells.opennic.sizer import Sizer
from gradnic.sim.engine import batch, encoding, stimulus
from gradnic.sim.engine.amaranth_run import lite_read, simulate

from gradnic.interface import inline, tap

N_BYTES = 4
DEPTH = 16  # beats


def rng_for(*key):
    return np.random.default_rng([stimulus.master_seed(), *key])


def some_frames(rng, n, longest):
    return [rng.bytes(int(rng.integers(1, longest * N_BYTES + 1))) for _ in range(n)]


@cache
def sizer():
    return batch.build(Sizer(N_BYTES, DEPTH, meta_width=8))


def frames_of(model, run):
    """[(bytes, {field: its values over the frame})] of all frames that left."""
    fields = run.unpack("o")
    frames = encoding.unpack_frames(model.streams["o"].shape, run.outputs["o"])
    parts = np.split(np.arange(len(fields["last"])), np.flatnonzero(fields["last"]) + 1)
    return [
        (f, {k: v[part] for k, v in fields.items()})
        for f, part in zip(frames, parts[:-1], strict=True)
    ]


def test_sizes_come_with_the_first_beat():
    rng, model = rng_for(3), sizer()
    frames = [*some_frames(rng, 80, DEPTH), *some_frames(rng, 40, 1)]
    frames += [rng.bytes(DEPTH * N_BYTES), rng.bytes(DEPTH * N_BYTES + 1), rng.bytes(1)]
    bad = rng.random(len(frames)) < 0.3
    bad[-1] = False
    meta = np.arange(len(frames)) & 255
    kept = [k for k, f in enumerate(frames) if not bad[k] and len(f) <= DEPTH * N_BYTES]
    for duty in (1, 0.4):
        i = model.pack_frames("i", frames, meta=meta, at_last={"bad": bad})
        run = model.run({"i": i}, stalls={"i": duty, "o": duty}, trace=["dropped"])
        back = frames_of(model, run)
        assert [f for f, _ in back] == [frames[k] for k in kept]
        for k, (frame, side) in zip(kept, back, strict=True):
            assert set(side["size"]) == {len(frame)}
            assert set(side["meta"]) == {meta[k]}
        assert int(np.sum(run.traces["dropped"])) == len(frames) - len(kept)


@pytest.mark.parametrize(
    ("windows", "said"),
    [
        ([], "windows must be at least one, not none"),
        ([(0, 8), (0x10000, 8)], "within 65536 bytes, not 256 bytes at 0x10000"),
        ([(0, 8), (0x80, 7)], "must be apart, .* not 128 bytes at 0x80"),
        ([(0x100, 12)], "at multiples of their sizes .* not 4096 bytes at 0x100"),
    ],
)
def test_windows_that_do_not_fit(windows, said):
    with pytest.raises(ValueError, match=said):
        LiteFan(windows)


def test_windows_side_by_side():
    assert side_by_side(3, 8) == [(0, 8), (0x1000, 8), (0x2000, 8)]
    with pytest.raises(ValueError, match="inner_width must be at most 12, not 13"):
        side_by_side(1, 13)


@pytest.mark.parametrize(("i_ns", "o_ns"), [(3.1, 10.0), (10.0, 3.1), (4.0, 4.0)])
@pytest.mark.parametrize("duty", [1.0, 0.4])
def test_crossing_keeps_every_beat(i_ns, o_ns, duty):
    rng, beats, seen = rng_for(4), list(range(1, 200)), []
    crossing = Crossing(16, i_domain="one", o_domain="other")
    simulator = Simulator(crossing)
    simulator.add_clock(i_ns * 1e-9, domain="one")
    simulator.add_clock(o_ns * 1e-9, domain="other")

    async def drive(ctx):
        for beat in beats:
            while rng.random() > duty:
                await ctx.tick("one")
            ctx.set(crossing.i.payload, beat)
            ctx.set(crossing.i.valid, 1)
            await ctx.tick("one").until(crossing.i.ready)
            ctx.set(crossing.i.valid, 0)

    async def collect(ctx):
        while len(seen) < len(beats):
            ctx.set(crossing.o.ready, int(rng.random() <= duty))
            _, _, valid, ready, beat = await ctx.tick("other").sample(
                crossing.o.valid, crossing.o.ready, crossing.o.payload
            )
            if valid and ready:
                seen.append(beat)

    simulator.add_testbench(drive)
    simulator.add_testbench(collect)
    simulator.run()
    assert seen == beats


@pytest.mark.parametrize(("i_ns", "o_ns"), [(3.1, 10.0), (10.0, 3.1)])
def test_no_pulse_is_lost_between_clocks(i_ns, o_ns):
    rng, m = rng_for(5), Module()
    m.submodules.pulses = pulses = PulseCrossing(i_domain="one", o_domain="other")
    total = Signal(16)
    m.d.other += total.eq(total + pulses.o)
    simulator = Simulator(m)
    simulator.add_clock(i_ns * 1e-9, domain="one")
    simulator.add_clock(o_ns * 1e-9, domain="other")
    given = [int(rng.random() < duty) for duty in (1.0, 0.9, 0.1) for _ in range(500)]

    async def drive(ctx):
        for pulse in given:
            ctx.set(pulses.i, pulse)
            await ctx.tick("one")
        ctx.set(pulses.i, 0)
        await ctx.tick("other").repeat(60)
        assert ctx.get(total) == sum(given)

    simulator.add_testbench(drive)
    simulator.run()


class CardRegisters(wiring.Component):
    """A card's bank behind `TapRegisters`."""

    def __init__(self):
        super().__init__({"bus": In(Lite(tap.WINDOW_BITS)), "lost": In(8)})

    def elaborate(self, platform):
        m = Module()
        m.submodules.bank = bank = RegisterBank(inline.REGISTERS)
        m.submodules.tap = registers = TapRegisters(inline.REGISTERS.address_width)
        wiring.connect(m, wiring.flipped(self.bus), registers.bus)
        wiring.connect(m, registers.card, bank.bus)
        m.d.comb += registers.lost.eq(self.lost)
        return m


def test_tap_counts_beside_the_card():
    top = CardRegisters()
    simulator = Simulator(top)
    simulator.add_clock(1e-8)

    async def bench(ctx):
        read = partial(lite_read, ctx, top.bus)
        ctx.set(top.lost, 3)
        await ctx.tick().repeat(5)
        ctx.set(top.lost, 0)
        await ctx.tick().repeat(5)
        mark = sum(f.reset << f.lsb for f in inline.REGISTERS["mark"].fields)
        assert await read(inline.REGISTERS["mark"].offset) == mark
        assert await read(tap.OFFSET + tap.REGISTERS["lost"].offset) == 15
        for nothing in (0x100, 0x7FC, tap.OFFSET + 4, 0xFFC):
            assert await read(nothing) == 0

    simulator.add_testbench(bench)
    simulator.run()


class Taking(wiring.Component):
    """A card that takes the frames whose tags it is given, at each of two ports."""

    def __init__(self):
        told = stream.Signature(data.StructLayout({"meta": 16}))
        super().__init__({"tags0": In(told), "tags1": In(told), "taken": Out(told).array(2)})

    def elaborate(self, platform):
        m = Module()
        wiring.connect(m, wiring.flipped(self.tags0), wiring.flipped(self.taken[0]))
        wiring.connect(m, wiring.flipped(self.tags1), wiring.flipped(self.taken[1]))
        return m


@pytest.mark.parametrize("duties", [(1.0, 1.0, 1.0), (1.0, 1.0, 0.3), (0.2, 0.6, 0.9)])
def test_completions_come_once_each(duties):
    """Those of frames that the card took, and those of the MAC with their stamps, each in order
    and at its port.
    """
    rng, seen = rng_for(6), ([], [])
    top = Completions(Taking(), 2, 96)
    ends = (top.tags0, top.mac_cpl[0], top.tags1, top.mac_cpl[1])
    outs = top.host_cpl
    given = [
        words for port in range(2) for words in (
            [{"meta": 0x8000 + 256 * port + k} for k in range(60)],
            [{"tag": 0x4000 + 256 * port + k, "stamp": (k + 1) << 90 | port} for k in range(60)],
        )
    ]  # fmt: skip

    def drive(i, words, duty):
        async def bench(ctx):
            for word in words:
                while rng.random() > duty:
                    await ctx.tick()
                ctx.set(i.p, word)
                ctx.set(i.valid, 1)
                await ctx.tick().until(i.ready)
                ctx.set(i.valid, 0)

        return bench

    async def collect(ctx):
        waits = [None, None]
        for _ in range(1000):
            for o in outs:
                ctx.set(o.ready, int(rng.random() <= duties[2]))
            wires = [w for o in outs for w in (o.valid, o.ready, o.p.tag, o.p.stamp)]
            values = (await ctx.tick().sample(*wires))[2:]
            for port in range(2):
                valid, ready, tag, stamp = values[4 * port : 4 * port + 4]
                assert waits[port] in (None, (valid, tag, stamp))  # an offer stands
                waits[port] = (valid, tag, stamp) if valid and not ready else None
                if valid and ready:
                    seen[port].append((tag, stamp))

    senders = [drive(*one) for one in zip(ends, given, 2 * duties[:2], strict=True)]
    simulate(top, collect, *senders)
    for port, (tags, words) in enumerate((given[:2], given[2:])):
        taken, sent = ([one for one in seen[port] if bool(one[0] & 0x8000) == own]
                       for own in (True, False))  # fmt: skip
        assert taken == [(word["meta"], 0) for word in tags]
        assert sent == [(word["tag"], word["stamp"]) for word in words]


def test_reset_is_held_and_then_done():
    model = batch.build(ResetHandshake(5))
    rstn = [1, 1, 1, 0, 0, *[1] * 12]
    run = model.run(
        signals={"rstn": np.array(rstn)}, trace=["reset", "done"], drain=False, max_cycles=20
    )
    reset, done = np.asarray(run.traces["reset"]), np.asarray(run.traces["done"])
    held = np.flatnonzero(reset)
    assert len(held) == 2 + 5 - 1
    assert list(held) == list(range(held[0], held[-1] + 1))
    assert not done[: held[-1] + 1].any()
    assert done[held[-1] + 1 :].all()
