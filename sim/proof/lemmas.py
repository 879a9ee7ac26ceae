"""Where a beat stands inside the queues of `gradnic.hdl`: what makes their proofs inductive.

Each function adds assertions to a `gradnic.sim.proof.formal.Conservation` harness, or to one like
it. The lemmas know the circuits' registers and must change with them; the claims proven do not.
"""

from amaranth.hdl import Assert, Cat, Const, Mux, Signal
from gradnic.hdl.stream.block_fifo import N_CREDITS


def slice_lemmas(m, h):
    """State of a `Slice` beside the harness's."""
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


def half_slice_lemmas(m, h):
    """State of a `HalfSlice` beside the harness's."""
    valids = h.component.valids
    m.d.comb += [
        *(Assert(copy == valids[0]) for copy in valids[1:]),
        Assert(h.count == valids[0]),
        Assert(~(h.tracking & (h.ahead == 0)) | (h.o.p.as_value() == h.beat)),
    ]


def pair_state(m, queue, count):
    """`count` beats are in a `PairQueue`; the next one of each bank stands in ``near``.

    Returns, for each piece, the number of the slot that the oldest beat has.
    """
    occupied, depth = queue.occupied, queue.occupied.shape().width
    stored = count - _front(queue)
    m.d.comb += [
        *(Assert(occupied[k] | ~occupied[k + 1]) for k in range(depth - 1)),
        Assert(~(queue.pushed & ~queue.popped) | ~occupied[depth - 1]),
        Assert(~queue.popped | occupied[0]),
        Assert(stored == sum(occupied) + queue.pushed - queue.popped),
        Assert(queue.o.valid == (stored > queue.pushed)),
        Assert(queue.several == (stored > queue.pushed + 1)),
        Assert(queue.came == queue.pushed),
    ]
    tails = []
    for number, piece in enumerate(queue.pieces):
        tail = Signal.like(piece.head, name=f"tail{number}")
        tails.append(tail)
        m.d.comb += [
            tail.eq(Cat(piece.turn, Mux(piece.turn, *piece.rows[::-1]))),
            Assert(piece.here == queue.here),
            Assert(tail == tails[0]),
            Assert(piece.valid == queue.o.valid),
            Assert(piece.head == (tail + stored)[: len(tail)]),
            Assert(piece.rows[0] == (piece.rows[1] + piece.turn)[: len(piece.rows[0])]),
            *(
                Assert(~queue.o.valid | (piece.turn != bank) | (near == _found(m, arrays, row)))
                for bank, (near, arrays, row) in enumerate(
                    zip(piece.near, piece.arrays, piece.rows, strict=True)
                )
            ),
        ]
    return tails


def pair_lemmas(m, h):
    """Of a guarded `PairQueue`; the oldest beat stands in ``near`` once it is offered."""
    queue = h.component.queue
    tails = pair_state(m, queue, h.count)
    head = queue.pieces[0].head
    slot = _slot(m, h.picking, (head + _front(queue))[: len(head)])
    comes = _front(queue) & (slot == head)  # the picked beat stands in front of the memory
    m.d.comb += Assert(h.component.count == h.count)
    for (start, stop), piece, tail in zip(queue.ranges, queue.pieces, tails, strict=True):
        banks = [_found(m, arrays, slot[1:]) for arrays in piece.arrays]
        stands = Mux(comes, piece.held, Mux(slot[0], banks[1], banks[0]))
        m.d.comb += [
            Assert(~h.tracking | (slot == (tail + h.ahead)[: len(slot)])),
            Assert(~h.tracking | (stands == h.beat[start:stop])),
        ]


def credit_lemmas(m, h):
    """Of a `CreditQueue` that never fills, and whoever counts for it.

    A beat that was taken is in the memory for a cycle more, then in ``word``, where it is offered.
    """
    queue, there = h.component.queue, h.o.valid
    taken = Signal()
    m.d.sync += taken.eq(queue.take)
    slot = _slot(m, h.picking, queue.heads[0])
    inside = h.count - there  # in the memory
    m.d.comb += [
        Assert(h.component.count == (inside - taken)[: len(h.count)]),
        Assert(inside >= taken),
        Assert(h.component.count + taken <= queue.depth),
    ]
    for (start, stop), array, head, tail in zip(
        queue.ranges, queue.arrays, queue.heads, queue.tails, strict=True
    ):
        port = array.read_port(domain="comb")
        at_port = h.tracking & there & (h.ahead == 0)
        m.d.comb += [
            port.addr.eq(slot),
            Assert(head == queue.heads[0]),
            Assert(head == (tail + inside)[: len(head)]),
            Assert(~h.tracking | at_port | (slot == (tail + h.ahead - there)[: len(slot)])),
            Assert(~h.tracking | at_port | (port.data == h.beat[start:stop])),
        ]


def _front(queue):
    """Flag: a beat stands in front of the memory of a `PairQueue`."""
    return queue.here if queue.latency == 3 else Const(0)


def _found(m, arrays, row):
    """What a bank of a `PairQueue` holds in a row."""
    ports = [array.read_port(domain="comb") for array in arrays]
    m.d.comb += [port.addr.eq(row[:4]) for port in ports]
    return Mux(row[4:], ports[-1].data, ports[0].data)


def _slot(m, enters, pointer):
    """The slot to which the picked beat goes; as it stays there, the solver has less to do."""
    slot = Signal(len(pointer), name="slot")
    with m.If(enters):
        m.d.sync += slot.eq(pointer)
    return slot


def stored(queue):
    """Beats in the memory of a `FIFO`: its count is one cycle old."""
    return (sum(queue.occupied) + queue.pushed - queue.popped)[: len(queue.occupied)]


def fifo_state(m, queue, *, enters, count, ahead, tracking, beat):
    """`count` beats are in the FIFO; if `tracking`, the one behind `ahead` of them is `beat`."""
    port = queue.array.read_port(domain="comb")
    slot = _slot(m, enters, queue.head)
    valid, more = queue.valids[0] if queue.registered else Const(0, 1), queue.occupied
    n_slots = queue.depth
    n_stored = Signal(range(n_slots + 1))
    position = Signal(range(2 * n_slots + 1))
    end = Signal(range(2 * n_slots))

    def wrapped(pointer):
        return Mux(pointer >= n_slots, pointer - n_slots, pointer)

    m.d.comb += [
        n_stored.eq(stored(queue)),
        position.eq(queue.tail + ahead - valid),
        end.eq(queue.tail + n_stored),
        port.addr.eq(slot),
        *(Assert(copy == valid) for copy in queue.valids[1:]),
        *(Assert(more[k] | ~more[k + 1]) for k in range(n_slots - 1)),
        Assert(~queue.pushed | ~more[n_slots - 1]),
        Assert(~queue.popped | more[0]),
        Assert(queue.waiting == (n_stored != 0)),
        Assert(queue.free == ((n_stored < n_slots) | queue.never_full)),
        Assert(queue.tail < n_slots),
        Assert(~queue.astray),
        Assert(queue.head == wrapped(end)),
        Assert(count == valid + n_stored),
        Assert(~(tracking & valid & (ahead == 0)) | (queue.o.p.as_value() == beat)),
        Assert(~(tracking & (ahead >= valid)) | (slot == wrapped(position))),
        Assert(~(tracking & (ahead >= valid)) | (port.data == beat)),
    ]
    if queue.stops:
        m.d.comb += [
            Assert(queue.head_odd == queue.head.xor()),
            Assert(queue.tail_odd == queue.tail.xor()),
        ]


def fifo_lemmas(m, h):
    """State of a `FIFO` beside the harness's."""
    state = {"count": h.count, "ahead": h.ahead, "tracking": h.tracking, "beat": h.beat}
    fifo_state(m, h.component, enters=h.picking, **state)


def _past(m, signal):
    """The signal one and two cycles ago."""
    one, two = Signal.like(signal, name="one"), Signal.like(signal, name="two")
    m.d.sync += [one.eq(signal), two.eq(one)]
    return one, two


def _thermometer(n, count):
    return Cat(count > k for k in range(n))


def ring_state(m, dut, *, enters, count, committed, ahead, tracking, beat):
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
        ready_part.eq(prefetch.valids[0] + stored(prefetch)),
        front.eq(ready_part + issued[0] + issued[1]),
        offset.eq(ahead - front),
    ]
    early = Signal(range(N_CREDITS + 2), name="early")
    m.d.comb += early.eq(ahead)
    fifo_state(
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
        Assert((dut.head == (head1 + pushed[0])[: len(head1)]) | (dut.head == dut.mark)),
        Assert((dut.head == (head1 + pushed[0])[: len(head1)]) | (dut.mark == mark1)),
        Assert((used <= used1 + pushed[0]) & (used1 <= used2 + pushed[1])),
        Assert((whole + issued[0] >= whole1) & (whole1 + issued[1] >= whole2)),
        Assert(dut.read_addr == dut.tail[: len(dut.read_addr)]),
        Assert(~dut.stopped),
        *(
            Assert(odd == pointer.xor())
            for odd, pointer in (
                (dut.head_odd, dut.head),
                (dut.write_odd, dut.write_addr),
                (dut.pushed_odd, pushed),
                (dut.issued_odd, issued),
            )
            if dut.stops
        ),
        Assert(~pushed[0] | (dut.write_addr == head1[:-1])),
        Assert(~pushed[0] | ((in_write + issued[0] == used1) & (used1 < n))),
        Assert(~pushed[0] | (in_write >= (mark1 - dut.tail)[: len(in_write)])),
        # what the decisions are made on
        Assert(dut.free == n - used1),
        Assert(dut.room == _thermometer(4, n - used2)),
        Assert(dut.whole == whole1),
        Assert(dut.waiting == _thermometer(3, whole2)),
        Assert(~dut.i.ready | (used < n)),
        Assert(sum(dut.credits) + front == N_CREDITS),
        *(Assert(dut.credits[k] | ~dut.credits[k + 1]) for k in range(N_CREDITS - 1)),
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


def block_lemmas(m, h):
    """State of a `BlockFIFO` beside the harness's."""
    state = {"ahead": h.ahead, "tracking": h.tracking, "beat": h.beat}
    ring_state(m, h.component, enters=h.picking, count=h.count, committed=h.count, **state)
    m.d.comb += Assert(h.component.mark == h.component.head)
