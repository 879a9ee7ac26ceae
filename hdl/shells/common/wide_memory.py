"""A memory whose beats are wider than the card's: `gradnic.hdl.axi.wide` at each port.

Plumbing: no golden model of its own.
"""

from amaranth.hdl import Module
from amaranth.lib import wiring
from amaranth.lib.wiring import Out

from ...axi.axi4 import ReadPort, WritePort
from ...axi.wide import WideRead, WideWrite
from ...primitive.same import by_name
from .pass_on import pass_on


class WideMemory(wiring.Component):
    """A card with its memory ports as wide as the memory: `WideRead` and `WideWrite` at each.

    Parameters
    ----------
    card : wiring.Component
        With any ports, among them of `ReadPort` and `WritePort`.
    wide_bytes : int
        Bytes of a beat of the memory, more than the card's.

    Members
    -------
    The card's own, with wide memory ports.
    """

    def __init__(self, card: wiring.Component, wide_bytes: int) -> None:
        self.card = card
        self.parts, members = {}, {}
        for name, member in card.signature.members.items():
            signature = member.signature if member.is_signature else None
            if isinstance(signature, ReadPort | WritePort) and member.flow == Out:
                kind = WideRead if isinstance(signature, ReadPort) else WideWrite
                self.parts[name] = kind(signature, wide_bytes)
                member = Out(self.parts[name].o.signature)
            members[name] = member
        super().__init__(members)

    def elaborate(self, platform):
        m = Module()
        m.submodules.card = card = self.card
        inner, outer = by_name(card), by_name(self)
        for name, part in self.parts.items():
            m.submodules[name] = part
            wiring.connect(m, inner[name], part.i)
            wiring.connect(m, part.o, wiring.flipped(outer[name]))
        pass_on(m, card, self, but=self.parts)
        return m
