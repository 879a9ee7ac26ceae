"""Way out of an offload card at one port: its own frames wait, and share the line with the host's.

Plumbing: no golden model of its own; that of its queues is `gradnic.models.transport.egress`.
"""

from amaranth.hdl import Module, Mux, Signal
from amaranth.lib import data, stream, wiring
from amaranth.lib.wiring import In, Out
from amaranth.utils import ceil_log2

from ..frame.arbiter import FrameArbiter
from ..frame.packet_fifo import PacketFIFO
from ..stream.beats import FrameBeat
from ..transport.egress import N_QUEUES, EgressQueues
from .port_entry import widened

QUEUE_FRAMES = 8  # of the longest, in each queue at least

QueueRules = data.StructLayout({"limit": 16, "thresholds": data.ArrayLayout(16, N_QUEUES)})
"""Beats; 0: as many as a queue holds, and no threshold."""


def queue_beats(own_beats: int) -> int:
    """Beats that each of the queues holds."""
    return 1 << ceil_log2(QUEUE_FRAMES * own_beats)


def longest_frame(n_bytes: int, max_elems: int) -> int:
    """Beats of a card's longest frame: a head, and `max_elems` elements coded at their worst."""
    return -(-(64 + max_elems * 17 // 4 + 17) // n_bytes)


def most_beats(own_beats: int) -> int:
    """Highest limit of a queue: a frame more has room, while it is judged."""
    return queue_beats(own_beats) - own_beats


class PortExit(wiring.Component):
    """Stores own frames whole, and sends them behind the host's: see `FrameArbiter`.

    Without `queues` one store that makes its source wait while it is full. With them eight, as of
    `EgressQueues`: the source never waits, and what the line does not take in time is dropped or
    marked by its class and importance.

    Parameters
    ----------
    n_bytes, port_bytes : int
        Bytes of a beat inside, and at the port.
    meta_width : int
        Side band of the host's frames; it is 0 with own ones.
    own_beats : int
        Of the longest own frame.
    n_frames : int
        Of those, what the one store holds.
    queues : int
        0 or 8.

    Members
    -------
    own : In(stream.Signature(FrameBeat(n_bytes)))
        Frames that are marked bad vanish.
    host, mac : In, Out(stream.Signature(FrameBeat(port_bytes, meta_width=meta_width)))
    floor : In(8)
        See `FrameArbiter`.
    rules, shown, count : In(QueueRules), In(6), Out(32)
        Only with `queues`: thresholds, and one of the counters of `EgressQueues`.
    """

    def __init__(self, n_bytes, port_bytes, *, meta_width, own_beats, n_frames, queues=0):
        self.n_bytes, self.port_bytes, self.meta_width = n_bytes, port_bytes, meta_width
        self.own_beats, self.n_frames, self.queues = own_beats, n_frames, queues
        frames = stream.Signature(FrameBeat(port_bytes, meta_width=meta_width))
        more = {"rules": In(QueueRules), "shown": In(6), "count": Out(32)} if queues else {}
        super().__init__(
            {
                "own": In(stream.Signature(FrameBeat(n_bytes))),
                "host": In(frames),
                "mac": Out(frames),
                "floor": In(8),
                **more,
            }
        )

    def elaborate(self, platform):
        m = Module()
        m.submodules.store = store = self._queues(m) if self.queues else PacketFIFO(
            FrameBeat(self.n_bytes), self.n_frames * self.own_beats, drop="bad"
        )  # fmt: skip
        m.submodules.arbiter = arbiter = FrameArbiter(
            self.n_bytes, meta_width=self.meta_width, own_beats=self.own_beats
        )
        wiring.connect(m, wiring.flipped(self.own), store.i)
        host, mac = widened(
            m, wiring.flipped(self.host), wiring.flipped(self.mac), self.port_bytes, self.n_bytes,
            self.meta_width,
        )  # fmt: skip
        wiring.connect(m, host, arbiter.foreign)
        wiring.connect(m, arbiter.o, mac)
        m.d.comb += [  # meta stays 0: the host has not sent these
            *(arbiter.own.p[name].eq(store.o.p[name]) for name in store.o.p.shape().members),
            arbiter.own.valid.eq(store.o.valid),
            store.o.ready.eq(arbiter.own.ready),
            arbiter.floor.eq(self.floor),
        ]
        return m

    def _queues(self, m):
        beats = queue_beats(self.own_beats)
        queues = EgressQueues(self.n_bytes, queue_beats=beats, max_beats=self.own_beats)
        most, rules = most_beats(self.own_beats), self.rules
        limit = Signal(16)
        m.d.comb += [
            limit.eq(Mux((rules.limit == 0) | (rules.limit > most), most, rules.limit)),
            queues.limit.eq(limit),
            queues.count_addr.eq(self.shown),
            self.count.eq(queues.count),
            *(
                queues.thresholds[k].eq(Mux((at == 0) | (at > limit), limit, at))
                for k, at in enumerate(rules.thresholds)
            ),
        ]
        return queues
