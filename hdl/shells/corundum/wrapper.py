"""Corundum: the application block, with cards on the ``sync`` or the ``direct`` tap.

The shell instantiates a Verilog module by name and sets its widths by parameters, so the wrapper is
Verilog with Corundum's whole list of parameters and ports around generated cards of one width. Tags
and time stamps ride with their frames as side band, so completions come back by themselves: a card
passes on every frame that its host sends, once, with its tag. Frames of a card's own have tag 0.

Source: docs/spec/shells.md; corundum 1ca0151, 2023-12.

Plumbing: no golden model of its own.
"""

from dataclasses import dataclass

from gradnic.interface import params
from gradnic.interface.params import check_range
from gradnic.interface.tap import REGISTERS

from ...top import verilog
from ..common.fan import WINDOW_BITS, LiteFan, side_by_side
from .app_block import PARAMETERS, PORTS
from .inline_cards import LITE, STAMP_BITS, TAG_BITS, TAPS, InlineCards
from .note import note
from .offload_cards import OffloadCards

MODULE = "mqnic_app_block"
ADDRESS_BITS = 24  # of the application's registers, the widest that boards have


@dataclass(frozen=True)
class Corundum:
    """Options of the wrapper.

    Attributes
    ----------
    tap : str
        "sync", in the core's clock between main and asynchronous FIFO; or "direct", at the MAC.
    n_ports : int
        Ports with an in-line card each, 1 to 16, from port 0 on; the others pass through. An
        offload card says itself how many ports it has.
    app_id : int
        What the configuration must say: the driver finds the application by it.
    bits : int
        Of a beat at the tap, 64 to the card's, a power of two; 0 is the card's. 64 on boards with
        10 Gb/s, 512 on those with 100 Gb/s.
    ram : str
        Offload card: "ddr" or "hbm", the board's memory that it uses.
    channels : int
        Of that memory: 2, for gradients and landing areas; 1 for both; or 4, two for each, which
        take turns by bursts of 16 beats of the card.
    ram_bits : int
        Bits of a beat of that memory, 128, 256 or 512, from the card's on; 0 is 512 of DDR and 256
        of HBM, as on all boards of that version.
    """

    tap: str = "sync"
    n_ports: int = 1
    app_id: int = 0x67726E01
    bits: int = 0
    ram: str = "ddr"
    channels: int = 2
    ram_bits: int = 0

    def __post_init__(self):
        if self.tap not in TAPS:
            raise ValueError(f"tap must be sync or direct, not {self.tap!r}")
        check_range("n_ports", self.n_ports, 1, 16)
        if not 0 < self.app_id < 1 << 32:
            raise ValueError(f"app_id must be 1 to {(1 << 32) - 1}, not {self.app_id!r}")
        if self.bits not in (0, 64, 128, 256, 512):
            raise ValueError(f"bits must be 64, 128, 256 or 512, not {self.bits!r}")
        if self.ram not in ("ddr", "hbm"):
            raise ValueError(f"ram must be ddr or hbm, not {self.ram!r}")
        if self.channels not in (1, 2, 4):
            raise ValueError(f"channels must be 1, 2 or 4, not {self.channels!r}")
        if self.ram_bits not in (0, 128, 256, 512):
            raise ValueError(f"ram_bits must be 128, 256 or 512, not {self.ram_bits!r}")

    def maps(self, parameters):
        """Register maps beside the card's."""
        return (REGISTERS,) if self.tap == "direct" else ()

    def files(self, parameters, *, platform=None):
        """{file name: text} around the card that `parameters` describe."""
        offload = isinstance(parameters, params.Offload)
        cards = (OffloadCards if offload else InlineCards)(self, parameters)
        window_bits = max(WINDOW_BITS, cards.address_width)
        card = verilog.files(cards.inner, "gradnic_card", platform=platform)
        text = "\n".join(
            [
                self.wrapper(cards),
                card.pop("gradnic_card.v"),
                verilog.convert(self.windows(cards), "gradnic_windows", platform=platform),
            ]
        )
        return {f"{MODULE}.v": text, **card, f"{MODULE}.md": note(self, cards, window_bits)}

    @staticmethod
    def windows(cards):
        """The fan of registers, a window a card."""
        window_bits = max(WINDOW_BITS, cards.address_width)
        windows = side_by_side(cards.n_cards, cards.address_width, window_bits=window_bits)
        return LiteFan(windows, address_width=ADDRESS_BITS)

    def wrapper(self, cards):
        """Verilog of the application block alone, around `InlineCards` or `OffloadCards`."""
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
                *_when("PARAMS", '`include "mqnic_app_custom_params.vh"'),
                *_when("PORTS", '`include "mqnic_app_custom_ports.vh"'),
                "",
                f"module {MODULE} #(",
                *_parameters(),
                ") (",
                *_when("PORTS", "`APP_CUSTOM_PORTS_DECL"),
                ",\n".join(_declare(port) for port in PORTS),
                ");",
                "",
                f"localparam N = {cards.n_ports}; // ports with a card, from port 0 on",
                "",
                self._checks(cards),
                "",
                "// What this application leaves alone: streams pass, memories take, masters rest.",
                *(f"assign {p.name} = {p.idle};" for p in PORTS if self._rests(p, cards)),
                "",
                self._windows(cards),
                "",
                cards.verilog(),
                "",
                "endmodule",
                "`resetall",
                "/* verilator lint_on UNUSED */",
                "",
            ]
        )

    def _rests(self, port, cards):
        ours = (f"_{self.tap}_tx_t", f"_{self.tap}_rx_t")
        driven = any(part in port.name for part in ours)
        driven |= port.name.startswith(("s_axil_app", *cards.drives))
        return port.direction == "output" and not driven

    def _checks(self, cards):
        stem, tag, stamp = TAPS[self.tap], TAG_BITS + 1, STAMP_BITS + 1
        rules = [  # parameter, what is wrong, what it must be
            ("APP_ID", f"!= 32'h{self.app_id:08x}", f"32'h{self.app_id:08x}, not %h"),
            (f"{stem}_DATA_WIDTH", f"!= {cards.bits}", f"{cards.bits}, not %0d"),
            ("PORT_COUNT", f"< {cards.n_ports}", f"at least {cards.n_ports}, not %0d"),
            (f"APP_AXIS_{self.tap.upper()}_ENABLE", "== 0", "1, not %0d"),
            ("AXIL_APP_CTRL_DATA_WIDTH", "!= 32", "32, not %0d"),
            (f"{stem}_TX_USER_WIDTH", f"> {tag}", f"at most {tag}, not %0d"),
            (f"{stem}_RX_USER_WIDTH", f"> {stamp}", f"at most {stamp}, not %0d"),
            *cards.rules,
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

    @staticmethod
    def _windows(cards):
        """Registers: the window of each card, and their wires as vectors over the cards."""
        pins, wires = ["    .clk(clk)", "    .rst(rst)"], []
        for port in PORTS:
            name = port.name.removeprefix("s_axil_app_ctrl_")
            if name == port.name:
                continue
            pins.append(f"    .i_{name}({port.name})")
            width = LITE[name] or cards.address_width
            wires.append(f"wire [{cards.n_cards}*{width}-1:0] card_{name};")
            pins += [
                f"    .o{k}_{name}(card_{name}[{width * k} +: {width}])"
                for k in range(cards.n_cards)
            ]
        body = ",\n".join(pins)
        return "\n".join([*wires, f"gradnic_windows windows (\n{body}\n);"])


def _when(kind, line):
    """A line for builds with parameters or ports of their own, which this application leaves alone.

    The shell's headers declare them, each with a comma behind it.
    """
    return [f"`ifdef APP_CUSTOM_{kind}_ENABLE", line, "`endif"]


def _parameters():
    """Those of the board's own follow the application's, as in the template."""
    lines = [f"    parameter {name} = {value}," for name, value in PARAMETERS]
    place = 1 + [name for name, _ in PARAMETERS].index("APP_GPIO_OUT_WIDTH")
    own = _when("PARAMS", "`APP_CUSTOM_PARAMS_DECL")
    return [*lines[:place], *own, *lines[place:-1], lines[-1].removesuffix(",")]


def _declare(port):
    span = "" if port.width == "1" else f"[{port.width}-1:0] "
    return f"    {port.direction:6} wire {span}{port.name}"
