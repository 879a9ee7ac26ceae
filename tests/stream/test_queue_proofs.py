"""Proofs of the queues at real width: each beat leaves once, unchanged, in order, for all time.

Each lemma says where in the circuit the picked beat stands (`formal.Conservation`); the seeded bugs
at the end must all be seen by the same harnesses, at small sizes and without the lemmas.
"""

import itertools
from functools import partial

import pytest
from amaranth.hdl import Module, Signal
from amaranth.lib import stream, wiring
from amaranth.lib.wiring import In, Out
from gradnic.hdl.stream import block_fifo as ring
from gradnic.hdl.stream import credit_queue, fifo, pair_queue
from gradnic.hdl.stream import slice as streams
from gradnic.hdl.stream.beats import FrameBeat
from gradnic.hdl.stream.block_fifo import BlockFIFO
from gradnic.hdl.stream.credit_queue import CreditQueue
from gradnic.hdl.stream.delays import delayed_flag
from gradnic.hdl.stream.fifo import FIFO
from gradnic.hdl.stream.pair_queue import PairQueue
from gradnic.hdl.stream.slice import Slice
from gradnic.sim.proof import formal, lemmas

WIDE = FrameBeat(64, meta_width=16)  # 594 bits
NARROW = FrameBeat(2)


class Guarded(wiring.Component):
    """A queue that is never full, behind a user who lets in as many beats as it holds."""

    def __init__(self, queue, depth):
        self.queue, self.depth = queue, depth
        self.count = Signal(range(depth + 1))
        beats = stream.Signature(queue.o.p.shape())
        super().__init__({"i": In(beats), "o": Out(beats)})

    def elaborate(self, platform):
        m = Module()
        m.submodules.queue = queue = self.queue
        wiring.connect(m, queue.o, wiring.flipped(self.o))
        enters = self.i.valid & self.i.ready
        m.d.comb += [
            self.i.ready.eq(self.count != self.depth),
            queue.i.valid.eq(enters),
            queue.i.p.eq(self.i.p),
        ]
        m.d.sync += self.count.eq(self.count + enters - (self.o.valid & self.o.ready))
        return m


class Taker(wiring.Component):
    """Takes what is in a `CreditQueue` when `may` says so, and counts for one that never fills."""

    def __init__(self, queue):
        self.queue = queue
        self.count = Signal(range(queue.depth + 1))
        beats, taken = (
            stream.Signature(queue.i.p.shape(), always_ready=ready) for ready in (False, True)
        )
        super().__init__({"i": In(beats), "may": In(1), "o": Out(taken)})

    def elaborate(self, platform):
        m = Module()
        m.submodules.queue = queue = self.queue
        room, some = self.count != queue.depth, self.count != 0
        if not queue.never_full:
            room, some = queue.i.ready, queue.available
        m.d.comb += [
            self.i.ready.eq(room),
            queue.i.valid.eq(self.i.valid & room),
            queue.i.p.eq(self.i.p),
            queue.take.eq(self.may & some),
            self.o.valid.eq(delayed_flag(m, queue.take, queue.latency)),
            self.o.p.eq(queue.word),
        ]
        m.d.sync += self.count.eq(self.count + queue.i.valid - queue.take)
        return m


def taker(depth):
    return lambda shape: Taker(CreditQueue(shape, depth, never_full=True))


QUEUES = {  # name: (component, beats that fit, lemmas)
    "slice": (lambda shape: Slice(shape), 2, lemmas.slice_lemmas),
    "held-slice": (lambda shape: Slice(shape, holds=True), 2, lemmas.slice_lemmas),
    "half-slice": (lambda shape: Slice(shape, half_rate=True), 1, lemmas.half_slice_lemmas),
    "half-fifo": (lambda shape: FIFO(shape, 4, half_rate=True), 5, lemmas.fifo_lemmas),
    "bypass": (lambda shape: FIFO(shape, 4, bypass=True), 5, lemmas.fifo_lemmas),
    "unregistered": (lambda shape: FIFO(shape, 4, registered=False), 4, lemmas.fifo_lemmas),
    "pair4": (lambda shape: Guarded(PairQueue(shape, 4), 4), 4, lemmas.pair_lemmas),
    "pair16": (lambda shape: Guarded(PairQueue(shape, 16), 16), 16, lemmas.pair_lemmas),
    "pair31": (lambda shape: Guarded(PairQueue(shape, 31), 31), 31, lemmas.pair_lemmas),
    "pair64": (lambda shape: Guarded(PairQueue(shape, 64), 64), 64, lemmas.pair_lemmas),
    "credit4": (taker(4), 5, lemmas.credit_lemmas),
    "credit16": (taker(16), 17, lemmas.credit_lemmas),
    "credit64": (taker(64), 65, lemmas.credit_lemmas),
    "fifo2": (lambda shape: FIFO(shape, 2), 3, lemmas.fifo_lemmas),
    "fifo5": (lambda shape: FIFO(shape, 5), 6, lemmas.fifo_lemmas),
    "fifo-stops": (lambda shape: FIFO(shape, 8, stops=True), 9, lemmas.fifo_lemmas),
    "fifo16": (lambda shape: FIFO(shape, 16), 17, lemmas.fifo_lemmas),
    "watched": (lambda shape: FIFO(shape, 5, watched=True), 6, lemmas.fifo_lemmas),
    "block4": (lambda shape: BlockFIFO(shape, 4), 12, lemmas.block_lemmas),
    "stops": (lambda shape: BlockFIFO(shape, 4, stops=True), 12, lemmas.block_lemmas),
    "block512": (lambda shape: BlockFIFO(shape, 512), 520, lemmas.block_lemmas),
}


@pytest.mark.parametrize(
    ("name", "shape"),
    [
        ("slice", WIDE),
        ("half-slice", WIDE),
        ("half-fifo", WIDE),
        ("bypass", WIDE),
        ("unregistered", NARROW),
        ("pair4", NARROW),
        ("pair16", WIDE),
        ("pair31", NARROW),
        ("pair64", NARROW),
        ("credit4", NARROW),
        ("credit16", WIDE),
        ("credit64", NARROW),
        ("fifo2", NARROW),
        ("fifo5", NARROW),
        ("fifo-stops", NARROW),
        ("fifo16", WIDE),
        ("watched", NARROW),
        ("block4", NARROW),
        ("stops", NARROW),
        ("block512", WIDE),
    ],
)
def test_queue_for_all_time(name, shape):
    """Rules 1 to 4, 9, 11 and 12."""
    make, capacity, where = QUEUES[name]
    full = capacity <= 12
    harness = formal.Conservation(make(shape), capacity=capacity, lemmas=where, full=full)
    result = formal.prove(harness, k=1, cover_depth=24 if full else 12, timeout=900)
    assert result.method == "induction"


@pytest.mark.parametrize("depth", [2, 3, 4])
def test_a_credit_queue_that_counts(depth):
    """Rules 11 and 12 in all traces of 14 cycles; what its flags do for all time is the user's."""
    taker = Taker(CreditQueue(NARROW, depth))
    formal.check(formal.Conservation(taker, capacity=depth + 2, full=False), depth=14)


@pytest.mark.parametrize(
    ("name", "offer", "ready", "k"),
    [
        ("slice", 0, 1, 2),
        ("pair4", 1, 1, 3),
        ("fifo5", 1, 1, 3),
        ("bypass", 0, 1, 3),
        ("fifo16", 1, 1, 3),
        ("block4", 6, 6, 8),
    ],
)
def test_queue_never_stalls_long(name, offer, ready, k):
    """Rule 8: an offer, and room once the output is ready, come within a number of cycles."""
    make, capacity, where = QUEUES[name]
    harness = formal.Conservation(
        make(NARROW),
        capacity=capacity,
        lemmas=where,
        full=False,
        offer_within=offer,
        ready_within={"i": ready},
    )
    formal.prove(harness, k=k, cover_depth=12)
    tighter = {"offer_within": offer - 1} if offer else {"ready_within": {"i": ready - 1}}
    with pytest.raises(formal.ProofError, match=r"fails: (no offer within|i: stalled)"):
        formal.check(
            formal.Conservation(make(NARROW), capacity=capacity, full=False, **tighter), depth=20
        )


BYPASS = ("bypass: bool = False", "bypass: bool = True")
FEW = ("N_CREDITS = 8", "N_CREDITS = 4")  # a shorter queue behind the RAM: shorter traces

BUGS = [  # (module, class, its arguments, beats that fit, changes: the last one is the bug)
    (streams, "Slice", (), 2, [("Mux(spare, i[start:stop], skid)", "i[start:stop]")]),
    (streams, "Slice", (), 2, [("(empty & ~self.i.valid)", "empty")]),
    (pair_queue, "PairQueue", (4,), 4, [("(now[1] & ~pop)", "now[1]")]),
    (
        pair_queue,
        "PairQueue",
        (4,),
        4,
        [("with m.If(pop & (piece.turn == bank)):", "with m.If(pop):")],
    ),
    (credit_queue, "CreditQueue", (4,), 5, [("with m.If(taken):", "with m.If(self.take):")]),
    (credit_queue, "CreditQueue", (4,), 5, [("room if self.depth == array.depth else 1", "1")]),
    (
        fifo,
        "FIFO",
        (4,),
        5,
        [("waiting & self._moves(self.o.valid)", "waiting & self.o.ready")],
    ),
    (fifo, "FIFO", (4,), 5, [("enters = self.i.valid & self.free", "enters = self.i.valid")]),
    (fifo, "FIFO", (3,), 4, [("now[self.depth - 2]", "now[self.depth - 1]")]),
    (
        fifo,
        "FIFO",
        (4,),
        5,
        [BYPASS, ("waiting | ~self._moves(self.o.valid)", "waiting")],
    ),
    (fifo, "FIFO", (4,), 5, [BYPASS, ("Mux(waiting, oldest", "Mux(first, oldest")]),
    (ring, "BlockFIFO", (4,), 8, [FEW, ("(self.room[2] & ~(p & q & r))", "self.room[2]")]),
    (
        ring,
        "BlockFIFO",
        (4,),
        8,
        [FEW, ("FIFO(shape, N_CREDITS, never_full=True, watched=stops)", "FIFO(shape, 2)")],
    ),
    (ring, "BlockFIFO", (4,), 12, [("(self.waiting[1] & ~self.issued.all())", "self.waiting[1]")]),
]


@pytest.mark.parametrize("bug", BUGS, ids=lambda bug: f"{bug[1]}-{bug[4][-1][1]}")
def test_seeded_bug_is_seen(bug):
    module, name, arguments, capacity, changes = bug
    make = partial(getattr(formal.twin(module, *itertools.chain(*changes)), name), 1, *arguments)
    if module is credit_queue:
        component = Taker(make(never_full=True))
    else:
        component = Guarded(make(), capacity) if module is pair_queue else make()
    formal.refute(formal.Conservation(component, capacity=capacity), depth=20)
