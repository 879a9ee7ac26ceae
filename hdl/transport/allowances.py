"""What each neighbor may still lose of a round, or what must still come of it.

Golden model: `gradnic.models.transport.allowances`.
"""

from amaranth.hdl import Module, Mux, Signal
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out
from amaranth.utils import ceil_log2

from ..primitive.zeroed_table import ZeroedTable
from .records import BYTES_WIDTH, ELEMS_WIDTH, N_NEIGHBORS, Allowance


class Allowances(wiring.Component):
    """A number for each neighbor; what is left of it is written in the cycle of ``spend``.

    A packet that ``comes`` is taken from its neighbor's number, down to 0, at most 10 cycles later;
    the next one comes no sooner, and `neighbor` may be looked at no sooner.

    Parameters
    ----------
    bits : int
        4, or 8 for indices of 2 to 8 bits.

    Members
    -------
    write : In(Allowance)
        Not in a cycle of ``spend``.
    neighbor, bytes : In, Out
        Read in the same cycle.
    spend, left : In(1), In(BYTES_WIDTH)
        What the neighbor has from the next cycle on.
    comes, elems, leaves, thc : In
        A packet of `neighbor` came, whose bytes count, times the leaves. An element has 4 bytes,
        with ``thc`` half a byte, or ``bits`` : In(4) bits; they are a multiple of 16 then.
    clear : In(1)
        What came last may count no more.
    """

    def __init__(self, bits: int = 4) -> None:
        self.varies = bits > 4
        super().__init__(
            {
                "write": In(Allowance),
                "neighbor": In(ceil_log2(N_NEIGHBORS)),
                "bytes": Out(BYTES_WIDTH),
                "spend": In(1),
                "left": In(BYTES_WIDTH),
                "comes": In(1),
                "elems": In(ELEMS_WIDTH),
                "leaves": In(8),
                "thc": In(1),
                **({"bits": In(4)} if self.varies else {}),
                "clear": In(1),
            }
        )

    def elaborate(self, platform):
        m = Module()
        m.submodules.table = table = ZeroedTable(BYTES_WIDTH, N_NEIGHBORS)
        # what came: its bytes times its leaves, a bit of those a cycle
        counts = Signal()
        source = Signal.like(self.neighbor, reset_less=True)
        leaves = Signal(8, reset_less=True)
        width = ELEMS_WIDTH + 2 + 8
        packed = (self.elems * self.bits) >> 3 if self.varies else self.elems >> 1
        shifted, came = (Signal(width, name=n, reset_less=True) for n in ("shifted", "came"))
        m.d.sync += [leaves.eq(leaves >> 1), shifted.eq(shifted << 1)]
        with m.If(leaves[0]):
            m.d.sync += came.eq(came + shifted)
        ends = Signal()
        m.d.comb += ends.eq(counts & (leaves == 0))
        with m.If(ends | self.clear):
            m.d.sync += counts.eq(0)
        with m.If(self.comes & ~self.clear):
            m.d.sync += [
                counts.eq(self.leaves.any()),
                source.eq(self.neighbor),
                leaves.eq(self.leaves),
                shifted.eq(Mux(self.thc, packed, self.elems << 2)),
                came.eq(0),
            ]
        rest = Signal(BYTES_WIDTH + 1)
        held = Signal(BYTES_WIDTH, reset_less=True)  # what its neighbor has, read before the end
        m.d.sync += held.eq(Mux(self.spend, self.left, table.read_data))
        m.d.comb += [
            rest.eq(held - came),  # the last bit: below 0
            table.read_addr.eq(Mux(counts, source, self.neighbor)),
            self.bytes.eq(table.read_data),
            table.write_en.eq(self.write.enable | self.spend | ends),
            table.write_addr.eq(
                Mux(ends, source, Mux(self.spend, self.neighbor, self.write.index))
            ),
            table.write_data.eq(
                Mux(
                    ends,
                    Mux(rest[-1], 0, rest[:-1]),
                    Mux(self.spend, self.left, self.write.bytes),
                )
            ),
        ]
        return m
