"""The engine of a card on the flit layer: reads, adds and hands out what the rows send."""

from amaranth.hdl import Cat, Module, Mux, Signal
from amaranth.lib import data, stream, wiring
from amaranth.lib.wiring import In, Out
from amaranth.utils import ceil_log2

from gradnic.interface.flit import FLIT_FLOATS
from gradnic.interface.schedule_table import Layout, bits

from ..primitive.multiplier import Multiplier
from ..primitive.same import same
from ..reduction.reduce import Op
from ..stream.delays import delayed, delayed_flag
from ..stream.fifo import FIFO
from .codec import Settings
from .engine_sums import add, in_order
from .landing import Contributions, Places, entries_of
from .merge_book import MergeBook
from .slots import BLOCK_FLOATS, Slot, number, round_robin, select


def Job(layout, n_chunks):
    """Shape of one message to one port, or of a terminal row."""
    chunk = bits(n_chunks - 1)
    return data.StructLayout(
        {"gather": 1, "wait": layout.wait, "first": chunk, "count": bits(n_chunks)}
    )


class FlitEngine(wiring.Component):
    """Reads chunks for several ports at once, and adds what has landed, rank by rank.

    Each port, and the terminal rows, have a slot. A slot works on blocks of up to 256 floats: own +
    rank 0, then that + rank 1, ...; sums of a block wait in a block RAM between the ranks, so
    nothing goes back to memory, and the last sum goes straight to the port. The slots take turns,
    block by block and rank by rank. One word per cycle over all slots; the ranks of one block
    follow each other after 16 cycles at least. Words without contributions go around the adder.

    A gather row may follow its chunk's terminal row while that still writes: it never overtakes it.
    Where a chunk gets many contributions, those that come early are added ahead of the row, in a
    slot of their own that writes the sums back to the chunk's own words (`MergeBook`).

    Parameters
    ----------
    layout : gradnic.interface.schedule_table.Layout
    n_ports, n_lanes, n_chunks, n_words : int
        As of `gradnic.hdl.direct.card.FlitCard`.
    integers : bool
        As of `gradnic.hdl.reduction.reduce.Combine`.
    coded : bool
        Terminal rows put the sums through the codec's image.

    Members
    -------
    op : In(Op)
        What contributions are combined with; stable while jobs run.
    codec : In(Settings), with `coded`.
    places, entry_en, entry_addr, entry : In
        As of `Landing`.
    jobs : array of In(stream.Signature(Job)), n_ports + 1
        The last is the slot of terminal rows.
    own_address, landing_address : Out
    own_data, landing_data : In(32 * n_lanes)
        Words of gradient and landing memory, 2 cycles after the address.
    words : array of Out(stream.Signature({data, n_flits, last})), n_ports
        What goes to the ports; last ends a job.
    results, sums : Out(stream.Signature({data, address, chunk, first, ends}))
        Words of terminal rows, and sums made ahead of their row, to be written to gradient memory.
    landed : In({valid, chunk, rank}), running : In(1), clear : Out(1)
        As of `MergeBook`.
    released : Out(stream.Signature(chunk))
        The own partial of this chunk has been read.
    busy : Out(n_ports + 2)
        The slot has a job, or words that were not taken.
    """

    def __init__(
        self,
        layout: Layout,
        *,
        n_ports: int,
        n_lanes: int,
        n_chunks: int,
        n_words: int,
        integers: bool,
        coded: bool = False,
    ) -> None:
        self.integers, self.coded = integers, coded
        self.layout, self.n_ports, self.n_lanes = layout, n_ports, n_lanes
        self.n_chunks, self.n_words = n_chunks, n_words
        self.ratio = n_lanes // FLIT_FLOATS
        self.block = BLOCK_FLOATS // n_lanes  # words
        self.queue = 2 * self.block  # words that wait for a port
        chunk, address = bits(n_chunks - 1), bits(n_words - 1)
        job = stream.Signature(Job(layout, n_chunks))
        self.word = data.StructLayout(
            {"data": 32 * n_lanes, "n_flits": range(self.ratio + 1), "last": 1}
        )
        self.result = data.StructLayout(
            {"data": 32 * n_lanes, "address": address, "chunk": chunk, "first": 1, "ends": 1}
        )
        super().__init__(
            {
                "op": In(Op),
                **({"codec": In(Settings)} if coded else {}),
                "places": In(Places(n_chunks, n_words)),
                "entry_en": In(1),
                "entry_addr": In(chunk),
                "entry": In(Contributions(n_words)),
                "jobs": In(job).array(n_ports + 1),
                "own_address": Out(address),
                "own_data": In(32 * n_lanes),
                "landing_address": Out(address),
                "landing_data": In(32 * n_lanes),
                "words": Out(stream.Signature(self.word)).array(n_ports),
                "results": Out(stream.Signature(self.result)),
                "sums": Out(stream.Signature(self.result)),
                "landed": In(data.StructLayout({"valid": 1, "chunk": chunk, "rank": layout.wait})),
                "running": In(1),
                "clear": Out(1),
                "released": Out(stream.Signature(chunk)),
                "busy": Out(n_ports + 2),
            }
        )

    def elaborate(self, platform):
        m = Module()
        slots = [Slot(m, self, k) for k in range(self.n_ports + 2)]
        self._merge(m, slots[-1])
        self._find(m, slots)
        grant, start = self._pick(m, slots)
        step = self._walk(m, slots, grant, start)
        add(m, self, slots, step)
        in_order(m, self, slots)
        return m

    def _merge(self, m, slot):
        """The last slot adds contributions ahead of their row, and writes the sums back."""
        m.submodules.book = self.book = book = MergeBook(
            n_chunks=self.n_chunks,
            n_words=self.n_words,
            rank_width=self.layout.wait,
            n_asks=self.n_ports + 1,
        )
        m.d.comb += [
            *same(book, self, "entry_en entry_addr entry running landed"),
            self.clear.eq(book.clear),
            book.merged.valid.eq(self.sums.valid & self.sums.ready & self.sums.p.ends),
            book.merged.chunk.eq(self.sums.p.chunk),
            book.merged.rank.eq(slot.lowest),
            book.jobs.ready.eq(~slot.valid & (slot.reserved == 0)),
        ]
        with m.If(book.jobs.valid & book.jobs.ready):
            m.d.sync += [
                slot.valid.eq(1),
                slot.asks.eq(1),
                slot.gather.eq(1),  # the chunk was not released
                slot.chunk.eq(book.jobs.p.chunk),
                slot.lowest.eq(book.jobs.p.rank),
                slot.wait.eq(book.jobs.p.rank + 1),
                slot.count.eq(1),
                slot.done.eq(0),
            ]

    def _find(self, m, slots):
        """Addresses of a chunk and its contributions: one slot after the other, 4 cycles.

        Asks again for a chunk to which a contribution is being added ahead of the row. The book
        is read for all slots at once, so that it does not wait for whose turn it is.
        """
        read = entries_of(m, self)
        book, merging = self.book, slots[-1]
        grant = round_robin(m, Cat(s.asks for s in slots), 1, name="find")
        chunk = Signal(bits(self.n_chunks - 1))
        m.d.comb += [
            chunk.eq(select(grant, [s.chunk for s in slots])),
            read.addr.eq(chunk),
            *(ask.eq(s.chunk) for ask, s in zip(book.asks, slots[:-1], strict=True)),
        ]
        plain = [s.wait == 0 for s in slots[:-1]]
        known = zip(plain, book.settled, strict=True)
        finds = Signal(len(slots))
        m.d.comb += finds.eq(grant & Cat(*(p | settled for p, settled in known), 1))
        for slot, found in zip(slots, finds, strict=True):
            with m.If(found):
                m.d.sync += slot.asks.eq(0)
        asked = Signal(len(slots))
        base = Signal(bits(self.n_words), reset_less=True)
        lowest = Signal(self.layout.wait, reset_less=True)
        merged = zip(plain, book.n_merged, strict=True)
        m.d.sync += [
            asked.eq(finds),
            base.eq(read.data.base),
            lowest.eq(select(grant, [*(Mux(p, 0, n) for p, n in merged), merging.lowest])),
        ]
        chunk = delayed(m, chunk, 1, name="found_chunk")
        width = bits(self.n_words)
        m.submodules.own = own = Multiplier(width, width)
        m.submodules.landing = landing = Multiplier(width, width)
        m.d.comb += [
            own.a.eq(chunk),
            own.b.eq(self.places.chunk_words),
            landing.a.eq(base + lowest),
            landing.b.eq(self.places.chunk_words),
        ]
        lowest = delayed(m, lowest, own.latency, name="lowest_late")
        is_last = Signal()
        m.d.sync += is_last.eq(chunk + 1 == self.places.live)
        is_last = delayed(m, is_last, own.latency - 1, name="is_last")
        flits = Mux(is_last, self.places.last_flits, self.places.chunk_flits)
        words = Signal(bits(self.n_words))
        shift = ceil_log2(self.ratio)
        m.d.comb += words.eq((flits + self.ratio - 1) >> shift)
        for k, slot in enumerate(slots):
            found = delayed_flag(m, asked[k], own.latency, name=f"found{k}")
            with m.If(found):
                m.d.sync += [
                    slot.runs.eq(1),
                    slot.own.eq(own.p),
                    slot.landing.eq(landing.p),
                    slot.block.eq(landing.p),
                    slot.lowest.eq(lowest),
                    slot.rank.eq(lowest),
                    slot.fresh.eq(1),
                    slot.rest.eq(words),
                    slot.tail.eq((flits - 1)[:shift]),
                ]

    def _pick(self, m, slots):
        """The slot whose pass is next, when the one that runs ends."""
        ready = Cat(s.runs & s.due & (~s.fresh | (s.room & s.behind & s.alone)) for s in slots)
        free = Signal()
        grant = round_robin(m, ready, free, name="pick")
        start = Signal()
        m.d.comb += start.eq(free & ready.any())
        self.free = free
        return grant, start

    def _walk(self, m, slots, grant, start):
        """Runs a pass: one word per cycle. Returns what each word is, as a stage of registers."""
        n_slots = len(slots)
        running = Signal()
        at = Signal(range(self.block))
        n = Signal(range(self.block + 1))
        ends = Signal()
        chosen = {
            name: select(grant, [getattr(s, name) for s in slots])
            for name in ("own", "landing", "fresh", "chunk", "tail", "gather")
        }
        passes = [s.outlook() for s in slots]
        chosen |= {name: select(grant, [p[name] for p in passes]) for name in passes[0]}
        size = Signal(range(self.block + 1))
        final = Signal()
        closes = Signal()
        m.d.comb += [
            *(signal.eq(chosen[signal.name]) for signal in (size, final, closes)),
            ends.eq(at + 1 == n),
            self.free.eq(~running | ends),
        ]
        tag = data.StructLayout(
            {
                "slot": range(n_slots),
                "own": 1,  # the first pass: own words, not sums
                "adds": 1,
                "final": 1,
                "closes": 1,  # the chunk's last block
                "opens": 1,
                "last": 1,  # of the job
                "tail": ceil_log2(self.ratio) or 1,
                "chunk": bits(self.n_chunks - 1),
            }
        )
        held = Signal(tag, reset_less=True)
        with m.If(running):
            m.d.sync += [
                at.eq(at + 1),
                self.own_address.eq(self.own_address + 1),
                self.landing_address.eq(self.landing_address + 1),
            ]
            with m.If(ends):
                m.d.sync += running.eq(0)
        with m.If(start):
            m.d.sync += [
                running.eq(1),
                at.eq(0),
                n.eq(size),
                self.own_address.eq(chosen["own"]),
                self.landing_address.eq(chosen["landing"]),
                held.slot.eq(number(grant)),
                held.own.eq(chosen["fresh"]),
                held.adds.eq(chosen["adds"]),
                held.final.eq(final),
                held.closes.eq(closes),
                held.opens.eq(chosen["opens"]),
                held.last.eq(chosen["last"]),
                held.tail.eq(chosen["tail"]),
                held.chunk.eq(chosen["chunk"]),
            ]
        m.submodules.released = released = FIFO(self.released.p.shape(), 16)
        wiring.connect(m, released.o, wiring.flipped(self.released))
        m.d.comb += [
            released.i.p.eq(chosen["chunk"]),
            released.i.valid.eq(start & ~chosen["gather"] & closes & chosen["fresh"]),
        ]
        for s, got in zip(slots, grant, strict=True):
            with m.If(start & got):
                s.advance(m, final, size, closes)
        return running, at, ends, held
