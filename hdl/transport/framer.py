"""Puts Ethernet, IPv4, UDP and gradnic heads before payloads: the frames that a card sends.

Golden model: `gradnic.models.transport.framer`.
"""

from amaranth.hdl import Cat, Module, Mux, Signal
from amaranth.lib import data, memory, stream, wiring
from amaranth.lib.wiring import In, Out
from amaranth.utils import ceil_log2

from gradnic.interface.formats import ETHERNET, GRADNIC, HEAD_BYTES, IPV4, UDP, Op
from gradnic.interface.offload import Subtype

from ..frame.plain_head import DF, PLAIN, WITHOUT_FLAGS, put
from ..primitive.names import signals
from ..stream.beats import Beat, FrameBeat
from ..stream.delays import copied
from .neighbor_table import neighbor_table
from .records import (
    HEAD_FIELDS,
    N_NEIGHBORS,
    Neighbor,
    NeighborWrite,
    Own,
    PacketHead,
    PathMark,
    Round,
)
from .spray import Spray

N_PATHS = 8


class Framer(wiring.Component):
    """One frame per head, payload from byte 64 on: 1 beat per cycle, frames back to back.

    With ``round.spray`` each data packet takes one of `N_PATHS` paths, told by its UDP source port;
    all neighbors share what is known of the paths. A PROBE takes that of the data packet before it,
    which it must not overtake; one that goes again the next one, chosen before, and the path of the
    latest PROBE to that neighbor counts as marked, unless an answer brings a mark in that cycle or
    the one before. Answers take the path of their PROBE.

    The head's beats leave 7 cycles after it was taken at the earliest; a frame takes as many
    cycles as it has beats, and at least 4, a head alone of 16-byte beats 5. Payload beats must come
    in the order of their heads.

    Parameters
    ----------
    n_bytes, n_ports : int
        Bytes of a beat, 16, 32, 64 or 128; ports of the card. A beat of 128 has the head alone, in
        its lower half, for `gradnic.hdl.frame.head_beat.HeadJoined`.

    Members
    -------
    own, round : In(Own), In(Round)
    write : In(NeighborWrite(n_ports))
    path_mark : In(PathMark)
    heads : In(stream.Signature(PacketHead))
    payload : In(stream.Signature(Beat(8 * n_bytes)))
        ceil(length / n_bytes) beats for each head with a length but for CONTROL packets.
    o : Out(stream.Signature(FrameBeat(n_bytes, meta_width=...)))
        ``meta`` is the port. Bytes past the payload are not kept.
    """

    def __init__(self, n_bytes: int, n_ports: int) -> None:
        if n_bytes not in (16, 32, 64, 128):
            raise ValueError(f"n_bytes must be 16, 32, 64 or 128, not {n_bytes!r}")
        self.n_bytes, self.n_ports = n_bytes, n_ports
        self.neighbor = Neighbor(n_ports)
        self.shape = FrameBeat(n_bytes, meta_width=self.neighbor["port"].width)
        super().__init__(
            {
                "own": In(Own),
                "round": In(Round),
                "write": In(NeighborWrite(n_ports)),
                "path_mark": In(PathMark),
                "heads": In(stream.Signature(PacketHead)),
                "payload": In(stream.Signature(Beat(8 * n_bytes))),
                "o": Out(stream.Signature(self.shape)),
            }
        )

    def elaborate(self, platform):
        m = Module()
        n, n_head = self.n_bytes, -(-HEAD_BYTES // self.n_bytes)
        low = ceil_log2(n)
        complete, full = signals("complete full")
        ready = self._address(m, complete, ~full)
        # a head that waits or leaves, and beside it what is left of its frame or the one before
        head = Signal(8 * HEAD_BYTES, reset_less=True)
        left = Signal(range(n_head), reset_less=True)  # beats of the head behind this one
        last_of_head = Signal(reset_less=True)
        sent = Signal(PacketHead, reset_less=True)
        port = Signal(len(self.o.p.meta), reset_less=True)
        has_body = Signal(reset_less=True)
        body = Signal()
        control = Signal(reset_less=True)
        text = Signal(len(sent.body), reset_less=True)
        keep = Signal(n, reset_less=True)  # of the last beat
        body_port = Signal(len(port), reset_less=True)
        o = self.o
        in_head = Signal()
        m.d.comb += [
            in_head.eq(full & ~body),
            o.valid.eq(in_head | (body & (control | self.payload.valid))),
            self.payload.ready.eq(body & ~control & o.ready),
            o.p.meta.eq(Mux(body, body_port, port)),
            o.p.last.eq(Mux(body, control | self.payload.p.last, last_of_head & ~has_body)),
            o.p.keep.eq(keep | (~o.p.last | ~body).replicate(n)),
        ]
        with m.If(~body):
            m.d.comb += o.p.data.eq(head[: 8 * n])
        with m.Elif(control):
            m.d.comb += o.p.data.eq(text)
        with m.Else():
            m.d.comb += o.p.data.eq(self.payload.p.data)
        with m.If(body & (control | (self.payload.valid & self.payload.p.last)) & o.ready):
            m.d.sync += body.eq(0)
        with m.If(in_head & o.ready):
            m.d.sync += [
                left.eq(left - 1),
                last_of_head.eq(left == 1),
                full.eq(~last_of_head),
                body.eq(last_of_head & has_body),
            ]
        with m.If(~body):
            tail = (sent.length - 1)[:low]
            m.d.sync += [
                control.eq(sent.op == Op.CONTROL),
                text.eq(sent.body),
                keep.eq(Cat(tail >= k for k in range(n))),
                body_port.eq(port),
            ]
        with m.If(complete & ~full):
            m.d.sync += full.eq(1)
        with m.If(~full):
            m.d.sync += [
                left.eq(n_head - 1),
                last_of_head.eq(n_head == 1),
                sent.eq(ready.head),
                port.eq(ready.to.port),
                has_body.eq(ready.head.length != 0),
            ]
        with m.If(~full | (~body & o.ready)):
            m.d.sync += head.eq(Mux(full, head >> 8 * n, self._head(m, ready)))
        return m

    def _address(self, m, complete, taken):
        """A head with the receiver's addresses and the IPv4 checksum, which is `complete`, until it
        is `taken`: two steps of 4 cycles, a head in each.
        """
        read = neighbor_table(m, self.neighbor, self.write)
        m.d.comb += read.addr.eq(self.heads.p.neighbor)
        m.submodules.spray = spray = Spray(N_PATHS)
        fields = {"head": PacketHead, "to": self.neighbor, "total": 16, "udp": 16, "port": 16}
        found = Signal(data.StructLayout(fields), reset_less=True)
        result = Signal(data.StructLayout(fields | {"checksum": 16}), reset_less=True)
        path = Signal.like(spray.paths.payload, reset_less=True)
        latest = Signal.like(path, reset_less=False)  # of the data packets taken
        answers = Signal(reset_less=True)
        is_control = Signal()
        head = self.heads.p
        is_probe, sprays = signals("is_probe sprays")
        following = Signal.like(path)
        m.submodules.probed = probed = memory.Memory(shape=path.shape(), depth=N_NEIGHBORS, init=[])
        tell = probed.write_port()
        silent = probed.read_port(domain="comb")
        free = Signal(init=1)
        at = Signal(3)  # cycles since the head was taken
        moves = Signal()
        result_at = Signal(3)
        take = self.heads.valid & free
        # the sprayer may be far away: the next path is there 3 cycles later, a head takes 4
        (taken_one,) = copied(m, take & sprays, 1, name="take")
        (took,) = copied(m, taken_one, 1, name="took")
        m.d.comb += [
            self.heads.ready.eq(free),
            is_control.eq(head.op == Op.CONTROL),
            is_probe.eq(is_control & (head.p0[:4] == Subtype.PROBE)),
            sprays.eq(~is_control | (is_probe & head.retx)),
            following.eq(Mux(sprays, Mux(self.round.spray, spray.paths.payload, 0), latest)),
            tell.en.eq(take & is_probe),
            tell.addr.eq(head.neighbor),
            tell.data.eq(following),
            silent.addr.eq(head.neighbor),
            spray.rule.eq(self.round.rule),
            spray.paths.ready.eq(took),
            moves.eq(at[2] & (result_at == 0)),
            complete.eq(result_at[2]),
        ]
        with m.If(free):
            m.d.sync += [
                found.head.eq(self.heads.p),
                found.to.eq(read.data),
                path.eq(following),
                answers.eq(is_control & ~is_probe),
            ]
        port = Mux(answers, found.head.path, self.own.udp_port + path)
        with m.If(~at[2] | moves):
            m.d.sync += at.eq(Cat(take, at[:2]))
        with m.If(take & ~is_control):
            m.d.sync += latest.eq(following)
        with m.If(take):
            m.d.sync += free.eq(0)
        with m.Elif(moves):
            m.d.sync += free.eq(1)
        with m.If(moves):
            m.d.sync += result_at.eq(1)
        with m.Elif(~complete):
            m.d.sync += result_at.eq(result_at << 1)
        with m.Elif(taken):
            m.d.sync += result_at.eq(0)

        m.d.sync += [
            spray.marks.valid.eq(
                self.path_mark.valid | (take & is_probe & head.retx & self.round.spray)
            ),
            spray.silent.eq(~self.path_mark.valid),
            spray.marks.payload.eq(
                Mux(self.path_mark.valid, self.path_mark.path - self.own.udp_port, silent.data)
            ),
        ]
        self._sum(m, found, port, result, result_at == 0)
        return result

    def _sum(self, m, found, port, result, first):
        """`found`, and `port` from which it leaves, with lengths and checksum, into `result`."""
        ip, to = self.own.ip, found.to.ip
        known = Signal(20, reset_less=True)  # all but length, ToS and receiver
        base = Signal(20, reset_less=True)
        addresses = Signal(17, reset_less=True)
        total = Signal(20, reset_less=True)
        folded = Signal(17, reset_less=True)
        m.d.sync += [
            known.eq(WITHOUT_FLAGS + DF + ip[:16] + ip[16:]),
            base.eq(known + found.head.tos),
            addresses.eq(to[:16] + to[16:]),
            found.total.eq(found.head.length + (HEAD_BYTES - IPV4.start)),
            found.udp.eq(found.head.length + (HEAD_BYTES - UDP.start)),
            found.port.eq(port),
            folded.eq(total[:16] + total[16:]),
            result.checksum.eq(~(folded[:16] + folded[16])),
        ]
        partial = Signal(20, reset_less=True)
        m.d.sync += partial.eq(base + found.total)
        with m.If(first):
            m.d.sync += [
                *(result[name].eq(found[name]) for name in found.shape().members),
                total.eq(partial + addresses),
            ]

    def _head(self, m, ready):
        """The 64 bytes, byte 0 lowest."""
        sent, to = ready.head, ready.to
        fields = PLAIN | {
            ETHERNET.destination: to.mac,
            ETHERNET.source: self.own.mac,
            IPV4.tos: sent.tos,
            IPV4.total_length: ready.total,
            IPV4.checksum: ready.checksum,
            IPV4.source: self.own.ip,
            IPV4.destination: to.ip,
            UDP.source_port: ready.port,
            UDP.destination_port: self.own.udp_port,
            UDP.length: ready.udp,
            GRADNIC.set: sent.gen[0],
            GRADNIC.job: self.round.job,
            GRADNIC.src: self.own.node,
        }
        fields |= {GRADNIC[name]: sent[name] for name in HEAD_FIELDS}
        head = Signal(8 * HEAD_BYTES)
        put(m, head, fields)
        return head
