"""On-chip RAM at an AXI4 port of the card, and for single words of the host.

Source: Arm IHI 0022E part A (AXI4).

Plumbing: no golden model of its own.
"""

from amaranth.hdl import Module, Mux, Signal
from amaranth.lib import data, wiring
from amaranth.lib.wiring import In, Out
from amaranth.utils import ceil_log2

from ...axi.axi4 import BOUNDARY, INCREMENTING, OKAY, ReadPort, WritePort
from ...axi.axis import Lite
from ...axi.channel import Channel
from ...primitive.names import signals
from ...stream.delays import delayed, delayed_flag
from ...stream.outlet import Outlet
from ...stream.slice import Slice
from .host_words import HostWords
from .wide_ram import WideRAM

SLVERR, DECERR = 2, 3


class Axi4Ram(wiring.Component):
    """`n_kib` KiB of `WideRAM`: 1 beat per cycle read and 1 written, at the same time.

    Bursts are of whole beats and INCR, so their lowest address bits count for nothing; ID is 0.
    They are answered in order, reads and writes each without regard to the other: a read whose
    address comes after the answer to a write finds what was written. The first beat comes 8 cycles
    after its address, an answer 1 cycle after the last beat. A burst that begins outside of the
    memory is answered with DECERR, one of another kind with SLVERR; either has all of its beats,
    those read mean nothing, and those written are lost.

    A word of the host takes a cycle of the card's reads or writes and never waits; see `HostWords`.

    Parameters
    ----------
    n_bytes, address_width : int
        Of the card's port, see `gradnic.hdl.axi.axi4.ReadPort`.
    n_kib : int
        A power of two, at least 4, within the addresses of the port.

    Members
    -------
    read, write : In(ReadPort(n_bytes, address_width)), In(WritePort(n_bytes, address_width))
    words : In(Lite(log2(1024 * n_kib)))
    refused : Out(2)
        High for one cycle per burst that is answered with an error: reads, writes.
    """

    def __init__(self, n_bytes: int, n_kib: int, *, address_width: int = 32) -> None:
        if n_kib < BOUNDARY // 1024 or n_kib & (n_kib - 1):
            raise ValueError(f"n_kib must be a power of two from 4 on, not {n_kib!r}")
        self.size_bits = ceil_log2(1024 * n_kib)
        if self.size_bits > address_width:
            raise ValueError(
                f"address_width must be at least {self.size_bits} for {n_kib} KiB, "
                f"not {address_width!r}"
            )
        self.low = ceil_log2(n_bytes)
        self.ram = WideRAM(n_bytes, 1 << self.size_bits - self.low)
        self.host = HostWords(n_bytes, self.size_bits, self.ram.latency)
        # So many beats are under way at full rate: see `Outlet`, whose own latency is 3.
        beat = data.StructLayout({"data": 8 * n_bytes, "resp": 2, "last": 1})
        self.outlet = Outlet(beat, self.ram.latency + 8)
        super().__init__(
            {
                "read": In(ReadPort(n_bytes, address_width)),
                "write": In(WritePort(n_bytes, address_width)),
                "words": In(Lite(self.size_bits)),
                "refused": Out(2),
            }
        )

    def elaborate(self, platform):
        m = Module()
        m.submodules.ram = self.ram
        m.submodules.host = self.host
        wiring.connect(m, wiring.flipped(self.words), self.host.bus)
        self._read(m)
        self._write(m)
        return m

    def _bursts(self, m, port, prefix, **more):
        """Stream of the bursts of an address channel: first beat, answer, and `more` fields."""
        channel = Channel(port, prefix)
        address = channel["addr"]
        fields = {"beat": self.size_bits - self.low, "resp": 2}
        fields |= {name: value.shape() for name, value in more.items()}
        m.submodules[f"{prefix}_bursts"] = part = Slice(data.StructLayout(fields))
        beyond = address[self.size_bits :].any()
        fits = (channel["size"] == self.low) & (channel["burst"] == INCREMENTING)
        m.d.comb += [
            part.i.p.beat.eq(address[self.low :]),
            part.i.p.resp.eq(Mux(beyond, DECERR, Mux(fits, OKAY, SLVERR))),
            *(part.i.p[name].eq(value) for name, value in more.items()),
            part.i.valid.eq(channel.valid),
            channel.ready.eq(part.i.ready),
        ]
        refused = part.i.valid & part.i.ready & (part.i.p.resp != OKAY)
        return part.o, refused

    def _read(self, m):
        port, ram, host, outlet = self.read, self.ram, self.host, self.outlet
        bursts, refused = self._bursts(m, port, "ar", n_less_1=port.arlen)
        m.submodules.outlet = outlet
        go, final = signals("go final")
        at = Signal.like(bursts.p.beat)
        following = Signal.like(bursts.p.beat)
        count = Signal.like(bursts.p.n_less_1)
        m.d.comb += [
            at.eq(Mux(count == 0, bursts.p.beat, following)),
            final.eq(count == bursts.p.n_less_1),
            go.eq(bursts.valid & outlet.free & ~host.reads),
            bursts.ready.eq(go & final),
            ram.read_addr.eq(Mux(host.reads, host.read_addr, at)),
            host.read_data.eq(ram.read_data),
            outlet.start.eq(go),
            outlet.come.eq(delayed_flag(m, go, ram.latency - 1, name="come")),
            outlet.beat.data.eq(ram.read_data),
            outlet.beat.resp.eq(delayed(m, bursts.p.resp, ram.latency, name="resp")),
            outlet.beat.last.eq(delayed(m, final, ram.latency, name="last")),
            port.rdata.eq(outlet.o.p.data),
            port.rresp.eq(outlet.o.p.resp),
            port.rlast.eq(outlet.o.p.last),
            port.rvalid.eq(outlet.o.valid),
            outlet.o.ready.eq(port.rready),
            self.refused[0].eq(refused),
        ]
        with m.If(go):
            m.d.sync += [count.eq(Mux(final, 0, count + 1)), following.eq(at + 1)]

    def _write(self, m):
        port, ram, host = self.write, self.ram, self.host
        bursts, refused = self._bursts(m, port, "aw")
        m.submodules.answers = answers = Slice(2)
        take = Signal()
        first = Signal(init=1)
        at = Signal.like(bursts.p.beat)
        following = Signal.like(bursts.p.beat)
        sound = take & (bursts.p.resp == OKAY)
        m.d.comb += [
            at.eq(Mux(first, bursts.p.beat, following)),
            port.wready.eq(bursts.valid & answers.i.ready & ~host.writes),
            take.eq(port.wvalid & port.wready),
            bursts.ready.eq(take & port.wlast),
            answers.i.valid.eq(take & port.wlast),
            answers.i.p.eq(bursts.p.resp),
            ram.write_en.eq(Mux(host.writes, host.write_en, Mux(sound, port.wstrb, 0))),
            ram.write_addr.eq(Mux(host.writes, host.write_addr, at)),
            ram.write_data.eq(Mux(host.writes, host.write_data, port.wdata)),
            port.bresp.eq(answers.o.p),
            port.bvalid.eq(answers.o.valid),
            answers.o.ready.eq(port.bready),
            self.refused[1].eq(refused),
        ]
        with m.If(take):
            m.d.sync += [first.eq(port.wlast), following.eq(at + 1)]
