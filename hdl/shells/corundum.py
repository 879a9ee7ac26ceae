"""Corundum: the application block, with a card on the ``sync`` or the ``direct`` tap.

The shell instantiates a Verilog module by name and sets its widths by parameters, so the wrapper is
Verilog with Corundum's whole list of parameters and ports around generated cards of one width. Tags
and time stamps ride with their frames as side band, so completions come back by themselves: a card
passes on every frame that its host sends, once, with its tag.

Source: shells.md section 1; corundum 1ca0151, 2023-12.
"""

from dataclasses import dataclass

from ...tap import REGISTERS
from .. import tops, verilog
from ..top import Top
from .corundum_note import note
from .corundum_ports import PARAMETERS, PORTS
from .direct_tap import DirectTap
from .fan import LiteFan

MODULE = "mqnic_app_block"
TAG_BITS = 16  # of a frame sent
STAMP_BITS = 96  # PTP time of a frame received
ADDRESS_BITS = 24  # of the application's registers, the widest that boards have
TAPS = {"sync": "AXIS_SYNC", "direct": "AXIS"}
STREAMS = (  # of a card: name, whether the shell sends it, way
    ("host_tx", True, "tx"),
    ("mac_tx", False, "tx"),
    ("mac_rx", True, "rx"),
    ("host_rx", False, "rx"),
)
FIELDS = ("tdata", "tkeep", "tvalid", "tlast", "tuser")


@dataclass(frozen=True)
class Corundum:
    """Options of the wrapper.

    Attributes
    ----------
    tap : str
        "sync", in the core's clock between main and asynchronous FIFO; or "direct", at the MAC.
    n_ports : int
        Ports with a card, 1 to 16, from port 0 on; the others pass through.
    app_id : int
        What the configuration must say: the driver finds the application by it.
    bits : int
        Direct tap: bits of a beat at the MAC, 64 to the card's; 0 is the card's. The sync tap has
        the card's width, 128 or 512 bits.
    """

    tap: str = "sync"
    n_ports: int = 1
    app_id: int = 0x67726E01
    bits: int = 0

    def __post_init__(self):
        if self.tap not in TAPS:
            raise ValueError(f"tap must be sync or direct, not {self.tap!r}")
        if not 1 <= self.n_ports <= 16:
            raise ValueError(f"n_ports must be 1 to 16, not {self.n_ports!r}")
        if not 0 < self.app_id < 1 << 32:
            raise ValueError(f"app_id must be 1 to {(1 << 32) - 1}, not {self.app_id!r}")
        if self.bits and self.tap == "sync":
            raise ValueError(f"bits must be 0 on the sync tap, not {self.bits!r}")

    @property
    def maps(self):
        """Register maps beside the card's."""
        return (REGISTERS,) if self.tap == "direct" else ()

    def files(self, parameters, *, platform=None):
        """{file name: text} around the card that `parameters` describe."""
        card = tops.core(parameters, meta_width=TAG_BITS, rx_meta_width=STAMP_BITS)
        bits = self.bits or len(card.host_tx.p.data)
        if self.tap == "direct":
            inner, bus = DirectTap(card, bits // 8), "bus"
        else:
            inner, bus = Top(card, tops.entry(parameters).members), "s_axil"
        address_width = len(getattr(inner, bus).awaddr)
        window_bits = max(12, address_width)
        fan = LiteFan(
            self.n_ports,
            inner_width=address_width,
            address_width=ADDRESS_BITS,
            window_bits=window_bits,
        )
        text = "\n".join(
            [
                self.wrapper(bits, address_width, bus),
                verilog.convert(inner, "gradnic_card", platform=platform),
                verilog.convert(fan, "gradnic_windows", platform=platform),
            ]
        )
        return {f"{MODULE}.v": text, f"{MODULE}.md": note(self, bits, window_bits)}

    def wrapper(self, bits, address_width, bus):
        """Verilog of the application block alone, for cards with beats of `bits` bits."""
        return "\n".join(
            [
                f"// Corundum application block with gradnic on the {self.tap} tap.",
                "// Waivers of Verilator -Wall, by name, each for what a whole port list brings.",
                "/* verilator lint_off DECLFILENAME */ // one file holds the wrapper and its parts",
                "/* verilator lint_off UNUSED */ // taps and parameters that this one leaves alone",
                "/* verilator lint_off WIDTH */ // side bands come in several widths",
                "`resetall",
                "`timescale 1ns / 1ps",
                "`default_nettype none",
                "",
                f"module {MODULE} #(",
                ",\n".join(f"    parameter {name} = {value}" for name, value in PARAMETERS),
                ") (",
                ",\n".join(_declare(port) for port in PORTS),
                ");",
                "",
                f"localparam N = {self.n_ports}; // cards, from port 0 on",
                "",
                self._checks(bits),
                "",
                "// What this application leaves alone: streams pass, memories take, masters rest.",
                *(f"assign {p.name} = {p.idle};" for p in PORTS if self._rests(p)),
                "",
                self._windows(address_width),
                "",
                self._cards(address_width, bus),
                "",
                "endmodule",
                "`resetall",
                "/* verilator lint_on UNUSED */",
                "",
            ]
        )

    def _rests(self, port):
        ours = (f"_{self.tap}_tx_t", f"_{self.tap}_rx_t")
        driven = any(part in port.name for part in ours) or port.name.startswith("s_axil_app")
        return port.direction == "output" and not driven

    def _checks(self, bits):
        stem, tag, stamp = TAPS[self.tap], TAG_BITS + 1, STAMP_BITS + 1
        rules = [  # parameter, what is wrong, what it must be
            ("APP_ID", f"!= 32'h{self.app_id:08x}", f"32'h{self.app_id:08x}, not %h"),
            (f"{stem}_DATA_WIDTH", f"!= {bits}", f"{bits}, not %0d"),
            ("PORT_COUNT", f"< {self.n_ports}", f"at least {self.n_ports}, not %0d"),
            (f"APP_AXIS_{self.tap.upper()}_ENABLE", "== 0", "1, not %0d"),
            ("AXIL_APP_CTRL_DATA_WIDTH", "!= 32", "32, not %0d"),
            (f"{stem}_TX_USER_WIDTH", f"> {tag}", f"at most {tag}, not %0d"),
            (f"{stem}_RX_USER_WIDTH", f"> {stamp}", f"at most {stamp}, not %0d"),
        ]
        lines = ["// check configuration", "initial begin"]
        for name, wrong, right in rules:
            lines += [
                f"    if ({name} {wrong}) begin",
                f'        $error("Error: {name} must be {right} (instance %m)", {name});',
                "        $finish;",
                "    end",
            ]
        return "\n".join([*lines, "end"])

    def _windows(self, address_width):
        """Registers: the window of each card, and their wires as vectors over the cards."""
        pins, wires = ["    .clk(clk)", "    .rst(rst)"], []
        for port in PORTS:
            name = port.name.removeprefix("s_axil_app_ctrl_")
            if name == port.name:
                continue
            pins.append(f"    .i_{name}({port.name})")
            width = _LITE[name] or address_width
            wires.append(f"wire [N*{width}-1:0] card_{name};")
            pins += [
                f"    .o{k}_{name}(card_{name}[{width * k} +: {width}])"
                for k in range(self.n_ports)
            ]
        body = ",\n".join(pins)
        return "\n".join([*wires, f"gradnic_windows windows (\n{body}\n);"])

    def _cards(self, address_width, bus):
        stem, tap = TAPS[self.tap], self.tap
        clocks = {"clk": "clk", "rst": "rst"}
        if tap == "direct":
            clocks |= {
                f"{way}_{what}": f"direct_{way}_{what}[k]"
                for way in ("tx", "rx")
                for what in ("clk", "rst")
            }
        pins = [f"            .{pin}({wire})" for pin, wire in clocks.items()]
        users, passes = [], []
        for name, sent, way in STREAMS:
            letter = "s" if sent else "m"
            inside = name if tap == "direct" else f"{letter}_axis_{name}"
            outside = f"{letter}_axis_{tap}_{way}"
            for field in FIELDS:
                width = {
                    "tdata": f"{stem}_DATA_WIDTH",
                    "tkeep": f"{stem}_KEEP_WIDTH",
                    "tuser": f"{stem}_{way.upper()}_USER_WIDTH",
                }.get(field, "1")
                place = f"{outside}_{field}[k*{width} +: {width}]"
                wire = place
                if field == "tuser":
                    widest = 1 + (TAG_BITS if way == "tx" else STAMP_BITS)
                    wire = f"{name}_user"
                    side = f"        wire [{widest - 1}:0] {wire}"
                    if sent:
                        users.append(f"{side} = {place};")
                    else:
                        users += [f"{side};", f"        assign {place} = {wire};"]
                pins.append(f"            .{inside}_{field}({wire})")
                if not sent:
                    other = f"s_axis_{tap}_{way}_{field}[k*{width} +: {width}]"
                    passes.append(f"        assign {place} = {other};")
            pins.append(f"            .{inside}_tready({outside}_tready[k])")
            if sent:
                other = f"m_axis_{tap}_{way}_tready[k]"
                passes.append(f"        assign {outside}_tready[k] = {other};")
        for name, width in _LITE.items():
            bits = width or address_width
            pins.append(f"            .{bus}_{name}(card_{name}[k*{bits} +: {bits}])")
        body = ",\n".join(pins)
        return "\n".join(
            [
                "genvar k;",
                "generate for (k = 0; k < PORT_COUNT; k = k + 1) begin : port",
                "    if (k < N) begin : gradnic",
                *users,
                f"        gradnic_card card (\n{body}\n        );",
                "    end else begin : pass",
                *passes,
                "    end",
                "end endgenerate",
            ]
        )


_LITE = {
    "awaddr": None,
    "awprot": 3,
    "awvalid": 1,
    "awready": 1,
    "wdata": 32,
    "wstrb": 4,
    "wvalid": 1,
    "wready": 1,
    "bresp": 2,
    "bvalid": 1,
    "bready": 1,
    "araddr": None,
    "arprot": 3,
    "arvalid": 1,
    "arready": 1,
    "rdata": 32,
    "rresp": 2,
    "rvalid": 1,
    "rready": 1,
}
"""Bits of each wire of AXI4-Lite; None: those of a card's address."""


def _declare(port):
    span = "" if port.width == "1" else f"[{port.width}-1:0] "
    return f"    {port.direction:6} wire {span}{port.name}"
