"""Parameters and ports of Corundum's application block, as data.

Facts of the module that the shell instantiates by name (corundum 1ca0151, December 2023). A
parameter that a version lacks keeps its default here; one that a shell sets must exist. Outputs
say what drives them where the application does not use them: streams pass through, DMA memories
take everything, masters stay silent.

Plumbing: no golden model of its own.
"""

from dataclasses import dataclass

PARAMETERS = (
    ("IF_COUNT", "1"),
    ("PORTS_PER_IF", "1"),
    ("SCHED_PER_IF", "PORTS_PER_IF"),
    ("PORT_COUNT", "IF_COUNT*PORTS_PER_IF"),
    ("CLK_PERIOD_NS_NUM", "4"),
    ("CLK_PERIOD_NS_DENOM", "1"),
    ("PTP_CLK_PERIOD_NS_NUM", "4"),
    ("PTP_CLK_PERIOD_NS_DENOM", "1"),
    ("PTP_USE_SAMPLE_CLOCK", "0"),
    ("PTP_PORT_CDC_PIPELINE", "0"),
    ("PTP_PEROUT_ENABLE", "0"),
    ("PTP_PEROUT_COUNT", "1"),
    ("PTP_TS_ENABLE", "1"),
    ("PTP_TS_FMT_TOD", "1"),
    ("PTP_TS_WIDTH", "PTP_TS_FMT_TOD ? 96 : 64"),
    ("TX_TAG_WIDTH", "16"),
    ("MAX_TX_SIZE", "9214"),
    ("MAX_RX_SIZE", "9214"),
    *(
        (name, default)
        for ram, channels, data, address in (("DDR", 1, 256, 32), ("HBM", 1, 256, 32))
        for name, default in (
            (f"{ram}_CH", str(channels)),
            (f"{ram}_ENABLE", "0"),
            (f"{ram}_GROUP_SIZE", "1"),
            (f"AXI_{ram}_DATA_WIDTH", str(data)),
            (f"AXI_{ram}_ADDR_WIDTH", str(address)),
            (f"AXI_{ram}_STRB_WIDTH", f"AXI_{ram}_DATA_WIDTH/8"),
            (f"AXI_{ram}_ID_WIDTH", "8"),
            *(
                pair
                for user in ("AWUSER", "WUSER", "BUSER", "ARUSER", "RUSER")
                for pair in (
                    (f"AXI_{ram}_{user}_ENABLE", "0"),
                    (f"AXI_{ram}_{user}_WIDTH", "1"),
                )
            ),
            (f"AXI_{ram}_MAX_BURST_LEN", "256"),
            (f"AXI_{ram}_NARROW_BURST", "0"),
            (f"AXI_{ram}_FIXED_BURST", "0"),
            (f"AXI_{ram}_WRAP_BURST", "0"),
        )
    ),
    ("APP_ID", "32'h00000000"),
    ("APP_CTRL_ENABLE", "1"),
    ("APP_DMA_ENABLE", "1"),
    ("APP_AXIS_DIRECT_ENABLE", "1"),
    ("APP_AXIS_SYNC_ENABLE", "1"),
    ("APP_AXIS_IF_ENABLE", "1"),
    ("APP_STAT_ENABLE", "1"),
    ("APP_GPIO_IN_WIDTH", "32"),
    ("APP_GPIO_OUT_WIDTH", "32"),
    ("DMA_ADDR_WIDTH", "64"),
    ("DMA_IMM_ENABLE", "0"),
    ("DMA_IMM_WIDTH", "32"),
    ("DMA_LEN_WIDTH", "16"),
    ("DMA_TAG_WIDTH", "16"),
    ("RAM_SEL_WIDTH", "4"),
    ("RAM_ADDR_WIDTH", "16"),
    ("RAM_SEG_COUNT", "2"),
    ("RAM_SEG_DATA_WIDTH", "256*2/RAM_SEG_COUNT"),
    ("RAM_SEG_BE_WIDTH", "RAM_SEG_DATA_WIDTH/8"),
    ("RAM_SEG_ADDR_WIDTH", "RAM_ADDR_WIDTH-$clog2(RAM_SEG_COUNT*RAM_SEG_BE_WIDTH)"),
    ("RAM_PIPELINE", "2"),
    ("AXIL_APP_CTRL_DATA_WIDTH", "32"),
    ("AXIL_APP_CTRL_ADDR_WIDTH", "16"),
    ("AXIL_APP_CTRL_STRB_WIDTH", "AXIL_APP_CTRL_DATA_WIDTH/8"),
    ("AXIL_CTRL_DATA_WIDTH", "32"),
    ("AXIL_CTRL_ADDR_WIDTH", "16"),
    ("AXIL_CTRL_STRB_WIDTH", "AXIL_CTRL_DATA_WIDTH/8"),
    ("AXIS_DATA_WIDTH", "512"),
    ("AXIS_KEEP_WIDTH", "AXIS_DATA_WIDTH/8"),
    ("AXIS_TX_USER_WIDTH", "TX_TAG_WIDTH + 1"),
    ("AXIS_RX_USER_WIDTH", "(PTP_TS_ENABLE ? PTP_TS_WIDTH : 0) + 1"),
    ("AXIS_RX_USE_READY", "0"),
    ("AXIS_SYNC_DATA_WIDTH", "AXIS_DATA_WIDTH"),
    ("AXIS_SYNC_KEEP_WIDTH", "AXIS_SYNC_DATA_WIDTH/8"),
    ("AXIS_SYNC_TX_USER_WIDTH", "AXIS_TX_USER_WIDTH"),
    ("AXIS_SYNC_RX_USER_WIDTH", "AXIS_RX_USER_WIDTH"),
    ("AXIS_IF_DATA_WIDTH", "AXIS_SYNC_DATA_WIDTH*2**$clog2(PORTS_PER_IF)"),
    ("AXIS_IF_KEEP_WIDTH", "AXIS_IF_DATA_WIDTH/8"),
    ("AXIS_IF_TX_ID_WIDTH", "12"),
    ("AXIS_IF_RX_ID_WIDTH", "PORTS_PER_IF > 1 ? $clog2(PORTS_PER_IF) : 1"),
    ("AXIS_IF_TX_DEST_WIDTH", "$clog2(PORTS_PER_IF)+4"),
    ("AXIS_IF_RX_DEST_WIDTH", "8"),
    ("AXIS_IF_TX_USER_WIDTH", "AXIS_SYNC_TX_USER_WIDTH"),
    ("AXIS_IF_RX_USER_WIDTH", "AXIS_SYNC_RX_USER_WIDTH"),
    ("STAT_ENABLE", "1"),
    ("STAT_INC_WIDTH", "24"),
    ("STAT_ID_WIDTH", "12"),
)


@dataclass(frozen=True)
class Port:
    """One port: `direction`, `width` as a Verilog expression, and for outputs the driver `idle`."""

    direction: str
    width: str
    name: str
    idle: str = ""


def _in(width, *names):
    return [Port("input", str(width), name) for name in names]


def _out(width, *names, idle="0"):
    return [Port("output", str(width), name, idle) for name in names]


def _lite(name, stem, *, inward):
    """AXI4-Lite; a subordinate's outputs are driven by the application."""
    here, there = (_in, _out) if inward else (_out, _in)
    address, data, strobe = (f"{stem}_{what}_WIDTH" for what in ("ADDR", "DATA", "STRB"))
    ready = {} if inward else {"idle": "1"}
    return [
        *(p for c in ("aw", "ar") for p in here(address, f"{name}_{c}addr")),
        *(p for c in ("aw", "ar") for p in here(3, f"{name}_{c}prot")),
        *here(data, f"{name}_wdata"),
        *here(strobe, f"{name}_wstrb"),
        *(p for c in ("aw", "w", "ar") for p in here(1, f"{name}_{c}valid")),
        *(p for c in ("aw", "w", "ar") for p in there(1, f"{name}_{c}ready")),
        *there(2, f"{name}_bresp", f"{name}_rresp"),
        *there(data, f"{name}_rdata"),
        *there(1, f"{name}_bvalid", f"{name}_rvalid"),
        *here(1, f"{name}_bready", f"{name}_rready", **ready),
    ]


def _dma(kind):
    """Descriptors and statuses of one priority of the DMA engine, and the memory it sees."""
    ports = []
    for way in ("read", "write"):
        stem = f"{kind}_dma_{way}_desc"
        ports += _out("DMA_ADDR_WIDTH", f"m_axis_{stem}_dma_addr")
        ports += _out("RAM_SEL_WIDTH", f"m_axis_{stem}_ram_sel")
        ports += _out("RAM_ADDR_WIDTH", f"m_axis_{stem}_ram_addr")
        if way == "write":
            ports += _out("DMA_IMM_WIDTH", f"m_axis_{stem}_imm")
            ports += _out(1, f"m_axis_{stem}_imm_en")
        ports += _out("DMA_LEN_WIDTH", f"m_axis_{stem}_len")
        ports += _out("DMA_TAG_WIDTH", f"m_axis_{stem}_tag")
        ports += _out(1, f"m_axis_{stem}_valid")
        ports += _in(1, f"m_axis_{stem}_ready")
        ports += _in("DMA_TAG_WIDTH", f"s_axis_{stem}_status_tag")
        ports += _in(4, f"s_axis_{stem}_status_error")
        ports += _in(1, f"s_axis_{stem}_status_valid")
    ram, segments = f"{kind}_dma_ram", "RAM_SEG_COUNT"
    for way, fields in (
        ("wr", (("sel", "SEL"), ("be", "SEG_BE"), ("addr", "SEG_ADDR"), ("data", "SEG_DATA"))),
        ("rd", (("sel", "SEL"), ("addr", "SEG_ADDR"))),
    ):
        for name, width in fields:
            ports += _in(f"{segments}*RAM_{width}_WIDTH", f"{ram}_{way}_cmd_{name}")
        ports += _in(segments, f"{ram}_{way}_cmd_valid")
    every = f"{{{segments}{{1'b1}}}}"
    ports += _out(segments, f"{ram}_wr_cmd_ready", idle=every)
    ports += _out(segments, f"{ram}_wr_done", idle=f"{ram}_wr_cmd_valid")
    ports += _out(segments, f"{ram}_rd_cmd_ready", idle=f"{ram}_rd_resp_ready")
    ports += _out(f"{segments}*RAM_SEG_DATA_WIDTH", f"{ram}_rd_resp_data")
    ports += _out(segments, f"{ram}_rd_resp_valid", idle=f"{ram}_rd_cmd_valid")
    ports += _in(segments, f"{ram}_rd_resp_ready")
    return ports


def _pair(count, name, fields):
    """A pass-through pair of streams: fields as (name, width of one)."""
    ports = []
    for field, width in fields:
        whole = count if width == "1" else f"{count}*{width}"
        inside, outside = f"s_axis_{name}_{field}", f"m_axis_{name}_{field}"
        if field.endswith("ready"):
            ports += [*_out(whole, inside, idle=outside), *_in(whole, outside)]
        else:
            ports += [*_in(whole, inside), *_out(whole, outside, idle=inside)]
    return ports


def _tap(tap, count, stem):
    """Send, completion and receive streams of one tap."""
    ports = []
    for way in ("tx", "rx"):
        extra = []
        if tap == "if":
            extra = [("tid", f"{stem}_{way.upper()}_ID_WIDTH")]
            extra += [("tdest", f"{stem}_{way.upper()}_DEST_WIDTH")]
        ports += _pair(
            count,
            f"{tap}_{way}",
            [
                ("tdata", f"{stem}_DATA_WIDTH"),
                ("tkeep", f"{stem}_KEEP_WIDTH"),
                ("tvalid", "1"),
                ("tready", "1"),
                ("tlast", "1"),
                *extra,
                ("tuser", f"{stem}_{way.upper()}_USER_WIDTH"),
            ],
        )
        if way == "tx":
            completion = [("ts", "PTP_TS_WIDTH"), ("tag", "TX_TAG_WIDTH")]
            completion += [("valid", "1"), ("ready", "1")]
            ports += _pair(count, f"{tap}_tx_cpl", completion)
    return ports


def _memory(ram):
    """AXI4 managers, one a channel, each with its own clock."""
    stem, low = f"AXI_{ram}", ram.lower()
    count = f"{ram}_CH"
    bus = f"m_axi_{low}"

    def many(width):
        return f"{count}*{width}"

    ports = _in(count, f"{low}_clk", f"{low}_rst")
    for c in ("aw", "ar"):
        ports += _out(many(f"{stem}_ID_WIDTH"), f"{bus}_{c}id")
        ports += _out(many(f"{stem}_ADDR_WIDTH"), f"{bus}_{c}addr")
        for field, bits in (("len", 8), ("size", 3), ("burst", 2), ("cache", 4), ("prot", 3)):
            ports += _out(many(bits), f"{bus}_{c}{field}")
        ports += _out(many(4), f"{bus}_{c}qos")
        ports += _out(count, f"{bus}_{c}lock", f"{bus}_{c}valid")
        ports += _out(many(f"{stem}_{c.upper()}USER_WIDTH"), f"{bus}_{c}user")
        ports += _in(count, f"{bus}_{c}ready")
    ports += _out(many(f"{stem}_DATA_WIDTH"), f"{bus}_wdata")
    ports += _out(many(f"{stem}_STRB_WIDTH"), f"{bus}_wstrb")
    ports += _out(many(f"{stem}_WUSER_WIDTH"), f"{bus}_wuser")
    ports += _out(count, f"{bus}_wlast", f"{bus}_wvalid", f"{bus}_bready", f"{bus}_rready")
    ports += _in(count, f"{bus}_wready", f"{bus}_bvalid", f"{bus}_rvalid", f"{bus}_rlast")
    for c in ("b", "r"):
        ports += _in(many(f"{stem}_ID_WIDTH"), f"{bus}_{c}id")
        ports += _in(many(2), f"{bus}_{c}resp")
        ports += _in(many(f"{stem}_{c.upper()}USER_WIDTH"), f"{bus}_{c}user")
    ports += _in(many(f"{stem}_DATA_WIDTH"), f"{bus}_rdata")
    return [*ports, *_in(count, f"{low}_status")]


PORTS = (
    *_in(1, "clk", "rst"),
    *_lite("s_axil_app_ctrl", "AXIL_APP_CTRL", inward=True),
    *_lite("m_axil_ctrl", "AXIL_CTRL", inward=False),
    *_dma("ctrl"),
    *_dma("data"),
    *_in(1, "ptp_clk", "ptp_rst", "ptp_sample_clk", "ptp_td_sd", "ptp_pps", "ptp_pps_str"),
    *_in(1, "ptp_sync_locked", "ptp_sync_ts_rel_step", "ptp_sync_ts_tod_step"),
    *_in(1, "ptp_sync_pps", "ptp_sync_pps_str"),
    *_in(64, "ptp_sync_ts_rel"),
    *_in(97, "ptp_sync_ts_tod"),
    *_in("PTP_PEROUT_COUNT", "ptp_perout_locked", "ptp_perout_error", "ptp_perout_pulse"),
    *_in("PORT_COUNT", "direct_tx_clk", "direct_tx_rst", "direct_rx_clk", "direct_rx_rst"),
    *_tap("direct", "PORT_COUNT", "AXIS"),
    *_tap("sync", "PORT_COUNT", "AXIS_SYNC"),
    *_tap("if", "IF_COUNT", "AXIS_IF"),
    *_memory("DDR"),
    *_memory("HBM"),
    *_out("STAT_INC_WIDTH", "m_axis_stat_tdata"),
    *_out("STAT_ID_WIDTH", "m_axis_stat_tid"),
    *_out(1, "m_axis_stat_tvalid"),
    *_in(1, "m_axis_stat_tready"),
    *_in("APP_GPIO_IN_WIDTH", "gpio_in"),
    *_out("APP_GPIO_OUT_WIDTH", "gpio_out"),
    *_in(1, "jtag_tdi", "jtag_tms", "jtag_tck"),
    *_out(1, "jtag_tdo", idle="jtag_tdi"),
)
