"""Row reader of the scheduler: from the table's memory to rows that say what to do, one a cycle.

Twin of `gradnic.models.schedule.row_reader`; a part of the scheduler.
"""

from types import SimpleNamespace

from amaranth.hdl import Array, Cat, Const, Module, Mux, Shape, Signal, Value, signed
from amaranth.lib import data, stream, wiring
from amaranth.lib.wiring import In, Out

from gradnic.interface.schedule_table import GATHER, NOP, REDUCE, Layout, bits

from ..primitive.block_ram import BlockRAM
from ..primitive.names import signals
from ..stream.delays import delayed, delayed_flag
from ..stream.fifo import FIFO

N_AHEAD = 16  # rows between the table's address and whoever takes them
FAULTS = ("none", "setup", "operation", "chunk", "peer")  # by number


def Message(layout, n_chunks: int):
    """Shape of what the scheduler tells the card to send.

    gather : 0 reduce: send the partial sum of the chunks; 1 gather: send the final chunks.
    terminal : a reduce without a peer: make the chunks final here (codec image), then report
    them on ``finals``. flow, wait, rank, step : as in the row. first, count : the first chunk of
    the tensor, and how many less one; none of them is empty. sends : array of {valid, peer}: one
    valid for a reduce, none if terminal, one or more for a gather.
    """
    chunk = bits(n_chunks - 1)
    return data.StructLayout(
        {
            "gather": 1,
            "terminal": 1,
            "flow": layout.flow,
            "wait": layout.wait,
            "rank": layout.rank,
            "step": layout.step,
            "first": chunk,
            "count": chunk,
            "sends": data.ArrayLayout(
                data.StructLayout({"valid": 1, "peer": layout.peer}), layout.n_sends
            ),
        }
    )


def Setup(layout, depth: int, n_chunks: int):
    """Shape of what must be known of a round; stable from `start` until `running` has fallen.

    rows : in the table, 1 to depth. chunks : in the tensor, those of all repeats, 1 to n_chunks.
    live : those of them that are not empty. peers : that the node has; rows name 0 .. peers - 1.
    stride, repeats, iterations : chunks of one period, periods, and repeats + stages - 1; without
    a period repeats and iterations are 1. lockstep : NOP rows and steps are obeyed.
    step_cycles : estimated time of a step, for NOP rows. watchdog : cycles without progress until
    `stuck`, 0 for never. sums_stay : nothing is gathered; only chunks of this node's terminal rows
    become final here.
    """
    chunks = bits(n_chunks)
    turns = bits(n_chunks + 2**layout.repeat - 1)
    return data.StructLayout(
        {
            "rows": bits(depth),
            "chunks": chunks,
            "live": chunks,
            "peers": layout.peer + 1,
            "stride": chunks,
            "repeats": turns,
            "iterations": turns,
            "lockstep": 1,
            "step_cycles": 24,
            "watchdog": 32,
            "sums_stay": 1,
        }
    )


def Row(layout, depth: int, n_chunks: int):
    """Shape of a row that has something to do.

    message : what to send. nop : nothing, for ``steps`` + 1 steps. hold : wait until all earlier
    rows are out and all ports idle. row : index in the table. free : it waits for nothing.
    single : one look is enough, since it is ``free`` or has one chunk; double : two chunks.
    """
    return data.StructLayout(
        {
            "message": Message(layout, n_chunks),
            "nop": 1,
            "steps": layout.count,
            "hold": 1,
            "row": bits(depth - 1),
            "free": 1,
            "single": 1,
            "double": 1,
        }
    )


def row_queue(shape):
    """Queue of up to `N_AHEAD` rows; what it offers goes to a register at once."""
    return FIFO(shape, N_AHEAD, never_full=True, registered=False)


def table_members(layout, depth: int, n_tables: int) -> dict:
    """Members that write tables of `depth` rows, and choose one."""
    return {
        "table_en": In(1),
        "table_addr": In(bits(n_tables * depth - 1)),
        "table_data": In(layout.width),
        **({"table": In(range(n_tables))} if n_tables > 1 else {}),
    }


def check_tables(n_tables: int, size: int) -> None:
    """ValueError unless `n_tables` of `size` entries can lie behind each other."""
    if not 1 <= n_tables <= 16 or n_tables & (n_tables - 1):
        raise ValueError(f"n_tables must be 1, 2, 4, 8 or 16, not {n_tables!r}")
    if n_tables > 1 and size & (size - 1):
        raise ValueError(f"depth must be a power of two where n_tables is {n_tables}, not {size!r}")


class RowReader(wiring.Component):
    """Reads the table from row 0 to the end, once per iteration, and offers what is to be done.

    A row is offered 10 cycles after its address, one per cycle; up to `N_AHEAD` rows are under
    way, those offered and not `entered` included. Rows that do nothing vanish: repeated rows
    outside their repeats, rows over empty chunks, NOP rows without ``lockstep``. After a row at
    fault nothing of it or of later rows is offered.

    Members
    -------
    table_en, table_addr, table_data : In
        Writes the table.
    table : In(range(n_tables))
        Which one is read, with more than one.
    setup : In(Setup)
        Two cycles older than `begin`, at least.
    begin : In(1)
        A strobe: read from row 0 on.
    rows : Out(stream.Signature(Row))
    entered : In(1)
        A row that was taken from `rows` is under way no more.
    ended : Out(1)
        All rows of the last iteration have entered or vanished; 1 before the first `begin`.
    failing : Out(1)
        For one cycle; ``fault`` : number in `FAULTS`; ``fault_row``, ``fault_chunk`` : which row,
        and its first chunk.
    """

    def __init__(self, layout: Layout, depth: int, n_chunks: int, *, n_tables: int = 1) -> None:
        self.layout, self.depth, self.n_chunks = layout, depth, n_chunks
        self.n_tables, self.shape = n_tables, Row(layout, depth, n_chunks)
        super().__init__(
            {
                **table_members(layout, depth, n_tables),
                "setup": In(Setup(layout, depth, n_chunks)),
                "begin": In(1),
                "rows": Out(stream.Signature(self.shape)),
                "entered": In(1),
                "ended": Out(1),
                "failing": Out(1),
                "fault": Out(range(len(FAULTS))),
                "fault_row": Out(bits(depth - 1)),
                "fault_chunk": Out(bits(n_chunks - 1)),
            }
        )

    def elaborate(self, platform):
        m = Module()
        m.submodules.table = table = BlockRAM(self.layout.width, self.n_tables * self.depth)
        fetch, index, turn, base = self._fetch(m)
        m.d.comb += [
            table.write_en.eq(self.table_en),
            table.write_addr.eq(self.table_addr),
            table.write_data.eq(self.table_data),
            table.read_addr.eq(Cat(index, self.table) if self.n_tables > 1 else index),
        ]
        fields = {k: table.read_data[at : at + n] for k, (at, n) in self.layout.offsets.items()}
        first, active = self._place(
            m, fields, delayed(m, turn, 2, name="turn"), delayed(m, base, 2, name="base")
        )
        pushed, row = self._judge(
            m,
            {name: delayed(m, value, 3, name=name) for name, value in fields.items()},
            first,
            active,
            delayed_flag(m, fetch, 5, name="fetched"),
            delayed(m, index, 5, name="index"),
            delayed(m, turn[0], 5, name="odd_turn"),
        )
        m.submodules.queue = queue = row_queue(self.shape)  # there is always room: see `_fetch`
        m.d.comb += [queue.i.valid.eq(pushed), queue.i.p.eq(row)]
        wiring.connect(m, queue.o, wiring.flipped(self.rows))
        return m

    def _fetch(self, m):
        """Addresses, one a cycle while there is room: (fetch, index, turn, base) of this cycle.

        turn : iteration + 1. base : turn * stride. All are at their start while nothing is fetched.
        """
        setup = self.setup
        index = Signal(range(self.depth), reset_less=True)
        after = Signal(bits(self.depth), reset_less=True)
        turn = Signal(len(setup.iterations), reset_less=True)
        base = Signal(self._chunk_width(), reset_less=True)
        turns_left = Signal(len(turn), reset_less=True)  # with this one
        final_row, final_turn = signals("final_row final_turn", reset_less=True)
        last_row = Signal(len(setup.rows), reset_less=True)
        one_row, one_turn = signals("one_row one_turn", reset_less=True)
        fetching, fetch, vanished = signals("fetching fetch vanished")
        room = Signal(range(N_AHEAD + 1), init=N_AHEAD)
        open = Signal(init=1)
        self.vanished = vanished
        m.d.sync += [last_row.eq(setup.rows - 1), one_row.eq(last_row == 0)]
        m.d.sync += one_turn.eq(setup.iterations == 1)
        with m.If(~fetching):
            m.d.sync += [turn.eq(1), base.eq(setup.stride)]
            m.d.sync += [turns_left.eq(setup.iterations), final_turn.eq(one_turn)]
        with m.Elif(fetch & final_row):
            m.d.sync += [turn.eq(turn + 1), base.eq(base + setup.stride)]
            m.d.sync += [turns_left.eq(turns_left - 1), final_turn.eq(turns_left == 2)]
        with m.If(~fetching | (fetch & final_row)):
            m.d.sync += [index.eq(0), after.eq(1), final_row.eq(one_row)]
        with m.Elif(fetch):
            m.d.sync += [index.eq(after), after.eq(after + 1), final_row.eq(after == last_row)]
        m.d.sync += fetching.eq(self.begin | (fetching & ~(open & final_row & final_turn)))

        left = delayed_flag(m, self.entered, 1, name="left")
        gone = delayed_flag(m, vanished, 1, name="gone")
        given = Signal(2)  # two cycles late
        less = Signal(signed(2))  # and less one
        ended = Signal()
        m.d.comb += [fetch.eq(fetching & open), self.ended.eq(ended & ~fetching)]
        m.d.sync += [
            given.eq(left + gone),
            less.eq(left + gone - 1),
            room.eq(Mux(fetch, room + less, room + given)),
            open.eq((room >= 2) | ((room == 1) & ~fetch)),
            ended.eq(~fetching & (room == N_AHEAD)),
        ]
        return fetch, index, turn, base

    def _chunk_width(self):
        return max(bits(self.n_chunks), self.layout.first, self.layout.count) + 1

    def _place(self, m, fields, turn, base):
        """First chunk of this iteration, and whether the row takes part: 3 cycles later."""
        setup, width = self.setup, self._chunk_width()
        repeat = fields["repeat"]
        stride3 = Signal(width, reset_less=True)
        m.d.sync += stride3.eq(setup.stride + (setup.stride << 1))
        multiples = Array([Const(0, width), setup.stride, (setup.stride << 1)[:width], stride3])
        parts = []
        for bit in range(0, len(repeat), 2):  # repeat * stride, two bits at a time
            part = Signal(width, name=f"part{bit}", reset_less=True)
            m.d.sync += part.eq(multiples[repeat[bit : bit + 2]] << bit)
            parts.append(part)
        moved, product = signals("moved product", width, reset_less=True)
        first, place = signals("first place", width, reset_less=True)
        once, once1 = signals("once once1", reset_less=True)
        past = Signal(Shape(len(turn) + 1, signed=True), reset_less=True)  # iterations since
        active = Signal(reset_less=True)
        moved1 = delayed(m, moved, 1, name="moved")
        m.d.sync += [
            first.eq(fields["first"]),
            moved.eq(fields["first"] + base),
            product.eq(sum(parts[1:], parts[0])),
            once.eq(repeat == 0),
            once1.eq(once),
            past.eq(delayed(m, turn, 1, name="turn_past") - delayed(m, repeat, 1, name="stage")),
            place.eq(Mux(once1, delayed(m, first, 1, name="first"), moved1 - product)),
            active.eq(
                Mux(
                    once1,
                    delayed(m, turn == 1, 2, name="turn_one"),
                    ~past[-1] & (past[:-1] < setup.repeats),
                )
            ),
        ]
        return place, active

    def _judge(self, m, fields, first, active, fetched, index, odd_turn):
        """From the place of a row to (it is one to be done, the Row), or a fault: 4 cycles."""
        layout = self.layout
        sends = [fields[f"send{i}"] for i in range(layout.n_sends)]
        n_valid = sum((send[0] for send in sends[1:]), sends[0][0])
        is_nop, is_gather, is_reduce = (fields["op"] == op for op in (NOP, GATHER, REDUCE))
        alone = n_valid == 0
        odd = (is_gather & alone) | (is_reduce & (n_valid > 1)) | (fields["op"] == 3)

        def register(name, value, cycles=1):
            return delayed(m, value, cycles, name=f"judged_{name}")

        judged = self._verdict(m, register, fields, first, active, fetched, sends, is_nop, odd)
        return self._row(m, register, fields, judged, index, odd_turn, sends, is_gather, alone)

    def _verdict(self, m, register, fields, first, active, fetched, sends, is_nop, odd):
        """What is wrong with a row, and which chunks of it there are: 3 cycles."""
        setup, width = self.setup, self._chunk_width()
        # What is wrong, whatever the chunks
        last = register("last", first + fields["count"])[: width + 1]
        nop = register("nop", is_nop)
        odd = register("odd", odd)
        stranger = register("stranger", Cat(send[0] & (send[1:] >= setup.peers) for send in sends))
        # Where the chunks end
        first1 = register("first", first)
        ends = register("ends", last)
        beyond, clip = (
            register("beyond", last >= setup.chunks),
            register("clip", last >= setup.live),
        )
        empty = register("empty", first1 >= setup.live)
        live_last = Signal(width, reset_less=True)
        m.d.sync += live_last.eq(setup.live - 1)
        # Verdict
        nop2, odd2 = register("nop2", nop), register("odd2", odd)
        strange = register("strange", stranger.any())
        takes_part = register("active", active, 2)
        fault = Signal(range(len(FAULTS)), reset_less=True)
        bad, keep = signals("bad keep", reset_less=True)
        chunk = register("chunk", first, 3)
        shrunk = Signal(width, reset_less=True)
        valid = delayed_flag(m, fetched, 3, name="judged")
        m.d.sync += [
            shrunk.eq(Mux(clip, live_last, ends)),
            keep.eq(Mux(nop2, setup.lockstep, takes_part & ~empty)),
            bad.eq(takes_part & (odd2 | (~nop2 & (strange | beyond)))),
            fault.eq(FAULTS.index("chunk")),
        ]
        with m.If(odd2):
            m.d.sync += fault.eq(FAULTS.index("operation"))
        with m.Elif(strange):
            m.d.sync += fault.eq(FAULTS.index("peer"))
        return SimpleNamespace(
            valid=valid, keep=keep, bad=bad, fault=fault, nop=nop2, chunk=chunk, shrunk=shrunk
        )

    def _row(self, m, register, fields, judged, index, odd_turn, sends, is_gather, alone):
        """(It is one to be done, the Row), or a fault, a cycle behind its verdict."""
        layout, setup = self.layout, self.setup
        valid, keep, bad, chunk = judged.valid, judged.keep, judged.bad, judged.chunk
        late = {name: register(name, value, 3) for name, value in fields.items()}
        turn3 = register("odd_turn", odd_turn, 3)
        # Iteration and step of the last row that was good: of the one just before, or one earlier
        step_before = Signal(layout.step + 1, init=1)
        place = Cat(turn3, late["step"])
        coming = Cat(
            register("odd_coming", odd_turn, 2), register("step_coming", fields["step"], 2)
        )
        as_last, as_earlier, was_good = signals("as_last as_earlier was_good", reset_less=True)
        failed, good, offered = signals("failed good offered")
        plain = Signal(self.shape, reset_less=True)  # without what depends on its count
        row = Signal(self.shape)
        m.d.comb += row.eq(plain)
        gather, alone3 = register("gather", is_gather, 3), register("alone", alone, 3)
        nop3 = register("nop3", judged.nop)
        m.d.comb += [
            good.eq(valid & keep & ~bad & ~failed),
            self.vanished.eq(valid & ~good),
        ]
        free = nop3 | (~gather & (late["wait"] == 0))
        m.d.sync += [
            offered.eq(good),
            plain.message.gather.eq(gather),
            plain.message.terminal.eq(~gather & alone3),
            plain.message.first.eq(chunk),
            plain.message.count.eq(judged.shrunk - chunk),
            Value.cast(plain.message.sends).eq(Cat(late[f"send{i}"] for i in range(len(sends)))),
            plain.nop.eq(nop3),
            plain.steps.eq(late["count"]),
            plain.hold.eq(
                late["bar"] | (setup.lockstep & (nop3 | ~Mux(was_good, as_last, as_earlier)))
            ),
            as_last.eq(coming == place),
            as_earlier.eq(coming == step_before),
            was_good.eq(good),
            plain.row.eq(register("index", index, 3)),
            plain.message.wait.eq(Mux(nop3, 0, late["wait"])),
            plain.free.eq(free),
            self.failing.eq(valid & ~failed & bad),
            self.fault.eq(judged.fault),
            self.fault_row.eq(register("index_at_fault", index, 3)),
            self.fault_chunk.eq(chunk),
        ]
        m.d.sync += [plain.message[name].eq(late[name]) for name in ("flow", "rank", "step")]
        with m.If(good):
            m.d.sync += step_before.eq(place)
        with m.If(delayed_flag(m, self.begin, 1, name="begun")):
            m.d.sync += step_before.eq(1)
        with m.If(valid & bad):
            m.d.sync += failed.eq(1)
        m.d.comb += [
            row.single.eq(plain.free | (plain.message.count == 0)),
            row.double.eq(plain.message.count == 1),
        ]
        return offered, row
