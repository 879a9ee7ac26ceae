"""Both ends of a lossless link: flits with heads, and credits for the landing buffer."""

from amaranth.hdl import Module, Mux, Signal
from amaranth.lib import data, stream, wiring
from amaranth.lib.wiring import In, Out

from gradnic.interface.flit import FLIT_BYTES, HEAD, PACKET_FLITS
from gradnic.interface.params import check_range

from ..primitive.names import signals
from ..stream.block_fifo import BlockFIFO
from ..stream.fifo import FIFO
from ..stream.slice import Slice

Flit = data.StructLayout({"data": 8 * FLIT_BYTES, "head": 1, "last": 1})  # last: of the message
FlitHead = data.StructLayout(HEAD)
Payload = data.StructLayout({"data": 8 * FLIT_BYTES, "last": 1})


class FlitTransmitter(wiring.Component):
    """Sends messages as flits, while the neighbor has room.

    Each message takes its payload and a head, or with `packets` a head before each 16 flits of
    payload. A flit leaves per cycle, latency 1 cycle, if its sender has a credit for it: `credits`
    at reset, one less for each flit, one more for each that the neighbor has taken out of its
    buffer. Nothing leaves without credit, so that the buffer never overflows.

    Parameters
    ----------
    credits : int
        Flits that the neighbor's buffer holds, 4 to 16384. Full rate needs those of a round trip.

    Members
    -------
    packets : In(1)
        A head per packet; stable while messages are sent.
    heads : In(stream.Signature(FlitHead))
        One per message, before its payload.
    payload : In(stream.Signature(Payload))
        ``last`` ends the message, which has at least one flit.
    flits : Out(stream.Signature(Flit))
        From registers.
    credit : In(1)
        The neighbor took a flit.
    """

    def __init__(self, credits: int) -> None:
        check_range("credits", credits, 4, 16384)
        self.credits = credits
        super().__init__(
            {
                "packets": In(1),
                "heads": In(stream.Signature(FlitHead)),
                "payload": In(stream.Signature(Payload)),
                "flits": Out(stream.Signature(Flit)),
                "credit": In(1),
            }
        )

    def elaborate(self, platform):
        m = Module()
        m.submodules.slice = out = Slice(Flit)
        wiring.connect(m, out.o, wiring.flipped(self.flits))
        left = Signal(range(self.credits + 1), init=self.credits)
        room = Signal(init=1)  # for a flit in this cycle
        # after a head; after a message's first flit of payload
        inside, begun = signals("inside begun")
        at = Signal(range(PACKET_FLITS))
        head = Signal(FlitHead)
        send, takes = signals("send takes")
        m.d.comb += [
            head.eq(self.heads.p),
            head.more.eq(begun | self.heads.p.more),
            takes.eq(room & out.i.ready),
            out.i.valid.eq(room & Mux(inside, self.payload.valid, self.heads.valid)),
            send.eq(out.i.valid & out.i.ready),
            self.payload.ready.eq(inside & takes),
            self.heads.ready.eq(inside & takes & self.payload.valid & self.payload.p.last),
        ]
        with m.If(inside):
            m.d.comb += [out.i.p.data.eq(self.payload.p.data), out.i.p.last.eq(self.payload.p.last)]
        with m.Else():
            m.d.comb += [out.i.p.data.eq(head), out.i.p.head.eq(1)]
        with m.If(send & ~inside):
            m.d.sync += [inside.eq(1), at.eq(0)]
        with m.Elif(send):
            ends = self.packets & (at == PACKET_FLITS - 1)
            m.d.sync += [
                at.eq(at + 1),
                begun.eq(~self.payload.p.last),
                inside.eq(~self.payload.p.last & ~ends),
            ]
        m.d.sync += [
            left.eq(left - send + self.credit),
            room.eq((left > 1) | self.credit | ((left == 1) & ~send)),
        ]
        return m


class FlitReceiver(wiring.Component):
    """The landing buffer of a link: takes every flit at once, and grants credits as it empties.

    A flit is offered 1 cycle after it came, 8 if others wait; one per cycle. ``flits.ready`` is
    high whenever a sender that counts its credits has a flit; `overflow` tells of one that did not.

    Parameters
    ----------
    credits : int
        Flits that the buffer holds at least, 4 to 16384.

    Members
    -------
    flits : In(stream.Signature(Flit))
    o : Out(stream.Signature(Flit))
    credit : Out(1)
        A flit was taken from `o` in the cycle before.
    overflow : Out(1)
        A flit was offered while the buffer was full, since the reset.
    """

    def __init__(self, credits: int) -> None:
        check_range("credits", credits, 4, 16384)
        self.credits = credits
        super().__init__(
            {
                "flits": In(stream.Signature(Flit)),
                "o": Out(stream.Signature(Flit)),
                "credit": Out(1),
                "overflow": Out(1),
            }
        )

    def elaborate(self, platform):
        m = Module()
        m.submodules.deep = deep = BlockFIFO(Flit, self.credits)
        m.submodules.front = front = FIFO(Flit, 8, bypass=True)
        wiring.connect(m, front.o, wiring.flipped(self.o))
        n_deep = Signal(range(deep.n_slots + 32))  # flits that wait behind those in front
        around, sinks, rises = signals("around sinks rises")
        m.d.comb += [
            around.eq((n_deep == 0) & front.i.ready),
            deep.i.p.eq(self.flits.p),
            deep.i.valid.eq(self.flits.valid & ~around),
            self.flits.ready.eq(around | deep.i.ready),
            front.i.p.eq(Mux(n_deep == 0, self.flits.p, deep.o.p)),
            front.i.valid.eq(Mux(n_deep == 0, self.flits.valid, deep.o.valid)),
            deep.o.ready.eq(front.i.ready),
            sinks.eq(deep.i.valid & deep.i.ready),
            rises.eq(deep.o.valid & deep.o.ready),
        ]
        m.d.sync += [
            n_deep.eq(n_deep + sinks - rises),
            self.credit.eq(self.o.valid & self.o.ready),
            self.overflow.eq(self.overflow | (self.flits.valid & ~self.flits.ready)),
        ]
        return m
