"""All ports of an offload card on the way out: packets become frames, at the card's pace.

Plumbing: no golden model of its own.
"""

from amaranth.hdl import Cat, Module, Mux
from amaranth.lib import stream, wiring
from amaranth.lib.wiring import In, Out

from gradnic.interface.formats import HEAD_BYTES

from ..frame.head_beat import HeadJoined
from ..frame.queue_rules import queue_members, rule_queues
from ..stream.beats import Beat, FrameBeat
from ..stream.fifo import FIFO
from ..stream.slice import Slice
from ..transport.framer import Framer
from ..transport.pace import Echo, Pace, PaceRules
from ..transport.records import NeighborWrite, Own, PacketHead, PathMark, Round
from .port_exit import PortExit, longest_frame

STORE_FRAMES = 2  # of the longest, at each port
PORT_FRAMES = 16  # the same, and packets of a run, where ports are narrower than the beat: while
# one run is made for a port, the others send from what they have stored
BURST = 4096  # bytes that may go at once after a rest, while paced


class WayOut(wiring.Component):
    """`Pace`, `Framer` and a `PortExit` for each port; answers go before packets.

    Parameters
    ----------
    n_bytes, n_ports, port_bytes, meta_width, max_elems, queues : int
        As of `gradnic.hdl.offload.core.OffloadCore`.

    Members
    -------
    host_tx, mac_tx : In(frames).array(n_ports), Out(frames).array(n_ports)
    own, round, neighbor, pace, floor : In
        As of `OffloadCore`.
    heads, payload : In(stream.Signature(PacketHead)), In(stream.Signature(Beat))
        As of `Framer`.
    replies : In(stream.Signature(PacketHead))
    echoed, echo, path_mark : In(1), In(Echo), In(PathMark)
        What answers told of the network.
    queue_write, queue_shown, queue_count
        With `queues`: see `queue_members`.
    """

    def __init__(
        self,
        n_bytes: int,
        n_ports: int,
        port_bytes: int,
        *,
        max_elems: int,
        meta_width: int = 0,
        queues: int = 0,
    ) -> None:
        self.n_bytes, self.n_ports, self.port_bytes = n_bytes, n_ports, port_bytes
        self.meta_width, self.queues = meta_width, queues
        self.longest = longest_frame(n_bytes, max_elems)
        frames = stream.Signature(FrameBeat(port_bytes, meta_width=meta_width))
        super().__init__(
            {
                "host_tx": In(frames).array(n_ports),
                "mac_tx": Out(frames).array(n_ports),
                "own": In(Own),
                "round": In(Round),
                "neighbor": In(NeighborWrite(n_ports)),
                "pace": In(PaceRules),
                "floor": In(8),
                "heads": In(stream.Signature(PacketHead)),
                "payload": In(stream.Signature(Beat(8 * n_bytes))),
                "replies": In(stream.Signature(PacketHead)),
                "echoed": In(1),
                "echo": In(Echo),
                "path_mark": In(PathMark),
                **(queue_members(n_ports) if queues else {}),
            }
        )

    def elaborate(self, platform):
        m = Module()
        n = self.n_bytes
        m.submodules.framer = framer = Framer(n, self.n_ports)
        m.submodules.slice = payload = Slice(Beat(8 * n))
        wiring.connect(m, wiring.flipped(self.payload), payload.i)
        wiring.connect(m, payload.o, framer.payload)
        m.submodules.answers = answers = Slice(PacketHead, half_rate=True)
        wiring.connect(m, wiring.flipped(self.replies), answers.i)
        heads, to, replies = self.heads, framer.heads, answers.o
        m.submodules.rate = pace = Pace(n)
        m.submodules.echoes = echoes = FIFO(Echo, 4)
        wiring.connect(m, echoes.o, pace.echoes)
        m.d.comb += [
            echoes.i.valid.eq(self.echoed),
            echoes.i.p.eq(self.echo),
            pace.rules.eq(self.pace),
            pace.burst.eq(BURST),
            pace.frames.payload.eq(heads.p.length + HEAD_BYTES),
            pace.frames.valid.eq(heads.valid & to.ready & ~replies.valid),
            framer.own.eq(self.own),
            framer.round.eq(self.round),
            framer.write.eq(self.neighbor),
            framer.path_mark.eq(self.path_mark),
            to.valid.eq(replies.valid | (heads.valid & pace.frames.ready)),
            to.p.eq(Mux(replies.valid, replies.p, heads.p)),
            replies.ready.eq(to.ready),
            heads.ready.eq(to.ready & ~replies.valid & pace.frames.ready),
        ]
        made = framer.o
        if n > HEAD_BYTES:
            m.submodules.joined = joined = HeadJoined(n, meta_width=len(made.p.meta))
            wiring.connect(m, made, joined.i)
            made = joined.o
        exits = [self._exit(m, k, made) for k in range(self.n_ports)]
        if self.queues:
            rule_queues(m, self, [out for out, _ in exits])
        m.d.comb += made.ready.eq(Cat(taken for _, taken in exits).any())
        return m

    def _exit(self, m, k, made):
        """(exit of port `k`, whether it takes what is made)."""
        is_narrow = self.port_bytes < self.n_bytes
        m.submodules[f"exit{k}"] = out = PortExit(
            self.n_bytes, self.port_bytes, meta_width=self.meta_width, own_beats=self.longest,
            n_frames=PORT_FRAMES if is_narrow else STORE_FRAMES, queues=self.queues,
        )  # fmt: skip
        here = made.p.meta == k if self.n_ports > 1 else 1
        m.d.comb += [
            out.floor.eq(self.floor),
            out.own.valid.eq(made.valid & here),
            *(out.own.p[name].eq(made.p[name]) for name in ("data", "keep", "last", "bad")),
        ]
        wiring.connect(m, wiring.flipped(self.host_tx[k]), out.host)
        wiring.connect(m, out.mac, wiring.flipped(self.mac_tx[k]))
        return out, out.own.ready & here
