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
        self.pushed, self.popped = Signal(), Signal()  # what came and went then
        self.waiting = Signal()  # the next entry is where it is looked for
        self.head, self.tail = Signal(range(depth)), Signal(range(depth))
        self.rows = [Signal(range(BANK), name=f"row{bank}") for bank in range(N_BANKS)]
        self.moves = Signal(N_BANKS)  # the row of the next entry moves on
        self.near = [Signal(self.width, name=f"near{k}", reset_less=True) for k in range(N_BANKS)]
        self.arrays = [
            memory.Memory(shape=self.width, depth=BANK, init=[], attrs={"ram_style": "distributed"})
            for _ in range(N_BANKS)
        ]
        super().__init__(
            {
                "i": In(stream.Signature(shape, always_ready=True)),
                "o": Out(stream.Signature(shape)),
            }
        )

    def elaborate(self, platform):
        m = Module()
        pop, head, tail = Signal(), self.head, self.tail
        now = moved(self.occupied, self.pushed & ~self.popped, self.popped & ~self.pushed)
        m.d.comb += pop.eq(self.waiting & (self.o.ready | ~self.o.valid))
        m.d.sync += [
            self.pushed.eq(self.i.valid),
            self.popped.eq(pop),
            self.occupied.eq(now),
            self.waiting.eq(now[1] | (now[0] & ~pop)),
        ]
        with m.If(self.i.valid):
            m.d.sync += head.eq(head + 1)
        with m.If(pop):
            m.d.sync += tail.eq(tail + 1)
        low = ceil_log2(N_BANKS)
        for bank, (array, row, near) in enumerate(
            zip(self.arrays, self.rows, self.near, strict=True)
        ):
            m.submodules[f"bank{bank}"] = array
            write, read = array.write_port(), array.read_port(domain="comb")
            m.d.sync += [
                self.moves[bank].eq(self.popped & (tail[:low] == (bank + 1) % N_BANKS)),
                near.eq(read.data),
            ]
            with m.If(self.moves[bank]):
                m.d.sync += row.eq(row + 1)
            m.d.comb += [
                write.en.eq(head[:low] == bank),  # the slot is not in use, as in a `FIFO`
                write.addr.eq(head[low:]),
                write.data.eq(self.i.p),
                read.addr.eq(row),
            ]
        held = Signal(self.width, reset_less=True)
        with m.If(self.o.ready | ~self.o.valid):
            m.d.sync += [self.o.valid.eq(self.waiting), held.eq(Array(self.near)[tail[:low]])]
        m.d.comb += Value.cast(self.o.p).eq(held)
        return m
