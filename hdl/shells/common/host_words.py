"""Single words of the host in a memory of wide ones.

Plumbing: no golden model of its own.
"""

from amaranth.hdl import Module, Signal
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out
from amaranth.utils import ceil_log2

from ...axi.axis import OKAY, Lite
from ...primitive.names import signals
from ...stream.delays import delayed_flag

WORD_BYTES = 4


class HostWords(wiring.Component):
    """Reads and writes the 32-bit words that an AXI4-Lite manager asks for, one at a time each.

    A write is answered 1 cycle after the second of address and data was taken, a read `latency` + 2
    cycles after its address; 1 more where a write became whole in the cycle of that address, so
    that a read finds every word that was written before or with it. Answers are OKAY. The lowest
    two address bits are ignored.

    Parameters
    ----------
    n_bytes : int
        Of a word of the memory, a power of two, at least 4.
    address_width : int
        Bits of a byte address of the memory.
    latency : int
        Cycles from ``reads`` to ``read_data``, at least 1.

    Members
    -------
    bus : In(Lite(address_width))
        Outputs come from registers.
    reads, read_addr, read_data : Out(1), Out, In(8 * n_bytes)
        The memory must read this word in a cycle in which ``reads`` is high.
    writes, write_en, write_addr, write_data : Out(1), Out(n_bytes), Out, Out(8 * n_bytes)
        The memory must write these bytes in a cycle in which ``writes`` is high.
    """

    def __init__(self, n_bytes: int, address_width: int, latency: int) -> None:
        self.n_bytes = n_bytes
        self.latency = latency
        self.low = ceil_log2(n_bytes)
        self.waits = Signal()  # a read, for the write that came with it
        place = address_width - self.low
        super().__init__(
            {
                "bus": In(Lite(address_width)),
                "reads": Out(1),
                "read_addr": Out(place),
                "read_data": In(8 * n_bytes),
                "writes": Out(1),
                "write_en": Out(n_bytes),
                "write_addr": Out(place),
                "write_data": Out(8 * n_bytes),
            }
        )

    def elaborate(self, platform):
        m = Module()
        self._read(m, self._write(m))
        return m

    def _lane(self, address):
        """Number of a word within one of the memory."""
        return address[ceil_log2(WORD_BYTES) : self.low]

    def _read(self, m, becomes_whole):
        bus = self.bus
        busy = Signal()
        waits = self.waits
        address = Signal.like(bus.araddr)
        came = delayed_flag(m, self.reads, self.latency, name="came")
        m.d.comb += [
            bus.arready.eq(~busy),
            bus.rresp.eq(OKAY),
            self.read_addr.eq(address[self.low :]),
        ]
        take = bus.arvalid & bus.arready
        m.d.sync += [
            waits.eq(take & becomes_whole),
            self.reads.eq((take & ~becomes_whole) | waits),
        ]
        with m.If(bus.arvalid & bus.arready):
            m.d.sync += [busy.eq(1), address.eq(bus.araddr)]
        with m.If(came):
            word = self.read_data.word_select(self._lane(address), 8 * WORD_BYTES)
            m.d.sync += [bus.rvalid.eq(1), bus.rdata.eq(word)]
        with m.If(bus.rvalid & bus.rready):
            m.d.sync += [bus.rvalid.eq(0), busy.eq(0)]

    def _write(self, m):
        bus = self.bus
        has_address, has_data = signals("has_address has_data")
        address = Signal.like(bus.awaddr)
        word = Signal.like(bus.wdata)
        strobes = Signal.like(bus.wstrb)
        whole, written = signals("whole written")  # has been written, and no answer had room
        m.d.comb += [
            bus.awready.eq(~has_address),
            bus.wready.eq(~has_data),
            bus.bresp.eq(OKAY),
            whole.eq(has_address & has_data),
            self.writes.eq(whole & ~written),
            self.write_en.word_select(self._lane(address), WORD_BYTES).eq(strobes),
            self.write_addr.eq(address[self.low :]),
            self.write_data.eq(word.replicate(self.n_bytes // WORD_BYTES)),
        ]
        with m.If(bus.awvalid & bus.awready):
            m.d.sync += [has_address.eq(1), address.eq(bus.awaddr)]
        with m.If(bus.wvalid & bus.wready):
            m.d.sync += [has_data.eq(1), word.eq(bus.wdata), strobes.eq(bus.wstrb)]
        with m.If(bus.bvalid & bus.bready):
            m.d.sync += bus.bvalid.eq(0)
        with m.If(self.writes):
            m.d.sync += written.eq(1)
        with m.If(whole & ~bus.bvalid):
            m.d.sync += [has_address.eq(0), has_data.eq(0), written.eq(0), bus.bvalid.eq(1)]
        return (has_address | bus.awvalid) & (has_data | bus.wvalid) & ~whole
