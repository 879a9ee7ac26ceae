"""Rows of a table as the scheduler reads them: what is to be done, and what no table may say."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

import numpy as np

from gradnic.interface.schedule_table import GATHER, NOP, REDUCE, Table

NONE, SETUP, OPERATION, CHUNK, PEER = range(5)  # faults


@dataclass(frozen=True)
class Setup:
    """What must be known of a round: see `gradnic.hdl.schedule.row_reader.Setup`."""

    rows: int
    chunks: int
    live: int
    peers: int
    stride: int = 0
    repeats: int = 1
    iterations: int = 1
    lockstep: int = 0
    step_cycles: int = 0
    watchdog: int = 0
    sums_stay: int = 0


def setup_of(table: Table, node: int, *, live: int | None = None, **options: int) -> Setup:
    """The Setup of a node of a `gradnic.interface.schedule_table.Table`.

    live : chunks of the tensor that are not empty; None: all of them. options : lockstep,
    step_cycles, watchdog, sums_stay.
    """
    chunks = table.n_chunks * table.repeats
    rows = table.of(node)
    stages = int(rows["repeat"].max(initial=1)) if table.period else 1
    return Setup(
        rows=len(rows),
        chunks=chunks,
        live=chunks if live is None else live,
        peers=int((table.peers["node"] == node).sum()),
        stride=table.n_chunks if table.period else 0,
        repeats=table.repeats,
        iterations=table.repeats + stages - 1,
        **options,
    )


@dataclass(frozen=True)
class Message:
    """What the card is told to send: see `gradnic.hdl.schedule.row_reader.Message`."""

    gather: int
    terminal: int
    flow: int
    wait: int
    rank: int
    step: int
    first: int
    count: int
    sends: tuple


@dataclass
class Work:
    """A row that has something to do. `missing`: chunks that were looked at and are not ready;
    `looked`: all were; `entered`: the cycle of the last look's way out; `ready`: the first cycle in
    which it may leave.
    """

    row: int
    message: Message
    nop: bool
    steps: int
    hold: bool
    missing: set = field(default_factory=set)
    looked: bool = False
    entered: int = 0
    ready: int = 0
    gone: bool = False

    @property
    def looks(self) -> list:
        """Chunks to look at, in order; None: one look, where nothing is waited for."""
        first = self.message.first
        if self.nop or (not self.message.gather and not self.message.wait):
            return [None]
        return list(range(first, first + self.message.count + 1))


@dataclass(frozen=True)
class Fault:
    """A row that no table may have."""

    code: int
    row: int
    chunk: int


def work(rows: np.ndarray, setup: Setup) -> Iterator:
    """Every row of every iteration, as (cycle by cycle) it is read: a Work, a Fault, or None for
    a row that does nothing. rows : ROW array of `gradnic.interface.schedule_table`.
    """
    before = (0, 0)  # iteration modulo 2, and step, of the last row with something to do
    for iteration in range(setup.iterations):
        for index, row in enumerate(rows):
            op, count = int(row["op"]), int(row["count"])
            stage = int(row["repeat"]) - 1
            turn = iteration - stage if stage >= 0 else 0
            first = int(row["first"]) + turn * setup.stride
            active = iteration == 0 if stage < 0 else 0 <= turn < setup.repeats
            sends = tuple(int(s) for s in row["sends"] if s >= 0)
            if op != NOP and active and (code := _fault(op, sends, first + count, setup)):
                yield Fault(code, index, first)
                continue
            if not (setup.lockstep if op == NOP else active and first < setup.live):
                yield None
                continue
            place = (iteration % 2, int(row["step"]))
            yield Work(
                row=index,
                message=Message(
                    gather=int(op == GATHER), terminal=int(op == REDUCE and not sends),
                    flow=int(row["flow"]), wait=0 if op == NOP else int(row["wait"]),
                    rank=int(row["rank"]), step=int(row["step"]),
                    first=first, count=min(first + count, setup.live - 1) - first, sends=sends,
                ),
                nop=op == NOP, steps=count,
                hold=bool(row["bar"] or (setup.lockstep and (op == NOP or place != before))),
            )  # fmt: skip
            before = place


def _fault(op: int, sends: Sequence[int], last: int, setup: Setup) -> int:
    if op > NOP or (op == REDUCE and len(sends) > 1) or (op == GATHER and not sends):
        return OPERATION
    if max(sends, default=-1) >= setup.peers:
        return PEER
    return CHUNK if last >= setup.chunks else NONE


def wrong(setup: Setup, depth: int, n_chunks: int) -> bool:
    """Whether a circuit for `depth` rows and `n_chunks` chunks refuses the setup."""
    return not (
        1 <= setup.rows <= depth
        and 1 <= setup.chunks <= n_chunks
        and setup.live <= setup.chunks
        and setup.repeats
        and setup.iterations
    )
