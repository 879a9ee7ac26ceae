"""What the benches of shells share: frames over AXI4-Stream, registers by the host's driver."""

import logging

from cocotb.task import resume
from cocotb.triggers import with_timeout
from cocotbext.axi import (
    AxiLiteBus,
    AxiLiteMaster,
    AxiStreamBus,
    AxiStreamFrame,
    AxiStreamSink,
    AxiStreamSource,
)

PATIENCE_US = 400  # for one frame


def source(dut, prefix, clock, reset):
    """A cocotbext-axi source of the port ``prefix_t*``."""
    port = AxiStreamSource(AxiStreamBus.from_prefix(dut, prefix), clock, reset)
    port.log.setLevel(logging.WARNING)
    return port


def sink(dut, prefix, clock, reset):
    """A cocotbext-axi sink of the port ``prefix_t*``."""
    port = AxiStreamSink(AxiStreamBus.from_prefix(dut, prefix), clock, reset)
    port.log.setLevel(logging.WARNING)
    return port


def registers(dut, prefix, clock, reset, *, separator="_"):
    """(read, write) of a `gradnic.host.driver.Driver`; they run under `cocotb.task.bridge`."""
    bus = AxiLiteBus.from_prefix(dut, prefix, bus_separator=separator)
    master = AxiLiteMaster(bus, clock, reset)
    for channel in (master.write_if, master.read_if):
        channel.log.setLevel(logging.WARNING)

    @resume
    async def read(address):
        return await master.read_dword(address)

    @resume
    async def write(address, value):
        await master.write_dword(address, value)

    return read, write


async def send(port, frames):
    """Queue frames, (bytes, bad mark, side band): tuser = {side band, bad}."""
    for octets, bad, side in frames:
        n_before = (len(octets) - 1) // port.byte_lanes * port.byte_lanes
        user = [side << 1] * n_before + [side << 1 | int(bad)] * (len(octets) - n_before)
        await port.send(AxiStreamFrame(octets, tuser=user))


async def receive(port, n_frames):
    """[(bytes, bad mark, side band)] of the next frames, see `next_frame`."""
    return [await with_timeout(next_frame(port), PATIENCE_US, "us") for _ in range(n_frames)]


async def next_frame(port):
    """(bytes, bad mark, side band) of the next frame; the side band is the same on all beats."""
    frame = await port.recv(compact=False)
    n_bytes = sum(frame.tkeep)
    assert list(frame.tkeep) == [1] * n_bytes + [0] * (len(frame.tkeep) - n_bytes)
    sides = {user >> 1 for user in frame.tuser[:n_bytes]}
    assert len(sides) == 1, f"the side band changes within a frame: {sides}"
    return bytes(frame.tdata[:n_bytes]), bool(frame.tuser[-1] & 1), sides.pop()


def pauses(rng, share):
    """For `set_pause_generator`: waits in this share of the cycles."""
    while True:
        yield bool(rng.random() < share)
