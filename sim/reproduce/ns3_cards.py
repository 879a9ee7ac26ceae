"""A network of offload cards in ns-3: golden cards, with the times of the RTL's, on `ns3_fabric`.

A card is `gradnic.models.offload.card.Card`: its frames, runs, PROBEs and answers are the
circuit's, byte by byte. The golden card takes no time; here receiver, splitter, walker and maker
take theirs, and runs have places. All cards hang on one switch.
"""

import math
from collections import Counter, deque
from dataclasses import fields, replace

from gradnic.models.offload.card import Card
from gradnic.models.offload.cluster import Cluster
from gradnic.models.offload.codec import Raw
from gradnic.models.offload.plan import SEQ_UNIT
from gradnic.models.schedule.ethernet_cards import WIRE_MORE, CardTimes
from gradnic.models.transport.sender import DATA, Sending

from gradnic.interface.formats import ETHERNET, GRADNIC, Op

from .fabric import Fifo, Word

N_RUNS = 16  # under way at a time, of `gradnic.hdl.transport.sender`
ENDLESS = 1 << 30  # packets


NO_TIMES = CardTimes(**{one.name: 0 for one in fields(CardTimes) if one.name != "n_bytes"})


def received(times, header):
    """Cycles of the receiver for a frame."""
    if header["op"] != Op.CONTROL:
        return times.locate
    is_probe = header["p0"] & 15 == 1
    return times.probe + times.per_probed * header["elems"] if is_probe else 2


class _Run(Sending):
    """A run that may not be sent before cycle `ready`, nor without a place."""

    ready, entered, card, place = 0, False, None, 0

    def bitmap(self, stamp, wanted):
        believed = super().bitmap(stamp, wanted)
        if believed and self.pending:  # the walk goes through its mask
            walked = self.card.times.again - self.card.read_in(self.first)
            self.ready = max(self.ready, self.card.now + walked)
        return believed

    def next(self, now):
        sent = super().next(now) if self.entered and now >= self.ready else None
        if sent is not None:  # the walk stays, or goes on behind a PROBE
            self.card.walker = (self.place + (sent[0] != DATA)) % N_RUNS
        return sent

    def next_at(self, now):
        """Cycle from which there is something to send."""
        due = now if self.pending or self.probe_at is None else self.probe_at
        return max(due, self.ready)


class _Own:
    """A terminal row: its sums are made in the place of packets, then its gather runs may go."""

    entered, place, done = False, 0, False

    def __init__(self, chunk, ready, cost):
        self.chunk, self.ready, self.cost, self.behind = chunk, ready, cost, []

    def next_at(self, now):
        return max(now, self.ready)


class TimedCard(Card):
    """A golden card whose runs wait until the circuit has walked through them, and has a place."""

    def __init__(self, settings, times):
        super().__init__(settings)
        self.times, self.now = times, 0
        self.made = self.looked_up = 0  # when maker and receiver are free
        self.split = -math.inf  # when the last run was cut
        self.waiting, self.kept, self.walker = deque(), [None] * N_RUNS, 0
        self.sums = {}  # terminal rows by chunk

    def turn(self, now):
        """Issue what may be issued at this cycle, and give places to runs."""
        self.now = now
        if self.changed:
            self._issue()
        for place, held in enumerate(self.kept):
            if self.waiting and (held is None or held[0].done):
                self.kept[place] = sending, _ = self.waiting.popleft()
                sending.entered, sending.place = True, place

    def tick(self, now):
        """As of `Card`, but runs take turns by place, a whole mask and its PROBE each."""
        (round_,) = self.rounds.values()
        for held in [*self.kept[self.walker :], *self.kept[: self.walker]]:
            if held is None or held[0].done or held[0].next_at(now) > now:
                continue
            sending, run = held
            if run is None:
                self._sum(sending)
                return []
            round_.active = [run]
            return super().tick(now)
        return []

    def next_at(self):
        """Cycle from which there is something to do, or None."""
        now = max(self.now, self.made)
        held = (one[0] for one in self.kept if one is not None and not one[0].done)
        return min((sending.next_at(now) for sending in held), default=None)

    def made_in(self, round_, ph, number):
        """Cycles of the maker for a packet."""
        plan = round_.tensor.plan
        chunk = number // plan.per_chunk
        parts = 0 if ph else sum(chunk in told for told in plan.up[self.settings.node].values())
        return int(self.times.made(int(plan.elems[number]), parts))

    def _tag(self, round_, run):
        super()._tag(round_, run)
        order = [(packet.important, packet.queue) for packet in run.packets]
        run.sending = sending = _Run(order, first=run.first, t_probe=self.settings.t_probe)
        sending.card = self
        plan, chunk = round_.tensor.plan, run.first // round_.tensor.plan.per_chunk
        if run.ph and not any(chunk in told for told in plan.down[self.settings.node].values()):
            self._behind_own(round_, chunk, run)
        else:
            self._walk(sending, self.now + self._stored(run.first))
        self.waiting.append((sending, run))

    def _walk(self, sending, begin):
        self.split = max(self.split + self.times.cut, begin + self.times.before)
        sending.ready = self.split

    def _stored(self, number):
        """Cycles until a packet that was looked up is in memory, and its row's turn; at first 0."""
        return self.times.row - self.times.first + 2 * self._beats(number) if self.now else 0

    def _beats(self, number):
        (round_,) = self.rounds.values()
        return self.times.beats(int(round_.tensor.plan.elems[number]))

    def read_in(self, number):
        """Cycles from the walk's look at a packet until all of its values are there."""
        times, (round_,) = self.times, self.rounds.values()
        alone = int(times.made(int(round_.tensor.plan.elems[number]), 1))
        return times.first + self._beats(number) - times.before - times.look - alone

    def _behind_own(self, round_, chunk, run):
        """The chunk is this card's own: its sums come first."""
        sending = run.sending
        if chunk not in self.sums:
            numbers = round_.tensor.plan.packets(chunk, chunk + 1)
            cost = sum(self.made_in(round_, 0, number) for number in numbers)
            turn = self.now + self._stored(run.first)
            self.sums[chunk] = _Own(chunk, turn + self.times.before, cost)
            self.waiting.append((self.sums[chunk], None))
        own = self.sums[chunk]
        if own.done:
            self._walk(sending, own.ready)
        else:
            sending.ready = math.inf
            own.behind.append(sending)

    def _sum(self, own):
        self.made = self.now + own.cost
        (round_,) = self.rounds.values()
        number = round_.tensor.plan.packets(own.chunk, own.chunk + 1)[0]
        own.done, own.ready = True, self.made + self.read_in(number) + self.times.own
        self.walker = (own.place + 1) % N_RUNS
        for sending in own.behind:
            self._walk(sending, own.ready)


def content(frame):
    """What tells a frame of a link from others there, but for its repetitions; a tuple."""
    head = GRADNIC.parse(frame)
    kind = head["p0"] & 15 if head["op"] == Op.CONTROL else None
    to = ETHERNET.destination.get(frame) & 0xFFFF
    return to, head["op"], kind, head["ph"], head["seq"], head["elems"]


class Same:
    """Losses of the frames that another network lost, and of no others.

    sent : (node, content, whether it was lost) of its frames, in order.
    """

    def __init__(self, sent):
        seen = Counter()
        self.lost, self.seen = set(), Counter()
        for node, what, lost in sent:
            seen[node, what] += 1
            if lost:
                self.lost.add((node, what, seen[node, what]))

    def loses(self, node, frame, number):
        """Whether a node's frame is lost; number : of the frame there, which does not matter."""
        key = node, content(frame)
        self.seen[key] += 1
        return (*key, self.seen[key]) in self.lost


class Drawn:
    """Losses by a draw for each frame of a link by its number: `LinkFaults`."""

    def __init__(self, faults):
        if faults.dead:
            raise ValueError(f"dead must be empty here, not {faults.dead!r}")
        self.faults = faults

    def loses(self, node, frame, number):
        return not self.faults.fate((node, 0), number)[0]


class _Frame(Word):
    """A frame of a card."""

    def __init__(self, path, frame, act, first):
        super().__init__(path, 0, act, (frame,), first=first)
        self.n_bytes = len(frame) + WIRE_MORE


class _Host:
    """A card at its link."""

    def __init__(self, network, node, card):
        self.network, self.node, self.card = network, node, card
        self.n_frames, self.free, self.asleep, self.done = 0, 0.0, None, None
        self.read = 0  # cycle at which the last frame's values are there

    @property
    def cycle(self):
        return int(self.network.fabric.now / self.network.nanoseconds)

    def wake(self, cycle):
        """Look for something to send at this cycle, unless that happens before."""
        at = max(cycle * self.network.nanoseconds, self.free, self.network.fabric.now)
        if self.asleep is None or at < self.asleep:
            self.asleep = at
            self.network.fabric.at(at, self._look, at)

    def _look(self, at):
        if at != self.asleep:
            return  # an earlier one took its place
        self.asleep = None
        network, card = self.network, self.card
        card.turn(self.cycle)
        if card.now < card.made:  # at a terminal row
            self.free = card.made * network.nanoseconds
        elif network.fabric.waiting(self.node) > 1:  # the store is full: wait for a frame
            self.free = network.fabric.now + network.fabric.time
        else:
            for _, frame in card.tick(card.now):
                self._make(frame)
        if (soon := card.next_at()) is not None:
            self.wake(max(soon, self.cycle))
        self._look_whether_done()

    def _make(self, frame):
        """The maker takes its time for each, at the line's pace; it leaves when its values are
        there, and those of the frames before it.
        """
        network, card, header = self.network, self.card, GRADNIC.parse(frame)
        wire = (len(frame) + WIRE_MORE) * 8 / network.gbps
        if header["op"] != Op.CONTROL:
            (round_,) = card.rounds.values()
            packet = round_.tensor.plan.number(header["seq"] * SEQ_UNIT)
            made = card.made_in(round_, header["ph"], packet)
            self.free = max(network.fabric.now, self.free) + max(wire, made * network.nanoseconds)
            self.read = self.cycle + card.read_in(packet) + made
        network.after(self.read, self._send, frame)

    def _send(self, frame, *, first=False):
        network, number = self.network, self.n_frames
        self.n_frames += 1
        to = ETHERNET.destination.get(frame) & 0xFFFF
        path, act = network.fabric.path(self.node, to, 0), network.hosts[to].arrived
        if network.losses.loses(self.node, frame, number):
            path, act = path[:1], network.lose  # it is on the first link, and nowhere else
        network.n_frames += 1
        network.fabric.send(_Frame(path, frame, act, first))

    def arrived(self, frame):
        """The last byte is here: the receiver takes it in its turn."""
        card, times = self.card, self.card.times
        header = GRADNIC.parse(frame)
        card.looked_up = max(card.looked_up, self.cycle) + received(times, header)
        self.network.after(card.looked_up, self._heard, frame)

    def _heard(self, frame):
        card = self.card
        card.now = self.cycle
        for _, answer in card.receive(frame, 0, self.cycle):
            self.network.after(self.cycle + card.times.answer, self._answer, answer)
        card.turn(self.cycle)
        self._look_whether_done()
        if (soon := card.next_at()) is not None:
            self.wake(soon)

    def _answer(self, frame):
        self._send(frame, first=True)

    def _look_whether_done(self):
        if self.done is None and self.card.idle():
            self.done = self.cycle + self.card.times.end
            self.network.n_busy -= 1


class Cards:
    """As many cards as a table has nodes, each with one link to one switch without limits.

    table, topology, n_elems : as of `gradnic.models.offload.cluster.Cluster`, FP32 sums. make :
    the class of networks, as `gradnic.sim.reproduce.dlcp.fabric_of` gives it. gbps, hop : of every
    link, nanoseconds. clock : Hz of the cards. p, t_probe : as of the cluster. times : `Times`.
    """

    def __init__(self, table, topology, n_elems, make, *, gbps=100, clock=250e6, p=0.0,
                 t_probe=4000, times=None):  # fmt: skip
        self.times = times or CardTimes()
        rows = table.rows.copy()
        rows["bar"] = 1  # the circuit issues strictly in order
        table = replace(table, rows=rows)
        golden = Cluster(table, topology, n_elems, Raw(table.n_nodes), p=p, t_probe=t_probe)
        self.plan, self.gbps, self.nanoseconds = golden.plan, gbps, 1e9 / clock
        self.cards = [TimedCard(card.settings, self.times) for card in golden.cards]
        self.fabric = make(1, table.n_nodes, 1, lambda: Fifo(ENDLESS, ENDLESS), gbps=gbps)
        self.hosts = [_Host(self, v, card) for v, card in enumerate(self.cards)]
        self.n_frames = self.n_lost = 0

    def after(self, cycle, act, *what):
        """Call act(*what) at this cycle, or now."""
        self.fabric.at(max(cycle * self.nanoseconds, self.fabric.now), act, *what)

    def lose(self, frame):
        self.n_lost += 1

    def run(self, gradients, losses, *, limit=1e9):
        """Cycles until the last card has the sums and its neighbors what they need from it.

        gradients : float32 (n_nodes, n_elems). losses : `Drawn` or `Same`. RuntimeError after
        `limit` nanoseconds.
        """
        self.losses, self.n_busy = losses, len(self.hosts)
        for card, mine, host in zip(self.cards, gradients, self.hosts, strict=True):
            card.arm(1, 1, mine)
            host.wake(0)
        self.fabric.run(lambda: self.n_busy, limit)
        return max(host.done for host in self.hosts)

    @property
    def n_given_up(self):
        """Packets that no card waits for any more, of those that were sent to it to be summed."""
        rounds = (round_ for card in self.cards for round_ in card.rounds.values())
        return sum(int(((up.sizes > 0) & ~up.here).sum()) for r in rounds for up in r.up.values())
