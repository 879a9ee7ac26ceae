"""One port's way out: words of the engine become the flits of messages."""

from amaranth.hdl import Module, ShapeLike, Signal
from amaranth.lib import stream, wiring
from amaranth.lib.wiring import In, Out

from gradnic.interface.flit import FLIT_FLOATS

from ..stream.fifo import FIFO
from .codec import FlitCoder, Settings
from .landing import Places
from .link import Flit, FlitHead, FlitTransmitter


class FlitPort(wiring.Component):
    """Words of the engine to flits of a link: 1 flit per cycle, latency 2 cycles.

    Parameters
    ----------
    word : shape of {data, n_flits, last}
    credits : int
        As of `FlitTransmitter`.
    codec : dict or None
        Sizes of a `gradnic.hdl.direct.codec.FlitCoder`: messages are coded.

    Members
    -------
    heads : In(stream.Signature(FlitHead)), up to 4 messages ahead.
    words : In(stream.Signature({data, n_flits, last}))
    flits, credit, packets : as of `FlitTransmitter`.
    codec, places : with `codec`, as of `FlitCoder`.
    sent : Out(1)
        The last flit of a message was taken by the link.
    """

    def __init__(
        self, word: ShapeLike, credits: int, *, codec: dict[str, int] | None = None
    ) -> None:
        self.word, self.credits, self.sizes = word, credits, codec
        coded = {"codec": In(Settings), "places": In(Places(**codec))} if codec else {}
        super().__init__(
            {
                **coded,
                "packets": In(1),
                "heads": In(stream.Signature(FlitHead)),
                "words": In(stream.Signature(word)),
                "flits": Out(stream.Signature(Flit)),
                "credit": In(1),
                "sent": Out(1),
            }
        )

    def elaborate(self, platform):
        m = Module()
        m.submodules.transmitter = transmitter = FlitTransmitter(self.credits)
        m.submodules.heads = heads = FIFO(FlitHead, 4)
        wiring.connect(m, wiring.flipped(self.heads), heads.i)
        wiring.connect(m, transmitter.flits, wiring.flipped(self.flits))
        m.d.comb += [
            transmitter.packets.eq(self.packets),
            transmitter.credit.eq(self.credit),
        ]
        goes, ends_message = self.flits.valid & self.flits.ready, 1
        if self.sizes:
            m.submodules.coder = coder = FlitCoder(**self.sizes)
            m.d.comb += [coder.codec.eq(self.codec), coder.places.eq(self.places)]
            wiring.connect(m, heads.o, coder.heads)
            wiring.connect(m, coder.unit_heads, transmitter.heads)
            wiring.connect(m, coder.units, transmitter.payload)
            payload = coder.payload
            ends_message = Signal()
            with m.If(goes & self.flits.p.head):
                m.d.sync += ends_message.eq(FlitHead(self.flits.p.data[: FlitHead.size]).ends)
        else:
            wiring.connect(m, heads.o, transmitter.heads)
            payload = transmitter.payload
        m.d.sync += self.sent.eq(goes & self.flits.p.last & ends_message)
        held = Signal(self.word, reset_less=True)
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
