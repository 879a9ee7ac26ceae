"""A card whose memories run in clocks of their own.

Plumbing: no golden model of its own.
"""

from collections.abc import Sequence

from amaranth.hdl import ClockDomain, ClockSignal, Module, ResetSignal
from amaranth.lib import wiring
from amaranth.lib.cdc import ResetSynchronizer
from amaranth.lib.wiring import In

from gradnic.interface.card_memory import MEMORIES

from ...primitive.same import by_name
from .crossing import MemoryCrossing
from .pass_on import pass_on

WAYS = ("read", "write")


class FarMemory(wiring.Component):
    """An offload `card` with a clock for each of its memories.

    Each channel of a port goes through a `Crossing`: 1 beat per cycle of the slower clock, and
    about 4 cycles of either more each way. While a memory is in reset the card's accesses to it
    wait, and frames that are not ours pass as ever. Those under way when a reset begins are lost,
    and the round with them: the card is to be reset, too. A reset of the card alone, while
    accesses are under way, leaves answers that it does not expect: the memories are to be reset,
    too.

    Parameters
    ----------
    card : wiring.Component
        With ports ``x_read`` and ``x_write`` for each x of `memories`.
    memories : sequence of str
        Default `MEMORIES`: gradient and landing.

    Members
    -------
    The card's own, with its memory ports in the clocks of the memories, and
    x_clk, x_rst : In(1), for each x of `memories`
    """

    def __init__(self, card: wiring.Component, memories: Sequence[str] = MEMORIES) -> None:
        self.card, self.memories = card, memories
        clocks = {f"{memory}_{what}": In(1) for memory in memories for what in ("clk", "rst")}
        super().__init__({**card.signature.members, **clocks})

    def elaborate(self, platform):
        m = Module()
        m.submodules.card = card = self.card
        crossed = [f"{memory}_{way}" for memory in self.memories for way in WAYS]
        pass_on(m, card, self, but=crossed)
        for memory in self.memories:
            self._cross(m, memory)
        return m

    def _cross(self, m, memory):
        """The ports of one memory; either reset resets both sides of the crossings."""
        inner, outer = by_name(self.card), by_name(self)
        reset = ResetSignal("sync") | outer[f"{memory}_rst"]
        domains = {f"{memory}_near": ClockSignal("sync"), memory: outer[f"{memory}_clk"]}
        for name, clock in domains.items():
            m.domains += (domain := ClockDomain(name))
            m.d.comb += domain.clk.eq(clock)
            m.submodules[f"{name}_reset"] = ResetSynchronizer(reset, domain=name)
        for way in WAYS:
            name = f"{memory}_{way}"
            port = self.card.signature.members[name].signature
            m.submodules[name] = crossing = MemoryCrossing(
                port, i_domain=f"{memory}_near", o_domain=memory
            )
            wiring.connect(m, inner[name], crossing.i)
            wiring.connect(m, crossing.o, wiring.flipped(outer[name]))
