"""The plugin in OpenNIC's 250 MHz box: sizes, side bands, resets, registers as the shell has them.

At 128 bits a beat, which simulates faster than the shell's 512.
"""

import shutil
import subprocess

import cocotb
import numpy as np
import pytest
from amaranth.lib.wiring import In
from cocotb.task import bridge
from cocotb.triggers import ClockCycles, with_timeout
from gradnic.hdl.shells.opennic.wrapper import OpenNic
from gradnic.hdl.top import verilog
from gradnic.models.inline.card import InlineCard as GoldenCard
from gradnic.sim.engine import runner
from gradnic.sim.frame import frames as makers
from gradnic.sim.shells import bench as shell_bench
from gradnic.sim.shells.opennic import PORTS, SIDES, Bench, receive, send, shell

from gradnic.host.driver import InlineDriver
from gradnic.interface import inline, params

LANES = 4
N_PORTS = 2
CODEC = inline.REGISTERS["codec"].offset


@cocotb.test()
async def box(dut):
    rng = np.random.default_rng(cocotb.RANDOM_SEED)
    bench = Bench(dut, N_PORTS)
    cards = [InlineDriver(*bench.access, base=k << 12) for k in range(N_PORTS)]
    await bench.reset()
    chosen = [makers.SETTINGS, makers.InlineSettings(jobs={5}, exponent=120)]
    for card, settings in zip(cards, chosen, strict=True):
        await bridge(card.configure)(settings)
    for k, settings in enumerate(chosen):
        golden, port = GoldenCard(settings), bench.ports[k]
        port["adap_tx_250mhz"].set_pause_generator(shell_bench.pauses(rng, 0.3))
        frames = [*makers.foreign_frames(rng).values(), *makers.own_frames(rng, 24).values()]
        order = rng.permutation(len(frames))[: 10 if k else None]
        sent = [(frames[i], n) for n, i in enumerate(order)]
        sent.insert(7, (rng.bytes(12) + b"\x12\x34" + rng.bytes(17_000), 0xBAD))  # cut: dropped
        await send(port["qdma_h2c"], sent)
        wanted = {source: golden.transmit(frame) for frame, source in sent}
        kept = {n: frame for n, (frame, bad) in wanted.items() if not bad}
        assert set(wanted) - set(kept) == {0xBAD}
        out = await receive(port["adap_tx_250mhz"], len(kept))
        assert {source: frame for frame, source, _ in out} == kept
        assert {destination for *_, destination in out} == {1 << 6 + k}

        restored = {n: golden.receive(frame) for n, frame in kept.items()}
        restored = {n: frame[0] for n, frame in restored.items() if frame is not None}
        await send(port["adap_rx_250mhz"], [(frame, n) for n, frame in kept.items()])
        back = await receive(port["qdma_c2h"], len(restored))
        assert {source: frame for frame, source, _ in back} == restored
        assert {destination for *_, destination in back} == {1 << k}
        assert await bridge(cards[k].counters)() == golden.counters
        assert await bridge(cards[k].settings)() == settings
    assert await bridge(cards[0]._read)(0x5000) == 0

    # A reset in mid-frame: what was inside is gone, and the box starts all over.
    await send(bench.ports[0]["qdma_h2c"], [(rng.bytes(4000), 1)])
    await ClockCycles(dut.axis_aclk, 20)
    bench.ports[0]["qdma_h2c"].clear()
    dut.quiet.value = 1
    await bench.reset()
    dut.quiet.value = 0
    assert await bridge(cards[0].settings)() == makers.InlineSettings()
    arp = (makers.foreign_frames(rng)["arp"], 3)
    await send(bench.ports[0]["qdma_h2c"], [arp])
    assert await receive(bench.ports[0]["adap_tx_250mhz"], 1) == [(*arp, 1 << 6)]

    # An access that comes in a reset waits for its end.
    await bridge(cards[0].set)("codec", exponent=120)
    dut.mod_rstn.value = 0
    await ClockCycles(dut.axil_aclk, 3)
    dut.mod_rstn.value = 1
    await ClockCycles(dut.axil_aclk, 5)
    reading = cocotb.start_soon(bridge(cards[0].settings)())
    assert await with_timeout(reading, 4, "us") == makers.InlineSettings()
    assert dut.mod_rst_done.value == 1

    # One that is under way as a reset begins is answered: a read with 0, or what was read.
    word = await with_timeout(bridge(cards[0]._read)(CODEC), 4, "us")
    for ahead in range(24):
        if ahead % 2:
            access = cocotb.start_soon(bridge(cards[0]._write)(CODEC, word))
        else:
            access = cocotb.start_soon(bridge(cards[0]._read)(CODEC))
        await ClockCycles(dut.axil_aclk, 1 + ahead)
        await bench.reset()
        assert await with_timeout(access, 4, "us") in (None, 0, word)
        assert await with_timeout(bridge(cards[0]._read)(CODEC), 4, "us") == word


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::DeprecationWarning:cocotbext")
def test_box():
    circuit = OpenNic(N_PORTS).box(params.preset(f"inline{LANES}"))
    text = verilog.convert(circuit, "gradnic_250mhz") + shell(4 * LANES, N_PORTS)
    runner.simulate(None, __file__, tests=["box"], netlist=text)


BOX = """
`timescale 1ns/1ps
module box_250mhz #(
  parameter USE_PHYS_FUNC = 1, parameter NUM_PHYS_FUNC = 1, parameter NUM_QDMA = 1,
  parameter NUM_CMAC_PORT = 1
) (
  {ports}
);
  wire internal_box_rstn;
  `include "box_250mhz_address_map_inst.vh"
  `include "user_plugin_250mhz_inst.vh"
endmodule
"""


def stub(box):
    """A module with the ports of the plugin and nothing in it."""
    ports = [
        f"{'input' if member.flow == In else 'output'} [{len(value) - 1}:0] {path[0]}"
        for path, member, value in box.signature.flatten(box)
    ]
    return f"module gradnic_250mhz ({', '.join(ports)}); endmodule\n"


@pytest.mark.skipif(shutil.which("iverilog") is None, reason="Icarus Verilog is not installed")
def test_what_the_box_includes_elaborates_in_it(tmp_path):
    card = params.preset("inline16")
    box = OpenNic().box(card)
    files = OpenNic().texts(box, card)
    for name, text in files.items():
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(text)
    (tmp_path / "gradnic_250mhz.v").write_text(stub(box))
    ports = []
    for prefix, sent in PORTS.items():
        way, back = ("input", "output") if sent else ("output", "input")
        count = "NUM_PHYS_FUNC*NUM_QDMA" if "qdma" in prefix else "NUM_CMAC_PORT"
        for field, width in (("tvalid", 1), ("tdata", 512), ("tkeep", 64), ("tlast", 1)):
            ports.append(f"{way} [{width}*{count}-1:0] {prefix}_{field}")
        ports += [f"{way} [16*{count}-1:0] {prefix}_{side}" for side in SIDES]
        ports.append(f"{back} [{count}-1:0] {prefix}_tready")
    for name in ("awaddr", "wdata", "araddr"):
        ports.append(f"input [31:0] s_axil_{name}")
    for name in ("awvalid", "wvalid", "bready", "arvalid", "rready"):
        ports.append(f"input s_axil_{name}")
    for name in ("awready", "wready", "bvalid", "arready", "rvalid"):
        ports.append(f"output s_axil_{name}")
    ports += ["output [1:0] s_axil_bresp", "output [1:0] s_axil_rresp"]
    ports += ["output [31:0] s_axil_rdata", "input [15:0] mod_rstn", "output [15:0] mod_rst_done"]
    ports += ["input axil_aclk", "input axis_aclk"]
    (tmp_path / "box.sv").write_text(BOX.format(ports=",\n  ".join(ports)))
    command = ["iverilog", "-g2012", "-Wall", "-Wno-timescale", "-s", "box_250mhz", "-I"]
    command += ["box_250mhz", "-o", "box.vvp", "box.sv", "gradnic_250mhz.v"]
    run = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True)
    assert run.returncode == 0, run.stderr
    assert run.stderr == ""
    assert "read_verilog -quiet gradnic_250mhz.v" in files["build_box_250mhz.tcl"]
    for wrong, said in (  # one function and MAC port of another number, and two QDMAs for one
        ({"NUM_PHYS_FUNC": 2}, "written for 1 physical function(s) and MAC port(s)"),
        ({"NUM_QDMA": 2}, "written for one QDMA: build with -num_qdma 1"),
    ):
        parameters = [f"-Pbox_250mhz.{name}={value}" for name, value in wrong.items()]
        build = [*command[:2], "-Wno-portbind", *parameters, *command[2:]]
        subprocess.run(build, cwd=tmp_path, check=True, capture_output=True)
        run = subprocess.run(["vvp", "-n", "box.vvp"], cwd=tmp_path, capture_output=True, text=True)
        assert said in run.stdout + run.stderr


def test_options_are_checked():
    with pytest.raises(ValueError, match="n_ports must be 1 or 2, not 3"):
        OpenNic(3)
    with pytest.raises(ValueError, match="the card must have 512 bits a beat, not 128"):
        OpenNic().files(params.preset("inline4"))
