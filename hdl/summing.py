"""Sums in the order of ranks while they are sent: own + rank 0 + rank 1 + ..., block by block."""

from amaranth.hdl import Module, Signal
from amaranth.lib import data, stream, wiring
from amaranth.lib.wiring import In, Out

from .reduce import Op, Reduce
from .streams import FIFO, Beat, BlockFIFO


class Summing(wiring.Component):
    """((own + rank 0) + rank 1) + ... of one block after the other; the last sum leaves.

    A block's own beats come once, its contributions rank after rank, each of the block's length.
    Sums before the last go round through a buffer inside, so that nothing returns to memory; the
    last ones leave as they are made. A block of b beats and c contributions takes max(1, c) * b
    cycles, and at least 26 per contribution; the first sum leaves 16 cycles after the last rank's
    first beat was taken. A block without contributions leaves as it is, bit for bit.

    Parameters
    ----------
    n_lanes : int
        32-bit lanes per beat, 1 to 64.
    max_beats : int
        Beats of the longest block, 1 to 16384.
    integers : bool
        As of `gradnic.hdl.reduce.Combine`; blocks without contributions need True.

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
        m.submodules.reduce = reduce = Reduce(self.n_lanes, integers=self.integers)
        beat = Beat(32 * self.n_lanes)
        m.submodules.round = again = BlockFIFO(beat, self.max_beats)
        m.submodules.entering = entering = FIFO(self.job, 4)
        m.submodules.leaving = leaving = FIFO(self.job, 4)
        m.d.comb += [
            entering.i.p.eq(self.jobs.p),
            leaving.i.p.eq(self.jobs.p),
            entering.i.valid.eq(self.jobs.valid & leaving.i.ready),
            leaving.i.valid.eq(self.jobs.valid & entering.i.ready),
            self.jobs.ready.eq(entering.i.ready & leaving.i.ready),
        ]
        partials, contributions, sums = reduce.partials, reduce.contributions, reduce.sums

        first, alone = Signal(), Signal()  # own beats; nothing to add
        moved = Signal()
        _, rank, _ = self._count(m, "in", entering.o, moved)
        m.d.comb += [
            first.eq(rank == 0),
            alone.eq(entering.o.p.n_contributions == 0),
            moved.eq(partials.valid & partials.ready),
            partials.p.op.eq(entering.o.p.op),
            contributions.p.eq(self.contributions.p),
            contributions.valid.eq(self.contributions.valid & entering.o.valid),
            self.contributions.ready.eq(contributions.ready & entering.o.valid & ~alone),
        ]
        with m.If(alone):
            m.d.comb += [contributions.p.data.eq(0), partials.p.op.eq(Op.INT32)]
            m.d.comb += contributions.valid.eq(entering.o.valid)
        with m.If(first):
            m.d.comb += [
                partials.p.data.eq(self.own.p.data),
                partials.valid.eq(self.own.valid & entering.o.valid),
                self.own.ready.eq(partials.ready & entering.o.valid),
            ]
        with m.Else():
            m.d.comb += [
                partials.p.data.eq(again.o.p.data),
                partials.valid.eq(again.o.valid),
                again.o.ready.eq(partials.ready),
            ]

        left = Signal()
        ends, _, done = self._count(m, "out", leaving.o, left)
        m.d.comb += [
            left.eq(sums.valid & sums.ready),
            again.i.p.data.eq(sums.p.data),
            self.sums.p.data.eq(sums.p.data),
            self.sums.p.last.eq(ends),
        ]
        with m.If(done):
            m.d.comb += [self.sums.valid.eq(sums.valid), sums.ready.eq(self.sums.ready)]
        with m.Else():
            m.d.comb += [again.i.valid.eq(sums.valid), sums.ready.eq(again.i.ready)]
        return m

    def _count(self, m, name, jobs, moved):
        """(last beat, rank, last rank) of the job in front; takes it with its last beat."""
        at = Signal(range(self.max_beats), name=f"{name}_at")
        rank = Signal(16, name=f"{name}_rank")
        ends, done = Signal(name=f"{name}_ends"), Signal(name=f"{name}_done")
        m.d.comb += [
            ends.eq(at + 1 == jobs.p.n_beats),
            done.eq(rank + 1 >= jobs.p.n_contributions),
            jobs.ready.eq(moved & ends & done),
        ]
        with m.If(moved):
            m.d.sync += at.eq(at + 1)
            with m.If(ends):
                m.d.sync += [at.eq(0), rank.eq(rank + 1)]
                with m.If(done):
                    m.d.sync += rank.eq(0)
        return ends, rank, done
