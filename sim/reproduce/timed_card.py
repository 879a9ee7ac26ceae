"""A golden offload card that takes the RTL's time, part by part, on some network.

`gradnic.models.offload.card.Card` says what leaves, and what that does; `TimedCard` says when. Its
parts, and their cycles, are those of `gradnic.models.schedule.card_run`: splitter, places and their
walk, sums, framer, store of the port, way in, locator, receiver, memory, and answers, heard one
after the other. Beside these it has what losses need: masks that are walked again, PROBEs that go
again, and packets that are given up. One port, as wide as the datapath.
"""

import math
from collections import deque
from dataclasses import dataclass, fields, replace

from gradnic.models.offload.card import Card
from gradnic.models.schedule.ethernet_cards import HEAD, WIRE_MORE, EthernetCards, PartTimes
from gradnic.models.transport.sender import Sending

from gradnic.interface.formats import GRADNIC, Op
from gradnic.interface.offload import Subtype

LANES = 16
RTL = EthernetCards.of(LANES, LANES)
_SIZES = {
    "places",
    "heard",
    "located",
    "inside",
    "reads",
    "ranges",
    "adding",
    "raw",
    "heads",
}  # no cycles
NO_TIMES = replace(
    RTL,
    times=replace(RTL.times, turn=0, first=0, own=0),
    parts=replace(
        RTL.parts, **{one.name: 0 for one in fields(PartTimes) if one.name not in _SIZES}
    ),
)
"""Cards that take no time, and store no more than others."""


class _Sending(Sending):
    """Hears answers only while it waits for one, as the circuit does."""

    waits = False

    def stop(self):
        if self.waits:
            super().stop()

    def bitmap(self, stamp, wanted):
        return self.waits and super().bitmap(stamp, wanted)

    def refused(self):
        if self.waits:
            super().refused()


@dataclass
class _Cut:
    """A run at the splitter: run is None for one of a terminal row, whose packets stay here."""

    run: object
    numbers: range
    parts: list  # contributions to each packet
    due: float  # its row is at the splitter, which takes `lead` for the first run
    lead: int
    behind: int  # the run before
    own: object = None


@dataclass
class _Own:
    """A terminal row: sums that are still to be made."""

    chunks: range
    left: int


@dataclass
class _Item:
    """What the walk passed on, or an answer: frame is None for a sum that stays here."""

    frame: bytes | None
    is_data: bool
    floats: int
    parts: int = 0
    own: object = None
    since: float = 0.0  # its values are there
    told: float = 0.0  # its head is, at the framer


class TimedCard(Card):
    """A golden card at a port.

    Parameters
    ----------
    settings : gradnic.models.offload.card.Settings
    timed : EthernetCards
        `RTL`, or `NO_TIMES`.
    at : function (cycle, act, *what)
        Calls act(cycle, *what) then.
    leaves : function (frame)
        Takes a frame as its first byte leaves.
    line : float
        Bytes that the line takes in a cycle.

    Attributes
    ----------
    finished : float or None
        Cycle at which the round was over.
    """

    def __init__(self, settings, timed, at, leaves, line):
        super().__init__(settings)
        self.timed, self.times, self.parts = timed, timed.times, timed.parts
        self.at, self.leaves, self.line = at, leaves, line
        self.cut, self.kept = deque(), [None] * self.parts.places
        self.cut_free = self.looked = self.framed = 0.0
        self.here = 0  # where the walk is
        self.entering = self.walking = False
        self.held = None  # the walk, where it waits for room
        self.asked, self.adding = deque(), deque()
        self.n_asked = self.n_added = 0  # beats of contributions
        self.adds = 0.0, 0, 0  # since when, how long and what beats of them are added
        self.told, self.answers, self.heads = deque(), deque(), deque()
        self.sums = deque()  # when those were made that wait for the framer
        self.summing = self.framing = self.open = False
        self.n_raw = 0
        self.stored, self.words, self.last, self.since, self.sends = deque(), 0, 0, 0.0, False
        self.entered, self.taking = deque(), False
        self.chunk_free = self.place_free = self.judged = self.landed = 0.0
        self.hearing = deque()
        self.written = {}  # (ph, chunk): when its last packet's row may have its turn
        self.finished, self.last_stop = None, 0.0

    @property
    def _round(self):
        (round_,) = self.rounds.values()
        return round_

    @property
    def _plan(self):
        return self._round.tensor.plan

    def _beats(self, floats):
        """Of a frame."""
        return -(-(HEAD + 4 * floats) // self.times.n_bytes)

    def _took(self, floats):
        """Cycles of these beats."""
        return self.times.beats(floats)

    # rows

    def turn(self, now):
        """Rows whose turn it is, in their order: each waits until all that it adds is written."""
        round_ = self._round
        while round_.rows and round_._ready(round_.rows[0]):
            row = round_.rows[0]
            ph = not row.is_reduce
            chunks = range(row.first, row.stop)
            at = max((self.written.get((ph, chunk), 0) for chunk in chunks), default=0)
            if at > now:
                if at < math.inf:
                    self.at(at, self.turn)
                return
            self._leave(now, round_, row, chunks)
        self._look_whether_done(now)

    def _leave(self, now, round_, row, chunks):
        plan = self._plan
        numbers = plan.packets(row.first, row.stop)
        landed, wait = round_.landed, row.wait if row.is_reduce else 0
        parts = {
            k: sum(k in landed.get((k // plan.per_chunk, rank), {}) for rank in range(wait))
            for k in numbers
        }
        rest, round_.rows = round_.rows[1:], round_.rows[:1]
        runs = round_.issue(self.settings.segment)
        round_.rows = rest
        bits = max(row.first, len(chunks)).bit_length()
        lead = self.parts.lead + bits + (len(chunks) if row.is_reduce else 1)
        behind, own = 2, None
        if not row.to:
            own = _Own(chunks, len(numbers))
            for chunk in chunks:
                self.written[True, chunk] = math.inf
                mine = plan.packets(chunk, chunk + 1)
                for first in range(mine.start, mine.stop, self.settings.segment):
                    some = range(first, min(first + self.settings.segment, mine.stop))
                    runs.append((None, some))
        to = None
        for run in runs:
            if isinstance(run, tuple):
                run, some = run
            else:
                self._tag(round_, run)
                some = range(run.first, run.first + len(run.packets))
                if to not in (None, run.to):
                    behind = self.parts.next_peer
                to = run.to
            cut = _Cut(run, some, [parts[k] for k in some], now + self.parts.due, lead, behind, own)
            self.cut.append(cut)
            lead, behind = 0, self.parts.next_run
        self._enter(now)

    def _tag(self, round_, run):
        super()._tag(round_, run)
        order = run.sending.order
        run.sending = _Sending(order, first=run.first, t_probe=self.settings.t_probe)

    # the sender's places, and its walk

    def _enter(self, now):
        if self.entering or not self.cut or None not in self.kept:
            return
        self.entering = True
        cut = self.cut[0]
        self.at(max(now, max(cut.due, self.cut_free + cut.behind) + cut.lead), self._entered)

    def _entered(self, now):
        self.entering, self.cut_free = False, now
        self._stroll(now)
        self.kept[self.kept.index(None)] = self.cut.popleft()
        self._look(now)
        self._enter(now)

    def _stroll(self, now):
        """The walk went from one run that waits to the next, until now."""
        if self.walking:
            return
        n = max(0, int((now - self.looked) / self.parts.look)) if self.parts.look else 0
        self.looked = self.looked + n * self.parts.look if self.parts.look else now
        used = [k for k, place in enumerate(self.kept) if place]
        for _ in range(n % len(used) if used else 0):
            self.here = next((k for k in used if k > self.here), used[0])

    def _look(self, now):
        """At the next run that has something to send."""
        if self.walking:
            return
        end, n = self.looked, len(self.kept)
        for k in range(1, n + 1):
            place = (self.here + k) % n
            cut = self.kept[place]
            if cut is None:
                continue
            end += self.parts.look
            begin = max(now, end)
            sending = cut.run and cut.run.sending
            if cut.run and sending.waits and begin < sending.probe_at:
                continue
            self.here, self.walking = place, True
            late = cut.run and sending.waits
            self.at(begin, self._walk, cut, cut.numbers.stop if late else cut.numbers.start)
            return

    def _walk(self, now, cut, number):
        """Through a run's mask: packets that go, then its PROBE."""
        run, begin = cut.run, number
        while number < cut.numbers.stop and run and number - run.first not in run.sending.pending:
            number += 1
        if number > begin:
            self.at(now + (number - begin) * self.parts.skip, self._walk, cut, number)
            return
        if len(self.asked) >= self.parts.inside:
            self.held = cut, number
            return
        if number < cut.numbers.stop:
            frame = self._frame(now, run) if run else None
            parts = cut.parts[number - cut.numbers.start]
            self._ask(now, _Item(frame, True, int(self._plan.elems[number]), parts, cut.own))
            self.at(now + self.parts.step, self._walk, cut, number + 1)
            return
        self.walking, self.looked = False, now
        if run is None:
            self.kept[self.here] = None
            self._enter(now)
        else:
            self._ask(now, _Item(self._frame(now, run), False, 0))
            run.sending.waits = True
            self.at(run.sending.probe_at, self._late, run)
        self._look(now)

    def _frame(self, now, run):
        return self._sent(self._round, run, *run.sending.next(int(now)))

    def _late(self, now, run):
        """A PROBE may have to go again."""
        sending = run.sending
        if not sending.done and sending.waits and now >= sending.probe_at:
            self._stroll(now)
            self._look(now)

    # sums, framer, port

    def _ask(self, now, item):
        """A packet's values are there in a while."""
        item.told = now + self.parts.tell
        item.since = now + self.times.first - self.parts.taken - self.parts.look + self._took(0)
        self.asked.append(item)
        self._pass(now)

    def _pass(self, now):
        """Packets whose contributions are all asked for wait for their sums, PROBEs do not: a
        packet's turn comes when the reader of contributions has room for all of its own.
        """
        while self.asked:
            item = self.asked[0]
            if item.is_data:
                if len(self.adding) == self.parts.adding:
                    return
                at = self._read_at(now, item)
                if at > now:
                    if at < math.inf:
                        self.at(at, self._pass)
                    return
                self.n_asked += self._reads(item)
                self.adding.append(item)
                self.at(max(now, item.since), self._make)
            self.asked.popleft()
            if item.frame is not None:
                item.told = max(now, item.told)
                self.told.append(item)
                self.at(item.told, self._head)
            if self.held:
                held, self.held = self.held, None
                self.at(now, self._walk, *held)

    def _reads(self, item):
        """Beats of a packet's contributions."""
        return item.parts * self.times.made(item.floats, 1)

    def _read_at(self, now, item):
        """When the reader has taken all ranges of this packet's contributions; inf: not known."""
        parts, one = self.parts, self.times.made(item.floats, 1)
        more = self.n_asked + self._reads(item) - parts.reads - parts.ranges * one
        begun, cost, n_beats = self.adds  # the sums under way
        if more <= self.n_added or not (self.summing or self.adding):
            return now
        if not self.summing or more > self.n_added + n_beats:
            return math.inf
        return begun + cost * (more - self.n_added) / n_beats

    def _make(self, now):
        if self.summing or not self.adding:
            return
        item = self.adding[0]
        is_sent = item.frame is not None
        if item.since > now or (is_sent and self.n_raw == self.parts.raw):
            return
        self.n_raw += is_sent
        self.adding.popleft()
        self.summing = True
        cost = self.times.made(item.floats, item.parts)
        self.adds = now, cost, self._reads(item)
        self.at(now + cost, self._made, item)
        self._pass(now)

    def _made(self, now, item):
        self.summing = False
        self.n_added += self._reads(item)
        if item.own is not None:
            self._own(now, item.own)
        elif self.open:
            self.open = False
            self.at(max(self.framed, now + 1), self._framed, self.framing)
        else:
            self.sums.append(now)
        self._make(now)
        self._pass(now)

    def _own(self, now, own):
        """A terminal row's sums pass the receiver, too."""
        self.judged = max(self.judged, now) + self.parts.judge
        own.left -= 1
        if not own.left:
            for chunk in own.chunks:
                self.written[True, chunk] = now + self.times.own
            self.at(now + self.times.own, self.turn)

    def _head(self, now):
        """The framer's next frame; it takes some heads ahead, answers first."""
        self._address(now)
        if self.framing or not self.heads or self.heads[0].told > now:
            return
        item = self.framing = self.heads.popleft()
        self._address(now)
        beats = self._beats(item.floats)
        self.words += beats
        beat = self.times.n_bytes / self.line  # the store gives room as its port sends
        goes = max(0.0, self.last - (now - self.since) / beat) if self.sends else 0
        room = now + beat * (self.words + goes - self.timed.store)
        if not item.is_data:
            self.at(max(now + self.parts.control, room), self._framed, item)
            return
        self.framed = max(now + self._took(item.floats), room)
        self.open = not self.sums
        if not self.open:
            self.at(max(self.framed, self.sums.popleft() + 1), self._framed, item)

    def _address(self, now):
        while len(self.heads) < self.parts.heads:
            if not self.answers and (not self.told or self.told[0].told > now):
                return
            item = (self.answers or self.told).popleft()
            item.told = now + self.parts.addressed
            self.heads.append(item)
            self.at(item.told, self._head)

    def _framed(self, now, item):
        self.framing = False
        self.n_raw -= item.is_data
        self.stored.append(item)
        self._send(now)
        self._make(now)
        self._head(now)

    def _send(self, now):
        if self.sends or not self.stored:
            return
        item = self.stored.popleft()
        self.sends, self.since, self.last = True, now, self._beats(item.floats)
        self.words -= self.last
        self.leaves(item.frame)
        self.at(now + (len(item.frame) + WIRE_MORE) / self.line, self._gone)

    def _gone(self, now):
        self.sends = False
        self._send(now)

    # the way in

    def arrived(self, now, frame):
        """The last byte is here."""
        self.entered.append(frame)
        self._take(now)

    def _take(self, now):
        if self.taking or not self.entered:
            return
        self.taking = True
        frame = self.entered.popleft()
        header = GRADNIC.parse(frame)
        floats = header["elems"] if header["op"] != Op.CONTROL else 0
        self.at(now + max(self._took(floats), self.parts.control), self._locate, frame, header)

    def _locate(self, now, frame, header):
        """Two steps of the locator, then the receiver."""
        self.taking = False
        parts = self.parts
        is_data = header["op"] != Op.CONTROL
        is_probe = not is_data and header["p0"] & 15 == Subtype.PROBE
        chunk = max(now + parts.gate, self.chunk_free)
        chunk = max(chunk + (parts.divide if is_data or is_probe else 1), self.place_free)
        turn = chunk + (parts.divide if is_data else 1)
        self.chunk_free, self.place_free = chunk + 1, turn + 1
        turn = max(turn, self.judged)
        if is_data:
            self.judged = turn + parts.judge
            self.at(self.judged, self._judge, frame, header)
        elif is_probe:
            self.judged = turn + self._looks(header)
            self.at(self.judged, self._probe, frame, header)
        else:
            self.judged = turn + parts.hear
            if len(self.hearing) == parts.heard:
                self.judged = max(self.judged, self.hearing.popleft())
            begin = max(self.judged, *self.hearing) if self.hearing else self.judged
            self.hearing.append(begin + parts.compare * (self._place_of(header) + 1) + 2)
            self.at(self.hearing[-1] + 1, self._hear, frame)
        self._take(now)

    def _looks(self, header):
        """Cycles of the receiver for a PROBE: packet by packet, then the leaves behind each."""
        parts, scan = self.parts, self.parts.scan_down
        if not header["ph"]:
            contributions = self._plan.up[self.settings.node].get(header["src"], {})
            one = contributions.get(header["seq"] // self._plan.per_chunk)
            scan = parts.scan + (one.leaves.bit_length() - 1 if one and parts.scan else 0)
        return scan + parts.per_packet * header["elems"]

    def _place_of(self, header):
        """The place of the run that an answer is about; the last one, if it is about none."""
        destination = (header["src"], header["ph"])
        lists = header["p0"] >> 7  # what is missing, not bits of all
        one = header["seq"] if lists else header["seq"] + header["elems"] - 1
        for k, cut in enumerate(self.kept):
            run = cut and cut.run
            if run and (run.to, run.ph) == destination and run.sending.waits and one in cut.numbers:
                return k
        return len(self.kept) - 1

    def _judge(self, now, frame, header):
        number = self._plan.number(header["seq"] * 16)
        taken = self.counters["data"]
        self.receive(frame, 0, int(now))
        if self.counters["data"] > taken:
            self.landed = max(now, self.landed) + self.times.made(header["elems"], 1)
            at = self.landed + self.parts.burst + self.parts.land
            self._write(at, header["ph"], number // self._plan.per_chunk)

    def _write(self, at, ph, chunk):
        key = bool(ph), chunk
        self.written[key] = max(at, self.written.get(key, 0))
        self.at(at, self.turn)

    def _probe(self, now, frame, header):
        source, ph = header["src"], header["ph"]
        reception = self._round.reception(source, ph)
        part = slice(header["seq"], header["seq"] + header["elems"])
        was_open = not reception.closed[part].all()
        for _, answer in self.receive(frame, 0, int(now)):
            if was_open and reception.closed[part].all():  # given up, packet by packet
                now += self.parts.give * header["elems"]
                self.judged = max(self.judged, now)
                at = max(now, self.landed + self.parts.burst + self.parts.land)
                self._write(at, ph, header["seq"] // self._plan.per_chunk)
            self.at(now + self.parts.told, self._answer, _Item(answer, False, 0))

    def _answer(self, now, item):
        self.answers.append(item)
        self._head(now)

    def _hear(self, now, frame):
        """An answer: its run is over, or has a mask again."""
        self.receive(frame, 0, int(now))
        self._stroll(now)
        for k, cut in enumerate(self.kept):
            sending = cut and cut.run and cut.run.sending
            if not sending:
                continue
            if sending.done:
                self.kept[k], self.last_stop = None, now
                self.at(now + self.parts.frees, self._enter)
            elif sending.waits and sending.pending:
                sending.waits = False
            elif sending.waits and sending.was_refused:
                self.at(max(now, sending.probe_at), self._late, cut.run)
        self._look(now)
        self._look_whether_done(now)

    def _look_whether_done(self, now):
        if self.finished is None and self.idle():
            at = max((one for one in self.written.values()), default=0)
            self.finished = max(self.last_stop + self.parts.end, at)
