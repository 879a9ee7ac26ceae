"""A card whose memory ports share those of the channels that it is given.

Plumbing: no golden model of its own.
"""

from amaranth.hdl import Module
from amaranth.lib import wiring
from amaranth.lib.wiring import Out

from gradnic.interface.card_memory import MEMORIES

from ...axi.axi4 import ReadPort, WritePort
from ...axi.share import ReadShare, WriteShare
from .pass_on import pass_on

ONE = "memory"
SHARES = {"read": ReadShare, "write": WriteShare}


def ports_of(card):
    """{name: signature} of the memory ports of a card: x_read and x_write, for some x."""
    members = {name: one.signature for name, one in card.signature.members.items()
               if one.is_signature}  # fmt: skip
    return {k: one for k, one in members.items() if isinstance(one, ReadPort | WritePort)}


def memory_of(port):
    """The one of `MEMORIES` that a memory port of a card works on, by its name: landing areas are
    apart; all else, passes of THC with their scratch and residuals, is where gradients are.
    """
    gradient, landing = MEMORIES
    return landing if port.startswith(landing) else gradient


class SharedMemory(wiring.Component):
    """An offload `card` with a port for reads and one for writes of each of its two memories.

    Ports of the card that work on the same memory take turns by bursts: a beat a cycle in all, each
    way. A memory with one port of the card has that port as it is.

    Parameters
    ----------
    card : wiring.Component
        With any memory ports of whole bursts: whoever asks takes what comes, and whoever gave an
        address gives its data.
    one : bool
        Both memories are one.

    Members
    -------
    The card's own, with x_read and x_write in place of its memory ports, for x "gradient" and
    "landing", or `ONE` alone.
    """

    def __init__(self, card, *, one: bool = False) -> None:
        self.card = card
        self.names = (ONE,) if one else MEMORIES
        inside = ports_of(card)
        self.sources = {
            f"{name}_{way}": [
                port for port in inside if port.endswith(way) and (one or memory_of(port) == name)
            ]
            for name in self.names
            for way in SHARES
        }
        members = {name: m for name, m in card.signature.members.items() if name not in inside}
        self.parts = {}
        for name, sources in self.sources.items():
            signature = inside[sources[0]]
            if len(sources) > 1:
                share = SHARES[name.rpartition("_")[2]]
                sizes = signature.n_bytes, signature.address_width
                self.parts[name] = share(*sizes, n=len(sources))
            members[name] = Out(signature)
        super().__init__(members)

    def elaborate(self, platform):
        m = Module()
        m.submodules.card = card = self.card
        for name, sources in self.sources.items():
            inner, outer = getattr(card, sources[0]), wiring.flipped(getattr(self, name))
            if name in self.parts:
                m.submodules[name] = part = self.parts[name]
                inner = part.port
                for k, source in enumerate(sources):
                    wiring.connect(m, getattr(card, source), part.managers[k])
            wiring.connect(m, inner, outer)
        pass_on(m, card, self, but=ports_of(card))
        return m
