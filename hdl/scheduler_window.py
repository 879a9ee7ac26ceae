"""Rows that wait: each remembers what is still missing, the oldest leaves first."""

from amaranth.hdl import Array, Module, Mux, Signal
from amaranth.lib import memory, stream, wiring
from amaranth.lib.wiring import In, Out

from gradnic.table import bits

from .scheduler_chunks import Access, Look, State
from .scheduler_rows import Row

N_SLOTS = 8  # rows that are looked at ahead; a row passes in 6 cycles


class Slot(wiring.Component):
    """One waiting row: counts those of its chunks that are not ready yet.

    Each look at one of its chunks finds it ready or opens it; each event that makes a chunk ready
    which was looked at before closes it. A contribution makes a chunk ready if it is the last one.

    Members
    -------
    mine : In(1)
        The look that passes is this row's.
    passing : In(Access). result, grew, finished, satisfied : In, one cycle later
        As from `ChunkBook`; satisfied: what was looked at was ready.
    pop : In(1)
        The row leaves; only if `ready`.
    ready : Out(1)
        Nothing is missing: 1 cycle after the result that says so.
    """

    def __init__(self, layout, n_chunks):
        self.layout, self.n_chunks = layout, n_chunks
        super().__init__(
            {
                "mine": In(1),
                "passing": In(Access(layout, n_chunks, N_SLOTS)),
                "result": In(State(layout)),
                "grew": In(1),
                "finished": In(1),
                "satisfied": In(1),
                "pop": In(1),
                "ready": Out(1),
            }
        )

    def elaborate(self, platform):
        m = Module()
        at = self.passing.at
        first, last = Signal(len(at.chunk)), Signal(len(at.chunk))  # chunks looked at
        gather, wait = Signal(), Signal(self.layout.wait)
        looked, hit = Signal(), Signal()
        fresh, end, walked = Signal(), Signal(), Signal()
        n_open = Signal(bits(self.n_chunks))
        within = (at.chunk >= first) & (at.chunk <= last)
        m.d.sync += [
            looked.eq(self.passing.look & self.mine),
            hit.eq(within & Mux(gather, self.passing.finish, self.passing.add)),
            fresh.eq(at.fresh),
            end.eq(at.end),
        ]
        with m.If(self.passing.look & self.mine):
            m.d.sync += [last.eq(at.chunk), gather.eq(at.gather), wait.eq(at.wait)]
            with m.If(at.fresh):
                m.d.sync += first.eq(at.chunk)
        close = Signal()
        m.d.comb += close.eq(
            hit & Mux(gather, self.finished, self.grew & (self.result.added == wait))
        )
        none_left = Signal()
        with m.If(looked):
            m.d.sync += n_open.eq(Mux(fresh, 0, n_open) + ~self.satisfied)
            m.d.comb += none_left.eq(self.satisfied & (fresh | (n_open == 0)))
        with m.Else():
            m.d.sync += n_open.eq(n_open - close)
            m.d.comb += none_left.eq(Mux(close, n_open == 1, n_open == 0))
        m.d.sync += [
            walked.eq(~self.pop & (walked | (looked & end))),
            self.ready.eq(~self.pop & (walked | (looked & end)) & none_left),
        ]
        return m


class RowWindow(wiring.Component):
    """Looks at the chunks of up to `N_SLOTS` rows, and offers the oldest once it is ready.

    A row of one chunk, or one that waits for nothing, takes one look; others one per chunk. A row
    whose last look, or last event, was taken in cycle t is `ready` in t + 5.

    Members
    -------
    rows : In(stream.Signature(Row))
    looks : Out(stream.Signature(Look)); passing, result, grew, finished : In
        To and from `ChunkBook`.
    head : Out(Row)
        The oldest row. present : Out(1), there is one. ready : Out(1), it waits for nothing.
    pop : In(1)
        It leaves; only if `ready`.
    """

    def __init__(self, layout, depth, n_chunks):
        self.layout, self.depth, self.n_chunks = layout, depth, n_chunks
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

        seen = Signal(self.passing.shape(), reset_less=True)
        satisfied = Signal()
        m.d.sync += seen.eq(self.passing)
        enough = Mux(seen.at.gather, self.result.final, self.result.added >= seen.at.wait)
        m.d.comb += satisfied.eq(seen.at.free | enough)
        readies = []
        for k in range(N_SLOTS):
            m.submodules[f"slot{k}"] = slot = Slot(self.layout, self.n_chunks)
            m.d.comb += [
                slot.mine.eq(self.passing.at.slot == k),
                slot.passing.eq(self.passing),
                slot.result.eq(self.result),
                slot.grew.eq(self.grew),
                slot.finished.eq(self.finished),
                slot.satisfied.eq(satisfied),
                slot.pop.eq(self.pop & (head == k)),
            ]
            readies.append(slot.ready)
        m.d.comb += self.ready.eq(Array(readies)[head])
        return m

    def _walk(self, m, tail, room):
        """Looks at the chunks of the row at `rows`, one after the other; whether this is its last.

        A row begins once there is room for it.
        """
        row, look = self.rows.p, self.looks.p
        fresh = Signal(init=1)
        chunk = Signal(len(look.chunk))  # of the next look, if it is not the row's first
        n_left = Signal(len(row.message.count))  # looks after that one
        final, end = Signal(), Signal()
        m.d.comb += [
            self.looks.valid.eq(self.rows.valid & (~fresh | (room != 0))),
            look.chunk.eq(Mux(fresh, row.message.first, chunk)),
            look.slot.eq(tail),
            look.fresh.eq(fresh),
            look.end.eq(Mux(fresh, row.single, final)),
            look.gather.eq(row.message.gather),
            look.free.eq(row.free),
            look.wait.eq(row.wait),
            end.eq(self.looks.valid & self.looks.ready & look.end),
            self.rows.ready.eq(end),
        ]
        with m.If(self.looks.valid & self.looks.ready):
            m.d.sync += [
                fresh.eq(look.end),
                chunk.eq(look.chunk + 1),
                n_left.eq(Mux(fresh, row.message.count, n_left) - 1),
                final.eq(Mux(fresh, row.double, n_left == 1)),
            ]
        return end
