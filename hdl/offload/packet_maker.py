"""Makes packets: reads what belongs into each, adds it up, codes it, and writes its head.

Part of `gradnic.hdl.offload.card`, whose golden model it follows.
"""

from amaranth.hdl import Cat, Module, Mux, Signal
from amaranth.lib import data, memory, stream, wiring
from amaranth.lib.wiring import In, Out
from amaranth.utils import ceil_log2

from ..axi.bursts import LENGTH_WIDTH, Range
from ..inceptionn.compressor import Compressor
from ..primitive.names import signals
from ..primitive.target import one_hot
from ..reduction.codec import index_octets, octets_of
from ..reduction.reduce import Adding
from ..reduction.reduce import Op as SumOp
from ..reduction.summing import Summing
from ..stream.beats import Beat
from ..stream.fifo import FIFO
from ..stream.slice import Slice
from ..thc.level_table import LevelWrite
from ..transport.records import (
    CHECK_WIDTH,
    LEAVES_WIDTH,
    N_LAYERS,
    NUMBER_WIDTH,
    Answer,
    Head,
    OwnPacket,
    Packet,
    Round,
    TagWrite,
    Weighed,
)
from ..transport.tagger import CONTROL, END, OFF, PULL, PUSH, Tagger
from . import packet_head, packet_sums
from .own_reader import GRADIENT, RESULT, ROOT
from .packet_sums import N_PACKETS, ROWS_WIDTH
from .scaler import MAX_LEAVES, factors

ELEM_BYTES = 4


class PacketMaker(wiring.Component):
    """Packets of partial sums, of the result, and PROBEs: values in the order of their heads.

    A packet takes max(1, contributions) times the number of its beats in cycles, and one more;
    contributions that did not come add nothing. Where sizes decide on importance (``round.tags``),
    the sums of floats are scored, and a head leaves about 30 cycles after its packet's last sum.
    Packets of terminal rows go to ``own`` and ``kept``, through the codec's image where the round
    is coded; a head waits until the sums of those before it have gone there, since memory may take
    them late, or never if the round ends, and whoever has a head waits for its payload.

    Parameters
    ----------
    n_bytes : int
        Of a beat, 16, 32 or 64.
    n_ranks : int
        Contributions to a chunk, at most.
    max_elems : int
        Floats of a packet, at most; 4 times as many indices and sums of THC.
    thc, inc : bool
        False: there are no rounds of norms or THC, and no circuit for their sums; no coded rounds,
        and no compressor.
    bf16 : bool
        False: there are no rounds with BF16 on the wire.
    scale : bool
        False: there are no means. Not with `thc`.
    roots : bool
        Terminal rows read a region of their own.
    maxima : bool
        False: there are no maxima of floats.
    wide : bool
        With `thc`: sums of levels may have 12 or 16 bits. Those of 12 are 16 inside, so a packet
        of them takes a third longer than its beats.
    bits : int
        With `thc`: 4, or 8 for indices of 2 to 8 bits, whose levels ``level_write`` tells.
    shared : bool
        Sums are made in lanes that others use, too: member ``adder``, as of `Reduce`. Payloads
        leave as floats, with their length, whatever the round's codec.

    Members
    -------
    round : In(Round)
    tag_write : In(TagWrite)
        One entry of the tagger's tables, while a round is not armed.
    packets : In(stream.Signature(Packet))
    area : In(24)
        Beats of a landing area.
    ask, answer : Out(number of a packet), In(Answer(n_ranks))
        As of `Receiver`.
    reads : Out(stream.Signature(Range(2 + roots)))
        Of the node's own values: region 0 is the gradient, 1 the result, 2 the gradient again.
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

    def __init__(
        self,
        n_bytes: int,
        *,
        n_ranks: int = 4,
        max_elems: int = 352,
        thc: bool = True,
        inc: bool = True,
        bf16: bool = False,
        scale: bool = False,
        roots: bool = False,
        wide: bool = False,
        maxima: bool = False,
        bits: int = 4,
        shared: bool = False,
    ) -> None:
        self.n_bytes, self.n_ranks, self.max_elems = n_bytes, n_ranks, max_elems
        self.thc, self.inc, self.bf16, self.roots = thc, inc, bf16, roots
        self.scale, self.wide, self.maxima = scale, wide, maxima
        self.bits, self.shared = bits, shared
        if scale and thc:
            raise ValueError("scale must be off with thc")
        self.lanes = n_bytes // ELEM_BYTES
        beats = stream.Signature(Beat(8 * n_bytes))
        super().__init__(
            {
                "round": In(Round),
                "tag_write": In(TagWrite),
                "packets": In(stream.Signature(Packet)),
                "area": In(LENGTH_WIDTH),
                "ask": Out(NUMBER_WIDTH),
                "answer": In(Answer(n_ranks)),
                "reads": Out(stream.Signature(Range(2 + roots))),
                "landings": Out(stream.Signature(Range())),
                "values": In(beats),
                "contributions": In(beats),
                "heads": Out(stream.Signature(Head)),
                "weighed": Out(Weighed),
                "payload": Out(beats),
                "own": Out(stream.Signature(OwnPacket)),
                "kept": Out(beats),
                **({"level_write": In(LevelWrite)} if bits > 4 else {}),
                **({"adder": Out(Adding(self.lanes))} if shared else {}),
            }
        )

    def elaborate(self, platform):
        m = Module()
        m.submodules.summing = summing = Summing(
            self.lanes, max_beats=-(-self.max_elems // self.lanes), integers=self.thc,
            maxima=self.maxima, shared=self.shared,
        )  # fmt: skip
        if self.shared:
            wiring.connect(m, summing.adder, wiring.flipped(self.adder))
        expands = packet_sums.expand(m, self, "own", self.values, summing.own)
        packs = packet_sums.expand(m, self, "landed", self.contributions, summing.contributions)
        goal = packet_sums.Goal(self.thc, self.scale, self.wide)
        m.submodules.goals = goals = FIFO(goal, N_PACKETS)
        rows = Signal(ROWS_WIDTH)  # packets of terminal rows whose last sum has gone, modulo
        told_shape = data.StructLayout({"head": Head, "number": NUMBER_WIDTH, "rows": ROWS_WIDTH})
        m.submodules.told = told = FIFO(told_shape, N_PACKETS, half_rate=True)
        m.submodules.owned = owned = FIFO(OwnPacket, N_PACKETS)
        wiring.connect(m, owned.o, wiring.flipped(self.own))
        tagger, to_tag = self._tagger(m)
        self.compressor = None
        if self.inc and not self.shared:
            self.compressor = Compressor(self.lanes, max_floats=self.max_elems)
            m.submodules.compressor = self.compressor
        self._prepare(m, summing.jobs, goals.i, told.i, owned.i, expands, packs, to_tag)
        gone = packet_sums.finish(m, self, summing.sums, goals.o, tagger.floats)
        m.d.sync += rows.eq(rows + gone)
        # the tagger stands far away: nothing goes there and back in a cycle
        m.submodules.tagged = tagged = Slice(tagger.tags.p.shape(), half_rate=True)
        wiring.connect(m, tagger.tags, tagged.i)
        packet_head.leave(m, self, told.o, tagged.o, rows)
        return m

    def _tagger(self, m):
        """The tagger, and a queue of what it is to tag: each head, in order."""
        m.submodules.tagger = tagger = Tagger(self.lanes, N_LAYERS, 1)
        m.submodules.to_tag = to_tag = FIFO(tagger.packets.p.shape(), N_PACKETS, half_rate=True)
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

    def _prepare(self, m, jobs, goals, told, owned, expands, packs, to_tag):
        """One packet after the other: what to read, what to add, what the head says."""
        packet = Signal(Packet, reset_less=True)
        marks = Signal(self.answer.marks.shape(), reset_less=True)
        check = Signal(CHECK_WIDTH, reset_less=True)  # of its norms
        offset = Signal(LENGTH_WIDTH, reset_less=True)
        n_beats = Signal(LENGTH_WIDTH, reset_less=True)
        n_index_beats = Signal(LENGTH_WIDTH, reset_less=True)
        index_offset = Signal(LENGTH_WIDTH, reset_less=True)
        n_inside = Signal(LENGTH_WIDTH, reset_less=True)  # beats that are added
        area = Signal(LENGTH_WIDTH, reset_less=True)
        present = Signal(self.n_ranks, reset_less=True)  # contributions not asked for yet
        packed = Signal(self.n_ranks, reset_less=True)  # of those, which are indices
        n_present = Signal(range(self.n_ranks + 1))
        leaves = Signal(LEAVES_WIDTH)
        codec = self.round.codec
        low = ceil_log2(self.n_bytes)
        # the own values are indices, and are sent as they are
        indices, leaf = signals("indices leaf")
        job_beats = Signal(LENGTH_WIDTH, reset_less=True)
        m.d.sync += job_beats.eq(Mux(leaf, n_index_beats, n_inside if self.wide else n_beats))
        of_levels = SumOp.INT8
        if self.wide:
            of_wide = Mux(codec.code == 1, SumOp.INT12, SumOp.INT16)
            of_levels = Mux(codec.code != 0, of_wide, SumOp.INT8)
        of_floats = Mux(codec.largest, SumOp.MAXIMUM, SumOp.FLOAT) if self.maxima else SumOp.FLOAT
        gradient = Mux(packet.terminal, ROOT, GRADIENT) if self.roots else GRADIENT
        m.d.comb += [
            self.ask.eq(packet.number),
            indices.eq(codec.thc & ~packet.ph),
            leaf.eq(indices & (packet.wait == 0) & ~packet.terminal),
            self.reads.p.region.eq(Mux(packet.ph, RESULT, gradient)),
            self.reads.p.offset.eq(Mux(indices, index_offset, offset)),
            self.reads.p.n_beats.eq(Mux(indices, n_index_beats, n_beats)),
            self.landings.p.offset.eq(offset + area),
            self.landings.p.n_beats.eq(Mux(packed[0], n_index_beats, n_beats)),
            jobs.p.n_beats.eq(job_beats),
            jobs.p.op.eq(Mux(codec.norm, SumOp.MAX, Mux(codec.thc, of_levels, of_floats))),
            jobs.p.n_contributions.eq(n_present),
            goals.p.stays.eq(packet.terminal),
            owned.p.leaves.eq(leaves),
            *(owned.p[name].eq(packet[name]) for name in ("chunk", "number", "offset", "elems")),
        ]
        reads = Signal()  # the packet's values are asked for
        rows = Signal(ROWS_WIDTH)  # packets of terminal rows so far
        m.d.comb += told.p.rows.eq(rows)
        m.d.sync += rows.eq(rows + (reads & packet.terminal))
        if self.compressor:
            units = self.compressor.units
            m.d.comb += [
                units.valid.eq(reads & codec.coded & ~packet.terminal),
                units.p.count.eq(packet.elems),
                *(units.p[name].eq(codec[name]) for name in ("exponent", "paper", "prescale")),
                units.p.limit.eq(0xFFFF),
            ]
        if self.thc:
            missing = Signal(8, reset_less=True)
            fill = Signal(len(goals.p.fill), reset_less=True)
            m.d.sync += [missing.eq(codec.n - leaves), fill.eq((missing * codec.g) >> 1)]
            m.d.comb += [
                expands.p.expand.eq(indices & ~leaf),
                *([expands.p.plain.eq(leaf), goals.p.summed.eq(~leaf)] if self.wide else []),
                goals.p.fill.eq(Mux(codec.thc, fill, 0)),
            ]
        if self.scale:
            m.submodules.factors = table = memory.Memory(
                shape=32, depth=MAX_LEAVES + 1, init=factors()
            )
            read = table.read_port()
            m.d.comb += [read.addr.eq(leaves), goals.p.factor.eq(read.data)]
        packet_head.say(m, self, packet, told, leaves, check, leaf)
        queues = [jobs, goals, told, owned, to_tag, *([expands] if self.thc else [])]
        room = Signal()  # nobody else fills them, and it takes cycles between two entries
        m.d.sync += room.eq(Cat(queue.ready for queue in queues).all())
        tags = self.round.tags
        scored = Signal()
        # the round ends: its histogram becomes a threshold
        was_armed, ends = signals("was_armed ends")
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
        counted = [Mux(present[k], one.leaves, 0) for k, one in enumerate(marks.up)]
        halves = [Signal(LEAVES_WIDTH, name=f"half{k}", reset_less=True) for k in range(2)]
        m.d.sync += [half.eq(sum(counted[k::2])) for k, half in enumerate(halves)]
        with m.FSM() as fsm:
            with m.State("REST"):
                n_octets = octets_of(codec, self.packets.p.elems)
                m.d.comb += self.packets.ready.eq(~ends)
                with m.If(ends):
                    m.d.comb += [to_tag.valid.eq(1), to_tag.p.kind.eq(END)]
                m.d.sync += [
                    packet.eq(self.packets.p),
                    n_beats.eq((n_octets + (self.n_bytes - 1)) >> low),
                    n_index_beats.eq(
                        index_octets(codec, self.packets.p.elems, self.bits) + (self.n_bytes - 1)
                        >> low
                    ),
                    n_inside.eq(
                        Mux(codec.code == 1, self.packets.p.elems << 1, n_octets)
                        + (self.n_bytes - 1)
                        >> low
                    ),
                    offset.eq(octets_of(codec, self.packets.p.offset << 4) >> low),
                    index_offset.eq(
                        index_octets(codec, self.packets.p.offset << 4, self.bits) >> low
                    ),
                    area.eq(0),
                ]
                with m.If(self.packets.valid & ~ends):
                    m.next = "ASK"
                    with m.If(self.packets.p.probe):
                        m.next = "PROBE"
            with m.State("PROBE"):
                m.next = "TELL"
            with m.State("TELL"):
                m.d.comb += [
                    told.valid.eq(to_tag.ready),
                    to_tag.valid.eq(told.ready),
                    to_tag.p.kind.eq(CONTROL),
                ]
                with m.If(told.ready & to_tag.ready):
                    m.next = "REST"
            with m.State("ASK"):
                m.next = "READ"
            with m.State("READ"):  # what is known of contributions comes while memory is asked
                m.d.comb += self.reads.valid.eq(room)
                with m.If(room & self.reads.ready):
                    m.next = "HEAR"
            with m.State("HEAR"):
                m.d.sync += [
                    marks.eq(self.answer.marks),
                    packed.eq(Cat(mark.packed for mark in self.answer.marks.up)),
                    check.eq(Mux(codec.thc, self.answer.check, 0)),
                    present.eq(
                        Cat(
                            mark.here & ~packet.ph & (packet.wait > k)
                            for k, mark in enumerate(self.answer.marks.up)
                        )
                    ),
                ]
                m.next = "COUNT"
            with m.State("COUNT"):
                m.next = "COUNTED"
            with m.State("COUNTED"):
                m.d.sync += [
                    n_present.eq(sum(present)),
                    leaves.eq(Mux(packet.ph, marks.down.leaves, 1 + sum(halves))),
                ]
                m.next = "FILL"
            with m.State("FILL"):
                m.next = "FILLED"
            with m.State("FILLED"):
                m.next = "PUSH"
            with m.State("PUSH"):
                m.d.comb += [
                    reads.eq(1),
                    jobs.valid.eq(1),
                    goals.valid.eq(1),
                    *([expands.valid.eq(1)] if self.thc else []),
                    told.valid.eq(~packet.terminal),
                    to_tag.valid.eq(~packet.terminal),
                    owned.valid.eq(packet.terminal),
                ]
                m.next = "LAND"
            with m.State("LAND"):
                lands = self.landings.ready
                m.d.comb += self.landings.valid.eq(present[0])
                if self.thc:
                    lands = lands & packs.ready
                    m.d.comb += [
                        self.landings.valid.eq(present[0] & packs.ready),
                        packs.valid.eq(present[0] & self.landings.ready),
                        packs.p.expand.eq(packed[0]),
                    ]
                with m.If(lands | ~present[0]):
                    m.d.sync += [
                        present.eq(present >> 1),
                        packed.eq(packed >> 1),
                        area.eq(area + self.area),
                    ]
                with m.If(~present.any()):
                    m.next = "REST"
        one_hot(fsm)
