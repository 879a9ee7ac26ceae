"""Cuts payloads into rows of the store: one row per cycle, or one beat where that is slower.

Part of `gradnic.hdl.aggregation.unit`, whose golden model it follows.
"""

from types import SimpleNamespace

from amaranth.hdl import Cat, Const, Module, Mux, Shape, Signal, signed
from amaranth.lib import data, stream, wiring
from amaranth.lib.wiring import In, Out

from ..primitive.names import signals
from ..stream.beats import Beat
from ..stream.delays import copied, delayed
from ..stream.steering import chunks
from .slot_records import SATURATE, Kind, Sizes, Task, chosen

GAP = 8  # cycles from a row's read to the first cycle in which its new value can be read
UNITS = 4  # units of a beat, of one bit per lane each
NEAR = 4  # columns whose orders come from the same registers


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


def at_most(value, n):
    """``value <= n`` for a constant, without a carry chain."""
    result = Const(1)
    for k, bit in enumerate(value):
        result = ~bit | result if n >> k & 1 else ~bit & result
    return result


class SlotRows(wiring.Component):
    """Takes tasks in order, and with each its payload: orders for rows, and the rows' bits.

    A row leaves in each cycle in which its last beat is there; a payload that is to be ignored
    goes by at a beat a cycle. A task with rows takes at least `GAP` cycles, so that no row is
    read before the task before has written it. Nothing behind can stall.

    Parameters
    ----------
    sizes : Sizes
    n_columns : int
        Columns of the store, with an order each, all the same.

    Members
    -------
    tasks, values : see `SlotAdder`
    open : In(1)
        There is room for the rows and the answer of one more task.
    loads, following, task : Out(1), Out(Task), Out(Task)
        A task has begun with this cycle; that task; the one of the order to come.
    orders : Out(ArrayLayout(Order(sizes), n_columns))
        Two cycles behind their step.
    indices, row : Out(bits of the largest row of indices), Out(sizes.row_bits)
        ``latency`` cycles behind their order: in the order of the bit stream, rows of fewer bits
        at the upper end; and the row's beats as they came.
    """

    latency = 1

    def __init__(self, sizes: Sizes, n_columns: int) -> None:
        self.sizes, self.n_columns = sizes, n_columns
        self.units = sizes.index_units
        super().__init__(
            {
                "tasks": In(stream.Signature(Task(sizes.place_width))),
                "values": In(stream.Signature(Beat(8 * sizes.n_bytes))),
                "open": In(1),
                "loads": Out(1),
                "following": Out(Task(sizes.place_width)),
                "task": Out(Task(sizes.place_width)),
                "orders": Out(data.ArrayLayout(Order(sizes), n_columns)),
                "indices": Out(self.units * sizes.lanes),
                "row": Out(sizes.row_bits),
            }
        )

    def elaborate(self, platform):
        m = Module()
        sizes, values = self.sizes, self.values
        adding, draining, reading, ending, drained = (
            Signal(name=name) for name in ("adding", "draining", "reading", "ending", "drained")
        )
        working, free = signals("working free")
        emits, words = signals("emits words")  # of the task that is being worked on
        wait = Signal(range(GAP))  # cycles until the next task may begin
        left = Signal(16)  # elements, this row's too
        number = Signal(sizes.row_width)
        dry = Signal()  # the payload's last beat was taken
        # the row that is due is the last; the GAP-th, or more; both
        last_row, long, last_long = signals("last_row long last_long")
        # a row is made in this cycle; a row is, if a beat comes in
        sure, if_beat = signals("sure if_beat")

        row, finishes, stops = signals("row finishes stops")
        loads, open_before = signals("loads open_before")
        ready, following = self._ahead(m, loads)
        m.d.sync += open_before.eq(self.open)
        m.d.comb += [
            row.eq(sure | (if_beat & values.valid)),
            loads.eq(ready & open_before & (free | (last_long & row))),
            stops.eq(row & last_row),
            finishes.eq(stops | ending),
        ]
        kind_bits = Mux(following.kind == Kind.INDEX, following.bits, sizes.width - 1)
        units = self._count_units(m, loads, kind_bits, adding, values.valid | dry)
        m.d.comb += values.ready.eq(~dry & ((adding & ~units.enough) | draining))
        takes_last = values.valid & values.ready & values.p.last
        per_row = Mux(words, sizes.row_words, sizes.lanes)
        then_last = Mux(
            words, at_most(left, 2 * sizes.row_words), at_most(left, 2 * sizes.lanes)
        )  # the next row is the last
        m.d.sync += [
            free.eq(~loads & ~working & (wait == 0)),
            drained.eq(draining & (dry | takes_last)),
            sure.eq(
                ~stops & (reading | (drained & emits)
                          | (units.steps & (units.then_enough
                                            | (units.then_fits & (dry | takes_last)))))
            ),
            if_beat.eq(~stops & adding & Mux(units.steps, units.then_fits, units.fits)),
        ]  # fmt: skip
        with m.If(takes_last):
            m.d.sync += dry.eq(1)
        with m.If(row):
            m.d.sync += [
                left.eq(left - per_row),
                last_row.eq(then_last),
                number.eq(number + 1),
                long.eq(number >= GAP - 2),
                last_long.eq(then_last & (number >= GAP - 2)),
            ]
        with m.If(draining & (dry | takes_last)):
            m.d.sync += draining.eq(0)
        with m.If(drained):
            m.d.sync += [reading.eq(emits), ending.eq(~emits)]
        with m.If(finishes):
            m.d.sync += [working.eq(0), adding.eq(0), reading.eq(0), ending.eq(0)]
        with m.If(stops & ~long):
            m.d.sync += wait.eq(GAP - 2 - number)
        with m.Elif(wait != 0):
            m.d.sync += wait.eq(wait - 1)
        with m.If(loads):
            p = following
            m.d.sync += [
                working.eq(1),
                adding.eq(p.adds),
                draining.eq(p.takes & ~p.adds),
                reading.eq(~p.takes & p.emits),
                ending.eq(~p.takes & ~p.emits),
                emits.eq(p.emits),
                words.eq(p.kind[1]),
                sure.eq(~p.takes & p.emits),
                if_beat.eq(p.adds & (kind_bits < UNITS)),
                left.eq(p.elems),
                last_row.eq(p.elems <= Mux(p.kind[1], sizes.row_words, sizes.lanes)),
                last_long.eq(0),
                number.eq(0),
                long.eq(0),
                dry.eq(0),
            ]
        self._order(m, row, finishes, number, last_row, left, loads)
        self._window(m, units.shifts, units.behind)
        return m

    def _ahead(self, m, loads):
        """The task to come: (it is there, the task). It stays for one cycle after it was loaded."""
        tasks, following = self.tasks, self.following
        whole = following.as_value()
        flags = []
        for start, stop in [(0, 0), *chunks(len(whole))]:  # the first one steers nothing wide
            ready = Signal(name=f"ready{start}_{stop}", attrs={"keep_register": 1})
            with m.If(~ready):
                m.d.sync += [
                    ready.eq(tasks.valid),
                    whole[start:stop].eq(tasks.p.as_value()[start:stop]),
                ]
            with m.Elif(loads):
                m.d.sync += ready.eq(0)
            flags.append(ready)
        m.d.comb += tasks.ready.eq(~flags[0])
        return flags[0], following

    def _order(self, m, row, finishes, number, last_row, left, loads):
        """A step becomes an order: what kind of row it is, the task says a cycle later."""
        m.d.sync += self.loads.eq(loads)
        with m.If(self.loads):
            m.d.sync += self.task.eq(self.following)
        step = Cat(row, finishes, last_row, number, left)
        for start in range(0, self.n_columns, NEAR):
            order = self._order_of(m, start, copied(m, step, 1, name=f"step{start}_")[0])
            for k in range(start, min(start + NEAR, self.n_columns)):
                held = Signal(order.shape(), name=f"order{k}", attrs={"keep_register": 1})
                m.d.sync += held.eq(order)
                m.d.comb += self.orders[k].eq(held)

    def _order_of(self, m, start, step):
        """An order from what is known of the step and of its task, in registers of its own."""
        sizes, order = self.sizes, Signal(Order(self.sizes), name=f"order_of{start}")
        known = data.StructLayout(
            {
                "place": sizes.place_width,
                "job": 4,
                "kind": Shape.cast(Kind).width,
                "bits": 3,
                **dict.fromkeys(("adds", "first", "emits", "saturates"), 1),
            }
        )
        task = Signal(known, name=f"task{start}", attrs={"keep_register": 1})
        with m.If(self.loads):
            m.d.sync += [
                *(
                    task[name].eq(self.following[name])
                    for name in ("place", "job", "kind", "bits", "adds", "first", "emits")
                ),
                task.saturates.eq(self.following.overflow == SATURATE),
            ]
        row, final, last, step = step[0], step[1], step[2], step[3:]
        number, left = step[: sizes.row_width], step[sizes.row_width :]
        m.d.comb += [
            order.row.eq(row),
            order.final.eq(final),
            order.address.eq(Cat(number, task.place)),
            order.words.eq(Mux(task.kind[1] & last, left, sizes.row_words)),
            *(
                order[name].eq(task[name])
                for name in ("adds", "first", "emits", "job", "kind", "bits", "saturates")
            ),
        ]
        return order

    def _count_units(self, m, loads, bits, adding, arrives):
        """Units in the window that belong to no row yet: flags of this step and of the next.

        enough, fits : as many as a row has; so with a beat more. then_ : after this step.
        steps, shifts : a step is made in this cycle; a beat comes in. behind : units after it.
        """
        size = Signal(5)
        # twice the size, less 0, 4 and 8, and the size less 8: what the next row's flags compare to
        twice = [Signal(signed(7), name=f"twice_less{UNITS * k}") for k in range(3)]
        less = Signal(signed(7))
        enough, fits, then_enough, then_fits = (
            Signal(name=name) for name in ("enough", "fits", "then_enough", "then_fits")
        )
        steps, shifts = signals("steps shifts")
        behind = Signal(5)
        m.d.comb += [
            steps.eq(adding & (enough | arrives)),
            shifts.eq(adding & ~enough & arrives),
        ]
        with m.If(steps):
            m.d.sync += [
                enough.eq(then_enough),
                fits.eq(then_fits),
                behind.eq(
                    Mux(then_enough, behind - size,
                        Mux(then_fits, behind + (UNITS - size), behind + UNITS))
                ),
                then_enough.eq(
                    Mux(then_enough, behind >= twice[0], then_fits & (behind >= twice[1]))
                ),
                then_fits.eq(
                    Mux(then_enough, behind >= twice[1],
                        Mux(then_fits, behind >= twice[2], behind >= less))
                ),
            ]  # fmt: skip
        with m.If(loads):
            fits_at_once = bits < UNITS
            rest = Mux(fits_at_once, UNITS - 1 - bits, UNITS)  # behind the first step
            m.d.sync += [
                size.eq(bits + 1),
                enough.eq(0),
                fits.eq(fits_at_once),
                behind.eq(rest),
                then_enough.eq(rest > bits),
                then_fits.eq(rest + UNITS > bits),
                less.eq(bits + 1 - 2 * UNITS),
                *(t.eq(2 * (bits + 1) - UNITS * k) for k, t in enumerate(twice)),
            ]
        return SimpleNamespace(
            enough=enough, fits=fits, then_enough=then_enough, then_fits=then_fits,
            steps=steps, shifts=shifts, behind=behind,
        )  # fmt: skip

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
