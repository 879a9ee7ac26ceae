"""Rows that wait: each remembers what is still missing, the oldest leaves first."""

from amaranth.hdl import Cat, Module, Mux, Signal
from amaranth.lib import data, memory, stream, wiring
from amaranth.lib.wiring import In, Out

from gradnic.table import bits

from .scheduler_chunks import Access, Look, State
from .scheduler_rows import Row
from .streams import Slice

N_SLOTS = 8  # rows that are looked at ahead; one that waits for nothing is here for 6 cycles


def Seen(layout, n_chunks):
    """Shape of what rows are told of an access, when it passes and one cycle later.

    passing : Access. look, fresh, end, wide : of the access that passed a cycle before; satisfied :
    the chunk that it looked at was ready. grew, finished : a contribution was counted and makes
    ``added``; a chunk became final.
    """
    return data.StructLayout(
        {
            "passing": Access(layout, n_chunks, N_SLOTS),
            **dict.fromkeys(("look", "fresh", "end", "wide", "satisfied"), 1),
            "grew": 1,
            "finished": 1,
            "added": layout.wait,
        }
    )


def _closes(m, seen, place, mine):
    """Whether the access that passed a cycle ago made a chunk ready that the row waits for.

    place : the access that passes concerns the row's chunks. mine : a look that loads the row's
    kind and the contributions that it waits for.
    """
    gather, wait, hit = Signal(), Signal(len(seen.added)), Signal()
    at = seen.passing.at
    with m.If(mine):
        m.d.sync += [gather.eq(at.gather), wait.eq(at.wait)]
    m.d.sync += hit.eq(place & Mux(gather, seen.passing.finish, seen.passing.add))
    return hit & Mux(gather, seen.finished, seen.grew & (seen.added == wait))


class Slot(wiring.Component):
    """One waiting row; of a row with several chunks only whether `Spread` says that it is ready.

    Members
    -------
    mine : In(1)
        The access that passes is this row's, if it is a look.
    seen : In(Seen)
    spread : In(1)
        The row with several chunks misses nothing.
    pop : In(1)
        The row leaves.
    ready, held : Out(1)
        Nothing is missing, 5 cycles after the last look or event was taken; held: of a row that
        may not leave at once.
    """

    def __init__(self, layout, n_chunks):
        seen = Seen(layout, n_chunks)
        members = {"mine": In(1), "seen": In(seen), "spread": In(1), "pop": In(1)}
        super().__init__(members | {"ready": Out(1), "held": Out(1)})

    def elaborate(self, platform):
        m = Module()
        seen, at = self.seen, self.seen.passing.at
        chunk, hold, wide = Signal(len(at.chunk)), Signal(), Signal()
        loads, looked, missing, done = Signal(), Signal(), Signal(), Signal()
        close = _closes(m, seen, at.chunk == chunk, loads)
        m.d.comb += [
            loads.eq(seen.passing.look & self.mine & at.fresh),
            done.eq(Mux(looked, seen.satisfied, missing & close) | (wide & self.spread)),
        ]
        m.d.sync += looked.eq(loads & ~at.wide)
        with m.If(looked):
            m.d.sync += missing.eq(~seen.satisfied)
        with m.Elif(close):
            m.d.sync += missing.eq(0)
        with m.If(loads):
            m.d.sync += [chunk.eq(at.chunk), hold.eq(at.hold), wide.eq(at.wide)]
        with m.If(done):
            m.d.sync += [self.ready.eq(~hold), self.held.eq(hold)]
        with m.If(self.pop):
            m.d.sync += [self.ready.eq(0), self.held.eq(0), wide.eq(0)]
        return m


class Spread(wiring.Component):
    """The one row with several chunks: counts those that were looked at and are not ready yet.

    Members
    -------
    seen : In(Seen)
    pop : In(1)
        The row leaves.
    done : Out(1)
        All were looked at, and none is missing: in the cycle of the result that says so, and on.
    """

    def __init__(self, layout, n_chunks):
        self.n_chunks = n_chunks
        super().__init__({"seen": In(Seen(layout, n_chunks)), "pop": In(1), "done": Out(1)})

    def elaborate(self, platform):
        m = Module()
        seen, at = self.seen, self.seen.passing.at
        first, last = Signal(len(at.chunk)), Signal(len(at.chunk))  # chunks looked at so far
        missing, walked = Signal(bits(self.n_chunks)), Signal()
        mine = Signal()
        within = (at.chunk >= first) & (at.chunk <= last)
        close = _closes(m, seen, within, mine)
        m.d.comb += mine.eq(seen.passing.look & at.wide)
        with m.If(mine):
            m.d.sync += last.eq(at.chunk)
            with m.If(at.fresh):
                m.d.sync += first.eq(at.chunk)
        ends, none_left = Signal(), Signal()
        m.d.comb += [
            ends.eq(seen.look & seen.wide & seen.end),
            none_left.eq(missing == 0),
            self.done.eq((walked | ends) & none_left),
        ]
        with m.If(seen.look & seen.wide):
            m.d.sync += missing.eq(Mux(seen.fresh, 0, missing) + ~seen.satisfied)
            m.d.comb += none_left.eq(seen.satisfied & (missing == 0))
        with m.Elif(close):
            m.d.sync += missing.eq(missing - 1)
            m.d.comb += none_left.eq(missing == 1)
        m.d.sync += walked.eq(~self.pop & (walked | ends))
        return m


class RowWindow(wiring.Component):
    """Looks at the chunks of up to `N_SLOTS` rows, and offers the oldest once it is ready.

    A row of one chunk, or one that waits for nothing, takes one look; others take one per chunk,
    and only one of those is here at a time. A row whose last look, or last event, was taken in
    cycle t is `ready` in t + 5.

    Members
    -------
    rows : In(stream.Signature(Row))
    looks : Out(stream.Signature(Look)); passing, result, grew, finished : In
        To and from `ChunkBook`.
    head : Out(Row)
        The oldest row. present : Out(1), there is one. ready : Out(1), it may leave; held :
        Out(1), it waits for nothing, but its ``hold`` is set.
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
        room = Signal(range(N_SLOTS + 1), init=N_SLOTS)
        end = self._walk(m, tail, room)
        m.d.sync += room.eq(room - end + self.pop)
        m.d.comb += self.present.eq(room != N_SLOTS)
        with m.If(end):
            m.d.sync += tail.eq(tail + 1)
        with m.If(self.pop):
            m.d.sync += head.eq(head + 1)

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
        past = Signal(self.passing.shape(), reset_less=True)
        enough = Mux(past.at.gather, self.result.final, self.result.added >= past.at.wait)
        m.d.sync += past.eq(self.passing)
        m.d.comb += [
            seen.passing.eq(self.passing),
            seen.look.eq(past.look),
            seen.satisfied.eq(past.at.free | enough),
            seen.grew.eq(self.grew),
            seen.finished.eq(self.finished),
            seen.added.eq(self.result.added),
        ]
        m.d.comb += [seen[name].eq(past.at[name]) for name in ("fresh", "end", "wide")]
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
                slot.spread.eq(spread.done),
                slot.pop.eq(self.pop & first[k]),
            ]
        m.d.comb += [
            self.ready.eq((Cat(slot.ready for slot in slots) & first).any()),
            self.held.eq((Cat(slot.held for slot in slots) & first).any()),
        ]
        return m

    def _walk(self, m, tail, room):
        """Looks at the chunks of the row at `rows`, one after the other; whether this is its last.

        A row begins if there was room for two in the cycle before, and if it has several chunks,
        no other such row was inside.
        """
        m.submodules.slice = ahead = Slice(self.looks.p.shape())
        row, look = self.rows.p, ahead.i.p
        fresh = Signal(init=1)
        open, open_wide, wide_inside = Signal(), Signal(), Signal()
        chunk = Signal(len(look.chunk))  # of the next look, if it is not the row's first
        n_left = Signal(len(row.message.count))  # looks after that one
        final, end = Signal(), Signal()
        m.d.sync += [open.eq(room >= 2), open_wide.eq((room >= 2) & ~wide_inside)]
        m.d.comb += [
            ahead.i.valid.eq(self.rows.valid & (~fresh | Mux(row.single, open, open_wide))),
            look.chunk.eq(Mux(fresh, row.message.first, chunk)),
            look.slot.eq(tail),
            look.fresh.eq(fresh),
            look.end.eq(Mux(fresh, row.single, final)),
            look.wide.eq(~row.single),
            look.gather.eq(row.message.gather),
            look.free.eq(row.free),
            look.hold.eq(row.hold),
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
