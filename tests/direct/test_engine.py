"""The flit engine alone, between the bench's memories: what it sends and keeps, in which order."""

import numpy as np
import pytest
from gradnic.hdl.direct.engine import FlitEngine
from gradnic.hdl.reduction.reduce import Op
from gradnic.models.direct.engine import partial_sum, port_words
from gradnic.sim.engine import stimulus
from gradnic.sim.engine.amaranth_run import simulate

from gradnic.interface.flit import FLIT_FLOATS
from gradnic.interface.schedule_table import Layout

N_LANES, N_PORTS, N_CHUNKS, N_WORDS = 8, 2, 8, 1024
RATIO = N_LANES // FLIT_FLOATS
FLITS, LAST_FLITS = 89, 3  # of a chunk, and of the last one
WORDS, LIVE = -(-FLITS // RATIO), 7
RANKS = [0, 1, 2, 6, 0, 3, 2, 0]  # contributions of each chunk
OPS = {Op.FLOAT: "float", Op.INT32: "int32"}


def words_of(chunk):
    return -(-LAST_FLITS // RATIO) if chunk == LIVE - 1 else WORDS


class Bench:
    """An engine, gradient and landing memory, and golden partial sums."""

    def __init__(self, op, name, duty=1.0):
        self.op, self.duty, self.rng = op, duty, stimulus.rng("flit engine", name, duty)
        self.part = FlitEngine(
            Layout.for_nodes(N_CHUNKS), n_ports=N_PORTS, n_lanes=N_LANES, n_chunks=N_CHUNKS,
            n_words=N_WORDS, integers=True,
        )  # fmt: skip
        floats = self.rng.normal(0, 1, (2, N_WORDS, N_LANES)).astype(np.float32)
        self.own, self.landing = floats.view(np.uint32)
        self.base = np.concatenate([[0], np.cumsum(RANKS)[:-1]])
        self.golden = self.own.copy()  # what each chunk is once all has been added, in order
        for chunk, ranks in enumerate(RANKS):
            n = words_of(chunk)
            places = [int(self.base[chunk] + rank) * WORDS for rank in range(ranks)]
            landed = [self.landing[place : place + n] for place in places]
            at = slice(chunk * WORDS, chunk * WORDS + n)
            self.golden[at] = partial_sum(self.own[at], landed, OPS[op])
        self.sent = [[] for _ in range(N_PORTS)]  # (data, n_flits, last)
        self.results, self.sums, self.released = [], [], []

    def run(self, jobs, landed=(), *, cycles=4000):
        """Play jobs, [(port, job)] in order at each port; landed : (chunk, rank) come before."""

        async def bench(ctx):
            await self._play(ctx, jobs, landed, cycles)

        simulate(self.part, bench)

    async def _play(self, ctx, jobs, landed, cycles):
        part = self.part
        ctx.set(part.op, self.op)
        ctx.set(part.places, {
            "chunk_words": WORDS, "chunk_flits": FLITS, "last_flits": LAST_FLITS, "live": LIVE,
        })  # fmt: skip
        ctx.set(part.entry_en, 1)
        for chunk, ranks in enumerate(RANKS):
            ctx.set(part.entry_addr, chunk)
            ctx.set(part.entry, {"base": int(self.base[chunk]), "ranks": ranks})
            await ctx.tick()
        ctx.set(part.entry_en, 0)
        while not ctx.get(part.clear):
            await ctx.tick()
        ctx.set(part.running, 1)
        for chunk, rank in landed:
            ctx.set(part.landed, {"valid": 1, "chunk": chunk, "rank": rank})
            await self._cycle(ctx)
            ctx.set(part.landed.valid, 0)
            for _ in range(60):  # a job of the book's own
                await self._cycle(ctx)
        waiting = [[job for port, job in jobs if port == k] for k in range(N_PORTS + 1)]
        for _ in range(cycles):
            for k, mine in enumerate(waiting):
                ctx.set(part.jobs[k].valid, int(bool(mine)))
                if mine:
                    ctx.set(part.jobs[k].p, mine[0])
            taken = [ctx.get(part.jobs[k].valid & part.jobs[k].ready) for k in range(N_PORTS + 1)]
            await self._cycle(ctx)
            waiting = [mine[went:] for mine, went in zip(waiting, taken, strict=True)]
            if not any(waiting) and not ctx.get(part.busy) and not any(taken):
                break
        else:
            raise AssertionError("jobs do not end")
        for _ in range(20):
            await self._cycle(ctx)

    _asked = [(0, 0)] * 2

    async def _cycle(self, ctx):
        """Memories answer two cycles later; what is offered may wait."""
        part = self.part
        own, landing = self._asked[0]
        ctx.set(part.own_data, int.from_bytes(self.own[own].tobytes(), "little"))
        ctx.set(part.landing_data, int.from_bytes(self.landing[landing].tobytes(), "little"))
        addresses = ctx.get(part.own_address), ctx.get(part.landing_address)
        self._asked = [self._asked[1], addresses]
        for k in range(N_PORTS):
            self._take(ctx, part.words[k], self.sent[k])
        wrote = self._take(ctx, part.results, self.results), self._take(ctx, part.sums, self.sums)
        self._take(ctx, part.released, self.released)
        await ctx.tick()
        for word in wrote:
            if word is not None:
                self.own[word.address] = np.frombuffer(
                    word.data.to_bytes(4 * N_LANES, "little"), "<u4"
                )

    def _take(self, ctx, port, into):
        ready = self.duty == 1.0 or self.rng.random() < self.duty
        ctx.set(port.ready, int(ready))
        if ready and ctx.get(port.valid):
            into.append(ctx.get(port.payload))
            return into[-1]
        return None

    def check_sent(self, port, jobs, *, own=None):
        """What a port was given is that of its jobs, in order."""
        own, want = self.golden if own is None else own, []
        for job in jobs:
            chunks = range(job["first"], job["first"] + job["count"])
            words = [own[chunk * WORDS :][: words_of(chunk)] for chunk in chunks]
            flits = [LAST_FLITS if chunk == LIVE - 1 else FLITS for chunk in chunks]
            want += port_words(words, flits)
        want = [(int.from_bytes(word.tobytes(), "little"), n, last) for word, n, last in want]
        assert [(w.data, w.n_flits, bool(w.last)) for w in self.sent[port]] == want


def reduce(first, count=1):
    return {"gather": 0, "wait": RANKS[first], "first": first, "count": count}


def gather(first, count=1):
    return {"gather": 1, "wait": 0, "first": first, "count": count}


@pytest.mark.parametrize("duty", [1.0, 0.4])
@pytest.mark.parametrize("op", OPS)
def test_partial_sums_go_to_their_ports(op, duty):
    bench = Bench(op, "ports", duty)
    jobs = [(0, reduce(2)), (0, reduce(1)), (1, reduce(5)), (1, reduce(0)), (1, reduce(6))]
    bench.run(jobs)
    for port in range(N_PORTS):
        bench.check_sent(port, [job for where, job in jobs if where == port])
    assert sorted(bench.released) == [0, 1, 2, 5, 6]
    assert not bench.results
    assert not bench.sums


def test_what_is_final_goes_as_it_is_in_memory():
    bench = Bench(Op.FLOAT, "gather", 0.7)
    own = bench.own.copy()
    jobs = [(0, gather(1, 3)), (1, gather(5, 2)), (0, gather(4))]
    bench.run(jobs)
    for port in range(N_PORTS):
        bench.check_sent(port, [job for where, job in jobs if where == port], own=own)
    assert bench.released == []


@pytest.mark.parametrize("duty", [1.0, 0.5])
def test_a_terminal_row_is_written_and_a_gather_does_not_overtake_it(duty):
    bench = Bench(Op.FLOAT, "terminal", duty)
    jobs = [(N_PORTS, reduce(5)), (0, gather(5)), (1, gather(5)), (N_PORTS, reduce(2))]
    bench.run(jobs)
    for port in range(N_PORTS):
        bench.check_sent(port, [gather(5)])
    for chunk, at in ((5, 0), (2, WORDS)):
        words = bench.results[at : at + WORDS]
        assert [word.address for word in words] == list(range(chunk * WORDS, (chunk + 1) * WORDS))
        assert [word.chunk for word in words] == WORDS * [chunk]
        assert [k for k, word in enumerate(words) if word.first] == [0]
        assert [k for k, word in enumerate(words) if word.ends] == [WORDS - 1]
        rows = slice(chunk * WORDS, (chunk + 1) * WORDS)
        np.testing.assert_array_equal(bench.own[rows], bench.golden[rows])
    assert len(bench.results) == 2 * WORDS


def test_early_contributions_of_a_full_chunk_are_added_ahead_in_order():
    """Of six the first two: their sums are in memory when the row comes, which adds the rest."""
    bench = Bench(Op.FLOAT, "ahead")
    bench.run([(1, reduce(3))], landed=[(3, 0), (3, 1), (2, 0)])  # two are too few to gain
    assert [word.address for word in bench.sums] == 2 * list(range(3 * WORDS, 4 * WORDS))
    bench.check_sent(1, [reduce(3)])
    assert bench.released == [3]


def test_the_model_adds_in_order_and_counts_flits():
    """Float sums depend on their order: 1 is lost beside 2^24, and is not behind it."""
    big, one = (np.full((1, 8), value, np.float32).view(np.uint32) for value in (2.0**24, 1))
    minus = (-big.view(np.float32)).view(np.uint32)
    assert (partial_sum(one, [big, minus]).view(np.float32) == 0).all()
    assert (partial_sum(big, [minus, one]).view(np.float32) == 1).all()
    got = [(n, last) for _, n, last in port_words([np.zeros((2, 8)), np.zeros((1, 8))], [3, 2])]
    assert got == [(2, False), (1, False), (2, True)]
