"""What a card knows of a round: who sends which packets, which are here, how many of a chunk.

Part of `gradnic.hdl.offload.card`, whose golden model it follows.
"""

from amaranth.hdl import Array, Cat, Const, Module, Mux, Shape, Signal
from amaranth.lib import data, wiring
from amaranth.lib.wiring import In, Out
from amaranth.utils import ceil_log2

from ..primitive.block_ram import BlockRAM
from ..primitive.names import signals
from .records import (
    CHECK_WIDTH,
    CHUNK_WIDTH,
    FLOW_WIDTH,
    LEAVES_WIDTH,
    N_NEIGHBORS,
    NUMBER_WIDTH,
    Answer,
    CheckWrite,
    Mark,
    Marks,
    Places,
)

CLEAR_WIDTH = 15  # of a number of packets that are forgotten


class Ledger(wiring.Component):
    """One packet of one sender at a time, looked up step by step and closed.

    Right so many cycles after ``chunk``, ``number``, ``neighbor``, ``flow``, ``down`` and ``own``
    were given: ``check`` 2, ``rank``, ``found``, ``right_flow`` and ``weight`` 4, ``closed`` 5,
    ``completes`` 7; from then on a pulse on ``closes`` writes the packet's mark and its chunk's
    count, and the next may be given.
    Plumbing of `Receiver`, which is what has a golden model.

    Parameters
    ----------
    n_ranks, n_chunks, n_packets, thc, n_tables : int, int, int, bool, int
        As of `Receiver`; so is ``table``.

    Members
    -------
    clear, clearing, n_clear : In(1), Out(1), In(15)
        As of `Receiver`.
    place_en, place_addr, place_data : In
        Writes one entry of the table of senders, by chunk.
    survey, survey_chunk, senders : In(1), In(chunk), Out(Places(n_ranks))
        While ``survey``, the table's entry of this chunk, 2 cycles later; no packet is looked up.
    check_write : In(CheckWrite)
        Does nothing without ``thc``.
    chunk, number, neighbor, flow : In
        The packet, who sent it, and the flow that it names.
    down, own : In(1)
        It is of the result; it is of a terminal row of this card.
    n_here : In(16)
        Packets of the chunk.
    given_up, packed, leaves : In(1), In(1), In(12)
        What is to be written: the packet did not come; or it did, with indices or without, and with
        so many contributions.
    rank : Out(range(n_ranks + 1))
        Of the neighbor among those who send the chunk up; n_ranks for ``down``.
    found, weight : Out(1), Out(8)
        The neighbor sends this chunk here; most leaves that it may stand for.
    right_flow : Out(1)
        It is the flow by which the neighbor sends the chunk up.
    check : Out(20)
        Of the packet's norms; 0 without ``thc``.
    closed, completes : Out(1)
        The packet is here or was given up; with it the chunk is complete.
    closes : In(1)
    ask, answer : In(number of a packet), Out(Answer(n_ranks))
        What is known of any packet, 2 cycles later.
    """

    def __init__(
        self, n_ranks: int, n_chunks: int, n_packets: int, *, thc: bool = True, n_tables: int = 1
    ) -> None:
        self.thc, self.n_tables = thc, n_tables
        self.n_ranks, self.n_chunks, self.n_packets = n_ranks, n_chunks, n_packets
        self.places, self.marks = Places(n_ranks), Marks(n_ranks)
        super().__init__(
            {
                "clear": In(1),
                "clearing": Out(1),
                "n_clear": In(CLEAR_WIDTH),
                "place_en": In(1),
                "place_addr": In(ceil_log2(n_tables * n_chunks)),
                "place_data": In(self.places),
                "survey": In(1),
                "survey_chunk": In(CHUNK_WIDTH),
                "senders": Out(self.places),
                **({"table": In(range(n_tables))} if n_tables > 1 else {}),
                "check_write": In(CheckWrite),
                "chunk": In(CHUNK_WIDTH),
                "number": In(NUMBER_WIDTH),
                "neighbor": In(ceil_log2(N_NEIGHBORS)),
                "flow": In(FLOW_WIDTH),
                "down": In(1),
                "own": In(1),
                "n_here": In(NUMBER_WIDTH),
                "given_up": In(1),
                "packed": In(1),
                "leaves": In(LEAVES_WIDTH),
                "rank": Out(range(n_ranks + 1)),
                "found": Out(1),
                "right_flow": Out(1),
                "weight": Out(8),
                "check": Out(CHECK_WIDTH),
                "closed": Out(1),
                "completes": Out(1),
                "closes": In(1),
                "ask": In(ceil_log2(n_packets)),
                "answer": Out(Answer(n_ranks)),
            }
        )

    def elaborate(self, platform):
        m = Module()
        n_senders = self.n_ranks + 1
        mark = Shape.cast(Mark).width
        counts = data.ArrayLayout(NUMBER_WIDTH, n_senders)
        m.submodules.place_ram = places = BlockRAM(
            self._width(self.places), self.n_tables * self.n_chunks
        )
        low = ceil_log2(self.n_chunks)
        chunk = Mux(self.survey, self.survey_chunk, self.chunk)
        chunk = Cat(chunk[:low], self.table) if self.n_tables > 1 else chunk
        m.submodules.count_ram = counted = BlockRAM(n_senders * NUMBER_WIDTH, self.n_chunks)
        m.submodules.mark_ram = marked = BlockRAM(n_senders * mark, self.n_packets)
        m.submodules.asked_ram = asked = BlockRAM(n_senders * mark, self.n_packets)
        m.d.comb += [
            places.write_en.eq(self.place_en),
            places.write_addr.eq(self.place_addr),
            places.write_data.eq(self.place_data),
            places.read_addr.eq(chunk),
            counted.read_addr.eq(self.chunk),
            marked.read_addr.eq(self.number),
            asked.read_addr.eq(self.ask),
            self.answer.marks.as_value().eq(asked.read_data),
        ]
        entry = Signal(self.places)
        m.d.comb += [entry.as_value().eq(places.read_data), self.senders.eq(entry)]
        self._look(m, entry)
        if self.thc:
            self._checks(m)

        old_marks = Signal(self.marks, reset_less=True)
        old_counts = Signal(counts, reset_less=True)
        before, count = signals("before count", NUMBER_WIDTH, reset_less=True)
        leaves = Signal(LEAVES_WIDTH, reset_less=True)
        new_marks = [Signal(mark, name=f"new_mark{k}", reset_less=True) for k in range(n_senders)]
        new_counts = [
            Signal(NUMBER_WIDTH, name=f"new_count{k}", reset_less=True) for k in range(n_senders)
        ]
        by_rank = [*old_marks.up, old_marks.down]
        m.d.sync += [
            old_marks.as_value().eq(marked.read_data),
            old_counts.as_value().eq(counted.read_data),
            before.eq(Array(old_counts)[self.rank]),
            self.closed.eq(Array(one.closed for one in by_rank)[self.rank]),
            count.eq(before + 1),
            self.completes.eq(count == self.n_here),
            leaves.eq(Mux(self.given_up, 0, self.leaves)),
        ]
        closed = Cat(~self.given_up, Const(1, 1), self.packed, leaves)
        for k in range(n_senders):
            m.d.sync += [
                new_marks[k].eq(Mux(self.rank == k, closed, by_rank[k].as_value())),
                new_counts[k].eq(Mux(self.rank == k, count, old_counts[k])),
            ]
        sweep = Signal(range(max(self.n_packets, self.n_chunks)))
        for ram, address, new in (
            (counted, self.chunk, new_counts),
            (marked, self.number, new_marks),
            (asked, self.number, new_marks),
        ):
            m.d.comb += [
                ram.write_en.eq(self.closes | self.clearing),
                ram.write_addr.eq(Mux(self.clearing, sweep, address)),
                ram.write_data.eq(Mux(self.clearing, 0, Cat(new))),
            ]
        with m.If(self.clearing):
            m.d.sync += [sweep.eq(sweep - 1), self.clearing.eq(sweep != 0)]
        with m.Elif(self.clear):
            m.d.sync += [sweep.eq(self.n_clear - 1), self.clearing.eq(1)]
        return m

    @staticmethod
    def _width(layout):
        return Shape.cast(layout).width

    def _checks(self, m):
        """One table for the packet that came, and one for whoever asks."""
        for name, number, check in (
            ("check_ram", self.number, self.check),
            ("asked_check_ram", self.ask, self.answer.check),
        ):
            m.submodules[name] = ram = BlockRAM(CHECK_WIDTH, self.n_packets)
            m.d.comb += [
                ram.write_en.eq(self.check_write.enable),
                ram.write_addr.eq(self.check_write.number),
                ram.write_data.eq(self.check_write.check),
                ram.read_addr.eq(number),
                check.eq(ram.read_data),
            ]

    def _look(self, m, entry):
        """Which rank the neighbor has in this chunk, two cycles after the table was read."""
        up = Signal(self.n_ranks, reset_less=True)
        is_parent = Signal(reset_less=True)
        same_flow = Signal(self.n_ranks, reset_less=True)
        known = [
            Signal.like(one.leaves, name=f"leaves{k}", reset_less=True)
            for k, one in enumerate(entry.up)
        ]
        m.d.sync += [
            up.eq(Cat(one.valid & (one.neighbor == self.neighbor) for one in entry.up)),
            is_parent.eq(entry.down.valid & (entry.down.neighbor == self.neighbor)),
            same_flow.eq(Cat(one.flow == self.flow for one in entry.up)),
            *(held.eq(one.leaves) for held, one in zip(known, entry.up, strict=True)),
        ]
        leaves, number = Const(0, 8), Const(0, len(self.rank))
        for k, one in enumerate(known):
            leaves = Mux(up[k], one, leaves)
            number = Mux(up[k], k, number)
        m.d.sync += [
            self.rank.eq(Mux(self.down, self.n_ranks, number)),
            self.weight.eq(Mux(self.down, 0xFF, leaves)),
            self.right_flow.eq(self.down | (up & same_flow).any()),
            self.found.eq(Mux(self.down, self.own | is_parent, up.any())),
        ]
