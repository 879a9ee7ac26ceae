"""Reads the head of each frame of ours: is it sound, and does it come from a neighbor."""

from types import SimpleNamespace

from amaranth.hdl import Cat, Module, Mux, Signal, Value
from amaranth.lib import data, memory, stream, wiring
from amaranth.lib.wiring import In, Out
from amaranth.utils import ceil_log2

from ..formats import (
    ETHERNET,
    GRADNIC,
    HEAD_BYTES,
    IP_PROTOCOL_UDP,
    IPV4,
    UDP,
    VERSION,
    Op,
)
from ..inline import Fate
from ..offload import Drop
from .fifo import FIFO
from .offload_types import N_NEIGHBORS, Head, Neighbor, NeighborWrite, Round
from .parser import FrameClass
from .pipeline import delayed, delayed_flag
from .streams import FrameBeat

QUEUE_BEATS = 32
RAW_HEAD = HEAD_BYTES - UDP.start  # UDP and gradnic header
DEPTH = 6  # stages


def least_beats(n_bytes):
    """Beats of the shortest frame that `gradnic.hdl.aggregator_intake.Intake` takes for ours, or
    fewer: it has a JOB."""
    return 2 if n_bytes < GRADNIC.job.stop else 1


def Facts():
    """What the head says of a frame.

    check : what `FrameCheck` needs; its fate is LENGTH or CHECKSUM where the head shows it.
    drop : FORMAT, OWNER or NONE, where nothing else is wrong.
    head : without ``body``. ready, stale : as of `Arrival`.
    """
    return data.StructLayout(
        {"check": FrameClass(), "drop": 4, "head": Head, "ready": 1, "stale": 1}
    )


class PacketParser(wiring.Component):
    """Reads the heads of our frames: the beats come out behind the facts of their frame.

    Full rate. Facts are offered 8 cycles after the frame's 64th byte, or its last, came in; until
    then the beats wait in a queue.

    Parameters
    ----------
    n_bytes, n_ports : int
        Bytes of a beat, 16, 32 or 64; ports of the card.

    Members
    -------
    i : In(stream.Signature(FrameBeat(n_bytes, meta_width=...)))
        Frames long enough for a JOB. ``meta`` is the port.
    beats : Out(stream.Signature(FrameBeat(n_bytes)))
    facts : Out(stream.Signature(Facts()))
    round : In(Round)
    write : In(NeighborWrite(n_ports))
    """

    def __init__(self, n_bytes, n_ports):
        self.n_bytes, self.n_ports = n_bytes, n_ports
        self.neighbor = Neighbor(n_ports)
        self.shape = FrameBeat(n_bytes, meta_width=self.neighbor["port"].width)
        super().__init__(
            {
                "i": In(stream.Signature(self.shape)),
                "beats": Out(stream.Signature(FrameBeat(n_bytes))),
                "facts": Out(stream.Signature(Facts())),
                "round": In(Round),
                "write": In(NeighborWrite(n_ports)),
            }
        )

    def elaborate(self, platform):
        m = Module()
        n = self.n_bytes
        m.submodules.queue = queue = FIFO(FrameBeat(n), QUEUE_BEATS)
        # Never fills: no more frames are in the queue, its output and the pipeline.
        m.submodules.facts = facts = FIFO(
            Facts(), 2 * QUEUE_BEATS // least_beats(n), never_full=True
        )
        wiring.connect(m, queue.o, wiring.flipped(self.beats))
        wiring.connect(m, facts.o, wiring.flipped(self.facts))
        m.d.comb += [
            queue.i.valid.eq(self.i.valid),
            self.i.ready.eq(queue.i.ready),
            *(queue.i.p[name].eq(self.i.p[name]) for name in ("data", "keep", "last", "bad")),
        ]
        n_beats = HEAD_BYTES // n
        head = Signal(8 * HEAD_BYTES, reset_less=True)
        port = Signal(len(self.i.p.meta), reset_less=True)
        index = Signal(range(n_beats + 1))
        take, complete, whole = Signal(), Signal(), Signal(reset_less=True)
        m.d.comb += [
            take.eq(self.i.valid & self.i.ready),
            complete.eq(take & ((index == n_beats - 1) | (self.i.p.last & (index != n_beats)))),
        ]
        with m.If(take):
            m.d.sync += [
                whole.eq((index == n_beats - 1) & (self.i.p.keep[n - 1] | ~self.i.p.last)),
                port.eq(self.i.p.meta),
            ]
            with m.If(self.i.p.last):
                m.d.sync += index.eq(0)
            with m.Elif(index != n_beats):
                m.d.sync += index.eq(index + 1)
            for k in range(n_beats):
                with m.If(index == k):
                    m.d.sync += head[8 * n * k : 8 * n * (k + 1)].eq(self.i.p.data)
        m.d.comb += [
            facts.i.valid.eq(delayed_flag(m, complete, DEPTH + 1, name="valid")),
            facts.i.p.eq(self._judge(m, head, port, whole)),
        ]
        return m

    def _judge(self, m, head, port, whole):
        """Facts, `DEPTH` cycles after the head was complete."""
        round_ = self.round

        def field(field):
            return Cat(head[a:b] for a, b in field.slices)

        def word(byte):
            return Cat(head[8 * byte + 8 : 8 * byte + 16], head[8 * byte : 8 * byte + 8])

        def stage(number, **values):
            held = {}
            for name, value in values.items():
                shape = value.shape() if hasattr(value, "shape") else Value.cast(value).shape()
                held[name] = Signal(shape, name=f"{name}_{number}", reset_less=True)
                m.d.sync += held[name].eq(value)
            return SimpleNamespace(**held)

        op, udp, src = field(GRADNIC.op), field(UDP.length), field(GRADNIC.src)
        nodes, neighbors = self._neighbors(m)
        entry = Signal(Head)
        same = ("op", "ph", "imp", "last", "retx", "lc", "slot", "seq", "elems", "p0", "p1", "arg")
        m.d.comb += [
            *(entry[name].eq(field(GRADNIC[name])) for name in same),
            entry.tos.eq(field(IPV4.tos)),
            entry.length.eq(udp - RAW_HEAD),
        ]
        one = stage(
            1,
            entry=entry,
            known_node=Cat((src == node) & valid for node, valid in nodes),
            port=port,
            mac=field(ETHERNET.source),
            ip=field(IPV4.source),
            version=field(GRADNIC.ver) == VERSION,
            known=Cat(op == int(known) for known in Op).any(),
            same_set=field(GRADNIC.set) == field(GRADNIC.gen)[0],
            same_tensor=field(GRADNIC.tensor) == round_.tensor,
            same_gen=field(GRADNIC.gen) == round_.gen,
            older=~(round_.last_gen - field(GRADNIC.gen))[15],
            whole=whole & (udp >= RAW_HEAD),
            agree=udp + (UDP.start - IPV4.start) == field(IPV4.total_length),
            udp=udp,
            source=word(IPV4.source.byte) + word(IPV4.source.byte + 2),
            destination=word(IPV4.destination.byte) + word(IPV4.destination.byte + 2),
            rest=word(IPV4.identification.byte) + word(IPV4.reserved.byte),
            hops=word(IPV4.ttl.byte) + field(IPV4.checksum),
            sized=word(IPV4.start) + field(IPV4.total_length),
            unsummed=field(UDP.checksum) == 0,
        )
        index = Cat(
            Cat(one.known_node[k] for k in range(N_NEIGHBORS) if k >> bit & 1).any()
            for bit in range(ceil_log2(N_NEIGHBORS))
        )
        two = stage(
            2,
            neighbor=index,
            found=one.known_node.any(),
            addresses=one.source + one.destination,
            rest=one.rest + one.hops,
            sized=one.sized,
            pseudo=one.udp + IP_PROTOCOL_UDP,
            end=one.udp + UDP.start,
            sound=one.version & one.known & one.same_set,
            fits=one.whole & one.agree,
            ready=round_.armed & one.same_tensor & one.same_gen,
            stale=one.same_tensor & one.older & round_.over,
        )
        m.d.comb += neighbors.addr.eq(two.neighbor)
        three = stage(
            3,
            neighbor=neighbors.data,
            header_sum=two.addresses + two.rest + two.sized,
            pseudo=two.addresses + two.pseudo,
        )
        mac, ip, at = (delayed(m, getattr(one, name), 2) for name in ("mac", "ip", "port"))
        four = stage(
            4,
            from_mac=three.neighbor.mac == mac,
            from_ip=three.neighbor.ip == ip,
            from_port=three.neighbor.port == at,
            folded=three.header_sum[:16] + three.header_sum[16:],
        )
        found, sound, fits = (
            delayed(m, getattr(two, name), 2) for name in ("found", "sound", "fits")
        )
        five = stage(
            5,
            owner=found & four.from_mac & four.from_ip & four.from_port,
            folded=four.folded[:16] + four.folded[16],
            sound=sound,
            fits=fits,
        )
        result = Signal(Facts(), reset_less=True)
        m.d.sync += [
            result.head.eq(delayed(m, one.entry, 4, name="entry")),
            result.head.neighbor.eq(delayed(m, two.neighbor, 3, name="neighbor")),
            result.ready.eq(delayed(m, two.ready, 3, name="ready")),
            result.stale.eq(delayed(m, two.stale, 3, name="stale")),
            result.drop.eq(Mux(five.sound, Mux(five.owner, Drop.NONE, Drop.OWNER), Drop.FORMAT)),
            result.check.ours.eq(1),
            result.check.fate.eq(
                Mux(
                    five.fits,
                    Mux(five.folded == 0xFFFF, Fate.CODED, Fate.CHECKSUM),
                    Fate.LENGTH,
                )
            ),
            result.check.end.eq(delayed(m, two.end, 3, name="end")),
            result.check.pseudo.eq(delayed(m, three.pseudo, 2, name="pseudo")),
            result.check.unsummed.eq(delayed(m, one.unsummed, 4, name="unsummed")),
        ]
        return result

    def _neighbors(self, m):
        """Registers (node, valid) of all neighbors, and a port to read one of them."""
        nodes = [(Signal(8, name=f"node{k}"), Signal(name=f"valid{k}")) for k in range(N_NEIGHBORS)]
        m.submodules.neighbors = table = memory.Memory(
            shape=self.neighbor, depth=N_NEIGHBORS, init=[]
        )
        write, read = table.write_port(), table.read_port(domain="comb")
        m.d.comb += [
            write.en.eq(self.write.enable),
            write.addr.eq(self.write.index),
            write.data.eq(self.write.neighbor),
        ]
        for k, (node, valid) in enumerate(nodes):
            with m.If(self.write.enable & (self.write.index == k)):
                m.d.sync += [
                    node.eq(self.write.neighbor.node),
                    valid.eq(self.write.neighbor.valid),
                ]
        return nodes, read
