"""What stands between a card's frames and its core with host frames: taps, guard, merge, shares.

Plumbing: no golden model of its own; that of the port inside is
`gradnic.models.offload.host_port`.
"""

from amaranth.hdl import Module
from amaranth.lib import stream, wiring
from amaranth.lib.wiring import In, Out

from gradnic.interface.neighbor import STORE_BYTES

from ..axi.axis import Lite
from ..axi.lite_share import LiteShare
from ..frame.arbiter import FrameArbiter
from ..primitive.same import join
from ..stream.beats import FrameBeat
from .host_intake import LONGEST
from .host_neighbor import HostNeighbor
from .host_port import HostPort
from .host_tap import ByDestination, HostTap, Taken

FLOOR = 16  # beats of answers for 256 foreign ones, where both wait: 94 % of the line are foreign


class HostSide(wiring.Component):
    """`HostPort` and `HostNeighbor` in the ways of a card's frames, which cost all that is not for
    them 2 cycles from the host, 1 from the network and 1 to the host.

    Answers and the core's frames to the host share `host_rx` by beats where both wait; those of
    the neighbor share the port's part in the same way.

    Parameters
    ----------
    n_bytes, n_ports, meta_width, rx_meta_width : int
        Of the card's ports, which have beats as wide as its own.
    address_width, register_width, build : see `HostPort`
    tells : bool
        With `taken`: for shells that want to know what became of each frame of the host.

    Members
    -------
    ip : In(32)
        The card's for its host: it answers ARP and ICMP echo requests for it.
    answered, bad, overrun : Out(1), Out(2), Out(2)
        Pulses, and sums of pulses: such an answer has left; frames to the host address marked bad;
        without room.
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
    taken : Out(stream.Signature(Taken(meta_width)))
        See `HostTap`.
    """

    def __init__(
        self,
        n_bytes: int,
        n_ports: int,
        address_width: int,
        register_width: int,
        build: dict,
        *,
        meta_width: int = 0,
        rx_meta_width: int = 0,
        tells: bool = False,
    ) -> None:
        self.n_bytes, self.n_ports, self.tells = n_bytes, n_ports, tells
        self.meta_width, self.rx_meta_width = meta_width, rx_meta_width
        self.port = HostPort(n_bytes, address_width, register_width, build)
        sent = stream.Signature(FrameBeat(n_bytes, meta_width=meta_width))
        received = stream.Signature(FrameBeat(n_bytes, meta_width=rx_meta_width))
        members = self.port.signature.members
        self.own = {
            name: f"port_{name}"
            for name in members
            if name not in ("i", "o", "bus", "bad", "overrun")
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
                "ip": In(32),
                "answered": Out(1),
                "bad": Out(2),
                "overrun": Out(2),
                "bus": In(Lite(register_width)),
                "registers": Out(Lite(register_width)),
                **{outside: members[name] for name, outside in self.own.items()},
                **({"taken": Out(stream.Signature(Taken(meta_width)))} if tells else {}),
            }
        )

    def elaborate(self, platform):
        m = Module()
        m.submodules.port = port = self.port
        m.submodules.share = share = LiteShare(self.bus.signature.address_width)
        wiring.connect(m, wiring.flipped(self.bus), share.first)
        wiring.connect(m, port.bus, share.second)
        wiring.connect(m, share.o, wiring.flipped(self.registers))
        join(m, port, self, self.own, self.own)
        tap = HostTap(self.n_bytes, meta_width=self.meta_width, tells=self.tells)
        m.submodules.tap = tap
        m.submodules.neighbor = neighbor = HostNeighbor(self.n_bytes)
        for source, sink in (
            (wiring.flipped(self.host_tx), tap.i), (tap.others, wiring.flipped(self.core_tx)),
            (tap.port, port.i), (tap.requests, neighbor.i),
        ):  # fmt: skip
            wiring.connect(m, source, sink)
        m.d.comb += [
            *(part.mac.eq(self.port_mac) for part in (tap, neighbor)),
            *(part.ip.eq(self.ip) for part in (tap, neighbor)),
            self.answered.eq(neighbor.answered),
            self.bad.eq(port.bad + neighbor.bad),
            self.overrun.eq(port.overrun + neighbor.overrun),
        ]
        if self.tells:
            wiring.connect(m, tap.taken, wiring.flipped(self.taken))
        self._to_host(m, port.o, neighbor.o)
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

    def _to_host(self, m, events, answers):
        """Both shares of `host_rx`."""
        m.submodules.own = own = FrameArbiter(self.n_bytes, own_beats=STORE_BYTES // self.n_bytes)
        m.submodules.arbiter = arbiter = FrameArbiter(
            self.n_bytes, meta_width=self.rx_meta_width, own_beats=LONGEST // self.n_bytes
        )
        for source, sink in (
            (events, own.foreign), (answers, own.own),
            (wiring.flipped(self.core_rx), arbiter.foreign),
            (arbiter.o, wiring.flipped(self.host_rx)),
        ):  # fmt: skip
            wiring.connect(m, source, sink)
        m.d.comb += [
            own.floor.eq(FLOOR),
            arbiter.floor.eq(FLOOR),
            arbiter.own.valid.eq(own.o.valid),
            own.o.ready.eq(arbiter.own.ready),
            *(arbiter.own.p[name].eq(own.o.p[name]) for name in own.o.p.shape().members),
        ]
