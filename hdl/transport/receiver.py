"""Tracks the packets of a round: what is here, what may be given up, what is to be sent again.

Sources: DLCP (arXiv 2008.08445) and MLT (NSDI 2024): bitmaps, STOP at (1 - p) of the bytes, PROBE.
Ours: one allowance for all that a neighbor sends up, weighed by the leaves that a packet stands
for, so that no chunk is too small for a share of it; giving up at a PROBE only.

Part of `gradnic.hdl.offload.card`, whose golden model it follows.
"""

from itertools import pairwise

from amaranth.hdl import Array, Cat, Const, Module, Mux, Signal
from amaranth.lib import stream, wiring
from amaranth.lib.wiring import In, Out
from amaranth.utils import ceil_log2

from gradnic.interface.formats import Op
from gradnic.interface.offload import Drop, Subtype

from ..axi.dma import LENGTH_WIDTH, Range
from ..primitive.target import one_hot
from ..stream.fifo import FIFO
from .allowances import Allowances
from .completions import N_WRITES, Completions
from .ledger import CLEAR_WIDTH, Ledger
from .locator import Located
from .mark_share import MarkShare
from .packet_walk import PacketWalk, Place
from .probe_scan import ProbeScan
from .records import (
    BODY,
    BYTES_WIDTH,
    CHECK_WIDTH,
    CHUNK_WIDTH,
    ELEMS_WIDTH,
    LEAVES_WIDTH,
    NUMBER_WIDTH,
    RUN,
    Allowance,
    Answer,
    CheckWrite,
    Control,
    Given,
    Goal,
    Head,
    OwnPacket,
    PathMark,
    Round,
)

CE = 3  # of the ECN bits


class Receiver(wiring.Component):
    """Decides on one packet at a time: 9 cycles for raw data, about 25 + 6 a packet for a PROBE.

    Coded data take 10, and wait for their verdict.

    A chunk is reported once all of its packets from one sender are closed and in memory: on
    ``added`` from a child, on ``finals`` from the parent or from this node's own terminal row.
    A PROBE that finds packets missing closes them where the neighbor's allowance covers them, at
    9 cycles per packet, else it is answered by a BITMAP.

    Parameters
    ----------
    n_bytes : int
        Of a beat of memory, 16, 32 or 64.
    n_ranks : int
        Contributions to a chunk, at most; 1 to 15.
    n_chunks, n_packets : int
        Of the largest tensor; 2 to 8192 and 2 to 16384.
    n_tables : int
        Tables of senders that are kept, as of `gradnic.hdl.schedule.scheduler.Scheduler`.
    roots : bool
        Results of terminal rows are written apart from those that arrive.
    thc : bool
        False: there are no rounds of THC, whose packets carry a check of their norms.

    Members
    -------
    round : In(Round)
    clear, clearing : In(1), Out(1)
        A strobe: forget packets and chunks below ``n_clear``, which takes a cycle for each.
    n_clear : In(15)
        1 to ``n_packets``, or ``n_chunks`` if those are more: no number above is used.
    allowance : In(Allowance)
    check : In(CheckWrite)
        The check of one packet's norms; not while a round is armed.
    place_en, place_addr, place_data : In
        Writes one entry of the table of senders, by chunk; not while a round is armed. Table k
        begins at k * n_chunks.
    table : In(range(n_tables))
        Which one holds; only with more than one.
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
        For each of ``results``: its values are a terminal row's; only without ``roots``.
    roots : Out(stream.Signature(Range))
        Results of terminal rows; only with ``roots``, as is ``rooted``.
    area : In(24)
        Beats of a landing area.
    landed, stored, rooted : In(1)
        One pulse per range that is in memory.
    added, finals : Out(stream.Signature(chunk))
    controls : Out(stream.Signature(Control))
        STOP, BITMAP and NOT_READY of the round under way, for the sender.
    replies : Out(stream.Signature(Head))
    path_mark : Out(PathMark)
        Of packets that went to the sender.
    ask, answer : In(number of a packet), Out(Answer(n_ranks))
        What is known of a packet, 2 cycles later.
    dropped : Out(len(Drop))
        Bit k pulses for a packet with `gradnic.interface.offload.Drop` k; bit 0 for one that is
        accepted.
    answered, heard : Out(1)
        One pulse per PROBE that STOP or BITMAP answered; per packet that went to the sender.
    given_up, given : Out(1), Out({neighbor, number})
        One cycle per packet that is given up, and which it is.
    """

    def __init__(
        self,
        n_bytes: int,
        *,
        n_ranks: int = 4,
        n_chunks: int = 64,
        n_packets: int = 1024,
        thc: bool = True,
        n_tables: int = 1,
        roots: bool = False,
    ) -> None:
        if not 1 <= n_ranks <= 15:
            raise ValueError(f"n_ranks must be 1 to 15, not {n_ranks!r}")
        if not 2 <= n_chunks <= 2**CHUNK_WIDTH:
            raise ValueError(f"n_chunks must be 2 to {2**CHUNK_WIDTH}, not {n_chunks!r}")
        if not 2 <= n_packets <= 16384:
            raise ValueError(f"n_packets must be 2 to 16384, not {n_packets!r}")
        self.n_bytes, self.n_ranks = n_bytes, n_ranks
        self.n_chunks, self.n_packets = n_chunks, n_packets
        self.n_tables, self.with_roots = n_tables, roots
        written = {"roots": Out(stream.Signature(Range())), "rooted": In(1)}
        self.ledger = Ledger(n_ranks, n_chunks, n_packets, thc=thc, n_tables=n_tables)
        self.places = self.ledger.places
        chunk = stream.Signature(CHUNK_WIDTH)
        super().__init__(
            {
                "round": In(Round),
                "clear": In(1),
                "clearing": Out(1),
                "n_clear": In(CLEAR_WIDTH),
                "allowance": In(Allowance),
                "check": In(CheckWrite),
                "place_en": In(1),
                "place_addr": In(ceil_log2(n_tables * n_chunks)),
                "place_data": In(self.places),
                **({"table": In(range(n_tables))} if n_tables > 1 else {}),
                "arrivals": In(stream.Signature(Located)),
                "verdicts": In(stream.Signature(1)),
                "own": In(stream.Signature(OwnPacket)),
                "goals": Out(stream.Signature(Goal)),
                "landings": Out(stream.Signature(Range())),
                "results": Out(stream.Signature(Range())),
                **(written if roots else {"sources": Out(stream.Signature(1))}),
                "area": In(LENGTH_WIDTH),
                "landed": In(1),
                "stored": In(1),
                "added": Out(chunk),
                "finals": Out(chunk),
                "controls": Out(stream.Signature(Control)),
                "replies": Out(stream.Signature(Head)),
                "path_mark": Out(PathMark),
                "ask": In(ceil_log2(n_packets)),
                "answer": Out(Answer(n_ranks)),
                "dropped": Out(len(Drop)),
                "answered": Out(1),
                "heard": Out(1),
                "given_up": Out(1),
                "given": Out(Given),
            }
        )

    def elaborate(self, platform):
        m = Module()
        m.submodules.allowances = allowances = Allowances()
        m.submodules.walk = self.walk = PacketWalk()
        m.submodules.landing = landing = Completions()
        m.submodules.result = result = Completions()
        m.submodules.goal_queue = goals = FIFO(Goal, N_WRITES)
        m.submodules.landing_queue = landings = FIFO(Range(), N_WRITES)
        m.submodules.result_queue = results = FIFO(Range(), N_WRITES)
        for queue, port in (
            (goals, self.goals),
            (landings, self.landings),
            (results, self.results),
        ):
            wiring.connect(m, queue.o, wiring.flipped(port))
        wiring.connect(m, landing.events, wiring.flipped(self.added))
        beside, room_beside = self._results(m, result)
        m.d.comb += [landing.stored.eq(self.landed), result.stored.eq(self.stored)]
        room = Signal()
        m.d.sync += room.eq(  # nobody else fills them, and it takes cycles between two entries
            goals.i.ready & landings.i.ready & results.i.ready & room_beside
            & landing.entries.ready & result.entries.ready
        )  # fmt: skip

        cut, walk = self.round.geometry, self.walk
        packet = Signal(Located, reset_less=True)
        own, is_own = Signal(OwnPacket, reset_less=True), Signal(reset_less=True)
        place = Signal(Place, reset_less=True)
        head, to = packet.arrival.head, self.replies.p
        n_here = Signal(NUMBER_WIDTH, reset_less=True)  # packets of this chunk
        is_last = Signal()
        m.d.comb += [
            walk.geometry.eq(cut),
            walk.place.eq(place),
        ]
        m.d.sync += [
            is_last.eq(place.chunk == cut.last_chunk),
            n_here.eq(Mux(is_last, cut.last_per_chunk, cut.per_chunk)),
        ]
        m.d.sync += [
            self.dropped.eq(0),
            self.given_up.eq(0),
            self.answered.eq(0),
            self.heard.eq(0),
            self.path_mark.valid.eq(self.heard & head.ecn),
            self.path_mark.path.eq(head.path),
            self.given.neighbor.eq(head.neighbor),
            self.given.number.eq(place.number),
        ]

        down, closes, packed = Signal(), Signal(), Signal()
        # in the cycle of `closes`
        to_goals, to_landings, to_results, to_roots = (Signal(name=f"to_{name}") for name in (
            "goals", "landings", "results", "roots"
        ))  # fmt: skip
        keeps = Signal(reset_less=True)
        giving = Signal()  # the packet did not come, and is closed all the same
        leaves = head.arg[32 - LEAVES_WIDTH :]
        m.submodules.ledger = ledger = self.ledger
        closed, found, weight = ledger.closed, ledger.found, ledger.weight
        m.d.comb += [
            down.eq(is_own | head.ph),
            packed.eq(~is_own & (head.op == Op.THC_IDX)),
            *(
                getattr(ledger, name).eq(getattr(self, name))
                for name in ("clear", "n_clear", "place_en", "place_addr", "place_data", "ask")
            ),
            *([ledger.table.eq(self.table)] if self.n_tables > 1 else []),
            self.clearing.eq(ledger.clearing),
            self.answer.eq(ledger.answer),
            ledger.check_write.eq(self.check),
            ledger.chunk.eq(place.chunk),
            ledger.number.eq(place.number),
            ledger.neighbor.eq(head.neighbor),
            ledger.flow.eq(head.slot),
            ledger.down.eq(down),
            ledger.own.eq(is_own),
            ledger.n_here.eq(n_here),
            ledger.given_up.eq(giving),
            ledger.packed.eq(packed),
            ledger.leaves.eq(Mux(is_own, own.leaves, leaves)),
            ledger.closes.eq(closes),
        ]
        is_data, is_probe = Signal(reset_less=True), Signal(reset_less=True)

        done = Signal(Completions.Entry)
        target = self._target(m, Mux(is_own, own.offset, head.seq),
                              Mux(is_own, own.elems, head.elems), down, packed)  # fmt: skip
        m.d.comb += [
            done.event.eq(ledger.completes),
            done.chunk.eq(place.chunk),
            done.written.eq(~giving),
            landings.i.p.eq(target),
            results.i.p.eq(target),
            goals.i.p.down.eq(down),
            goals.i.p.keep.eq(keeps),
            goals.i.valid.eq(to_goals),
            landings.i.valid.eq(to_landings),
            landing.entries.valid.eq(to_landings | (closes & giving)),
            results.i.valid.eq(to_results),
            result.entries.valid.eq(to_results),
            landing.entries.p.eq(done),
            result.entries.p.eq(done),
        ]
        if self.with_roots:
            roots, root = beside
            m.d.comb += [
                roots.i.p.eq(target),
                root.entries.p.eq(done),
                roots.i.valid.eq(to_roots),
                root.entries.valid.eq(to_roots),
            ]
        else:
            m.d.comb += [beside.i.payload.eq(is_own), beside.i.valid.eq(to_results)]
        m.d.sync += [
            *(flag.eq(0) for flag in (to_goals, closes, to_landings, to_results, to_roots))
        ]

        # Why it may change nothing.
        fits, too_far, sound = Signal(), Signal(), Signal()
        end = Signal(NUMBER_WIDTH + 1, reset_less=True)  # of a PROBE's range
        coded = self.round.codec.coded
        m.d.sync += [
            fits.eq(
                (place.within < n_here)
                & (place.chunk <= cut.last_chunk)
                & ~(packet.chunk >> CHUNK_WIDTH).any()  # bits that `place` has no room for
            ),
            end.eq(place.within + head.elems),
            too_far.eq(end > n_here),
        ]
        reason = self._reason(m, packet, fits, leaves, coded & ~sound)

        # A PROBE's range, one packet after the other.
        m.submodules.scan = scan = ProbeScan()
        n_seen = Signal(range(RUN + 1))
        first = Signal(Place, reset_less=True)
        allowed = Signal(BYTES_WIDTH, reset_less=True)
        allows, ends_range = Signal(), Signal()
        last_seen = Signal.like(n_seen, reset_less=True)  # of a range that is not too long
        m.d.comb += [
            allowances.write.eq(self.allowance),
            allowances.neighbor.eq(head.neighbor),
            scan.first_bit.eq(head.seq[:3]),
            scan.closed.eq(closed),
            scan.elems.eq(walk.elems),
            scan.leaves.eq(weight),
            scan.thc.eq(self.round.codec.thc),
        ]
        m.d.sync += [
            allowed.eq(allowances.bytes),
            allows.eq(scan.lost <= allowed),
            allowances.left.eq(allowed - scan.lost),
            last_seen.eq(head.elems - 1),
            ends_range.eq(n_seen == last_seen),
        ]

        n_bits = Signal(range(8 * BODY + 1), reset_less=True)  # of a BITMAP
        m.d.sync += n_bits.eq(head.elems[:7] + head.seq[:3])
        fresh = Signal()  # an arrival was taken in the last cycle
        m.d.sync += fresh.eq(0)
        m.submodules.marked = marked = MarkShare()
        divided = Signal()  # a cycle late: it is known long before it is told
        m.d.sync += divided.eq(marked.known)
        for name in ("ph", "gen", "slot", "tensor", "arg", "lc", "path"):
            m.d.comb += to[name].eq(head[name])
        m.d.comb += [
            to.op.eq(Op.CONTROL),
            to.imp.eq(1),
            to.tos.eq(self.round.tos),
            to.p1.eq(marked.share),
            to.ecn.eq(packet.arrival.ready & (head.tos[:2] == CE)),
            marked.neighbor.eq(head.neighbor),
            marked.came.eq(fresh),
            marked.marked.eq(head.tos[:2] == CE),
            marked.told.eq(self.replies.valid & self.replies.ready),
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

        with m.FSM() as fsm:
            with m.State("REST"):
                m.d.comb += [
                    self.own.ready.eq(1),
                    self.arrivals.ready.eq(~self.own.valid),
                ]
                arrived = self.arrivals.p.arrival.head
                m.d.sync += [
                    packet.eq(self.arrivals.p),
                    is_data.eq(arrived.op != Op.CONTROL),
                    is_probe.eq((arrived.op == Op.CONTROL) & (arrived.p0[:4] == Subtype.PROBE)),
                    own.eq(self.own.p),
                    is_own.eq(self.own.valid),
                    giving.eq(0),
                    fresh.eq(self.arrivals.valid & self.arrivals.ready),
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
                with m.If(self.own.valid | self.arrivals.valid):
                    m.next = "SORT"
            with m.State("SORT"):
                m.d.sync += first.eq(place)
                with m.If(is_own):
                    m.next = "READ"
                with m.Elif(~is_data & ~is_probe & packet.arrival.ready):
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
                with m.Elif(~is_probe):
                    m.d.sync += self.dropped[Drop.NOT_READY].eq(1)
                    m.next = "REST"
                with m.Elif(packet.arrival.stale):
                    m.next = "STOP"
                with m.Else():
                    m.d.sync += self.dropped[Drop.NOT_READY].eq(1)
                    m.next = "NOT_READY"
            self._pass(m, "READ", "CHECK", "COUNT", "TALLY")
            with m.State("TALLY"):
                m.next = "JUDGE"
                with m.If(~is_own & is_probe):
                    m.next = "START"
                with m.Elif(~is_own & coded):
                    m.next = "HEAR"
            with m.State("HEAR"):  # what the codec says of it
                m.d.comb += self.verdicts.ready.eq(1)
                m.d.sync += sound.eq(self.verdicts.payload)
                with m.If(self.verdicts.valid):
                    m.next = "JUDGE"
            self._pass(m, "JUDGE", "JUDGED", "ACT")
            with m.State("ACT"):
                accepted = Signal()
                m.d.comb += accepted.eq(is_own | (reason == Drop.NONE))
                with m.If(room):
                    m.next = "REST"
                    m.d.sync += [  # done in the next cycle, in which nothing of it has changed
                        to_goals.eq(~is_own & (~coded | sound)),
                        keeps.eq(reason == Drop.NONE),
                        closes.eq(accepted),
                        to_landings.eq(accepted & ~down),
                        to_results.eq(accepted & (down & ~is_own if self.with_roots else down)),
                        to_roots.eq(accepted & is_own),
                    ]
                    with m.If(~is_own):
                        m.d.sync += self.dropped.eq(Cat(reason == drop for drop in Drop))
            with m.State("START"):
                m.d.comb += scan.start.eq(1)
                m.d.sync += n_seen.eq(0)
                m.next = "SCAN"
                with m.If(~found | ~fits | too_far | (head.elems == 0) | (head.elems > RUN)):
                    m.d.sync += self.dropped[Drop.CONFIG].eq(1)
                    m.next = "REST"
            self._pass(m, "SCAN", "SCAN1", "SCAN2", "SCAN3", "SCAN4", "SEEN")
            with m.State("SEEN"):
                m.d.comb += scan.sees.eq(1)
                m.d.sync += [n_seen.eq(n_seen + 1), place.eq(walk.following)]
                m.next = "SCAN"
                with m.If(ends_range):
                    m.next = "COUNTED"
            self._pass(m, "COUNTED", "SUM")
            with m.State("SUM"):
                m.d.comb += scan.weighs.eq(1)
                m.d.sync += [place.eq(first), n_seen.eq(0)]
                m.next = "WEIGH"
            with m.State("WEIGH"):
                with m.If(~scan.busy):
                    m.next = "WEIGHED"
            self._pass(m, "WEIGHED", "DECIDE")
            with m.State("DECIDE"):
                m.next = "BITMAP"
                with m.If(~scan.lacks):
                    m.next = "STOP"
                with m.Elif(~head.ph & allows):
                    m.d.comb += allowances.spend.eq(1)
                    m.d.sync += giving.eq(1)
                    m.next = "GIVE"
            # close what is missing, one packet after the other
            self._pass(m, "GIVE", "GIVE1", "GIVE2", "GIVE3", "GIVE4", "GIVE5", "GIVE6", "GIVEN")
            with m.State("GIVEN"):
                with m.If(room):
                    m.d.sync += [closes.eq(~closed), self.given_up.eq(~closed)]
                    m.next = "GONE"
            with m.State("GONE"):
                m.d.sync += [n_seen.eq(n_seen + 1), place.eq(walk.following)]
                m.next = "GIVE"
                with m.If(ends_range):
                    m.next = "STOP"
            with m.State("STOP"):
                m.d.comb += [self.replies.valid.eq(divided), to.p0.eq(Subtype.STOP)]
                with m.If(self.replies.ready & divided):
                    m.d.sync += self.answered.eq(1)
                    m.next = "REST"
            with m.State("NOT_READY"):
                m.d.comb += [self.replies.valid.eq(divided), to.p0.eq(Subtype.NOT_READY)]
                m.d.comb += to.arg.eq(self.round.last_gen)
                with m.If(self.replies.ready & divided):
                    m.next = "REST"
            with m.State("BITMAP"):
                m.d.comb += [
                    self.replies.valid.eq(divided),
                    to.p0.eq(Subtype.BITMAP),
                    to.seq.eq(Cat(Const(0, 3), head.seq[3:])),
                    to.elems.eq(n_bits),
                    to.length.eq((n_bits + 7) >> 3),
                    to.body.eq(scan.body),
                ]
                with m.If(self.replies.ready & divided):
                    m.d.sync += self.answered.eq(1)
                    m.next = "REST"
        one_hot(fsm)
        return m

    def _results(self, m, result):
        """What is beside the queue of results: (queue of whose they are, its room); or, with roots,
        ((their queue, what they complete), room of both), and events of both are merged.
        """
        if not self.with_roots:
            m.submodules.source_queue = sources = FIFO(1, N_WRITES)
            wiring.connect(m, sources.o, wiring.flipped(self.sources))
            wiring.connect(m, result.events, wiring.flipped(self.finals))
            return sources, sources.i.ready
        m.submodules.root_queue = roots = FIFO(Range(), N_WRITES)
        m.submodules.root = root = Completions()
        m.submodules.final_queue = finals = FIFO(CHUNK_WIDTH, 4)
        wiring.connect(m, roots.o, wiring.flipped(self.roots))
        wiring.connect(m, finals.o, wiring.flipped(self.finals))
        first, second = root.events, result.events
        m.d.comb += [
            root.stored.eq(self.rooted),
            finals.i.valid.eq(first.valid | second.valid),
            finals.i.payload.eq(Mux(first.valid, first.payload, second.payload)),
            first.ready.eq(finals.i.ready),
            second.ready.eq(finals.i.ready & ~first.valid),
        ]
        return (roots, root), roots.i.ready & root.entries.ready

    def _target(self, m, offset, elems, down, packed):
        """Where `elems` values at `offset` of the tensor go, as beats of their region: 2 cycles
        later, and a cycle after the ledger knows the sender's rank. packed : they are indices, and
        stay so in the first half of their place.
        """
        low = ceil_log2(self.n_bytes)
        thc = self.round.codec.thc  # elements are bytes
        beats, area = (Signal(LENGTH_WIDTH, name=n, reset_less=True) for n in ("beats", "place_of"))
        size = Signal(ELEMS_WIDTH, reset_less=True)
        target = Signal(Range(), reset_less=True)
        octets = Mux(packed, size >> 1, Mux(thc, size, size << 2))
        # rank k's landings start behind those of the ranks before it
        areas = [Signal(LENGTH_WIDTH, name=f"area{k}") for k in range(self.n_ranks + 1)]
        for one, after in pairwise(areas[:-1]):
            m.d.sync += after.eq(one + self.area)
        m.d.sync += [
            size.eq(elems),
            beats.eq((offset << Mux(thc, 4, 6)) >> low),
            area.eq(Mux(down, 0, Array(areas)[self.ledger.rank])),  # from the start of the region
            target.offset.eq(beats + area),
            target.n_beats.eq((octets + (self.n_bytes - 1)) >> low),
        ]
        return target

    def _reason(self, m, packet, fits, leaves, unsound):
        """`Drop.NONE`, or why a data packet may change nothing, once the ledger has spoken."""
        ledger, elems = self.ledger, packet.arrival.head.elems
        early, reason = Signal(Drop), Signal(Drop)
        right_size, right_leaves, right_check = Signal(), Signal(), Signal()
        check = Mux(self.round.codec.thc, ledger.check, 0)
        m.d.sync += [
            right_size.eq(elems == self.walk.elems),
            right_leaves.eq((leaves != 0) & (leaves <= ledger.weight)),
            right_check.eq(packet.arrival.head.arg[:CHECK_WIDTH] == check),
            early.eq(Drop.NONE),
            reason.eq(early),
        ]
        with m.If(~packet.whole | ~fits | ~ledger.found | ~ledger.right_flow):
            m.d.sync += early.eq(Drop.CONFIG)
        with m.Elif(~right_size):
            m.d.sync += early.eq(Drop.LENGTH)
        with m.Elif(~right_leaves | ~right_check):
            m.d.sync += early.eq(Drop.CONFIG)
        with m.If(early == Drop.NONE):
            with m.If(unsound):
                m.d.sync += reason.eq(Drop.CODEC)
            with m.Elif(ledger.closed):
                m.d.sync += reason.eq(Drop.DUPLICATE)
        return reason

    @staticmethod
    def _pass(m, *states):
        """States of a cycle each, up to the last one, which is another's."""
        for state, after in pairwise(states):
            with m.State(state):
                m.next = after
