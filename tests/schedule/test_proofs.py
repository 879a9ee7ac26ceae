"""Proofs of the scheduler: its offers keep, and none is made before what it waits for has come."""

import pytest
from amaranth.hdl import Assert, Assume, Cover, Module, Signal
from amaranth.lib import stream, wiring
from amaranth.lib.wiring import In, Out
from gradnic.hdl.schedule import row_window as scheduler_window
from gradnic.hdl.schedule import scheduler
from gradnic.hdl.schedule.chunk_book import EVENTS, ChunkBook
from gradnic.hdl.schedule.row_offer import RowOffer
from gradnic.hdl.schedule.row_reader import Row
from gradnic.sim.proof import formal

from gradnic.interface.schedule_table import Layout

LAYOUT = Layout(
    op=2, bar=1, repeat=1, flow=1, step=1, wait=2, rank=1, first=1, count=1, peer=1, n_sends=1
)
SETUP = {
    "rows": 2, "chunks": 2, "live": 2, "peers": 2, "repeats": 1, "iterations": 1, "watchdog": 9,
}  # fmt: skip
REACH = 27  # cycles from reset to an offer that was stalled once and is taken
DEPTH = 14  # of traces in which rows wait


class Waiting(wiring.Component):
    """Book, window and offer as the scheduler joins them; rows are those of a free input."""

    def __init__(self, window):
        chunk = stream.Signature(1)
        row = Row(LAYOUT, 2, 2)
        super().__init__(
            {
                **{name: In(chunk) for name in EVENTS},
                "rows": In(stream.Signature(row)),
                "heads": Out(stream.Signature(row)),
                "idle": In(1),
            }
        )
        self.begun = Signal()  # the memory of chunks is clear
        self.book = ChunkBook(LAYOUT, 2, window.N_SLOTS)
        self.window = window.RowWindow(LAYOUT, 2, 2)
        self.offer = RowOffer(LAYOUT, 2, 2, 1)

    def elaborate(self, platform):
        m = Module()
        m.submodules.book, m.submodules.window = book, window = self.book, self.window
        m.submodules.offer = offer = self.offer
        for name in EVENTS:
            wiring.connect(m, wiring.flipped(getattr(self, name)), getattr(book, name))
        wiring.connect(m, window.looks, book.looks)
        wiring.connect(m, wiring.flipped(self.rows), window.rows)
        m.d.comb += [
            book.running.eq(self.begun),
            book.chunks.eq(2),
            book.swap.eq(book.clean & ~self.begun),
        ]
        m.d.sync += self.begun.eq(self.begun | book.clean)
        m.d.comb += [
            getattr(window, name).eq(getattr(book, name))
            for name in ("coming", "passing", "result", "grew", "finished")
        ]
        m.d.comb += [
            getattr(offer, name).eq(getattr(window, name))
            for name in ("done", "held", "next_done", "spread")
        ]
        m.d.comb += [
            window.pop.eq(offer.pop),
            window.single.eq(offer.oldest.single),
            offer.entered.eq(window.entered),
            offer.row.eq(window.row),
            offer.idle.eq(self.idle),
            self.heads.valid.eq(offer.issues.valid),
            self.heads.p.eq(offer.oldest),
            offer.issues.ready.eq(self.heads.ready),
        ]
        return m


class OrderProof(formal.Harness):
    """No row may leave before the contributions, or the final values, of its chunks have come.

    The solver picks one chunk, and its events are counted; they stay in memory over a reset.
    """

    def describe(self, m):
        dut, row, head = self.component, self.component.rows.p, self.component.heads
        chunk = Signal()
        self.free.append(chunk)
        chosen, picked = Signal(reset_less=True), Signal(reset_less=True)
        m.d.sync += [chosen.eq(chunk), picked.eq(1)]
        n_added, final = Signal(3, reset_less=True), Signal(reset_less=True)

        def comes(port):
            return dut.begun & port.valid & port.ready & (port.payload == chunk)

        m.d.sync += [
            n_added.eq(n_added + (comes(dut.added) & (n_added != 7))),
            final.eq(final | comes(dut.finals)),
        ]
        message = row.message
        free = row.nop | (~message.gather & (message.wait == 0))
        m.d.comb += [
            Assume(~picked | (chosen == chunk)),
            Assume(dut.begun | ~dut.rows.valid),
            Assume(row.free == free),
            Assume(row.single == (free | (message.count == 0))),
            Assume(row.double == (message.count == 1)),
            Assume(message.first + message.count < 2),
        ]
        message = head.p.message
        covers = (message.first <= chunk) & (chunk <= message.first + message.count)
        concerns = head.valid & covers & ~head.p.nop
        m.d.comb += [
            Assert(~concerns | message.gather | (n_added >= message.wait), "a row left too early"),
            Assert(~concerns | ~message.gather | final, "a gather left too early"),
            Cover(concerns & (message.wait == 2) & (message.count == 1), "two chunks are there"),
        ]


def component():
    return scheduler.Scheduler(LAYOUT, depth=2, n_chunks=2, n_ports=1)


def constants(dut):
    return {"setup": dut.setup.shape().const(SETUP)}


def test_offers_keep():
    """Rules 1 to 4, for all time."""
    dut = component()
    result = formal.prove(formal.Harness(dut, constant=constants(dut)), k=2, cover_depth=REACH)
    assert (result.method, result.n_covers) == ("induction", 2)


def small(*texts):
    """The window with three slots, and what else is changed in it."""
    return formal.twin(scheduler_window, "N_SLOTS = 9", "N_SLOTS = 3", *texts)


def test_rows_wait():
    """In all traces of 14 cycles, of a window of three rows."""
    formal.check(OrderProof(Waiting(small()), keep=False), depth=DEPTH)


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("(counts & (result.added == wait))", "counts"),
        ("& (walked | end)", "& (walked | looked)"),
        ("first.rotate_left(1)).any()", "first).any()"),
    ],
)
def test_a_seeded_bug_is_seen(old, new):
    harness = OrderProof(Waiting(small(old, new)), keep=False)
    assert "too early" in formal.refute(harness, depth=DEPTH)
