"""From a link's flits to words with their places in memory."""

from amaranth.hdl import Module, Mux, Signal
from amaranth.lib import data, memory, stream, wiring
from amaranth.lib.wiring import In, Out

from gradnic.interface.flit import FLIT_BYTES
from gradnic.interface.schedule_table import bits

from ..primitive.multiplier import Multiplier
from ..primitive.names import signals
from ..primitive.zeroed_table import filled
from ..stream.beats import Beat
from ..stream.delays import delayed, delayed_flag
from ..stream.fifo import FIFO
from ..stream.width import WidthConverter
from .link import Flit, FlitHead

N_UNDER_WAY = 8  # chunks whose place is looked up ahead of their payload


def Places(n_chunks, n_words):
    """Shape of where a round keeps things, stable while it runs: see
    `gradnic.interface.flit.Share`.

    chunk_words : of memory per chunk. chunk_flits : of a chunk, and `last_flits` of the last one
    that is not empty, chunk `live` - 1.
    """
    return data.StructLayout(
        {
            "chunk_words": bits(n_words),
            "chunk_flits": 24,
            "last_flits": 24,
            "live": bits(n_chunks),
        }
    )


def Contributions(n_words):
    """Shape of a chunk's entry: its first place for contributions, and how many there are."""
    return data.StructLayout({"base": bits(n_words), "ranks": 16})


def entries_of(m, part):
    """Read port of the entries of chunks, which a part's members ``entry...`` write."""
    m.submodules.entries = table = memory.Memory(
        shape=Contributions(part.n_words), depth=part.n_chunks, init=[],
        attrs={"ram_style": "distributed"},
    )  # fmt: skip
    return filled(m, table, part.entry_en, part.entry_addr, part.entry)


class Landing(wiring.Component):
    """Takes messages apart: words for memory, each chunk at its place. 1 flit per cycle.

    A contribution goes to place ``base + rank`` of its chunk in landing memory, a final chunk to
    its own place in gradient memory; a place is `chunk_words` words. The last word is offered
    1 cycle after its last flit was taken, 3 where words are narrower than 32 floats. Heads of later
    packets of a message are left out. A message that names a chunk or a rank that this node does
    not have, or whose length is not what its chunks say, is taken and raises `foreign`; nothing of
    the former is written.

    Parameters
    ----------
    n_lanes : int
        Floats per word: 8, 16 or 32.
    n_chunks, n_words : int
        Chunks of the largest tensor; words of each memory.

    Members
    -------
    enable : In(1)
        Flits are taken.
    places : In(Places)
    entry_en, entry_addr, entry : In
        Writes a chunk's entry; not while flits are taken.
    flits : In(stream.Signature(Flit))
    words : Out(stream.Signature({data, address, landing, ends, chunk, rank}))
        landing: 1 for contributions; ends: the chunk's last word.
    foreign : Out(1)
        Since the reset.
    """

    def __init__(self, n_lanes: int, *, n_chunks: int, n_words: int) -> None:
        if n_lanes not in (8, 16, 32):
            raise ValueError(f"n_lanes must be 8, 16 or 32, not {n_lanes!r}")
        self.n_lanes, self.n_chunks, self.n_words = n_lanes, n_chunks, n_words
        chunk = bits(n_chunks - 1)
        word = data.StructLayout(
            {
                "data": 32 * n_lanes,
                "address": bits(n_words - 1),
                "landing": 1,
                "ends": 1,
                "chunk": chunk,
                "rank": 16,
            }
        )
        super().__init__(
            {
                "enable": In(1),
                "places": In(Places(n_chunks, n_words)),
                "entry_en": In(1),
                "entry_addr": In(chunk),
                "entry": In(Contributions(n_words)),
                "flits": In(stream.Signature(Flit)),
                "words": Out(stream.Signature(word)),
                "foreign": Out(1),
            }
        )

    def elaborate(self, platform):
        m = Module()
        narrow, wide = Beat(8 * FLIT_BYTES), Beat(32 * self.n_lanes)
        m.submodules.widen = widen = WidthConverter(narrow, wide)
        flit, places = self.flits.p, self.places
        head = FlitHead(flit.data[: FlitHead.size])

        inside = Signal()  # after a head
        message = Signal(FlitHead, reset_less=True)
        chunk = Signal(16, reset_less=True)
        left = Signal(24, reset_less=True)
        last_chunk = Signal(reset_less=True)  # of the message
        under_way = Signal(range(N_UNDER_WAY + 1))
        look, found = signals("look found")  # a chunk's place is asked for; its last word has left
        takes, ends = signals("takes ends")
        payload = Signal()
        m.d.comb += [
            payload.eq(inside & ~flit.head),
            takes.eq(self.flits.valid & self.flits.ready),
            ends.eq((left == 1) | flit.last),
            widen.i.valid.eq(self.flits.valid & self.enable & payload & (under_way < N_UNDER_WAY)),
            widen.i.p.data.eq(flit.data),
            widen.i.p.last.eq(ends),
            self.flits.ready.eq(
                self.enable & (~payload | widen.i.ready) & (under_way < N_UNDER_WAY)
            ),
        ]
        at, rank = signals("at rank", 16)  # of the place asked for
        gather = Signal()
        final = Signal(16)  # the last chunk that is not empty
        m.d.comb += final.eq(places.live - 1)
        after = Signal(16)
        m.d.comb += [
            after.eq(chunk + 1),
            at.eq(Mux(flit.head, head.first, after)),
            rank.eq(Mux(flit.head, head.rank, message.rank)),
            gather.eq(Mux(flit.head, head.gather, message.gather)),
        ]
        odd = Signal()
        with m.If(takes & flit.head & ~head.more):
            m.d.comb += [look.eq(1), odd.eq(inside | (head.count == 0))]
            m.d.sync += [message.eq(head), inside.eq(1)]
            m.d.sync += last_chunk.eq(head.count <= 1)
        with m.Elif(takes & payload):
            m.d.comb += odd.eq(flit.last != ((left == 1) & last_chunk))
            m.d.sync += left.eq(left - 1)
            with m.If(flit.last):
                m.d.sync += inside.eq(0)
            with m.Elif(ends):
                m.d.comb += look.eq(1)
                m.d.sync += [message.count.eq(message.count - 1)]
                m.d.sync += last_chunk.eq(message.count <= 2)
        with m.Elif(takes):
            m.d.comb += odd.eq(~flit.head | ~inside)
        with m.If(look):
            m.d.sync += chunk.eq(at)
            m.d.sync += left.eq(Mux(at == final, places.last_flits, places.chunk_flits))
        m.d.sync += under_way.eq(under_way + look - found)

        place = self._places(m, look, at, rank, gather)
        words = widen.o
        if self.n_lanes < 32:  # narrow words come before their place is known
            m.submodules.words = queue = FIFO(wide, 8)
            wiring.connect(m, words, queue.i)
            words = queue.o
        index = Signal(bits(self.n_words - 1))
        word = self.words.p
        m.d.comb += [
            self.words.valid.eq(words.valid & place.valid & ~place.p.foreign),
            words.ready.eq(place.valid & (self.words.ready | place.p.foreign)),
            found.eq(words.valid & words.ready & words.p.last),
            place.ready.eq(found),
            word.data.eq(words.p.data),
            word.address.eq(place.p.address + index),
            word.landing.eq(place.p.landing),
            word.ends.eq(words.p.last),
            word.chunk.eq(place.p.chunk),
            word.rank.eq(place.p.rank),
        ]
        m.d.sync += self.foreign.eq(
            self.foreign | odd | (place.valid & place.ready & place.p.foreign)
        )
        with m.If(words.valid & words.ready):
            m.d.sync += index.eq(Mux(words.p.last, 0, index + 1))
        return m

    def _places(self, m, look, at, rank, gather):
        """Stream of the places asked for: {address, landing, chunk, foreign}."""
        read = entries_of(m, self)
        m.d.comb += read.addr.eq(at)
        width = bits(self.n_words)
        m.submodules.times = times = Multiplier(width, width)
        found = Signal(Contributions(self.n_words), reset_less=True)
        chunk, asked = delayed(m, at, 1, name="at"), delayed(m, rank, 1, name="rank")
        final = delayed(m, gather, 1, name="gather")
        foreign = Signal(reset_less=True)
        place = Signal(width, reset_less=True)
        m.d.sync += [
            found.eq(read.data),
            place.eq(Mux(final, chunk, found.base + asked)),
            foreign.eq((chunk >= self.places.live) | (~final & (asked >= found.ranks))),
        ]
        m.d.comb += [times.a.eq(place), times.b.eq(self.places.chunk_words)]
        shape = data.StructLayout(
            {
                "address": bits(self.n_words - 1),
                "landing": 1,
                "chunk": 16,
                "rank": 16,
                "foreign": 1,
            }
        )
        m.submodules.queue = queue = FIFO(shape, N_UNDER_WAY)
        m.d.comb += [
            queue.i.valid.eq(delayed_flag(m, look, 2 + times.latency, name="look")),
            queue.i.p.address.eq(times.p),
            queue.i.p.landing.eq(delayed(m, ~final, 1 + times.latency, name="landing")),
            queue.i.p.chunk.eq(delayed(m, chunk, 1 + times.latency, name="chunk")),
            queue.i.p.rank.eq(delayed(m, asked, 1 + times.latency, name="rank_late")),
            queue.i.p.foreign.eq(delayed(m, foreign, times.latency, name="foreign")),
        ]
        return queue.o
