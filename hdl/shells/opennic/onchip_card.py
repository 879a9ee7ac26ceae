"""An offload card with its memory beside it on the chip, and the host's way to that memory.

Plumbing: no golden model of its own.
"""

from amaranth.hdl import Cat, Module
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out
from amaranth.utils import ceil_log2

from gradnic.interface.card_memory import MEMORIES, OFFSET, PAGE_BITS, REGISTERS

from ...axi.axi4 import ReadPort, WritePort
from ...axi.axis import Lite
from ...axi.channel import Channel
from ...axi.register_bank import RegisterBank
from ...primitive.same import by_name, join, meet
from ..common.axi4_ram import Axi4Ram
from ..common.fan import LiteFan, side_by_side

WINDOW = REGISTERS.window("words")
PLACE_BITS = ceil_log2(WINDOW.n_bytes)  # of a byte address within a page


class HostWindow(wiring.Component):
    """Moves a window of one page over memories that lie one behind the other: no cycle.

    Words behind the last memory read 0, are written nowhere, and are counted; all are answered
    OKAY, as by `LiteFan`.

    Parameters
    ----------
    n, size_bits : int
        Memories, and bits of a byte address of each.

    Members
    -------
    bus : In(Lite(log2(bytes of a page)))
    page : In(16)
        Must not change while an access is under way.
    outside : Out(2)
        High for one cycle per access behind the last memory: reads, writes.
    o : Out(Lite(size_bits)).array(n)
    """

    def __init__(self, n: int, size_bits: int) -> None:
        self.width = PAGE_BITS + PLACE_BITS
        windows = side_by_side(n, size_bits, window_bits=size_bits)
        self.fan = LiteFan(windows, address_width=self.width)
        self.end = n << size_bits
        super().__init__(
            {
                "bus": In(Lite(PLACE_BITS)),
                "page": In(PAGE_BITS),
                "outside": Out(2),
                "o": Out(Lite(size_bits)).array(n),
            }
        )

    def elaborate(self, platform):
        m = Module()
        m.submodules.fan = fan = self.fan
        same = [name for name in fan.i.signature.members if name not in ("araddr", "awaddr")]
        meet(m, wiring.flipped(self.bus), fan.i, same)
        m.d.comb += [
            fan.i.araddr.eq(Cat(self.bus.araddr, self.page)),
            fan.i.awaddr.eq(Cat(self.bus.awaddr, self.page)),
        ]
        for k, asked in enumerate(Channel(fan.i, prefix) for prefix in ("ar", "aw")):
            behind = asked["addr"] >= self.end
            m.d.comb += self.outside[k].eq(asked.valid & asked.ready & behind)
        for inner, outer in zip(fan.outs, self.o, strict=True):
            wiring.connect(m, inner, wiring.flipped(outer))
        return m


class OnChipCard(wiring.Component):
    """An offload `card` whose gradient and landing memory are each `n_kib` KiB of `Axi4Ram`.

    Parameters
    ----------
    card : wiring.Component
        With ports ``x_read`` and ``x_write`` for each x of
        `gradnic.interface.card_memory.MEMORIES`.
    n_kib : int
        See `Axi4Ram`.

    Members
    -------
    The card's own but its memory ports, and
    memory : In(Lite)
        Registers of `gradnic.interface.card_memory`.
    words : In(Lite)
        The window of that map.
    """

    def __init__(self, card: wiring.Component, n_kib: int) -> None:
        self.card = card
        self.n_kib = n_kib
        port = card.signature.members["gradient_read"].signature
        self.rams = [
            Axi4Ram(port.n_bytes, n_kib, address_width=port.address_width) for _ in MEMORIES
        ]
        kept = {
            name: member
            for name, member in card.signature.members.items()
            if not (member.is_signature and isinstance(member.signature, ReadPort | WritePort))
        }
        self.kept = list(kept)
        own = {"memory": In(Lite(REGISTERS.address_width)), "words": In(Lite(PLACE_BITS))}
        super().__init__(kept | own)

    @property
    def windows(self):
        """Where each port of registers and words stands: [(first byte, port)]."""
        return [(0, self.bus), (OFFSET, self.memory), (OFFSET + WINDOW.offset, self.words)]

    def elaborate(self, platform):
        m = Module()
        m.submodules.card = card = self.card
        m.submodules.bank = bank = RegisterBank(REGISTERS)
        m.submodules.window = window = HostWindow(len(MEMORIES), self.rams[0].size_bits)
        join(m, card, self, self.kept)
        wiring.connect(m, wiring.flipped(self.memory), bank.bus)
        wiring.connect(m, wiring.flipped(self.words), window.bus)
        ports = by_name(card)
        for name, ram, words in zip(MEMORIES, self.rams, window.o, strict=True):
            m.submodules[name] = ram
            wiring.connect(m, ports[f"{name}_read"], ram.read)
            wiring.connect(m, ports[f"{name}_write"], ram.write)
            wiring.connect(m, words, ram.words)
        m.d.comb += [
            bank.size.kib.eq(self.n_kib),
            window.page.eq(bank.page.number),
            bank.outside.eq(window.outside[0] + window.outside[1]),
            bank.refused.eq(sum(bit for ram in self.rams for bit in ram.refused)),
        ]
        return m
