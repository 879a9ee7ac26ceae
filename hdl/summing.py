"""Sums in the order of ranks while they are sent: own + rank 0 + rank 1 + ..., block by block."""

from amaranth.hdl import Module, Mux, Signal
from amaranth.lib import data, stream, wiring
from amaranth.lib.wiring import In, Out

from .reduce import Op, Reduce
from .streams import FIFO, Beat, BlockFIFO


class Summing(wiring.Component):
    """((own + rank 0) + rank 1) + ... of one block after the other; the last sum leaves.

    Plumbing: no golden model of its own.

    A block's own beats come once, its contributions rank after rank, each of the block's length.
    Sums before the last go round through a buffer inside, so that nothing returns to memory; the
    last ones leave as they are made. A block of b beats and c contributions takes max(1, c) * b
    cycles, up to 27 per contribution where blocks are shorter than that; the first sum leaves
    `Reduce.latency` cycles after the last rank's first beat was taken. A block without
    contributions leaves as it is, bit for bit.

    Parameters
    ----------
    n_lanes : int
        32-bit lanes per beat, 1 to 64.
    max_beats : int
        Beats of the longest block, 1 to 16384.
    integers : bool
        As of `gradnic.hdl.reduce.Combine`.

    Members
    -------
    jobs : In(stream.Signature({n_beats, n_contributions, op}))
        One per block, n_beats at least 1; taken up to 4 blocks ahead.
    own, contributions : In(stream.Signature(Beat(32 * n_lanes)))
        ``last`` is not looked at.
    sums : Out(stream.Signature(Beat(32 * n_lanes)))
        ``last`` ends a block.
    """

    def __init__(self, n_lanes, *, max_beats, integers=True):
        if not 1 <= max_beats <= 16384:
            raise ValueError(f"max_beats must be 1 to 16384, not {max_beats!r}")
        self.n_lanes, self.integers = n_lanes, integers
        self.max_beats = max_beats
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
        self.step = data.StructLayout({"op": Op, "alone": 1, "begins": 1})  # a beat of a rank
        beat = stream.Signature(Beat(32 * n_lanes))
        super().__init__(
            {
                "jobs": In(stream.Signature(self.job)),
                "own": In(beat),
                "contributions": In(beat),
                "sums": Out(beat),
            }
        )

    def elaborate(self, platform):
        m = Module()
        m.submodules.reduce = reduce = Reduce(
            self.n_lanes, integers=self.integers, passes=not self.integers
        )
        beat = Beat(32 * self.n_lanes)
        m.submodules.round = again = BlockFIFO(beat, self.max_beats)
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

        # The walk is ahead of the beats, which come from afar: what they wait for does not reach it.
        m.submodules.steps = steps = FIFO(self.step, 4)
        moved = Signal()
        begins, repeats, now, _, _, _ = self._walk(m, "in", entering.o, moved)
        step, from_own = steps.o.p, steps.o.p.begins
        comes = Mux(from_own, self.own.valid, again.o.valid)
        m.d.comb += [
            steps.i.valid.eq(begins | repeats),
            steps.i.p.begins.eq(begins),
            steps.i.p.op.eq(now.op),
            steps.i.p.alone.eq(now.alone),
            moved.eq(steps.i.valid & steps.i.ready),
            partials.p.op.eq(step.op),
            partials.p.alone.eq(step.alone),
            partials.p.data.eq(Mux(from_own, self.own.p.data, again.o.p.data)),
            partials.valid.eq(steps.o.valid & comes),
            steps.o.ready.eq(partials.ready & comes),
            self.own.ready.eq(partials.ready & steps.o.valid & from_own),
            again.o.ready.eq(partials.ready & steps.o.valid & ~from_own),
        ]
        wiring.connect(m, wiring.flipped(self.contributions), reduce.contributions)

        left = Signal()
        _, _, _, ends, inner, final = self._walk(m, "out", leaving.o, left)
        m.d.comb += [
            left.eq(sums.valid & sums.ready),
            again.i.p.data.eq(sums.p.data),
            again.i.valid.eq(sums.valid & inner),
            self.sums.p.data.eq(sums.p.data),
            self.sums.p.last.eq(ends),
            self.sums.valid.eq(sums.valid & final),
            sums.ready.eq((final & self.sums.ready) | (inner & again.i.ready)),
        ]
        return m

    def _walk(self, m, name, jobs, moved):
        """Goes through jobs, each rank after rank, beat after beat; one is `moved` in a cycle.

        Returns registers: first rank, any other rank, the job, last beat of a rank, before the last
        rank, last rank. Ranks are 0 where there is no job.
        """
        begins, repeats, inner, final = (
            Signal(name=f"{name}_{flag}") for flag in ("begins", "repeats", "inner", "final")
        )
        now = Signal(self.work, name=f"{name}_now", reset_less=True)
        left = Signal.like(now.n_less_1, name=f"{name}_left", reset_less=True)
        ends = Signal(name=f"{name}_ends", reset_less=True)
        load = Signal(name=f"{name}_load")
        m.d.comb += [
            load.eq((~inner & ~final) | (moved & ends & final)),
            jobs.ready.eq(load),
        ]
        with m.If(moved):
            m.d.sync += [left.eq(left - 1), ends.eq(left == 1)]
            with m.If(ends):
                last = now.n_more == 1
                m.d.sync += [
                    left.eq(now.n_less_1),
                    ends.eq(now.single),
                    now.n_more.eq(now.n_more - 1),
                    begins.eq(0),
                    repeats.eq(1),
                    inner.eq(~last),
                    final.eq(last),
                ]
        with m.If(load):
            new = jobs.p
            m.d.sync += [
                now.eq(new),
                left.eq(new.n_less_1),
                ends.eq(new.single),
                begins.eq(jobs.valid),
                repeats.eq(0),
                inner.eq(jobs.valid & ~new.once),
                final.eq(jobs.valid & new.once),
            ]
        return begins, repeats, now, ends, inner, final
