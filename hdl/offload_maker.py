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
from .level_table import LevelTable
from .offload_types import (
    LEAVES_WIDTH,
    N_LAYERS,
    NUMBER_WIDTH,
    Head,
    Marks,
    OwnPacket,
    Packet,
    Round,
    TagWrite,
    Weighed,
)
from .reduce import Op as SumOp
from .streams import Beat, BlockFIFO
from .summing import Summing
from .tagger import CONTROL, END, OFF, PULL, PUSH, Tagger

ELEM_BYTES = 4
GRADIENT, RESULT = 0, 1  # regions of the gradient port
N_PACKETS = 16  # whose values are being read and added


class PacketMaker(wiring.Component):
    """Packets of partial sums, of the result, and PROBEs: values in the order of their heads.

    A packet's beats take max(1, contributions) times their number of cycles; contributions that
    did not come add nothing. Where sizes decide on importance (``round.tags``), the sums of floats
    are scored, and a head leaves about 30 cycles after its packet's last sum. Packets of terminal
    rows go to ``own`` and ``kept``, through the codec's image where the round is coded.

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
    tag_write : In(TagWrite)
        One entry of the tagger's tables, while a round is not armed.
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
    weighed : Out(Weighed)
        Of each data packet as its head leaves.
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
                "tag_write": In(TagWrite),
                "packets": In(stream.Signature(Packet)),
                "area": In(LENGTH_WIDTH),
                "ask": Out(NUMBER_WIDTH),
                "answer": In(Marks(n_ranks)),
                "reads": Out(stream.Signature(Range(2))),
                "landings": Out(stream.Signature(Range())),
                "values": In(beats),
                "contributions": In(beats),
                "heads": Out(stream.Signature(Head)),
                "weighed": Out(Weighed),
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
        m.submodules.levels = levels = LevelTable(self.n_bytes)
        m.submodules.expanded = expanded = FIFO(1, N_PACKETS)
        m.d.comb += [
            levels.levels.eq(self.round.codec.levels),
            levels.i.valid.eq(self.values.valid & expanded.o.valid),
            levels.i.p.data.eq(self.values.p.data),
            levels.i.p.last.eq(self.values.p.last),
            levels.i.p.expand.eq(expanded.o.payload),
            self.values.ready.eq(levels.i.ready & expanded.o.valid),
            expanded.o.ready.eq(self.values.valid & self.values.ready & self.values.p.last),
        ]
        wiring.connect(m, levels.o, summing.own)
        wiring.connect(m, wiring.flipped(self.contributions), summing.contributions)
        goal = data.StructLayout({"terminal": 1, "scored": 1, "fill": 8})
        m.submodules.goals = goals = FIFO(goal, N_PACKETS)
        told_shape = data.StructLayout({"head": Head, "number": NUMBER_WIDTH})
        m.submodules.told = told = FIFO(told_shape, N_PACKETS)
        m.submodules.owned = owned = FIFO(OwnPacket, N_PACKETS)
        wiring.connect(m, owned.o, wiring.flipped(self.own))
        m.submodules.compressor = compressor = Compressor(self.lanes, max_floats=self.max_elems)
        tagger, to_tag = self._tagger(m)
        self._prepare(
            m, summing.jobs, goals.i, told.i, owned.i, expanded.i, compressor.units, to_tag
        )
        self._finish(m, summing.sums, goals.o, told.o, compressor, tagger)
        return m

    def _tagger(self, m):
        """The tagger, and a queue of what it is to tag: each head, in order."""
        m.submodules.tagger = tagger = Tagger(self.lanes, N_LAYERS, 1)
        m.submodules.to_tag = to_tag = FIFO(tagger.packets.p.shape(), N_PACKETS)
        wiring.connect(m, to_tag.o, tagger.packets)
        write = self.tag_write
        m.d.comb += [
            tagger.rules.eq(self.round.tags),
            tagger.layer_en.eq(write.layer),
            tagger.layer_addr.eq(write.address),
            tagger.layer_queue.eq(write.value),
            tagger.dscp_en.eq(write.dscp),
            tagger.dscp_addr.eq(write.address),
            tagger.dscp_value.eq(write.value),
            tagger.threshold_en.eq(write.threshold),
            tagger.threshold_value.eq(write.value),
        ]
        return tagger, to_tag.i

    def _prepare(self, m, jobs, goals, told, owned, expanded, units, to_tag):
        """One packet after the other: what to read, what to add, what the head says."""
        packet = Signal(Packet, reset_less=True)
        marks = Signal(self.answer.shape(), reset_less=True)
        offset = Signal(LENGTH_WIDTH, reset_less=True)
        n_beats = Signal(LENGTH_WIDTH, reset_less=True)
        n_index_beats = Signal(LENGTH_WIDTH, reset_less=True)
        area = Signal(LENGTH_WIDTH, reset_less=True)
        present = Signal(self.n_ranks, reset_less=True)  # contributions not asked for yet
        n_present = Signal(range(self.n_ranks + 1))
        leaves = Signal(LEAVES_WIDTH)
        codec = self.round.codec
        low = ceil_log2(self.n_bytes)
        indices, leaf = Signal(), Signal()  # the own values are indices, and are sent as they are
        missing, fill = Signal(8, reset_less=True), Signal(8, reset_less=True)
        m.d.sync += fill.eq((missing * codec.g) >> 1)
        m.d.comb += [
            self.ask.eq(packet.number),
            indices.eq(codec.thc & ~packet.ph),
            leaf.eq(indices & (packet.wait == 0) & ~packet.terminal),
            expanded.payload.eq(indices & ~leaf),
            goals.p.fill.eq(Mux(codec.thc, fill, 0)),
            self.reads.p.region.eq(Mux(packet.ph, RESULT, GRADIENT)),
            self.reads.p.offset.eq(Mux(indices, offset >> 1, offset)),
            self.reads.p.n_beats.eq(Mux(indices, n_index_beats, n_beats)),
            self.landings.p.offset.eq(offset + area),
            self.landings.p.n_beats.eq(n_beats),
            jobs.p.n_beats.eq(Mux(leaf, n_index_beats, n_beats)),
            jobs.p.op.eq(Mux(codec.norm, SumOp.MAX, Mux(codec.thc, SumOp.INT8, SumOp.FLOAT))),
            jobs.p.n_contributions.eq(n_present),
            goals.p.terminal.eq(packet.terminal),
            owned.p.leaves.eq(leaves),
            units.p.count.eq(packet.elems),
            *(units.p[name].eq(codec[name]) for name in ("exponent", "paper", "prescale")),
            units.p.limit.eq(0xFFFF),
            *(owned.p[name].eq(packet[name]) for name in ("chunk", "number", "offset", "elems")),
        ]
        head = told.p.head
        m.d.comb += [
            *(head[name].eq(packet[name]) for name in ("ph", "neighbor", "elems")),
            head.slot.eq(packet.flow),
            told.p.number.eq(packet.number),
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
                head.retx.eq(packet.retx),
                head.last.eq(packet.last),
                head.seq.eq(packet.offset),
                head.arg.eq(leaves << 32 - LEAVES_WIDTH),
                head.p0.eq(Mux(leaves > 255, 255, leaves)),
                head.length.eq(packet.elems << 2),
            ]
            with m.If(codec.coded):
                m.d.comb += [
                    head.op.eq(Op.INC),
                    head.p0.eq(Cat(codec.exponent, codec.paper)),
                    head.p1.eq(codec.prescale),
                ]
            with m.Elif(leaf):
                m.d.comb += [
                    head.op.eq(Op.THC_IDX),
                    head.p0.eq(codec.index_p0),
                    head.p1.eq(codec.index_p1),
                    head.length.eq(packet.elems >> 1),
                ]
            with m.Elif(codec.thc):
                m.d.comb += [head.op.eq(Op.THC_SUM), head.length.eq(packet.elems)]
            with m.Else():
                m.d.comb += head.op.eq(Mux(codec.norm, Op.NORM, Op.RAW))
        room = Signal()
        m.d.comb += room.eq(
            jobs.ready & goals.ready & told.ready & owned.ready & expanded.ready & to_tag.ready
        )
        tags, scored = self.round.tags, Signal()
        was_armed, ends = Signal(), Signal()  # the round ends: its histogram becomes a threshold
        m.d.sync += [
            was_armed.eq(self.round.armed),
            ends.eq((ends | (was_armed & ~self.round.armed)) & ~(to_tag.valid & to_tag.ready)),
        ]
        m.d.comb += [
            scored.eq(~packet.ph & ~codec.thc & ~codec.norm & (tags.source != OFF)),
            goals.p.scored.eq(scored & ~packet.terminal),
            to_tag.p.layer.eq(self.round.layer),
            to_tag.p.kind.eq(Mux(codec.norm, CONTROL, Mux(packet.ph, PULL, PUSH))),
            to_tag.p.scored.eq(scored),
            to_tag.p.elems.eq(Mux(packet.retx, 0, packet.elems)),
        ]
        with m.FSM():
            with m.State("REST"):
                n_octets = Mux(codec.thc, self.packets.p.elems, self.packets.p.elems << 2)
                m.d.comb += self.packets.ready.eq(~ends)
                with m.If(ends):
                    m.d.comb += [to_tag.valid.eq(1), to_tag.p.kind.eq(END)]
                m.d.sync += [
                    packet.eq(self.packets.p),
                    n_beats.eq((n_octets + (self.n_bytes - 1)) >> low),
                    n_index_beats.eq((self.packets.p.elems + (2 * self.n_bytes - 1)) >> low + 1),
                    offset.eq((self.packets.p.offset << Mux(codec.thc, 4, 6)) >> low),
                    area.eq(0),
                ]
                with m.If(self.packets.valid & ~ends):
                    m.next = "ASK"
                    with m.If(self.packets.p.probe):
                        m.next = "PROBE"
            with m.State("PROBE"):
                m.d.comb += [
                    told.valid.eq(to_tag.ready),
                    to_tag.valid.eq(told.ready),
                    to_tag.p.kind.eq(CONTROL),
                ]
                with m.If(told.ready & to_tag.ready):
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
                m.next = "FILL"
            with m.State("FILL"):
                m.d.sync += missing.eq(codec.n - leaves)
                m.next = "FILLED"
            with m.State("FILLED"):
                m.next = "READ"
            with m.State("READ"):
                m.d.comb += self.reads.valid.eq(room)
                with m.If(room & self.reads.ready):
                    m.d.comb += [
                        jobs.valid.eq(1),
                        goals.valid.eq(1),
                        expanded.valid.eq(1),
                        units.valid.eq(codec.coded & ~packet.terminal),
                        told.valid.eq(~packet.terminal),
                        to_tag.valid.eq(~packet.terminal),
                        owned.valid.eq(packet.terminal),
                    ]
                    m.next = "LAND"
            with m.State("LAND"):
                m.d.comb += self.landings.valid.eq(present[0])
                with m.If(self.landings.ready | ~present[0]):
                    m.d.sync += [
                        present.eq(present >> 1),
                        area.eq(area + self.area),
                    ]
                with m.If(~present.any()):
                    m.next = "REST"

    def _finish(self, m, sums, goals, told, compressor, tagger):
        """Sums become payloads, or this node's own result; heads get their tags."""
        m.submodules.image = image = CodecImage(self.lanes)
        codec, coded = self.round.codec, self.round.codec.coded
        go = Signal()
        entry, out = Signal(), Signal()  # the beat goes to the compressor; to the payload
        to_image, to_kept = Signal(), Signal()
        terminal = goals.p.terminal
        ready = Signal()
        # raw payloads wait for their tags here, as coded ones do in the compressor
        longest = -(-self.max_elems // self.lanes)
        m.submodules.raw = raw = BlockFIFO(Beat(8 * self.n_bytes), 2 * longest + 64)
        may_tag = Signal()
        m.d.comb += [
            entry.eq(coded & ~terminal),
            out.eq(~coded & ~terminal),
            to_image.eq(coded & terminal),
            to_kept.eq(~coded & terminal),
            image.codec.eq(codec),
            may_tag.eq(~goals.p.scored | tagger.floats.ready),
            ready.eq(
                (entry & compressor.floats.ready & may_tag)
                | (out & raw.i.ready & may_tag)
                | (to_image & image.i.ready)
                | (to_kept & self.kept.ready)
            ),
            tagger.floats.valid.eq(go & goals.p.scored),
            tagger.floats.p.eq(sums.p),
            go.eq(goals.valid & sums.valid & ready),
            sums.ready.eq(goals.valid & ready),
            goals.ready.eq(go & sums.p.last),
            compressor.floats.valid.eq(goals.valid & sums.valid & entry & may_tag),
            compressor.floats.p.data.eq(sums.p.data),
            compressor.floats.p.last.eq(sums.p.last),
            raw.i.valid.eq(go & out),
            raw.i.p.eq(sums.p),
            image.i.valid.eq(go & to_image),
            image.i.p.eq(sums.p),
        ]
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
                self.kept.p.last.eq(sums.p.last),
                # what is missing of THC sums counts half a table each; no level sum passes 255
                *(
                    self.kept.p.data[8 * k : 8 * k + 8].eq(
                        sums.p.data[8 * k : 8 * k + 8] + goals.p.fill
                    )
                    for k in range(self.n_bytes)
                ),
                self.payload.valid.eq(raw.o.valid),
                self.payload.p.eq(raw.o.p),
                raw.o.ready.eq(self.payload.ready),
            ]
        is_unit, known, tag = Signal(), Signal(), tagger.tags
        is_data = told.p.head.op != Op.CONTROL
        m.d.sync += [
            self.weighed.valid.eq(told.valid & told.ready & is_data & ~told.p.head.retx),
            self.weighed.number.eq(told.p.number),
            self.weighed.important.eq(tag.p.important),
        ]
        m.d.comb += [
            is_unit.eq(coded & is_data),
            known.eq(told.valid & tag.valid & (compressor.sizes.valid | ~is_unit)),
            self.heads.valid.eq(known),
            self.heads.p.eq(told.p.head),
            self.heads.p.imp.eq(tag.p.important),
            self.heads.p.lc.eq(tag.p.queue),
            self.heads.p.tos.eq(tag.p.tos),
            told.ready.eq(self.heads.ready & known),
            tag.ready.eq(self.heads.ready & known),
            compressor.sizes.ready.eq(self.heads.ready & known & is_unit),
        ]
        with m.If(is_unit):
            m.d.comb += self.heads.p.length.eq(compressor.sizes.p.bytes)
