"""Tracks the packets of a round: what is here, what may be given up, what is to be sent again.

Sources: DLCP (arXiv 2008.08445) and MLT (NSDI 2024): bitmaps, STOP at (1 - p) of the bytes, PROBE.
Ours: one allowance for all that a neighbor sends up, weighed by the leaves that a packet stands
for, so that no chunk is too small for a share of it; giving up at a PROBE only.
"""

from amaranth.hdl import Array, Cat, Const, Module, Mux, Signal
from amaranth.lib import data, memory, stream, wiring
from amaranth.lib.wiring import In, Out
from amaranth.utils import ceil_log2

from ..formats import Op
from ..offload import Drop, Subtype
from .completions import N_WRITES, Completions
from .dma import LENGTH_WIDTH, Range
from .fifo import FIFO
from .locator import Located
from .memory import BlockRAM
from .offload_types import (
    BODY,
    BYTES_WIDTH,
    CHUNK_WIDTH,
    LEAVES_WIDTH,
    N_NEIGHBORS,
    NUMBER_WIDTH,
    RUN,
    Allowance,
    Control,
    Given,
    Goal,
    Head,
    Marks,
    OwnPacket,
    Places,
    Round,
)
from .packet_walk import PacketWalk, Place

COUNT_WIDTH = NUMBER_WIDTH
CE = 3  # of the ECN bits


class Receiver(wiring.Component):
    """Decides on one packet at a time: 5 cycles for data, about 20 + packets for a PROBE.

    A chunk is reported once all of its packets from one sender are closed and in memory: on
    ``added`` from a child, on ``finals`` from the parent or from this node's own terminal row.
    A PROBE that finds packets missing closes them where the neighbor's allowance covers them, at
    5 cycles per packet, else it is answered by a BITMAP.

    Parameters
    ----------
    n_bytes : int
        Of a beat of memory, 16, 32 or 64.
    n_ranks : int
        Contributions to a chunk, at most; 1 to 15.
    n_chunks, n_packets : int
        Of the largest tensor; 2 to 8192 and 2 to 16384.

    Members
    -------
    round : In(Round)
    clear, clearing : In(1), Out(1)
        A strobe: forget all packets, which takes a cycle for each that there can be.
    allowance : In(Allowance)
    place_en, place_addr, place_data : In
        Writes one entry of the table of senders, by chunk; not while a round is armed.
    arrivals : In(stream.Signature(Located))
        CONTROL packets, and data packets that the codec has seen.
    verdicts : In(stream.Signature(1))
        Of a coded round, one for each data packet: 1 is a sound unit.
    own : In(stream.Signature(OwnPacket))
        Packets of terminal rows.
    goals : Out(stream.Signature(Goal))
        For each data packet but unsound ones: whether its values are kept, and where.
    landings, results : Out(stream.Signature(Range))
        What is to be written. Landings are in one region: areas of the size of a tensor, by rank.
    sources : Out(stream.Signature(1))
        For each of ``results``: its values are a terminal row's.
    area : In(24)
        Beats of a landing area.
    landed, stored : In(1)
        One pulse per range that is in memory.
    added, finals : Out(stream.Signature(chunk))
    controls : Out(stream.Signature(Control))
        STOP, BITMAP and NOT_READY, for the sender.
    replies : Out(stream.Signature(Head))
    ask, answer : In(number of a packet), Out(Marks(n_ranks))
        What is known of a packet, 2 cycles later.
    dropped : Out(len(Drop))
        Bit k pulses for a packet with `gradnic.offload.Drop` k; bit 0 for one that is accepted.
    answered, heard : Out(1)
        One pulse per PROBE that STOP or BITMAP answered; per packet that went to the sender.
    given_up, given : Out(1), Out({neighbor, number})
        One cycle per packet that is given up, and which it is.
    """

    def __init__(self, n_bytes, *, n_ranks=4, n_chunks=64, n_packets=1024):
        if not 1 <= n_ranks <= 15:
            raise ValueError(f"n_ranks must be 1 to 15, not {n_ranks!r}")
        if not 2 <= n_chunks <= 2**CHUNK_WIDTH:
            raise ValueError(f"n_chunks must be 2 to {2**CHUNK_WIDTH}, not {n_chunks!r}")
        if not 2 <= n_packets <= 16384:
            raise ValueError(f"n_packets must be 2 to 16384, not {n_packets!r}")
        self.n_bytes, self.n_ranks = n_bytes, n_ranks
        self.n_chunks, self.n_packets = n_chunks, n_packets
        self.places = Places(n_ranks)
        self.marks = Marks(n_ranks)
        chunk = stream.Signature(CHUNK_WIDTH)
        super().__init__(
            {
                "round": In(Round),
                "clear": In(1),
                "clearing": Out(1),
                "allowance": In(Allowance),
                "place_en": In(1),
                "place_addr": In(ceil_log2(n_chunks)),
                "place_data": In(self.places),
                "arrivals": In(stream.Signature(Located)),
                "verdicts": In(stream.Signature(1)),
                "own": In(stream.Signature(OwnPacket)),
                "goals": Out(stream.Signature(Goal)),
                "landings": Out(stream.Signature(Range())),
                "results": Out(stream.Signature(Range())),
                "sources": Out(stream.Signature(1)),
                "area": In(LENGTH_WIDTH),
                "landed": In(1),
                "stored": In(1),
                "added": Out(chunk),
                "finals": Out(chunk),
                "controls": Out(stream.Signature(Control)),
                "replies": Out(stream.Signature(Head)),
                "ask": In(ceil_log2(n_packets)),
                "answer": Out(self.marks),
                "dropped": Out(len(Drop)),
                "answered": Out(1),
                "heard": Out(1),
                "given_up": Out(1),
                "given": Out(Given),
            }
        )

    def elaborate(self, platform):
        m = Module()
        self._memories(m)
        m.submodules.walk = self.walk = PacketWalk()
        m.submodules.landing = landing = Completions()
        m.submodules.result = result = Completions()
        m.submodules.goal_queue = goals = FIFO(Goal, N_WRITES)
        m.submodules.landing_queue = landings = FIFO(Range(), N_WRITES)
        m.submodules.result_queue = results = FIFO(Range(), N_WRITES)
        m.submodules.source_queue = sources = FIFO(1, N_WRITES)
        for queue, port in (
            (goals, self.goals),
            (landings, self.landings),
            (results, self.results),
            (sources, self.sources),
        ):
            wiring.connect(m, queue.o, wiring.flipped(port))
        wiring.connect(m, landing.events, wiring.flipped(self.added))
        wiring.connect(m, result.events, wiring.flipped(self.finals))
        m.d.comb += [landing.stored.eq(self.landed), result.stored.eq(self.stored)]
        room = Signal()
        m.d.comb += room.eq(
            goals.i.ready & landings.i.ready & results.i.ready & sources.i.ready
            & landing.entries.ready & result.entries.ready
        )  # fmt: skip

        cut, walk = self.round.geometry, self.walk
        packet = Signal(Located, reset_less=True)
        own, is_own = Signal(OwnPacket, reset_less=True), Signal(reset_less=True)
        place = Signal(Place, reset_less=True)
        head, to = packet.arrival.head, self.replies.p
        n_here = Signal(NUMBER_WIDTH)  # packets of this chunk
        is_last = Signal()
        m.d.comb += [
            walk.geometry.eq(cut),
            walk.place.eq(place),
            is_last.eq(place.chunk == cut.last_chunk),
            n_here.eq(Mux(is_last, cut.last_per_chunk, cut.per_chunk)),
            self.read_place.eq(place.chunk),
            self.read_mark.eq(place.number),
            self.mark_addr.eq(place.number),
            self.count_addr.eq(place.chunk),
        ]
        m.d.sync += [
            self.dropped.eq(0),
            self.given_up.eq(0),
            self.answered.eq(0),
            self.heard.eq(0),
            self.given.neighbor.eq(head.neighbor),
            self.given.number.eq(place.number),
        ]

        # What the tables say of it, a cycle after they were read.
        down, found, closed = Signal(), Signal(), Signal()
        rank = Signal(range(self.n_ranks + 1), reset_less=True)  # n_ranks: down
        weight = Signal(8, reset_less=True)
        count = Signal(COUNT_WIDTH, reset_less=True)
        marks = Signal(self.marks, reset_less=True)
        counts = Signal(self.counts.shape(), reset_less=True)
        m.d.comb += down.eq(is_own | head.ph)
        self._look(m, head.neighbor, down, is_own, rank, found, weight)
        all_marks = [*self.mark_data.up, self.mark_data.down]
        m.d.sync += [
            marks.eq(self.mark_data),
            counts.eq(self.counts),
            count.eq(Array(self.counts)[rank] + 1),
            closed.eq(Array(mark.closed for mark in all_marks)[rank]),
        ]
        is_data, is_probe = Signal(), Signal()
        m.d.comb += [
            is_data.eq(head.op != Op.CONTROL),
            is_probe.eq(~is_data & (head.p0[:4] == Subtype.PROBE)),
        ]

        def close(here, leaves):
            """Write the packet's mark and its chunk's count."""
            new = [Signal.like(mark, name=f"new{k}") for k, mark in enumerate(all_marks)]
            old = [*marks.up, marks.down]
            for k, (after, before) in enumerate(zip(new, old, strict=True)):
                m.d.comb += after.eq(before)
                with m.If(rank == k):
                    m.d.comb += [after.here.eq(here), after.closed.eq(1), after.leaves.eq(leaves)]
            return [
                self.write_mark.eq(1),
                self.mark_in.eq(Cat(new)),
                self.write_count.eq(1),
                self.count_in.eq(Cat(Mux(rank == k, count, old) for k, old in enumerate(counts))),
            ]

        beats = LENGTH_WIDTH
        low = ceil_log2(self.n_bytes)
        thc = self.round.codec.thc  # elements are bytes
        offset, n_beats = Signal(beats), Signal(beats)
        elems = Signal(len(own.elems))
        target = Signal(Range())
        unit_offset = Mux(is_own, own.offset, head.seq)
        area = Signal(beats, reset_less=True)  # of this rank, from the start of the landing region
        m.d.comb += [
            elems.eq(Mux(is_own, own.elems, head.elems)),
            n_beats.eq((Mux(thc, elems, elems << 2) + (self.n_bytes - 1)) >> low),
            offset.eq((unit_offset << Mux(thc, 4, 6)) >> low),
            target.offset.eq(offset + Mux(down, 0, area)),
            target.n_beats.eq(n_beats),
            landings.i.p.eq(target),
            results.i.p.eq(target),
            sources.i.p.eq(is_own),
            goals.i.p.down.eq(down),
        ]
        m.d.sync += area.eq(Array(self.areas)[rank])
        done = Signal(Completions.Entry)
        m.d.comb += [
            done.event.eq(count == n_here),
            done.chunk.eq(place.chunk),
            landing.entries.p.eq(done),
            result.entries.p.eq(done),
        ]

        reason = Signal(Drop)
        fits = (place.within < n_here) & (place.chunk <= cut.last_chunk)
        leaves = head.arg[32 - LEAVES_WIDTH :]
        coded = self.round.codec.coded
        with m.If(~packet.whole | ~fits | ~found | (packet.chunk >> CHUNK_WIDTH).any()):
            m.d.comb += reason.eq(Drop.CONFIG)
        with m.Elif(head.elems != walk.elems):
            m.d.comb += reason.eq(Drop.LENGTH)
        with m.Elif((leaves == 0) | (leaves > weight)):
            m.d.comb += reason.eq(Drop.CONFIG)
        with m.Elif(coded & ~self.verdicts.payload):
            m.d.comb += reason.eq(Drop.CODEC)
        with m.Elif(closed):
            m.d.comb += reason.eq(Drop.DUPLICATE)

        # A PROBE's range is read one packet a cycle; marks come two cycles behind.
        n_asked, n_seen = Signal(range(RUN + 1)), Signal(range(RUN + 1))
        asking, coming, seen = Signal(), Signal(), Signal()
        missing = Signal(range(RUN * 4096), reset_less=True)
        missing_bytes = Signal(BYTES_WIDTH, reset_less=True)
        weights, shifted = Signal(8, reset_less=True), Signal(BYTES_WIDTH, reset_less=True)
        text = Signal(8 * BODY, reset_less=True)
        bit = Signal(range(8 * BODY), reset_less=True)
        first = Signal(Place, reset_less=True)
        is_open = Signal()
        m.d.comb += is_open.eq(~Array(mark.closed for mark in all_marks)[rank])
        m.d.sync += [coming.eq(asking), seen.eq(coming)]
        allowed = self.allowances
        m.d.comb += self.read_allowance.eq(head.neighbor)

        fresh = Signal()  # an arrival was taken in the last cycle
        m.d.sync += fresh.eq(0)
        share, divided = self._marked(m, head, fresh, self.replies.valid & self.replies.ready)
        for name in ("ph", "slot", "arg", "lc"):
            m.d.comb += to[name].eq(head[name])
        m.d.comb += [
            to.op.eq(Op.CONTROL),
            to.imp.eq(1),
            to.tos.eq(self.round.tos),
            to.p1.eq(share),
            to.neighbor.eq(head.neighbor),
            to.seq.eq(head.seq),
            to.elems.eq(head.elems),
        ]
        for name in ("ph", "neighbor", "seq", "elems", "arg", "body"):
            m.d.comb += self.controls.p[name].eq(head[name])
        m.d.comb += [
            self.controls.p.subtype.eq(head.p0[:4]),
            self.controls.p.share.eq(head.p1),
        ]

        sweep = Signal(range(max(self.n_packets, self.n_chunks)))
        with m.FSM():
            with m.State("REST"):
                m.d.comb += [
                    self.own.ready.eq(~self.clear),
                    self.arrivals.ready.eq(~self.clear & ~self.own.valid),
                ]
                m.d.sync += [
                    packet.eq(self.arrivals.p),
                    own.eq(self.own.p),
                    is_own.eq(self.own.valid),
                    fresh.eq(self.arrivals.valid & self.arrivals.ready),
                    sweep.eq(0),
                ]
                with m.If(self.own.valid):
                    m.d.sync += [
                        place.chunk.eq(self.own.p.chunk),
                        place.number.eq(self.own.p.number),
                    ]
                with m.Else():
                    m.d.sync += [
                        place.chunk.eq(self.arrivals.p.chunk),
                        place.within.eq(self.arrivals.p.within),
                        place.number.eq(self.arrivals.p.number),
                    ]
                with m.If(self.clear):
                    m.next = "CLEAR"
                with m.Elif(self.own.valid | self.arrivals.valid):
                    m.next = "SORT"
            with m.State("SORT"):
                m.d.sync += first.eq(place)
                with m.If(is_own):
                    m.next = "READ"
                with m.Elif(~is_data & ~is_probe):
                    m.d.comb += self.controls.valid.eq(1)
                    with m.If(self.controls.ready):
                        m.d.sync += self.heard.eq(1)
                        m.next = "REST"
                with m.Elif(packet.arrival.wrong):
                    m.d.sync += [
                        self.dropped[Drop.CONFIG].eq(packet.arrival.ready),
                        self.dropped[Drop.NOT_READY].eq(~packet.arrival.ready),
                    ]
                    m.next = "REST"
                with m.Elif(packet.arrival.ready):
                    m.next = "READ"
                with m.Elif(is_data):
                    m.d.sync += self.dropped[Drop.NOT_READY].eq(1)
                    m.next = "REST"
                with m.Elif(packet.arrival.stale):
                    m.next = "STOP"
                with m.Else():
                    m.d.sync += self.dropped[Drop.NOT_READY].eq(1)
                    m.next = "NOT_READY"
            with m.State("READ"):
                m.next = "CHECK"
            with m.State("CHECK"):
                m.next = "COUNT"
            with m.State("COUNT"):
                m.next = "ACT"
                with m.If(is_probe & ~is_own):
                    m.next = "START"
            with m.State("ACT"):
                judged = Signal()  # by the codec
                m.d.comb += judged.eq(is_own | ~coded | self.verdicts.valid)
                with m.If(room & judged):
                    m.next = "REST"
                    with m.If(~is_own):
                        m.d.comb += [
                            self.verdicts.ready.eq(coded),
                            goals.i.valid.eq(~coded | self.verdicts.payload),
                            goals.i.p.keep.eq(reason == Drop.NONE),
                        ]
                        m.d.sync += self.dropped.eq(1 << reason)
                    with m.If(is_own | (reason == Drop.NONE)):
                        m.d.comb += [
                            *close(1, Mux(is_own, own.leaves, leaves)),
                            done.written.eq(1),
                            landings.i.valid.eq(~down),
                            landing.entries.valid.eq(~down),
                            results.i.valid.eq(down),
                            sources.i.valid.eq(down),
                            result.entries.valid.eq(down),
                        ]
            with m.State("START"):
                m.d.sync += [
                    n_asked.eq(0),
                    n_seen.eq(0),
                    missing.eq(0),
                    text.eq((Const(1, 8) << head.seq[:3]) - 1),
                    bit.eq(head.seq[:3]),
                ]
                m.next = "SCAN"
                end = Signal(NUMBER_WIDTH + 1)
                m.d.comb += end.eq(place.within + head.elems)
                with m.If(~found | ~fits | (end > n_here) | (head.elems == 0) | (head.elems > RUN)):
                    m.d.sync += self.dropped[Drop.CONFIG].eq(1)
                    m.next = "REST"
            with m.State("SCAN"):
                m.d.comb += [
                    asking.eq(n_asked != head.elems),
                    self.read_mark.eq(first.number + n_asked),
                ]
                m.d.sync += n_asked.eq(n_asked + asking)
                with m.If(seen):
                    m.d.sync += [
                        n_seen.eq(n_seen + 1),
                        place.eq(walk.following),
                        missing.eq(missing + Mux(is_open, walk.elems, 0)),
                        text.bit_select(bit, 1).eq(~is_open),
                        bit.eq(bit + 1),
                    ]
                with m.If(n_seen == head.elems):
                    m.d.sync += [
                        missing_bytes.eq(0),
                        weights.eq(weight),
                        shifted.eq(Mux(thc, missing >> 1, missing << 2)),
                        place.eq(first),
                        n_seen.eq(0),
                    ]
                    m.next = "WEIGH"
            with m.State("WEIGH"):  # missing bytes times leaves
                m.d.sync += [weights.eq(weights >> 1), shifted.eq(shifted << 1)]
                with m.If(weights[0]):
                    m.d.sync += missing_bytes.eq(missing_bytes + shifted)
                with m.If(weights == 0):
                    m.next = "BITMAP"
                    with m.If(missing == 0):
                        m.next = "STOP"
                    with m.Elif(~head.ph & (missing_bytes <= allowed)):
                        m.d.comb += self.spend.eq(1)
                        m.next = "FETCH"
            m.d.comb += self.spent.eq(allowed - missing_bytes)
            with m.State("FETCH"):  # close what is missing, one packet after the other
                m.next = "FETCHED"
            with m.State("FETCHED"):
                m.next = "FOUND"
            with m.State("FOUND"):
                m.next = "GIVE"
            with m.State("GIVE"):
                with m.If(room):
                    with m.If(~closed):
                        m.d.comb += [*close(0, 0), landing.entries.valid.eq(1)]
                        m.d.sync += self.given_up.eq(1)
                    m.d.sync += [n_seen.eq(n_seen + 1), place.eq(walk.following)]
                    m.next = "FETCH"
                    with m.If(n_seen + 1 == head.elems):
                        m.next = "STOP"
            with m.State("STOP"):
                m.d.comb += [self.replies.valid.eq(divided), to.p0.eq(Subtype.STOP)]
                with m.If(self.replies.ready & divided):
                    m.d.sync += self.answered.eq(1)
                    m.next = "REST"
            with m.State("NOT_READY"):
                m.d.comb += [self.replies.valid.eq(divided), to.p0.eq(Subtype.NOT_READY)]
                with m.If(self.replies.ready & divided):
                    m.next = "REST"
            with m.State("BITMAP"):
                n_bits = Signal(range(8 * BODY + 1))
                m.d.comb += [
                    n_bits.eq(head.elems[:7] + head.seq[:3]),
                    self.replies.valid.eq(divided),
                    to.p0.eq(Subtype.BITMAP),
                    to.seq.eq(Cat(Const(0, 3), head.seq[3:])),
                    to.elems.eq(n_bits),
                    to.length.eq((n_bits + 7) >> 3),
                    to.body.eq(text),
                ]
                with m.If(self.replies.ready & divided):
                    m.d.sync += self.answered.eq(1)
                    m.next = "REST"
            with m.State("CLEAR"):
                m.d.comb += [
                    self.clearing.eq(1),
                    self.write_mark.eq(1),
                    self.write_count.eq(1),
                    self.mark_addr.eq(sweep),
                    self.count_addr.eq(sweep),
                ]
                m.d.sync += sweep.eq(sweep + 1)
                with m.If(sweep == max(self.n_packets, self.n_chunks) - 1):
                    m.next = "REST"
        return m

    def _memories(self, m):
        """Senders and counts by chunk, marks by packet (twice: for us and for who asks)."""
        n_areas = self.n_ranks + 1
        count_shape = data.ArrayLayout(COUNT_WIDTH, n_areas)
        mark_width = Signal(self.marks).as_value().shape().width
        place_width = Signal(self.places).as_value().shape().width
        m.submodules.place_ram = places = BlockRAM(place_width, self.n_chunks)
        m.submodules.count_ram = counts = BlockRAM(n_areas * COUNT_WIDTH, self.n_chunks)
        m.submodules.mark_ram = marks = BlockRAM(mark_width, self.n_packets)
        m.submodules.asked_ram = asked = BlockRAM(mark_width, self.n_packets)
        self.read_place, self.read_mark = Signal(CHUNK_WIDTH), Signal(NUMBER_WIDTH)
        self.place_data_out = Signal(self.places)
        self.mark_data, self.counts = Signal(self.marks), Signal(count_shape)
        self.write_mark, self.write_count = Signal(), Signal()
        self.mark_in, self.count_in = Signal(mark_width), Signal(n_areas * COUNT_WIDTH)
        self.mark_addr, self.count_addr = Signal(NUMBER_WIDTH), Signal(CHUNK_WIDTH)
        m.d.comb += [
            places.write_en.eq(self.place_en),
            places.write_addr.eq(self.place_addr),
            places.write_data.eq(self.place_data),
            places.read_addr.eq(self.read_place),
            self.place_data_out.as_value().eq(places.read_data),
            counts.write_en.eq(self.write_count),
            counts.write_addr.eq(self.count_addr),
            counts.write_data.eq(self.count_in),
            counts.read_addr.eq(self.read_place),
            self.counts.as_value().eq(counts.read_data),
            marks.read_addr.eq(self.read_mark),
            self.mark_data.as_value().eq(marks.read_data),
            asked.read_addr.eq(self.ask),
            self.answer.as_value().eq(asked.read_data),
        ]
        for ram in (marks, asked):
            m.d.comb += [
                ram.write_en.eq(self.write_mark),
                ram.write_addr.eq(self.mark_addr),
                ram.write_data.eq(self.mark_in),
            ]
        # rank k's landings start behind those of the ranks before it
        self.areas = [Signal(LENGTH_WIDTH, name=f"area{k}") for k in range(n_areas)]
        for k, area in enumerate(self.areas[:-1]):
            if k:
                m.d.sync += area.eq(self.areas[k - 1] + self.area)
        m.submodules.allowance_memory = table = memory.Memory(
            shape=BYTES_WIDTH, depth=N_NEIGHBORS, init=[]
        )
        write, read = table.write_port(), table.read_port(domain="comb")
        self.allowances = Signal(BYTES_WIDTH)
        self.read_allowance = Signal(ceil_log2(N_NEIGHBORS))
        self.spend, self.spent = Signal(), Signal(BYTES_WIDTH)
        m.d.comb += [
            read.addr.eq(self.read_allowance),
            self.allowances.eq(read.data),
            write.en.eq(self.allowance.enable | self.spend),
            write.addr.eq(Mux(self.spend, self.read_allowance, self.allowance.index)),
            write.data.eq(Mux(self.spend, self.spent, self.allowance.bytes)),
        ]

    def _marked(self, m, head, came, answered):
        """Packets of a neighbor since its last answer: (share that came with CE in 1/256, known).

        A division of 8 cycles after each packet; up to 4095 packets count.
        """
        count = data.StructLayout({"packets": 12, "marked": 12})
        m.submodules.marked_memory = table = memory.Memory(shape=count, depth=N_NEIGHBORS, init=[])
        write, read = table.write_port(), table.read_port(domain="comb")
        new, known = Signal(count), Signal(count)
        full = known.packets.all()
        share, left = Signal(8, reset_less=True), Signal(range(9))
        rest, whole = Signal(13, reset_less=True), Signal(12, reset_less=True)
        twice, fits = rest << 1, Signal()
        m.d.comb += [
            read.addr.eq(head.neighbor),
            known.eq(read.data),
            new.packets.eq(known.packets + ~full),
            new.marked.eq(known.marked + (~full & (head.tos[:2] == CE))),
            write.addr.eq(head.neighbor),
            write.en.eq(came | answered),
            write.data.eq(Mux(answered, 0, new.as_value())),
            fits.eq(twice >= whole),
        ]
        with m.If(came):
            m.d.sync += [rest.eq(new.marked), whole.eq(new.packets), left.eq(8)]
        with m.Elif(left != 0):
            m.d.sync += [
                rest.eq(Mux(fits, twice - whole, twice)),
                share.eq(Cat(fits, share)),
                left.eq(left - 1),
            ]
        return share, ~came & (left == 0)

    def _look(self, m, neighbor, down, is_own, rank, found, weight):
        """Which rank the neighbor has in this chunk, a cycle after the table was read."""
        told = self.place_data_out
        up = Cat(one.valid & (one.neighbor == neighbor) for one in told.up)
        leaves = Const(0, 8)
        for k, one in enumerate(told.up):
            leaves = Mux(up[k], one.leaves, leaves)
        number = Const(0, len(rank))
        for k in range(self.n_ranks):
            number = Mux(up[k], k, number)
        is_parent = told.down.valid & (told.down.neighbor == neighbor)
        m.d.sync += [
            rank.eq(Mux(down, self.n_ranks, number)),
            weight.eq(Mux(down, 0xFF, leaves)),
            found.eq(Mux(down, is_own | is_parent, up.any())),
        ]
