"""OpenNIC: the plugin of the 250 MHz box, cards on every port between host and MAC.

The shell wants a frame's size with its first beat and knows no bad frames: each stream towards it
goes through a `Sizer`. Registers come in the 125 MHz clock, frames in the 250 MHz clock. The box
has no memory, so that of an offload card is on the chip, in the clock of the frames.

Source: docs/spec/shells.md; open-nic-shell 940907f, 2025-01.

Plumbing: no golden model of its own.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from amaranth.hdl import Cat, ClockDomain, Const, DomainRenamer, Module, Signal
from amaranth.lib import wiring
from amaranth.lib.cdc import ResetSynchronizer
from amaranth.lib.wiring import In, Out

from gradnic.interface import card_memory, inline, params

from ...axi.axis import AxisReceiver
from ...axi.channel import Channel
from ...primitive.names import signals
from ...primitive.same import by_name
from ...top import catalog as tops
from ...top import verilog
from ..common import wide_ram
from ..common.crossing import CHANNELS, LiteCrossing
from ..common.fan import WINDOW_BITS, LiteFan
from ..common.shared_memory import SharedMemory
from .note import ADDRESS_MAP, ADDRESS_MAP_MODULE, BUILD, CROSSBAR, INSTANCE, note
from .onchip_card import OnChipCard
from .resets import ResetHandshake
from .sizer import SIZE_BITS, Sizer

MODULE = "gradnic_250mhz"
BITS = 512
BASE = 0x100000  # of the 250 MHz box in the shell's address map
ADDRESS_BITS = 20
SIDE_BITS = 16  # of tuser_src and tuser_dst
MEMORY_KIB = 1024  # 32 UltraRAM blocks
MOST_KIB = 8192  # each, 512 UltraRAM blocks in all: a U280 has 960
AWAY_CYCLES = 4  # of the registers' clock behind a reset, until the cards' clock is out of it, too
FIRST_MAC = 6  # bit of tuser_dst that means MAC port 0; PF 0 is bit 0
WIDTHS = {"addr": 32, "data": 32, "resp": 2}  # of the registers' channels: what the shell has
STREAMS = {  # of the box, and the card's that it feeds or that feeds it
    "s_axis_qdma_h2c": "host_tx",
    "m_axis_qdma_c2h": "host_rx",
    "m_axis_adap_tx_250mhz": "mac_tx",
    "s_axis_adap_rx_250mhz": "mac_rx",
}


def _ports(card):
    """[{stream: its interface}] of the ports of a card."""
    streams = {name: by_name(card)[name] for name in STREAMS.values()}
    if not card.signature.members["host_tx"].dimensions:
        return [streams]
    numbers = range(len(streams["host_tx"]))
    return [{name: ports[k] for name, ports in streams.items()} for k in numbers]


class Box(wiring.Component):
    """The plugin's module: cards behind the ports of the box, ports side by side in every vector.

    ``tuser_src`` stays with its frame. ``tuser_dst`` names the MAC port on the way out and the
    physical function on the way in; what comes in says the same and is not looked at, nor is its
    ``tuser_size``. Frames marked bad, those cut at 16 KiB, are dropped: the shell has no mark.

    Parameters
    ----------
    cards : list of wiring.Component
        With frame streams host_tx, mac_tx, mac_rx and host_rx with 16 bits of side band, of one
        port each, or arrays of several.
    windows : list of (int, Lite port)
        Where registers, and words of memory, stand from the box's base on.

    Members
    -------
    s_axil_* : In, Out
        AXI4-Lite without strobes and protection, in axil_aclk.
    s_axis_qdma_h2c_*, m_axis_qdma_c2h_*, m_axis_adap_tx_250mhz_*, s_axis_adap_rx_250mhz_* : In, Out
        tvalid, tdata, tkeep, tlast, tuser_size, tuser_src, tuser_dst and tready of all ports, in
        axis_aclk.
    mod_rstn, mod_rst_done : In(1), Out(1)
        The shell's reset handshake, in axil_aclk; see `ResetHandshake`.
    axil_aclk, axis_aclk : In(1)
    """

    def __init__(
        self, cards: Sequence[wiring.Component], windows: Sequence[tuple[int, Any]]
    ) -> None:
        self.cards = cards
        self.windows = windows
        self.ports = [port for card in cards for port in _ports(card)]
        self.n_bytes = len(self.ports[0]["host_tx"].p.keep)
        n = len(self.ports)
        members = {}
        for channel, (sent, names) in CHANNELS.items():
            way, back = (In, Out) if sent else (Out, In)
            for name in names:
                if name in WIDTHS:
                    members[f"s_axil_{channel}{name}"] = way(WIDTHS[name])
            members[f"s_axil_{channel}valid"] = way(1)
            members[f"s_axil_{channel}ready"] = back(1)
        fields = {"tvalid": 1, "tdata": 8 * self.n_bytes, "tkeep": self.n_bytes, "tlast": 1}
        fields |= {"tuser_size": SIZE_BITS, "tuser_src": SIDE_BITS, "tuser_dst": SIDE_BITS}
        for prefix in STREAMS:
            way, back = (In, Out) if prefix[0] == "s" else (Out, In)
            members |= {f"{prefix}_{name}": way(n * width) for name, width in fields.items()}
            members[f"{prefix}_tready"] = back(n)
        members |= {"mod_rstn": In(1, init=1), "mod_rst_done": Out(1)}
        super().__init__(members | {"axil_aclk": In(1), "axis_aclk": In(1)})
        self.vectors = by_name(self)

    def elaborate(self, platform):
        m = Module()
        m.domains += [axil := ClockDomain("axil"), axis := ClockDomain("sync")]
        handshake = ResetHandshake()
        m.d.comb += [
            axil.clk.eq(self.axil_aclk),
            axis.clk.eq(self.axis_aclk),
            axil.rst.eq(handshake.reset),
            handshake.rstn.eq(self.mod_rstn),
            self.mod_rst_done.eq(handshake.done),
        ]
        # The handshake runs in the clock of the registers, but is not reset by what it says.
        m.domains += (asking := ClockDomain("asking", reset_less=True))
        m.d.comb += asking.clk.eq(self.axil_aclk)
        m.submodules.handshake = DomainRenamer("asking")(handshake)
        m.submodules.reset = ResetSynchronizer(handshake.reset, domain="sync")

        self._registers(m, handshake)
        for k, card in enumerate(self.cards):
            m.submodules[f"card{k}"] = card
        for k, port in enumerate(self.ports):
            self._enter(m, k, "s_axis_qdma_h2c", port["host_tx"])
            self._leave(m, k, "m_axis_adap_tx_250mhz", port["mac_tx"], 1 << FIRST_MAC + k)
            self._enter(m, k, "s_axis_adap_rx_250mhz", port["mac_rx"])
            self._leave(m, k, "m_axis_qdma_c2h", port["host_rx"], 1 << k)
        return m

    def _registers(self, m, handshake):
        """Accesses that come in a reset wait for its end. One that is under way as it begins is
        answered, a read with 0, and a write is lost; as the first reset begins it is lost whole.
        """
        reset = handshake.reset
        was = Signal(AWAY_CYCLES)
        seen, away = signals("seen away")
        m.d.asking += [was.eq(Cat(reset, was)), seen.eq(seen | handshake.done)]
        m.domains += (answering := ClockDomain("answering"))
        m.d.comb += [
            answering.clk.eq(self.axil_aclk),
            answering.rst.eq(reset & ~seen),  # whatever was on the bus before
            away.eq(reset | was.any()),
        ]
        m.submodules.crossing = crossing = LiteCrossing(
            ADDRESS_BITS, i_domain="axil", o_domain="sync", answers="answering"
        )
        m.d.comb += crossing.away.eq(away)
        places = [(first, port.signature.address_width) for first, port in self.windows]
        m.submodules.fan = fan = LiteFan(places, address_width=ADDRESS_BITS)
        for channel, (sent, names) in CHANNELS.items():
            inner, outer = Channel(crossing.i, channel), Channel(self, f"s_axil_{channel}")
            names = [name for name in names if name in WIDTHS]
            source, target = (outer, inner) if sent else (inner, outer)
            waits = away if sent else Const(0, 1)
            m.d.comb += [
                *target.put(source, *names),
                target.valid.eq(source.valid & ~waits),
                source.ready.eq(target.ready & ~waits),
            ]
        m.d.comb += crossing.i.wstrb.eq(-1)  # the shell writes whole words
        wiring.connect(m, crossing.o, fan.i)
        for k, (_, port) in enumerate(self.windows):
            wiring.connect(m, fan.outs[k], port)

    def _of(self, prefix, name, k):
        whole = self.vectors[f"{prefix}_{name}"]
        return whole.word_select(k, len(whole) // len(self.ports))

    def _enter(self, m, k, prefix, target):
        entry = AxisReceiver(self.n_bytes, meta_width=SIDE_BITS)
        m.submodules[f"{prefix}{k}"] = entry
        m.d.comb += [
            entry.axis.tvalid.eq(self._of(prefix, "tvalid", k)),
            entry.axis.tdata.eq(self._of(prefix, "tdata", k)),
            entry.axis.tkeep.eq(self._of(prefix, "tkeep", k)),
            entry.axis.tlast.eq(self._of(prefix, "tlast", k)),
            entry.axis.tuser.eq(self._of(prefix, "tuser_src", k) << 1),
            self._of(prefix, "tready", k).eq(entry.axis.tready),
        ]
        wiring.connect(m, entry.o, target)

    def _leave(self, m, k, prefix, source, destination):
        exit = Sizer(self.n_bytes, 2 * inline.MAX_FRAME // self.n_bytes, meta_width=SIDE_BITS)
        m.submodules[f"{prefix}{k}"] = exit
        wiring.connect(m, source, exit.i)
        beat = exit.o.p
        m.d.comb += [
            self._of(prefix, "tvalid", k).eq(exit.o.valid),
            self._of(prefix, "tdata", k).eq(beat.data),
            self._of(prefix, "tkeep", k).eq(beat.keep),
            self._of(prefix, "tlast", k).eq(beat.last),
            self._of(prefix, "tuser_size", k).eq(beat.size),
            self._of(prefix, "tuser_src", k).eq(beat.meta),
            self._of(prefix, "tuser_dst", k).eq(destination),
            exit.o.ready.eq(self._of(prefix, "tready", k)),
        ]


@dataclass(frozen=True)
class OpenNic:
    """Options of the plugin.

    Attributes
    ----------
    n_ports : int
        MAC ports, each with a physical function and an in-line card: 1 or 2. An offload card says
        itself how many ports it has.
    memory_kib : int
        Of an offload card: KiB of its memory for gradient and result, and as many of its landing
        memory; a power of two, 4 to 8192.
    """

    n_ports: int = 1
    memory_kib: int = MEMORY_KIB

    def __post_init__(self):
        _check_ports(self.n_ports)
        kib = self.memory_kib
        if not 4 <= kib <= MOST_KIB or kib & (kib - 1):
            raise ValueError(f"memory_kib must be a power of two, 4 to {MOST_KIB}, not {kib!r}")

    def maps(self, parameters):
        """Register maps beside the card's."""
        return (card_memory.REGISTERS,) if isinstance(parameters, params.Offload) else ()

    def box(self, parameters):
        """The plugin's circuit; that of an offload card wants `wide_ram.VERILOG` beside it."""
        if not isinstance(parameters, params.Offload):
            if self.memory_kib != MEMORY_KIB:
                raise ValueError("memory_kib must be left out: an in-line card has no memory")
            cards = [tops.core(parameters, meta_width=SIDE_BITS) for _ in range(self.n_ports)]
            return Box(cards, [(k << WINDOW_BITS, card.bus) for k, card in enumerate(cards)])
        if self.n_ports != 1:  # the card's own parameter says how many there are
            raise ValueError(f"n_ports must be the card's, not an option of {self!r}")
        _check_ports(parameters.n_ports)
        card = SharedMemory(tops.core(parameters, meta_width=SIDE_BITS))
        card = OnChipCard(card, self.memory_kib)
        return Box([card], card.windows)

    def files(self, parameters, *, platform=None):
        """{file name: text} of a plugin folder around the cards that `parameters` describe."""
        box = self.box(parameters)
        if 8 * box.n_bytes != BITS:
            raise ValueError(f"the card must have {BITS} bits a beat, not {8 * box.n_bytes}")
        module = verilog.files(box, MODULE, platform=platform)
        if isinstance(parameters, params.Offload):
            module[f"{MODULE}.v"] += wide_ram.VERILOG
        return module | self.texts(box, parameters)

    def texts(self, box, parameters):
        """The files of the plugin folder beside the circuit's: includes, scripts, the note."""
        n = len(box.ports)
        kib = self.memory_kib if isinstance(box.cards[0], OnChipCard) else None
        jobs = parameters if isinstance(parameters, params.Jobs) else None
        return {
            "build_box_250mhz.tcl": BUILD.format(module=MODULE),
            "box_250mhz/box_250mhz_axi_crossbar.tcl": CROSSBAR,
            "box_250mhz/box_250mhz_address_map.v": ADDRESS_MAP_MODULE,
            "box_250mhz/box_250mhz_address_map_inst.vh": ADDRESS_MAP,
            "box_250mhz/user_plugin_250mhz_inst.vh": instance(box, n),
            f"{MODULE}.md": note(MODULE, n, BASE, kib=kib, jobs=jobs),
        }


def _check_ports(n_ports):
    if n_ports not in (1, 2):
        raise ValueError(f"n_ports must be 1 or 2, not {n_ports!r}")


def instance(box, n_ports):
    """What the box includes: the plugin's instance, and its part of the reset handshake."""
    pins = {"mod_rstn": "mod_rstn[0]", "mod_rst_done": "mod_rst_done[0]"}
    body = ",\n".join(f"  .{name} ({pins.get(name, name)})" for name in box.signature.members)
    return INSTANCE.format(module=MODULE, n=n_ports, pins=body)
