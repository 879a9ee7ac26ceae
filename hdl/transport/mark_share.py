"""Share of packets that came with congestion marks, by neighbor, since it was last sent.

Golden model: `gradnic.models.transport.mark_share`.
"""

from amaranth.hdl import Cat, Module, Mux, Signal
from amaranth.lib import data, wiring
from amaranth.lib.wiring import In, Out
from amaranth.utils import ceil_log2

from ..primitive.names import signals
from ..primitive.zeroed_table import ZeroedTable
from ..stream.delays import delayed
from .records import N_NEIGHBORS

COUNT = 12  # bits: up to 4095 packets count


class MarkShare(wiring.Component):
    """Counts packets and marks; ``share`` is right 11 cycles after a packet came.

    Packets beyond the 4095th do not count.

    Members
    -------
    neighbor : In(4)
        Who sent the packet, or gets the share; the same from the packet to the answer.
    packet, marked : In(1)
        A pulse for a packet, in every second cycle at most, and whether it has CE.
    sent : In(1)
        A pulse when the share has been sent, at least 3 cycles behind the packet: counting starts
        anew.
    share : Out(8)
        In 1/256, at most 255.
    known : Out(1)
        ``share`` is right.
    """

    def __init__(self) -> None:
        super().__init__(
            {
                "neighbor": In(ceil_log2(N_NEIGHBORS)),
                "packet": In(1),
                "marked": In(1),
                "sent": In(1),
                "share": Out(8),
                "known": Out(1),
            }
        )

    def elaborate(self, platform):
        m = Module()
        count = data.StructLayout({"packets": COUNT, "marked": COUNT})
        m.submodules.counts = table = ZeroedTable(count, N_NEIGHBORS)
        known, new = signals("known new", count, reset_less=True)
        came, marked = signals("came marked")  # a cycle later, with what was known
        full = known.packets.all()
        counted = Signal()  # two, with what is known now
        who = delayed(m, self.neighbor, 2, name="who")  # of whom that is
        m.d.sync += [
            came.eq(self.packet),
            marked.eq(self.marked),
            known.eq(Mux(counted & (who == self.neighbor), new.as_value(), table.read_data)),
            counted.eq(came),
            new.packets.eq(known.packets + ~full),
            new.marked.eq(known.marked + (~full & marked)),
        ]
        left = Signal(range(9))  # bits of the quotient to come
        rest = Signal(COUNT + 1, reset_less=True)
        whole = Signal(COUNT, reset_less=True)
        twice = rest << 1
        fits = Signal()
        m.d.comb += [
            table.read_addr.eq(self.neighbor),
            table.write_addr.eq(who),
            table.write_en.eq(counted | self.sent),
            table.write_data.eq(Mux(self.sent, 0, new.as_value())),
            fits.eq(twice >= whole),
            self.known.eq(~(self.packet | came | counted) & (left == 0)),
        ]
        with m.If(counted):
            m.d.sync += [rest.eq(new.marked), whole.eq(new.packets), left.eq(8)]
        with m.Elif(left != 0):
            m.d.sync += [
                rest.eq(Mux(fits, twice - whole, twice)),
                self.share.eq(Cat(fits, self.share)),
                left.eq(left - 1),
            ]
        return m
