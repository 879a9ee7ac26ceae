"""Golden message scheduler: which row leaves in which cycle. Twin of
`gradnic.hdl.schedule.scheduler`.

The model is played cycle by cycle. It keeps rows and chunks as they are, not the circuit's
registers: an event counts when it is taken, and a row that is complete then is ready 5 cycles
later. What the circuit's pipelines add are these constants:

    address to row      8 cycles to a decision, 11 to the window; at most 16 rows on the way
    row to ready        1 cycle to the look at a chunk, then 5, or 6 with several; at most 9 rows
    event to ready      5 cycles, and 1 to the offer
"""

from collections import defaultdict, deque
from typing import Any

import numpy as np

from gradnic.interface.schedule_table import Layout, bits

from .chunk_book import EVENTS, ChunkBook
from .row_reader import SETUP, Fault, Setup, Work, work, wrong

N_AHEAD, N_SLOTS = 16, 9
SETTLED, FLUSH_CYCLES = 3, 8
JUDGED, READ, READY, SPREAD, KNOWN, SHOWN = 8, 11, 5, 6, 4, 2  # cycles


class Scheduler:
    """One node's scheduler. `cycle` plays one clock cycle.

    layout : gradnic.interface.schedule_table.Layout. depth, n_chunks : as of the circuit. rows :
    ROW array, setup : Setup; both may be exchanged while nothing runs.
    """

    def __init__(
        self,
        layout: Layout,
        rows: np.ndarray,
        setup: Setup,
        *,
        depth: int = 512,
        n_chunks: int = 64,
    ) -> None:
        self.layout, self.depth, self.n_chunks = layout, depth, n_chunks
        self.rows, self.setup = rows, setup
        self.now = 0
        self.most = 2**layout.wait - 1
        self.n_words = 2 ** bits(n_chunks - 1)
        self.book = ChunkBook(self.most, setup.chunks)
        self.swept = 0
        self.state, self.pending, self.flushed = "idle", False, 0
        self.status = dict.fromkeys(
            ("running", "done", "stuck", "fault", "foreign", "extra", "early", "row", "chunk",
             "step", "unfinished"), 0,
        )  # fmt: skip
        self.offer = None  # the row on offer
        self.settled, self.all_idle = 0, False
        self.timer, self.moves = 0, False
        self.all_out, self.at_end, self._wrong, self._judged = False, False, False, False
        self.seen = None  # (row, chunk) of the oldest in the cycle before
        self.later = defaultdict(list)  # what shows in a later cycle: [(kind, value)]
        self._reset_rows()

    def _reset_rows(self):
        self.source, self.n_left, self.ended, self.failed = iter(()), 0, False, False
        self.ahead = 0  # rows fetched and not yet in the window
        self.may_fetch = True
        self.given = [0, 0, 0]  # places of theirs that came free in this cycle and the two before
        self.judged = deque()  # (cycle of the judgement, what `work` says)
        self.rows_read = deque()  # (cycle from which it is offered, Work)
        self.looks_left, self.walked = deque(), None  # of the row whose chunks are looked at
        self.looks = deque()  # (Work, chunk, last): on their way; two at most
        self.inside = deque()  # rows with all looks made or on their way
        self.spread = None  # the row with several chunks among them
        self.went = False  # a row, in the cycle before: its place is free in the next
        self.held = False  # the oldest row missed nothing in the cycle before, and was held
        self.sends, self.skips = False, False  # a held row is put on offer; a NOP row vanishes
        self.counting, self.steps, self.cycles = False, 0, 0  # of the NOP row

    def cycle(
        self,
        *,
        start: int = 0,
        abort: int = 0,
        ready: int = 1,
        idle: int = 1,
        **offered: int | None,
    ) -> dict[str, Any]:
        """Play a cycle. start, abort, ready (of `issues`), idle (of all ports); added, finals,
        released, asks: the chunk offered, or None.

        Returns {"taken": name of the event or ask that was taken, or None; "issue": the Message
        on offer, or None; "answer": (added, released, final) or None; "status": dict}.
        """
        now, status, setup = self.now, self.status, self.setup
        offer = self.offer
        shown: dict[str, Any] = {
            "issue": offer and offer.message,
            "status": dict(status),
            "answer": None,
            "taken": None,
        }
        moved, finished, raised, fault = False, 0, [], None
        for kind, value in self.later.pop(now, ()):
            moved |= kind == "moved"
            finished += kind == "finished"
            if kind == "answer":
                shown["answer"] = value
            elif kind == "fault":
                fault = value
            elif kind not in ("moved", "finished"):
                raised.append(kind)

        clean = self.swept >= min(setup.chunks, self.n_words)
        # One access: an event, an ask, a look, or a word is cleared
        ask = next((k for k in (*EVENTS, "asks") if offered.get(k) is not None), None)
        n_looks = len(self.looks)
        if ask:
            shown["taken"] = ask
            self._access(ask, offered[ask])
        elif n_looks:
            self._look(*self.looks.popleft())
        elif not clean:
            self.swept += 1

        # The oldest row leaves, the next is chosen
        starts = self.state == "idle" and self.pending and clean and not abort
        begins = self.state == "begin" and not abort and not self._wrong
        flush = self.state == "flush"
        head, behind = [*self.inside, None, None][:2]
        gone = offer if offer and ready else head if self.skips else None
        quiet = self.settled == SETTLED and self.all_idle
        self._watch(moved or gone, fault, head)
        ended = self.all_out and quiet and not status["unfinished"] and bool(status["running"])
        self.all_out = self.ended and not self.inside and not begins
        if not offer:
            self.offer = head if self.sends or self._may(head) else None
        elif ready:
            self.offer = behind if self._may(behind) and len(behind.looks) == 1 else None
        self._hold(head, gone, quiet and not offer)
        self.settled = 0 if offer else min(self.settled + 1, SETTLED)
        self.all_idle = bool(idle)
        status["unfinished"] -= finished
        if gone and gone.message.terminal and setup.sums_stay:
            status["unfinished"] += gone.message.count + 1
        status["unfinished"] %= 1 << bits(self.n_chunks)
        status.update(dict.fromkeys(raised, 1))

        # Rows move up, and the round goes on
        self._walk(n_looks)
        self.went = gone is not None
        if self.spread and self.spread.gone:
            self.spread = None
        if gone:
            status["step"] = gone.message.step
            gone.gone = True
            if self.inside:  # not if only its offer was left of the round
                self.inside.popleft()
        self._read()
        if flush:
            self._reset_rows()
        self._round(start, abort, fault, offer, begins, starts)
        self.at_end = ended
        self._wrong, self._judged = self._judged, wrong(setup, self.depth, self.n_chunks)
        self.now += 1
        return shown

    def _access(self, name, chunk):
        """An event or an ask is taken."""
        late = self.later[self.now + KNOWN]
        if name == "asks":
            late.append(("answer", self.book.state(chunk)))
            return
        self.book.running = bool(self.status["running"])
        self.book.n_chunks = self.setup.chunks
        told = self.book.event(name, chunk)
        if "early" in told:
            self.later[self.now + 1].append(("early", 1))
        if "foreign" in told:
            late.append(("foreign", 1))
        if "extra" in told:
            self.later[self.now + KNOWN + 1].append(("extra", 1))
        if not told & {"grew", "finished"}:
            return
        late.append(("moved", 1))
        if "finished" in told:
            late.append(("finished", 1))
        added, _, _ = self.book.state(chunk)
        for row in (*self.inside, *([self.walked] if self.walked else [])):
            message = row.message
            counts = name == ("finals" if message.gather else "added")
            if chunk in row.missing and counts and (message.gather or added == message.wait):
                row.missing.remove(chunk)
                self._complete(row, READY)

    def _look(self, row, chunk, last):
        """A look at a chunk that a row waits for."""
        if chunk is not None:
            added, _, final = self.book.state(chunk)
            if not (final if row.message.gather else added == row.message.wait):
                row.missing.add(chunk)
        row.looked |= last
        self._complete(row, READY if len(row.looks) == 1 else SPREAD)

    def _complete(self, row, cycles):
        if row.looked and not row.missing:
            row.ready = max(row.ready, self.now + cycles)

    def _ready(self, row):
        return row is not None and row.looked and not row.missing and self.now >= row.ready

    def _may(self, row):
        return self._ready(row) and not row.hold

    def _walk(self, n_looks):
        """The row on offer asks for a look at its next chunk."""
        if self.rows_read and self.now >= self.rows_read[0][0] and n_looks < 2:
            self._ask_look(self.rows_read[0][1])

    def _ask_look(self, row):
        if not self.looks_left:
            chunks = row.looks
            full = len(self.inside) + self.went >= N_SLOTS
            if full or (len(chunks) > 1 and self.spread):
                return
            self.looks_left, self.walked = deque(chunks), row
            self.spread = self.spread or (row if len(chunks) > 1 else None)
        chunk = self.looks_left.popleft()
        self.looks.append((row, chunk, not self.looks_left))
        if not self.looks_left:
            self.walked, row.entered = None, self.now
            self.inside.append(row)
            self.rows_read.popleft()
            self.given[0] += 1

    def _read(self):
        """The next row is fetched; the one that was fetched 8 cycles ago is judged."""
        fetch = self.n_left and self.may_fetch
        self.may_fetch = self.ahead + bool(fetch) < N_AHEAD
        self.ended = not self.n_left and not self.ahead
        if self.judged and self.judged[0][0] == self.now:
            row = self.judged.popleft()[1]
            if isinstance(row, Work) and not self.failed:
                self.rows_read.append((self.now + READ - JUDGED, row))
            else:
                self.given[0] += 1
                if isinstance(row, Fault) and not self.failed:
                    self.failed = True
                    self.later[self.now + 1].append(("fault", row))
        self.ahead += bool(fetch) - self.given.pop()
        self.given.insert(0, 0)
        if fetch:
            self.n_left -= 1
            self.judged.append((self.now + JUDGED, next(self.source)))

    def _hold(self, head, gone, quiet):
        """Rows that are held leave when all ports are idle, NOP rows when their time is over."""
        setup, busy = self.setup, self.sends or self.skips
        self.sends, self.skips = False, False
        if self.counting:
            self.cycles -= 1
            if not self.cycles:
                self.cycles, self.counting, self.skips = (
                    setup.step_cycles, self.steps > 0, not self.steps
                )  # fmt: skip
                self.steps -= 1
        elif self.held and quiet and not busy:
            self.cycles, self.steps = setup.step_cycles, head.steps
            self.counting = head.nop and setup.step_cycles > 0
            self.sends, self.skips = not head.nop, head.nop and not self.counting
        self.held = self._ready(head) and head.hold and not gone

    def _watch(self, moved, fault, head):
        """The oldest row, and for how long nothing has moved."""
        status, watchdog = self.status, self.setup.watchdog
        if status["running"] and fault:
            status["row"], status["chunk"] = fault.row, fault.chunk
        elif status["running"] and self.seen:
            status["row"], status["chunk"] = self.seen
        self.seen = None
        if status["running"] and not status["stuck"]:
            if head and self.now >= head.entered + SHOWN:
                self.seen = head.row, head.message.first
            elif self.all_out:
                self.seen = self.setup.rows, 0
        if status["running"] and self.timer < 0 and watchdog:
            status["stuck"] = 1
        self.timer = watchdog if self.moves else self.timer - 1
        self.moves = moved or self.counting or not status["running"]

    def _round(self, start, abort, fault, offer, begins, starts):
        """Start, end, abort and fault."""
        status, setup = self.status, self.setup
        if start and not status["running"]:
            self.pending, status["done"] = True, 0
        if abort:
            self.pending = False
        if self.state == "idle":
            self.state = "begin" if starts else "idle"
        elif self.state == "begin":
            self.pending = False
            status.update(fault=0, stuck=0, foreign=0, extra=0, early=0, row=0, chunk=0, step=0)
            status["unfinished"] = 0 if setup.sums_stay else setup.live
            self.state = "idle"
            if self._wrong:
                status["fault"] = SETUP
            elif begins:
                status["running"] = 1
                self.state, self.swept = "run", 0
                self.book = ChunkBook(self.most, setup.chunks)
                self.source, self.n_left = work(self.rows, setup), setup.rows * setup.iterations
                self.ended = False
        elif self.state == "run":
            if abort or fault:
                self.state, status["running"] = "flush", 0
                status["fault"] = fault.code if fault else 0
            elif self.at_end:
                self.state, status["running"], status["done"] = "idle", 0, 1
        else:
            self.flushed = min(self.flushed + 1, FLUSH_CYCLES)
            if self.flushed == FLUSH_CYCLES and not offer:
                self.state, self.flushed = "idle", 0
