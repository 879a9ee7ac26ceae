"""Proofs of the queues at real width: each beat leaves once, unchanged, in order, for all time.

Each lemma says where in the circuit the picked beat stands (`formal.Conservation`); the seeded bugs
at the end must all be seen by the same harnesses, at small sizes and without the lemmas.
"""

import pytest
from amaranth.hdl import Assert, Cat, Mux, Signal
from gradnic.hdl import fifo, packet_fifo, ring, streams
from gradnic.hdl.packet_fifo import PacketFIFO
from gradnic.hdl.streams import FIFO, Beat, BlockFIFO, FrameBeat, Slice
from gradnic.sim import formal

WIDE = FrameBeat(64, meta_width=16)  # 610 bits
NARROW = FrameBeat(2)


def _slice_lemmas(m, h):
    valids, spares = h.component.valids, h.component.spares
    at = [h.tracking & (h.ahead == k) for k in range(2)]
    m.d.comb += [
        *(Assert(copy == valids[0]) for copy in valids[1:]),
        *(Assert(copy == spares[0]) for copy in spares[1:]),
        Assert(valids[0] | spares[0]),
        Assert(h.count == valids[0] + ~spares[0]),
        Assert(~at[0] | (h.o.p.as_value() == h.beat)),
        Assert(~at[1] | (h.component.skid == h.beat)),
    ]


def _slot(m, enters, pointer):
    """The slot to which the picked beat goes; as it stays there, the solver has less to do."""
    slot = Signal(len(pointer), name="slot")
    with m.If(enters):
        m.d.sync += slot.eq(pointer)
    return slot


def _fifo_lemmas(m, queue, *, enters, count, ahead, tracking, beat):
    """`count` beats are in the FIFO; if `tracking`, the one behind `ahead` of them is `beat`."""
    port = queue.array.read_port(domain="comb")
    slot = _slot(m, enters, queue.head)
    valid, more = queue.valids[0], Cat(queue.occupied, ~queue.free)
    n_slots = queue.depth
    n_stored = Signal(range(n_slots + 1))
    position = Signal(range(2 * n_slots + 1))
    end = Signal(range(2 * n_slots))

    def wrapped(pointer):
        return Mux(pointer >= n_slots, pointer - n_slots, pointer)

    m.d.comb += [
        n_stored.eq(sum(more)),
        position.eq(queue.tail + ahead - valid),
        end.eq(queue.tail + n_stored),
        port.addr.eq(slot),
        *(Assert(copy == valid) for copy in queue.valids[1:]),
        *(Assert(more[k] | ~more[k + 1]) for k in range(n_slots - 1)),
        Assert(queue.tail < n_slots),
        Assert(queue.head == wrapped(end)),
        Assert(count == valid + n_stored),
        Assert(~(tracking & valid & (ahead == 0)) | (queue.o.p.as_value() == beat)),
        Assert(~(tracking & (ahead >= valid)) | (slot == wrapped(position))),
        Assert(~(tracking & (ahead >= valid)) | (port.data == beat)),
    ]


def _fifo(m, h):
    state = {"count": h.count, "ahead": h.ahead, "tracking": h.tracking, "beat": h.beat}
    _fifo_lemmas(m, h.component, enters=h.picking, **state)


def _past(m, signal):
    """The signal one and two cycles ago."""
    one, two = Signal.like(signal, name="one"), Signal.like(signal, name="two")
    m.d.sync += [one.eq(signal), two.eq(one)]
    return one, two


def _thermometer(n, count):
    return Cat(count > k for k in range(n))


def _ring_lemmas(m, dut, *, enters, count, committed, ahead, tracking, beat):
    """`count` beats are in the ring, `committed` of them may leave."""
    n = dut.n_slots
    head1, head2 = _past(m, dut.head)
    mark1, mark2 = _past(m, dut.mark)
    tail1, tail2 = _past(m, dut.tail)
    pushed, issued, prefetch = dut.pushed, dut.issued, dut.prefetch

    def distance(name, upper, lower):
        value = Signal.like(dut.head, name=name)
        m.d.comb += value.eq(upper - lower)
        return value

    used, used1 = distance("used", dut.head, dut.tail), distance("used1", head1, tail1)
    used2 = distance("used2", head2, tail2)
    whole, whole1 = distance("whole", dut.mark, dut.tail), distance("whole1", mark1, tail1)
    whole2 = distance("whole2", mark2, tail2)
    in_write = distance("in_write", head1, dut.tail)  # of the beat on its way into the RAM

    ready_part = Signal(range(32), name="ready_part")  # in the prefetch queue
    front = Signal(range(32), name="front")  # and on its way there
    offset = Signal.like(dut.head, name="offset")  # of the picked beat from the tail
    in_ram = tracking & (ahead >= front)
    m.d.comb += [
        ready_part.eq(prefetch.valids[0] + sum(prefetch.occupied) + ~prefetch.free),
        front.eq(ready_part + issued[0] + issued[1]),
        offset.eq(ahead - front),
    ]
    early = Signal(range(ring.N_CREDITS + 2), name="early")
    m.d.comb += early.eq(ahead)
    _fifo_lemmas(
        m,
        prefetch,
        enters=tracking & issued[1] & (ahead == ready_part),
        count=ready_part,
        ahead=early,
        tracking=tracking & (ahead < ready_part),
        beat=beat,
    )
    port = dut.ram.array.read_port(domain="comb")
    slot = _slot(m, enters, dut.head[:-1])
    first_word = dut.ram._ports[1].data
    m.d.comb += [
        port.addr.eq(slot),
        # pointers
        Assert(used <= n),
        Assert(used1 <= n),
        Assert(used2 <= n),
        Assert(whole <= used),
        Assert(whole1 <= used1),
        Assert(whole2 <= used2),
        Assert(Mux(pushed[0], dut.head == head1 + 1, dut.head == head1) | (dut.head == dut.mark)),
        Assert(~pushed[0] | (dut.head == (head1 + 1)[: len(head1)]) | (dut.mark == mark1)),
        Assert((used <= used1 + pushed[0]) & (used1 <= used2 + pushed[1])),
        Assert((whole + issued[0] >= whole1) & (whole1 + issued[1] >= whole2)),
        Assert(dut.read_addr == dut.tail[:-1]),
        Assert(~pushed[0] | (dut.write_addr == head1[:-1])),
        Assert(~pushed[0] | ((in_write + issued[0] == used1) & (used1 < n))),
        Assert(~pushed[0] | (in_write >= (mark1 - dut.tail)[: len(in_write)])),
        # what the decisions are made on
        Assert(dut.free == n - used1),
        Assert(dut.room == _thermometer(4, n - used2)),
        Assert(dut.whole == whole1),
        Assert(dut.waiting == _thermometer(3, whole2)),
        Assert(~dut.i.ready | (used < n)),
        Assert(sum(dut.credits) + front == ring.N_CREDITS),
        *(Assert(dut.credits[k] | ~dut.credits[k + 1]) for k in range(ring.N_CREDITS - 1)),
        Assert(~issued[1] | prefetch.free),
        # where the beats are
        Assert(count == front + used),
        Assert(committed == front + whole),
        Assert(~(tracking & issued[1] & (ahead == ready_part)) | (dut.ram.read_data == beat)),
        Assert(~(tracking & issued[0] & (ahead == ready_part + issued[1])) | (first_word == beat)),
        Assert(~in_ram | (slot == (dut.tail + offset)[: len(slot)])),
        Assert(
            ~in_ram
            | Mux(
                pushed[0] & (dut.write_addr == slot),
                dut.written.as_value() == beat,
                port.data == beat,
            )
        ),
    ]


def _block(m, h):
    state = {"ahead": h.ahead, "tracking": h.tracking, "beat": h.beat}
    _ring_lemmas(m, h.component.ring, enters=h.picking, count=h.count, committed=h.count, **state)
    m.d.comb += Assert(h.component.ring.mark == h.component.ring.head)


QUEUES = {  # name: (component, beats that fit, lemmas)
    "slice": (lambda shape: Slice(shape), 2, _slice_lemmas),
    "fifo2": (lambda shape: FIFO(shape, 2), 3, _fifo),
    "fifo5": (lambda shape: FIFO(shape, 5), 6, _fifo),
    "fifo16": (lambda shape: FIFO(shape, 16), 17, _fifo),
    "block4": (lambda shape: BlockFIFO(shape, 4), 12, _block),
    "block512": (lambda shape: BlockFIFO(shape, 512), 520, _block),
}


@pytest.mark.parametrize(
    ("name", "shape"),
    [
        ("slice", WIDE),
        ("fifo2", NARROW),
        ("fifo5", NARROW),
        ("fifo16", WIDE),
        ("block4", NARROW),
        ("block512", WIDE),
    ],
)
def test_queue_for_all_time(name, shape):
    """Rules 1 to 4, 9, 11 and 12."""
    make, capacity, lemmas = QUEUES[name]
    full = capacity <= 12
    harness = formal.Conservation(make(shape), capacity=capacity, lemmas=lemmas, full=full)
    result = formal.prove(harness, k=1, cover_depth=24 if full else 12)
    assert result.method == "induction"


@pytest.mark.parametrize(
    ("name", "offer", "ready", "k"),
    [("slice", 0, 1, 2), ("fifo5", 1, 1, 3), ("fifo16", 1, 1, 3), ("block4", 6, 6, 8)],
)
def test_queue_never_stalls_long(name, offer, ready, k):
    """Rule 8: an offer, and room once the output is ready, come within a number of cycles."""
    make, capacity, lemmas = QUEUES[name]
    harness = formal.Conservation(
        make(NARROW),
        capacity=capacity,
        lemmas=lemmas,
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


BUGS = [  # (module, class, its arguments, beats that fit, a line, the line with the bug)
    (streams, "Slice", (), 2, "Mux(spare, i[start:stop], skid)", "i[start:stop]"),
    (streams, "Slice", (), 2, "with m.Elif(self.i.valid):", "with m.Elif(~self.o.ready):"),
    (fifo, "FIFO", (4,), 5, "waiting & (self.o.ready | ~self.o.valid)", "waiting & self.o.ready"),
    (fifo, "FIFO", (4,), 5, "push.eq(self.i.valid & self.free)", "push.eq(self.i.valid)"),
    (fifo, "FIFO", (5,), 6, "wraps = 2 ** len(pointer) != self.depth", "wraps = False"),
    (ring, "BlockFIFO", (4,), 12, "(self.room[2] & ~(p & q & r))", "self.room[2]"),
    (ring, "BlockFIFO", (4,), 12, "(self.waiting[1] & ~self.issued.all())", "self.waiting[1]"),
    (ring, "BlockFIFO", (4,), 12, "N_CREDITS = 8", "N_CREDITS = 12"),
]


@pytest.mark.parametrize("bug", BUGS, ids=lambda bug: f"{bug[1]}-{bug[5]}")
def test_seeded_bug_is_seen(bug):
    module, name, arguments, capacity, line, wrong = bug
    component = getattr(formal.twin(module, line, wrong), name)(NARROW, *arguments)
    formal.refute(formal.Conservation(component, capacity=capacity), depth=24)
