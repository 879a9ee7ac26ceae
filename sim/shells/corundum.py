"""Corundum's side of its application block, for benches: its whole interface, written down again.

What a wrapper says of parameters and ports (`gradnic.hdl.shells.corundum.app_block`) is held to
this.
"""

import itertools
import re

APP_ID = 0x67726E01
BITS = 128  # of a beat at the sync tap, and of the memory
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
RAM_WIDTHS = {"id": 8, "addr": 32, "len": 8, "size": 3, "burst": 2, "cache": 4, "prot": 3, "qos": 4}
RAM_WIDTHS["resp"] = 2  # of a channel, by field
RAM_BITS = {"ddr": 512, "hbm": 256}  # as the boards have it, and wider than the card's beat
RAM_OUT = "aw{id,addr,len,size,burst,lock,cache,prot,qos,valid} w{data,strb,last,valid} bready"
RAM_OUT += " ar{id,addr,len,size,burst,lock,cache,prot,qos,valid} rready"
RAM_IN = "{aw,w,ar}ready b{id,resp,valid} r{id,data,resp,last,valid}"
TAP_WIDTHS = {"tdata": BITS, "tkeep": BITS // 8, "tvalid": 1, "tready": 1, "tlast": 1}


def names(patterns):
    """Names that patterns such as ``tx[0:2]`` stand for, one blank between them."""
    return [name for pattern in patterns.split() for name in spelled(pattern)]


class _Top:
    """Module ``top`` around the block: ports, pins of the block, wires, and what is to hold."""

    def __init__(self):
        self.declared, self.pins, self.wires, self.holds = [], {}, [], []

    def port(self, name, *, out=False, width=None):
        span = "" if width is None else f" [{width - 1}:0]"
        self.declared.append(f"    {'output' if out else 'input'}{span} {name}")

    def part(self, pin, name, *, out=False, width=None):
        """A port that is a part of a pin, above those before it."""
        self.port(name, out=out, width=width)
        self.pins.setdefault(pin, []).insert(0, name)

    def wire(self, name, width=1, value=None, holds=None):
        """A wire at the pin of that name, which is to be `holds`."""
        span = "" if width == 1 else f"[{width - 1}:0] "
        self.wires.append(f"wire {span}{name}{'' if value is None else f' = {value}'};")
        self.pins[name] = name
        if holds is not None:
            self.holds.append(f"{name} === {holds}")

    def text(self, set_to):
        joined = []
        for name in names(PORTS):
            pin = self.pins.get(name, "")
            pin = f"{{{', '.join(pin)}}}" if isinstance(pin, list) else pin
            joined.append(f"    .{name}({pin})")
        values = [f".{p}({set_to[p]})" for p in names(PARAMETERS) if p in set_to]
        body = ",\n".join(joined)
        return "\n".join(
            [
                "module top (",
                ",\n".join([*self.declared, "    input [31:0] noise", "    output rests"]),
                ");",
                *self.wires,
                f"assign rests = {' && '.join(self.holds)};",
                f"mqnic_app_block #({', '.join(values)}) app (\n{body}\n);",
                "endmodule",
            ]
        )


def shell(place, n_ports, mac_bits, app_id=APP_ID, channels=0, ram="ddr", sync_bits=BITS, **others):
    """Verilog of the shell's side, module ``top``: one bundle of wires a port, ``p0_host_tx_*``.

    channels : of memory, ``ram0_*`` and on. ram : "ddr" or "hbm". others : parameters that are
    set besides.
    """
    set_to = {
        "IF_COUNT": n_ports,
        "PORT_COUNT": n_ports,
        "AXIS_DATA_WIDTH": mac_bits,
        "AXIS_SYNC_DATA_WIDTH": sync_bits,
        "APP_ID": f"32'h{app_id:08x}",
        "AXIL_APP_CTRL_ADDR_WIDTH": 24,
    }
    if channels:
        set_to |= {f"{ram.upper()}_ENABLE": 1, f"{ram.upper()}_CH": channels}
        set_to[f"AXI_{ram.upper()}_DATA_WIDTH"] = RAM_BITS[ram]
    top = _Top()
    _clocks(top, n_ports if place == "direct" else 0)
    _registers(top)
    for port in range(n_ports):
        _tap(top, place, port, mac_bits if place == "direct" else sync_bits)
    for channel in range(channels):
        _memory(top, ram, channel)
    for unused in ("direct" if place == "sync" else "sync", "if"):
        _unused_tap(top, unused, n_ports)
    _unused(top, [kind for kind in RAM_BITS if not channels or kind != ram])
    _dma(top)
    return top.text(set_to | others)


def _clocks(top, n_direct):
    """The clock, and those of taps at MACs, which all have the same."""
    direct = [f"direct_{way}_{what}" for way in ("tx", "rx") for what in ("clk", "rst")]
    for name in ("clk", "rst", *(direct if n_direct else [])):
        top.port(name)
        top.pins[name] = f"{{{n_direct}{{{name}}}}}" if name in direct else name


def _registers(top):
    for name in names(PORTS):
        what = name.removeprefix("s_axil_app_ctrl_")
        if what != name:
            width = 24 if "addr" in what else 32 if "data" in what else 4 if "strb" in what else 1
            width = {"bresp": 2, "rresp": 2, "awprot": 3, "arprot": 3}.get(what, width)
            out = what in names("{aw,w,ar}ready b{resp,valid} r{data,resp,valid}")
            top.port(f"s_axil_{what}", out=out, width=width)
            top.pins[name] = f"s_axil_{what}"


def _tap(top, place, port, bits):
    """Frames of a port, and the completions of those sent."""
    for name, letter, way in (
        ("host_tx", "s", "tx"), ("mac_tx", "m", "tx"),
        ("mac_rx", "s", "rx"), ("host_rx", "m", "rx"),
    ):  # fmt: skip
        user = 17 if way == "tx" else 1 + STAMP_BITS
        widths = {**TAP_WIDTHS, "tdata": bits, "tkeep": bits // 8, "tuser": user}
        for field, width in widths.items():
            out = (letter == "m") != (field == "tready")
            pin = f"{letter}_axis_{place}_{way}_{field}"
            top.part(pin, f"p{port}_{name}_{field}", out=out, width=width)
    for letter, name in (("s", "mac_cpl"), ("m", "host_cpl")):
        for field, width in (("ts", STAMP_BITS), ("tag", 16), ("valid", 1), ("ready", 1)):
            out = (letter == "m") != (field == "ready")
            pin = f"{letter}_axis_{place}_tx_cpl_{field}"
            top.part(pin, f"p{port}_{name}_{field}", out=out, width=width)


def _memory(top, ram, channel):
    widths = RAM_WIDTHS | {"data": RAM_BITS[ram], "strb": RAM_BITS[ram] // 8}
    for patterns, out in ((RAM_OUT, True), (RAM_IN, False)):
        for field in names(patterns):
            stem = field[2:] if field[:2] in ("aw", "ar") else field[1:]
            pin, width = f"m_axi_{ram}_{field}", widths.get(stem, 1)
            top.part(pin, f"ram{channel}_{field}", out=out, width=width)
    for what in ("clk", "rst"):
        top.part(f"{ram}_{what}", f"ram{channel}_{what}")


def _unused_tap(top, unused, n_ports):
    """Frames of a tap that the card is not at pass through."""
    for way in ("tx", "rx"):
        for field in ("tdata", "tvalid", "tuser", "tlast", "tkeep"):
            inner, outer = f"s_axis_{unused}_{way}_{field}", f"m_axis_{unused}_{way}_{field}"
            width = 4096 if field == "tdata" else 512
            top.wire(inner, width, f"{{{width // 32}{{noise}}}}")
            top.wire(outer, width)
            n_bits = {"tvalid": n_ports, "tlast": n_ports, "tuser": 17}.get(field, 8)
            top.holds.append(f"{outer}[{n_bits - 1}:0] === {inner}[{n_bits - 1}:0]")
        ready, given = f"s_axis_{unused}_{way}_tready", f"noise[{n_ports - 1}:0]"
        top.wire(ready, n_ports, holds=given)
        top.pins[ready.replace("s_axis", "m_axis")] = given


def _unused(top, memories):
    """What the card does not use asks for nothing."""
    for quiet in (
        *spelled("m_axil_ctrl_{aw,w,ar}valid"),
        *spelled("m_axis_{ctrl,data}_dma_{read,write}_desc_valid"),
        *(name for kind in memories for name in spelled(f"m_axi_{kind}_{{aw,w,ar}}valid")),
        "m_axis_stat_tvalid",
    ):
        top.wire(quiet, holds="1'b0")


def _dma(top):
    """Accesses of the DMA engine end."""
    for kind in ("ctrl", "data"):
        given = {"wr_cmd_valid": "noise[1:0]", "rd_cmd_valid": "noise[3:2]"}
        given["rd_resp_ready"] = "noise[5:4]"
        top.pins |= {f"{kind}_dma_ram_{pin}": value for pin, value in given.items()}
        for pin, value in (
            ("wr_cmd_ready", "2'b11"), ("wr_done", "noise[1:0]"),
            ("rd_cmd_ready", "noise[5:4]"), ("rd_resp_valid", "noise[3:2]"),
        ):  # fmt: skip
            top.wire(f"{kind}_dma_ram_{pin}", 2, holds=value)
