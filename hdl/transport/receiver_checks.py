"""What the receiver knows of a packet before it decides: where it would go, what speaks against it.

Part of `gradnic.hdl.transport.receiver`: `r` is the receiver.
"""

from itertools import pairwise

from amaranth.hdl import Array, Mux, Signal
from amaranth.utils import ceil_log2

from gradnic.interface.formats import Op
from gradnic.interface.offload import Drop

from ..axi.bursts import LENGTH_WIDTH, Range
from ..primitive.names import signals
from ..primitive.same import same
from ..reduction.codec import index_octets, octets_of
from .mark_share import MarkShare
from .packet_walk import Place
from .probe_scan import ProbeScan
from .records import BODY, BYTES_WIDTH, CHECK_WIDTH, ELEMS_WIDTH, RUN

CE = 3  # of the ECN bits


def target_of(m, r, offset, elems, down, packed):
    """Where `elems` values at `offset` of the tensor go, as beats of their region: 2 cycles
    later, and a cycle after the ledger knows the sender's rank. packed : they are indices, and
    stay so in the first half of their place.
    """
    low = ceil_log2(r.n_bytes)
    codec = r.round.codec
    beats, area = (Signal(LENGTH_WIDTH, name=n, reset_less=True) for n in ("beats", "place_of"))
    size = Signal(ELEMS_WIDTH, reset_less=True)
    target = Signal(Range(), reset_less=True)
    octets = Mux(packed, index_octets(codec, size, r.bits), octets_of(codec, size))
    # rank k's landings start behind those of the ranks before it
    areas = [Signal(LENGTH_WIDTH, name=f"area{k}") for k in range(r.n_ranks + 1)]
    for one, after in pairwise(areas[:-1]):
        m.d.sync += after.eq(one + r.area)
    m.d.sync += [
        size.eq(elems),
        beats.eq(octets_of(codec, offset << 4) >> low),
        area.eq(Mux(down, 0, Array(areas)[r.ledger.rank])),  # from the start of the region
        target.offset.eq(beats + area),
        target.n_beats.eq((octets + (r.n_bytes - 1)) >> low),
    ]
    return target


def reason_of(m, r, packet, fits, leaves, unsound):
    """`Drop.NONE`, or why a data packet may change nothing, once the ledger has spoken."""
    ledger, elems = r.ledger, packet.arrival.head.elems
    early, reason = signals("early reason", Drop)
    right_size, right_leaves, right_check = signals("right_size right_leaves right_check")
    check = Mux(r.round.codec.thc, ledger.check, 0)
    m.d.sync += [
        right_size.eq(elems == r.walk.elems),
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


def look_at_range(m, r, w):
    """What a PROBE's range lacks, one packet after the other, and whether that may be given up."""
    m.submodules.scan = w.scan = ProbeScan(r.bits)
    w.n_seen = Signal(range(RUN + 1))
    w.first = Signal(Place, reset_less=True)
    allowed = Signal(BYTES_WIDTH, reset_less=True)
    w.allows = Signal()
    by_share = r.round.at_share
    w.ends_range = Signal()
    last_seen = Signal.like(w.n_seen, reset_less=True)  # of a range that is not too long
    m.d.comb += [
        w.allowances.neighbor.eq(w.head.neighbor),
        w.allowances.comes.eq(by_share & w.to_landings),
        w.allowances.elems.eq(w.head.elems),
        w.allowances.leaves.eq(w.weight),
        w.allowances.thc.eq(r.round.codec.thc),
        w.allowances.clear.eq(r.clear),
        w.scan.first_bit.eq(w.head.seq[:3]),
        w.scan.closed.eq(w.closed),
        w.scan.elems.eq(w.walk.elems),
        w.scan.leaves.eq(w.weight),
        w.scan.thc.eq(r.round.codec.thc),
        *(part.bits.eq(r.round.codec.bits) for part in (w.scan, w.allowances) if r.bits > 4),
    ]
    m.d.sync += [
        allowed.eq(w.allowances.bytes),
        w.allows.eq(Mux(by_share, allowed == 0, w.scan.lost <= allowed)),
        w.allowances.left.eq(Mux(by_share, 0, allowed - w.scan.lost)),
        r.spent_valid.eq(w.allowances.spend),
        r.spent.eq(w.scan.lost),
        last_seen.eq(w.head.elems - 1),
        w.ends_range.eq(w.n_seen == last_seen),
    ]


def answers(m, r, w):
    """What all answers say, but for their kind; and what goes to the sender as it came."""
    w.n_bits = Signal(range(8 * BODY + 1), reset_less=True)  # of a BITMAP
    m.d.sync += w.n_bits.eq(w.head.elems[:7] + w.head.seq[:3])
    w.fresh = Signal()  # an arrival was taken in the last cycle
    m.d.sync += w.fresh.eq(0)
    m.submodules.marked = marked = MarkShare()
    w.divided = Signal()  # a cycle late: it is known long before it is sent
    m.d.sync += w.divided.eq(marked.known)
    for name in ("ph", "gen", "slot", "tensor", "arg", "lc", "path"):
        m.d.comb += w.to[name].eq(w.head[name])
    m.d.comb += [
        w.to.op.eq(Op.CONTROL),
        w.to.imp.eq(1),
        w.to.tos.eq(r.round.tos),
        w.to.p1.eq(marked.share),
        w.to.ecn.eq(w.packet.arrival.ready & (w.head.tos[:2] == CE)),
        marked.neighbor.eq(w.head.neighbor),
        marked.packet.eq(w.fresh),
        marked.marked.eq(w.head.tos[:2] == CE),
        marked.sent.eq(r.replies.valid & r.replies.ready),
        *same(w.to, w.head, "neighbor seq elems"),
    ]
    for name in ("ph", "neighbor", "seq", "elems", "arg", "body"):
        m.d.comb += r.controls.p[name].eq(w.head[name])
    m.d.comb += [
        r.controls.p.subtype.eq(w.head.p0[:4]),
        r.controls.p.share.eq(w.head.p1),
    ]
