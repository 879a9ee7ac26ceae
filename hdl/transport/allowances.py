"""What each neighbor may still lose of a round.

Part of `gradnic.hdl.offload.card`, whose golden model it follows.
"""

from amaranth.hdl import Module, Mux
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out
from amaranth.utils import ceil_log2

from ..primitive.zeroed_table import ZeroedTable
from .records import BYTES_WIDTH, N_NEIGHBORS, Allowance


class Allowances(wiring.Component):
    """A number for each neighbor; what is left of it is written in the cycle of ``spend``.

    Plumbing of `Receiver`, which is what has a golden model.

    Members
    -------
    write : In(Allowance)
        Not in a cycle of ``spend``.
    neighbor, bytes : In, Out
        Read in the same cycle.
    spend, left : In(1), In(BYTES_WIDTH)
        What the neighbor has from the next cycle on.
    """

    def __init__(self) -> None:
        super().__init__(
            {
                "write": In(Allowance),
                "neighbor": In(ceil_log2(N_NEIGHBORS)),
                "bytes": Out(BYTES_WIDTH),
                "spend": In(1),
                "left": In(BYTES_WIDTH),
            }
        )

    def elaborate(self, platform):
        m = Module()
        m.submodules.table = table = ZeroedTable(BYTES_WIDTH, N_NEIGHBORS)
        m.d.comb += [
            table.read_addr.eq(self.neighbor),
            self.bytes.eq(table.read_data),
            table.write_en.eq(self.write.enable | self.spend),
            table.write_addr.eq(Mux(self.spend, self.neighbor, self.write.index)),
            table.write_data.eq(Mux(self.spend, self.left, self.write.bytes)),
        ]
        return m
