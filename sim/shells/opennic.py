"""OpenNIC's side of its 250 MHz box, for benches: streams, registers, the reset handshake."""

import cocotb
from cocotb.clock import Clock
from cocotb.triggers import ClockCycles, FallingEdge, RisingEdge, with_timeout
from cocotbext.axi import AxiStreamFrame

from . import bench as shell_bench

PORTS = {  # of the box: whether the shell sends, and the clock's frames
    "s_axis_qdma_h2c": True,
    "m_axis_qdma_c2h": False,
    "m_axis_adap_tx_250mhz": False,
    "s_axis_adap_rx_250mhz": True,
}
SIDES = ("tuser_dst", "tuser_src", "tuser_size")  # one after the other in the bench's tuser


def shell(n_bytes, n_ports):
    """Verilog of the box, module ``top``: a bundle of wires a port, ``p0_qdma_h2c_*``."""
    declared, pins, body = [], [], []
    fields = {"tvalid": 1, "tdata": 8 * n_bytes, "tkeep": n_bytes, "tlast": 1, "tuser": 48}
    for prefix, sent in PORTS.items():
        short = prefix[7:]
        for k in range(n_ports):
            for field, width in fields.items():
                way = "input" if sent else "output"
                declared.append(f"{way} [{width - 1}:0] p{k}_{short}_{field}")
            declared.append(f"{'output' if sent else 'input'} p{k}_{short}_tready")
        for field in ("tvalid", "tdata", "tkeep", "tlast", "tready"):
            joined = ", ".join(f"p{k}_{short}_{field}" for k in reversed(range(n_ports)))
            pins.append(f".{prefix}_{field}({{{joined}}})")
        for place, field in enumerate(reversed(SIDES)):
            part = f"[{16 * place + 15}:{16 * place}]"
            joined = ", ".join(f"p{k}_{short}_tuser{part}" for k in reversed(range(n_ports)))
            pins.append(f".{prefix}_{field}({{{joined}}})")
    lite = {"awaddr": 32, "awvalid": 1, "wdata": 32, "wvalid": 1, "bready": 1, "araddr": 32}
    lite |= {"arvalid": 1, "rready": 1}
    back = {"awready": 1, "wready": 1, "bvalid": 1, "bresp": 2, "arready": 1, "rvalid": 1}
    back |= {"rdata": 32, "rresp": 2}
    for way, wires in (("input", lite), ("output", back)):
        declared += [f"{way} [{width - 1}:0] s_axil_{name}" for name, width in wires.items()]
        pins += [f".s_axil_{name}(s_axil_{name})" for name in wires]
    for name in ("mod_rstn", "axil_aclk", "axis_aclk"):
        declared.append(f"input {name}")
        pins.append(f".{name}({name})")
    declared.append("output mod_rst_done")
    pins.append(".mod_rst_done(mod_rst_done)")
    body = ",\n    ".join(pins)
    head = ",\n    ".join([*declared, "input quiet"])
    return f"module top (\n    {head}\n);\ngradnic_250mhz box (\n    {body}\n);\nendmodule\n"


class Bench:
    """The shell around the box; the bus models are reset by hand, as the box has no reset pin.

    Members
    -------
    ports : list of {short name of a stream: its source or sink}
    access : (read, write) of the registers, for a `gradnic.host.driver.Driver`
    """

    def __init__(self, dut, n_ports):
        self.dut = dut
        dut.quiet.value = 0
        dut.mod_rstn.value = 1
        cocotb.start_soon(Clock(dut.axil_aclk, 8, "ns").start())
        cocotb.start_soon(Clock(dut.axis_aclk, 4, "ns").start())
        self.ports = [
            {
                prefix[7:]: (shell_bench.source if sent else shell_bench.sink)(
                    dut, f"p{k}_{prefix[7:]}", dut.axis_aclk, dut.quiet
                )
                for prefix, sent in PORTS.items()
            }
            for k in range(n_ports)
        ]
        self.access = shell_bench.registers(dut, "s_axil", dut.axil_aclk, dut.quiet)

    async def reset(self):
        """Ask for a reset, as the system configuration does, and wait until it is over."""
        dut = self.dut
        dut.mod_rstn.value = 0
        await ClockCycles(dut.axil_aclk, 3)
        dut.mod_rstn.value = 1
        await FallingEdge(dut.axil_aclk)
        assert dut.mod_rst_done.value == 0
        await with_timeout(RisingEdge(dut.mod_rst_done), 2, "us")
        await ClockCycles(dut.axil_aclk, 8)


async def send(port, frames):
    """Queue (bytes, source): the size that the shell gives is right, the destination is noise."""
    for octets, source in frames:
        user = 0xDEAD << 32 | source << 16 | len(octets)
        await port.send(AxiStreamFrame(octets, tuser=[user] * len(octets)))


async def receive(port, n_frames):
    """[(bytes, source, destination)]; sizes are right on every beat."""
    frames = []
    for _ in range(n_frames):
        frame = await with_timeout(port.recv(compact=False), shell_bench.PATIENCE_US, "us")
        n_bytes = sum(frame.tkeep)
        assert list(frame.tkeep) == [1] * n_bytes + [0] * (len(frame.tkeep) - n_bytes)
        (user,) = set(frame.tuser)  # the same on all beats
        assert user & 0xFFFF == n_bytes
        frames.append((bytes(frame.tdata[:n_bytes]), user >> 16 & 0xFFFF, user >> 32))
    return frames
