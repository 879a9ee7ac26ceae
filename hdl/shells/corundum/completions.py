"""Completions of frames that the card takes itself, among those of the MAC.

Corundum's transmit engine retires a descriptor when its tag comes back; a frame to the card's host
address never reaches the MAC, which would tell of it.

Plumbing: no golden model of its own.
"""

from amaranth.hdl import Module
from amaranth.lib import data, stream, wiring
from amaranth.lib.wiring import In, Out

from ...stream.slice import Slice
from ..common.pass_on import pass_on


def Completion(tag_bits: int, stamp_bits: int):
    """A frame has been sent. stamp : when, 0 for one that the card took."""
    return data.StructLayout({"tag": tag_bits, "stamp": stamp_bits})


class Completions(wiring.Component):
    """`card`, which says what it takes, with the completions of each of its ports: 1 cycle.

    Frames that the card took go first; both are taken at 1 a cycle in all.

    Parameters
    ----------
    card : wiring.Component
        With ``taken``, an array of streams whose side band is the tag.
    n_ports, stamp_bits : int

    Members
    -------
    The card's own but ``taken``, and
    mac_cpl, host_cpl : In, Out(stream.Signature(Completion(…))).array(n_ports)
        Of the MAC, and on to the host; host_cpl comes from registers.
    """

    def __init__(self, card: wiring.Component, n_ports: int, stamp_bits: int) -> None:
        self.card, self.n_ports = card, n_ports
        self.shape = Completion(len(card.taken[0].p.meta), stamp_bits)
        completion = stream.Signature(self.shape)
        members = {name: m for name, m in card.signature.members.items() if name != "taken"}
        super().__init__(
            members
            | {
                "mac_cpl": In(completion).array(n_ports),
                "host_cpl": Out(completion).array(n_ports),
            }
        )

    def elaborate(self, platform):
        m = Module()
        m.submodules.card = card = self.card
        pass_on(m, card, self, but=("taken",))
        for k in range(self.n_ports):
            m.submodules[f"cpl{k}"] = out = Slice(self.shape)
            taken, mac = card.taken[k], self.mac_cpl[k]
            m.d.comb += [
                out.i.valid.eq(taken.valid | mac.valid),
                out.i.p.eq(mac.p),
                taken.ready.eq(out.i.ready),
                mac.ready.eq(out.i.ready & ~taken.valid),
            ]
            with m.If(taken.valid):
                m.d.comb += [out.i.p.tag.eq(taken.p.meta), out.i.p.stamp.eq(0)]
            wiring.connect(m, out.o, wiring.flipped(self.host_cpl[k]))
        return m
