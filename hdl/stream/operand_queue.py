"""Queue in front of a free-running unit: what stalls it reaches no register of the data.

Plumbing: no golden model of its own.
"""

from amaranth.hdl import Module, Signal
from amaranth.lib import memory, stream, wiring
from amaranth.lib.wiring import In, Out

from .admission import credit
from .delays import copied, delayed
from .steering import chunks

SLOTS = 16  # of one LUT RAM
DEPTH = SLOTS - 1  # the slot at the head is never in use, and may be written at any time


class OperandQueue(wiring.Component):
    """Entries in LUT RAM that a strobe fetches: 1 per cycle, `latency` cycles after the strobe.

    Plumbing: no golden model of its own.

    Units that take a word of several queues in the same cycle stand far from each of them. Here
    the decision that they do needs a few flags; it reaches a register at each piece of the queue,
    and the entry comes through one that loads in every cycle.

    Parameters
    ----------
    width : int
        Bits of an entry.

    Members
    -------
    i : In(stream.Signature(width))
        Holds `DEPTH` entries. ``ready`` is a register.
    pushed : Out(1)
        An entry comes in: it may be taken from the second cycle on.
    take : In(1)
        The oldest entry is taken; only where there is one.
    entry : Out(width)
        What was taken `latency` cycles ago.
    """

    latency = 2

    def __init__(self, width: int) -> None:
        self.width = width
        super().__init__(
            {
                "i": In(stream.Signature(width)),
                "pushed": Out(1),
                "take": In(1),
                "entry": Out(width),
            }
        )

    def elaborate(self, platform):
        m = Module()
        free = credit(m, DEPTH, take=self.pushed, give=self.take, name="room")
        m.d.comb += [self.i.ready.eq(free), self.pushed.eq(self.i.valid & free)]
        ranges = chunks(self.width)
        takes = copied(m, self.take, len(ranges), name="take")
        for (start, stop), take in zip(ranges, takes, strict=True):
            m.submodules[f"bits{start}"] = array = memory.Memory(
                shape=stop - start, depth=SLOTS, init=[], attrs={"ram_style": "distributed"}
            )
            write, read = array.write_port(), array.read_port(domain="comb")
            kept = {"keep_register": 1}
            head = Signal(range(SLOTS), name=f"head{start}", attrs=kept)
            tail = Signal(range(SLOTS), name=f"tail{start}", attrs=kept)
            m.d.comb += [
                write.en.eq(1),
                write.addr.eq(head),
                write.data.eq(self.i.payload[start:stop]),
                read.addr.eq(tail),
                self.entry[start:stop].eq(delayed(m, read.data, 1, name=f"entry{start}")),
            ]
            with m.If(self.pushed):
                m.d.sync += head.eq(head + 1)
            with m.If(take):
                m.d.sync += tail.eq(tail + 1)
        return m
