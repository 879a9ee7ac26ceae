"""Puts Ethernet, IPv4, UDP and gradnic heads before payloads: the frames that a card sends."""

from amaranth.hdl import Cat, Module, Mux, Signal
from amaranth.lib import data, memory, stream, wiring
from amaranth.lib.wiring import In, Out
from amaranth.utils import ceil_log2

from ..formats import (
    ETHERNET,
    ETHERTYPE_IPV4,
    GRADNIC,
    HEAD_BYTES,
    IP_PROTOCOL_UDP,
    IPV4,
    UDP,
    VERSION,
    Op,
)
from .offload_types import N_NEIGHBORS, Head, Neighbor, NeighborWrite, Own, Round
from .pipeline import step
from .spray import Spray
from .streams import Beat, FrameBeat

TTL = 64
N_PATHS = 8
CONSTANT = 0x4500 + (1 << 14) + (TTL << 8) + IP_PROTOCOL_UDP  # words of the IPv4 header


class Framer(wiring.Component):
    """One frame per head, payload from byte 64 on: 1 beat per cycle, frames back to back.

    With ``round.spray`` each frame takes one of `N_PATHS` paths, told by its UDP source port.

    The head's beats leave 5 cycles after it was taken at the earliest; a frame takes as many
    cycles as it has beats, and at least 5. Payload beats must come in the order of their heads.

    Parameters
    ----------
    n_bytes, n_ports : int
        Bytes of a beat, 16, 32 or 64; ports of the card.

    Members
    -------
    own, round : In(Own), In(Round)
    write : In(NeighborWrite(n_ports))
    heads : In(stream.Signature(Head))
    payload : In(stream.Signature(Beat(8 * n_bytes)))
        ceil(length / n_bytes) beats for each head with a length but for CONTROL packets.
    o : Out(stream.Signature(FrameBeat(n_bytes, meta_width=...)))
        ``meta`` is the port. Bytes past the payload are not kept.
    """

    def __init__(self, n_bytes, n_ports):
        if n_bytes not in (16, 32, 64):
            raise ValueError(f"n_bytes must be 16, 32 or 64, not {n_bytes!r}")
        self.n_bytes, self.n_ports = n_bytes, n_ports
        self.neighbor = Neighbor(n_ports)
        self.shape = FrameBeat(n_bytes, meta_width=self.neighbor["port"].width)
        super().__init__(
            {
                "own": In(Own),
                "round": In(Round),
                "write": In(NeighborWrite(n_ports)),
                "heads": In(stream.Signature(Head)),
                "payload": In(stream.Signature(Beat(8 * n_bytes))),
                "o": Out(stream.Signature(self.shape)),
            }
        )

    def elaborate(self, platform):
        m = Module()
        addressed = self._address(m)
        n, n_head = self.n_bytes, HEAD_BYTES // self.n_bytes
        low = ceil_log2(n)
        ready = addressed.p
        head = Signal(8 * HEAD_BYTES, reset_less=True)
        left = Signal(range(n_head + 1))  # beats of the head to come
        body, control = Signal(), Signal(reset_less=True)
        text = Signal(len(ready.head.body), reset_less=True)
        tail = Signal(low, reset_less=True)  # bytes of the last beat, less 1
        port = Signal(len(self.o.p.meta), reset_less=True)
        in_head, load = Signal(), Signal()
        o = self.o
        m.d.comb += [
            in_head.eq(left != 0),
            o.p.meta.eq(port),
            o.valid.eq(in_head | (body & (control | self.payload.valid))),
            self.payload.ready.eq(body & ~in_head & ~control & o.ready),
            o.p.last.eq(Mux(in_head, ~body & (left == 1), control | self.payload.p.last)),
            o.p.keep.eq(Cat(in_head | ~o.p.last | (tail >= k) for k in range(n))),
            load.eq(addressed.valid & (~(in_head | body) | (o.valid & o.ready & o.p.last))),
            addressed.ready.eq(load),
        ]
        with m.If(in_head):
            m.d.comb += o.p.data.eq(head[: 8 * n])
        with m.Elif(control):
            m.d.comb += o.p.data.eq(text)
        with m.Else():
            m.d.comb += o.p.data.eq(self.payload.p.data)
        with m.If(o.valid & o.ready):
            with m.If(in_head):
                m.d.sync += [left.eq(left - 1), head.eq(head >> 8 * n)]
            with m.If(o.p.last):
                m.d.sync += body.eq(0)
        with m.If(load):
            m.d.sync += [
                left.eq(n_head),
                head.eq(self._head(m, ready)),
                body.eq(ready.head.length != 0),
                control.eq(ready.head.op == Op.CONTROL),
                text.eq(ready.head.body),
                tail.eq(ready.head.length - 1),
                port.eq(ready.to.port),
            ]
        return m

    def _address(self, m):
        """Heads with the receiver's addresses and the IPv4 checksum, in four steps."""
        m.submodules.neighbors = table = memory.Memory(
            shape=self.neighbor, depth=N_NEIGHBORS, init=[]
        )
        write, read = table.write_port(), table.read_port(domain="comb")
        m.d.comb += [
            write.en.eq(self.write.enable),
            write.addr.eq(self.write.index),
            write.data.eq(self.write.neighbor),
            read.addr.eq(self.heads.p.neighbor),
        ]
        m.submodules.spray = spray = Spray(N_PATHS)
        fields = {"head": Head, "to": self.neighbor, "total": 16, "port": 16}
        found, founds = step(m, "found", self.heads, data.StructLayout(fields))
        m.d.comb += [
            found.head.eq(self.heads.p),
            found.to.eq(read.data),
            found.total.eq(self.heads.p.length + (HEAD_BYTES - IPV4.start)),
            found.port.eq(self.own.udp_port + Mux(self.round.spray, spray.paths.payload, 0)),
            spray.rule.eq(self.round.rule),
            spray.paths.ready.eq(self.heads.valid & self.heads.ready),
        ]
        summed, sums = step(m, "summed", founds, data.StructLayout(fields | {"sum": 20}))
        ip = self.own.ip
        known = Signal(20, reset_less=True)  # all but length, ToS and receiver
        m.d.sync += known.eq(CONSTANT + ip[:16] + ip[16:])
        to = founds.p.to.ip
        m.d.comb += [
            *(summed[name].eq(founds.p[name]) for name in fields),
            summed.sum.eq(known + founds.p.total + to[:16] + to[16:]),
        ]
        folded, folds = step(m, "folded", sums, data.StructLayout(fields | {"sum": 17}))
        m.d.comb += [
            *(folded[name].eq(sums.p[name]) for name in fields),
            folded.sum.eq(sums.p.sum[:16] + sums.p.sum[16:] + sums.p.head.tos),
        ]
        done, result = step(m, "done", folds, data.StructLayout(fields | {"checksum": 16}))
        m.d.comb += [
            *(done[name].eq(folds.p[name]) for name in fields),
            done.checksum.eq(~(folds.p.sum[:16] + folds.p.sum[16])),
        ]
        return result

    def _head(self, m, ready):
        """The 64 bytes, byte 0 lowest."""
        sent, to, round_ = ready.head, ready.to, self.round
        fields = {
            ETHERNET.destination: to.mac,
            ETHERNET.source: self.own.mac,
            ETHERNET.ethertype: ETHERTYPE_IPV4,
            IPV4.version: 4,
            IPV4.ihl: 5,
            IPV4.tos: sent.tos,
            IPV4.total_length: ready.total,
            IPV4.dont_fragment: 1,
            IPV4.ttl: TTL,
            IPV4.protocol: IP_PROTOCOL_UDP,
            IPV4.checksum: ready.checksum,
            IPV4.source: self.own.ip,
            IPV4.destination: to.ip,
            UDP.source_port: ready.port,
            UDP.destination_port: self.own.udp_port,
            UDP.length: ready.total - (UDP.start - IPV4.start),
            GRADNIC.ver: VERSION,
            GRADNIC.set: round_.gen[0],
            GRADNIC.job: round_.job,
            GRADNIC.src: self.own.node,
            GRADNIC.gen: round_.gen,
            GRADNIC.tensor: round_.tensor,
        }
        same = ("op", "ph", "imp", "last", "retx", "lc", "slot", "seq", "elems", "p0", "p1", "arg")
        fields |= {GRADNIC[name]: sent[name] for name in same}
        head = Signal(8 * HEAD_BYTES)
        for field, value in fields.items():
            m.d.comb += Cat(head[a:b] for a, b in field.slices).eq(value)
        return head
