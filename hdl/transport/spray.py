"""Path of each packet: round robin, random, or the one whose last congestion mark is oldest.

Golden model: `gradnic.models.transport.spray`.
"""

from amaranth.hdl import Cat, Module, Mux, Signal
from amaranth.lib import stream, wiring
from amaranth.lib.wiring import In, Out
from amaranth.utils import ceil_log2

from ..primitive.names import signals

ROUND_ROBIN, RANDOM, LEAST_MARKED = range(3)


class Spray(wiring.Component):
    """Offers the path of the next packet: one per cycle, none in the two cycles of a mark.

    Twin of `gradnic.models.transport.spray.Spray`. The paths are kept in a list: those without a
    mark by their last use, then the others by the age of their last mark. Round robin turns the
    whole list, least marked its first part, or takes its head where all are marked. A path is
    chosen when the one before is taken, so a mark counts from the packet after the next one on.

    Parameters
    ----------
    n_paths : int
        2 to 32, a power of two.
    seed : int
        First state of the random generator, 1 to 2**32 - 1.

    Members
    -------
    rule : In(2)
        0 round robin, 1 random, 2 least recently marked; constant after reset.
    paths : Out(stream.Signature(path))
    marks : In(stream.Signature(path))
        Paths on which a packet met congestion, taken every second cycle at most; they matter to
        rule 2 only.
    silent : In(1)
        With a mark: of a path from which no answer came. If none is without a mark then, all are.
    """

    def __init__(self, n_paths: int, *, seed: int = 1) -> None:
        if n_paths not in (2, 4, 8, 16, 32):
            raise ValueError(f"n_paths must be a power of two from 2 to 32, not {n_paths!r}")
        if not 1 <= seed < 1 << 32:
            raise ValueError(f"seed must be 1 to 2**32 - 1, not {seed!r}")
        self.n_paths, self.seed = n_paths, seed
        path = ceil_log2(n_paths)
        super().__init__(
            {
                "rule": In(2),
                "paths": Out(stream.Signature(path)),
                "marks": In(stream.Signature(path)),
                "silent": In(1),
            }
        )

    def elaborate(self, platform):
        m = Module()
        n, width = self.n_paths, len(self.paths.payload)
        order = [Signal(width, name=f"order{k}", init=k) for k in range(n)]
        unmarked = Signal(n, init=-1)  # bit k: more than k paths have no mark
        state = Signal(32, init=self.seed)
        first = state ^ (state << 13)[:32]
        second = first ^ (first >> 17)
        following = (second ^ (second << 5))[:32]

        turning, random, ageing = (Signal(name=f"by_{rule}") for rule in ("turns", "random", "age"))
        m.d.sync += [
            turning.eq(self.rule == ROUND_ROBIN),
            random.eq(self.rule == RANDOM),
            ageing.eq(self.rule == LEAST_MARKED),
        ]
        comes, choose = signals("comes choose")
        marked = Signal(init=1)  # a mark on no path: nothing is chosen before the rule is known
        mark = Signal(width, reset_less=True)
        silent = Signal(reset_less=True)
        passed = Signal(n)  # the marked path is at or before place k
        here = Cat(one == self.marks.payload for one in order)
        m.d.comb += [
            self.marks.ready.eq(~marked),
            comes.eq(self.marks.valid & ~marked & ageing),
            choose.eq((~self.paths.valid | self.paths.ready) & ~comes & ~marked),
        ]
        m.d.sync += [
            marked.eq(comes),
            mark.eq(self.marks.payload),
            silent.eq(self.silent),
            passed.eq(Cat(here[: k + 1].any() for k in range(n))),
        ]
        with m.If(self.paths.ready):
            m.d.sync += self.paths.valid.eq(0)
        turns = unmarked | turning.replicate(n)
        with m.If(choose):
            m.d.sync += self.paths.valid.eq(1)
            with m.If(random):
                m.d.sync += [state.eq(following), self.paths.payload.eq(following[:width])]
            with m.Else():
                m.d.sync += self.paths.payload.eq(order[0])
                for k in range(n):  # those that take turns move up, the head goes behind them
                    follower = Mux(turns[k + 1], order[k + 1], order[0]) if k + 1 < n else order[0]
                    with m.If(turns[k]):
                        m.d.sync += order[k].eq(follower)
        with m.If(marked):
            for k in range(n):
                with m.If(passed[k]):
                    m.d.sync += order[k].eq(order[k + 1] if k + 1 < n else mark)
            last = unmarked & ~(unmarked >> 1)
            left = Mux((last & passed).any(), unmarked >> 1, unmarked)
            m.d.sync += unmarked.eq(left | (silent & ~left[0]).replicate(n))
        return m
