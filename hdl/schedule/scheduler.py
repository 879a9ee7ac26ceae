"""Message scheduler: runs one node's schedule table, row by row, as dependencies are met."""

from amaranth.hdl import Cat, Module, Mux, ResetInserter, Signal
from amaranth.lib import data, stream, wiring
from amaranth.lib.wiring import In, Out

from gradnic.interface.params import check_range
from gradnic.interface.schedule_table import Layout, bits

from ..primitive.names import signals
from ..primitive.same import join, same
from .chunk_book import EVENTS, ChunkBook, State
from .row_offer import RowOffer, countdown
from .row_reader import FAULTS, Message, RowReader, Setup, check_tables, table_members
from .row_window import N_SLOTS, RowWindow

FLUSH_CYCLES = 8  # until nothing of an aborted round is on its way inside


def Status(layout, depth: int, n_chunks: int):
    """Shape of what the driver sees; all but `running` and `done` is kept until the next start.

    running : events count; a few cycles after start, until done, abort or fault. done : the last
    round ended well. stuck : the watchdog has barked. fault : number in `FAULTS`. foreign : an
    event named a chunk outside the tensor; extra : a contribution came for a chunk that was
    released or had all it can count, or a chunk became final twice; early : an event came while
    nothing ran. row, chunk : the oldest row not taken from `issues` and its first chunk, ``rows``
    if all are out; 0 until it is known, and after a bad setup; of the bad row after a fault; kept
    as they were when the watchdog barked. step : of the last row that is out, 0 before. unfinished
    : chunks that are not final yet; with ``sums_stay`` those of terminal rows that are out.
    """
    return data.StructLayout(
        {
            "running": 1,
            "done": 1,
            "stuck": 1,
            "fault": 3,
            "foreign": 1,
            "extra": 1,
            "early": 1,
            "row": bits(depth),
            "chunk": bits(n_chunks - 1),
            "step": layout.step,
            "unfinished": bits(n_chunks),
        }
    )


class Scheduler(wiring.Component):
    """Runs the rows of a table strictly in order: a row leaves once what it waits for is there.

    A reduce row waits for ``wait`` contributions to each of its chunks, a gather row until each is
    final here. `issues` offers a row at most 6 cycles after the last event that it waits for was
    taken (for a row of several chunks: if its chunks have been looked at, which takes one cycle a
    chunk and is done up to 8 rows ahead), and one row per cycle while nothing is waited for.
    A BAR row is held until all earlier rows were taken and all ports are idle. With ``lockstep``
    the first row of each step is held in the same way, and a NOP row besides for ``step_cycles``
    per step of its count; without, NOP rows vanish.

    Chunks from ``live`` on are empty: rows shrink to what is not empty, or vanish. Repeated rows
    run in iteration i on chunks first + (i - s) * stride where 0 <= i - s < repeats; rows with
    repeat 0 run in iteration 0 only, NOP rows in each.

    A row that no table may have (operation 3, a reduce to several peers, a gather to none, a chunk
    or a peer out of range) is a fault: the round ends like an abort. Events never wait for rows.

    Parameters
    ----------
    layout : gradnic.interface.schedule_table.Layout
    depth : int
        Rows that the table holds, 2 to 16384.
    n_chunks : int
        Chunks of the largest tensor, 2 to 8192.
    n_ports : int
        1 to 8.
    n_tables : int
        Tables of `depth` rows each that are kept, 1 to 16; with more than one, powers of two.

    Members
    -------
    table_en, table_addr, table_data : In
        Writes one row, as `Layout.pack` packs it; not while running. Table k begins at k * depth.
    table : In(range(n_tables))
        Which one runs; must not change while running. Only with more than one.
    setup : In(Setup)
    start : In(1)
        A strobe. The round begins when the memory of chunks is clear: at once, unless the round
        before took fewer idle cycles than this one has chunks, or a message is still offered.
    abort : In(1)
        A strobe: `running` falls in the next cycle. An offer on `issues` is kept. Before the next
        start the card must have no event of this round left.
    starting : Out(1)
        A start was taken, and `status` is still that of the round before.
    status : Out(Status)
    added, finals, released : In(stream.Signature(chunk number))
        Events. One more contribution is in the sum of a chunk; a chunk is final here, arrived or
        made so by its terminal row; the node's own partial of a chunk was read from memory for
        the last time. One event a cycle, in this order where several are offered: `added` is
        always ready, the others while none before them is offered.
    asks : In(stream.Signature(chunk number))
        Asks for the state of a chunk; ready while no event is offered. Before the first round
        answers are what the memory began with.
    answered, answer : Out(1), Out({added, released, final})
        4 cycles after an ask was taken: contributions so far (a partial of this rank may be added
        now), whether its own partial has left (a gather result may overwrite it), whether it is
        final. All events taken before the ask are counted.
    issues : Out(stream.Signature(Message))
    idle : In(n_ports)
        1: nothing under way on this port. Must fall at most 3 cycles after a message for the port
        was taken.
    """

    def __init__(
        self,
        layout: Layout,
        *,
        depth: int = 512,
        n_chunks: int = 64,
        n_ports: int = 4,
        n_tables: int = 1,
    ) -> None:
        check_range("depth", depth, 2, 16384)
        check_range("n_chunks", n_chunks, 2, 8192)
        check_range("n_ports", n_ports, 1, 8)
        check_tables(n_tables, depth)
        self.layout, self.depth, self.n_chunks, self.n_ports = layout, depth, n_chunks, n_ports
        self.n_tables = n_tables
        chunk = stream.Signature(bits(n_chunks - 1))
        super().__init__(
            {
                **table_members(layout, depth, n_tables),
                "setup": In(Setup(layout, depth, n_chunks)),
                "start": In(1),
                "abort": In(1),
                "starting": Out(1),
                "status": Out(Status(layout, depth, n_chunks)),
                **{name: In(chunk) for name in (*EVENTS, "asks")},
                "answered": Out(1),
                "answer": Out(State(layout)),
                "issues": Out(stream.Signature(Message(layout, n_chunks))),
                "idle": In(n_ports),
            }
        )

    def elaborate(self, platform):
        m = Module()
        layout, setup, status = self.layout, self.setup, self.status
        sizes = layout, self.depth, self.n_chunks
        flush, begin = signals("flush begin")  # a register: the round's rows vanish; a strobe
        shapes = {name: field.shape for name, field in status.shape()}
        found = {name: shapes.pop(name) for name in ("row", "chunk", "step", "unfinished")}
        self._flags = Signal(data.StructLayout(shapes))
        self._found = Signal(data.StructLayout(found), reset_less=True)  # set when rounds start
        m.d.comb += [status[name].eq(self._flags[name]) for name in shapes]
        m.d.comb += [status[name].eq(self._found[name]) for name in found]
        m.submodules.book = book = ChunkBook(layout, self.n_chunks, N_SLOTS)
        reader = RowReader(*sizes, n_tables=self.n_tables)
        window = RowWindow(*sizes)
        if self.n_tables > 1:
            m.d.comb += reader.table.eq(self.table)
        m.submodules.reader = ResetInserter(flush)(reader)
        m.submodules.window = ResetInserter(flush)(window)
        m.submodules.offer = offer = RowOffer(*sizes, self.n_ports)
        join(m, book, self, (*EVENTS, "asks"))
        wiring.connect(m, window.looks, book.looks)
        wiring.connect(m, reader.rows, window.rows)
        wiring.connect(m, offer.issues, wiring.flipped(self.issues))
        m.d.comb += [
            *same(reader, self, "table_en table_addr table_data"),
            reader.setup.eq(setup),
            reader.begin.eq(begin),
            book.chunks.eq(setup.chunks),
            book.running.eq(status.running),
            book.swap.eq(begin),
            self.answered.eq(book.answered),
            self.answer.eq(book.answer),
            *same(window, book, "coming passing result grew finished"),
            window.pop.eq(offer.pop),
            window.single.eq(offer.oldest.single),
            reader.entered.eq(window.entered),
            offer.entered.eq(window.entered),
            offer.row.eq(window.row),
            offer.flush.eq(flush),
            offer.setup.eq(setup),
            offer.idle.eq(self.idle),
            *same(offer, window, "done held next_done spread"),
        ]
        all_out, ended = signals("all_out ended")
        m.d.sync += [
            all_out.eq(reader.ended & ~offer.present & ~begin),
            ended.eq(all_out & offer.quiet & (self._found.unfinished == 0) & status.running),
        ]
        self._watch(m, book, reader, offer, all_out)
        self._rounds(m, book, reader, offer, ended, flush, begin)
        return m

    def _watch(self, m, book, reader, offer, all_out):
        """Which row is the oldest, and for how long nothing has moved."""
        setup, flags, found = self.setup, self._flags, self._found
        barks, moves = signals("barks moves")
        m.d.sync += barks.eq(setup.watchdog != 0)
        m.d.sync += moves.eq(
            offer.pop | book.grew | book.finished | offer.counting | ~flags.running
        )
        late = countdown(m, setup.watchdog, moves, until=0, name="watchdog")
        with m.If(flags.running & late & barks):
            m.d.sync += flags.stuck.eq(1)

        row = Signal.like(found["row"], reset_less=True)
        chunk = Signal.like(found["chunk"], reset_less=True)
        known = Signal()
        m.d.sync += [
            row.eq(Mux(offer.present, offer.oldest.row, setup.rows)),
            chunk.eq(Mux(offer.present, offer.oldest.message.first, 0)),
            known.eq((offer.present | all_out) & flags.running & ~flags.stuck),
        ]
        with m.If(offer.pop):
            m.d.sync += found.step.eq(offer.oldest.message.step)
        with m.If(flags.running & (known | reader.failing)):
            m.d.sync += [
                found.row.eq(Mux(reader.failing, reader.fault_row, row)),
                found.chunk.eq(Mux(reader.failing, reader.fault_chunk, chunk)),
            ]

    def _rounds(self, m, book, reader, offer, ended, flush, begin):
        """Start, end, abort and fault of a round."""
        setup, flags, found = self.setup, self._flags, self._found
        pending, wrong, starting = signals("pending wrong starting")
        reasons = (
            setup.rows == 0, setup.rows > self.depth,
            setup.chunks == 0, setup.chunks > self.n_chunks,
            setup.live > setup.chunks, setup.repeats == 0, setup.iterations == 0,
        )  # fmt: skip
        judged = Signal(len(reasons))
        message = offer.oldest.message
        more = Signal(range(self.n_chunks + 1))
        with m.If(offer.pop & message.terminal & setup.sums_stay):
            m.d.comb += more.eq(message.count + 1)
        m.d.sync += [
            judged.eq(Cat(reasons)),
            wrong.eq(judged.any()),
            found.unfinished.eq(found.unfinished + more - book.finished),
            flags.foreign.eq(flags.foreign | book.foreign),
            flags.extra.eq(flags.extra | book.extra),
            flags.early.eq(flags.early | book.early),
        ]  # fmt: skip
        with m.If(self.start & ~flags.running):
            m.d.sync += [pending.eq(1), flags.done.eq(0)]
        with m.If(self.abort | starting):
            m.d.sync += pending.eq(0)
        with m.If(flags.running & reader.failing):
            m.d.sync += flags.fault.eq(reader.fault)
        with m.If(starting):
            m.d.sync += [
                flags.fault.eq(Mux(wrong, FAULTS.index("setup"), 0)), flags.stuck.eq(0),
                flags.foreign.eq(0), flags.extra.eq(0), flags.early.eq(0),
                found.unfinished.eq(Mux(setup.sums_stay, 0, setup.live)),
                found.row.eq(0), found.chunk.eq(0), found.step.eq(0),
            ]  # fmt: skip

        # A round is starting, running, being flushed, or there is none
        stops = self.abort | reader.failing
        n_flushed = Signal(range(FLUSH_CYCLES))
        flushed = Signal()
        m.d.comb += [
            begin.eq(starting & ~wrong & ~self.abort),
            self.starting.eq(pending | starting),
        ]
        m.d.sync += [
            starting.eq(pending & book.clean & ~self.abort & ~(starting | flags.running | flush)),
            flags.running.eq(begin | (flags.running & ~(stops | ended))),
            flush.eq((flags.running & stops) | (flush & ~(flushed & ~self.issues.valid))),
            n_flushed.eq(Mux(flush, n_flushed + 1, 0)),
            flushed.eq(flush & (flushed | (n_flushed == FLUSH_CYCLES - 2))),
        ]
        with m.If(flags.running & ended & ~stops):
            m.d.sync += flags.done.eq(1)
