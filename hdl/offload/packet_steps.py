"""The steps of each packet that a node sends: what is read, what is added, what its head says.

`maker` is the `gradnic.hdl.offload.packet_maker.PacketMaker`, of which they are a part. Golden
model: `gradnic.models.offload.packet_steps`.
"""

from typing import Any

from amaranth.hdl import Cat, Mux, Signal
from amaranth.lib import memory
from amaranth.utils import ceil_log2

from ..axi.bursts import LENGTH_WIDTH
from ..primitive.names import signals
from ..primitive.target import one_hot
from ..reduction.codec import index_octets, octets_of
from ..reduction.reduce import Op as SumOp
from ..transport.records import CHECK_WIDTH, LEAVES_WIDTH, Packet
from ..transport.tagger import CONTROL, END, OFF, PULL, PUSH
from . import packet_head
from .own_reader import GRADIENT, RESULT, ROOT
from .packet_sums import ROWS_WIDTH
from .scaler import MAX_LEAVES, factors


class Steps:
    """One packet after the other, a step a cycle: its own values are asked for, then what the
    receiver knows of its contributions; then all queues hear of it at once, and its contributions
    are asked for.

    jobs, goals, heads, owned, to_tag : streams to the sums, to what becomes of them, to heads, to
    own packets, to the tagger. expands, packs : with THC, to the level tables of own values and of
    contributions.
    """

    def __init__(
        self,
        maker: Any,
        *,
        jobs: Any,
        goals: Any,
        heads: Any,
        owned: Any,
        expands: Any,
        packs: Any,
        to_tag: Any,
    ) -> None:
        self.maker, self.jobs, self.goals, self.heads, self.owned = maker, jobs, goals, heads, owned
        self.expands, self.packs, self.to_tag = expands, packs, to_tag
        self.packet = Signal(Packet, reset_less=True)
        self.marks = Signal(maker.answer.marks.shape(), reset_less=True)
        self.check = Signal(CHECK_WIDTH, reset_less=True)  # of its norms
        self.offset = Signal(LENGTH_WIDTH, reset_less=True)
        self.n_beats = Signal(LENGTH_WIDTH, reset_less=True)
        self.n_index_beats = Signal(LENGTH_WIDTH, reset_less=True)
        self.index_offset = Signal(LENGTH_WIDTH, reset_less=True)
        self.n_inside = Signal(LENGTH_WIDTH, reset_less=True)  # beats that are added
        self.area = Signal(LENGTH_WIDTH, reset_less=True)
        self.present = Signal(maker.n_ranks, reset_less=True)  # contributions not asked for yet
        self.packed = Signal(maker.n_ranks, reset_less=True)  # of those, which are indices
        self.n_present = Signal(range(maker.n_ranks + 1))
        self.leaves = Signal(LEAVES_WIDTH)
        # the own values are indices, and are sent as they are
        self.indices, self.leaf = signals("indices leaf")
        self.reads = Signal()  # the packet's values are asked for
        # the round does, and the tagger hears of it: its histogram becomes a threshold
        self.ends, self.ended = signals("ends ended")
        self.halves = [Signal(LEAVES_WIDTH, name=f"half{k}", reset_less=True) for k in range(2)]

    def add_to(self, m):
        """Add all of it to Module `m`."""
        self._asks(m)
        self._adds(m)
        self._finishes(m)
        packet_head.say(m, self.maker, self.packet, self.heads, self.leaves, self.check, self.leaf)
        self._tags(m)
        self._counts(m)
        self._walks(m)

    def _asks(self, m):
        """Where a packet's own values and its contributions are."""
        maker, packet, codec = self.maker, self.packet, self.maker.round.codec
        gradient = Mux(packet.terminal, ROOT, GRADIENT) if maker.roots else GRADIENT
        m.d.comb += [
            maker.ask.eq(packet.number),
            self.indices.eq(codec.thc & ~packet.ph),
            self.leaf.eq(self.indices & (packet.wait == 0) & ~packet.terminal),
            maker.reads.p.region.eq(Mux(packet.ph, RESULT, gradient)),
            maker.reads.p.offset.eq(Mux(self.indices, self.index_offset, self.offset)),
            maker.reads.p.n_beats.eq(Mux(self.indices, self.n_index_beats, self.n_beats)),
            maker.landings.p.offset.eq(self.offset + self.area),
            maker.landings.p.n_beats.eq(Mux(self.packed[0], self.n_index_beats, self.n_beats)),
        ]

    def _adds(self, m):
        """The job of the sums: how many beats of what, and of how many contributions."""
        maker, packet, codec = self.maker, self.packet, self.maker.round.codec
        job_beats = Signal(LENGTH_WIDTH, reset_less=True)
        n_added = self.n_inside if maker.wide else self.n_beats
        m.d.sync += job_beats.eq(Mux(self.leaf, self.n_index_beats, n_added))
        of_levels = SumOp.INT8
        if maker.wide:
            of_wide = Mux(codec.code == 1, SumOp.INT12, SumOp.INT16)
            of_levels = Mux(codec.code != 0, of_wide, SumOp.INT8)
        of_floats = Mux(codec.largest, SumOp.MAXIMUM, SumOp.FLOAT) if maker.maxima else SumOp.FLOAT
        m.d.comb += [
            self.jobs.p.n_beats.eq(job_beats),
            self.jobs.p.op.eq(Mux(codec.norm, SumOp.MAX, Mux(codec.thc, of_levels, of_floats))),
            self.jobs.p.n_contributions.eq(self.n_present),
        ]
        if maker.compressor:
            units = maker.compressor.units
            m.d.comb += [
                units.valid.eq(self.reads & codec.coded & ~packet.terminal),
                units.p.count.eq(packet.elems),
                *(units.p[name].eq(codec[name]) for name in ("exponent", "paper", "prescale")),
                units.p.limit.eq(0xFFFF),
            ]

    def _finishes(self, m):
        """What becomes of the sums."""
        maker, packet, codec, goals = self.maker, self.packet, self.maker.round.codec, self.goals
        m.d.comb += [
            goals.p.stays.eq(packet.terminal),
            self.owned.p.leaves.eq(self.leaves),
            *(
                self.owned.p[name].eq(packet[name])
                for name in ("chunk", "number", "offset", "elems")
            ),
        ]
        rows = Signal(ROWS_WIDTH)  # packets of terminal rows so far
        m.d.comb += self.heads.p.rows.eq(rows)
        m.d.sync += rows.eq(rows + (self.reads & packet.terminal))
        if maker.thc:
            missing = Signal(8, reset_less=True)
            fill = Signal(len(goals.p.fill), reset_less=True)
            m.d.sync += [missing.eq(codec.n - self.leaves), fill.eq((missing * codec.g) >> 1)]
            m.d.comb += [
                self.expands.p.expand.eq(self.indices & ~self.leaf),
                goals.p.fill.eq(Mux(codec.thc, fill, 0)),
            ]
            if maker.wide:
                m.d.comb += [
                    self.expands.p.plain.eq(self.leaf),
                    goals.p.summed.eq(~self.leaf),
                ]
        if maker.scale:
            m.submodules.factors = table = memory.Memory(
                shape=32, depth=MAX_LEAVES + 1, init=factors()
            )
            read = table.read_port()
            m.d.comb += [read.addr.eq(self.leaves), goals.p.factor.eq(read.data)]

    def _tags(self, m):
        """What the tagger needs, and when it makes a threshold of its histogram."""
        packet, codec, to_tag = self.packet, self.maker.round.codec, self.to_tag
        tags, armed = self.maker.round.tags, self.maker.round.armed
        scored, was_armed = signals("scored was_armed")
        m.d.sync += [
            was_armed.eq(armed),
            self.ends.eq((self.ends & ~self.ended) | (was_armed & ~armed)),
        ]
        m.d.comb += [
            scored.eq(~packet.ph & ~codec.thc & ~codec.norm & (tags.source != OFF)),
            self.goals.p.scored.eq(scored & ~packet.terminal),
            to_tag.p.layer.eq(self.maker.round.layer),
            to_tag.p.kind.eq(Mux(codec.norm, CONTROL, Mux(packet.ph, PULL, PUSH))),
            to_tag.p.scored.eq(scored),
            to_tag.p.elems.eq(Mux(packet.retx, 0, packet.elems)),
        ]

    def _counts(self, m):
        """Leaves of the contributions that are here, in two sums."""
        marks = self.marks.up
        counted = [Mux(self.present[k], one.leaves, 0) for k, one in enumerate(marks)]
        m.d.sync += [half.eq(sum(counted[k::2])) for k, half in enumerate(self.halves)]

    def _measures(self, m):
        """Beats of the packet that comes next, and where they begin."""
        maker, codec, n_bytes = self.maker, self.maker.round.codec, self.maker.n_bytes
        elems, offset = maker.packets.p.elems, maker.packets.p.offset << 4
        low = ceil_log2(n_bytes)
        n_octets = octets_of(codec, elems)
        n_inside = Mux(codec.code == 1, elems << 1, n_octets)
        n_indices = index_octets(codec, elems, maker.bits)
        m.d.sync += [
            self.packet.eq(maker.packets.p),
            self.n_beats.eq((n_octets + (n_bytes - 1)) >> low),
            self.n_index_beats.eq((n_indices + (n_bytes - 1)) >> low),
            self.n_inside.eq((n_inside + (n_bytes - 1)) >> low),
            self.offset.eq(octets_of(codec, offset) >> low),
            self.index_offset.eq(index_octets(codec, offset, maker.bits) >> low),
            self.area.eq(0),
        ]

    def _hears(self, m):
        """What the receiver says of the packet's contributions."""
        packet, up = self.packet, self.maker.answer.marks.up
        here = [mark.here & ~packet.ph & (packet.wait > k) for k, mark in enumerate(up)]
        m.d.sync += [
            self.marks.eq(self.maker.answer.marks),
            self.packed.eq(Cat(mark.packed for mark in up)),
            self.check.eq(Mux(self.maker.round.codec.thc, self.maker.answer.check, 0)),
            self.present.eq(Cat(here)),
        ]

    def _lands(self, m):
        """One contribution after the other is asked for; those that are not here take a cycle."""
        maker, here = self.maker, self.present[0]
        lands = maker.landings.ready
        m.d.comb += maker.landings.valid.eq(here)
        if maker.thc:
            lands = lands & self.packs.ready
            m.d.comb += [
                maker.landings.valid.eq(here & self.packs.ready),
                self.packs.valid.eq(here & maker.landings.ready),
                self.packs.p.expand.eq(self.packed[0]),
            ]
        with m.If(lands | ~here):
            m.d.sync += [
                self.present.eq(self.present >> 1),
                self.packed.eq(self.packed >> 1),
                self.area.eq(self.area + maker.area),
            ]

    def _walks(self, m):
        """The steps, in their order; some only give what is computed its cycle."""
        maker, packet, to_tag, heads = self.maker, self.packet, self.to_tag, self.heads
        everywhere = [self.jobs, self.goals, *([self.expands] if maker.thc else [])]
        room = Signal()  # nobody else fills them, and it takes cycles between two entries
        queues = [*everywhere, heads, self.owned, to_tag]
        m.d.sync += room.eq(Cat(queue.ready for queue in queues).all())
        with m.FSM() as fsm:
            with m.State("REST"):
                m.d.comb += maker.packets.ready.eq(~self.ends)
                with m.If(self.ends):
                    m.d.comb += [
                        to_tag.valid.eq(1),
                        to_tag.p.kind.eq(END),
                        self.ended.eq(to_tag.ready),
                    ]
                self._measures(m)
                with m.If(maker.packets.valid & ~self.ends):
                    m.next = "ASK"
                    with m.If(maker.packets.p.probe):
                        m.next = "PROBE"
            with m.State("PROBE"):
                m.next = "TELL"
            with m.State("TELL"):
                m.d.comb += [
                    heads.valid.eq(to_tag.ready),
                    to_tag.valid.eq(heads.ready),
                    to_tag.p.kind.eq(CONTROL),
                ]
                with m.If(heads.ready & to_tag.ready):
                    m.next = "REST"
            with m.State("ASK"):
                m.next = "READ"
            with m.State("READ"):  # what is known of contributions comes while memory is asked
                m.d.comb += maker.reads.valid.eq(room)
                with m.If(room & maker.reads.ready):
                    m.next = "HEAR"
            with m.State("HEAR"):
                self._hears(m)
                m.next = "COUNT"
            with m.State("COUNT"):
                m.next = "COUNTED"
            with m.State("COUNTED"):
                leaves = Mux(packet.ph, self.marks.down.leaves, 1 + sum(self.halves))
                m.d.sync += [self.n_present.eq(sum(self.present)), self.leaves.eq(leaves)]
                m.next = "FILL"
            with m.State("FILL"):
                m.next = "FILLED"
            with m.State("FILLED"):
                m.next = "PUSH"
            with m.State("PUSH"):
                m.d.comb += [
                    self.reads.eq(1),
                    *(queue.valid.eq(1) for queue in everywhere),
                    heads.valid.eq(~packet.terminal),
                    to_tag.valid.eq(~packet.terminal),
                    self.owned.valid.eq(packet.terminal),
                ]
                m.next = "LAND"
            with m.State("LAND"):
                self._lands(m)
                with m.If(~self.present.any()):
                    m.next = "REST"
        one_hot(fsm)
