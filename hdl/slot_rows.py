"""Cuts payloads into rows of the store: one row per cycle, or one beat where that is slower."""

from amaranth.hdl import Cat, Module, Mux, Shape, Signal, signed
from amaranth.lib import data, stream, wiring
from amaranth.lib.wiring import In, Out

from .fifo import chunks
from .pipeline import delayed
from .slot_types import SATURATE, Kind, Task, chosen
from .streams import Beat

GAP = 6  # cycles from a row's read to the first cycle in which its new value can be read
UNITS = 4  # units of a beat, of one bit per lane each


def Order(sizes):
    """Shape of what is to be done with a row; at the end of a task, perhaps with none."""
    return data.StructLayout(
        {
            "row": 1,
            "address": sizes.place_width + sizes.row_width,
            "adds": 1,
            "first": 1,
            "emits": 1,
            "final": 1,  # the task ends here
            "job": 4,
            "kind": Shape.cast(Kind).width,
            "bits": 3,
            "saturates": 1,
            "words": range(sizes.row_words + 1),  # words of the row that belong to the payload
        }
    )


class SlotRows(wiring.Component):
    """Takes tasks in order, and with each its payload: orders for rows, and the rows' bits.

    A row leaves in each cycle in which its last beat is there; a payload that is to be ignored
    goes by at a beat a cycle. A task with rows takes at least `GAP` cycles, so that no row is
    read before the task before has written it. Nothing behind can stall.

    Parameters
    ----------
    sizes : Sizes

    Members
    -------
    tasks, values : see `SlotAdder`
    open : In(1)
        There is room for the rows and the answer of one more task.
    loads, following, task : Out(1), Out(Task), Out(Task)
        A task begins with the next cycle; that task; the one that is being worked on.
    order : Out(Order(sizes))
        Registered: one cycle behind its step.
    indices, row : Out(bits of the largest row of indices), Out(sizes.row_bits)
        ``latency`` cycles behind their order: in the order of the bit stream, rows of fewer bits
        at the upper end; and the row's beats as they came.
    """

    latency = 2

    def __init__(self, sizes):
        self.sizes = sizes
        self.units = sizes.index_units
        super().__init__(
            {
                "tasks": In(stream.Signature(Task(sizes.place_width))),
                "values": In(stream.Signature(Beat(8 * sizes.n_bytes))),
                "open": In(1),
                "loads": Out(1),
                "following": Out(Task(sizes.place_width)),
                "task": Out(Task(sizes.place_width)),
                "order": Out(Order(sizes)),
                "indices": Out(self.units * sizes.lanes),
                "row": Out(sizes.row_bits),
            }
        )

    def elaborate(self, platform):
        m = Module()
        sizes, task, values = self.sizes, self.task, self.values
        working, adding, draining, reading, ending = (
            Signal(name=name) for name in ("working", "adding", "draining", "reading", "ending")
        )
        wait = Signal(range(GAP))  # cycles until the next task may begin
        left, per_row, two_rows = Signal(16), Signal(16), Signal(16)  # elements, this row's too
        number = Signal(sizes.row_width)
        dry = Signal()  # the payload's last beat was taken
        last_row, long = Signal(), Signal()  # the row that is due is the last; the GAP-th, or more

        arrives, row, finishes = Signal(), Signal(), Signal()
        takes = values.valid & values.ready
        m.d.comb += arrives.eq(values.valid | dry)
        enough, fits, shifts, behind = self._count_units(m, adding, arrives)
        m.d.comb += [
            values.ready.eq(~dry & ((adding & ~enough) | draining)),
            row.eq(reading | (adding & (enough | (fits & arrives)))),
            finishes.eq((row & last_row) | ending),
        ]
        with m.If(takes):
            m.d.sync += dry.eq(values.p.last)
        with m.If(row):
            m.d.sync += [
                left.eq(left - per_row),
                last_row.eq(left <= two_rows),
                number.eq(number + 1),
                long.eq(number >= GAP - 2),
            ]
        with m.If(draining & (dry | (takes & values.p.last))):
            m.d.sync += [draining.eq(0), reading.eq(task.emits), ending.eq(~task.emits)]
        with m.If(finishes):
            m.d.sync += [working.eq(0), adding.eq(0), reading.eq(0), ending.eq(0)]
        with m.If(finishes & ~ending & ~long):
            m.d.sync += wait.eq(GAP - 2 - number)
        with m.Elif(wait != 0):
            m.d.sync += wait.eq(wait - 1)

        ready, following = self._ahead(m)
        m.d.comb += self.loads.eq(
            ready & self.open & Mux(working, finishes & (long | ending), wait == 0)
        )
        with m.If(self.loads):
            p = following
            m.d.sync += [
                task.eq(p),
                working.eq(1),
                adding.eq(p.adds),
                draining.eq(p.takes & ~p.adds),
                reading.eq(~p.takes & p.emits),
                ending.eq(~p.takes & ~p.emits),
                left.eq(p.elems),
                per_row.eq(Mux(p.kind[1], sizes.row_words, sizes.lanes)),
                two_rows.eq(Mux(p.kind[1], 2 * sizes.row_words, 2 * sizes.lanes)),
                last_row.eq(p.elems <= Mux(p.kind[1], sizes.row_words, sizes.lanes)),
                number.eq(0),
                long.eq(0),
                dry.eq(0),
            ]

        order = self.order
        m.d.sync += [
            order.row.eq(row),
            order.final.eq(finishes),
            order.address.eq(Cat(number, task.place)),
            order.adds.eq(task.adds),
            order.first.eq(task.first),
            order.emits.eq(task.emits),
            order.job.eq(task.job),
            order.kind.eq(task.kind),
            order.bits.eq(task.bits),
            order.saturates.eq(task.overflow == SATURATE),
            order.words.eq(Mux(last_row, left, per_row)),
        ]
        self._window(m, shifts, behind)
        return m

    def _ahead(self, m):
        """The task to come: (it is there, the task)."""
        ready = Signal()
        following = Signal(self.task.shape(), name="following", reset_less=True)
        m.d.comb += [self.following.eq(following), self.tasks.ready.eq(~ready)]
        with m.If(~ready):
            m.d.sync += [ready.eq(self.tasks.valid), following.eq(self.tasks.p)]
        with m.Elif(self.loads):
            m.d.sync += ready.eq(0)
        return ready, following

    def _count_units(self, m, adding, arrives):
        """Units in the window that belong to no row yet: (as many as a row has, with a beat more
        as many, a beat comes in, units behind this row)."""
        size, units = Signal(5), Signal(5)
        # twice the size, less 0, 4 and 8, and the size less 8: what the next row's flags compare to
        twice = [Signal(signed(7), name=f"twice_less{UNITS * k}") for k in range(3)]
        less = Signal(signed(7))
        enough, fits, shifts, behind = Signal(), Signal(), Signal(), Signal(5)
        fewer, beside, more = units - size, units - size + UNITS, units + UNITS
        m.d.comb += [
            shifts.eq(adding & ~enough & arrives),
            behind.eq(Mux(enough, fewer, Mux(fits, beside, more))),
        ]
        with m.If(adding & (enough | arrives)):
            m.d.sync += [
                units.eq(behind),
                enough.eq(Mux(enough, units >= twice[0], fits & (units >= twice[1]))),
                fits.eq(
                    Mux(enough, units >= twice[1], Mux(fits, units >= twice[2], units >= less))
                ),
            ]
        with m.If(self.loads):
            p = self.following
            bits = Mux(p.kind == Kind.INDEX, p.bits, self.sizes.width - 1)
            m.d.sync += [units.eq(0), size.eq(bits + 1), enough.eq(0), fits.eq(bits < UNITS)]
            m.d.sync += [less.eq(bits + 1 - 2 * UNITS)]
            m.d.sync += [t.eq(2 * (bits + 1) - UNITS * k) for k, t in enumerate(twice)]
        return enough, fits, shifts, behind

    def _window(self, m, shifts, behind):
        """The last beats, and the two kinds of rows that end with the last one of them."""
        sizes, lanes = self.sizes, self.sizes.lanes
        size = 8 * sizes.n_bytes
        n_beats = max(self.units // UNITS + 1, sizes.width // 4)
        beat = Signal(size, reset_less=True)
        window = Signal(n_beats * size, reset_less=True)
        m.d.sync += beat.eq(self.values.p.data)
        for start, stop in chunks(size):
            shifted, place = (
                Signal(width, name=f"{name}{start}", reset_less=True, attrs={"keep_register": 1})
                for name, width in (("shifted", 1), ("place", 2))
            )
            m.d.sync += shifted.eq(shifts)
            with m.If(shifted):
                for k in range(n_beats):
                    new = window[(k + 1) * size :] if k < n_beats - 1 else beat
                    m.d.sync += window[k * size + start : k * size + stop].eq(new[start:stop])
            m.d.sync += place.eq(delayed(m, behind[:2], 1, name=f"behind{start}"))
            for k in range(self.units // UNITS):
                at = slice(k * size + start, k * size + stop)
                m.d.sync += self.indices[at].eq(
                    chosen(
                        [
                            _stream_order(window[-self.indices.shape().width - n * lanes :])[at]
                            for n in range(UNITS)
                        ],
                        place,
                    )
                )
        m.d.sync += self.row.eq(window[-sizes.row_bits :])


def _stream_order(octets):
    """Bits of a beat in the order of a stream that fills bytes from their top."""
    return Cat(octets[i ^ 7] for i in range(len(octets)))
