"""Small FIFO whose beats carry nothing: how many wait.

Plumbing: no golden model of its own.
"""

from amaranth.hdl import Module, Signal
from amaranth.lib import stream, wiring
from amaranth.lib.wiring import In, Out

from gradnic.interface.params import check_range

from ..primitive.names import signals


class Tokens(wiring.Component):
    """What a `gradnic.hdl.stream.fifo.FIFO` does, cycle for cycle, with a count for its memory.

    Parameters
    ----------
    depth : int
        Beats, 2 to 64, and one more at the output.

    Members
    -------
    i, o : In, Out(stream.Signature(1))
        The payload is 0 whatever comes.
    """

    def __init__(self, depth: int) -> None:
        check_range("depth", depth, 2, 64)
        self.depth = depth
        super().__init__({"i": In(stream.Signature(1)), "o": Out(stream.Signature(1))})

    def elaborate(self, platform):
        m = Module()
        count = Signal(range(self.depth + 1))  # behind the one at the output
        push, pop = signals("push pop")
        after = count + push - pop
        free = Signal(init=1)
        waiting = Signal()
        m.d.comb += [
            self.i.ready.eq(free),
            push.eq(self.i.valid & free),
            pop.eq(waiting & (self.o.ready | ~self.o.valid)),
        ]
        m.d.sync += [
            count.eq(after),
            free.eq(after != self.depth),
            waiting.eq(after != 0),
            self.o.valid.eq(pop | (self.o.valid & ~self.o.ready)),
        ]
        return m
