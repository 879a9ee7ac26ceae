"""An in-line card that does nothing: what benches must find out."""

from amaranth.hdl import Module
from amaranth.lib import stream, wiring
from amaranth.lib.wiring import In, Out
from gradnic.hdl.axi.axis import Lite
from gradnic.hdl.axi.register_bank import RegisterBank
from gradnic.hdl.stream.beats import FrameBeat
from gradnic.hdl.stream.slice import Slice

from gradnic.interface.inline import REGISTERS


class IdleCard(wiring.Component):
    """The ports of an in-line card with nothing between them but register slices.

    lanes : int, floats a cycle. Members: see `gradnic.hdl.inline.card.InlineCard`.
    """

    def __init__(self, lanes):
        self.frames = stream.Signature(FrameBeat(4 * lanes))
        self.bank = RegisterBank(REGISTERS)
        super().__init__(
            {
                "host_tx": In(self.frames),
                "mac_tx": Out(self.frames),
                "mac_rx": In(self.frames),
                "host_rx": Out(self.frames),
                "bus": In(Lite(REGISTERS.address_width)),
            }
        )

    def elaborate(self, platform):
        m = Module()
        m.submodules.bank = self.bank
        wiring.connect(m, wiring.flipped(self.bus), self.bank.bus)
        for name, i, o in (("tx", self.host_tx, self.mac_tx), ("rx", self.mac_rx, self.host_rx)):
            m.submodules[name] = part = Slice(self.frames.members["payload"].shape)
            wiring.connect(m, wiring.flipped(i), part.i)
            wiring.connect(m, part.o, wiring.flipped(o))
        return m
