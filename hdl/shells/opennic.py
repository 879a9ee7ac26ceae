"""OpenNIC: the plugin of the 250 MHz box, a card on every port between host and MAC.

The shell wants a frame's size with its first beat and knows no bad frames: each stream towards it
goes through a `Sizer`. Registers come in the 125 MHz clock, frames in the 250 MHz clock.

Source: shells.md section 3; open-nic-shell 940907f, 2025-01.
"""

from dataclasses import dataclass

from amaranth.hdl import ClockDomain, DomainRenamer, Module
from amaranth.lib import wiring
from amaranth.lib.cdc import ResetSynchronizer
from amaranth.lib.wiring import In, Out

from ... import inline, params
from .. import tops, verilog
from ..axi import AxisReceiver
from .crossing import CHANNELS, LiteCrossing
from .fan import LiteFan
from .opennic_note import ADDRESS_MAP, ADDRESS_MAP_MODULE, BUILD, CROSSBAR, INSTANCE, NOTE
from .resets import ResetHandshake
from .sizer import SIZE_BITS, Sizer

MODULE = "gradnic_250mhz"
BITS = 512
BASE = 0x200000  # of the box in the shell's address map
ADDRESS_BITS = 20
SIDE_BITS = 16  # of tuser_src and tuser_dst
FIRST_MAC = 6  # bit of tuser_dst that means MAC port 0; PF 0 is bit 0
STREAMS = {  # of the box, and the card's that it feeds or that feeds it
    "s_axis_qdma_h2c": "host_tx",
    "m_axis_qdma_c2h": "host_rx",
    "m_axis_adap_tx_250mhz": "mac_tx",
    "s_axis_adap_rx_250mhz": "mac_rx",
}


class Box(wiring.Component):
    """The plugin's module: cards behind the ports of the box, ports side by side in every vector.

    ``tuser_src`` stays with its frame. ``tuser_dst`` names the MAC port on the way out and the
    physical function on the way in; what comes in says the same and is not looked at, nor is its
    ``tuser_size``. Frames marked bad, those cut at 16 KiB, are dropped: the shell has no mark.

    Parameters
    ----------
    cards : list of wiring.Component
        With frame streams host_tx, mac_tx, mac_rx and host_rx with 16 bits of side band, and
        registers ``bus``.

    Members
    -------
    s_axil_* : In, Out
        AXI4-Lite without strobes and protection, in axil_aclk; a window of 4 KiB for each card.
    s_axis_qdma_h2c_*, m_axis_qdma_c2h_*, m_axis_adap_tx_250mhz_*, s_axis_adap_rx_250mhz_* : In, Out
        tvalid, tdata, tkeep, tlast, tuser_size, tuser_src, tuser_dst and tready of all ports, in
        axis_aclk.
    mod_rstn, mod_rst_done : In(1), Out(1)
        The shell's reset handshake, in axil_aclk; see `ResetHandshake`.
    axil_aclk, axis_aclk : In(1)
    """

    def __init__(self, cards):
        self.cards = cards
        self.n_bytes = cards[0].host_tx.p.shape().members["keep"]
        n = len(cards)
        members = {}
        for channel, (sent, names) in CHANNELS.items():
            way, back = (In, Out) if sent else (Out, In)
            for name in names:
                if name not in ("awprot", "arprot", "wstrb"):
                    width = {"addr": 32, "data": 32, "resp": 2}[name[-4:]]
                    members[f"s_axil_{name}"] = way(width)
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

        self._registers(m)
        for k, card in enumerate(self.cards):
            m.submodules[f"card{k}"] = card
            self._enter(m, k, "s_axis_qdma_h2c", card.host_tx)
            self._leave(m, k, "m_axis_adap_tx_250mhz", card.mac_tx, 1 << FIRST_MAC + k)
            self._enter(m, k, "s_axis_adap_rx_250mhz", card.mac_rx)
            self._leave(m, k, "m_axis_qdma_c2h", card.host_rx, 1 << k)
        return m

    def _registers(self, m):
        bus = self.cards[0].bus.signature
        m.submodules.crossing = crossing = LiteCrossing(
            ADDRESS_BITS, i_domain="axil", o_domain="sync"
        )
        m.submodules.fan = fan = LiteFan(
            len(self.cards), inner_width=bus.address_width, address_width=ADDRESS_BITS
        )
        for channel, (sent, names) in CHANNELS.items():
            valid, ready = f"{channel}valid", f"{channel}ready"
            for name in [*(n for n in names if hasattr(self, f"s_axil_{n}")), valid]:
                inner, outer = getattr(crossing.i, name), getattr(self, f"s_axil_{name}")
                m.d.comb += inner.eq(outer) if sent else outer.eq(inner)
            inner, outer = getattr(crossing.i, ready), getattr(self, f"s_axil_{ready}")
            m.d.comb += outer.eq(inner) if sent else inner.eq(outer)
        m.d.comb += crossing.i.wstrb.eq(-1)  # the shell writes whole words
        wiring.connect(m, crossing.o, fan.i)
        for k, card in enumerate(self.cards):
            wiring.connect(m, getattr(fan, f"o{k}"), card.bus)

    def _of(self, prefix, name, k):
        return getattr(self, f"{prefix}_{name}").word_select(
            k, len(getattr(self, f"{prefix}_{name}")) // len(self.cards)
        )

    def _enter(self, m, k, prefix, target):
        entry = AxisReceiver(self.n_bytes, meta_width=SIDE_BITS)
        m.submodules[f"{prefix}{k}"] = entry
        m.d.comb += [
            *(
                getattr(entry.axis, name).eq(self._of(prefix, name, k))
                for name in ("tvalid", "tdata", "tkeep", "tlast")
            ),
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
        MAC ports, each with a physical function and a card: 1 or 2.
    """

    n_ports: int = 1

    def __post_init__(self):
        if self.n_ports not in (1, 2):
            raise ValueError(f"n_ports must be 1 or 2, not {self.n_ports!r}")

    @property
    def maps(self):
        """Register maps beside the card's."""
        return ()

    def box(self, parameters):
        """The plugin's circuit."""
        return Box([tops.core(parameters, meta_width=SIDE_BITS) for _ in range(self.n_ports)])

    def files(self, parameters, *, platform=None):
        """{file name: text} of a plugin folder around the cards that `parameters` describe."""
        if not isinstance(parameters, params.Inline):
            raise ValueError(
                "opennic takes an in-line card, such as inline16: its box has no memory"
            )
        box = self.box(parameters)
        if 8 * box.n_bytes != BITS:
            raise ValueError(f"the card must have {BITS} bits a beat, not {8 * box.n_bytes}")
        module = verilog.convert(box, MODULE, platform=platform)
        return {f"{MODULE}.v": module, **self.texts(box)}

    def texts(self, box):
        """The files of the plugin folder beside the circuit's: includes, scripts, the note."""
        values = {"module": MODULE, "n": self.n_ports}
        windows = "".join(
            f"| 0x{BASE + 4096 * k:06x} | card of port {k} |\n" for k in range(self.n_ports)
        )
        return {
            "build_box_250mhz.tcl": BUILD.format(**values),
            "box_250mhz/box_250mhz_axi_crossbar.tcl": CROSSBAR,
            "box_250mhz/box_250mhz_address_map.v": ADDRESS_MAP_MODULE,
            "box_250mhz/box_250mhz_address_map_inst.vh": ADDRESS_MAP,
            "box_250mhz/user_plugin_250mhz_inst.vh": instance(box, self.n_ports),
            f"{MODULE}.md": NOTE.format(**values, windows=windows),
        }


def instance(box, n_ports):
    """What the box includes: the plugin's instance, and its part of the reset handshake."""
    pins = {"mod_rstn": "mod_rstn[0]", "mod_rst_done": "mod_rst_done[0]"}
    body = ",\n".join(f"  .{name} ({pins.get(name, name)})" for name in box.signature.members)
    return INSTANCE.format(module=MODULE, n=n_ports, pins=body)
