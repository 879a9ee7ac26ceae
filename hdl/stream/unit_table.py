"""A small table of records, one for each unit under way.

Plumbing: no golden model of its own.
"""

from amaranth.hdl import Array, Module, Signal, Value
from amaranth.lib import memory, wiring
from amaranth.lib.wiring import In, Out

from ..primitive.names import signals
from ..primitive.parity import astray
from .delays import copied, delayed


class Table(wiring.Component):
    """What is known of the units under way, in their order: a ring in LUT RAM.

    Plumbing: no golden model of its own.

    The unit being worked on is shown late, from registers that load in every cycle: the flag that
    moves on to the next unit is often the latest of its cycle, and here it reaches no wide clock
    enable. The table does not count: its users let in at most ``depth`` units. ``strays`` : flag,
    an address changed by itself, see `gradnic.hdl.primitive.parity.astray`.

    Parameters
    ----------
    shape : shape-like
        An entry.
    depth : int
        Entries, a power of two from 2 to 64.

    Members
    -------
    write, entry : In(1), In(shape)
        Appends an entry; it can be shown from the third cycle on.
    next : In(1)
        The oldest entry goes in this cycle.
    oldest : Out(shape)
        The entry that was the oldest ``latency`` cycles ago, in a cycle of ``next`` the one that
        went. ``latency`` is 1 up to 16 entries, else 2.
    """

    BANK = 16  # entries that one LUT RAM holds
    SLICE = 32  # bits that one copy of the read address serves

    def __init__(self, shape, depth: int) -> None:
        if not 2 <= depth <= 64 or depth & (depth - 1):
            raise ValueError(f"depth must be 2, 4, 8, 16, 32 or 64, not {depth!r}")
        self.depth = depth
        self.latency = 1 if depth <= self.BANK else 2
        self.strays = Signal()
        super().__init__({"write": In(1), "entry": In(shape), "next": In(1), "oldest": Out(shape)})

    def elaborate(self, platform):
        m = Module()
        head, slot = signals("head slot", range(self.depth))
        with m.If(self.write):
            m.d.sync += head.eq(head + 1)
        m.d.sync += slot.eq(head)
        entry, oldest = Value.cast(self.entry), Value.cast(self.oldest)
        entry = delayed(m, entry, 1, name="entry")
        tails = []
        for start in range(0, len(entry), self.SLICE):
            stop = min(start + self.SLICE, len(entry))
            tail = Signal.like(head, name=f"tail{start}", attrs={"keep_register": 1})
            tails.append(tail)
            with m.If(self.next):
                m.d.sync += tail.eq(tail + 1)
            banks = []
            for bank in range(-(-self.depth // self.BANK)):
                array = memory.Memory(
                    shape=stop - start,
                    depth=min(self.depth, self.BANK),
                    init=[],
                    attrs={"ram_style": "distributed"},
                )
                m.submodules[f"bits{start}_bank{bank}"] = array
                write = array.write_port()
                read = array.read_port(domain="comb")
                mine = self.write & (head[4:] == bank)
                (enable,) = copied(m, mine, 1, name=f"write{start}_{bank}_")
                held = Signal(stop - start, name=f"held{start}_{bank}", reset_less=True)
                m.d.sync += held.eq(read.data)
                m.d.comb += [
                    write.en.eq(enable),
                    write.addr.eq(slot[:4]),
                    write.data.eq(entry[start:stop]),
                    read.addr.eq(tail[:4]),
                ]
                banks.append(held)
            shown = banks[0]
            if len(banks) > 1:
                shown = Signal(stop - start, name=f"shown{start}", reset_less=True)
                high = delayed(m, tail[4:], 1, name=f"high{start}")
                m.d.sync += shown.eq(Array(banks)[high])
            m.d.comb += oldest[start:stop].eq(shown)
        m.d.comb += self.strays.eq(astray(m, (head, *tails), self.write | self.next))
        return m
