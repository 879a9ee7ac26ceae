"""The application block in Corundum's place: its whole interface, and what it promises at the taps.

The shell's side is written down here a second time, as the instantiation that the shell makes.
"""

import itertools
import re
import subprocess
from functools import cache

import cocotb
import numpy as np
import pytest
from cocotb.clock import Clock
from cocotb.task import bridge
from cocotb.triggers import ClockCycles, FallingEdge, RisingEdge
from gradnic.hdl.shells.corundum import Corundum
from gradnic.models.inline import InlineCard as GoldenCard
from gradnic.sim import frames as makers
from gradnic.sim import runner, shell_bench

from gradnic import params, tap
from gradnic.host import Driver, InlineDriver

APP_ID = 0x67726E01
LANES = 4
HOST_TAG = 0x8000  # the transmit engine sets the tag's highest bit
STAMP_BITS = 96


def spelled(pattern):
    """All words of a pattern with {a,b} alternatives."""
    parts = re.split(r"\{([^}]*)\}", pattern)
    choices = [p.split(",") if k % 2 else [p] for k, p in enumerate(parts)]
    return ["".join(words) for words in itertools.product(*choices)]


PARAMETERS = """
    IF_COUNT PORTS_PER_IF SCHED_PER_IF PORT_COUNT CLK_PERIOD_NS_{NUM,DENOM}
    PTP_CLK_PERIOD_NS_{NUM,DENOM} PTP_TS_WIDTH PTP_PORT_CDC_PIPELINE PTP_PEROUT_{ENABLE,COUNT}
    PTP_TS_ENABLE PTP_TS_FMT_TOD TX_TAG_WIDTH MAX_{TX,RX}_SIZE
    {DDR,HBM}_{CH,ENABLE,GROUP_SIZE} AXI_{DDR,HBM}_{DATA,ADDR,STRB,ID}_WIDTH
    AXI_{DDR,HBM}_{AW,W,B,AR,R}USER_{ENABLE,WIDTH} AXI_{DDR,HBM}_MAX_BURST_LEN
    AXI_{DDR,HBM}_{NARROW,FIXED,WRAP}_BURST APP_ID APP_{CTRL,DMA,STAT}_ENABLE
    APP_AXIS_{DIRECT,SYNC,IF}_ENABLE APP_GPIO_{IN,OUT}_WIDTH DMA_{ADDR,IMM,LEN,TAG}_WIDTH
    DMA_IMM_ENABLE RAM_{SEL,ADDR}_WIDTH RAM_SEG_COUNT RAM_SEG_{DATA,BE,ADDR}_WIDTH RAM_PIPELINE
    AXIL_APP_CTRL_{DATA,ADDR,STRB}_WIDTH AXIL_CTRL_{DATA,ADDR,STRB}_WIDTH
    AXIS_{DATA,KEEP,TX_USER,RX_USER}_WIDTH AXIS_RX_USE_READY
    AXIS_SYNC_{DATA,KEEP,TX_USER,RX_USER}_WIDTH
    AXIS_IF_{DATA,KEEP,TX_ID,RX_ID,TX_DEST,RX_DEST,TX_USER,RX_USER}_WIDTH
    STAT_ENABLE STAT_{INC,ID}_WIDTH
"""
PORTS = """
    clk rst {s_axil_app_ctrl,m_axil_ctrl}_{aw,ar}{addr,prot,valid,ready}
    {s_axil_app_ctrl,m_axil_ctrl}_{wdata,wstrb,wvalid,wready,bresp,bvalid,bready}
    {s_axil_app_ctrl,m_axil_ctrl}_{rdata,rresp,rvalid,rready}
    m_axis_{ctrl,data}_dma_{read,write}_desc_{dma_addr,ram_sel,ram_addr,len,tag,valid,ready}
    m_axis_{ctrl,data}_dma_write_desc_{imm,imm_en}
    s_axis_{ctrl,data}_dma_{read,write}_desc_status_{tag,error,valid}
    {ctrl,data}_dma_ram_wr_{cmd_sel,cmd_be,cmd_addr,cmd_data,cmd_valid,cmd_ready,done}
    {ctrl,data}_dma_ram_rd_{cmd_sel,cmd_addr,cmd_valid,cmd_ready,resp_data,resp_valid,resp_ready}
    ptp_{clk,rst,sample_clk,td_sd,pps,pps_str} ptp_perout_{locked,error,pulse}
    ptp_sync_{locked,ts_rel,ts_rel_step,ts_tod,ts_tod_step,pps,pps_str}
    direct_{tx,rx}_{clk,rst}
    {s,m}_axis_{direct,sync,if}_{tx,rx}_{tdata,tkeep,tvalid,tready,tlast,tuser}
    {s,m}_axis_if_{tx,rx}_{tid,tdest} {s,m}_axis_{direct,sync,if}_tx_cpl_{ts,tag,valid,ready}
    {ddr,hbm}_{clk,rst,status}
    m_axi_{ddr,hbm}_{aw,ar}{id,addr,len,size,burst,lock,cache,prot,qos,user,valid,ready}
    m_axi_{ddr,hbm}_w{data,strb,last,user,valid,ready} m_axi_{ddr,hbm}_b{id,resp,user,valid,ready}
    m_axi_{ddr,hbm}_r{id,data,resp,last,user,valid,ready}
    m_axis_stat_{tdata,tid,tvalid,tready} gpio_{in,out} jtag_{tdi,tdo,tms,tck}
"""
TAP_WIDTHS = {"tdata": 32 * LANES, "tkeep": 4 * LANES, "tvalid": 1, "tready": 1, "tlast": 1}


def names(patterns):
    return [name for pattern in patterns.split() for name in spelled(pattern)]


def shell(place, n_ports, mac_bits, app_id=APP_ID):
    """Verilog of the shell's side, module ``top``: one bundle of wires a port, ``p0_host_tx_*``."""
    set_to = {
        "IF_COUNT": n_ports,
        "PORT_COUNT": n_ports,
        "AXIS_DATA_WIDTH": mac_bits,
        "AXIS_SYNC_DATA_WIDTH": 32 * LANES,
        "APP_ID": f"32'h{app_id:08x}",
        "AXIL_APP_CTRL_ADDR_WIDTH": 24,
    }
    own, wires, body = ["clk", "rst"], [], []
    bits = mac_bits if place == "direct" else 32 * LANES
    user = {"tx": 17, "rx": 1 + STAMP_BITS}
    if place == "direct":
        own += [f"direct_{way}_{what}" for way in ("tx", "rx") for what in ("clk", "rst")]
    declared = [f"    input {name}" for name in own]
    pins = {name: name for name in own}
    if place == "direct":
        pins |= {name: f"{{{n_ports}{{{name}}}}}" for name in own[2:]}
    for name in names(PORTS):
        if name.startswith("s_axil_app_ctrl"):
            short = "s_axil_" + name.removeprefix("s_axil_app_ctrl_")
            what = short.removeprefix("s_axil_")
            width = 24 if "addr" in what else 32 if "data" in what else 4 if "strb" in what else 1
            width = {"bresp": 2, "rresp": 2, "awprot": 3, "arprot": 3}.get(what, width)
            out = what in (
                "awready",
                "wready",
                "arready",
                "bresp",
                "bvalid",
                "rdata",
                "rresp",
                "rvalid",
            )
            declared.append(f"    {'output' if out else 'input'} [{width - 1}:0] {short}")
            pins[name] = short
    for port in range(n_ports):
        for name, letter, way in (
            ("host_tx", "s", "tx"),
            ("mac_tx", "m", "tx"),
            ("mac_rx", "s", "rx"),
            ("host_rx", "m", "rx"),
        ):
            widths = {**TAP_WIDTHS, "tdata": bits, "tkeep": bits // 8, "tuser": user[way]}
            for field, width in widths.items():
                out = (letter == "m") != (field == "tready")
                declared.append(
                    f"    {'output' if out else 'input'} [{width - 1}:0] p{port}_{name}_{field}"
                )
                pins.setdefault(f"{letter}_axis_{place}_{way}_{field}", []).insert(
                    0, f"p{port}_{name}_{field}"
                )
        for letter, name in (("s", "mac_cpl"), ("m", "host_cpl")):
            for field, width in (("ts", STAMP_BITS), ("tag", 16), ("valid", 1), ("ready", 1)):
                out = (letter == "m") != (field == "ready")
                declared.append(
                    f"    {'output' if out else 'input'} [{width - 1}:0] p{port}_{name}_{field}"
                )
                pins.setdefault(f"{letter}_axis_{place}_tx_cpl_{field}", []).insert(
                    0, f"p{port}_{name}_{field}"
                )
    other = "direct" if place == "sync" else "sync"
    same = []
    for unused in (other, "if"):  # pass through, and say so
        for way in ("tx", "rx"):
            for field in ("tdata", "tvalid", "tuser", "tlast", "tkeep"):
                inner, outer = f"s_axis_{unused}_{way}_{field}", f"m_axis_{unused}_{way}_{field}"
                width = 4096 if field == "tdata" else 512
                wires += [f"wire [{width - 1}:0] {inner} = {{{width // 32}{{noise}}}};"]
                wires += [f"wire [{width - 1}:0] {outer};"]
                n_bits = {"tvalid": n_ports, "tlast": n_ports}.get(
                    field, 17 if field == "tuser" else 8
                )
                same.append(f"{outer}[{n_bits - 1}:0] === {inner}[{n_bits - 1}:0]")
                pins |= {inner: inner, outer: outer}
            ready = f"s_axis_{unused}_{way}_tready"
            wires.append(f"wire [{n_ports - 1}:0] {ready};")
            pins |= {ready: ready, ready.replace("s_axis", "m_axis"): f"noise[{n_ports - 1}:0]"}
            same.append(f"{ready} === noise[{n_ports - 1}:0]")
    for quiet in (
        *spelled("m_axil_ctrl_{aw,w,ar}valid"),
        *spelled("m_axis_{ctrl,data}_dma_{read,write}_desc_valid"),
        *spelled("m_axi_{ddr,hbm}_{aw,w,ar}valid"),
        "m_axis_stat_tvalid",
    ):
        wires.append(f"wire {quiet};")
        pins[quiet] = quiet
        same.append(f"{quiet} === 1'b0")
    for kind in ("ctrl", "data"):  # the DMA engine's accesses end
        for pin, value in (("wr_cmd_valid", "noise[1:0]"), ("rd_cmd_valid", "noise[3:2]")):
            pins[f"{kind}_dma_ram_{pin}"] = value
        pins[f"{kind}_dma_ram_rd_resp_ready"] = "noise[5:4]"
        for pin, value in (
            ("wr_cmd_ready", "2'b11"),
            ("wr_done", "noise[1:0]"),
            ("rd_cmd_ready", "noise[5:4]"),
            ("rd_resp_valid", "noise[3:2]"),
        ):
            wires.append(f"wire [1:0] {kind}_dma_ram_{pin};")
            pins[f"{kind}_dma_ram_{pin}"] = f"{kind}_dma_ram_{pin}"
            same.append(f"{kind}_dma_ram_{pin} === {value}")
    values = [f".{p}({set_to[p]})" for p in names(PARAMETERS) if p in set_to]
    joined = []
    for name in names(PORTS):
        pin = pins.get(name, "")
        pin = f"{{{', '.join(pin)}}}" if isinstance(pin, list) else pin
        joined.append(f"    .{name}({pin})")
    body = ",\n".join(joined)
    return "\n".join(
        [
            "module top (",
            ",\n".join([*declared, "    input [31:0] noise", "    output rests"]),
            ");",
            *wires,
            f"assign rests = {' && '.join(same)};",
            f"mqnic_app_block #({', '.join(values)}) app (\n{body}\n);",
            "endmodule",
        ]
    )


@cache
def block(tap, n_ports, bits=0):
    """The file that the command writes."""
    options = Corundum(tap=tap, n_ports=n_ports, bits=bits)
    return options.files(params.preset(f"inline{LANES}"))["mqnic_app_block.v"]


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

    # A reset of the MAC alone starts all over: settings are those of reset.
    dut.direct_rx_rst.value = 1
    await ClockCycles(dut.clk, 4)
    dut.direct_rx_rst.value = 0
    await ClockCycles(dut.clk, 8)
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
def test_sync_tap():
    text = block("sync", 2) + shell("sync", 3, 512)
    runner.simulate(None, __file__, tests=["sync_tap"], netlist=text)


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::DeprecationWarning:cocotbext")
def test_direct_tap():
    text = block("direct", 1, 64) + shell("direct", 1, 64)
    runner.simulate(None, __file__, tests=["direct_tap"], netlist=text)


@pytest.mark.skipif(runner.missing("icarus"), reason=str(runner.missing("icarus")))
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


def test_options_are_checked():
    for options, said in (
        ({"tap": "if"}, "tap must be sync or direct, not 'if'"),
        ({"n_ports": 0}, "n_ports must be 1 to 16, not 0"),
        ({"app_id": 0}, "app_id must be 1 to 4294967295, not 0"),
        ({"bits": 64}, "bits must be 0 on the sync tap, not 64"),
    ):
        with pytest.raises(ValueError, match=said):
            Corundum(**options)
