"""Offload card on Ethernet: runs a schedule table by itself, over a network that loses packets.

Part of `gradnic.hdl.offload.card`, whose golden model it follows.
"""

from amaranth.hdl import Module, Signal
from amaranth.lib import wiring

from gradnic.interface.offload import Drop
from gradnic.interface.params import check_queues, check_range
from gradnic.interface.schedule_table import Layout

from ..primitive.names import signals
from ..primitive.same import join, same
from ..schedule.scheduler import Scheduler
from ..stream.beats import Beat
from ..stream.block_fifo import BlockFIFO
from ..stream.delays import step
from ..stream.fifo import FIFO
from ..stream.slice import Slice
from ..transport.locator import Located, Locator
from ..transport.receiver import Receiver
from ..transport.records import CHUNK_WIDTH, RUN
from ..transport.sender import Sender
from .core_ports import core_members
from .gate import PacketGate
from .memory_side import MemorySide, memory_ports
from .packet_decoder import PacketDecoder
from .packet_maker import PacketMaker
from .way_in import WayIn
from .way_out import PORT_FRAMES, WayOut

N_LOCATED = 16  # packets whose place is found while the receiver answers a PROBE
DECISION_BEATS = 512  # that come in while packets before them, or a PROBE of 64, are decided on


class OffloadCore(wiring.Component):
    """The card without its registers: scheduler, transport, codec, memory engines, ports.

    One packet at a time passes each stage, so all ports together send and receive one beat per
    cycle. What a packet adds up is read while it is made: partial sums are never stored, and a
    packet that is sent again is made again from the gradient and the landing areas, which must
    not change until the round is ``done``. Frames that are not ours pass between ``host`` and
    ``mac`` streams, and leave before packets of the card.

    Parameters
    ----------
    n_bytes, n_ports : int
        Bytes of a beat, 16, 32, 64 or 128; Ethernet ports, 1 to 8. With 128 chunks and packets are
        multiples of 32 elements.
    port_bytes : int or None
        Bytes of a beat at each port, a power of two from 4 to `n_bytes`; None: `n_bytes`. With
        ``n_bytes // n_ports`` all ports run at their line both ways at once.
    layout, depth : gradnic.interface.schedule_table.Layout, int
        Of the schedule table: see `Scheduler`.
    n_chunks, n_packets, n_ranks : int
        See `Receiver`.
    max_elems : int
        Of a packet, at most.
    address_width : int
        Bits of a byte address of memory.
    meta_width, rx_meta_width : int, int or None
        Side band of what the host sends, and of what it receives (None: the same); frames that
        are not ours keep it, and it is 0 with frames of the card.
    thc, inc : bool
        False leaves out what only rounds of norms and THC need, or coded ones; none of those may be
        armed.
    bf16 : bool
        False leaves out BF16, in memory and on the wire. True: so are `Round.bf16` and
        ``Round.codec.bf16``; with either, chunks and packets are multiples of 32 elements.
    scale : bool
        False leaves out means: ``Round.codec.mean``. Not with `thc`.
    n_tables : int
        See `Scheduler`.
    gives_up : bool
        False leaves out what counts allowances of `gradnic.hdl.offload.job_core`.
    wide, maxima, bits : bool, bool, int
        See `PacketMaker`.
    queues : int
        0, or 8 egress queues at each port: see `PortExit`. With them ``queue_write``,
        ``queue_shown`` and ``queue_count``.

    Members
    -------
    host_tx, mac_rx : In(frames).array(n_ports)
    mac_tx, host_rx : Out(frames).array(n_ports)
    gradient_read, landing_read : Out(ReadPort); gradient_write, landing_write : Out(WritePort)
        The gradient port reads gradients and writes results; landings have a port of their own.
    own, round : In; must not change while ``round.armed``
    start, abort : In(1)
        Strobes. ``start`` begins a round once `clearing` is 0; ``clear`` forgets the one before.
    setup, status, starting : In, Out, Out
        Of the scheduler.
    clear, clearing, drained : In(1), Out(1), Out(1)
        See `Receiver` and `Sender`.
    finished : Out(1)
        The result is complete, and all neighbors have what they need from here.
    regions : In(ArrayLayout(Region, 3))
        Gradient, result, landing areas. area : beats of one of those.
    peers : In; neighbor of each peer index of the table
    pace : In(PaceRules), of all packets and PROBEs together; see `Pace`
    tag_write : In(TagWrite), the tagger's tables
    floor : In(8), own beats for 256 foreign ones where both wait; see `FrameArbiter`
    table_en, table_addr, table_data; place_en, place_addr, place_data : In
    check, neighbor, allowance : In
        Tables to be written while no round is armed.
    dropped, answered, responses, refused, failed, sent, retransmitted, probes, given_up : Out
        One pulse each: see `Drop`, the receiver, the memory engines, and the sender.
    crossed, oversize, overrun : Out(n_ports)
        One pulse each: see `Intake`.
    """

    roots = False  # terminal rows have memory ports of their own
    passes = False  # gradients become norms, indices and floats here
    shared = False  # sums are made in lanes that others use, too, and others code and decode
    counts_share = False  # allowances come of a job's share, not of the host
    feedback = False  # and what is lost on the way is kept

    def __init__(
        self,
        n_bytes: int,
        n_ports: int,
        layout: Layout,
        *,
        depth: int = 128,
        n_chunks: int = 64,
        n_packets: int = 1024,
        n_ranks: int = 4,
        max_elems: int = 352,
        address_width: int = 32,
        meta_width: int = 0,
        rx_meta_width: int | None = None,
        thc: bool = True,
        inc: bool = True,
        bf16: bool = False,
        scale: bool = False,
        port_bytes: int | None = None,
        n_tables: int = 1,
        gives_up: bool = False,
        wide: bool = False,
        maxima: bool = False,
        bits: int = 4,
        queues: int = 0,
    ) -> None:
        port_bytes = n_bytes if port_bytes is None else port_bytes
        if not 4 <= port_bytes <= n_bytes or port_bytes & (port_bytes - 1):
            raise ValueError(
                f"port_bytes must be a power of two from 4 to {n_bytes}, not {port_bytes!r}"
            )
        self.port_bytes = port_bytes
        self.narrow = port_bytes < n_bytes
        check_range("n_ports", n_ports, 1, 8)
        self.n_bytes, self.n_ports, self.n_ranks = n_bytes, n_ports, n_ranks
        self.max_elems, self.address_width = max_elems, address_width
        self.n_packets, self.thc, self.inc, self.bf16 = n_packets, thc, inc, bf16
        self.scale, self.gives_up, self.wide = scale, gives_up, wide
        self.maxima, self.bits, self.queues = maxima, bits, queues
        check_queues(queues)
        self.n_chunks, self.n_tables = n_chunks, n_tables
        self._make(layout, depth)
        self.meta_width = meta_width
        self.rx_meta_width = meta_width if rx_meta_width is None else rx_meta_width
        self.layout, self.depth = layout, depth
        super().__init__(self._members())

    def _make(self, layout, depth):
        self.scheduler = Scheduler(
            layout, depth=depth, n_chunks=self.n_chunks, n_ports=self.n_ports,
            n_tables=self.n_tables,
        )  # fmt: skip
        self.sender = Sender(
            self.scheduler.issues.p.shape(), 2**layout.peer, n_packets=self.n_packets,
            longest=PORT_FRAMES if self.narrow else RUN,
        )  # fmt: skip
        self.receiver = Receiver(
            self.n_bytes, n_ranks=self.n_ranks, n_chunks=self.n_chunks, n_packets=self.n_packets,
            thc=self.thc, n_tables=self.n_tables, roots=self.roots,
            counts_share=self.counts_share and self.gives_up, bits=self.bits,
        )  # fmt: skip

    def _members(self):
        return core_members(self)

    def elaborate(self, platform):
        m = Module()
        m.submodules.scheduler = scheduler = self.scheduler
        m.submodules.sender = sender = self.sender
        m.submodules.receiver = receiver = self.receiver
        m.submodules.maker = maker = PacketMaker(
            self.n_bytes, n_ranks=self.n_ranks, max_elems=self.max_elems, thc=self.thc,
            inc=self.inc, bf16=self.bf16, scale=self.scale, roots=self.roots, wide=self.wide,
            maxima=self.maxima, bits=self.bits, shared=self.shared,
        )  # fmt: skip
        if self.shared:
            wiring.connect(m, maker.adder, wiring.flipped(self.adder))
        tables = ["place_en", "place_addr", "place_data", "check"]
        tables += ["share", "last_elems"] if self.receiver.counts_share else ["allowance"]
        m.d.comb += [
            receiver.round.eq(self.round),
            sender.round.eq(self.round),
            maker.round.eq(self.round),
            maker.tag_write.eq(self.tag_write),
            *([maker.level_write.eq(self.level_write)] if self.bits > 4 else []),
            *same(scheduler, self, "setup start abort table_en table_addr table_data"),
            *same(self, scheduler, "status starting"),
            scheduler.idle.eq(sender.drained.replicate(self.n_ports)),
            sender.peers.eq(self.peers),
            *same(receiver, self, ("clear", "area", *tables)),
            receiver.n_clear.eq(self._n_clear()),
            self.clearing.eq(receiver.clearing),
            self.drained.eq(sender.drained),
            self.finished.eq(scheduler.status.done & sender.drained),
            maker.area.eq(self.area),
            sender.weighed.eq(maker.weighed),
            receiver.ask.eq(maker.ask),
            maker.answer.eq(receiver.answer),
            *same(self, sender, "sent retransmitted probes"),
            *same(self, receiver, "answered responses given_up given_up_packet"),
        ]
        wiring.connect(m, scheduler.issues, sender.messages)
        m.d.comb += [  # a round may start while what was known of the one before is forgotten
            maker.packets.p.eq(sender.packets.p),
            maker.packets.valid.eq(sender.packets.valid & ~receiver.clearing),
            sender.packets.ready.eq(maker.packets.ready & ~receiver.clearing),
        ]
        wiring.connect(m, receiver.controls, sender.controls)
        m.submodules.terminals = terminals = Slice(maker.own.p.shape(), half_rate=True)
        wiring.connect(m, maker.own, terminals.i)
        wiring.connect(m, terminals.o, receiver.own)
        gone, released = step(m, "released", sender.released, CHUNK_WIDTH)
        m.d.comb += gone.eq(sender.released.payload)
        for sink, events in (
            (scheduler.added, receiver.added),
            (scheduler.finals, receiver.finals),
            (scheduler.released, released),
        ):
            m.d.comb += [
                sink.payload.eq(events.payload),
                sink.valid.eq(events.valid),
                events.ready.eq(sink.ready),
            ]
        arriving, strays = self._receive(m, receiver)
        failed = self._memory(m, maker, receiver, arriving)
        astray, was_astray = signals("astray was_astray")
        m.d.comb += [
            astray.eq(strays | maker.astray),
            self.failed.eq(failed | (astray & ~was_astray)),
        ]
        m.d.sync += was_astray.eq(astray)
        self._transmit(m, maker, receiver, sender)
        return m

    def _n_clear(self):
        """Packet numbers that the receiver forgets."""
        return max(self.n_packets, self.n_chunks)

    def _receive(self, m, receiver):
        """Ports to receiver: the stream of floats of the data packets, and a flag: a queue on their
        way is astray.
        """
        n, round_ = self.n_bytes, self.round
        gate = self._front(m)
        m.submodules.decoder = decoder = PacketDecoder(
            n, max_elems=self.max_elems, inc=self.inc, bf16=self.bf16, bits=self.bits,
            shared=self.shared,
        )  # fmt: skip
        m.submodules.locator = locator = Locator()
        m.d.comb += [decoder.round.eq(round_), locator.geometry.eq(round_.geometry)]
        wiring.connect(m, gate.heads, decoder.heads)
        wiring.connect(m, gate.values, decoder.values)
        strays = self._track(m, receiver, decoder, locator, gate.dropped)
        m.submodules.waiting = waiting = BlockFIFO(Beat(8 * n), DECISION_BEATS, stops=True)
        wiring.connect(m, decoder.floats, waiting.i)
        return waiting.o, strays

    def _gate(self):
        return PacketGate(self.n_bytes, self.n_ports)

    def with_renewal(self, part):
        """A part that all rounds share."""
        return part

    def _join(self, m, way, *names):
        """Streams of all ports."""
        join(m, way, self, names)

    def _front(self, m):
        """Ports to the gate, which offers the packets of neighbors."""
        n, round_ = self.n_bytes, self.round
        gate = self._gate()
        m.submodules.gate = self.with_renewal(gate)
        m.d.comb += [gate.round.eq(round_), gate.write.eq(self.neighbor)]
        way = WayIn(n, self.n_ports, self.port_bytes, meta_width=self.rx_meta_width)
        m.submodules.way_in = self.with_renewal(way)
        self._join(m, way, "mac_rx", "host_rx")
        wiring.connect(m, way.o, gate.i)
        m.d.comb += [
            way.own.eq(self.own),
            way.job.eq(round_.job),
            way.neighbor.eq(self.neighbor),
            *same(self, way, "crossed oversize overrun"),
        ]
        return gate

    def _track(self, m, receiver, decoder, locator, dropped):
        """Packets that came to `receiver`, and what became of them; `dropped` ones never do.
        Returns a flag: a queue is astray.
        """
        wiring.connect(m, decoder.arrivals, locator.i)
        m.submodules.located = located = FIFO(Located, N_LOCATED, watched=True)
        wiring.connect(m, locator.o, located.i)
        wiring.connect(m, located.o, receiver.arrivals)
        wiring.connect(m, decoder.verdicts, receiver.verdicts)
        both = Signal()  # tell of LENGTH, in one cycle: the second is told a cycle late
        m.d.sync += both.eq(receiver.dropped[Drop.LENGTH] & dropped[Drop.LENGTH])
        m.d.comb += self.dropped.eq(receiver.dropped | dropped | both << Drop.LENGTH)
        return decoder.astray | located.astray

    def _memory(self, m, maker, receiver, arriving):
        """What packets are made of, and what is written; returns the flags of what memory fails."""
        m.submodules.memory = side = MemorySide(
            self.n_bytes, self.address_width, roots=self.roots, bf16=self.bf16
        )
        for source, sink in (
            (maker.reads, side.reads),
            (maker.landings, side.landed),
            (maker.terminal_values, side.terminal_values),
            (receiver.destinations, side.destinations),
            (receiver.landings, side.landings),
            (receiver.results, side.results),
            (receiver.roots, side.roots) if self.roots else (receiver.sources, side.sources),
        ):
            wiring.connect(m, source, sink)
        wiring.connect(m, arriving, side.arriving)
        wiring.connect(m, side.values, maker.values)
        wiring.connect(m, side.contributions, maker.contributions)
        join(m, side, self, memory_ports(self.n_bytes, self.address_width, roots=self.roots))
        m.d.comb += [
            side.regions.eq(self.regions),
            *([side.halves.eq(self.round.bf16)] if self.bf16 else []),
            receiver.stored.eq(side.result_done),
            receiver.landed.eq(side.landing_done),
            *([receiver.rooted.eq(side.root_done)] if self.roots else []),
            self.refused.eq(side.refused),
        ]
        return side.failed

    def _transmit(self, m, maker, receiver, sender):
        """Heads and payloads to frames, frames to their ports, behind the host's."""
        way = WayOut(
            self.n_bytes, self.n_ports, self.port_bytes, max_elems=self.max_elems,
            meta_width=self.meta_width, queues=self.queues,
        )  # fmt: skip
        m.submodules.way_out = self.with_renewal(way)
        self._join(m, way, "host_tx", "mac_tx")
        wiring.connect(m, maker.heads, way.heads)
        wiring.connect(m, maker.payload, way.payload)
        wiring.connect(m, receiver.replies, way.replies)
        m.d.comb += [
            *same(way, self, "own round neighbor pace floor"),
            way.echoed.eq(sender.echoed),
            way.echo.eq(sender.echo),
            way.path_mark.eq(receiver.path_mark),
        ]
        if self.queues:
            m.d.comb += [
                way.queue_write.eq(self.queue_write),
                way.queue_shown.eq(self.queue_shown),
                self.queue_count.eq(way.queue_count),
            ]
