"""Finds the chunk and the place in it of an element offset, or of a packet number.

Golden model: `gradnic.models.transport.locator`.
"""

from amaranth.hdl import Cat, Module, Mux, Signal
from amaranth.lib import data, stream, wiring
from amaranth.lib.wiring import In, Out

from gradnic.interface.formats import Op
from gradnic.interface.offload import Subtype

from ..primitive.names import signals
from ..primitive.target import one_hot
from .records import CHUNK_WIDTH, NUMBER_WIDTH, OFFSET_WIDTH, Arrival, Geometry

Located = data.StructLayout(
    {
        "arrival": Arrival,
        "chunk": OFFSET_WIDTH,
        "within": OFFSET_WIDTH,
        "number": NUMBER_WIDTH,
        "whole": 1,
    }
)
"""An arrival with the chunk that its SEQ is in, the packet within the chunk and within the tensor;
whole : SEQ is where a packet starts. Chunk and place may lie beyond the tensor."""


class Divider(wiring.Component):
    """Quotient and remainder, two bits per cycle: width / 2 + 2 cycles from ``start`` to ``done``.

    Parameters
    ----------
    width : int, even.
    d_width : int, of the divisor and the remainder.

    Members
    -------
    start, n, d : In
        d must not be 0, and both must be kept until ``done``.
    done, q, r : Out
        q and r keep their values until the next start.
    """

    def __init__(self, width: int, d_width: int) -> None:
        self.width, self.d_width = width, d_width
        super().__init__(
            {
                "start": In(1),
                "n": In(width),
                "d": In(self.d_width),
                "done": Out(1),
                "q": Out(width),
                "r": Out(self.d_width),
            }
        )

    def elaborate(self, platform):
        m = Module()
        width, d_width = self.width, self.d_width
        triple = Signal(d_width + 2, reset_less=True)
        rest = Signal(width, reset_less=True)  # of n, highest bits first
        left = Signal(range(width // 2 + 1))
        m.d.sync += [triple.eq(self.d + (self.d << 1)), self.done.eq(left == 1)]
        higher = Signal(d_width + 2)
        m.d.comb += higher.eq(Cat(rest[-2:], self.r))
        less = [Signal(d_width + 3, name=f"less{k}") for k in range(3)]
        multiples = (self.d, self.d << 1, triple)
        m.d.comb += [d.eq(higher - k) for d, k in zip(less, multiples, strict=True)]
        fits = [~d[-1] for d in less]
        with m.If(self.start):
            m.d.sync += [self.r.eq(0), rest.eq(self.n), left.eq(width // 2)]
        with m.Elif(left != 0):
            digit = Mux(fits[2], 3, Mux(fits[1], 2, fits[0]))
            m.d.sync += [
                left.eq(left - 1),
                rest.eq(rest << 2),
                self.q.eq(Cat(digit[:2], self.q)),
                self.r.eq(
                    Mux(
                        fits[1],
                        Mux(fits[2], less[2], less[1]),
                        Mux(fits[0], less[0], higher),
                    )
                ),
            ]
        return m


class Locator(wiring.Component):
    """Divides the offsets of data packets, and the numbers in PROBEs; hands on all others.

    Two packets at a time, in order: one of data or a PROBE in 16 cycles, others in 2. A packet of
    data is offered 30 cycles after it was taken, a PROBE 16, others 2. With ``geometry`` 0 nothing
    is divided: a packet of no round is only handed on.

    Members
    -------
    geometry : In(Geometry)
    i : In(stream.Signature(Arrival))
    o : Out(stream.Signature(Located))
    """

    def __init__(self) -> None:
        super().__init__(
            {
                "geometry": In(Geometry),
                "i": In(stream.Signature(Arrival)),
                "o": Out(stream.Signature(Located)),
            }
        )

    def elaborate(self, platform):
        m = Module()
        self._place(m, *self._chunk(m))
        return m

    def _chunk(self, m):
        """First step, which finds the chunk: (what is known, flag of data that go on to be divided,
        flag that it is `complete`, flag to drive: it is taken).
        """
        m.submodules.chunks = divider = Divider(OFFSET_WIDTH, OFFSET_WIDTH)
        cut, head = self.geometry, self.i.p.head
        found = Signal(Located, reset_less=True)
        divides = Signal(reset_less=True)
        complete, taken = signals("complete taken")
        d = Signal(OFFSET_WIDTH, reset_less=True)
        is_data, is_probe = signals("is_data is_probe")
        m.d.comb += [
            is_data.eq(head.op != Op.CONTROL),
            is_probe.eq(~is_data & (head.p0[:4] == Subtype.PROBE)),
            divider.n.eq(found.arrival.head.seq),
            divider.d.eq(d),
        ]
        with m.FSM(name="chunk") as fsm:
            with m.State("REST"):
                m.d.comb += self.i.ready.eq(1)
                m.d.sync += [
                    found.arrival.eq(self.i.p),
                    found.number.eq(head.seq),
                    found.whole.eq(1),
                    divides.eq(self.i.p.ready & is_data),
                    d.eq(Mux(is_data, cut.chunk, cut.per_chunk)),
                ]
                with m.If(self.i.valid):
                    m.next = "DONE"
                    with m.If(self.i.p.ready & (is_data | is_probe)):
                        m.next = "START"
            with m.State("START"):
                m.d.comb += divider.start.eq(1)
                m.next = "DIVIDE"
            with m.State("DIVIDE"):
                m.d.sync += [found.chunk.eq(divider.q), found.within.eq(divider.r)]
                with m.If(divider.done):
                    m.next = "DONE"
            with m.State("DONE"):
                m.d.comb += complete.eq(1)
                with m.If(taken):
                    m.next = "REST"
        one_hot(fsm)
        return found, divides, complete, taken

    def _place(self, m, found, divides, complete, taken):
        """Second step: the packet within its chunk, and its number within the tensor."""
        cut, out = self.geometry, self.o.p
        m.submodules.packets = divider = Divider(OFFSET_WIDTH, len(cut.packet))
        rest = Signal(CHUNK_WIDTH, reset_less=True)
        packets = Signal(NUMBER_WIDTH, reset_less=True)
        m.d.comb += [divider.n.eq(out.within), divider.d.eq(cut.packet)]

        def multiply():
            m.d.sync += [rest.eq(rest >> 1), packets.eq(packets << 1)]
            with m.If(rest[0]):
                m.d.sync += out.number.eq(out.number + packets)

        with m.FSM(name="place") as fsm:
            with m.State("REST"):
                m.d.comb += taken.eq(1)
                m.d.sync += [out.eq(found), rest.eq(found.chunk), packets.eq(cut.per_chunk)]
                with m.If(complete):
                    m.next = "OFFER"
                    with m.If(divides):
                        m.d.sync += out.number.eq(0)
                        m.next = "START"
            # chunk * per_chunk beside, a bit in each cycle: all of it before the quotient is there
            with m.State("START"):
                m.d.comb += divider.start.eq(1)
                multiply()
                m.next = "DIVIDE"
            with m.State("DIVIDE"):
                multiply()
                with m.If(divider.done):
                    m.d.sync += [
                        out.within.eq(divider.q),
                        out.whole.eq(divider.r == 0),
                        out.number.eq(out.number + divider.q[:NUMBER_WIDTH]),
                    ]
                    m.next = "OFFER"
            with m.State("OFFER"):
                m.d.comb += self.o.valid.eq(1)
                with m.If(self.o.ready):
                    m.next = "REST"
        one_hot(fsm)
