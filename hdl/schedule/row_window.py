"""Rows that wait: each remembers what is still missing, the oldest leaves first.

Part of `gradnic.hdl.schedule.scheduler`, whose golden model it follows.
"""

from amaranth.hdl import Cat, Module, Mux, Signal
from amaranth.lib import data, stream, wiring
from amaranth.lib.wiring import In, Out

from gradnic.interface.schedule_table import Layout, bits

from ..primitive.names import signals
from ..primitive.same import same
from ..stream.admission import credit
from ..stream.slice import Slice
from .chunk_book import Access, Look, State
from .row_reader import Row

N_SLOTS = 9  # rows that are looked at ahead: what one that waits for nothing needs from row to row


def Seen(layout, n_chunks: int):
    """Shape of what rows are told of an access: `coming`, then `passing`, and then the rest.

    result : state of the chunk after it. grew, finished : a contribution was counted; the chunk
    became final.
    """
    return data.StructLayout(
        {
            "coming": Access(layout, n_chunks, N_SLOTS),
            "passing": Access(layout, n_chunks, N_SLOTS),
            "result": State(layout),
            "grew": 1,
            "finished": 1,
        }
    )


class Slot(wiring.Component):
    """One waiting row; of a row with several chunks, whose state is in `Spread`, nothing.

    A chunk with more contributions than the row waits for never is ready.

    Members
    -------
    seen : In(Seen)
    pop : In(1)
        The row left in the cycle before.
    done, held : Out(1)
        Nothing is missing, 5 cycles after the last event or the look was taken; done is of rows
        that may leave then, held of those with ``hold``.
    """

    def __init__(self, layout: Layout, n_chunks: int, k: int) -> None:
        self.k = k
        members = {"seen": In(Seen(layout, n_chunks)), "pop": In(1)}
        super().__init__(members | {"done": Out(1), "held": Out(1)})

    def elaborate(self, platform):
        m = Module()
        coming, passing, result = self.seen.coming, self.seen.passing, self.seen.result
        at = passing.at
        chunk = Signal(len(at.chunk), reset_less=True)
        wait = Signal(len(at.wait), reset_less=True)
        gather, hold = signals("gather hold", reset_less=True)
        narrow = Signal()  # there is a row, of one chunk
        place = Signal(reset_less=True)  # the access that passes is one to its chunk
        loads, mine, enough = signals("loads mine enough")
        # the access makes the row ready: at this count; if the chunk is final; whatever comes
        counts, finals, sure = signals("counts finals sure")
        m.d.comb += [
            loads.eq(passing.look & at.slot[self.k]),
            mine.eq(place & narrow & ~self.pop),
            enough.eq((counts & (result.added == wait)) | (finals & result.final) | sure),
        ]
        m.d.sync += [
            place.eq(coming.at.chunk == chunk),
            counts.eq((loads & ~at.gather & ~at.free) | (mine & ~gather & passing.add)),
            finals.eq(loads & at.gather),
            sure.eq((loads & at.free) | (mine & gather & passing.finish)),
            self.done.eq(~self.pop & (self.done | (enough & ~hold))),
            self.held.eq(~self.pop & (self.held | (enough & hold))),
            narrow.eq(loads | (narrow & ~self.pop)),
        ]
        with m.If(coming.look & coming.at.slot[self.k]):
            m.d.sync += chunk.eq(coming.at.chunk)
        with m.If(loads):
            m.d.sync += [wait.eq(at.wait), gather.eq(at.gather), hold.eq(at.hold)]
        return m


class Spread(wiring.Component):
    """The one row with several chunks: counts those that were looked at and are not ready yet.

    Members
    -------
    seen : In(Seen)
    pop : In(1)
        The row left in the cycle before.
    done : Out(1)
        All were looked at, and none is missing: 5 cycles after the last event was taken, 6 after
        the last look.
    """

    def __init__(self, layout: Layout, n_chunks: int) -> None:
        self.n_chunks = n_chunks
        members = {"seen": In(Seen(layout, n_chunks)), "pop": In(1)}
        super().__init__(members | {"done": Out(1)})

    def elaborate(self, platform):
        m = Module()
        seen, at, next_at = self.seen, self.seen.passing.at, self.seen.coming.at
        first = Signal(len(at.chunk), reset_less=True)  # chunks looked at so far: first to last
        last = Signal(len(at.chunk), reset_less=True)
        wait = Signal(len(at.wait), reset_less=True)
        gather = Signal(reset_less=True)
        within = Signal(reset_less=True)
        mine, equal, enough = signals("mine equal enough")
        fresh, end, looked = signals("fresh end looked")
        counts, ends = signals("counts ends", reset_less=True)
        m.d.comb += [
            mine.eq(seen.passing.look & at.wide),
            equal.eq(seen.result.added == wait),
            enough.eq(Mux(gather, seen.result.final, equal)),
        ]
        m.d.sync += [looked.eq(mine), fresh.eq(mine & at.fresh), end.eq(mine & at.end)]
        m.d.sync += within.eq((next_at.chunk >= first) & (next_at.chunk <= last))
        m.d.sync += counts.eq(within & ~gather & seen.passing.add)
        m.d.sync += ends.eq(within & gather & seen.passing.finish)
        with m.If(mine):
            m.d.sync += [wait.eq(at.wait), gather.eq(at.gather)]
        with m.If(seen.coming.look & next_at.wide):
            m.d.sync += last.eq(next_at.chunk)
            with m.If(next_at.fresh):
                m.d.sync += first.eq(next_at.chunk)

        # How many are missing: the sum is a cycle late, `opened` and `closed` are what it does not
        # have yet (one of them at most), flags that it was 0, 1, 2 or 3 are two cycles late, and
        # what this cycle's `open` and `close` make of it is known in the next
        late = Signal(bits(self.n_chunks), reset_less=True)
        open, close, walked = signals("open close walked")
        opened, closed, changed = signals("opened closed changed")
        was = Signal(4, reset_less=True)
        none, one = signals("none one", reset_less=True)
        m.d.comb += [
            open.eq(looked & ~enough),
            close.eq((counts & equal & seen.grew) | (ends & seen.finished)),
        ]

        def missing(is_it):
            """Function of n, that there were n of them, one event later."""
            return lambda n: Mux(closed, is_it(n + 1), Mux(opened, is_it(n - 1), is_it(n)))

        before = missing(lambda n: was[n] if n >= 0 else 0)
        m.d.sync += [
            opened.eq(open),
            closed.eq(close),
            changed.eq(open | close),
            late.eq(Mux(fresh, 0, late + Cat(changed, closed.replicate(len(late) - 1)))),
            none.eq(~open & (fresh | Mux(close, before(1), before(0)))),
            one.eq(Mux(open, fresh | before(0), ~fresh & Mux(close, before(2), before(1)))),
            walked.eq(~self.pop & (walked | end)),
            self.done.eq(~self.pop & (self.done | (walked & (none | (one & close))))),
        ]
        for n, flag in enumerate(was):
            known = missing(lambda n: late == n if n >= 0 else 0)
            m.d.sync += flag.eq(Mux(fresh, n == 0, known(n)))
        return m


class RowWindow(wiring.Component):
    """Looks at the chunks of up to `N_SLOTS` rows, and says when the oldest is ready.

    A row of one chunk, or one that waits for nothing, takes one look; others take one per chunk,
    and only one of those is here at a time.

    Members
    -------
    rows : In(stream.Signature(Row))
    entered, row : Out(1), Out(Row)
        The row enters: its last look is on its way.
    looks : Out(stream.Signature(Look)); coming, passing, result, grew, finished : In
        To and from `ChunkBook`.
    done, held : Out(1)
        The oldest row takes one look, and waits for nothing since 5 cycles after its last event or
        its look; held, if its ``hold`` is set, else done. next_done : Out(1), done of the row
        behind it. spread : Out(1), the row with several chunks waits for nothing.
    pop : In(1)
        The oldest row leaves. single : In(1), it takes one look.
    """

    def __init__(self, layout: Layout, depth: int, n_chunks: int) -> None:
        self.layout, self.n_chunks = layout, n_chunks
        super().__init__(
            {
                "rows": In(stream.Signature(Row(layout, depth, n_chunks))),
                "entered": Out(1),
                "row": Out(Row(layout, depth, n_chunks)),
                "looks": Out(stream.Signature(Look(layout, n_chunks, N_SLOTS))),
                "coming": In(Access(layout, n_chunks, N_SLOTS)),
                "passing": In(Access(layout, n_chunks, N_SLOTS)),
                "result": In(State(layout)),
                **{name: In(1) for name in ("grew", "finished", "pop", "single")},
                **{name: Out(1) for name in ("done", "held", "next_done", "spread")},
            }
        )

    def elaborate(self, platform):
        m = Module()
        first = Signal(N_SLOTS, init=1)  # the oldest row's slot
        popped, wide_leaves = signals("popped wide_leaves")
        m.d.sync += [popped.eq(self.pop), wide_leaves.eq(self.pop & ~self.single)]
        with m.If(self.pop):
            m.d.sync += first.eq(first.rotate_left(1))
        self._walk(m, wide_leaves)
        seen = Signal(Seen(self.layout, self.n_chunks))
        m.d.comb += same(seen, self, "coming passing result grew finished")
        m.submodules.wide = wide = Spread(self.layout, self.n_chunks)
        m.d.comb += [wide.seen.eq(seen), wide.pop.eq(wide_leaves), self.spread.eq(wide.done)]
        slots = [Slot(self.layout, self.n_chunks, k) for k in range(N_SLOTS)]
        for k, slot in enumerate(slots):
            m.submodules[f"slot{k}"] = slot
            m.d.comb += [
                slot.seen.eq(seen),
                slot.pop.eq(popped & first[(k + 1) % N_SLOTS]),
            ]
        done, held = Cat(slot.done for slot in slots), Cat(slot.held for slot in slots)
        m.d.comb += [
            self.done.eq((done & first).any()),
            self.next_done.eq((done & first.rotate_left(1)).any()),
            self.held.eq((held & first).any()),
        ]
        return m

    def _walk(self, m, wide_leaves):
        """Takes rows, and looks at their chunks one after the other.

        A row begins if there is a free slot, and if it has several chunks, no other such row is
        inside.
        """
        m.submodules.slice = ahead = Slice(self.looks.p.shape())
        row = Signal(self.row.shape(), reset_less=True)
        look = ahead.i.p
        present, final = signals("present final")  # there is a row; its next look is its last
        slot = Signal(N_SLOTS, init=1)
        fresh = Signal(init=1)
        wide_inside = Signal()
        # chunk of the next look, if it is not the row's first; looks after that one
        chunk = Signal(len(look.chunk), reset_less=True)
        n_left = Signal(len(row.message.count), reset_less=True)
        one_left = Signal(reset_less=True)
        before = Mux(fresh, row.message.count, n_left)
        goes, end, loads = signals("goes end loads")
        open = credit(m, N_SLOTS, take=end, give=self.pop, name="slots_free")
        m.d.comb += [
            ahead.i.valid.eq(present & open & (row.single | ~fresh | ~wide_inside)),
            look.chunk.eq(Mux(fresh, row.message.first, chunk)),
            look.slot.eq(Mux(row.single, slot, 0)),
            look.fresh.eq(fresh),
            look.end.eq(final),
            look.wide.eq(~row.single),
            look.gather.eq(row.message.gather),
            look.free.eq(row.free),
            look.hold.eq(row.hold),
            look.wait.eq(row.message.wait),
            goes.eq(ahead.i.valid & ahead.i.ready),
            end.eq(final & open & ahead.i.ready),
            loads.eq(end | ~present),
            self.rows.ready.eq(loads),
            self.entered.eq(end),
            self.row.eq(row),
        ]
        with m.If(loads):
            m.d.sync += [present.eq(self.rows.valid), row.eq(self.rows.p)]
        with m.If(end):
            m.d.sync += slot.eq(slot.rotate_left(1))
        nears = Mux(fresh, row.double, one_left)  # one look after this one
        m.d.sync += [
            wide_inside.eq((wide_inside & ~wide_leaves) | (goes & ~row.single)),
            final.eq(Mux(loads, self.rows.valid & self.rows.p.single, final | (goes & nears))),
        ]
        with m.If(goes):
            m.d.sync += [
                fresh.eq(final),
                chunk.eq(look.chunk + 1),
                n_left.eq(before - 1),
                one_left.eq(before == 2),
            ]
        wiring.connect(m, ahead.o, wiring.flipped(self.looks))
