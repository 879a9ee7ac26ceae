"""Way out of an offload card at one port: its own frames wait, and share the line with the host's.

Plumbing: no golden model of its own; that of its queues is `gradnic.models.frame.egress`.
"""

from amaranth.hdl import Module
from amaranth.lib import stream, wiring
from amaranth.lib.wiring import In, Out

from ..frame.arbiter import FrameArbiter
from ..frame.packet_fifo import PacketFIFO
from ..frame.queue_rules import port_members, ruled_queues
from ..stream.beats import FrameBeat
from .port_entry import widened


def longest_frame(n_bytes: int, max_elems: int) -> int:
    """Beats of a card's longest frame: a head, and `max_elems` elements coded at their worst."""
    return -(-(64 + max_elems * 17 // 4 + 17) // n_bytes)


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
        Only with `queues`: see `port_members`.
    """

    def __init__(
        self,
        n_bytes: int,
        port_bytes: int,
        *,
        meta_width: int,
        own_beats: int,
        n_frames: int,
        queues: int = 0,
    ) -> None:
        self.n_bytes, self.port_bytes, self.meta_width = n_bytes, port_bytes, meta_width
        self.own_beats, self.n_frames, self.queues = own_beats, n_frames, queues
        frames = stream.Signature(FrameBeat(port_bytes, meta_width=meta_width))
        super().__init__(
            {
                "own": In(stream.Signature(FrameBeat(n_bytes))),
                "host": In(frames),
                "mac": Out(frames),
                "floor": In(8),
                **(port_members() if queues else {}),
            }
        )

    def elaborate(self, platform):
        m = Module()
        m.submodules.store = store = self._store(m)
        m.submodules.arbiter = arbiter = FrameArbiter(
            self.n_bytes, meta_width=self.meta_width, own_beats=self.own_beats
        )
        wiring.connect(m, wiring.flipped(self.own), store.i)
        host, mac = widened(m, self, self.host, self.mac)
        wiring.connect(m, host, arbiter.foreign)
        wiring.connect(m, arbiter.o, mac)
        m.d.comb += [  # meta stays 0: the host has not sent these
            *(arbiter.own.p[name].eq(store.o.p[name]) for name in store.o.p.shape().members),
            arbiter.own.valid.eq(store.o.valid),
            store.o.ready.eq(arbiter.own.ready),
            arbiter.floor.eq(self.floor),
        ]
        return m

    def _store(self, m):
        if self.queues:
            return ruled_queues(m, self.n_bytes, self.own_beats, self)
        return PacketFIFO(FrameBeat(self.n_bytes), self.n_frames * self.own_beats, drop="bad")
