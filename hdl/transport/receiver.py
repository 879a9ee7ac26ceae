"""Tracks the packets of a round: what is here, what may be given up, what is to be sent again.

Sources: DLCP (arXiv 2008.08445) and MLT (NSDI 2024): bitmaps, STOP at (1 - p) of the bytes, PROBE.
Ours: one allowance for all that a neighbor sends up, weighed by the leaves that a packet stands
for, so that no chunk is too small for a share of it; giving up at a PROBE only.

Part of `gradnic.hdl.offload.card`, whose golden model it follows.
"""

from types import SimpleNamespace

from amaranth.hdl import Module, Mux, Signal
from amaranth.lib import stream, wiring
from amaranth.lib.wiring import In, Out
from amaranth.utils import ceil_log2

from gradnic.interface.formats import Op
from gradnic.interface.offload import Drop
from gradnic.interface.params import check_range

from ..axi.bursts import LENGTH_WIDTH, Range
from ..primitive.names import signals
from ..primitive.same import same
from ..primitive.target import one_hot
from .allowance_walk import LAST_WIDTH, SHARE_WIDTH, AllowanceWalk
from .allowances import Allowances
from .ledger import CLEAR_WIDTH, Ledger
from .locator import Located
from .packet_walk import PacketWalk, Place
from .receiver_checks import answers, look_at_range, reason_of
from .receiver_queues import made_queues, write
from .receiver_states import answer, give_up, judge, probe, take
from .records import (
    BYTES_WIDTH,
    CHUNK_WIDTH,
    LEAVES_WIDTH,
    NUMBER_WIDTH,
    Allowance,
    Answer,
    CheckWrite,
    Control,
    Destination,
    GivenUp,
    OwnPacket,
    PacketHead,
    PathMark,
    Round,
)


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
    counts_share : bool
        True: allowances are counted here, from the table of senders, while it clears.
    bits : int
        4, or 8 for indices of 2 to 8 bits.

    Members
    -------
    round : In(Round)
    clear, clearing : In(1), Out(1)
        A strobe: forget packets and chunks below ``n_clear``, which takes a cycle for each.
    n_clear : In(15)
        1 to ``n_packets``, or ``n_chunks`` if those are more: no number above is used.
    allowance : In(Allowance)
        Unless allowances are counted here.
    share, last_elems : In(16), In(29)
        Share that a neighbor may lose, in 1/65536, and elements of the last chunk; if they are.
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
    destinations : Out(stream.Signature(Destination))
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
    replies : Out(stream.Signature(PacketHead))
    path_mark : Out(PathMark)
        Of packets that went to the sender.
    ask, answer : In(number of a packet), Out(Answer(n_ranks))
        What is known of a packet, 2 cycles later.
    dropped : Out(len(Drop))
        Bit k pulses for a packet with `gradnic.interface.offload.Drop` k; bit 0 for one that is
        accepted.
    answered, responses : Out(1)
        One pulse per PROBE that STOP or BITMAP answered; per packet that went to the sender.
    given_up, given_up_packet : Out(1), Out({neighbor, number})
        One cycle per packet that is given up, and which it is.
    spent_valid, spent : Out(1), Out(40)
        An allowance is spent, and how much of it.
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
        counts_share: bool = False,
        bits: int = 4,
    ) -> None:
        check_range("n_ranks", n_ranks, 1, 15)
        check_range("n_chunks", n_chunks, 2, 2**CHUNK_WIDTH)
        check_range("n_packets", n_packets, 2, 16384)
        self.n_bytes, self.n_ranks = n_bytes, n_ranks
        self.n_chunks, self.n_packets = n_chunks, n_packets
        self.n_tables, self.with_roots, self.counts_share = n_tables, roots, counts_share
        self.bits = bits
        allowed = {"allowance": In(Allowance)}
        if counts_share:
            allowed = {"share": In(SHARE_WIDTH), "last_elems": In(LAST_WIDTH)}
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
                **allowed,
                "check": In(CheckWrite),
                "place_en": In(1),
                "place_addr": In(ceil_log2(n_tables * n_chunks)),
                "place_data": In(self.places),
                **({"table": In(range(n_tables))} if n_tables > 1 else {}),
                "arrivals": In(stream.Signature(Located)),
                "verdicts": In(stream.Signature(1)),
                "own": In(stream.Signature(OwnPacket)),
                "destinations": Out(stream.Signature(Destination)),
                "landings": Out(stream.Signature(Range())),
                "results": Out(stream.Signature(Range())),
                **(written if roots else {"sources": Out(stream.Signature(1))}),
                "area": In(LENGTH_WIDTH),
                "landed": In(1),
                "stored": In(1),
                "added": Out(chunk),
                "finals": Out(chunk),
                "controls": Out(stream.Signature(Control)),
                "replies": Out(stream.Signature(PacketHead)),
                "path_mark": Out(PathMark),
                "ask": In(ceil_log2(n_packets)),
                "answer": Out(Answer(n_ranks)),
                "dropped": Out(len(Drop)),
                "answered": Out(1),
                "responses": Out(1),
                "given_up": Out(1),
                "given_up_packet": Out(GivenUp),
                "spent_valid": Out(1),
                "spent": Out(BYTES_WIDTH),
            }
        )

    def elaborate(self, platform):
        m = Module()
        m.submodules.allowances = allowances = Allowances(self.bits)
        m.submodules.walk = self.walk = PacketWalk()
        queues = made_queues(m, self)
        w = self._packet(m)
        w.room, w.allowances = queues.room, allowances
        self._look_up(m, w)
        write(m, self, w, queues)
        self._check(m, w)
        self._shares(m, allowances, self.ledger)
        look_at_range(m, self, w)
        answers(m, self, w)
        with m.FSM() as fsm:
            for states in (take, judge, probe, give_up, answer):
                states(m, self, w)
        one_hot(fsm)
        return m

    def _packet(self, m):
        """The packet that is decided on, its place, and what is told of it."""
        cut, walk = self.round.geometry, self.walk
        packet = Signal(Located, reset_less=True)
        own = Signal(OwnPacket, reset_less=True)
        is_own = Signal(reset_less=True)
        place = Signal(Place, reset_less=True)
        head = packet.arrival.head
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
            self.responses.eq(0),
            self.path_mark.valid.eq(self.responses & head.ecn),
            self.path_mark.path.eq(head.path),
            self.given_up_packet.neighbor.eq(head.neighbor),
            self.given_up_packet.number.eq(place.number),
        ]
        return SimpleNamespace(
            packet=packet, own=own, is_own=is_own, place=place, head=head, n_here=n_here,
            to=self.replies.p, walk=walk, coded=self.round.codec.coded,
            leaves=head.arg[32 - LEAVES_WIDTH :],
        )  # fmt: skip

    def _look_up(self, m, w):
        """What the ledger is asked of the packet, and told as it closes."""
        down, closes, packed = signals("down closes packed")
        # in the cycle of `closes`
        to_destinations, to_landings, to_results, to_roots = (
            Signal(name=f"to_{name}") for name in ("destinations", "landings", "results", "roots")
        )
        keeps = Signal(reset_less=True)
        giving = Signal()  # the packet did not come, and is closed all the same
        m.submodules.ledger = ledger = self.ledger
        head, is_own = w.head, w.is_own
        m.d.comb += [
            down.eq(is_own | head.ph),
            packed.eq(~is_own & (head.op == Op.THC_IDX)),
            *same(ledger, self, "clear n_clear place_en place_addr place_data ask"),
            *([ledger.table.eq(self.table)] if self.n_tables > 1 else []),
            self.answer.eq(ledger.answer),
            ledger.check_write.eq(self.check),
            ledger.chunk.eq(w.place.chunk),
            ledger.number.eq(w.place.number),
            ledger.neighbor.eq(head.neighbor),
            ledger.flow.eq(head.slot),
            ledger.down.eq(down),
            ledger.own.eq(is_own),
            ledger.n_here.eq(w.n_here),
            ledger.given_up.eq(giving),
            ledger.packed.eq(packed),
            ledger.leaves.eq(Mux(is_own, w.own.leaves, w.leaves)),
            ledger.closes.eq(closes),
        ]
        w.is_data, w.is_probe = signals("is_data is_probe", reset_less=True)
        w.closed, w.found, w.weight = ledger.closed, ledger.found, ledger.weight
        w.down, w.closes, w.packed, w.keeps, w.giving = down, closes, packed, keeps, giving
        w.to_destinations, w.to_landings = to_destinations, to_landings
        w.to_results, w.to_roots = to_results, to_roots

    def _check(self, m, w):
        """Why the packet may change nothing."""
        fits, too_far, sound = signals("fits too_far sound")
        end = Signal(NUMBER_WIDTH + 1, reset_less=True)  # of a PROBE's range
        cut, place, n_here = self.round.geometry, w.place, w.n_here
        m.d.sync += [
            fits.eq(
                (place.within < n_here)
                & (place.chunk <= cut.last_chunk)
                & ~(w.packet.chunk >> CHUNK_WIDTH).any()  # bits that `place` has no room for
            ),
            end.eq(place.within + w.head.elems),
            too_far.eq(end > n_here),
        ]
        w.fits, w.too_far, w.sound = fits, too_far, sound
        w.reason = reason_of(m, self, w.packet, fits, w.leaves, w.coded & ~sound)

    def _shares(self, m, allowances, ledger):
        """Who says what a neighbor may lose."""
        if not self.counts_share:
            m.d.comb += [
                self.clearing.eq(ledger.clearing),
                allowances.write.eq(self.allowance),
            ]
            return
        m.submodules.shares = walk = AllowanceWalk(self.n_ranks, self.bits)
        m.d.comb += [
            walk.start.eq(self.clear),
            walk.share.eq(self.share),
            walk.geometry.eq(self.round.geometry),
            walk.last_elems.eq(self.last_elems),
            walk.thc.eq(self.round.codec.thc),
            walk.at_share.eq(self.round.at_share),
            *([walk.bits.eq(self.round.codec.bits)] if self.bits > 4 else []),
            walk.places.eq(ledger.senders),
            ledger.survey.eq(walk.busy),
            ledger.survey_chunk.eq(walk.chunk),
            allowances.write.eq(walk.write),
            self.clearing.eq(ledger.clearing | walk.busy),
        ]
