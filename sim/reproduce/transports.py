"""Flows over a `Fabric`: DCTCP, pFabric, and ours with the golden sender, receiver, spray, pace."""

import numpy as np
from gradnic.models.training.constants import value
from gradnic.models.transport.mark_share import MarkShare
from gradnic.models.transport.pace import LINE, Pace
from gradnic.models.transport.reception import Reception, packet_sizes, wanted_packets
from gradnic.models.transport.sender import DATA, Sending
from gradnic.models.transport.spray import Spray

from .fabric import PAYLOAD, Packet, Word


class Flow:
    """Bytes from one host to another. done : when the receiver has enough, None before.

    queue : of its layer. important : bool array, one a packet.
    """

    def __init__(self, fabric, source, to, n_bytes, *, queue=0, important=None, seed=0, p=0.0):
        self.fabric, self.source, self.to, self.n_bytes = fabric, source, to, n_bytes
        self.queue, self.p, self.seed = queue, p, seed
        self.n_packets = -(-n_bytes // PAYLOAD)
        self.important = np.zeros(self.n_packets, bool) if important is None else important
        self.delay = fabric.delay(source, to)
        self.begin, self.done = None, None

    def start(self):
        self.begin = self.fabric.now

    def answer(self, act, *what, turn=0):
        """Call act(*what) at the source once word of it has come from the receiver."""
        self.fabric.answer(self.to, self.source, self.queue, act, *what, turn=turn)

    @property
    def seconds(self):
        return (self.done - self.begin) / 1e9


class Window(Flow):
    """A window of packets, acknowledged one by one, on one path chosen by a hash of the flow.

    Lost packets are known by three later ones that came (`by_later`), or by `timeout` nanoseconds
    without news. Subclasses say what a mark or a loss does to the window.
    """

    timeout, by_later, first = 1e9 * value("dctcp.timeout"), True, value("dctcp.window")

    def start(self):
        super().start()
        self._route()
        self.window, self.next, self.flying = self.first, 0, 0
        self.acked = bytearray(self.n_packets)
        self.here = bytearray(self.n_packets)
        self.n_here = self.n_acked = self.lowest = self.highest = 0
        self.again, self.sent_again, self.resent_at = [], bytearray(self.n_packets), {}
        self.news = self.fabric.now
        self._fill()
        self.fabric.at(self.fabric.now + self.timeout, self._timer)

    def _route(self):
        ways = self.fabric.ways(self.source, self.to)
        way = ways[int(np.random.default_rng(self.seed).integers(len(ways)))]
        self.path, self.epoch = self.fabric.path(self.source, self.to, way), self.fabric.epoch

    def _fill(self):
        if self.epoch != self.fabric.epoch:
            self._route()
        while self.flying + 1 <= self.window:
            if self.again:
                number = self.again.pop()
                if self.acked[number]:
                    continue
            elif self.next < self.n_packets:
                number, self.next = self.next, self.next + 1
            else:
                return
            self.flying += 1
            remaining = self.n_packets - self.n_acked
            self.fabric.send(Packet(self, number, self.path, self.queue, True, remaining))

    def received(self, packet):
        if not self.here[packet.number]:
            self.here[packet.number] = 1
            self.n_here += 1
            if self.n_here == self.n_packets:
                self.done = self.fabric.now
        self.answer(self._ack, packet.number, packet.marked)

    def _ack(self, number, marked):
        self.flying = max(0, self.flying - 1)
        self.news = self.fabric.now
        if not self.acked[number]:
            self.acked[number] = 1
            self.n_acked += 1
        self.acknowledged(marked)
        self.highest = max(self.highest, number)
        while self.lowest < self.n_packets and self.acked[self.lowest]:
            self.lowest += 1
        if self.by_later:
            for lost in range(self.lowest, self.highest - 2):
                if not self.acked[lost] and not self.sent_again[lost]:
                    self.sent_again[lost] = 1
                    self.flying = max(0, self.flying - 1)
                    self.again.append(lost)
                    self.lost()
        self._fill()

    def _timer(self):
        if self.n_acked == self.n_packets:
            return
        due = self.news + self.timeout
        if self.fabric.now < due:
            self.fabric.at(due, self._timer)
            return
        self.news = self.fabric.now
        self.again = [i for i in range(self.next - 1, self.lowest - 1, -1) if not self.acked[i]]
        self.sent_again = bytearray(self.n_packets)
        self.flying = 0
        self.timed_out()
        self._fill()
        self.fabric.at(self.fabric.now + self.timeout, self._timer)


class Dctcp(Window):
    """DCTCP (Alizadeh et al., SIGCOMM 2010, and RFC 8257): gain 1/16; a mark cuts the window by
    alpha / 2 at once, and no more until all that was under way then is acknowledged.

    Initial window 10 (RFC 6928), initial alpha 1 (RFC 8257); least timeout 10 ms, as in the
    paper's own tests.
    """

    alpha, gain, slow = value("dctcp.alpha"), value("dctcp.gain"), True
    marks = acks = 0
    turn = recovered = 0

    def acknowledged(self, marked):
        self.marks += marked
        self.acks += 1
        if self.n_acked > self.turn:  # a window has passed
            self.alpha += (self.marks / self.acks - self.alpha) * self.gain
            self.turn, self.marks, self.acks = self.next, 0, 0
        if self.n_acked <= self.recovered:
            return
        if marked:
            self._cut(1 - self.alpha / 2)
        else:
            self.window += 1 if self.slow else 1 / self.window

    def lost(self):
        if self.n_acked > self.recovered:
            self._cut(0.5)

    def _cut(self, factor):
        self.slow = False
        self.window = max(1.0, self.window * factor)
        self.recovered = self.next

    def timed_out(self):
        self.window, self.slow = 1.0, True


class Pfabric(Window):
    """pFabric (Alizadeh et al., SIGCOMM 2013): a bandwidth-delay product from the start, timeouts
    of three round trips, one packet at a time after five of them in a row.
    """

    by_later, first, timeout = False, value("pfabric.window"), 1e9 * value("pfabric.timeout")
    silent = 0

    def acknowledged(self, marked):
        self.silent = 0
        self.window = self.first

    def lost(self):
        """Never called: only timeouts tell."""

    def timed_out(self):
        self.silent += 1
        self.window = self.first if self.silent < value("pfabric.probing") else 1.0


class Bounded(Flow):
    """Ours: runs of 64 packets, each closed by a PROBE; golden sender, receiver, spray and pace.

    Where a trimmed packet is important, or all must arrive, the receiver asks for it at once;
    others are what the bound p is for. Heads are no marks: with them the pace falls so far that
    incasts take twice as long.

    A host has at most `outstanding` runs of a flow under way, and packets of it in its own queue
    only as many as its pace lets leave in a round trip.
    """

    run_length, outstanding = int(value("sender.run")), int(value("sender.runs"))

    def start(self):
        super().start()
        n = self.n_packets
        self.reception = Reception(packet_sizes(self.n_bytes, PAYLOAD, 1), p_q16=int(self.p * LINE))
        self.paths = self._left()
        self.spray = Spray(len(self.paths), "least_marked")
        self.pace = Pace("ce")
        order = [(int(i), self.queue) for i in self.important]
        trip = int(2 * self.delay + 8 * self.fabric.time)
        self.runs = [
            Sending(order[first : first + self.run_length], first=first, t_probe=trip)
            for first in range(0, n, self.run_length)
        ]
        self.n_important = int(self.important.sum())
        self.free = self.fabric.now
        self.echo = MarkShare()
        self.asleep = False
        self._next()

    def _left(self):
        """Paths of which nobody knows that they are down."""
        self.epoch = self.fabric.epoch
        ways = self.fabric.ways(self.source, self.to)
        return [self.fabric.path(self.source, self.to, way) for way in ways]

    def _route(self):
        """The host chooses on among as many paths as before; switches that know which are down
        spread those over the rest.
        """
        left = self._left()
        self.paths = [
            path if path in left else left[i % len(left)] for i, path in enumerate(self.paths)
        ]

    def _active(self):
        return [run for run in self.runs if not run.done][: self.outstanding]

    def _next(self):
        """Send one thing of the first run that has something, and come back at the pace's time."""
        now = self.fabric.now
        self.asleep = False
        if self.epoch != self.fabric.epoch:
            self._route()
        active = self._active()
        for run in active:
            if not run.due(now):
                continue
            kind, what, again = run.next(now)
            if kind == DATA:
                run.path = self.spray.next()
            elif again:
                run.path = self.spray.again(run.path)
            path = self.paths[run.path]
            if kind == DATA:
                packet = Packet(self, what, path, self.queue, bool(self.important[what]), 0)
                self.fabric.send(packet)
                gap = self.fabric.time * LINE / self.pace.rate
                self._sleep(now + gap)
            else:
                self.fabric.send(
                    Word(path, self.queue, self._probed, (run, what, run.path * again))
                )
                self._sleep(now + self.fabric.time)
            return
        if active:
            self._sleep(max(now + self.fabric.time, min(run.probe_at for run in active)))

    def _sleep(self, until):
        if not self.asleep:
            self.asleep = True
            self.fabric.at(until, self._next)

    def received(self, packet):
        self.echo.packet(packet.marked)
        if packet.marked and packet.path in self.paths and len(self.paths) > 1:
            self.answer(self.spray.mark, self.paths.index(packet.path))
        if packet.trimmed:
            if packet.important or not self.p:
                self.answer(self._trimmed, packet.number)
            return
        size = int(self.reception.sizes[packet.number])
        self.reception.data(packet.number, size, round=0,
                            important=int(packet.important))  # fmt: skip
        self._closed()

    def _trimmed(self, number):
        self.runs[number // self.run_length].trimmed(number)
        self._sleep(self.fabric.now)

    def _closed(self):
        if self.done is None and self.reception.status != "open":
            self.done = self.fabric.now
            self.answer(self._stop_all)

    def _stop_all(self):
        for run in self.runs:
            run.stop()

    def _probed(self, run, stamp, turn):
        """A PROBE has come: STOP or BITMAPs go back, and the share of marked packets."""
        closed = self.reception.probe(run.first, len(run.order), n_important=self.n_important)
        share = self.echo.share
        self.echo.sent()
        self._closed()
        wanted = []
        if not closed:
            for body in self.reception.bitmaps(run.first, len(run.order)):
                wanted += wanted_packets(*body)
        self.answer(self._answered, run, stamp, closed, wanted, share, turn=turn)

    def _answered(self, run, stamp, closed, wanted, share):
        self.pace.echo(share, int(self.fabric.now - stamp))
        if closed:
            run.stop()
        else:
            run.bitmap(stamp, wanted)
        self._sleep(self.fabric.now)
