"""The way out of the scheduler: the oldest row, on offer once it may leave.

Part of `gradnic.hdl.schedule.scheduler`, whose golden model it follows.
"""

from amaranth.hdl import Cat, Module, Mux, ResetInserter, Signal
from amaranth.lib import stream, wiring
from amaranth.lib.wiring import In, Out

from gradnic.interface.schedule_table import Layout

from ..primitive.names import signals
from .row_reader import Message, Row, Setup, row_queue

KEPT = {"keep_register": 1}
SETTLED = 3  # cycles from a message's start to ports that show it


def countdown(m: Module, start, load, *, until: int, name: str) -> Signal:
    """Flag, a register: a counter was at `until`, which is below 3, in the cycle before.

    The counter is at `start` a cycle after `load`, and one less after each cycle without. It has
    two halves, so that no carry is long: the upper one follows a cycle later. Whether all but the
    last two bits of a half are 0 is known a cycle before it matters.
    """
    half = len(start) // 2
    low = Signal(half, name=f"{name}_low", reset_less=True)
    high = Signal(len(start) - half, name=f"{name}_high", reset_less=True)
    borrow, hit = Signal(name=f"{name}_borrow", reset_less=True), Signal(name=f"{name}_hit")
    starts_low, is_low, starts_short, is_short = (
        Signal(name=f"{name}_{flag}", reset_less=True)
        for flag in ("starts_low", "is_low", "starts_short", "is_short")
    )
    m.d.sync += [
        low.eq(Mux(load, start[:half], low - 1)),
        high.eq(Mux(load, start[half:], high - borrow)),
        starts_low.eq(start[2:half] == 0),
        starts_short.eq(start[half:] == 0),
        is_low.eq(Mux(load, starts_low, low[2:] == 0)),
        is_short.eq(Mux(load, starts_short, high == 0)),
        borrow.eq(~load & is_low & (low[:2] == 0)),
        hit.eq(~load & is_low & is_short & (low[:2] == until)),
    ]
    return hit


class RowOffer(wiring.Component):
    """Queue of the rows in the window; the oldest is offered once it is done and not held.

    A row that is done in cycle t is offered in t + 1, and while its offer is taken the next one is
    chosen, so that one leaves in each cycle. A row with several chunks is chosen once it is the
    oldest. Held rows leave when all ports are idle: they are on offer 3 cycles later. NOP rows are
    held rows that vanish, ``step_cycles`` per step later; at once if ``step_cycles`` is 0.

    Members
    -------
    entered, row : In(1), In(Row)
        A row enters the window; fewer than 16 are here.
    done, held, next_done, spread : In(1)
        Of `RowWindow`.
    flush : In(1)
        All rows vanish; an offer is kept until it is taken.
    setup : In(Setup)
    idle : In(n_ports)
    issues : Out(stream.Signature(Message))
    pop : Out(1)
        The oldest row leaves.
    oldest, present : Out(Row), Out(1)
        The oldest row, if there is one since two cycles or more.
    quiet : Out(1)
        All ports are idle, `SETTLED` cycles after the last message. counting : Out(1), time of a
        NOP row passes.
    """

    def __init__(self, layout: Layout, depth: int, n_chunks: int, n_ports: int) -> None:
        row = Row(layout, depth, n_chunks)
        super().__init__(
            {
                "row": In(row),
                **dict.fromkeys(("entered", "done", "held", "next_done", "spread"), In(1)),
                "flush": In(1),
                "setup": In(Setup(layout, depth, n_chunks)),
                "idle": In(n_ports),
                "issues": Out(stream.Signature(Message(layout, n_chunks))),
                "oldest": Out(row),
                **dict.fromkeys(("pop", "present", "quiet", "counting"), Out(1)),
            }
        )

    def elaborate(self, platform):
        m = Module()
        out = self.issues
        sends, skips = signals("sends skips")  # a held row leaves; or vanishes
        # Two copies, so that what loads the oldest row is not made of what pops the window
        offered, loaded = (Signal(name=name, attrs=KEPT) for name in ("offered", "loaded"))
        oldest = self._queue(m, Mux(loaded, out.ready, skips | ~self.present))
        wide = self.present & ~oldest.single & self.spread
        m.d.comb += [
            self.oldest.eq(oldest),
            out.valid.eq(offered),
            out.p.eq(oldest.message),
            self.pop.eq(Mux(offered, out.ready, skips)),
        ]
        offers = Mux(
            offered,
            ~out.ready | self.next_done,
            self.done | (wide & ~oldest.hold) | sends,
        )
        m.d.sync += [offered.eq(offers), loaded.eq(offers)]
        held, popped = signals("held popped")
        m.d.sync += [held.eq(self.held | (wide & oldest.hold)), popped.eq(self.pop)]
        self._hold(m, held & ~popped, sends, skips)
        return m

    def _queue(self, m, loads):
        """The oldest row, in a register that takes the next of the queue when `loads`."""
        queue = row_queue(self.row.shape())
        m.submodules.queue = ResetInserter(self.flush)(queue)
        oldest = Signal(self.row.shape(), reset_less=True)
        m.d.comb += [
            queue.i.valid.eq(self.entered),
            queue.i.p.eq(self.row),
            queue.o.ready.eq(loads),
        ]
        m.d.sync += self.present.eq(~self.flush & Mux(loads, queue.o.valid, self.present))
        with m.If(loads):
            m.d.sync += oldest.eq(queue.o.p)
        return oldest

    def _hold(self, m, held, sends, skips):
        """When the oldest row, which is held, leaves or vanishes."""
        out, setup, nop = self.issues, self.setup, self.oldest.nop
        settled = Signal(SETTLED)  # cycles without an offer
        all_idle = Signal()
        m.d.sync += [
            all_idle.eq(self.idle.all()),
            settled.eq(Mux(out.valid, 0, Cat(1, settled[:-1]))),
        ]
        m.d.comb += self.quiet.eq(settled[-1] & all_idle)

        steps = Signal(len(self.oldest.steps), reset_less=True)
        no_more, timed, short = signals("no_more timed short", reset_less=True)
        free, last = signals("free last")
        counting = self.counting
        m.d.comb += free.eq(held & self.quiet & ~(out.valid | sends | skips | counting))
        m.d.sync += [timed.eq(setup.step_cycles != 0), short.eq(setup.step_cycles == 1)]
        m.d.sync += [sends.eq(free & ~nop), skips.eq(free & nop & ~timed)]
        nearly = countdown(m, setup.step_cycles, ~counting | last, until=2, name="step")
        m.d.comb += last.eq(nearly | short)  # the step's last cycle
        with m.If(~counting):
            m.d.sync += [steps.eq(self.oldest.steps), no_more.eq(self.oldest.steps == 0)]
            m.d.sync += counting.eq(free & nop & timed)
        with m.Elif(last):
            m.d.sync += [steps.eq(steps - 1), no_more.eq(steps == 1)]
            m.d.sync += [counting.eq(~no_more), skips.eq(no_more)]
        with m.If(self.flush):
            m.d.sync += [sends.eq(0), skips.eq(0), counting.eq(0)]
