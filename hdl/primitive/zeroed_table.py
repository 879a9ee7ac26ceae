"""Small tables that are read in no time; one reads 0 where nothing was written since power-up.

Plumbing: Verilog for all families tells no contents of zeros, so a memory begins as its part likes.
"""

from amaranth.hdl import Module, Mux, ShapeLike, Signal
from amaranth.lib import memory, wiring

from gradnic.interface.params import check_range

from .block_ram import memory_members


def filled(m: Module, table: memory.Memory, en, addr, data) -> memory.ReadPort:
    """A port that reads in no time of a memory that `en`, `addr` and `data` write."""
    write = table.write_port()
    read = table.read_port(domain="comb")
    m.d.comb += [write.en.eq(en), write.addr.eq(addr), write.data.eq(data)]
    return read


class ZeroedTable(wiring.Component):
    """Memory with a flip-flop a word, which tells that it was written.

    A reset leaves all words as they are.

    Parameters
    ----------
    shape : ShapeLike
        Of a word.
    depth : int
        2 to 256 words.

    Members
    -------
    write_en, write_addr, write_data : In
        A word is read from the next cycle on.
    read_addr, read_data : In, Out(shape)
        In the same cycle.
    """

    def __init__(self, shape: ShapeLike, depth: int) -> None:
        check_range("depth", depth, 2, 256)
        self.shape, self.depth = shape, depth
        super().__init__(memory_members(shape, depth))

    def elaborate(self, platform):
        m = Module()
        m.submodules.words = words = memory.Memory(
            shape=self.shape, depth=self.depth, init=[], attrs={"ram_style": "distributed"}
        )
        read = words.read_port(domain="comb")
        write = words.write_port()
        written = Signal(self.depth, reset_less=True)
        m.d.comb += [
            write.en.eq(self.write_en),
            write.addr.eq(self.write_addr),
            write.data.eq(self.write_data),
            read.addr.eq(self.read_addr),
            self.read_data.eq(Mux(written.bit_select(self.read_addr, 1), read.data, 0)),
        ]
        with m.If(self.write_en):
            m.d.sync += written.bit_select(self.write_addr, 1).eq(1)
        return m
