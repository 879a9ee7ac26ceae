"""Rows that wait: each remembers what is still missing, the oldest leaves first."""

from amaranth.hdl import Cat, Module, Mux, Signal
from amaranth.lib import data, memory, stream, wiring
from amaranth.lib.wiring import In, Out

from gradnic.table import bits

from .scheduler_chunks import Access, Look, State
from .scheduler_rows import Row
from .streams import Slice

N_SLOTS = 10  # rows that are looked at ahead: what one that waits for nothing needs from row to row


def Seen(layout, n_chunks):
    """Shape of what rows are told of an access: `passing`, and one cycle later the rest.

    result : state of the chunk after it. grew, finished : a contribution was counted; the chunk
    became final.
    """
    return data.StructLayout(
        {
            "passing": Access(layout, n_chunks, N_SLOTS),
            "result": State(layout),
            "grew": 1,
            "finished": 1,
        }
    )


def _awaits(m, seen, mine, place):
    """What a row awaits, loaded by a look: (the access that passed makes it so, it is so now).

    mine : the look that passes is the row's. place : the access that passes concerns its chunks.
    """
    gather, hit = Signal(reset_less=True), Signal(reset_less=True)
    wait = Signal(len(seen.result.added), reset_less=True)
    at = seen.passing.at
    with m.If(mine):
        m.d.sync += [gather.eq(at.gather), wait.eq(at.wait)]
    m.d.sync += hit.eq(place & Mux(gather, seen.passing.finish, seen.passing.add))
    return hit, Mux(gather, seen.result.final, seen.result.added == wait)


class Slot(wiring.Component):
    """One waiting row; of a row with several chunks, whose state is in `Spread`, only that it is.

    A chunk with more contributions than the row waits for never is ready.

    Members
    -------
    mine : In(1)
        The access that passes is this row's, if it is a look.
    seen : In(Seen)
    pop : In(1)
        The row left in the cycle before.
    done : Out(1)
        Nothing is missing, 5 cycles after the last event was taken, or 6 after the look.
    wide : Out(1)
        The row has several chunks.
    """

    def __init__(self, layout, n_chunks):
        members = {"mine": In(1), "seen": In(Seen(layout, n_chunks)), "pop": In(1)}
        super().__init__(members | {"done": Out(1), "wide": Out(1)})

    def elaborate(self, platform):
        m = Module()
        at = self.seen.passing.at
        chunk, free = Signal(len(at.chunk), reset_less=True), Signal(reset_less=True)
        narrow = Signal()
        loads, looked, sound = Signal(), Signal(), Signal()
        hit, enough = _awaits(m, self.seen, loads, at.chunk == chunk)
        m.d.comb += loads.eq(self.seen.passing.look & self.mine & at.fresh)
        m.d.sync += [looked.eq(loads & ~at.wide), sound.eq(looked & (free | enough))]
        with m.If(sound | (narrow & hit & enough)):
            m.d.sync += self.done.eq(1)
        with m.If(self.pop):
            m.d.sync += [self.done.eq(0), narrow.eq(0), self.wide.eq(0)]
        with m.If(loads):
            m.d.sync += [chunk.eq(at.chunk), free.eq(at.free)]
            m.d.sync += [narrow.eq(~at.wide), self.wide.eq(at.wide)]
        return m


class Spread(wiring.Component):
    """The one row with several chunks: counts those that were looked at and are not ready yet.

    Members
    -------
    seen : In(Seen)
    pop : In(1)
        The row left in the cycle before.
    done : Out(1)
        As of `Slot`: all were looked at, and none is missing.
    """

    def __init__(self, layout, n_chunks):
        self.n_chunks = n_chunks
        members = {"seen": In(Seen(layout, n_chunks)), "pop": In(1)}
        super().__init__(members | {"done": Out(1)})

    def elaborate(self, platform):
        m = Module()
        seen, at = self.seen, self.seen.passing.at
        first = Signal(len(at.chunk), reset_less=True)  # chunks looked at so far: first to last
        last = Signal(len(at.chunk), reset_less=True)
        mine, fresh, end, looked = (Signal() for _ in range(4))
        within = (at.chunk >= first) & (at.chunk <= last)
        hit, enough = _awaits(m, seen, mine, within)
        m.d.comb += mine.eq(seen.passing.look & at.wide)
        m.d.sync += [looked.eq(mine), fresh.eq(mine & at.fresh), end.eq(mine & at.end)]
        with m.If(mine):
            m.d.sync += last.eq(at.chunk)
            with m.If(at.fresh):
                m.d.sync += first.eq(at.chunk)

        # The sum is a cycle late, `opened` and `closed` are what it does not have yet
        late = Signal(bits(self.n_chunks), reset_less=True)
        opened, closed, close, walked = Signal(), Signal(), Signal(), Signal()
        m.d.comb += close.eq(hit & enough & (seen.grew | seen.finished))
        m.d.sync += [
            opened.eq(looked & ~enough),
            closed.eq(close),
            late.eq(Mux(fresh, 0, late + opened - closed)),
            walked.eq(~self.pop & (walked | end)),
        ]
        none, one = Signal(), Signal()
        with m.If(opened == closed):
            m.d.comb += [none.eq(late == 0), one.eq(late == 1)]
        with m.Elif(closed):
            m.d.comb += [none.eq(late == 1), one.eq(late == 2)]
        with m.Else():
            m.d.comb += one.eq(late == 0)
        with m.If(Mux(close, walked & one, walked & none)):
            m.d.sync += self.done.eq(1)
        with m.If(self.pop):
            m.d.sync += self.done.eq(0)
        return m


class RowWindow(wiring.Component):
    """Looks at the chunks of up to `N_SLOTS` rows, and offers the oldest once it is ready.

    A row of one chunk, or one that waits for nothing, takes one look; others take one per chunk,
    and only one of those is here at a time. A row whose last event was taken in cycle t is `ready`
    in t + 5, one whose last look was, in t + 6; one of several chunks the cycle after it has become
    the oldest, at the earliest.

    Members
    -------
    rows : In(stream.Signature(Row))
    looks : Out(stream.Signature(Look)); passing, result, grew, finished : In
        To and from `ChunkBook`.
    head : Out(Row)
        The oldest row. present : Out(1), there is one. ready : Out(1), it may leave; held :
        Out(1), in the cycle before it waited for nothing, but its ``hold`` is set.
    pop : In(1)
        It leaves; only if `ready` or `held`.
    """

    def __init__(self, layout, depth, n_chunks):
        self.layout, self.n_chunks = layout, n_chunks
        self._wide_leaves = Signal()  # a row with several chunks has left
        row = Row(layout, depth, n_chunks)
        super().__init__(
            {
                "rows": In(stream.Signature(row)),
                "looks": Out(stream.Signature(Look(layout, n_chunks, N_SLOTS))),
                "passing": In(Access(layout, n_chunks, N_SLOTS)),
                "result": In(State(layout)),
                "grew": In(1),
                "finished": In(1),
                "head": Out(row),
                "present": Out(1),
                "ready": Out(1),
                "held": Out(1),
                "pop": In(1),
            }
        )

    def elaborate(self, platform):
        m = Module()
        tail, head = Signal(range(N_SLOTS)), Signal(range(N_SLOTS))
        room, popped = Signal(range(N_SLOTS + 1), init=N_SLOTS), Signal()  # a slot is free later
        end = self._walk(m, tail, room)
        m.d.sync += [
            popped.eq(self.pop),
            room.eq(room + popped - end),
        ]
        m.d.comb += self.present.eq(~((room == N_SLOTS) | ((room == N_SLOTS - 1) & popped)))
        for pointer, moves in (tail, end), (head, self.pop):
            with m.If(moves):
                m.d.sync += pointer.eq(Mux(pointer == N_SLOTS - 1, 0, pointer + 1))

        row = self.rows.p.shape()
        m.submodules.waiting = waiting = memory.Memory(
            shape=row.size, depth=N_SLOTS, init=[], attrs={"ram_style": "distributed"}
        )
        write, read = waiting.write_port(), waiting.read_port(domain="comb")
        m.d.comb += [
            write.en.eq(end),
            write.addr.eq(tail),
            write.data.eq(self.rows.p),
            read.addr.eq(head),
            self.head.eq(read.data),
        ]

        seen = Signal(Seen(self.layout, self.n_chunks))
        m.d.comb += [
            getattr(seen, name).eq(getattr(self, name))
            for name in ("passing", "result", "grew", "finished")
        ]
        m.submodules.spread = spread = Spread(self.layout, self.n_chunks)
        m.d.sync += self._wide_leaves.eq(self.pop & ~self.head.single)
        m.d.comb += [spread.seen.eq(seen), spread.pop.eq(self._wide_leaves)]
        first = Signal(N_SLOTS, init=1)  # the oldest row's slot
        with m.If(self.pop):
            m.d.sync += first.eq(first.rotate_left(1))
        slots = [Slot(self.layout, self.n_chunks) for _ in range(N_SLOTS)]
        for k, slot in enumerate(slots):
            m.submodules[f"slot{k}"] = slot
            m.d.comb += [
                slot.mine.eq(self.passing.at.slot == k),
                slot.seen.eq(seen),
                slot.pop.eq(popped & first[(k + 1) % N_SLOTS]),
            ]

        def oldest(name):
            return (Cat(getattr(slot, name) for slot in slots) & first).any()

        done, wide = Signal(), Signal()
        m.d.comb += [
            done.eq(oldest("done") | (wide & spread.done)),
            self.ready.eq(done & ~self.head.hold),
        ]
        m.d.sync += [
            wide.eq(oldest("wide") & ~self.pop),
            self.held.eq(done & self.head.hold & ~self.pop),
        ]
        return m

    def _walk(self, m, tail, room):
        """Looks at the chunks of the row at `rows`, one after the other; whether this is its last.

        A row begins if there was room for it in the cycle before, and if it has several chunks, no
        other such row was inside.
        """
        m.submodules.slice = ahead = Slice(self.looks.p.shape())
        row, look = self.rows.p, ahead.i.p
        fresh = Signal(init=1)
        open, open_wide, wide_inside = Signal(), Signal(), Signal()
        # chunk of the next look, if it is not the row's first; looks after that one
        chunk = Signal(len(look.chunk), reset_less=True)
        n_left = Signal(len(row.message.count), reset_less=True)
        final, end = Signal(), Signal()
        for_one = (room >= 2) | ((room == 1) & ~end)
        m.d.sync += [open.eq(for_one), open_wide.eq(for_one & ~wide_inside)]
        m.d.comb += [
            ahead.i.valid.eq(self.rows.valid & (~fresh | Mux(row.single, open, open_wide))),
            look.chunk.eq(Mux(fresh, row.message.first, chunk)),
            look.slot.eq(tail),
            look.fresh.eq(fresh),
            look.end.eq(Mux(fresh, row.single, final)),
            look.wide.eq(~row.single),
            look.gather.eq(row.message.gather),
            look.free.eq(row.free),
            look.wait.eq(row.message.wait),
            self.rows.ready.eq(ahead.i.ready & Mux(fresh, row.single & open, final)),
            end.eq(self.rows.valid & self.rows.ready),
        ]
        with m.If(self._wide_leaves):
            m.d.sync += wide_inside.eq(0)
        with m.If(ahead.i.valid & ahead.i.ready):
            m.d.sync += [
                fresh.eq(look.end),
                chunk.eq(look.chunk + 1),
                n_left.eq(Mux(fresh, row.message.count, n_left) - 1),
                final.eq(Mux(fresh, row.double, n_left == 1)),
            ]
            with m.If(~row.single):
                m.d.sync += wide_inside.eq(1)
        wiring.connect(m, ahead.o, wiring.flipped(self.looks))
        return end
