"""Sums in the order of ranks while they are sent: own + rank 0 + rank 1 + ..., block by block.

Twin of `gradnic.models.reduction.summing`; a part of the offload card.
"""

from amaranth.hdl import Cat, Module, Mux, Signal
from amaranth.lib import data, stream, wiring
from amaranth.lib.wiring import In, Out

from gradnic.interface.params import check_range

from ..primitive.names import signals
from ..stream.beats import Beat
from ..stream.block_fifo import BlockFIFO
from ..stream.fifo import FIFO
from .reduce import Adding, Op, Reduce

SHORT = 32  # beats of a block, at most, that goes round through LUT RAM: the way is its limit


class Summing(wiring.Component):
    """((own + rank 0) + rank 1) + ... of one block after the other; the last sum leaves.

    A block's own beats come once, its contributions rank after rank, each of the block's length.
    Sums before the last go round through a buffer inside, so that nothing returns to memory; the
    last ones leave as they are made. A block of b beats and c contributions takes b cycles for the
    last one and, for each before it, b or 21, whichever is more (20 of 2 lanes; 23 if
    `shared`, and what others use of the lanes; 5 more with ``max_beats`` above `SHORT`). Those
    of one beat and one rank take 2, and many short ones of one rank wait for the few that may
    be under way. The first sum leaves `Reduce.latency` cycles after the last rank's first beat was
    taken. A block without contributions leaves as it is, bit for bit.

    Parameters
    ----------
    n_lanes : int
        32-bit lanes per beat, 1 to 64.
    max_beats : int
        Beats of the longest block, 1 to 16384.
    integers, maxima : bool
        As of `gradnic.hdl.reduction.reduce.Combine`.
    shared : bool
        As of `gradnic.hdl.reduction.reduce.Reduce`, with member ``adder``.

    Members
    -------
    jobs : In(stream.Signature({n_beats, n_contributions, op}))
        One per block, n_beats at least 1; taken up to 4 blocks ahead.
    own, contributions : In(stream.Signature(Beat(32 * n_lanes)))
        ``last`` ends a block's own beats, and those of each rank.
    sums : Out(stream.Signature(Beat(32 * n_lanes)))
        ``last`` ends a block.
    astray : Out(1)
        1 from then on, once a beat that came or was added was a last one where the block does not
        end, or none where it does: one more or less has come, or passed, than there are.
    """

    def __init__(
        self,
        n_lanes: int,
        *,
        max_beats: int,
        integers: bool = True,
        maxima: bool = False,
        shared: bool = False,
    ) -> None:
        check_range("max_beats", max_beats, 1, 16384)
        self.n_lanes, self.integers, self.maxima = n_lanes, integers, maxima
        self.max_beats, self.shared = max_beats, shared
        self.reduce = Reduce(
            n_lanes, integers=integers, passes=not integers, maxima=maxima, shared=shared
        )
        self.job = data.StructLayout(
            {"n_beats": range(max_beats + 1), "n_contributions": 16, "op": Op}
        )
        self.work = data.StructLayout(
            {
                "op": Op,
                "n_less_1": range(max_beats),
                "n_more": 16,  # ranks after this one
                "single": 1,  # one beat
                "once": 1,  # one rank, or none
                "alone": 1,  # none
            }
        )
        self.step = data.StructLayout(
            {
                "op": Op,
                "alone": 1,
                "begins": 1,  # of the first rank
                "ends": 1,  # the last beat of its rank
                "final": 1,  # of the last rank
            }
        )
        beat = stream.Signature(Beat(32 * n_lanes))
        super().__init__(
            {
                "jobs": In(stream.Signature(self.job)),
                "own": In(beat),
                "contributions": In(beat),
                "sums": Out(beat),
                "astray": Out(1),
                **({"adder": Out(Adding(n_lanes))} if shared else {}),
            }
        )

    def elaborate(self, platform):
        m = Module()
        m.submodules.reduce = reduce = self.reduce
        if self.shared:
            wiring.connect(m, reduce.adder, wiring.flipped(self.adder))
        beat = Beat(32 * self.n_lanes)
        if self.max_beats <= SHORT:
            again = FIFO(beat, SHORT, stops=True)
        else:
            again = BlockFIFO(beat, self.max_beats, stops=True)
        m.submodules.round = again
        m.submodules.entering = entering = FIFO(self.work, 4, half_rate=True)
        m.submodules.leaving = leaving = FIFO(self.work, 4, half_rate=True)
        job = self.jobs.p
        for queue, other in ((entering, leaving), (leaving, entering)):
            work = queue.i.p
            m.d.comb += [
                queue.i.valid.eq(self.jobs.valid & other.i.ready),
                work.op.eq(job.op),
                work.n_less_1.eq(job.n_beats - 1),
                work.single.eq(job.n_beats == 1),
                work.n_more.eq(Mux(work.alone, 0, job.n_contributions - 1)),
                work.once.eq(job.n_contributions[1:] == 0),
                work.alone.eq(job.n_contributions == 0),
            ]
        m.d.comb += self.jobs.ready.eq(entering.i.ready & leaving.i.ready)
        sums = reduce.sums
        partials = reduce.partials

        step = self._steps(m, "in", entering.o)
        comes = Mux(step.p.begins, self.own.valid, again.o.valid)
        last = Mux(step.p.begins, self.own.p.last, again.o.p.last)
        misplaced = [self._misplaced(m, "in", step, last)]
        m.d.comb += [
            partials.p.op.eq(step.p.op),
            partials.p.alone.eq(step.p.alone),
            partials.p.last.eq(step.p.ends),
            partials.p.data.eq(Mux(step.p.begins, self.own.p.data, again.o.p.data)),
            partials.valid.eq(step.valid & comes),
            step.ready.eq(partials.ready & comes),
            self.own.ready.eq(partials.ready & step.valid & step.p.begins),
            again.o.ready.eq(partials.ready & step.valid & ~step.p.begins),
        ]
        wiring.connect(m, wiring.flipped(self.contributions), reduce.contributions)

        step = self._steps(m, "out", leaving.o)
        goes = Mux(step.p.final, self.sums.ready, again.i.ready)
        m.d.comb += [
            step.ready.eq(sums.valid & goes),
            again.i.p.data.eq(sums.p.data),
            again.i.p.last.eq(sums.p.last),
            again.i.valid.eq(sums.valid & step.valid & ~step.p.final),
            self.sums.p.data.eq(sums.p.data),
            self.sums.p.last.eq(step.p.ends),
            self.sums.valid.eq(sums.valid & step.valid & step.p.final),
            sums.ready.eq(step.valid & goes),
        ]
        misplaced.append(self._misplaced(m, "out", step, sums.p.last))
        m.d.sync += self.astray.eq(self.astray | Cat(misplaced).any() | reduce.astray)
        return m

    def _misplaced(self, m, name, step, last):
        """Flag: a beat went in the cycle before, and whether it was a last one is not as `step`
        says. What it waits for comes from afar: a register, and nothing behind it.
        """
        goes, differs = signals(f"{name}_goes {name}_differs")
        m.d.sync += [goes.eq(step.valid & step.ready), differs.eq(last != step.p.ends)]
        return goes & differs

    def _steps(self, m, name, jobs):
        """Stream of what each beat is: goes through jobs, each rank after rank, beat after beat.

        The walk is ahead of the beats, which come from afar: what they wait for does not reach it.
        """
        m.submodules[f"{name}_steps"] = steps = FIFO(self.step, 4)
        begins, busy, final = (
            Signal(name=f"{name}_{flag}") for flag in ("begins", "busy", "final")
        )
        now = Signal(self.work, name=f"{name}_now", reset_less=True)
        left = Signal.like(now.n_less_1, name=f"{name}_left", reset_less=True)
        ends = Signal(name=f"{name}_ends", reset_less=True)
        moved, load = Signal(name=f"{name}_moved"), Signal(name=f"{name}_load")
        step = steps.i.p
        m.d.comb += [
            steps.i.valid.eq(busy),
            step.op.eq(now.op),
            step.alone.eq(now.alone),
            step.begins.eq(begins),
            step.ends.eq(ends),
            step.final.eq(final),
            moved.eq(busy & steps.i.ready),
            load.eq(~busy | (moved & ends & final)),
            jobs.ready.eq(load),
        ]
        with m.If(moved):
            m.d.sync += [left.eq(left - 1), ends.eq(left == 1)]
            with m.If(ends):
                m.d.sync += [
                    left.eq(now.n_less_1),
                    ends.eq(now.single),
                    now.n_more.eq(now.n_more - 1),
                    begins.eq(0),
                    final.eq(now.n_more == 1),
                ]
        with m.If(load):
            new = jobs.p
            m.d.sync += [
                now.eq(new),
                left.eq(new.n_less_1),
                ends.eq(new.single),
                begins.eq(1),
                busy.eq(jobs.valid),
                final.eq(new.once),
            ]
        return steps.o
