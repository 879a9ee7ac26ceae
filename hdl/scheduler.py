"""Message scheduler: runs one node's schedule table, row by row, as dependencies are met."""

from amaranth.lib import data, stream, wiring
from amaranth.lib.wiring import In, Out

from gradnic.table import bits

FAULTS = ("none", "setup", "operation", "chunk", "peer")  # by the number in `Status`


def Message(layout, n_chunks):
    """Shape of what the scheduler tells the card to send.

    gather : 0 reduce: send the partial sum of the chunks; 1 gather: send the final chunks.
    terminal : a reduce without a peer: make the chunks final here (codec image), then report
    them on ``finals``. flow, rank, step : as in the row. first, count : chunks ``first .. first +
    count`` of the tensor, none of them empty. sends : array of {valid,
    peer}: one valid for a reduce, none if terminal, one or more for a gather.
    """
    chunk = bits(n_chunks - 1)
    return data.StructLayout(
        {
            "gather": 1,
            "terminal": 1,
            "flow": layout.flow,
            "rank": layout.rank,
            "step": layout.step,
            "first": chunk,
            "count": chunk,
            "sends": data.ArrayLayout(
                data.StructLayout({"valid": 1, "peer": layout.peer}), layout.n_sends
            ),
        }
    )


def Setup(layout, depth, n_chunks):
    """Shape of what must be known of a round; stable from `start` until `running` has fallen.

    rows : in the table, 1 to depth. chunks : in the tensor, those of all repeats, 1 to n_chunks.
    live : those of them that are not empty. peers : that the node has; rows name 0 .. peers - 1.
    stride, repeats, iterations : chunks of one period, periods, and repeats + stages - 1; without
    a period repeats and iterations are 1. lockstep : NOP rows and steps are obeyed.
    step_cycles : estimated time of a step, for NOP rows. watchdog : cycles without progress until
    `stuck`, 0 for never.
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
        }
    )


def Status(layout, depth, n_chunks):
    """Shape of what the driver sees; all but `running` and `done` is kept until the next start.

    running : from start to done, abort or fault. done : the last round ended well. stuck : the
    watchdog has barked. fault : number in `FAULTS`. foreign : an event named a chunk outside the
    tensor; extra : a contribution came for a chunk that had left or had all it can count, or a
    chunk became final twice; early : an event came while nothing ran. row, chunk : the oldest row
    not taken from `issues` and its first chunk; of the bad row after a fault, of the first row
    that the watchdog found after it barked; `rows` if all rows are out. step : of the last row
    that is out. unfinished : chunks that are not final yet.
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
    layout : gradnic.table.Layout
    depth : int
        Rows that the table holds, 2 to 16384.
    n_chunks : int
        Chunks of the largest tensor, 2 to 8192.
    n_ports : int
        1 to 8.

    Members
    -------
    table_en, table_addr, table_data : In
        Writes one row, as `Layout.pack` packs it; not while running.
    setup : In(Setup)
    start : In(1)
        A strobe. The round begins when the memory of chunks is clear: at once, unless the round
        before took less than `n_chunks` idle cycles, or a message is still offered.
    abort : In(1)
        A strobe: `running` falls in the next cycle. An offer on `issues` is kept. Before the next
        start the card must have no event of this round left.
    status : Out(Status)
    added, finals, left : In(stream.Signature(chunk number))
        Events. One more contribution is in the sum of a chunk; a chunk is final here, arrived or
        made so by its terminal row; the node's own partial of a chunk was read from memory for
        the last time. One event a cycle, in this order where several are offered: `added` is
        always ready, the others while none before them is offered.
    asks : In(stream.Signature(chunk number))
        Asks for the state of a chunk; ready while no event is offered.
    answers : Out(stream.Signature({added, left, final}, always_ready=True))
        5 cycles after the ask: contributions so far (a partial of this rank may be added now),
        whether its own partial has left (a gather result may overwrite it), whether it is final.
        All events taken before the ask are counted.
    issues : Out(stream.Signature(Message))
    idle : In(n_ports)
        1: nothing under way on this port. Must fall at most 3 cycles after a message for the port
        was taken.
    """

    def __init__(self, layout, *, depth=512, n_chunks=64, n_ports=4):
        if not 2 <= depth <= 16384:
            raise ValueError(f"depth must be 2 to 16384, not {depth!r}")
        if not 2 <= n_chunks <= 8192:
            raise ValueError(f"n_chunks must be 2 to 8192, not {n_chunks!r}")
        if not 1 <= n_ports <= 8:
            raise ValueError(f"n_ports must be 1 to 8, not {n_ports!r}")
        self.layout, self.depth, self.n_chunks, self.n_ports = layout, depth, n_chunks, n_ports
        chunk = stream.Signature(bits(n_chunks - 1))
        answer = data.StructLayout({"added": layout.wait, "left": 1, "final": 1})
        super().__init__(
            {
                "table_en": In(1),
                "table_addr": In(bits(depth - 1)),
                "table_data": In(layout.width),
                "setup": In(Setup(layout, depth, n_chunks)),
                "start": In(1),
                "abort": In(1),
                "status": Out(Status(layout, depth, n_chunks)),
                "added": In(chunk),
                "finals": In(chunk),
                "left": In(chunk),
                "asks": In(chunk),
                "answers": Out(stream.Signature(answer, always_ready=True)),
                "issues": Out(stream.Signature(Message(layout, n_chunks))),
                "idle": In(n_ports),
            }
        )
