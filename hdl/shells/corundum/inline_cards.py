"""Cards in Corundum's application block: an in-line card on each port.

What stands here of streams and registers, the offload card shares.

Plumbing: no golden model of its own.
"""

from dataclasses import asdict, fields
from typing import Any

from gradnic.interface import params

from ...axi.ports import Top
from ...top import catalog as tops
from ..common.direct_tap import DirectTap
from ..common.narrow_frames import NarrowFrames
from .note import inline_note

TAG_BITS = 16  # of a frame sent
STAMP_BITS = 96  # PTP time of a frame received
MEMORY = ("ram", "channels", "ram_bits")  # options
TAPS = {"sync": "AXIS_SYNC", "direct": "AXIS"}
STREAMS = (  # of a card: name, whether the shell sends it, way
    ("host_tx", True, "tx"),
    ("mac_tx", False, "tx"),
    ("mac_rx", True, "rx"),
    ("host_rx", False, "rx"),
)
FIELDS = ("tdata", "tkeep", "tvalid", "tlast", "tuser")
LITE = {
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


def _place(tap, name, sent, way, field, k):
    """The part of a tap's vector that belongs to port `k`."""
    stem = TAPS[tap]
    width = {
        "tdata": f"{stem}_DATA_WIDTH",
        "tkeep": f"{stem}_KEEP_WIDTH",
        "tuser": f"{stem}_{way.upper()}_USER_WIDTH",
    }.get(field, "1")
    return f"{'s' if sent else 'm'}_axis_{tap}_{way}_{field}[{k}*{width} +: {width}]"


def streams(tap, k, inside, *, number: str = ""):
    """A card's streams at port `k` of a tap, as (statements, {pin: wire}).

    inside : function (stream, whether the shell sends it), the name of the card's port.
    number : at the end of the names of wires that are declared.
    """
    statements, pins = [], {}
    for name, sent, way in STREAMS:
        port = inside(name, sent)
        for field in FIELDS:
            place = _place(tap, name, sent, way, field, k)
            pins[f"{port}_{field}"] = place
            if field == "tuser":  # the card's is the widest
                widest = 1 + (TAG_BITS if way == "tx" else STAMP_BITS)
                pins[f"{port}_{field}"] = wire = f"{name}{number}_user"
                if sent:
                    statements.append(f"wire [{widest - 1}:0] {wire} = {place};")
                else:
                    statements += [f"wire [{widest - 1}:0] {wire};", f"assign {place} = {wire};"]
        letter = "s" if sent else "m"
        pins[f"{port}_tready"] = f"{letter}_axis_{tap}_{way}_tready[{k}]"
    return statements, pins


def registers(bus, address_width, k):
    """{pin: wire} of the registers of card `k`."""
    bits = {name: width or address_width for name, width in LITE.items()}
    return {f"{bus}_{name}": f"card_{name}[{k}*{width} +: {width}]" for name, width in bits.items()}


COMPLETION = {"ts": "PTP_TS_WIDTH", "tag": "TX_TAG_WIDTH", "valid": "1", "ready": "1"}


def completion(tap, letter, field, k):
    """The part of a tap's completions that belongs to port `k`. letter : "s" of the MAC, or "m"."""
    width = COMPLETION[field]
    return f"{letter}_axis_{tap}_tx_cpl_{field}[{k}*{width} +: {width}]"


def passes(tap, *, completions=False):
    """Statements that join the two sides of a tap at port k; completions : those of frames, too."""
    lines = []
    for field in COMPLETION if completions else ():
        target, source = "sm" if field == "ready" else "ms"
        places = (completion(tap, letter, field, "k") for letter in (target, source))
        lines.append(f"assign {' = '.join(places)};")
    for name, sent, way in STREAMS:
        if sent:
            other = f"m_axis_{tap}_{way}_tready[k]"
            lines.append(f"assign s_axis_{tap}_{way}_tready[k] = {other};")
            continue
        for field in FIELDS:
            place = _place(tap, name, False, way, field, "k")
            lines.append(f"assign {place} = {_place(tap, name, True, way, field, 'k')};")
    return lines


def instance(module, name, pins):
    """Lines of an instantiation."""
    body = [f"    .{pin}({wire})," for pin, wire in pins.items()]
    return [f"{module} {name} (", *body[:-1], body[-1][:-1], ");"]


def indented(lines, depth):
    """Verilog lines, `depth` levels deep."""
    return [" " * 4 * depth + line for line in lines]


def tap_bits(options, card_bits):
    """Bits of a beat at the tap, of `Corundum` and of the card's; ValueError if too many."""
    bits = options.bits or card_bits
    if bits > card_bits:
        raise ValueError(f"bits must be at most the card's {card_bits}, not {bits!r}")
    return bits


class InlineCards:
    """An in-line card on each port from 0 on, at either tap.

    Parameters
    ----------
    options : Corundum
    parameters : gradnic.interface.params.Inline
    """

    rules = ()  # for parameters, beyond those of the tap
    drives = ()  # what ports are called that it drives, beyond those of tap and registers

    def __init__(self, options: Any, parameters: params.Inline) -> None:
        left = {field.name: field.default for field in fields(options)}
        for name, chosen in asdict(options).items():
            if name in MEMORY and chosen != left[name]:
                raise ValueError(f"{name} must be left out: an in-line card has no memory")
        card = tops.core(parameters, meta_width=TAG_BITS, rx_meta_width=STAMP_BITS)
        self.tap = options.tap
        self.bits = tap_bits(options, len(card.host_tx.p.data))
        self.n_ports = self.n_cards = options.n_ports
        if self.tap == "direct":
            self.inner, self.bus = DirectTap(card, self.bits // 8), "bus"
            bus = self.inner.bus
        else:
            if self.bits != len(card.host_tx.p.data):
                card = NarrowFrames(card, self.bits // 8)
            self.inner, self.bus = Top(card, tops.docs(parameters)), "s_axil"
            bus = self.inner.s_axil
        self.address_width = len(bus.awaddr)

    def window(self, k):
        """What the registers of card `k` are called."""
        return f"card of port {k}"

    def note(self):
        """What the page says of these cards."""
        return inline_note(self.n_cards)

    def inside(self, name, sent):
        """A stream as the card calls it."""
        return name if self.tap == "direct" else f"{'s' if sent else 'm'}_axis_{name}"

    def verilog(self):
        """Cards on the first N ports; the others pass through."""
        statements, pins = streams(self.tap, "k", self.inside)
        clocks = {"clk": "clk", "rst": "rst"}
        if self.tap == "direct":
            clocks |= {
                f"{way}_{what}": f"direct_{way}_{what}[k]"
                for way in ("tx", "rx")
                for what in ("clk", "rst")
            }
        pins = clocks | pins | registers(self.bus, self.address_width, "k")
        lines = [
            "genvar k;",
            "generate for (k = 0; k < PORT_COUNT; k = k + 1) begin : port",
            "    if (k < N) begin : gradnic",
            *indented([*statements, *instance("gradnic_card", "card", pins)], 2),
            "    end else begin : pass",
            *indented(passes(self.tap), 2),
            "    end",
            "end endgenerate",
        ]
        return "\n".join(lines)
