"""One port's way out: words of the engine become the flits of messages."""

from amaranth.hdl import Module, Signal
from amaranth.lib import stream, wiring
from amaranth.lib.wiring import In, Out

from gradnic.flit import FLIT_FLOATS

from .flit_link import Flit, FlitTransmitter, Head
from .streams import FIFO


class FlitPort(wiring.Component):
    """Words of the engine to flits of a link: 1 flit per cycle, latency 2 cycles.

    Parameters
    ----------
    word : shape of {data, n_flits, last}
    credits : int
        As of `FlitTransmitter`.

    Members
    -------
    heads : In(stream.Signature(Head)), up to 4 messages ahead.
    words : In(stream.Signature({data, n_flits, last}))
    flits, credit, packets : as of `FlitTransmitter`.
    sent : Out(1)
        The last flit of a message was taken by the link.
    """

    def __init__(self, word, credits):
        self.word, self.credits = word, credits
        super().__init__(
            {
                "packets": In(1),
                "heads": In(stream.Signature(Head)),
                "words": In(stream.Signature(word)),
                "flits": Out(stream.Signature(Flit)),
                "credit": In(1),
                "sent": Out(1),
            }
        )

    def elaborate(self, platform):
        m = Module()
        m.submodules.transmitter = transmitter = FlitTransmitter(self.credits)
        m.submodules.heads = heads = FIFO(Head, 4)
        wiring.connect(m, wiring.flipped(self.heads), heads.i)
        wiring.connect(m, heads.o, transmitter.heads)
        wiring.connect(m, transmitter.flits, wiring.flipped(self.flits))
        m.d.comb += [
            transmitter.packets.eq(self.packets),
            transmitter.credit.eq(self.credit),
        ]
        m.d.sync += self.sent.eq(self.flits.valid & self.flits.ready & self.flits.p.last)
        held = Signal(self.word, reset_less=True)
        payload = transmitter.payload
        ends = Signal()
        m.d.comb += [
            payload.p.data.eq(held.data[: 32 * FLIT_FLOATS]),
            payload.p.last.eq(held.last & ends),
            ends.eq(held.n_flits == 1),
            self.words.ready.eq(~payload.valid | (payload.ready & ends)),
        ]
        with m.If(self.words.ready):
            m.d.sync += [payload.valid.eq(self.words.valid), held.eq(self.words.p)]
        with m.Elif(payload.ready):
            m.d.sync += [
                held.data.eq(held.data >> 32 * FLIT_FLOATS),
                held.n_flits.eq(held.n_flits - 1),
            ]
        return m
