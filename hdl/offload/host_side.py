"""What stands between a card's frames and its core with host frames: taps, guard, merge, shares.

Plumbing: no golden model of its own; that of the port inside is
`gradnic.models.offload.host_port`.
"""

from amaranth.hdl import Module, Mux, Signal
from amaranth.lib import stream, wiring
from amaranth.lib.wiring import In, Out

from gradnic.interface.formats import ETHERNET

from ..axi.axis import Lite
from ..axi.lite_share import LiteShare
from ..frame.arbiter import FrameArbiter
from ..frame.head import Head
from ..stream.beats import FrameBeat
from ..stream.slice import Slice
from .host_intake import LONGEST
from .host_port import HostPort

FLOOR = 16  # beats of answers for 256 foreign ones, where both wait: 94 % of the line are foreign


class ByDestination(wiring.Component):
    """Frames to one MAC address apart from all others: 1 cycle, full rate, in their order.

    Parameters
    ----------
    n_bytes, meta_width : int
        Shape of the beats, see `FrameBeat`; at least 8 bytes.

    Members
    -------
    mac : In(48)
    i, others, mine : In, Out, Out(stream.Signature(FrameBeat(n_bytes, meta_width=meta_width)))
        Outputs come from registers.
    """

    def __init__(self, n_bytes: int, *, meta_width: int = 0) -> None:
        if n_bytes < 8:
            raise ValueError(f"n_bytes must be at least 8, not {n_bytes!r}")
        self.shape = FrameBeat(n_bytes, meta_width=meta_width)
        frames = stream.Signature(self.shape)
        super().__init__({"mac": In(48), "i": In(frames), "others": Out(frames),
                          "mine": Out(frames)})  # fmt: skip

    def elaborate(self, platform):
        m = Module()
        m.submodules.other_slice = others = Slice(self.shape)
        m.submodules.my_slice = mine = Slice(self.shape)
        wiring.connect(m, others.o, wiring.flipped(self.others))
        wiring.connect(m, mine.o, wiring.flipped(self.mine))
        inside, was_mine, is_mine = Signal(), Signal(), Signal()
        destination = Head(self.i.p.data).field(ETHERNET.destination)
        # the destination is in the first beat, and so are 6 bytes of it
        first = (destination == self.mac) & self.i.p.keep[ETHERNET.destination.stop - 1]
        m.d.comb += [
            is_mine.eq(Mux(inside, was_mine, first)),
            others.i.p.eq(self.i.p),
            mine.i.p.eq(self.i.p),
            others.i.valid.eq(self.i.valid & ~is_mine),
            mine.i.valid.eq(self.i.valid & is_mine),
            self.i.ready.eq(Mux(is_mine, mine.i.ready, others.i.ready)),
        ]
        with m.If(self.i.valid & self.i.ready):
            m.d.sync += [inside.eq(~self.i.p.last), was_mine.eq(is_mine)]
        return m


class HostSide(wiring.Component):
    """`HostPort` in the ways of a card's frames: 1 cycle more for all that is not for it.

    Answers and the core's frames to the host share `host_rx` by beats where both wait.

    Parameters
    ----------
    n_bytes, n_ports, meta_width, rx_meta_width : int
        Of the card's ports, which have beats as wide as its own.
    address_width, register_width, build : see `HostPort`

    Members
    -------
    port_<member of `HostPort` but i, o and bus> : as there
    host_tx, core_tx : In, Out
        Of port 0: from the host, and on to the core.
    core_rx, host_rx : In, Out
        Of port 0: from the core, and on to the host.
    mac_rx, from_network : In, Out; arrays of n_ports
        Without frames to the host address.
    spoofed : Out(n_ports)
        A pulse for each of those.
    bus, registers : In, Out(Lite(register_width))
        Of the shell, and on to the registers, which host frames reach, too.
    """

    def __init__(self, n_bytes, n_ports, address_width, register_width, build, *,
                 meta_width=0, rx_meta_width=0):  # fmt: skip
        self.n_bytes, self.n_ports = n_bytes, n_ports
        self.meta_width, self.rx_meta_width = meta_width, rx_meta_width
        self.port = HostPort(n_bytes, address_width, register_width, build)
        sent = stream.Signature(FrameBeat(n_bytes, meta_width=meta_width))
        received = stream.Signature(FrameBeat(n_bytes, meta_width=rx_meta_width))
        self.own = {
            f"port_{name}": (name, member)
            for name, member in self.port.signature.members.items()
            if name not in ("i", "o", "bus")
        }
        super().__init__(
            {
                "host_tx": In(sent),
                "core_tx": Out(sent),
                "core_rx": In(received),
                "host_rx": Out(received),
                "mac_rx": In(received).array(n_ports),
                "from_network": Out(received).array(n_ports),
                "spoofed": Out(n_ports),
                "bus": In(Lite(register_width)),
                "registers": Out(Lite(register_width)),
                **{name: member for name, (_, member) in self.own.items()},
            }
        )

    def elaborate(self, platform):
        m = Module()
        m.submodules.port = port = self.port
        m.submodules.share = share = LiteShare(self.bus.signature.address_width)
        wiring.connect(m, wiring.flipped(self.bus), share.first)
        wiring.connect(m, port.bus, share.second)
        wiring.connect(m, share.o, wiring.flipped(self.registers))
        for name, (inner, member) in self.own.items():
            outer, part = getattr(self, name), getattr(port, inner)
            if member.is_signature:
                wiring.connect(m, part, wiring.flipped(outer))
            elif member.flow == In:
                m.d.comb += part.eq(outer)
            else:
                m.d.comb += outer.eq(part)
        m.submodules.tap = tap = ByDestination(self.n_bytes, meta_width=self.meta_width)
        wiring.connect(m, wiring.flipped(self.host_tx), tap.i)
        wiring.connect(m, tap.others, wiring.flipped(self.core_tx))
        m.d.comb += [
            tap.mac.eq(self.port_mac),
            port.i.valid.eq(tap.mine.valid),
            tap.mine.ready.eq(port.i.ready),
            *(port.i.p[name].eq(tap.mine.p[name]) for name in port.i.p.shape().members),
        ]
        m.submodules.arbiter = arbiter = FrameArbiter(
            self.n_bytes, meta_width=self.rx_meta_width, own_beats=LONGEST // self.n_bytes
        )
        wiring.connect(m, wiring.flipped(self.core_rx), arbiter.foreign)
        wiring.connect(m, arbiter.o, wiring.flipped(self.host_rx))
        m.d.comb += [
            arbiter.floor.eq(FLOOR),
            arbiter.own.valid.eq(port.o.valid),
            port.o.ready.eq(arbiter.own.ready),
            *(arbiter.own.p[name].eq(port.o.p[name]) for name in port.o.p.shape().members),
        ]
        for k in range(self.n_ports):
            guard = ByDestination(self.n_bytes, meta_width=self.rx_meta_width)
            m.submodules[f"guard{k}"] = guard
            wiring.connect(m, wiring.flipped(self.mac_rx[k]), guard.i)
            wiring.connect(m, guard.others, wiring.flipped(self.from_network[k]))
            m.d.comb += [
                guard.mac.eq(self.port_mac),
                guard.mine.ready.eq(1),
                self.spoofed[k].eq(guard.mine.valid & guard.mine.p.last),
            ]
        return m
