"""The way out of the scheduler: the oldest row, on offer once it may leave."""

from amaranth.hdl import Cat, Module, Mux, ResetInserter, Signal
from amaranth.lib import stream, wiring
from amaranth.lib.wiring import In, Out

from .fifo import FIFO
from .scheduler_rows import Message, Row, Setup

N_PLACES = 16  # of the queue: one LUT RAM, more than there are slots in the window
SETTLED = 3  # cycles from a message's start to ports that show it


class RowOffer(wiring.Component):
    """Queue of the rows in the window; the oldest is offered once it is done and not held.

    A row that is done in cycle t is offered in t + 1, and while its offer is taken the next one is
    chosen, so that one leaves in each cycle. A row with several chunks is chosen once it is the
    oldest. Held rows leave when all ports are idle: they are on offer 3 cycles later. NOP rows are
    held rows that vanish, ``step_cycles`` per step later; at once if ``step_cycles`` is 0.

    Members
    -------
    entered, row : In(1), In(Row)
        A row is taken by the window; at most 15 are here.
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

    def __init__(self, layout, depth, n_chunks, n_ports):
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
        out, sends, skips = self.issues, Signal(), Signal()  # a held row leaves; or vanishes
        oldest = self._queue(m, Mux(out.valid, out.ready, skips | ~self.present))
        wide = self.present & ~oldest.single & self.spread
        m.d.comb += [
            self.oldest.eq(oldest),
            out.p.eq(oldest.message),
            self.pop.eq(Mux(out.valid, out.ready, skips)),
        ]
        m.d.sync += out.valid.eq(
            Mux(
                out.valid,
                ~out.ready | self.next_done,
                self.done | (wide & ~oldest.hold) | sends,
            )
        )
        held = Signal()
        m.d.sync += held.eq((self.held | (wide & oldest.hold)) & ~self.pop)
        self._hold(m, held, sends, skips)
        return m

    def _queue(self, m, loads):
        """The oldest row, in a register that takes the next of the queue when `loads`."""
        shape = self.row.shape()
        queue = FIFO(shape, N_PLACES, never_full=True, direct=True)
        m.submodules.queue = ResetInserter(self.flush)(queue)
        oldest = Signal(shape, reset_less=True)
        m.d.comb += [
            queue.i.valid.eq(self.entered),
            queue.i.p.eq(self.row),
            queue.o.ready.eq(loads),
        ]
        with m.If(loads):
            m.d.sync += [oldest.eq(queue.o.p), self.present.eq(queue.o.valid)]
        with m.If(self.flush):
            m.d.sync += self.present.eq(0)
        return oldest

    def _hold(self, m, held, sends, skips):
        """When the oldest row, which is held, leaves or vanishes."""
        out, setup, nop = self.issues, self.setup, self.oldest.nop
        settled, all_idle = Signal(SETTLED), Signal()  # cycles without an offer
        m.d.sync += [
            all_idle.eq(self.idle.all()),
            settled.eq(Mux(out.valid, 0, Cat(1, settled[:-1]))),
        ]
        m.d.comb += self.quiet.eq(settled[-1] & all_idle)

        steps = Signal(len(self.oldest.steps), reset_less=True)
        cycles = Signal(len(setup.step_cycles), reset_less=True)
        last, no_more = Signal(reset_less=True), Signal(reset_less=True)
        timed, short = Signal(reset_less=True), Signal(reset_less=True)
        free, counting = Signal(), self.counting
        m.d.comb += free.eq(held & self.quiet & ~(out.valid | sends | skips | counting))
        m.d.sync += [timed.eq(setup.step_cycles != 0), short.eq(setup.step_cycles == 1)]
        m.d.sync += [sends.eq(free & ~nop), skips.eq(free & nop & ~timed)]
        with m.If(counting & ~last):
            m.d.sync += [cycles.eq(cycles - 1), last.eq(cycles == 2)]
        with m.Else():
            m.d.sync += [cycles.eq(setup.step_cycles), last.eq(short)]
        with m.If(~counting):
            m.d.sync += [steps.eq(self.oldest.steps), no_more.eq(self.oldest.steps == 0)]
            m.d.sync += counting.eq(free & nop & timed)
        with m.Elif(last):
            m.d.sync += [steps.eq(steps - 1), no_more.eq(steps == 1)]
            m.d.sync += [counting.eq(~no_more), skips.eq(no_more)]
        with m.If(self.flush):
            m.d.sync += [sends.eq(0), skips.eq(0), counting.eq(0)]
