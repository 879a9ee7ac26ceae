"""What the range of a PROBE lacks: seen packet by packet, then weighed by the leaves behind it.

Golden model: `gradnic.models.transport.probe_scan`.
"""

from amaranth.hdl import Cat, Module, Mux, Signal
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out

from .records import BODY, BYTES_WIDTH, ELEMS_WIDTH, RUN


class ProbeScan(wiring.Component):
    """Sums the bytes that are missing, and writes the body of a BITMAP.

    A packet per cycle; ``missing`` is right 3 cycles after the last one, from when on ``multiply``
    may be given; ``lost`` then as soon as ``busy`` is 0 again, 9 cycles after ``multiply`` at most.

    Parameters
    ----------
    bits : int
        4, or 8 for indices of 2 to 8 bits.

    Members
    -------
    start, first_bit : In(1), In(3)
        A new range, whose first packet is this bit of the body; the bits before it are 1.
    packet_valid, closed, elems : In(1), In(1), In(ELEMS_WIDTH)
        The next packet of the range: whether it is closed, and its elements.
    multiply, leaves, thc : In(1), In(8), In(1)
        The range is through: what is missing is multiplied by the leaves that it stands for, a bit
        of them per cycle. An element has 4 bytes, with THC half a byte, or ``bits`` : In(4) bits.
    busy : Out(1)
        That is under way.
    missing, lost : Out(1), Out(BYTES_WIDTH)
        Something is missing, a cycle late; its bytes, times the leaves.
    body : Out(8 * BODY)
        Bit k is 1 for a packet that is closed.
    """

    def __init__(self, bits: int = 4) -> None:
        self.varies = bits > 4
        super().__init__(
            {
                "start": In(1),
                "first_bit": In(3),
                "packet_valid": In(1),
                "closed": In(1),
                "elems": In(ELEMS_WIDTH),
                "multiply": In(1),
                "leaves": In(8),
                "thc": In(1),
                **({"bits": In(4)} if self.varies else {}),
                "busy": Out(1),
                "missing": Out(1),
                "lost": Out(BYTES_WIDTH),
                "body": Out(8 * BODY),
            }
        )

    def elaborate(self, platform):
        m = Module()
        missed = Signal(range(RUN << ELEMS_WIDTH), reset_less=True)
        leaves = Signal(8)
        shifted, lost = (Signal(BYTES_WIDTH, name=n, reset_less=True) for n in ("shifted", "lost"))
        body = Signal(8 * BODY, reset_less=True)
        bit = Signal(range(8 * BODY), reset_less=True)
        m.d.comb += [
            self.busy.eq(leaves != 0),
            self.lost.eq(lost),
            self.body.eq(body),
        ]
        with m.If(self.start):
            m.d.sync += [
                missed.eq(0),
                body.eq(Cat(self.first_bit > k for k in range(7))),
                bit.eq(self.first_bit),
            ]
        seen = Signal()  # a cycle later: tables are slow
        closed = Signal(reset_less=True)
        elems = Signal.like(self.elems, reset_less=True)
        m.d.sync += [seen.eq(self.packet_valid), closed.eq(self.closed), elems.eq(self.elems)]
        with m.If(seen):
            m.d.sync += [
                missed.eq(missed + Mux(closed, 0, elems)),
                body.bit_select(bit, 1).eq(closed),
                bit.eq(bit + 1),
            ]
        m.d.sync += [
            leaves.eq(leaves >> 1),
            shifted.eq(shifted << 1),
            self.missing.eq(missed != 0),
        ]
        with m.If(leaves[0]):
            m.d.sync += lost.eq(lost + shifted)
        with m.If(self.multiply):
            m.d.sync += [
                leaves.eq(self.leaves),
                shifted.eq(
                    Mux(
                        self.thc,
                        (missed * self.bits) >> 3 if self.varies else missed >> 1,
                        missed << 2,
                    )
                ),
                lost.eq(0),
            ]
        return m
