"""Makes packets: reads what belongs into each, adds it up, codes it, and writes its head."""

from amaranth.hdl import Cat, Module, Mux, Signal
from amaranth.lib import data, stream, wiring
from amaranth.lib.wiring import In, Out
from amaranth.utils import ceil_log2

from ..formats import Op
from ..offload import Subtype
from .codec_image import CodecImage
from .compressor import Compressor
from .dma import LENGTH_WIDTH, Range
from .fifo import FIFO
from .offload_types import (
    ELEMS_WIDTH,
    LEAVES_WIDTH,
    NUMBER_WIDTH,
    UNIT,
    Head,
    Marks,
    OwnPacket,
    Packet,
    Round,
)
from .streams import Beat, BlockFIFO
from .summing import Summing

ELEM_BYTES = 4
GRADIENT, RESULT = 0, 1  # regions of the gradient port
N_PACKETS = 16  # whose values are being read and added


class PacketMaker(wiring.Component):
    """Packets of partial sums, of the result, and PROBEs: values in the order of their heads.

    A packet's beats take max(1, contributions) times their number of cycles; contributions that
    did not come add nothing. Packets of terminal rows go to ``own`` and ``kept``, through the
    codec's image where the round is coded.

    Parameters
    ----------
    n_bytes : int
        Of a beat, 16, 32 or 64.
    n_ranks : int
        Contributions to a chunk, at most.
    max_elems : int
        Of a packet, at most.

    Members
    -------
    round : In(Round)
    packets : In(stream.Signature(Packet))
    area : In(24)
        Beats of a landing area.
    ask, answer : Out(number of a packet), In(Marks(n_ranks))
        As of `Receiver`.
    reads : Out(stream.Signature(Range(2)))
        Of the node's own values: region 0 is the gradient, 1 the result.
    landings : Out(stream.Signature(Range()))
        Of contributions.
    values, contributions : In(stream.Signature(Beat(8 * n_bytes)))
        What was read.
    heads : Out(stream.Signature(Head))
    payload : Out(stream.Signature(Beat(8 * n_bytes)))
    own : Out(stream.Signature(OwnPacket))
    kept : Out(stream.Signature(Beat(8 * n_bytes)))
    """

    def __init__(self, n_bytes, *, n_ranks=4, max_elems=352):
        self.n_bytes, self.n_ranks, self.max_elems = n_bytes, n_ranks, max_elems
        self.lanes = n_bytes // ELEM_BYTES
        beats = stream.Signature(Beat(8 * n_bytes))
        super().__init__(
            {
                "round": In(Round),
                "packets": In(stream.Signature(Packet)),
                "area": In(LENGTH_WIDTH),
                "ask": Out(NUMBER_WIDTH),
                "answer": In(Marks(n_ranks)),
                "reads": Out(stream.Signature(Range(2))),
                "landings": Out(stream.Signature(Range())),
                "values": In(beats),
                "contributions": In(beats),
                "heads": Out(stream.Signature(Head)),
                "payload": Out(beats),
                "own": Out(stream.Signature(OwnPacket)),
                "kept": Out(beats),
            }
        )

    def elaborate(self, platform):
        m = Module()
        m.submodules.summing = summing = Summing(
            self.lanes, max_beats=-(-self.max_elems // self.lanes)
        )
        wiring.connect(m, wiring.flipped(self.values), summing.own)
        wiring.connect(m, wiring.flipped(self.contributions), summing.contributions)
        goal = data.StructLayout({"terminal": 1, "elems": ELEMS_WIDTH})
        m.submodules.goals = goals = FIFO(goal, N_PACKETS)
        m.submodules.told = told = FIFO(Head, N_PACKETS)
        m.submodules.owned = owned = FIFO(OwnPacket, N_PACKETS)
        wiring.connect(m, owned.o, wiring.flipped(self.own))
        self._prepare(m, summing.jobs, goals.i, told.i, owned.i)
        self._finish(m, summing.sums, goals.o, told.o)
        return m

    def _prepare(self, m, jobs, goals, told, owned):
        """One packet after the other: what to read, what to add, what the head says."""
        packet = Signal(Packet, reset_less=True)
        marks = Signal(self.answer.shape(), reset_less=True)
        offset, n_beats = Signal(LENGTH_WIDTH), Signal(LENGTH_WIDTH, reset_less=True)
        per_unit = ceil_log2(UNIT * ELEM_BYTES // self.n_bytes)
        rank = Signal(range(self.n_ranks))
        area = Signal(LENGTH_WIDTH, reset_less=True)
        present = Signal(self.n_ranks, reset_less=True)  # contributions not asked for yet
        n_present = Signal(range(self.n_ranks + 1))
        leaves = Signal(LEAVES_WIDTH)
        codec = self.round.codec
        m.d.comb += [
            self.ask.eq(packet.number),
            offset.eq(packet.offset << per_unit),
            self.reads.p.region.eq(Mux(packet.ph, RESULT, GRADIENT)),
            self.reads.p.offset.eq(offset),
            self.reads.p.n_beats.eq(n_beats),
            self.landings.p.offset.eq(offset + area),
            self.landings.p.n_beats.eq(n_beats),
            jobs.p.n_beats.eq(n_beats),
            jobs.p.n_contributions.eq(n_present),
            goals.p.terminal.eq(packet.terminal),
            goals.p.elems.eq(packet.elems),
            owned.p.leaves.eq(leaves),
            *(owned.p[name].eq(packet[name]) for name in ("chunk", "number", "offset", "elems")),
        ]
        head = told.p
        m.d.comb += [
            *(head[name].eq(packet[name]) for name in ("ph", "neighbor", "elems")),
            head.slot.eq(packet.flow),
        ]
        with m.If(packet.probe):
            m.d.comb += [
                head.op.eq(Op.CONTROL),
                head.p0.eq(Subtype.PROBE),
                head.seq.eq(packet.number),
                head.arg.eq(packet.stamp),
            ]
        with m.Else():
            m.d.comb += [
                head.op.eq(Mux(codec.coded, Op.INC, Op.RAW)),
                head.retx.eq(packet.retx),
                head.last.eq(packet.last),
                head.seq.eq(packet.offset),
                head.arg.eq(leaves << 32 - LEAVES_WIDTH),
                head.length.eq(packet.elems << 2),
                head.p0.eq(
                    Mux(
                        codec.coded,
                        Cat(codec.exponent, codec.paper),
                        Mux(leaves > 255, 255, leaves),
                    )
                ),
                head.p1.eq(Mux(codec.coded, codec.prescale, 0)),
            ]
        room = Signal()
        m.d.comb += room.eq(jobs.ready & goals.ready & told.ready & owned.ready)
        with m.FSM():
            with m.State("REST"):
                m.d.comb += self.packets.ready.eq(1)
                m.d.sync += [
                    packet.eq(self.packets.p),
                    n_beats.eq((self.packets.p.elems + self.lanes - 1) >> ceil_log2(self.lanes)),
                    rank.eq(0),
                    area.eq(0),
                ]
                with m.If(self.packets.valid):
                    m.next = "ASK"
                    with m.If(self.packets.p.probe):
                        m.next = "PROBE"
            with m.State("PROBE"):
                m.d.comb += told.valid.eq(1)
                with m.If(told.ready):
                    m.next = "REST"
            with m.State("ASK"):
                m.next = "ASKED"
            with m.State("ASKED"):
                m.next = "HEAR"
            with m.State("HEAR"):
                m.d.sync += [
                    marks.eq(self.answer),
                    present.eq(
                        Cat(
                            mark.here & ~packet.ph & (packet.wait > k)
                            for k, mark in enumerate(self.answer.up)
                        )
                    ),
                ]
                m.next = "COUNT"
            with m.State("COUNT"):
                counted = [Mux(present[k], one.leaves, 0) for k, one in enumerate(marks.up)]
                m.d.sync += [
                    n_present.eq(sum(present)),
                    leaves.eq(Mux(packet.ph, marks.down.leaves, 1 + sum(counted))),
                ]
                m.next = "READ"
            with m.State("READ"):
                m.d.comb += self.reads.valid.eq(room)
                with m.If(room & self.reads.ready):
                    m.d.comb += [
                        jobs.valid.eq(1),
                        goals.valid.eq(1),
                        told.valid.eq(~packet.terminal),
                        owned.valid.eq(packet.terminal),
                    ]
                    m.next = "LAND"
            with m.State("LAND"):
                m.d.comb += self.landings.valid.eq(present[0])
                with m.If(self.landings.ready | ~present[0]):
                    m.d.sync += [
                        present.eq(present >> 1),
                        area.eq(area + self.area),
                        rank.eq(rank + 1),
                    ]
                with m.If(~present.any()):
                    m.next = "REST"

    def _finish(self, m, sums, goals, told):
        """Sums become payloads, or this node's own result."""
        m.submodules.compressor = compressor = Compressor(self.lanes, max_floats=self.max_elems)
        m.submodules.image = image = CodecImage(self.lanes)
        codec, coded = self.round.codec, self.round.codec.coded
        first, go = Signal(init=1), Signal()
        entry, out = Signal(), Signal()  # the beat goes to the compressor; to the payload
        to_image, to_kept = Signal(), Signal()
        terminal = goals.p.terminal
        ready = Signal()
        # raw payloads wait for the framer here, as coded ones do in the compressor
        m.submodules.raw = raw = BlockFIFO(Beat(8 * self.n_bytes), 2 * self.n_bytes)
        m.d.comb += [
            entry.eq(coded & ~terminal),
            out.eq(~coded & ~terminal),
            to_image.eq(coded & terminal),
            to_kept.eq(~coded & terminal),
            image.codec.eq(codec),
            ready.eq(
                (entry & compressor.floats.ready & (compressor.units.ready | ~first))
                | (out & raw.i.ready)
                | (to_image & image.i.ready)
                | (to_kept & self.kept.ready)
            ),
            go.eq(goals.valid & sums.valid & ready),
            sums.ready.eq(goals.valid & ready),
            goals.ready.eq(go & sums.p.last),
            compressor.units.valid.eq(go & entry & first),
            compressor.units.p.count.eq(goals.p.elems),
            compressor.units.p.exponent.eq(codec.exponent),
            compressor.units.p.paper.eq(codec.paper),
            compressor.units.p.prescale.eq(codec.prescale),
            compressor.units.p.limit.eq(0xFFFF),
            compressor.floats.valid.eq(go & entry),
            compressor.floats.p.data.eq(sums.p.data),
            compressor.floats.p.last.eq(sums.p.last),
            raw.i.valid.eq(go & out),
            raw.i.p.eq(sums.p),
            image.i.valid.eq(go & to_image),
            image.i.p.eq(sums.p),
        ]
        with m.If(go):
            m.d.sync += first.eq(sums.p.last)
        with m.If(coded):
            m.d.comb += [
                self.kept.valid.eq(image.o.valid),
                self.kept.p.eq(image.o.p),
                image.o.ready.eq(self.kept.ready),
                self.payload.valid.eq(compressor.coded.valid),
                self.payload.p.data.eq(compressor.coded.p.data),
                self.payload.p.last.eq(compressor.coded.p.last),
                compressor.coded.ready.eq(self.payload.ready),
            ]
        with m.Else():
            m.d.comb += [
                self.kept.valid.eq(goals.valid & sums.valid & terminal),
                self.kept.p.eq(sums.p),
                self.payload.valid.eq(raw.o.valid),
                self.payload.p.eq(raw.o.p),
                raw.o.ready.eq(self.payload.ready),
            ]
        is_unit = Signal()
        m.d.comb += [
            is_unit.eq(coded & (told.p.op != Op.CONTROL)),
            self.heads.valid.eq(told.valid & (compressor.sizes.valid | ~is_unit)),
            self.heads.p.eq(told.p),
            told.ready.eq(self.heads.ready & (compressor.sizes.valid | ~is_unit)),
            compressor.sizes.ready.eq(self.heads.ready & told.valid & is_unit),
        ]
        with m.If(is_unit):
            m.d.comb += self.heads.p.length.eq(compressor.sizes.p.bytes)
