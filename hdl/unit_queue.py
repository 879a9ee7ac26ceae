"""Queue of what is known of units on their way, for as many as an engine holds."""

from amaranth.hdl import Array, Module, Shape, Signal, Value
from amaranth.lib import memory, stream, wiring
from amaranth.lib.wiring import In, Out
from amaranth.utils import ceil_log2

from .fifo import moved

BANK = 16  # entries that one LUT RAM holds
N_BANKS = 4


class UnitQueue(wiring.Component):
    """Queue in LUT RAM, deeper than a `FIFO` is fast: 1 entry per cycle, 3 cycles of latency.

    Entries that follow each other lie in different banks, and the next one of each bank waits in a
    register: no path runs from a read address through LUT RAM and a multiplexer. Never full: the
    user lets in at most ``depth`` entries.

    Parameters
    ----------
    shape : shape-like
        An entry.
    depth : int
        Entries, 64: the next one of a bank is 4 entries behind, and on its way for 4 cycles.

    Members
    -------
    i : In(stream.Signature(shape, always_ready=True))
    o : Out(stream.Signature(shape))
    """

    def __init__(self, shape, depth):
        if depth != N_BANKS * BANK:
            raise ValueError(f"depth must be {N_BANKS * BANK}, not {depth!r}")
        self.depth = depth
        self.width = Shape.cast(shape).width
        self.occupied = Signal(depth)  # bit k: more than k, one cycle ago, in the memory
        super().__init__(
            {
                "i": In(stream.Signature(shape, always_ready=True)),
                "o": Out(stream.Signature(shape)),
            }
        )

    def elaborate(self, platform):
        m = Module()
        pop, waiting, pushed, popped = Signal(), Signal(), Signal(), Signal()
        now = moved(self.occupied, pushed & ~popped, popped & ~pushed)
        m.d.comb += pop.eq(waiting & (self.o.ready | ~self.o.valid))
        m.d.sync += [
            pushed.eq(self.i.valid),
            popped.eq(pop),
            self.occupied.eq(now),
            waiting.eq(now[1] | (now[0] & ~pop)),
        ]
        head, tail = Signal(range(self.depth)), Signal(range(self.depth))
        with m.If(self.i.valid):
            m.d.sync += head.eq(head + 1)
        with m.If(pop):
            m.d.sync += tail.eq(tail + 1)
        low = ceil_log2(N_BANKS)
        following = []
        for bank in range(N_BANKS):
            array = memory.Memory(
                shape=self.width, depth=BANK, init=[], attrs={"ram_style": "distributed"}
            )
            m.submodules[f"bank{bank}"] = array
            write, read = array.write_port(), array.read_port(domain="comb")
            row, moves = Signal(range(BANK), name=f"row{bank}"), Signal(name=f"moves{bank}")
            m.d.sync += moves.eq(popped & (tail[:low] == (bank + 1) % N_BANKS))
            with m.If(moves):
                m.d.sync += row.eq(row + 1)
            near = Signal(self.width, name=f"near{bank}", reset_less=True)
            m.d.sync += near.eq(read.data)
            following.append(near)
            m.d.comb += [
                write.en.eq(head[:low] == bank),  # the slot is not in use, as in a `FIFO`
                write.addr.eq(head[low:]),
                write.data.eq(self.i.p),
                read.addr.eq(row),
            ]
        held = Signal(self.width, reset_less=True)
        with m.If(self.o.ready | ~self.o.valid):
            m.d.sync += [self.o.valid.eq(waiting), held.eq(Array(following)[tail[:low]])]
        m.d.comb += Value.cast(self.o.p).eq(held)
        return m
