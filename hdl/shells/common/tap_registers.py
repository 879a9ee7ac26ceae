"""Counts what a tap loses, beside the registers of its card.

Plumbing: no golden model of its own.
"""

from amaranth.hdl import DomainRenamer, Module, Mux, Signal
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out

from gradnic.interface.tap import OFFSET, REGISTERS, WINDOW_BITS

from ...axi.axis import Lite
from ...axi.register_bank import RegisterBank
from .crossing import Crossing
from .fan import LiteFan, side_by_side

STEP_BITS = REGISTERS["lost"].step_width


class TapRegisters(wiring.Component):
    """The registers of a card at 0, those of `gradnic.interface.tap` at 0x800 of a window of 4 KiB.

    Parameters
    ----------
    address_width : int
        Bits of a byte address of the card's registers, 8 to 11.

    Members
    -------
    bus : In(Lite(12))
    card : Out(Lite(address_width))
    lost : In(8)
        Frames lost, added every cycle.
    """

    def __init__(self, address_width: int) -> None:
        windows = side_by_side(2, address_width, window_bits=OFFSET.bit_length() - 1)
        self.fan = LiteFan(windows, address_width=WINDOW_BITS)
        self.bank = RegisterBank(REGISTERS, address_width=address_width)
        super().__init__(
            {"bus": In(Lite(WINDOW_BITS)), "card": Out(Lite(address_width)), "lost": In(STEP_BITS)}
        )

    def elaborate(self, platform):
        m = Module()
        m.submodules.fan, m.submodules.bank = fan, bank = self.fan, self.bank
        wiring.connect(m, wiring.flipped(self.bus), fan.i)
        wiring.connect(m, fan.o0, wiring.flipped(self.card))
        wiring.connect(m, fan.o1, bank.bus)
        m.d.comb += bank.lost.eq(self.lost)
        return m


class PulseCrossing(wiring.Component):
    """Takes the number of pulses from one clock to another; none is lost, all come in time.

    Parameters
    ----------
    i_domain, o_domain : str

    Members
    -------
    i : In(1)
        Counts in every cycle of the first clock.
    o : Out(8)
        What to add in this cycle of the second.
    """

    def __init__(self, *, i_domain: str, o_domain: str) -> None:
        self.i_domain = i_domain
        self.crossing = Crossing(STEP_BITS, i_domain=i_domain, o_domain=o_domain, depth=4)
        super().__init__({"i": In(1), "o": Out(STEP_BITS)})

    def elaborate(self, platform):
        m = Module()
        m.submodules.crossing = crossing = self.crossing
        inner = Module()
        waiting = Signal(STEP_BITS)  # goes as one number whenever the crossing has room
        go = Signal()
        inner.d.comb += [
            crossing.i.p.eq(waiting),
            crossing.i.valid.eq(waiting != 0),
            go.eq(crossing.i.valid & crossing.i.ready),
        ]
        inner.d.sync += waiting.eq(Mux(go, 0, waiting) + self.i)
        m.submodules.inner = DomainRenamer(self.i_domain)(inner)
        m.d.comb += [
            crossing.o.ready.eq(1),
            self.o.eq(Mux(crossing.o.valid, crossing.o.p, 0)),
        ]
        return m
