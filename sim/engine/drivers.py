"""Drivers of Amaranth streams for cocotb: drive, collect, watch and reset.

Everything is driven at the rising edge and sampled at the falling edge of ``clk``, so that no two
processes race. X or Z on ``valid`` or ``ready`` after reset, or in a payload that is offered, is a
failure; while an input offers nothing its payload is X (noise where the simulator knows no X).
"""

import json
import os
from pathlib import Path

import cocotb
import numpy as np
from cocotb.clock import Clock
from cocotb.triggers import FallingEdge, RisingEdge
from cocotb.types import LogicArray

CLOCK_NS = 10


class Stream:
    """The wires of one stream port, ``name``, of a top made by `gradnic.sim.engine.runner`."""

    def __init__(self, dut, name):
        self.name = name
        self.clock = dut.clk
        self.payload = getattr(dut, f"{name}__payload")
        self.valid = getattr(dut, f"{name}__valid")
        self.ready = getattr(dut, f"{name}__ready")
        self.n_bits = len(self.payload)
        self.size = (self.n_bits + 7) // 8

    def bit(self, wire):
        """0 or 1; AssertionError if the wire shows X or Z."""
        value = getattr(self, wire).value
        assert value.is_resolvable, f"{self.name}.{wire} is {value}"
        return int(value)

    def beat(self):
        """The payload that is offered, as bytes; AssertionError if it holds X or Z."""
        value = self.payload.value
        assert value.is_resolvable, f"{self.name}.payload is {value} while valid"
        return value.to_unsigned().to_bytes(self.size, "little")

    def offer(self, beat):
        """Put a beat (bytes) on the wires, valid."""
        self.payload.value = int.from_bytes(beat, "little")
        self.valid.value = 1

    def rest(self, rng):
        """Offer nothing, with a payload that means nothing."""
        self.valid.value = 0
        if cocotb.SIM_NAME.lower().startswith("icarus"):
            self.payload.value = LogicArray("X" * self.n_bits)
        else:
            noise = int.from_bytes(rng.bytes(self.size), "little")
            self.payload.value = noise & ((1 << self.n_bits) - 1)


def goes(stall, cycle, rng):
    """Whether a stall lets cycle `cycle` go: a duty within 0..1, or a pattern that repeats."""
    return bool(rng.random() < stall if np.ndim(stall) == 0 else stall[cycle % len(stall)])


async def drive(stream, beats, rng, stall=1.0):
    """Offer all beats, uint8 (n, bytes); returns the cycles, counted from the call, of each."""
    cycle, taken = 0, []
    for beat in beats:
        while not goes(stall, cycle, rng):
            stream.rest(rng)
            await RisingEdge(stream.clock)
            cycle += 1
        stream.offer(bytes(beat))
        ready = False
        while not ready:
            await FallingEdge(stream.clock)
            ready = stream.bit("ready")
            await RisingEdge(stream.clock)
            cycle += 1
        taken.append(cycle - 1)
        stream.rest(rng)
    return np.array(taken, np.int64)


async def collect(stream, rng, stall=1.0, *, n_beats=None, n_cycles=None):
    """Take `n_beats` beats, or all of `n_cycles` cycles; returns (beats, cycles).

    Checks that an offer is kept and does not change until taken.
    """
    cycle, beats, taken, held = 0, [], [], None
    while (n_beats is None or len(beats) < n_beats) and (n_cycles is None or cycle < n_cycles):
        ready = goes(stall, cycle, rng)
        stream.ready.value = int(ready)
        await FallingEdge(stream.clock)
        valid = stream.bit("valid")
        beat = stream.beat() if valid else None
        assert held is None or valid, f"{stream.name}: valid dropped before ready, cycle {cycle}"
        assert held is None or beat == held, f"{stream.name}: payload changed, cycle {cycle}"
        held = beat if valid and not ready else None
        if valid and ready:
            beats.append(np.frombuffer(beat, np.uint8))
            taken.append(cycle)
        await RisingEdge(stream.clock)
        cycle += 1
    stream.ready.value = 0
    rows = np.array(beats, np.uint8).reshape(-1, stream.size)
    return rows, np.array(taken, np.int64)


async def rests(stream, n_cycles):
    """Check that a stream, ready all the time, offers nothing for `n_cycles`."""
    beats, _ = await collect(stream, None, [1], n_cycles=n_cycles)
    assert len(beats) == 0, f"{stream.name}: {len(beats)} beats too many"


async def reset(dut, *, inputs=(), outputs=(), n_cycles=2, start_clock=True):
    """Reset at a rising edge, and check what the ports show in reset and after it.

    inputs, outputs : names of stream ports. Outputs must not be valid in reset; afterwards every
    ``valid`` and ``ready`` that the design drives must be 0 or 1.
    """
    rng = np.random.default_rng(0)
    sources = [Stream(dut, name) for name in inputs]
    sinks = [Stream(dut, name) for name in outputs]
    for stream in sources:
        stream.rest(rng)
    for stream in sinks:
        stream.ready.value = 0
    if hasattr(dut, "rst"):
        dut.rst.value = 1
    if start_clock:
        Clock(dut.clk, CLOCK_NS, "ns").start()
    for cycle in range(n_cycles):
        await FallingEdge(dut.clk)
        for stream in sinks:
            if cycle:
                assert not stream.bit("valid"), f"{stream.name}: valid is high in reset"
    await RisingEdge(dut.clk)
    if hasattr(dut, "rst"):
        dut.rst.value = 0
    await FallingEdge(dut.clk)
    for stream in sources:
        stream.bit("ready")
    for stream in sinks:
        stream.bit("valid")
    await RisingEdge(dut.clk)


def given():
    """Arrays that `runner.simulate` was given for this run, by name."""
    with np.load(os.environ["GRADNIC_DATA"]) as file:
        return dict(file)


def options():
    """Options that `runner.simulate` was given for this run."""
    return json.loads(os.environ["GRADNIC_OPTIONS"])


def leave(**arrays):
    """Hand arrays back to the caller of `runner.simulate`."""
    np.savez(Path(os.environ["GRADNIC_DATA"]).with_name("left.npz"), **arrays)
