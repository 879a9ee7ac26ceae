"""States of the receiver, by what it decides on.

Part of `gradnic.hdl.transport.receiver`: `r` is the receiver, `w` what it works on.
"""

from itertools import pairwise

from amaranth.hdl import Cat, Const, Signal

from gradnic.interface.formats import Op
from gradnic.interface.offload import Drop, Subtype

from ..primitive.same import same
from .records import RUN


def take(m, r, w):
    """The next packet, of this node's own ones first; where it goes by its kind."""
    with m.State("REST"):
        m.d.comb += [
            r.own.ready.eq(1),
            r.arrivals.ready.eq(~r.own.valid),
        ]
        arrived = r.arrivals.p.arrival.head
        m.d.sync += [
            w.packet.eq(r.arrivals.p),
            w.is_data.eq(arrived.op != Op.CONTROL),
            w.is_probe.eq((arrived.op == Op.CONTROL) & (arrived.p0[:4] == Subtype.PROBE)),
            w.own.eq(r.own.p),
            w.is_own.eq(r.own.valid),
            w.giving.eq(0),
            w.fresh.eq(r.arrivals.valid & r.arrivals.ready),
        ]
        with m.If(r.own.valid):
            m.d.sync += [
                w.place.chunk.eq(r.own.p.chunk),
                w.place.number.eq(r.own.p.number),
            ]
        with m.Else():
            m.d.sync += [
                *same(w.place, r.arrivals.p, "chunk within number"),
            ]
        with m.If(r.own.valid | r.arrivals.valid):
            m.next = "SORT"
    with m.State("SORT"):
        m.d.sync += w.first.eq(w.place)
        with m.If(w.is_own):
            m.next = "READ"
        with m.Elif(~w.is_data & ~w.is_probe & w.packet.arrival.ready):
            m.d.comb += r.controls.valid.eq(1)
            with m.If(r.controls.ready):
                m.d.sync += r.responses.eq(1)
                m.next = "REST"
        with m.Elif(w.packet.arrival.wrong):
            m.d.sync += [
                r.dropped[Drop.CONFIG].eq(w.packet.arrival.ready),
                r.dropped[Drop.NOT_READY].eq(~w.packet.arrival.ready),
            ]
            m.next = "REST"
        with m.Elif(w.packet.arrival.ready):
            m.next = "READ"
        with m.Elif(~w.is_probe):
            m.d.sync += r.dropped[Drop.NOT_READY].eq(1)
            m.next = "REST"
        with m.Elif(w.packet.arrival.stale):
            m.next = "STOP"
        with m.Else():
            m.d.sync += r.dropped[Drop.NOT_READY].eq(1)
            m.next = "NOT_READY"


def judge(m, r, w):
    """A data packet: what is known of it, what the codec says, and whether it counts."""
    _pass(m, "READ", "CHECK", "COUNT", "TALLY")
    with m.State("TALLY"):
        m.next = "JUDGE"
        with m.If(~w.is_own & w.is_probe):
            m.next = "START"
        with m.Elif(~w.is_own & w.coded):
            m.next = "HEAR"
    with m.State("HEAR"):  # what the codec says of it
        m.d.comb += r.verdicts.ready.eq(1)
        m.d.sync += w.sound.eq(r.verdicts.payload)
        with m.If(r.verdicts.valid):
            m.next = "JUDGE"
    _pass(m, "JUDGE", "JUDGED", "ACT")
    with m.State("ACT"):
        accepted = Signal()
        m.d.comb += accepted.eq(w.is_own | (w.reason == Drop.NONE))
        with m.If(w.room):
            m.next = "REST"
            m.d.sync += [  # done in the next cycle, in which nothing of it has changed
                w.to_destinations.eq(~w.is_own & (~w.coded | w.sound)),
                w.keeps.eq(w.reason == Drop.NONE),
                w.closes.eq(accepted),
                w.to_landings.eq(accepted & ~w.down),
                w.to_results.eq(accepted & (w.down & ~w.is_own if r.with_roots else w.down)),
                w.to_roots.eq(accepted & w.is_own),
            ]
            with m.If(~w.is_own):
                m.d.sync += r.dropped.eq(Cat(w.reason == drop for drop in Drop))


def probe(m, r, w):
    """A PROBE: its range is looked at packet by packet, and what it lacks is weighed."""
    with m.State("START"):
        m.d.comb += w.scan.start.eq(1)
        m.d.sync += w.n_seen.eq(0)
        m.next = "SCAN"
        with m.If(~w.found | ~w.fits | w.too_far | (w.head.elems == 0) | (w.head.elems > RUN)):
            m.d.sync += r.dropped[Drop.CONFIG].eq(1)
            m.next = "REST"
    _pass(m, "SCAN", "SCAN1", "SCAN2", "SCAN3", "SCAN4", "SEEN")
    with m.State("SEEN"):
        m.d.comb += w.scan.packet_valid.eq(1)
        m.d.sync += [w.n_seen.eq(w.n_seen + 1), w.place.eq(w.walk.following)]
        m.next = "SCAN"
        with m.If(w.ends_range):
            m.next = "COUNTED"
    _pass(m, "COUNTED", "SUM")
    with m.State("SUM"):
        m.d.comb += w.scan.multiply.eq(1)
        m.d.sync += [w.place.eq(w.first), w.n_seen.eq(0)]
        m.next = "WEIGH"
    with m.State("WEIGH"):
        with m.If(~w.scan.busy):
            m.next = "WEIGHED"
    _pass(m, "WEIGHED", "DECIDE")
    with m.State("DECIDE"):
        m.next = "BITMAP"
        with m.If(~w.scan.missing):
            m.next = "STOP"
        with m.Elif(~w.head.ph & w.allows):
            m.d.comb += w.allowances.spend.eq(1)
            m.d.sync += w.giving.eq(1)
            m.next = "GIVE"


def give_up(m, r, w):
    """What a PROBE found missing is closed, one packet after the other."""
    # close what is missing, one packet after the other
    _pass(m, "GIVE", "GIVE1", "GIVE2", "GIVE3", "GIVE4", "GIVE5", "GIVE6", "GIVEN")
    with m.State("GIVEN"):
        with m.If(w.room):
            m.d.sync += [w.closes.eq(~w.closed), r.given_up.eq(~w.closed)]
            m.next = "GONE"
    with m.State("GONE"):
        m.d.sync += [w.n_seen.eq(w.n_seen + 1), w.place.eq(w.walk.following)]
        m.next = "GIVE"
        with m.If(w.ends_range):
            m.next = "STOP"


def answer(m, r, w):
    """STOP, NOT_READY or BITMAP."""
    with m.State("STOP"):
        m.d.comb += [r.replies.valid.eq(w.divided), w.to.p0.eq(Subtype.STOP)]
        with m.If(r.replies.ready & w.divided):
            m.d.sync += r.answered.eq(1)
            m.next = "REST"
    with m.State("NOT_READY"):
        m.d.comb += [r.replies.valid.eq(w.divided), w.to.p0.eq(Subtype.NOT_READY)]
        m.d.comb += w.to.arg.eq(r.round.last_gen)
        with m.If(r.replies.ready & w.divided):
            m.next = "REST"
    with m.State("BITMAP"):
        m.d.comb += [
            r.replies.valid.eq(w.divided),
            w.to.p0.eq(Subtype.BITMAP),
            w.to.seq.eq(Cat(Const(0, 3), w.head.seq[3:])),
            w.to.elems.eq(w.n_bits),
            w.to.length.eq((w.n_bits + 7) >> 3),
            w.to.body.eq(w.scan.body),
        ]
        with m.If(r.replies.ready & w.divided):
            m.d.sync += r.answered.eq(1)
            m.next = "REST"


def _pass(m, *states):
    """States of a cycle each, up to the last one, which is another's."""
    for state, after in pairwise(states):
        with m.State(state):
            m.next = after
