"""Words of registers that a host frame writes or asks for, one after the other.

Golden model: `gradnic.models.offload.host_registers`.
"""

from amaranth.hdl import Cat, Module, Signal
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out

from gradnic.interface.host_frame import MAX_WORDS

from ..axi.axis import Lite
from ..primitive.names import signals
from ..primitive.target import with_exit


def _swapped(word):
    """A word of registers from the bytes of a payload, or back."""
    return Cat(word[8 * k : 8 * k + 8] for k in reversed(range(4)))


class HostRegisters(wiring.Component):
    """One access at a time: a word takes about 10 cycles.

    Parameters
    ----------
    address_width : int
        See `Lite`.

    Members
    -------
    start, writes, address, n_words : In(1), In(1), In(address_width), In(5)
        In the cycle of ``start``: all words of ``text`` from the lowest on are written, or read.
    text : In(32 * MAX_WORDS)
        Words as payloads have them, big-endian, byte 0 lowest; must stay until all is done.
    done : Out(1)
        A strobe, a cycle after the last answer.
    place, word, enable : Out(4), Out(32), Out(1)
        A word that was read, and which.
    bus : Out(Lite(address_width))
    """

    def __init__(self, address_width: int) -> None:
        super().__init__(
            {
                "start": In(1),
                "writes": In(1),
                "address": In(address_width),
                "n_words": In(range(MAX_WORDS + 1)),
                "text": In(32 * MAX_WORDS),
                "done": Out(1),
                "place": Out(range(MAX_WORDS)),
                "word": Out(32),
                "enable": Out(1),
                "bus": Out(Lite(address_width)),
            }
        )

    def elaborate(self, platform):
        m = Module()
        bus = self.bus
        address = Signal.like(self.address)
        place = Signal(range(MAX_WORDS))
        left = Signal.like(self.n_words)
        writes = Signal()
        address_sent, data_sent, answered = signals("address_sent data_sent answered")
        word = Signal(32, reset_less=True)
        m.d.comb += [
            bus.awaddr.eq(address),
            bus.araddr.eq(address),
            bus.wstrb.eq(0b1111),
            bus.wdata.eq(word),
            bus.bready.eq(writes & address_sent & data_sent),
            bus.rready.eq(~writes & address_sent),
            self.place.eq(place),
            self.word.eq(_swapped(bus.rdata)),
            self.enable.eq(bus.rvalid & bus.rready),
            answered.eq((bus.bvalid & bus.bready) | self.enable),
        ]
        m.d.sync += self.done.eq(answered & (left == 1))
        with m.FSM() as fsm:
            with m.State("wait"):
                m.d.sync += [
                    address.eq(self.address),
                    left.eq(self.n_words),
                    writes.eq(self.writes),
                    place.eq(0),
                ]
                with m.If(self.start):
                    m.next = "load"
            with m.State("load"):
                m.d.sync += word.eq(_swapped(self.text.word_select(place, 32)))
                m.next = "ask"
            with m.State("ask"):
                m.d.comb += [
                    bus.awvalid.eq(writes & ~address_sent),
                    bus.wvalid.eq(writes & ~data_sent),
                    bus.arvalid.eq(~writes & ~address_sent),
                ]
                with m.If((bus.awvalid & bus.awready) | (bus.arvalid & bus.arready)):
                    m.d.sync += address_sent.eq(1)
                with m.If(bus.wvalid & bus.wready):
                    m.d.sync += data_sent.eq(1)
                with m.If(answered):
                    m.d.sync += [
                        address.eq(address + 4),
                        place.eq(place + 1),
                        left.eq(left - 1),
                        address_sent.eq(0),
                        data_sent.eq(0),
                    ]
                    m.next = "load"
                    with m.If(left == 1):
                        m.next = "wait"
        with_exit(fsm)
        return m
