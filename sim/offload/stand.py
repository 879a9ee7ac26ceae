"""An offload card on a test stand of streams: a host's script, frames, and memory.

For `gradnic.sim.engine.bulk`, which plays 256 copies of it. Plumbing: no golden model of its own.
"""

from dataclasses import asdict
from enum import IntEnum

from amaranth.hdl import Cat, Module, Mux, Signal
from amaranth.lib import data, stream, wiring
from amaranth.lib.wiring import In, Out
from amaranth.utils import ceil_log2
from gradnic.hdl.offload.card import card
from gradnic.hdl.stream.beats import FrameBeat

from gradnic.interface import params

from .pausing import Pausing

N_BYTES, N_RANKS = 16, 3
CARD = params.Offload(
    n_bytes=N_BYTES, n_nodes=4, n_rows=4, n_chunks=4, n_packets=64, n_ranks=N_RANKS, thc=0
)


class Act(IntEnum):
    """What a step of the script does."""

    WRITE = 0  # the word `data` to the register at `address`
    READ = 1  # of the register at `address`; the word leaves on ``words``
    WAIT = 2  # `data` cycles
    PLAY = 3  # lets `data` frames in, one in `address` cycles at most
    PAUSE = 4  # memory pauses by seed `data`, see `gradnic.sim.offload.pausing`


Step = data.StructLayout({"act": 3, "address": 9, "data": 32})


WRITTEN = data.StructLayout({"address": CARD.address_width, "data": 8 * N_BYTES, "keep": N_BYTES})
"""A beat that the card writes: byte address, bytes, and which of them."""


def pattern(beat, lane, which):
    """What memory `which` gives in 32-bit lane `lane` of beat `beat`: a float of 1 up to 2.

    Whole numbers or arrays; the bits of the float.
    """
    return 0x3F800000 | (beat & 0x3FFF) << 8 | lane << 4 | which


class Stand(wiring.Component):
    """`OffloadCard` of 16 bytes and one port, without THC, small tables, and what is around it.

    Memory is not kept: reads give `pattern`, what is written leaves on a stream. It may pause.

    Members
    -------
    script : In(stream.Signature(Step))
        One after the other, each when the one before is done.
    words : Out(stream.Signature(32))
    mac_rx : In(frames); mac_tx, host_rx : Out(frames)
        Streams of `FrameBeat`.
    results, landings : Out(stream.Signature(WRITTEN))
        Beats written at the gradient port and at that of the landings.
    """

    def __init__(self):
        self.card = card(**asdict(CARD) | {"thc": bool(CARD.thc)})
        frames, written = stream.Signature(FrameBeat(N_BYTES)), stream.Signature(WRITTEN)
        super().__init__(
            {
                "script": In(stream.Signature(Step)),
                "words": Out(stream.Signature(32)),
                "mac_rx": In(frames),
                "mac_tx": Out(frames),
                "host_rx": Out(frames),
                "results": Out(written),
                "landings": Out(written),
            }
        )

    def elaborate(self, platform):
        m = Module()
        m.submodules.card = card = self.card
        wiring.connect(m, card.mac_tx[0], wiring.flipped(self.mac_tx))
        wiring.connect(m, card.host_rx[0], wiring.flipped(self.host_rx))
        opens, pauses = self._script(m, card.bus)
        m.d.comb += [
            card.mac_rx[0].p.eq(self.mac_rx.p),
            card.mac_rx[0].valid.eq(self.mac_rx.valid & opens),
            self.mac_rx.ready.eq(card.mac_rx[0].ready & opens),
        ]
        for which, (kind, out) in enumerate(
            (("gradient", self.results), ("landing", self.landings))
        ):
            m.submodules[kind] = memory = Pausing(N_BYTES, CARD.address_width)
            m.d.comb += memory.pauses.eq(pauses ^ (pauses.any() & which) << 8)
            for way in ("read", "write"):
                card_port = getattr(card, f"{kind}_{way}")
                wiring.connect(m, card_port, getattr(memory, way))
            self._reads(m, memory.to_read, which)
            self._writes(m, memory.to_write, out)
        return m

    def _script(self, m, bus):
        """Carries out the script; says when a beat may come in, and how memory pauses."""
        step, ends = self.script.p, Signal()
        left, count, opens = Signal(16), Signal(16), Signal()
        asked, sent, has_sent = Signal(), Signal(), Signal()
        pauses = Signal(32)
        m.d.comb += [
            self.script.ready.eq(ends),
            bus.awaddr.eq(step.address),
            bus.araddr.eq(step.address),
            bus.wdata.eq(step.data),
            bus.wstrb.eq(-1),
            self.words.payload.eq(bus.rdata),
        ]
        came = self.mac_rx.valid & self.mac_rx.ready
        with m.If(count != 0):
            m.d.sync += count.eq(count - 1)
        with m.If(self.script.valid):
            with m.Switch(step.act):
                with m.Case(Act.WRITE):
                    m.d.comb += [
                        bus.awvalid.eq(~asked),
                        bus.wvalid.eq(~sent),
                        bus.bready.eq(1),
                        ends.eq(bus.bvalid),
                    ]
                    m.d.sync += [
                        asked.eq(~ends & (asked | bus.awready)),
                        sent.eq(~ends & (sent | bus.wready)),
                    ]
                with m.Case(Act.READ):
                    m.d.comb += [
                        bus.arvalid.eq(~asked),
                        bus.rready.eq(self.words.ready),
                        self.words.valid.eq(bus.rvalid),
                        ends.eq(bus.rvalid & bus.rready),
                    ]
                    m.d.sync += asked.eq(~ends & (asked | bus.arready))
                with m.Case(Act.WAIT):
                    m.d.sync += [left.eq(Mux(ends, 0, left + 1))]
                    m.d.comb += ends.eq(left == step.data[:16])
                with m.Case(Act.PLAY):
                    m.d.comb += opens.eq((has_sent | (count == 0)) & (left != step.data[:16]))
                    m.d.comb += ends.eq(left == step.data[:16])
                    with m.If(came):
                        m.d.sync += has_sent.eq(~self.mac_rx.p.last)
                        with m.If(~has_sent):
                            m.d.sync += count.eq(step.address)
                        with m.If(self.mac_rx.p.last):
                            m.d.sync += left.eq(left + 1)
                    with m.If(ends):
                        m.d.sync += left.eq(0)
                with m.Case(Act.PAUSE):
                    m.d.comb += ends.eq(1)
                    m.d.sync += pauses.eq(step.data)
        return opens, pauses

    @staticmethod
    def _reads(m, port, which):
        """Answers bursts, one at a time, with `pattern`."""
        busy, beat, left = Signal(), Signal(16), Signal(8)
        words = [Signal(32, name=f"word{lane}") for lane in range(N_BYTES // 4)]
        m.d.comb += [
            *(word.eq(pattern(beat, lane, which)) for lane, word in enumerate(words)),
            port.arready.eq(~busy),
            port.rvalid.eq(busy),
            port.rlast.eq(left == 0),
            port.rdata.eq(Cat(words)),
        ]
        with m.If(~busy):
            m.d.sync += [busy.eq(port.arvalid), left.eq(port.arlen)]
            m.d.sync += beat.eq(port.araddr >> ceil_log2(N_BYTES))
        with m.Elif(port.rready):
            m.d.sync += [busy.eq(left != 0), beat.eq(beat + 1), left.eq(left - 1)]

    @staticmethod
    def _writes(m, port, out):
        """Hands on what is written, one burst after the other, and answers each."""
        address = Signal.like(port.awaddr)
        busy, owes = Signal(), Signal()
        m.d.comb += [
            port.awready.eq(~busy & ~owes),
            out.p.address.eq(address),
            out.p.data.eq(port.wdata),
            out.p.keep.eq(port.wstrb),
            out.valid.eq(busy & port.wvalid),
            port.wready.eq(busy & out.ready),
            port.bvalid.eq(owes),
        ]
        with m.If(~busy & ~owes):
            m.d.sync += [busy.eq(port.awvalid), address.eq(port.awaddr)]
        with m.Elif(out.valid & out.ready):
            m.d.sync += [address.eq(address + N_BYTES), busy.eq(~port.wlast)]
            m.d.sync += owes.eq(port.wlast)
        with m.Elif(port.bready):
            m.d.sync += owes.eq(0)
