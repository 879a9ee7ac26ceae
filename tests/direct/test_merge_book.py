"""What is added ahead of its row, and what of it is there: as the golden book has it."""

from collections import deque

import pytest
from gradnic.hdl.direct.merge_book import MANY, MergeBook
from gradnic.models.direct import merge_book as golden
from gradnic.sim.engine import stimulus
from gradnic.sim.engine.amaranth_run import simulate

RANKS = [0, 1, MANY, MANY + 1, MANY + 2, 9, 12, 7]
N_ASKS, WAITING = 3, 5  # jobs that may wait, one of them on offer


class Bench:
    """Contributions land in any order of chunks and ranks, are added later, and are asked for."""

    def __init__(self, name, *, in_order, taken, added):
        self.rng = stimulus.rng("merge book", name)
        self.part = MergeBook(n_chunks=len(RANKS), n_words=64, rank_width=4, n_asks=N_ASKS)
        self.in_order, self.taken, self.added = in_order, taken, added
        self.n_picked = self.n_late = 0

    def arrivals(self):
        """(chunk, rank), each once: ranks of a chunk in order, or many of them not."""
        order = [chunk for chunk, ranks in enumerate(RANKS) for _ in range(ranks)]
        order = [order[k] for k in self.rng.permutation(len(order))]
        coming = [deque(range(ranks)) for ranks in RANKS]
        for ranks in coming:
            if not self.in_order and len(ranks) > 1 and self.rng.random() < 0.6:
                ranks.rotate(-1 - int(self.rng.integers(len(ranks) - 1)))
        return [(chunk, coming[chunk].popleft()) for chunk in order]

    def run(self):
        simulate(self.part, self._play)

    async def _play(self, ctx):
        part = self.part
        ctx.set(part.entry_en, 1)
        for chunk, ranks in enumerate(RANKS):
            ctx.set(part.entry_addr, chunk)
            ctx.set(part.entry, {"base": 0, "ranks": ranks})
            await ctx.tick()
        ctx.set(part.entry_en, 0)
        for _ in range(2):
            cycles = 0
            ctx.set(part.running, 0)
            while not ctx.get(part.clear):
                await ctx.tick()
                cycles += 1
            assert cycles <= len(RANKS) + 1  # a chunk a cycle
            ctx.set(part.running, 1)
            await self._round(ctx)

    async def _round(self, ctx):
        part, rng, book = self.part, self.rng, golden.MergeBook(RANKS)
        waiting, adding, coming = deque(), deque(), deque(self.arrivals())
        while coming or waiting or adding:
            asks = [int(rng.integers(len(RANKS))) for _ in range(N_ASKS)]
            for k, chunk in enumerate(asks):
                ctx.set(part.asks[k], chunk)
            told = [(ctx.get(part.n_merged[k]), ctx.get(part.settled[k])) for k in range(N_ASKS)]
            assert told == [(book.n_merged[chunk], book.settled(chunk)) for chunk in asks]

            ctx.set(part.landed.valid, 0)
            lands = coming.popleft() if coming and rng.random() < 0.7 else None
            if lands:
                ctx.set(part.landed, {"valid": 1, "chunk": lands[0], "rank": lands[1]})
            ctx.set(part.merged.valid, 0)
            added = adding.popleft() if adding and rng.random() < self.added else None
            if added:
                ctx.set(part.merged, {"valid": 1, "chunk": added[0], "rank": added[1]})
            room = len(waiting) < WAITING
            ctx.set(part.jobs.ready, int(rng.random() < self.taken))
            takes = ctx.get(part.jobs.valid & part.jobs.ready)
            if takes:
                job = ctx.get(part.jobs.p)
                adding.append(waiting.popleft())
                assert (job.chunk, job.rank) == adding[-1]
            if lands and book.land(*lands, room=room):
                waiting.append(lands)
                self.n_picked += 1
            self.n_late += bool(lands and not room)
            if added:
                book.merge(added[0])
            await ctx.tick()
            ctx.set(part.landed.valid, 0)
            ctx.set(part.merged.valid, 0)


@pytest.mark.parametrize("in_order", [True, False])
@pytest.mark.parametrize(("taken", "added"), [(1, 1), (0.5, 0.4), (0.15, 0.5)])
def test_picked_merged_and_settled(in_order, taken, added):
    bench = Bench(f"{in_order} {taken}", in_order=in_order, taken=taken, added=added)
    bench.run()
    assert bench.n_picked > 10
    if taken == 1 and in_order:  # nothing waited: all but the last of each full chunk, two rounds
        assert bench.n_late == 0
        assert bench.n_picked == 2 * sum(ranks - 1 for ranks in RANKS if ranks > MANY)
    if taken < 0.2:
        assert bench.n_late > 0


def test_the_model_keeps_the_order():
    book = golden.MergeBook([6])
    assert [book.land(0, rank) for rank in (1, 0, 1, 3, 2)] == [False, True, True, False, True]
    assert not book.settled(0)
    for _ in range(3):
        book.merge(0)
    assert book.settled(0)
    assert book.n_merged == [3]
    assert not book.land(0, 3, room=False)
    assert not book.land(0, 4)  # the row adds it, and what follows
    assert [book.land(0, 3), book.land(0, 4), book.land(0, 5)] == [True, True, False]
