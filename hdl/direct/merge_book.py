"""Which contributions are added ahead of their row, where a chunk gets many of them."""

from amaranth.hdl import Module, Signal
from amaranth.lib import data, memory, stream, wiring
from amaranth.lib.wiring import In, Out

from gradnic.interface.schedule_table import bits

from ..stream.fifo import FIFO
from .landing import Contributions

MANY = 4  # contributions that a row adds as fast as its port sends


class MergeBook(wiring.Component):
    """Picks contributions that may be added to their chunk at once: one per cycle.

    A contribution qualifies if its chunk gets more than `MANY`, it is the next in order of rank,
    and it is not the last: that one is added while the row is sent. Others wait for the row, as do
    those that come while 4 picked ones wait behind the one on offer. So merging changes when sums
    are made, never their order.

    Parameters
    ----------
    n_chunks, n_words, rank_width : int
    n_asks : int
        Chunks that are asked for at once.

    Members
    -------
    entry_en, entry_addr, entry : In
        As of `gradnic.hdl.direct.landing.Landing`.
    running : In(1)
        While it is 0, all is forgotten, one chunk per cycle; ``clear`` : Out(1): nothing is known.
    landed : In({valid, chunk, rank})
        A contribution is in memory.
    jobs : Out(stream.Signature({chunk, rank}))
    merged : In({valid, chunk, rank})
        The last word of this job's sums is in memory.
    asks : array of In(chunk), n_asks
    n_merged, settled : arrays of Out(rank) and Out(1), n_asks
        Contributions that are in the chunk's own words; none is picked and not yet there.
    """

    def __init__(self, *, n_chunks: int, n_words: int, rank_width: int, n_asks: int) -> None:
        self.n_chunks, self.n_words, self.rank_width = n_chunks, n_words, rank_width
        self.n_asks = n_asks
        chunk = bits(n_chunks - 1)
        job = data.StructLayout({"chunk": chunk, "rank": rank_width})
        event = data.StructLayout({"valid": 1, "chunk": chunk, "rank": rank_width})
        super().__init__(
            {
                "entry_en": In(1),
                "entry_addr": In(chunk),
                "entry": In(Contributions(n_words)),
                "running": In(1),
                "clear": Out(1),
                "landed": In(event),
                "jobs": Out(stream.Signature(job)),
                "merged": In(event),
                "asks": In(chunk).array(n_asks),
                "n_merged": Out(rank_width).array(n_asks),
                "settled": Out(1).array(n_asks),
            }
        )

    def elaborate(self, platform):
        m = Module()

        def table(name, width):
            ram = memory.Memory(
                shape=width, depth=self.n_chunks, init=[], attrs={"ram_style": "distributed"}
            )
            m.submodules[name] = ram
            return ram

        picked, done = table("picked", self.rank_width), table("done", self.rank_width)
        ranks = table("ranks", 16)
        pick = picked.write_port()
        finish = done.write_port()
        learn = ranks.write_port()
        m.d.comb += [
            learn.en.eq(self.entry_en),
            learn.addr.eq(self.entry_addr),
            learn.data.eq(self.entry.ranks),
        ]
        m.submodules.queue = queue = FIFO(self.jobs.p.shape(), 4)
        wiring.connect(m, queue.o, wiring.flipped(self.jobs))

        landed = self.landed
        sweep = Signal(range(self.n_chunks + 1))
        next_rank = picked.read_port(domain="comb")
        all_ranks = ranks.read_port(domain="comb")
        takes = Signal()
        m.d.comb += [
            next_rank.addr.eq(landed.chunk),
            all_ranks.addr.eq(landed.chunk),
            takes.eq(
                landed.valid
                & queue.i.ready
                & (landed.rank == next_rank.data)
                & (landed.rank + 1 != all_ranks.data)
                & (all_ranks.data > MANY)
            ),
            queue.i.valid.eq(takes),
            queue.i.p.chunk.eq(landed.chunk),
            queue.i.p.rank.eq(landed.rank),
            pick.en.eq(takes),
            pick.addr.eq(landed.chunk),
            pick.data.eq(landed.rank + 1),
            finish.en.eq(self.merged.valid),
            finish.addr.eq(self.merged.chunk),
            finish.data.eq(self.merged.rank + 1),
            self.clear.eq(sweep == self.n_chunks),
        ]
        with m.If(self.running):
            m.d.sync += sweep.eq(0)
        with m.Elif(~self.clear):
            m.d.sync += sweep.eq(sweep + 1)
            for port in (pick, finish):
                m.d.comb += [port.en.eq(1), port.addr.eq(sweep), port.data.eq(0)]

        for ask, n_merged, settled in zip(self.asks, self.n_merged, self.settled, strict=True):
            all_picked = picked.read_port(domain="comb")
            all_done = done.read_port(domain="comb")
            m.d.comb += [
                *(port.addr.eq(ask) for port in (all_picked, all_done)),
                n_merged.eq(all_done.data),
                settled.eq(all_picked.data == all_done.data),
            ]
        return m
