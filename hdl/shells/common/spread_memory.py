"""A card whose memories have two channels each.

Plumbing: no golden model of its own.
"""

from amaranth.hdl import Module
from amaranth.lib import wiring
from amaranth.lib.wiring import Out

from gradnic.interface.card_memory import MEMORIES

from ...axi.spread import ReadSpread, WriteSpread
from ...primitive.same import by_name
from .pass_on import pass_on

N_CHANNELS = 2  # of each memory
NAMES = tuple(f"{memory}{k}" for memory in MEMORIES for k in range(N_CHANNELS))


class SpreadMemory(wiring.Component):
    """An offload `card` with ports for two channels in the place of each memory port.

    Bursts of 16 beats take turns between the channels, see `gradnic.hdl.axi.spread`, so that each
    has to give half of what the card asks.

    Parameters
    ----------
    card : wiring.Component
        With ports ``x_read`` and ``x_write`` for each x of `MEMORIES`.

    Members
    -------
    The card's own, and x0_read, x0_write, x1_read, x1_write in place of those of memory x.
    """

    def __init__(self, card: wiring.Component) -> None:
        self.card = card
        self.parts, members = {}, {}
        for name, member in card.signature.members.items():
            memory, _, way = name.rpartition("_")
            if memory not in MEMORIES:
                members[name] = member
                continue
            kind = ReadSpread if way == "read" else WriteSpread
            port = member.signature
            self.parts[name] = part = kind(port.n_bytes, port.address_width, n=N_CHANNELS)
            for k in range(N_CHANNELS):
                members[f"{memory}{k}_{way}"] = Out(part.ports[k].signature)
        super().__init__(members)

    def elaborate(self, platform):
        m = Module()
        m.submodules.card = card = self.card
        inner, outer = by_name(card), by_name(self)
        for name, part in self.parts.items():
            memory, _, way = name.rpartition("_")
            m.submodules[name] = part
            wiring.connect(m, inner[name], part.manager)
            for k in range(N_CHANNELS):
                wiring.connect(m, part.ports[k], wiring.flipped(outer[f"{memory}{k}_{way}"]))
        pass_on(m, card, self, but=self.parts)
        return m
