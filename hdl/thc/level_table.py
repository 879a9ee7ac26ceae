"""Turns THC indices of 4 bits into levels of 8 bits, as they are summed.

Part of `gradnic.hdl.thc.decoder`, whose golden model it follows.
"""

from amaranth.hdl import Cat, Module, Mux, Signal
from amaranth.lib import data, memory, stream, wiring
from amaranth.lib.wiring import In, Out

from ..stream.beats import Beat


class LevelTable(wiring.Component):
    """Passes beats as they are, or looks up indices: then each beat becomes two.

    Latency 1 cycle; 1 beat of output per cycle. Indices are most significant first in their byte,
    one level per byte comes out, in the same order. Levels are looked up in LUT RAM, which is
    written over and over, a level a cycle: as a choice of 16 each takes 30 times as many LUT.

    Parameters
    ----------
    n_bytes : int
        Of a beat, at least 2.

    Members
    -------
    levels : In(ArrayLayout(8, 16))
        Must not change from 16 cycles before a beat of indices on until it has left.
    i : In(stream.Signature({data, last, expand}))
    o : Out(stream.Signature(Beat(8 * n_bytes)))
    """

    def __init__(self, n_bytes: int) -> None:
        if n_bytes < 2:
            raise ValueError(f"n_bytes must be at least 2, not {n_bytes!r}")
        self.n_bytes = n_bytes
        shape = data.StructLayout({"data": 8 * n_bytes, "last": 1, "expand": 1})
        super().__init__(
            {
                "levels": In(data.ArrayLayout(8, 16)),
                "i": In(stream.Signature(shape)),
                "o": Out(stream.Signature(Beat(8 * n_bytes))),
            }
        )

    def elaborate(self, platform):
        m = Module()
        i, o = self.i, self.o
        m.submodules.table = table = memory.Memory(
            shape=8, depth=16, init=[], attrs={"ram_style": "distributed"}
        )
        write, turn, levels = table.write_port(), Signal(4), self.levels.as_value()
        m.d.sync += turn.eq(turn + 1)
        m.d.comb += [
            write.en.eq(1),
            write.addr.eq(turn),
            write.data.eq(levels.word_select(turn, 8)),
        ]

        def level(index):
            read = table.read_port(domain="comb")
            m.d.comb += read.addr.eq(index)
            return read.data

        high = Signal()  # the second half of a beat is next
        ready, ends = Signal(), Signal()
        half = Signal(4 * self.n_bytes)
        m.d.comb += [
            ready.eq(o.ready | ~o.valid),
            ends.eq(high | ~i.p.expand),
            i.ready.eq(ready & ends),
            half.eq(Mux(high, i.p.data[4 * self.n_bytes :], i.p.data[: 4 * self.n_bytes])),
        ]
        octets = [half[8 * k : 8 * k + 8] for k in range(self.n_bytes // 2)]
        found = Cat(Cat(level(octet[4:]), level(octet[:4])) for octet in octets)
        with m.If(ready):
            m.d.sync += [
                o.valid.eq(i.valid),
                o.p.data.eq(Mux(i.p.expand, found, i.p.data)),
                o.p.last.eq(i.p.last & ends),
            ]
            with m.If(i.valid):
                m.d.sync += high.eq(~ends)
        return m
