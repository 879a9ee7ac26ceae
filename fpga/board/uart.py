"""Serial output for boards: bytes to an asynchronous line, 8N1.

Plumbing: no golden model of its own.
"""

from amaranth.hdl import Cat, Const, Module, Signal
from amaranth.lib import stream, wiring
from amaranth.lib.wiring import In, Out


class UartTx(wiring.Component):
    """Sends bytes, least significant bit first, with one start and one stop bit, no parity.

    A byte takes 10 x ``divisor`` cycles, and the next start bit may follow at once. While a byte
    is on the line, ``i.ready`` is low.

    Parameters
    ----------
    divisor : int
        Cycles per bit, at least 2: clock / baud rate.

    Members
    -------
    i : In(stream.Signature(8))
    tx : Out(1), high when idle.
    """

    def __init__(self, divisor):
        if divisor < 2:
            raise ValueError(f"divisor must be at least 2, not {divisor!r}")
        self.divisor = divisor
        super().__init__({"i": In(stream.Signature(8)), "tx": Out(1, init=1)})

    def elaborate(self, platform):
        m = Module()
        left = Signal(range(10))  # bits to send after the one on the line
        wait = Signal(range(self.divisor))
        rest = Signal(9)
        m.d.comb += self.i.ready.eq((left == 0) & (wait == 0))
        with m.If(wait != 0):
            m.d.sync += wait.eq(wait - 1)
        with m.Elif(left != 0):
            m.d.sync += [self.tx.eq(rest[0]), rest.eq(rest[1:])]
            m.d.sync += [left.eq(left - 1), wait.eq(self.divisor - 1)]
        with m.Elif(self.i.valid):
            m.d.sync += [self.tx.eq(0), rest.eq(Cat(self.i.p, Const(1, 1)))]
            m.d.sync += [left.eq(9), wait.eq(self.divisor - 1)]
        return m
