"""Proofs of the packet FIFO: a frame leaves whole or vanishes, as length and drop bit say."""

import pytest
from amaranth.hdl import Assert, Cover, Mux, Signal, Value
from amaranth.lib import data
from gradnic.hdl.frame import packet_fifo
from gradnic.hdl.frame.packet_fifo import PacketFIFO
from gradnic.hdl.stream.beats import Beat, FrameBeat
from gradnic.sim.proof import formal, lemmas

TINY = data.StructLayout({"data": 2, "last": 1, "drop": 1})


class PacketProof(formal.Harness):
    """Rules 11 to 13: which beats are inside follows from the input alone, and those come out.

    The harness reads the frames at the input: beats of a frame are inside, but may not leave, until
    its last beat says what becomes of it, or until it is too long. The solver picks one beat; it
    vanishes with its frame, or comes out in its place. `n_stored` counts the beats inside,
    `n_whole` those of whole frames.
    """

    keep_by_beat = False

    def __init__(self, component, *, where=False, offer_within=None, **options):
        super().__init__(component, **options)
        self.where, self.offer_within = where, offer_within
        self.pick = Signal()
        self.free.append(self.pick)

    def describe(self, m):
        dut, i, o = self.component, self.inputs["i"], self.outputs["o"]
        take, give = i.valid & i.ready, o.valid & o.ready
        capacity = dut.ring.n_slots + 8
        n_stored, n_whole = Signal(range(capacity + 1)), Signal(range(capacity + 1))
        ahead = Signal(range(capacity + 1))
        length = Signal(range(dut.depth + 1))  # beats of the frame so far
        is_cut, tracking = Signal(), Signal()  # the rest of this frame is swallowed
        beat = Signal(len(Value.cast(i.p)), reset_less=True)

        too_long = ~is_cut & ~i.p.last & (length == dut.depth - 1)
        dropped = ~is_cut & i.p.last & i.p[dut.drop_field]
        gone = take & (too_long | dropped)
        enters = take & ~is_cut & ~too_long & ~dropped
        picking = enters & self.pick & ~tracking
        m.d.sync += [
            n_stored.eq(Mux(gone, n_whole, n_stored + enters) - give),
            n_whole.eq(Mux(enters & i.p.last, n_stored + 1, n_whole) - give),
        ]
        with m.If(take):
            m.d.sync += [
                length.eq(Mux(i.p.last | is_cut | too_long, 0, length + 1)),
                is_cut.eq(~i.p.last & (is_cut | too_long)),
            ]
        with m.If(picking):
            m.d.sync += [tracking.eq(1), beat.eq(i.p), ahead.eq(n_stored - give)]
        with m.Elif(tracking & gone & (ahead >= n_whole)):
            m.d.sync += tracking.eq(0)
        with m.Elif(tracking & give):
            m.d.sync += [tracking.eq(ahead != 0), ahead.eq(ahead - 1)]
        was_cut = Signal()
        m.d.sync += was_cut.eq(take & too_long)
        arrived = tracking & o.valid & (ahead == 0)
        m.d.comb += [
            Assert(~o.valid | (n_whole != 0), "a beat is offered that may not leave"),
            Assert(n_whole <= n_stored),
            Assert(n_stored <= capacity, "more beats inside than fit"),
            Assert(~tracking | (ahead < n_stored), "the picked beat is lost"),
            Assert(~arrived | (Value.cast(o.p) == beat), "the picked beat comes out changed"),
            Assert(dut.overflow == was_cut, "overflow is wrong"),
            Cover(arrived & o.ready, "the picked beat comes out"),
            Cover(take & dropped & (n_stored > n_whole), "a frame of two beats is dropped"),
        ]
        if formal.has_keep(o.p):
            view = data.View(i.p.shape(), beat)
            m.d.comb += [
                Assert(~tracking | formal.keep_rule(view)),
                Assert(~arrived | formal.keep_rule(o.p), "o: keep has holes, is empty or is short"),
            ]
        if dut.depth <= 8:
            m.d.comb += [
                Cover(was_cut, "a frame is too long"),
                Cover(n_stored == dut.depth, "the longest frame is inside"),
            ]
        if self.offer_within is not None:
            limit = self.offer_within
            waited = Signal(range(limit + 2))
            m.d.sync += waited.eq(Mux((n_whole != 0) & ~o.valid, waited + (waited <= limit), 0))
            m.d.comb += Assert(waited <= limit, f"no offer within {limit} cycles")
        if self.where:
            lemmas.ring_state(
                m,
                dut.ring,
                enters=picking,
                count=n_stored,
                committed=n_whole,
                ahead=ahead,
                tracking=tracking,
                beat=beat,
            )
            m.d.comb += [
                Assert(dut.swallowing == is_cut),
                Assert(is_cut | (dut.n_taken == length)),
                Assert(is_cut | (dut.at_limit == (length == dut.depth - 1))),
                Assert(is_cut | (length < dut.depth)),
                Assert(Mux(is_cut, n_stored == n_whole, n_stored == n_whole + length)),
            ]


@pytest.mark.parametrize(
    ("shape", "depth", "drop"),
    [(TINY, 3, "drop"), (TINY, 4, "drop"), (FrameBeat(64, meta_width=16), 512, "bad")],
    ids=["3 beats", "4 beats", "512 beats of 594 bits"],
)
def test_packet_fifo_for_all_time(shape, depth, drop):
    """Rules 1 to 4, 9, 11, 12 and 13."""
    proof = PacketProof(PacketFIFO(shape, depth, drop=drop), where=True)
    formal.prove(proof, k=1, cover_depth=16, timeout=900)


def test_whole_frames_are_offered_soon():
    """Rule 8: within 6 cycles of being whole, when no other beat is at the output.

    And the input never waits for itself, not even for a frame that fills the store or is too long.
    """
    limits = {"offer_within": 6, "ready_within": {"i": 6}}
    proof = PacketProof(PacketFIFO(TINY, 4), where=True, **limits)
    formal.prove(proof, k=8, cover_depth=16)
    with pytest.raises(formal.ProofError, match="fails: no offer within 5 cycles"):
        formal.check(PacketProof(PacketFIFO(TINY, 4), offer_within=5), depth=12, cover_depth=16)


def test_frames_are_no_longer_than_the_limit():
    """Rule 6, bounded: all traces of 14 cycles."""
    formal.check_outputs(PacketFIFO(TINY, 3), max_beats={"o": 3}, depth=14)


class LossyProof(formal.Harness):
    """Of a lossy queue: frames come out whole, in order, but for those dropped or said to be lost.

    ``overflow`` says so the cycle after a frame's last beat. The solver picks one beat; it vanishes
    with its frame, or comes out behind the beats of the frames that stayed before.
    """

    keep_by_beat = False

    def __init__(self, component, *, where=False):
        super().__init__(component)
        self.where, self.pick = where, Signal()
        self.free.append(self.pick)

    def describe(self, m):
        dut, i, o = self.component, self.inputs["i"], self.outputs["o"]
        give, size = o.valid & o.ready, 16
        length, n_whole, ahead = Signal(size), Signal(size), Signal(size)
        ended, was_dropped, n_ended = Signal(), Signal(), Signal(size)  # the frame that just ended
        picked, of_ended, tracking = Signal(), Signal(), Signal()
        place = Signal(size)  # of the picked beat in its frame
        beat = Signal(len(Value.cast(i.p)), reset_less=True)
        picking = i.valid & self.pick & ~picked & ~of_ended & ~tracking
        last, stays = i.valid & i.p.last, Signal()
        m.d.comb += stays.eq(ended & ~was_dropped & ~dut.overflow)
        m.d.sync += [
            ended.eq(last),
            was_dropped.eq(i.p.drop),
            n_ended.eq(length + 1),
            n_whole.eq(n_whole + Mux(stays, n_ended, 0) - give),
            of_ended.eq(last & (picked | picking)),
            picked.eq((picked | picking) & ~last),
        ]
        with m.If(i.valid):
            m.d.sync += length.eq(Mux(i.p.last, 0, length + 1))
        with m.If(picking):
            m.d.sync += [beat.eq(i.p), place.eq(length)]
        with m.If(of_ended):
            m.d.sync += [tracking.eq(stays), ahead.eq(n_whole + place - give)]
        with m.Elif(tracking & give):
            m.d.sync += [tracking.eq(ahead != 0), ahead.eq(ahead - 1)]
        arrived = tracking & o.valid & (ahead == 0)
        m.d.comb += [
            Assert(i.ready, "it waits"),
            Assert(~o.valid | (n_whole != 0), "a beat is offered that may not leave"),
            Assert(~dut.overflow | (ended & ~was_dropped), "what was lost has not ended"),
            Assert(~arrived | (Value.cast(o.p) == beat), "the picked beat comes out changed"),
            Cover(arrived & o.ready, "the picked beat comes out"),
            Cover(ended & dut.overflow & (n_ended == 2), "a frame of two beats is lost"),
        ]
        if not self.where:
            return
        ring, prefetch = dut.ring, dut.ring.prefetch
        whole, unsure, found = Signal(size), Signal.like(ring.head), Signal()
        held = picked & dut.inside  # the picked beat is in the ring, and may not leave yet
        m.d.comb += [
            whole.eq(n_whole + Mux(stays, n_ended, 0)),  # the ring knew it a cycle before
            unsure.eq(ring.head - ring.mark),
            found.eq(tracking | (of_ended & stays) | held),
            Assert(~dut.inside | (~dut.swallowing & ~dut.owed & (unsure == length))),
            Assert(dut.inside | dut.owed | (unsure == 0)),
            Assert(dut.inside | dut.swallowing | (length == 0)),
            Assert(~picked | dut.inside | dut.swallowing),
            Assert(~held | (place < length)),
            Assert(~(of_ended & stays) | (place < n_ended)),
            Assert(~of_ended | ended),
            Assert(~tracking | (ahead < n_whole)),
            Assert(picked + of_ended + tracking <= 1),
            Assert(
                n_whole
                == prefetch.valids[0] + lemmas.stored(prefetch) + ring.issued[1] + ring.whole
            ),
        ]
        lemmas.ring_state(
            m,
            ring,
            enters=picking,
            count=(whole + unsure)[:size],
            committed=whole,
            ahead=Mux(tracking, ahead, Mux(of_ended, n_whole, whole) + place)[:size],
            tracking=found,
            beat=beat,
        )


def test_lossy_frames_come_out_whole():
    """For all time."""
    formal.prove(LossyProof(PacketFIFO(TINY, 4, lossy=True), where=True), k=1, cover_depth=18)


class CutProof(formal.Harness):
    """Of a queue that cuts through: what goes into its ring, which is proven beside other queues.

    That is the beats of each frame up to the first without room, and where there was one behind
    others, an end.
    """

    def describe(self, m):
        dut, i = self.component, self.inputs["i"]
        ring, stores = dut.ring.i, dut.stores
        ends, loses = ring.valid & ring.ready & dut.owed, i.valid & ~stores
        first = Signal(init=1)  # the next beat is a frame's first
        lost, begun, missed = Signal(), Signal(), Signal()  # begun : the ring lacks a frame's end
        with m.If(i.valid):
            m.d.sync += [first.eq(i.p.last), lost.eq(~i.p.last & (lost | loses))]
        with m.If(ring.valid & ring.ready):
            m.d.sync += begun.eq(~ring.p.last)
        m.d.sync += missed.eq(i.valid & i.p.last & (lost | loses))
        m.d.comb += [
            Assert(i.ready, "it waits"),
            Assert(stores == (ring.valid & ring.ready & ~dut.owed)),
            Assert(~stores | (i.valid & (Value.cast(ring.p) == Value.cast(i.p)))),
            Assert(~stores | ~lost, "a beat is stored behind a lost one"),
            Assert(~stores | (begun != first), "a frame is stored in another"),
            Assert(~ends | (begun & ring.p.last), "an end without a beginning"),
            Assert(~loses | lost | dut.owed | ~ring.ready, "a beat is lost though there is room"),
            Assert(begun == (dut.inside | dut.owed), "a beginning without an end"),
            Assert(dut.inside == (~first & ~lost)),
            Assert(dut.swallowing == lost),
            Assert(~(dut.inside & dut.owed)),
            Assert(dut.overflow == missed, "overflow is wrong"),
            Cover(ends & lost, "a frame is cut"),
            Cover(missed & ~begun, "a frame is lost whole, or ended"),
        ]


def cutting(module):
    return CutProof(module.PacketFIFO(Beat(2), 4, drop=None, lossy=True, cut_through=True))


def test_frames_are_cut_where_there_is_no_room():
    """For all time."""
    formal.prove(cutting(packet_fifo), k=2, cover_depth=24)


@pytest.mark.parametrize(
    ("right", "wrong"),
    [
        ("ring.i.p.last.eq(last | owed)", "ring.i.p.last.eq(last)"),
        ("& ~losing & ~owed)", "& ~losing)"),
        ("inside.eq(~last)", "inside.eq(1)"),
    ],
)
def test_seeded_cut_is_seen(right, wrong):
    """The same of wrong ones."""
    formal.refute(cutting(formal.twin(packet_fifo, right, wrong)), depth=20)


@pytest.mark.parametrize(
    ("right", "wrong"),
    [
        ("ring.discard.eq(owed | (last & drop))", "ring.discard.eq(last & drop)"),
        ("& ~losing & ~owed)", "& ~losing)"),
        ("losing.eq(~last & (losing | ~stores))", "losing.eq(0)"),
    ],
)
def test_seeded_loss_is_seen(right, wrong):
    """The same of wrong ones."""
    twin = formal.twin(packet_fifo, right, wrong)
    formal.refute(LossyProof(twin.PacketFIFO(TINY, 4, lossy=True)), depth=20)


BUGS = [
    ("(last & drop) | self.swallowing | too_long", "self.swallowing | too_long"),
    ("last & ~drop & ~self.swallowing", "last & ~drop"),
    ("self.at_limit & ~last & ~self.swallowing", "self.at_limit & ~last"),
    ("self.at_limit.eq(self.n_taken == self.depth - 2)", "self.at_limit.eq(0)"),
]


@pytest.mark.parametrize("bug", BUGS, ids=lambda bug: bug[1])
def test_seeded_bug_is_seen(bug):
    twin = formal.twin(packet_fifo, *bug)
    formal.refute(PacketProof(twin.PacketFIFO(TINY, 3)), depth=16)


def test_seeded_hang_is_seen():
    """A store full of one frame must not wait for the beat that shows it to be too long."""
    twin = formal.twin(packet_fifo, "| self.swallowing | too_long", "| self.swallowing")
    failed = formal.refute(PacketProof(twin.PacketFIFO(TINY, 4), ready_within={"i": 6}), depth=16)
    assert failed == "i: stalled for more than 6 cycles"
