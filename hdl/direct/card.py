"""The card of a direct network: scheduler, engine, memories and ports on the flit layer."""

from amaranth.hdl import Cat, Module, Mux, Signal
from amaranth.lib import data, memory, stream, wiring
from amaranth.lib.wiring import In, Out

from gradnic.interface.params import check_range
from gradnic.interface.schedule_table import Layout, bits

from ..primitive.block_ram import BlockRAM
from ..primitive.names import signals
from ..primitive.same import same
from ..primitive.zeroed_table import filled
from ..reduction.reduce import Op
from ..schedule.scheduler import Scheduler
from ..stream.fifo import FIFO
from .codec import FlitDecoder, Settings
from .engine import FlitEngine, Job
from .landing import Contributions, Landing, Places
from .link import Flit, FlitHead, FlitReceiver
from .port import FlitPort
from .slots import first_set, round_robin

N_JOBS = 8  # that wait for a port


def Peer(n_ports):
    """Shape of a peer's entry: the port it hangs on, and the route for the switches behind."""
    return data.StructLayout({"port": bits(n_ports - 1), "route": 16})


class FlitCard(wiring.Component):
    """Scheduler, engine, memories and ports of one node.

    Contributions land in memory at a place of their own, (chunk, rank), whatever their order of
    arrival; a row issues when all that it waits for has landed, and its sums are formed while they
    are sent. Landing memory has a place for every contribution of a round, so nothing can be in
    the way of anything else and `credits` per neighbor cover the link only. Each word of a
    contribution is written once and read once, own words are read once: with n_lanes >= 8 n_ports
    the memories keep up with all ports at 16 bytes per cycle while rows wait for up to two
    contributions on average; with n_lanes = 4 n_ports they keep up with receiving, and with
    sending rows of one contribution.

    Flits are taken while a round runs, so what comes for a later round waits in the neighbor.
    What comes of a round that was broken off waits likewise, and nothing tells it from the next
    one's: behind an abort or a fault only a reset of all cards goes on.

    Parameters
    ----------
    layout : gradnic.interface.schedule_table.Layout
    n_ports : int
        1 to 8.
    n_lanes : int
        Floats per word of memory: 8, 16 or 32; 4 n_ports at least.
    n_words : int
        Of gradient memory, and of landing memory: 2 to 16384.
    depth, n_chunks : int
        As of `Scheduler`.
    credits : int
        Flits of each landing buffer, here and at the neighbors.
    integers : bool
        False: FP32 sums only, ``op`` is not looked at.
    coded : bool
        INCEPTIONN on all links, each float one of FP32; the root of a tree keeps the codec's image.

    Members
    -------
    setup : In({scheduler, places, op, packets[, codec]})
        See `gradnic.hdl.schedule.row_reader.Setup`, `Places`, `Op`, `FlitTransmitter`,
        `gradnic.hdl.direct.codec.Settings`; stable while a round runs.
    start, abort, status : In(1), In(1), Out
        As of `Scheduler`. done : Out(1): the last round ended well, and all is written and sent;
        0 from the cycle behind ``start`` on.
    broken : Out(1)
        There was an abort or a fault: no start is taken until a reset.
    foreign, overflow : Out(1)
        A message named what this node does not have, or a coded unit is unsound; a neighbor sent
        without credit.
    table_en, table_addr, table_data : In
        Writes a row. entry_en, entry_addr, entry : a chunk's contributions. peer_en, peer_addr,
        peer : a peer. Not while a round runs.
    host_en, host_write, host_addr, host_data, host_read : In(1), In(1), In, In, Out
        Gradient memory, while no round runs; reads take 3 cycles.
    rx : array of In(stream.Signature(Flit)), n_ports
    rx_credit : Out(n_ports)
        One flit was taken out of the landing buffer.
    tx : array of Out(stream.Signature(Flit)), n_ports
    tx_credit : In(n_ports)
    """

    def __init__(
        self,
        layout: Layout,
        *,
        n_ports: int = 4,
        n_lanes: int = 32,
        n_words: int = 1024,
        depth: int = 512,
        n_chunks: int = 64,
        credits: int = 318,
        integers: bool = True,
        coded: bool = False,
    ) -> None:
        if n_lanes not in (8, 16, 32) or n_lanes < 4 * n_ports:
            raise ValueError(f"n_lanes must be 8, 16 or 32 and 4 n_ports at least, not {n_lanes!r}")
        check_range("n_words", n_words, 2, 16384)
        self.layout, self.n_ports, self.n_lanes = layout, n_ports, n_lanes
        self.n_words, self.n_chunks, self.credits = n_words, n_chunks, credits
        self.integers, self.coded = integers, coded
        self.scheduler = Scheduler(layout, depth=depth, n_chunks=n_chunks, n_ports=n_ports)
        members = self.scheduler.signature.members
        address, width = bits(n_words - 1), 32 * n_lanes
        flits = stream.Signature(Flit)
        setup = {
            "scheduler": members["setup"].shape,
            "places": Places(n_chunks, n_words),
            "op": Op,
            "packets": 1,
            **({"codec": Settings} if coded else {}),
        }
        super().__init__(
            {
                "setup": In(data.StructLayout(setup)),
                **{name: members[name] for name in ("start", "abort", "status")},
                **{name: members[f"table_{name[6:]}"] for name in ("table_en", "table_addr")},
                "table_data": members["table_data"],
                "entry_en": In(1),
                "entry_addr": In(bits(n_chunks - 1)),
                "entry": In(Contributions(n_words)),
                "peer_en": In(1),
                "peer_addr": In(layout.peer),
                "peer": In(Peer(n_ports)),
                "host_en": In(1),
                "host_write": In(1),
                "host_addr": In(address),
                "host_data": In(width),
                "host_read": Out(width),
                "done": Out(1),
                "broken": Out(1),
                "foreign": Out(1),
                "overflow": Out(1),
                "rx": In(stream.Signature(Flit)).array(n_ports),
                "rx_credit": Out(n_ports),
                "tx": Out(flits).array(n_ports),
                "tx_credit": In(n_ports),
            }
        )

    def elaborate(self, platform):
        m = Module()
        m.submodules.scheduler = scheduler = self.scheduler
        sizes = {"n_lanes": self.n_lanes, "n_chunks": self.n_chunks, "n_words": self.n_words}
        m.submodules.engine = engine = FlitEngine(
            self.layout,
            n_ports=self.n_ports,
            integers=self.integers,
            coded=self.coded,
            **sizes,
        )
        if self.coded:
            m.d.comb += engine.codec.eq(self.setup.codec)
        landings = [Landing(**sizes) for _ in range(self.n_ports)]
        waits = Signal()  # a start, until the round before is forgotten
        starts = Signal()
        with m.If(self.abort | (scheduler.status.fault != 0)):
            m.d.sync += self.broken.eq(1)
        m.d.comb += starts.eq((self.start | waits) & ~self.broken)
        m.d.sync += waits.eq(starts & ~engine.clear & ~self.abort)
        m.d.comb += [
            scheduler.setup.eq(self.setup.scheduler),
            scheduler.start.eq(starts & engine.clear),
            engine.running.eq(scheduler.status.running),
            *same(scheduler, self, "abort table_en table_addr table_data"),
            self.status.eq(scheduler.status),
            engine.op.eq(self.setup.op),
        ]
        for part in (engine, *landings):
            m.d.comb += [
                part.places.eq(self.setup.places),
                *same(part, self, "entry_en entry_addr entry"),
            ]
        wiring.connect(m, engine.released, scheduler.released)
        writes = self._receive(m, landings, engine, scheduler)
        self._remember(m, engine, writes)
        idle = self._send(m, engine, scheduler)
        m.d.sync += self.done.eq(
            scheduler.status.done & idle & ~(engine.busy.any() | self.start | waits | self.broken)
        )
        return m

    def _receive(self, m, landings, engine, scheduler):
        """Words from ports and terminal rows, one per cycle; events once a chunk is written."""
        sources = []
        foreign, overflow = [], []
        for k, landing in enumerate(landings):
            m.submodules[f"receiver{k}"] = receiver = FlitReceiver(self.credits)
            m.submodules[f"landing{k}"] = landing
            wiring.connect(m, wiring.flipped(self.rx[k]), receiver.flits)
            flits = receiver.o
            if self.coded:
                m.submodules[f"decoder{k}"] = decoder = FlitDecoder()
                m.d.comb += decoder.codec.eq(self.setup.codec)
                wiring.connect(m, flits, decoder.flits)
                flits = decoder.o
                foreign.append(decoder.unsound)
            wiring.connect(m, flits, landing.flits)
            m.d.comb += [
                landing.enable.eq(scheduler.status.running),
                self.rx_credit[k].eq(receiver.credit),
            ]
            foreign.append(landing.foreign)
            overflow.append(receiver.overflow)
            sources.append(landing.words)
        m.d.comb += [self.foreign.eq(Cat(foreign).any()), self.overflow.eq(Cat(overflow).any())]
        sources += [engine.results, engine.sums]
        grant = round_robin(m, Cat(s.valid for s in sources), 1, name="write")
        word = landings[0].words.p
        write = Signal(word.shape(), reset_less=True)
        valid = Signal()
        chosen = Signal(word.shape())
        for k, (got, source) in enumerate(zip(grant, sources, strict=True)):
            p = source.p
            landing, ends, rank = (0, p.first if source is engine.results else 0, 0)
            if k < self.n_ports:
                landing, ends, rank = p.landing, p.ends, p.rank
            with m.If(got):
                m.d.comb += [
                    source.ready.eq(1),
                    *same(chosen, p, "data address chunk"),
                    chosen.landing.eq(landing),
                    chosen.ends.eq(ends),
                    chosen.rank.eq(rank),
                ]
        # one word per cycle, so never events of both kinds at once: the scheduler takes each
        m.d.sync += [
            write.eq(chosen),
            valid.eq(grant.any()),
            scheduler.added.valid.eq(grant.any() & chosen.ends & chosen.landing),
            scheduler.added.p.eq(chosen.chunk),
            scheduler.finals.valid.eq(grant.any() & chosen.ends & ~chosen.landing),
            scheduler.finals.p.eq(chosen.chunk),
            engine.landed.valid.eq(valid & write.ends & write.landing),
            engine.landed.chunk.eq(write.chunk),
            engine.landed.rank.eq(write.rank),
        ]
        return valid, write

    def _remember(self, m, engine, writes):
        """Gradient memory, which the host shares, and landing memory."""
        valid, write = writes
        width = 32 * self.n_lanes
        m.submodules.own = own = BlockRAM(width, self.n_words)
        m.submodules.landed = landed = BlockRAM(width, self.n_words)
        m.d.comb += [
            own.write_en.eq((valid & ~write.landing) | (self.host_en & self.host_write)),
            own.write_addr.eq(Mux(self.host_en, self.host_addr, write.address)),
            own.write_data.eq(Mux(self.host_en, self.host_data, write.data)),
            own.read_addr.eq(Mux(self.host_en, self.host_addr, engine.own_address)),
            engine.own_data.eq(own.read_data),
            landed.write_en.eq(valid & write.landing),
            landed.write_addr.eq(write.address),
            landed.write_data.eq(write.data),
            landed.read_addr.eq(engine.landing_address),
            engine.landing_data.eq(landed.read_data),
        ]
        m.d.sync += self.host_read.eq(own.read_data)

    def _send(self, m, engine, scheduler):
        """Messages of rows become jobs of ports; words become flits. Returns that all is sent."""
        message = scheduler.issues
        held = Signal(scheduler.issues.p.shape(), reset_less=True)
        left = Signal(len(held.sends))  # sends that are not with their port yet
        rest = Signal.like(left)  # of them, without the first
        comes = Signal.like(left)  # of the message on offer
        terminal = Signal()
        m.d.comb += [
            rest.eq(left & ~first_set(left)),
            comes.eq(Mux(message.p.terminal, 0, Cat(s.valid for s in message.p.sends))),
        ]
        opening, following = self._first_peers(m, (comes, message.p.sends), (rest, held.sends))
        to_port = Signal(self.n_ports)  # the first of what is left
        route = Signal(Peer(self.n_ports)["route"].shape, reset_less=True)
        Order = data.StructLayout({"job": Job(self.layout, self.n_chunks), "head": FlitHead})
        order = Signal(Order)
        m.d.comb += [
            *same(order.job, held, "gather wait first"),
            order.job.count.eq(held.count + 1),
            *same(order.head, held, "gather flow step rank first"),
            order.head.count.eq(held.count + 1),
            order.head.route.eq(route),
        ]
        sizes = {"n_chunks": self.n_chunks, "n_words": self.n_words} if self.coded else None
        taken, closed = signals("taken closed")
        idles = []
        for k in range(self.n_ports):
            m.submodules[f"orders{k}"] = orders = FIFO(Order, N_JOBS, bypass=True)
            m.submodules[f"port{k}"] = port = FlitPort(engine.word, self.credits, codec=sizes)
            if self.coded:
                m.d.comb += [port.codec.eq(self.setup.codec), port.places.eq(self.setup.places)]
            m.d.comb += [
                orders.i.valid.eq(to_port[k]),
                orders.i.p.eq(order),
                port.packets.eq(self.setup.packets),
                port.heads.p.eq(orders.o.p.head),
                engine.jobs[k].p.eq(orders.o.p.job),
                # head and job go their ways together
                port.heads.valid.eq(orders.o.valid & engine.jobs[k].ready),
                engine.jobs[k].valid.eq(orders.o.valid & port.heads.ready),
                orders.o.ready.eq(engine.jobs[k].ready & port.heads.ready),
                port.credit.eq(self.tx_credit[k]),
            ]
            wiring.connect(m, engine.words[k], port.words)
            wiring.connect(m, port.flits, wiring.flipped(self.tx[k]))
            under_way = Signal(range(4 * N_JOBS), name=f"under_way{k}")
            enters = orders.i.valid & orders.i.ready
            m.d.sync += under_way.eq(under_way + enters - port.sent)
            idles.append((under_way == 0) & ~left.any())
            with m.If(enters):
                m.d.comb += taken.eq(1)
        m.submodules.terminals = terminals = FIFO(
            Job(self.layout, self.n_chunks), N_JOBS, bypass=True
        )
        wiring.connect(m, terminals.o, engine.jobs[self.n_ports])
        m.d.comb += [
            terminals.i.p.eq(order.job),
            terminals.i.valid.eq(terminal),
            closed.eq(~left.any() & ~terminal),
            message.ready.eq(closed | (taken & ~rest.any()) | (terminal & terminals.i.ready)),
        ]
        with m.If(taken):
            m.d.sync += [left.eq(rest), Cat(to_port, route).eq(following)]
        with m.If(terminal & terminals.i.ready):
            m.d.sync += terminal.eq(0)
        with m.If(message.valid & message.ready):
            m.d.sync += [
                held.eq(message.p),
                terminal.eq(message.p.terminal),
                left.eq(comes),
                Cat(to_port, route).eq(opening),
            ]
        m.d.sync += scheduler.idle.eq(Cat(idles))
        return Cat(idles).all()

    def _first_peers(self, m, *messages):
        """Port, one-hot, and route of the first of the sends that are marked, in each message."""
        m.submodules.peers = peers = memory.Memory(
            shape=Peer(self.n_ports),
            depth=2**self.layout.peer,
            init=[],
            attrs={"ram_style": "distributed"},
        )
        first_read = filled(m, peers, self.peer_en, self.peer_addr, self.peer)
        second_read = peers.read_port(domain="comb")
        reads = first_read, second_read
        result = []
        for (marked, sends), read in zip(messages, reads, strict=True):
            for one, send in zip(first_set(marked), sends, strict=True):
                with m.If(one):
                    m.d.comb += read.addr.eq(send.peer)
            ports = [marked.any() & (read.data.port == k) for k in range(self.n_ports)]
            result.append(Cat(*ports, read.data.route))
        return result
