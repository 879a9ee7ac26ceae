# amaranth: UnusedElaboratable=no
# (a component that refuses its parameters is never used)
"""AXI4-Stream adapters against cocotbext-axi: whole frames, stalls, broken keeps, cuts, resets."""

import logging

import cocotb
import numpy as np
import pytest
from amaranth.hdl import Module
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out
from cocotb.clock import Clock
from cocotb.triggers import ClockCycles, FallingEdge, RisingEdge
from cocotbext.axi import AxiStreamBus, AxiStreamFrame, AxiStreamSink, AxiStreamSource
from gradnic.hdl.axi.axis import Axis, AxisReceiver, AxisSender, Lite
from gradnic.sim.engine.runner import simulate

MAX_BEATS = 24


class FrameEdge(wiring.Component):
    """A receiver and a sender back to back."""

    def __init__(self, n_bytes, meta_width):
        self.n_bytes, self.meta_width = n_bytes, meta_width
        axis = Axis(n_bytes, user_width=1 + meta_width)
        super().__init__({"s": In(axis), "m": Out(axis)})

    def elaborate(self, platform):
        m = Module()
        m.submodules.receiver = receiver = AxisReceiver(self.n_bytes, meta_width=self.meta_width)
        m.submodules.sender = sender = AxisSender(self.n_bytes, meta_width=self.meta_width)
        wiring.connect(m, wiring.flipped(self.s), receiver.axis)
        wiring.connect(m, receiver.o, sender.i)
        wiring.connect(m, sender.axis, wiring.flipped(self.m))
        return m


def expected(beats, n_bytes):
    """(kept octets, user of every beat) that must come out for the beats (octets, keep, user)."""
    octets, users, broken = bytearray(), [], False
    for i, (data, keep, user) in enumerate(beats):
        last = i == len(beats) - 1
        kept = n_bytes
        if last:
            kept = max([k + 1 for k in range(n_bytes) if keep[k]], default=1)
        broken |= list(keep) != [int(k < kept) for k in range(n_bytes)]
        octets += data[:kept]
        users.append(user & ~1 | int(last and (user & 1 or broken)))
    return bytes(octets), users


def sound_beats(rng, n_bytes, meta_width, length, bad):
    """Beats of a frame that keeps all rules."""
    meta = int(rng.integers(0, 1 << min(meta_width, 60))) << 1
    octets = rng.bytes(length)
    beats = []
    for start in range(0, length, n_bytes):
        part = octets[start : start + n_bytes]
        keep = [int(k < len(part)) for k in range(n_bytes)]
        last = start + n_bytes >= length
        beats.append((part.ljust(n_bytes, b"\xee"), keep, meta | (bad and last)))
    return beats


def broken_beats(rng, n_bytes, meta_width):
    """Beats of a frame with random keeps, so that most rules are broken sooner or later."""
    n_beats = int(rng.integers(1, 6))
    beats = []
    for _ in range(n_beats):
        shape = rng.integers(0, 4)
        keep = [np.ones, np.zeros, None, None][shape]
        keep = rng.integers(0, 2, n_bytes) if keep is None else keep(n_bytes, int)
        if shape == 3:
            keep = (np.arange(n_bytes) < rng.integers(0, n_bytes + 1)).astype(int)
        user = int(rng.integers(0, 1 << min(meta_width + 1, 60)))
        beats.append((rng.bytes(n_bytes), keep.tolist(), user))
    return beats


def to_frame(beats):
    """The beats as cocotbext-axi sends them: one entry per byte lane, kept or not."""
    n_bytes = len(beats[0][0])
    return AxiStreamFrame(
        b"".join(data for data, _, _ in beats),
        tkeep=[k for _, keep, _ in beats for k in keep],
        tuser=[user for _, _, user in beats for _ in range(n_bytes)],
    )


def from_frame(frame, n_bytes):
    """(kept octets, user of every beat) of a received frame; keep must be a prefix, then end."""
    keep = list(frame.tkeep)
    n_kept = sum(keep)
    assert keep == [1] * n_kept + [0] * (len(keep) - n_kept)
    assert len(keep) - n_kept < n_bytes
    users = list(frame.tuser)
    return bytes(frame.tdata[:n_kept]), users[::n_bytes]


def bus(dut, name):
    return AxiStreamBus.from_prefix(dut, name, bus_separator="__")


class Bench:
    """Clock, reset, source, sink, and a check that the handshake is known in every cycle."""

    def __init__(self, dut):
        self.dut = dut
        self.n_bytes = len(dut.s__tkeep)
        self.meta_width = len(dut.s__tuser) - 1
        self.rng = np.random.default_rng(cocotb.RANDOM_SEED)
        cocotb.start_soon(Clock(dut.clk, 10, "ns").start())
        self.source = AxiStreamSource(bus(dut, "s"), dut.clk, dut.rst)
        self.sink = AxiStreamSink(bus(dut, "m"), dut.clk, dut.rst)
        for port in (self.source, self.sink):
            port.log.setLevel(logging.WARNING)  # it prints every frame

    async def reset(self):
        self.dut.rst.value = 1
        await ClockCycles(self.dut.clk, 3)
        self.dut.rst.value = 0
        await RisingEdge(self.dut.clk)
        cocotb.start_soon(self._watch())

    async def _watch(self):
        """valid and ready are 0 or 1; an offer and its known payload stay until taken."""
        dut, offer = self.dut, None
        while True:
            await FallingEdge(dut.clk)
            if not dut.rst.value.is_resolvable or dut.rst.value:
                offer = None
                continue
            assert dut.s__tready.value.is_resolvable
            assert dut.m__tvalid.value.is_resolvable
            now = None
            if dut.m__tvalid.value:
                payload = (dut.m__tdata, dut.m__tkeep, dut.m__tlast, dut.m__tuser)
                now = tuple(str(part.value) for part in payload)
                assert all(part.value.is_resolvable for part in payload)
            if offer is not None:
                assert now == offer
            offer = now if now is not None and not dut.m__tready.value else None

    def stall(self, port, duty):
        if duty < 1:
            port.set_pause_generator(iter(lambda: self.rng.random() > duty, None))

    async def passes(self, frames):
        """Send the frames (lists of beats) and compare whole outputs, then find the sink empty."""
        for beats in frames:
            self.source.send_nowait(to_frame(beats))
        for beats in frames:
            got = from_frame(await self.sink.recv(compact=False), self.n_bytes)
            assert got == expected(beats, self.n_bytes)
        await ClockCycles(self.dut.clk, 2 * MAX_BEATS + 20)
        assert self.sink.empty()
        assert self.source.idle()


STALLS = {"source_duty": [1.0, 0.5], "sink_duty": [1.0, 0.3]}


@cocotb.test(timeout_time=200, timeout_unit="us")
@cocotb.parametrize(**STALLS)
async def sound_frames_pass_bit_for_bit(dut, source_duty, sink_duty):
    bench = Bench(dut)
    await bench.reset()
    bench.stall(bench.source, source_duty)
    bench.stall(bench.sink, sink_duty)
    n = bench.n_bytes
    lengths = [*range(1, 2 * n + 2), MAX_BEATS * n - 1, MAX_BEATS * n]
    lengths += bench.rng.integers(1, 8 * n, 20).tolist()
    frames = [
        sound_beats(bench.rng, n, bench.meta_width, length, bool(bench.rng.integers(0, 2)))
        for length in lengths
    ]
    await bench.passes(frames)


@cocotb.test(timeout_time=200, timeout_unit="us")
@cocotb.parametrize(**STALLS)
async def broken_frames_are_marked_and_harmless(dut, source_duty, sink_duty):
    bench = Bench(dut)
    await bench.reset()
    bench.stall(bench.source, source_duty)
    bench.stall(bench.sink, sink_duty)
    n, meta_width = bench.n_bytes, bench.meta_width
    nothing, everything = [0] * n, [1] * n
    tail = [1] + [0] * (n - 1)
    hole = [1, 0, 1, *([0] * n)][:n]
    raised = [0, *([1] * (n - 1))]
    corners = [[k] for k in (nothing, hole, raised)]
    corners += [[k, everything] for k in (nothing, tail, hole, raised)]
    corners += [[everything, nothing], [tail, nothing, tail]]
    frames = [[(bench.rng.bytes(n), keep, 0) for keep in keeps] for keeps in corners]
    frames += [broken_beats(bench.rng, n, meta_width) for _ in range(60)]
    for i in range(0, len(frames), 3):  # the next sound frame must come out whole
        frames.insert(i, sound_beats(bench.rng, n, meta_width, 3 * n - 1, bad=False))
    await bench.passes(frames)


@cocotb.test(timeout_time=200, timeout_unit="us")
async def one_beat_per_cycle(dut):
    """400 beats of frames of every length follow each other without a gap, 3 cycles later."""
    bench = Bench(dut)
    await bench.reset()
    taken, given = [], []

    async def watch():
        cycle = 0
        while True:
            await RisingEdge(dut.clk)
            cycle += 1
            if dut.s__tvalid.value and dut.s__tready.value:
                taken.append(cycle)
            if dut.m__tvalid.value and dut.m__tready.value:
                given.append(cycle)

    cocotb.start_soon(watch())
    n = bench.n_bytes
    n_beats = [*range(1, MAX_BEATS + 1), *([1] * 100)]
    await bench.passes([sound_beats(bench.rng, n, bench.meta_width, k * n, False) for k in n_beats])
    assert len(given) == sum(n_beats) == 400
    assert np.diff(taken).tolist() == [1] * 399
    assert [b - a for a, b in zip(taken, given, strict=True)] == [3] * 400


@cocotb.test(timeout_time=200, timeout_unit="us")
async def reset_in_mid_frame(dut):
    bench = Bench(dut)
    await bench.reset()
    n = bench.n_bytes
    for stalled in (False, True):
        bench.sink.pause = stalled
        bench.source.send_nowait(
            to_frame(sound_beats(bench.rng, n, bench.meta_width, 20 * n, bad=False))
        )
        await ClockCycles(dut.clk, 9)
        dut.rst.value = 1
        await ClockCycles(dut.clk, 2)
        assert dut.m__tvalid.value == 0
        bench.source.clear()
        bench.sink.clear()
        bench.sink.pause = False
        dut.rst.value = 0
        await RisingEdge(dut.clk)
        frames = [sound_beats(bench.rng, n, bench.meta_width, k, False) for k in (1, MAX_BEATS * n)]
        await bench.passes(frames)


@pytest.mark.parametrize(("n_bytes", "meta_width"), [(8, 0), (64, 16), (1, 0)])
def test_frames(n_bytes, meta_width):
    simulate(FrameEdge(n_bytes, meta_width), __file__)


def test_frames_on_verilator():
    simulate(FrameEdge(16, 3), __file__, simulator="verilator")


def test_refusals_name_the_value():
    with pytest.raises(ValueError, match="n_bytes must be at least 1, not 0"):
        Axis(0)
    with pytest.raises(ValueError, match="user_width must be at least 0, not -1"):
        Axis(4, user_width=-1)
    with pytest.raises(ValueError, match="address_width must be 2 to 64, not 1"):
        Lite(1)
    with pytest.raises(ValueError, match="n_bytes must be a power of two from 1 to 128, not 12"):
        AxisReceiver(12)
