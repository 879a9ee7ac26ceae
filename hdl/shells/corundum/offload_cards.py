"""The offload card in Corundum's application block, with its memory on DDR or HBM.

Plumbing: no golden model of its own.
"""

from typing import Any

from gradnic.interface import params

from ...axi.ports import Top, members_of
from ...top import catalog as tops
from ..common.far_memory import FarMemory
from ..common.narrow_frames import NarrowFrames
from ..common.shared_memory import ONE, SharedMemory, memory_of, ports_of
from ..common.spread_memory import NAMES as FOUR_MEMORIES
from ..common.spread_memory import SpreadMemory
from ..common.wide_memory import WideMemory
from .app_block import PORTS
from .completions import Completions
from .inline_cards import (
    STAMP_BITS,
    TAG_BITS,
    completion,
    indented,
    instance,
    passes,
    registers,
    streams,
    tap_bits,
)
from .note import offload_note

BOARD_BITS = {"ddr": 512, "hbm": 256}  # of a beat, on all boards that have it
BURST_BEATS = 16  # as `gradnic.hdl.axi.bursts` cuts them


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

    def __init__(self, options: Any, parameters: params.Offload | params.Jobs) -> None:
        if options.tap != "sync":
            raise ValueError(f"tap must be sync for an offload card, not {options.tap!r}")
        if options.n_ports != 1:  # the card's own parameter says how many there are
            raise ValueError(f"n_ports must be the card's, not an option of {options!r}")
        self.hosted = isinstance(parameters, params.Jobs) and bool(parameters.host)
        card = tops.core(
            parameters, meta_width=TAG_BITS, rx_meta_width=STAMP_BITS,
            **({"tells": True} if self.hosted else {}),
        )  # fmt: skip
        self.parameters, self.n_ports = parameters, parameters.n_ports
        if self.hosted:
            card = Completions(card, self.n_ports, STAMP_BITS)
        self.card = card
        port_bits = 8 * (parameters.port_bytes or parameters.n_bytes)
        self.bits = tap_bits(options, port_bits)
        if self.bits != port_bits:
            card = NarrowFrames(card, self.bits // 8)
        self.ram, self.ram_bits = options.ram, options.ram_bits or BOARD_BITS[options.ram]
        self.stem = f"m_axi_{self.ram}_"
        self.drives: tuple[str, ...] = (self.stem,)
        if self.hosted:
            self.drives += ("m_axis_sync_tx_cpl_", "s_axis_sync_tx_cpl_")
        if self.ram_bits < 8 * parameters.n_bytes:
            raise ValueError(
                f"ram_bits must be at least the card's {8 * parameters.n_bytes}, "
                f"not {self.ram_bits!r}"
            )
        card = SharedMemory(card, one=options.channels == 1)
        self.memories: tuple[str, ...] = card.names
        if options.channels == 4:
            card, self.memories = SpreadMemory(card), FOUR_MEMORIES
        if self.ram_bits > 8 * parameters.n_bytes:
            card = WideMemory(card, self.ram_bits // 8)
        self.inner = Top(FarMemory(card, self.memories), self._docs(parameters))
        self.address_width = len(self.inner.s_axil.awaddr)

    def _docs(self, parameters):
        """What each member of the card is, with its memories as they are here."""
        there = dict(members_of(self.card))  # some are only with a codec
        docs = {name: doc for name, doc in tops.docs(parameters).items() if name in there}
        for k in range(self.n_ports if self.hosted else 0):
            docs[f"mac_cpl{k}"] = f"frames that the MAC has sent from port {k}"
            docs[f"host_cpl{k}"] = f"those, and frames that the card took at port {k}"
        for memory in self.memories:
            docs |= {f"{memory}_{what}": "of the memory" for what in ("clk", "rst")}
        ports = {port: docs.pop(port) for port in ports_of(self.card)}
        for way in ("read", "write"):
            for name in self.memories:  # a memory, half of one, or both
                ours = {
                    doc: None  # once each, in order
                    for port, doc in ports.items()
                    if port.endswith(way) and name.rstrip("01") in (memory_of(port), ONE)
                }
                docs[f"{name}_{way}"] = "; ".join(ours)
        return docs

    def window(self, k):
        """What the registers of card `k` are called."""
        return "the card"

    def note(self):
        """What the page says of the card."""
        return offload_note(self.parameters, self.ram, len(self.memories), self.ram_bits)

    @property
    def rules(self):
        """Parameters of the memory: (name, what is wrong, what it must be)."""
        width, ram, n = self.parameters.address_width, self.ram.upper(), len(self.memories)
        return (
            (f"{ram}_ENABLE", "== 0", "1, not %0d"),
            (f"{ram}_CH", f"< {n}", f"at least {n} (set channels), not %0d"),
            (f"AXI_{ram}_DATA_WIDTH", f"!= {self.ram_bits}", f"{self.ram_bits}, not %0d"),
            (f"AXI_{ram}_ADDR_WIDTH", f"< {width}", f"at least {width}, not %0d"),
            (f"AXI_{ram}_MAX_BURST_LEN", f"< {BURST_BEATS}", f"at least {BURST_BEATS}, not %0d"),
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
            if self.hosted:
                lines, wires = self._completions(k)
                statements += lines
                pins |= wires
        pins |= registers(self.bus, self.address_width, 0)
        pins["interrupt"] = "interrupt"
        for channel, memory in enumerate(self.memories):
            pins |= {f"{memory}_{what}": f"{self.ram}_{what}[{channel}]" for what in ("clk", "rst")}
        declared, memory_pins, assigned = self._memories()
        lines = [
            *statements,
            "wire interrupt; // the block has none to give: the host polls",
            "// Memory: gradient and result on the first channels, landing areas on the last.",
            *declared,
            *instance("gradnic_card", "card", pins | memory_pins),
            *assigned,
            "genvar k;",
            "generate for (k = N; k < PORT_COUNT; k = k + 1) begin : pass",
            *indented(passes("sync", completions=self.hosted), 1),
            "end endgenerate",
        ]
        return "\n".join(lines)

    @staticmethod
    def _completions(k):
        """Completions at port `k`, as (statements, {pin: wire}); the card's are the widest."""
        lines, pins = [], {}
        for letter, name in (("s", f"mac_cpl{k}"), ("m", f"host_cpl{k}")):
            ts, tag = (completion("sync", letter, field, k) for field in ("ts", "tag"))
            for field, bits in (("ts", STAMP_BITS), ("tag", TAG_BITS)):
                lines.append(f"wire [{bits - 1}:0] {name}_{field};")
            wires = f"{{{name}_ts, {name}_tag}}"
            pairs = ((f"{name}_ts", ts), (f"{name}_tag", tag))
            lines += [
                f"assign {a} = {b};" for a, b in (p if letter == "s" else p[::-1] for p in pairs)
            ]
            pins[f"{letter}_axis_{name}_tdata"] = wires
            for field in ("valid", "ready"):
                pins[f"{letter}_axis_{name}_t{field}"] = completion("sync", letter, field, k)
        return lines, pins

    def _memories(self):
        """The card's memory ports on their channels: (declarations, {pin: wire}, assignments)."""
        declared, pins, assigned = [], {}, []
        for port in PORTS:
            name = port.name.removeprefix(self.stem)
            if name == port.name:
                continue
            way = "read" if name.startswith(("ar", "r")) else "write"
            ours = [(f"m_axi_{memory}_{way}", memory) for memory in self.memories]
            members = self.inner.signature.members[ours[0][0]].signature.members
            width = port.width.removeprefix(f"{self.ram.upper()}_CH*") if "*" in port.width else "1"
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
            shifted = [f"{wire} << {k}*{width}" for k, wire in enumerate(wires)]
            assigned.append(f"assign {port.name} = {' | '.join(shifted)};")
        return declared, pins, assigned
