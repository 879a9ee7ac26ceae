"""The offload card in Corundum's application block, with its memory on two DDR channels.

Plumbing: no golden model of its own.
"""

from gradnic.interface.card_memory import MEMORIES

from ...axi.ports import Top
from ...top import catalog as tops
from ..common.far_memory import FarMemory
from ..common.wide_memory import WideMemory
from .app_block import PORTS
from .inline_cards import STAMP_BITS, TAG_BITS, indented, instance, passes, registers, streams
from .note import offload_note

BOARD_BITS = 512  # of a beat of DDR, on all boards with DDR
BURST_BEATS = 16  # as `gradnic.hdl.axi.dma` cuts them
DDR = "m_axi_ddr_"


class OffloadCards:
    """One offload card with all of its ports on the sync tap, from port 0 on.

    Parameters
    ----------
    options : Corundum
    parameters : gradnic.interface.params.Offload
        Its ``n_ports`` are ports of the tap.
    """

    n_cards = 1
    bus = "s_axil"
    drives = (DDR,)

    def __init__(self, options, parameters) -> None:
        if options.tap != "sync":
            raise ValueError(f"tap must be sync for an offload card, not {options.tap!r}")
        if options.n_ports != 1:  # the card's own parameter says how many there are
            raise ValueError(f"n_ports must be the card's, not an option of {options!r}")
        if parameters.port_bytes:
            raise ValueError(
                f"port_bytes must be 0 in Corundum, whose taps are {8 * parameters.n_bytes} bits "
                f"wide like the card, not {parameters.port_bytes!r}"
            )
        card = tops.core(parameters, meta_width=TAG_BITS, rx_meta_width=STAMP_BITS)
        self.parameters = parameters
        self.n_ports = parameters.n_ports
        self.bits = 8 * parameters.n_bytes
        self.ddr_bits = options.ddr_bits or BOARD_BITS
        if self.ddr_bits < self.bits:
            raise ValueError(
                f"ddr_bits must be at least the card's {self.bits}, not {self.ddr_bits!r}"
            )
        if self.ddr_bits > self.bits:
            card = WideMemory(card, self.ddr_bits // 8)
        clocks = {f"{memory}_{what}": "of the memory" for memory in MEMORIES
                  for what in ("clk", "rst")}  # fmt: skip
        self.inner = Top(FarMemory(card), tops.docs(parameters) | clocks)
        self.address_width = len(self.inner.s_axil.awaddr)

    def window(self, k):
        """What the registers of card `k` are called."""
        return "the card"

    def note(self):
        """What the page says of the card."""
        return offload_note(self.parameters, self.ddr_bits)

    @property
    def rules(self):
        """Parameters of the memory: (name, what is wrong, what it must be)."""
        width = self.parameters.address_width
        return (
            ("DDR_ENABLE", "== 0", "1 (HBM is not used), not %0d"),
            (
                "DDR_CH",
                f"< {len(MEMORIES)}",
                f"at least {len(MEMORIES)} (gradients, landings), not %0d",
            ),
            ("AXI_DDR_DATA_WIDTH", f"!= {self.ddr_bits}", f"{self.ddr_bits}, not %0d"),
            ("AXI_DDR_ADDR_WIDTH", f"< {width}", f"at least {width}, not %0d"),
            ("AXI_DDR_MAX_BURST_LEN", f"< {BURST_BEATS}", f"at least {BURST_BEATS}, not %0d"),
        )

    def verilog(self):
        """The card on the first N ports, its memory, and the other ports, which pass through."""
        statements, pins = [], {"clk": "clk", "rst": "rst"}
        for k in range(self.n_ports):
            lines, wires = streams(
                "sync",
                k,
                lambda name, sent, k=k: f"{'s' if sent else 'm'}_axis_{name}{k}",
                number=k,
            )
            statements += lines
            pins |= wires
        pins |= registers(self.bus, self.address_width, 0)
        pins["interrupt"] = "interrupt"
        for channel, memory in enumerate(MEMORIES):
            pins |= {f"{memory}_{what}": f"ddr_{what}[{channel}]" for what in ("clk", "rst")}
        declared, memory_pins, assigned = self._memories()
        lines = [
            *statements,
            "wire interrupt; // the block has none to give: the host polls",
            "// Memory: gradient and result on channel 0, landing areas on channel 1.",
            *declared,
            *instance("gradnic_card", "card", pins | memory_pins),
            *assigned,
            "genvar k;",
            "generate for (k = N; k < PORT_COUNT; k = k + 1) begin : pass",
            *indented(passes("sync"), 1),
            "end endgenerate",
        ]
        return "\n".join(lines)

    def _memories(self):
        """The card's memory ports on their channels: (declarations, {pin: wire}, assignments)."""
        declared, pins, assigned = [], {}, []
        for port in PORTS:
            name = port.name.removeprefix(DDR)
            if name == port.name:
                continue
            way = "read" if name.startswith(("ar", "r")) else "write"
            ours = [(f"m_axi_{memory}_{way}", memory) for memory in MEMORIES]
            members = self.inner.signature.members[ours[0][0]].signature.members
            width = port.width.removeprefix("DDR_CH*") if "*" in port.width else "1"
            n_bits = members[name].shape if name in members else 0
            if port.direction == "input":
                if n_bits:
                    pins |= {
                        f"{pin}_{name}": f"{port.name}[{channel}*{width} +: {n_bits}]"
                        for channel, (pin, _) in enumerate(ours)
                    }
                continue
            if not n_bits:
                assigned.append(f"assign {port.name} = 0;")
                continue
            wires = [f"{memory}_{name}" for _, memory in ours]
            declared.append(f"wire [{n_bits - 1}:0] {', '.join(wires)};")
            pins |= {f"{pin}_{name}": wire for (pin, _), wire in zip(ours, wires, strict=True)}
            assigned.append(f"assign {port.name} = {wires[1]} << {width} | {wires[0]};")
        return declared, pins, assigned
