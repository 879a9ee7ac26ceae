"""What a card remembers of rounds that are over.

Golden model: `gradnic.models.offload.job_history`.
"""

from amaranth.hdl import Module, Signal
from amaranth.lib import data, memory, wiring
from amaranth.lib.wiring import In, Out

from gradnic.interface.job import HISTORY

from ..transport.records import Over


class History(wiring.Component):
    """The newest round that is over, of `HISTORY` tensors: one entry for each low bits of a number.

    Members
    -------
    asked, over : In(16).array(2), Out(Over).array(2)
        A tensor, and what is known of its entry, in the same cycle.
    write : In(Over)
        A round that is over; it is kept unless a newer one of its tensor is, from the second next
        cycle on.
    """

    def __init__(self) -> None:
        super().__init__({"asked": In(16).array(2), "over": Out(Over).array(2), "write": In(Over)})

    def elaborate(self, platform):
        m = Module()
        m.submodules.rounds = rounds = memory.Memory(
            shape=data.StructLayout({"tensor": 16, "gen": 16}), depth=HISTORY, init=[]
        )
        known = Signal(HISTORY)
        write = rounds.write_port()
        new = Signal(Over)  # who says it is far away, and what is kept decides
        m.d.sync += new.eq(self.write)
        places = [asked[: len(write.addr)] for asked in self.asked]
        places.append(new.tensor[: len(write.addr)])
        entries = []
        for place in places:
            read = rounds.read_port(domain="comb")
            entry = Signal(Over, name=f"entry{len(entries)}")
            m.d.comb += [
                read.addr.eq(place),
                entry.valid.eq(known.bit_select(place, 1)),
                entry.tensor.eq(read.data.tensor),
                entry.gen.eq(read.data.gen),
            ]
            entries.append(entry)
        for over, entry in zip(self.over, entries, strict=False):
            m.d.comb += over.eq(entry)
        old = entries[-1]
        newer = ~(new.gen - old.gen)[15]
        m.d.comb += [
            write.en.eq(new.valid & (~old.valid | (old.tensor != new.tensor) | newer)),
            write.addr.eq(places[-1]),
            write.data.tensor.eq(new.tensor),
            write.data.gen.eq(new.gen),
        ]
        with m.If(write.en):
            m.d.sync += known.bit_select(places[-1], 1).eq(1)
        return m
