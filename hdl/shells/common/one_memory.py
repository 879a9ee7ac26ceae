"""A card whose memories are one: a channel for gradients and landing areas.

Plumbing: no golden model of its own.
"""

from amaranth.hdl import Module
from amaranth.lib import wiring
from amaranth.lib.wiring import Out

from gradnic.interface.card_memory import MEMORIES

from ...axi.share import ReadShare, WriteShare
from .pass_on import pass_on

NAME = "memory"


class OneMemory(wiring.Component):
    """An offload `card` with one port for reads and one for writes of all its memory.

    Each takes a burst of one memory, then one of the other, and a beat a cycle in all: reads and
    writes of landing areas share the channel's rate with those of gradient and result.

    Parameters
    ----------
    card : wiring.Component
        With ports ``x_read`` and ``x_write`` for each x of `MEMORIES`.

    Members
    -------
    The card's own, and memory_read, memory_write in place of those of its memories.
    """

    def __init__(self, card) -> None:
        self.card = card
        members = card.signature.members
        first = members[f"{MEMORIES[0]}_read"].signature
        sizes = first.n_bytes, first.address_width
        self.parts = {
            "read": ReadShare(*sizes, n=len(MEMORIES)),
            "write": WriteShare(*sizes, n=len(MEMORIES)),
        }
        merged = {f"{memory}_{way}" for memory in MEMORIES for way in self.parts}
        super().__init__(
            {name: member for name, member in members.items() if name not in merged}
            | {f"{NAME}_{way}": Out(p.port.signature) for way, p in self.parts.items()}
        )

    def elaborate(self, platform):
        m = Module()
        m.submodules.card = card = self.card
        for way, part in self.parts.items():
            m.submodules[way] = part
            for k, memory in enumerate(MEMORIES):
                wiring.connect(m, getattr(card, f"{memory}_{way}"), part.managers[k])
            wiring.connect(m, part.port, wiring.flipped(getattr(self, f"{NAME}_{way}")))
        pass_on(m, card, self, but=[f"{memory}_{way}" for memory in MEMORIES for way in self.parts])
        return m
