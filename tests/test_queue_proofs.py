"""Proofs of the queues at real width: each beat leaves once, unchanged, in order, for all time.

Each lemma says where in the circuit the picked beat stands (`formal.Conservation`); the seeded bugs
at the end must all be seen by the same harnesses, at small sizes and without the lemmas.
"""

import itertools

import pytest
from gradnic.hdl import fifo, outlet, ring, streams
from gradnic.hdl.outlet import Turns
from gradnic.hdl.streams import FIFO, BlockFIFO, FrameBeat, Slice
from gradnic.sim import formal, lemmas

WIDE = FrameBeat(64, meta_width=16)  # 594 bits
NARROW = FrameBeat(2)


QUEUES = {  # name: (component, beats that fit, lemmas)
    "slice": (lambda shape: Slice(shape), 2, lemmas.slice_lemmas),
    "turns": (lambda shape: Turns(shape), 2, lemmas.turns_lemmas),
    "fifo2": (lambda shape: FIFO(shape, 2), 3, lemmas.fifo_lemmas),
    "fifo5": (lambda shape: FIFO(shape, 5), 6, lemmas.fifo_lemmas),
    "fifo16": (lambda shape: FIFO(shape, 16), 17, lemmas.fifo_lemmas),
    "direct16": (lambda shape: FIFO(shape, 16, direct=True), 16, lemmas.fifo_lemmas),
    "block4": (lambda shape: BlockFIFO(shape, 4), 12, lemmas.block_lemmas),
    "block512": (lambda shape: BlockFIFO(shape, 512), 520, lemmas.block_lemmas),
}


@pytest.mark.parametrize(
    ("name", "shape"),
    [
        ("slice", WIDE),
        ("turns", WIDE),
        ("fifo2", NARROW),
        ("fifo5", NARROW),
        ("fifo16", WIDE),
        ("direct16", WIDE),
        ("block4", NARROW),
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


@pytest.mark.parametrize(
    ("name", "offer", "ready", "k"),
    [
        ("slice", 0, 1, 2),
        ("turns", 0, 1, 2),
        ("fifo5", 1, 1, 3),
        ("fifo16", 1, 1, 3),
        ("direct16", 0, 1, 3),
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
    with pytest.raises(formal.ProofError, match="fails: (no offer within|i: stalled)"):
        formal.check(
            formal.Conservation(make(NARROW), capacity=capacity, full=False, **tighter), depth=20
        )


FEW = ("N_CREDITS = 8", "N_CREDITS = 4")  # a shorter queue behind the RAM: shorter traces

BUGS = [  # (module, class, its arguments, beats that fit, changes: the last one is the bug)
    (streams, "Slice", (), 2, [("Mux(spare, i[start:stop], skid)", "i[start:stop]")]),
    (streams, "Slice", (), 2, [("with m.Elif(self.i.valid):", "with m.Elif(~self.o.ready):")]),
    (outlet, "Turns", (), 2, [("i.valid & mine", "i.valid")]),
    (
        fifo,
        "FIFO",
        (4,),
        5,
        [("self.o.ready | ~self.o.valid)),", "self.o.ready)),")],
    ),
    (fifo, "FIFO", (4,), 5, [("push.eq(self.i.valid & self.free)", "push.eq(self.i.valid)")]),
    (fifo, "FIFO", (3,), 4, [("more_than(self.depth - 2)", "more_than(self.depth - 1)")]),
    (ring, "BlockFIFO", (4,), 8, [FEW, ("(self.room[2] & ~(p & q & r))", "self.room[2]")]),
    (
        ring,
        "BlockFIFO",
        (4,),
        8,
        [FEW, ("FIFO(shape, N_CREDITS, never_full=True)", "FIFO(shape, 2)")],
    ),
    (ring, "BlockFIFO", (4,), 12, [("(self.waiting[1] & ~self.issued.all())", "self.waiting[1]")]),
]


@pytest.mark.parametrize("bug", BUGS, ids=lambda bug: f"{bug[1]}-{bug[4][-1][1]}")
def test_seeded_bug_is_seen(bug):
    module, name, arguments, capacity, changes = bug
    component = getattr(formal.twin(module, *itertools.chain(*changes)), name)(1, *arguments)
    formal.refute(formal.Conservation(component, capacity=capacity), depth=20)
