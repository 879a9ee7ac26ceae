"""Reads and writes of a memory whose beats are wider than those of who asks.

Bursts become bursts of whole wide beats, because memories need not take narrow ones (AXI4 calls a
transfer narrow if ``size`` says less than the bus has).

Source: Arm IHI 0022E part A (AXI4), A3.4.

Plumbing: no golden model of its own.
"""

from amaranth.hdl import Module, Mux, Signal
from amaranth.lib import data, wiring
from amaranth.lib.wiring import In, Out
from amaranth.utils import ceil_log2

from ..primitive.names import signals
from ..stream.fifo import FIFO
from ..stream.slice import Slice
from .axi4 import ReadPort, WritePort
from .channel import Channel

BURSTS = 16  # under way, each way; the next one waits


class _Bursts:
    """What `WideRead` and `WideWrite` make of an address channel."""

    def __init__(self, narrow, wide_bytes):
        self.low, self.high = ceil_log2(narrow.n_bytes), ceil_log2(wide_bytes)
        if self.high <= self.low:
            raise ValueError(f"wide_bytes must be more than {narrow.n_bytes}, not {wide_bytes!r}")
        self.lane_bits = self.high - self.low
        self.shape = data.StructLayout({"lane": self.lane_bits, "n_less_1": 8})

    def convert(self, m, near, far, prefix, places):
        """Offer the wide burst once; its first lane and length go to the FIFO `places`."""
        near, far = Channel(near, prefix), Channel(far, prefix)
        fields, address = ("id", "burst", "cache", "prot"), near["addr"]
        shape = data.StructLayout(
            {
                "addr": len(address) - self.high,
                "len": 8,
                **{name: len(near[name]) for name in fields},
            }
        )
        m.submodules[f"{prefix}_slice"] = asks = Slice(shape)
        lane = address[self.low : self.high]
        m.d.comb += [
            asks.i.p.addr.eq(address[self.high :]),
            asks.i.p.len.eq((lane + near["len"]) >> self.lane_bits),
            *near.take(asks.i.p, *fields),
            asks.i.valid.eq(near.valid & places.i.ready),
            places.i.valid.eq(near.valid & asks.i.ready),
            places.i.p.lane.eq(lane),
            places.i.p.n_less_1.eq(near["len"]),
            near.ready.eq(asks.i.ready & places.i.ready),
            far["addr"].eq(asks.o.p.addr << self.high),
            far["len"].eq(asks.o.p.len),
            far["size"].eq(self.high),
            *far.put(asks.o.p, *fields),
            far.valid.eq(asks.o.valid),
            asks.o.ready.eq(far.ready),
        ]


class WideRead(wiring.Component):
    """Reads of `narrow` beats from a memory of `wide_bytes`: a narrow beat a cycle, 2 cycles
    more.

    Bursts are INCR of whole narrow beats, in order, and one after the other.

    Parameters
    ----------
    narrow : gradnic.hdl.axi.axi4.ReadPort
    wide_bytes : int
        A larger power of two, at most 128.

    Members
    -------
    i, o : In(narrow), Out(ReadPort(wide_bytes, …))
    """

    def __init__(self, narrow: ReadPort, wide_bytes: int) -> None:
        self.bursts = _Bursts(narrow, wide_bytes)
        self.bits = 8 * narrow.n_bytes
        wide = ReadPort(wide_bytes, narrow.address_width)
        super().__init__({"i": In(narrow), "o": Out(wide)})

    def elaborate(self, platform):
        m = Module()
        i, o = self.i, self.o
        m.submodules.places = places = FIFO(self.bursts.shape, BURSTS)
        self.bursts.convert(m, i, o, "ar", places)
        beat = data.StructLayout({"data": self.bits, "resp": 2, "last": 1})
        m.submodules.out = out = Slice(beat)
        first = Signal(init=1)
        lane = Signal(self.bursts.lane_bits)
        left = Signal(8)
        at = Signal.like(lane)
        n_less_1 = Signal.like(left)
        go, last = signals("go last")
        m.d.comb += [
            at.eq(Mux(first, places.o.p.lane, lane)),
            n_less_1.eq(Mux(first, places.o.p.n_less_1, left)),
            last.eq(n_less_1 == 0),
            out.i.valid.eq(o.rvalid & places.o.valid),
            out.i.p.data.eq(o.rdata.word_select(at, self.bits)),
            out.i.p.resp.eq(o.rresp),
            out.i.p.last.eq(last),
            go.eq(out.i.valid & out.i.ready),
            o.rready.eq(go & (last | at.all())),
            places.o.ready.eq(go & last),
            i.rdata.eq(out.o.p.data),
            i.rresp.eq(out.o.p.resp),
            i.rlast.eq(out.o.p.last),
            i.rvalid.eq(out.o.valid),
            out.o.ready.eq(i.rready),
        ]
        with m.If(go):
            m.d.sync += [first.eq(last), lane.eq(at + 1), left.eq(n_less_1 - 1)]
        return m


class WideWrite(wiring.Component):
    """Writes of `narrow` beats to a memory of `wide_bytes`: a narrow beat a cycle, 2 cycles
    more.

    Beats wait for their address. What a wide beat has no narrow beat for is not written.

    Parameters
    ----------
    narrow : gradnic.hdl.axi.axi4.WritePort
    wide_bytes : int
        A larger power of two, at most 128.

    Members
    -------
    i, o : In(narrow), Out(WritePort(wide_bytes, …))
    """

    def __init__(self, narrow: WritePort, wide_bytes: int) -> None:
        self.bursts = _Bursts(narrow, wide_bytes)
        self.n_bytes = narrow.n_bytes
        wide = WritePort(wide_bytes, narrow.address_width)
        super().__init__({"i": In(narrow), "o": Out(wide)})

    def elaborate(self, platform):
        m = Module()
        i, o, n = self.i, self.o, self.n_bytes
        m.submodules.places = places = FIFO(self.bursts.shape, BURSTS)
        self.bursts.convert(m, i, o, "aw", places)
        m.submodules.answers = answers = Slice(2)
        first = Signal(init=1)
        lane = Signal(self.bursts.lane_bits)
        at = Signal.like(lane)
        take, ends = signals("take ends")
        fresh = Signal(init=1)  # nothing is gathered yet
        room = ~o.wvalid | o.wready
        m.d.comb += [
            at.eq(Mux(first, places.o.p.lane, lane)),
            i.wready.eq(places.o.valid & room),
            take.eq(i.wvalid & i.wready),
            ends.eq(i.wlast | at.all()),
            places.o.ready.eq(take & i.wlast),
            answers.i.p.eq(o.bresp),
            answers.i.valid.eq(o.bvalid),
            o.bready.eq(answers.i.ready),
            i.bresp.eq(answers.o.p),
            i.bvalid.eq(answers.o.valid),
            answers.o.ready.eq(i.bready),
        ]
        with m.If(room):
            m.d.sync += o.wvalid.eq(take & ends)
        with m.If(take):
            m.d.sync += [first.eq(i.wlast), lane.eq(at + 1), fresh.eq(ends), o.wlast.eq(i.wlast)]
            for k in range(1 << self.bursts.lane_bits):
                here = at == k
                strobes = o.wstrb[k * n : (k + 1) * n]
                m.d.sync += strobes.eq(Mux(here, i.wstrb, Mux(fresh, 0, strobes)))
                with m.If(here):
                    m.d.sync += o.wdata[8 * k * n : 8 * (k + 1) * n].eq(i.wdata)
        return m
