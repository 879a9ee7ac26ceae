"""A queue for a user far away: it says a beat goes, and the beat arrives two cycles later.

Plumbing: no golden model of its own.
"""

from amaranth.hdl import Module, Signal
from amaranth.lib import memory, stream, wiring
from amaranth.lib.wiring import In, Out

from .admission import credit
from .delays import copied
from .steering import chunks

DEPTH = 16  # beats; fewer take the same LUT RAM


class LateQueue(wiring.Component):
    """Queue of `depth` beats whose user decides from flags alone: 1 beat per cycle.

    Plumbing: no golden model of its own. ``take`` may come late: it reaches a flag and registers,
    and no bit of a payload waits for it.

    Parameters
    ----------
    width : int
        Bits of a beat.
    depth : int
        Beats, a power of two.

    Members
    -------
    i : In(stream.Signature(width))
    available, take : Out(1), In(1)
        A beat is at hand, 3 cycles after it came at the earliest; it is used up in this cycle.
        ``take`` only while ``available``.
    word : Out(width)
        The beat that was taken 2 cycles ago, or the next one to be taken if it was there by then.
    """

    def __init__(self, width: int, depth: int = DEPTH) -> None:
        self.width = width
        self.depth = depth
        super().__init__(
            {
                "i": In(stream.Signature(width)),
                "available": Out(1),
                "take": In(1),
                "word": Out(width),
            }
        )

    def elaborate(self, platform):
        m = Module()
        push, pushed = Signal(), Signal()
        m.d.comb += push.eq(self.i.valid & self.i.ready)
        m.d.sync += pushed.eq(push)
        m.d.comb += [
            self.i.ready.eq(credit(m, self.depth, take=push, give=self.take, name="free")),
            self.available.eq(
                credit(m, self.depth, take=self.take, give=pushed, none=True, name="stored")
            ),
        ]
        head = Signal(range(self.depth))
        with m.If(push):
            m.d.sync += head.eq(head + 1)
        ranges = chunks(self.width)
        takes = copied(m, self.take, len(ranges), name="takes")
        for (start, stop), taken in zip(ranges, takes, strict=True):
            array = memory.Memory(
                shape=stop - start, depth=self.depth, init=[], attrs={"ram_style": "distributed"}
            )
            m.submodules[f"array{start}"] = array
            write, read = array.write_port(), array.read_port(domain="comb")
            tail = Signal(range(self.depth), name=f"tail{start}", attrs={"keep_register": 1})
            word = Signal(stop - start, name=f"word{start}", reset_less=True)
            with m.If(taken):
                m.d.sync += tail.eq(tail + 1)
            m.d.sync += word.eq(read.data)
            m.d.comb += [
                # the slot is not in use then: `valid` need not be on this path
                write.en.eq(self.i.ready),
                write.addr.eq(head),
                write.data.eq(self.i.payload[start:stop]),
                read.addr.eq(tail),
                self.word[start:stop].eq(word),
            ]
        return m
