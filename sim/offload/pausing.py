"""A memory that pauses, in gates: in front of any AXI4 memory of a bench.

As `gradnic.sim.offload.pauses` has it behind clusters, but for one memory of several ports.
Plumbing: no golden model of its own.
"""

from amaranth.hdl import Module, Mux, Signal
from amaranth.lib import data, wiring
from amaranth.lib.wiring import In, Out
from gradnic.hdl.axi.axi4 import ReadPort, WritePort
from gradnic.hdl.stream.fifo import FIFO

CHANNELS = ("aw", "w", "b", "ar", "r")
LONGEST = 64  # cycles of a pause
RARE = 6  # bits that are all 1 where one begins: a channel rests for a third of the time
DEPTH = 32  # beats that come before their address: two bursts


class Pausing(wiring.Component):
    """Withholds what AXI4 lets a memory withhold: ready, and beats and answers not yet offered.

    Parameters
    ----------
    n_bytes, address_width : int
        Of the ports.

    Members
    -------
    pauses : In(32)
        A seed; 0: never, and nothing is a cycle later. An address waits for nothing where its last
        two bits are 0, for the first of its data where they are 1, else for all of them; data wait
        for their address otherwise.
    read, write : In(ReadPort), In(WritePort)
        Of the card.
    to_read, to_write : Out(ReadPort), Out(WritePort)
        Of the memory.
    """

    def __init__(self, n_bytes, address_width):
        read, write = ReadPort(n_bytes, address_width), WritePort(n_bytes, address_width)
        super().__init__(
            {
                "pauses": In(32),
                "read": In(read),
                "write": In(write),
                "to_read": Out(read),
                "to_write": Out(write),
            }
        )

    def elaborate(self, platform):
        m = Module()
        on = self.pauses.any()
        opens = self._opens(m, on)
        for prefix, card, there in (("ar", self.read, self.to_read),
                                    ("aw", self.write, self.to_write)):  # fmt: skip
            m.d.comb += [
                getattr(there, f"{prefix}{what}").eq(getattr(card, f"{prefix}{what}"))
                for what in ("id", "addr", "len", "size", "burst", "cache", "prot")
            ]
        for prefix, card, there in (("r", self.read, self.to_read),
                                    ("b", self.write, self.to_write)):  # fmt: skip
            offers, holds = Signal(name=f"{prefix}_offers"), Signal(name=f"{prefix}_holds")
            names = ("id", "data", "resp", "last") if prefix == "r" else ("id", "resp")
            valid, ready = f"{prefix}valid", f"{prefix}ready"
            m.d.comb += [
                *(getattr(card, f"{prefix}{what}").eq(getattr(there, f"{prefix}{what}"))
                  for what in names),
                offers.eq(getattr(there, valid) & (opens[prefix] | holds)),
                getattr(card, valid).eq(offers),
                getattr(there, ready).eq(getattr(card, ready) & offers),
            ]  # fmt: skip
            m.d.sync += holds.eq(offers & ~getattr(card, ready))
        m.d.comb += [
            self.to_read.arvalid.eq(self.read.arvalid & opens["ar"]),
            self.read.arready.eq(self.to_read.arready & opens["ar"]),
        ]
        self._writes(m, on, opens)
        return m

    def _opens(self, m, on):
        """{channel: whether it does not pause}."""
        state = Signal(32)
        a = state ^ (state << 13)[:32]
        b = a ^ a >> 17
        m.d.sync += state.eq(Mux(state.any() & on, b ^ (b << 5)[:32], self.pauses))
        opens = {}
        for k, name in enumerate(CHANNELS):
            left, opens[name] = Signal(range(LONGEST), name=f"{name}_left"), Signal(name=name)
            m.d.comb += opens[name].eq(left == 0)
            with m.If(left != 0):
                m.d.sync += left.eq(left - 1)
            with m.Elif(on & state[RARE * k : RARE * (k + 1)].all()):
                m.d.sync += left.eq(state.rotate_left(3 * k))
        return opens

    def _writes(self, m, on, opens):
        card, there = self.write, self.to_write
        beat = data.StructLayout(
            {"data": card.wdata.shape(), "strb": card.wstrb.shape(), "last": 1}
        )
        m.submodules.early = early = FIFO(beat, DEPTH)
        first, whole = self.pauses[1], Signal()  # all data of a burst come first; they have come
        due = Signal(8)  # bursts whose data are to come
        comes, asked, ends = Signal(), Signal(), Signal()
        may_ask = Mux(self.pauses[:2].any(), Mux(first, whole, card.wvalid), 1) & opens["aw"]
        may_come = Mux(first, ~whole, due != 0) & opens["w"]
        m.d.comb += [
            there.awvalid.eq(card.awvalid & (may_ask | ~on)),
            card.awready.eq(there.awready & (may_ask | ~on)),
            asked.eq(card.awvalid & card.awready),
            early.i.valid.eq(card.wvalid & may_come & on),
            early.i.p.data.eq(card.wdata),
            early.i.p.strb.eq(card.wstrb),
            early.i.p.last.eq(card.wlast),
            card.wready.eq(Mux(on, early.i.ready & may_come, there.wready)),
            comes.eq(card.wvalid & card.wready),
            ends.eq(comes & card.wlast),
            there.wvalid.eq(Mux(on, early.o.valid, card.wvalid)),
            there.wdata.eq(Mux(on, early.o.p.data, card.wdata)),
            there.wstrb.eq(Mux(on, early.o.p.strb, card.wstrb)),
            there.wlast.eq(Mux(on, early.o.p.last, card.wlast)),
            early.o.ready.eq(there.wready & on),
        ]
        with m.If(asked != ends):
            m.d.sync += due.eq(Mux(asked, due + 1, due - 1))
        with m.If(ends):
            m.d.sync += whole.eq(1)
        with m.Elif(asked):
            m.d.sync += whole.eq(0)
