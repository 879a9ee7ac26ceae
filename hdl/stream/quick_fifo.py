"""A queue for paths whose cycles count: what comes to an empty one leaves in the next cycle.

Plumbing: no golden model of its own.
"""

from amaranth.hdl import Module, Mux, Shape, Signal, Value
from amaranth.lib import memory, stream, wiring
from amaranth.lib.wiring import In, Out


class QuickFIFO(wiring.Component):
    """Queue of ``depth`` beats in LUT RAM and one in the output register: latency 1.

    1 beat per cycle. One cycle less than `gradnic.hdl.stream.fifo.FIFO`, for a multiplexer between
    memory and input before the output register, and a counter. When ``depth`` beats wait behind the
    output register, ``i.ready`` is low from the next cycle on.

    Parameters
    ----------
    shape : shape-like
    depth : int
        2 to 64.

    Members
    -------
    i, o : In, Out(stream.Signature(shape))
    """

    def __init__(self, shape, depth: int) -> None:
        if not 2 <= depth <= 64:
            raise ValueError(f"depth must be 2 to 64, not {depth!r}")
        self.shape, self.depth = shape, depth
        super().__init__({"i": In(stream.Signature(shape)), "o": Out(stream.Signature(shape))})

    def elaborate(self, platform):
        m = Module()
        width, last = Shape.cast(self.shape).width, self.depth - 1
        m.submodules.array = array = memory.Memory(
            shape=width, depth=self.depth, init=[], attrs={"ram_style": "distributed"}
        )
        write, read = array.write_port(), array.read_port(domain="comb")
        head, tail = Signal(range(self.depth)), Signal(range(self.depth))
        level = Signal(range(self.depth + 1))
        free = Signal(init=1)
        moves, takes, push, pop = Signal(), Signal(), Signal(), Signal()
        held = Signal(width, reset_less=True)
        m.d.comb += [
            self.i.ready.eq(free),
            takes.eq(self.i.valid & free),
            moves.eq(~self.o.valid | self.o.ready),
            pop.eq(moves & (level != 0)),
            push.eq(takes & ~(moves & (level == 0))),
            write.en.eq(push),
            write.addr.eq(head),
            write.data.eq(Value.cast(self.i.p)),
            read.addr.eq(tail),
            Value.cast(self.o.p).eq(held),
        ]
        after = level + push - pop
        m.d.sync += [level.eq(after), free.eq(after < self.depth)]
        with m.If(push):
            m.d.sync += head.eq(Mux(head == last, 0, head + 1))
        with m.If(pop):
            m.d.sync += tail.eq(Mux(tail == last, 0, tail + 1))
        with m.If(moves):
            m.d.sync += [
                self.o.valid.eq(pop | takes),
                held.eq(Mux(level != 0, read.data, Value.cast(self.i.p))),
            ]
        return m
