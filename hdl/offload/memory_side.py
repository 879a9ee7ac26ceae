"""Memory engines of a card: what packets are made of, and where what arrives is written.

Plumbing: no golden model of its own.
"""

from amaranth.hdl import Cat, Module, Mux, Signal
from amaranth.lib import data, stream, wiring
from amaranth.lib.wiring import In, Out

from ..axi.axi4 import ReadPort, WritePort
from ..axi.bursts import Range, Region
from ..axi.dma import ReadEngine, WriteEngine
from ..primitive.names import signals
from ..primitive.parity import uneven
from ..stream.beats import Beat
from ..stream.fifo import FIFO
from ..transport.records import Destination
from .bf16 import Narrow, Widen, halved
from .own_reader import OwnReader

N_RANGES = 16  # of BF16, that were asked for and have beats to come
RESIDUALS = ["added_read", "kept_read", "kept_write"]  # of the pass for norms, for indices


class Steering(data.Struct):
    """Where the packet that arrives goes; `busy` with one of them, so that all four are even."""

    busy: 1
    landing: 1
    result: 1
    none: 1


def memory_ports(n_bytes, address_width, *, roots=False, passes=False, feedback=False):
    """Members: the memory ports of a card. passes : those of THC; feedback : of its residuals."""
    read, write = ReadPort(n_bytes, address_width), WritePort(n_bytes, address_width)
    names = [
        "gradient",
        "landing",
        *(["root"] if roots else []),
        *(["norm", "encode", "decode"] if passes else []),
    ]
    ports = [f"{name}_{way}" for name in names for way in ("read", "write")]
    ports += RESIDUALS if passes and feedback else []
    return {name: Out(read if name.endswith("read") else write) for name in ports}


class MemorySide(wiring.Component):
    """1 beat per cycle in each stream, and at each port.

    Parameters
    ----------
    n_bytes, address_width : int
        As of `ReadEngine`.
    roots : bool
        Terminal rows have ports of their own: what leaves and what arrives is never behind them.

    bf16 : bool
        False: gradient and result are float32.

    Members
    -------
    halves : In(1)
        With bf16: gradient and result are BF16 in memory; all streams here are float32.
    regions : In(ArrayLayout(Region, 3))
        Gradient, result, landing areas.
    reads, values : as of `PacketMaker`
    landed, contributions : as its ``landings`` and ``contributions``
    terminal_values : In(stream.Signature(Beat(8 * n_bytes)))
        Values of terminal rows.
    arriving : In(stream.Signature(Beat(8 * n_bytes)))
        Values of packets.
    destinations, landings, results, sources : as of `Receiver`
        With roots, ``roots`` for ``sources``.
    landing_done, result_done : Out(1)
        One pulse per range that is in memory; with roots, root_done, too.
    refused, failed : Out(4)
        One pulse each, of reads of its own, reads of landings, writes of results, of landings.
    gradient_read, landing_read : Out(ReadPort); gradient_write, landing_write : Out(WritePort)
        With roots, root_read and root_write, too.
    """

    def __init__(
        self, n_bytes: int, address_width: int = 64, *, roots: bool = False, bf16: bool = False
    ) -> None:
        self.n_bytes, self.address_width, self.with_roots = n_bytes, address_width, roots
        self.bf16 = bf16
        self.steering = Signal(Steering)
        beats, ranges = stream.Signature(Beat(8 * n_bytes)), stream.Signature(Range())
        more = {"root_done": Out(1), "roots": In(ranges)} if roots else {}
        halves = {"halves": In(1)} if bf16 else {}
        super().__init__(
            {
                "regions": In(data.ArrayLayout(Region(n_bytes, address_width), 3)),
                "reads": In(stream.Signature(Range(2 + roots))),
                "values": Out(beats),
                "landed": In(ranges),
                "contributions": Out(beats),
                "terminal_values": In(beats),
                "arriving": In(beats),
                "destinations": In(stream.Signature(Destination)),
                "landings": In(ranges),
                "results": In(ranges),
                "landing_done": Out(1),
                "result_done": Out(1),
                "refused": Out(4),
                "failed": Out(4),
                **halves,
                **(more or {"sources": In(stream.Signature(1))}),
                **memory_ports(n_bytes, address_width, roots=roots),
            }
        )

    def elaborate(self, platform):
        m = Module()
        n, width = self.n_bytes, self.address_width
        own = OwnReader(n, width) if self.with_roots else ReadEngine(n, width, n_regions=2)
        m.submodules.own_reader = own
        m.submodules.landing_reader = landed = ReadEngine(n, width)
        m.submodules.result_writer = results = WriteEngine(n, width, ends=True)
        m.submodules.landing_writer = landings = WriteEngine(n, width, ends=True)
        gradient, result, landing = self.regions
        writers = [results, landings]
        for inner, outer in (
            (landed.ranges, self.landed),
            (landings.ranges, self.landings),
        ):
            wiring.connect(m, wiring.flipped(outer), inner)
        for inner, outer in (
            (landed.beats, self.contributions),
            (own.port, self.gradient_read),
            (landed.port, self.landing_read),
            (results.port, self.gradient_write),
            (landings.port, self.landing_write),
        ):
            wiring.connect(m, inner, wiring.flipped(outer))
        if self.with_roots:
            m.submodules.root_writer = roots = WriteEngine(n, width, ends=True)
            wiring.connect(m, own.root_port, wiring.flipped(self.root_read))
            wiring.connect(m, roots.port, wiring.flipped(self.root_write))
            stays = self._written(m, "root", roots, self.roots)
            m.d.comb += [
                roots.regions[0].eq(result),
                self.root_done.eq(roots.done),
                stays.p.data.eq(self.terminal_values.p.data),
                stays.valid.eq(self.terminal_values.valid),
                self.terminal_values.ready.eq(stays.ready),
                stays.p.last.eq(self.terminal_values.p.last),
            ]
        refused = [engine.refused for engine in writers]
        failed = [engine.done & ~engine.stored & ~engine.refused for engine in writers]
        if self.with_roots:
            refused[0] = refused[0] | roots.refused
            failed[0] = failed[0] | (roots.done & ~roots.stored & ~roots.refused)
        m.d.comb += [
            own.regions[0].eq(gradient),
            own.regions[1].eq(result),
            landed.regions[0].eq(landing),
            results.regions[0].eq(result),
            landings.regions[0].eq(landing),
            self.result_done.eq(results.done),
            self.landing_done.eq(landings.done),
            self.refused.eq(Cat(own.refused, landed.refused, *refused)),
            self.failed.eq(Cat(own.failed, landed.failed, *failed)),
        ]
        self._read(m, own)
        self._steer(m, self._written(m, "result", results, self.results), landings.beats)
        return m

    def _read(self, m, own):
        """Gradients and results as float32."""
        if not self.bf16:
            wiring.connect(m, wiring.flipped(self.reads), own.ranges)
            wiring.connect(m, own.beats, wiring.flipped(self.values))
            return
        m.submodules.widen = widen = Widen(self.n_bytes)
        m.submodules.odd = odd = FIFO(1, N_RANGES)
        ranges = stream.Signature(own.ranges.p.shape()).create(path=("halved",))
        halved(m, self.reads, ranges, self.halves)
        m.d.comb += [
            widen.on.eq(self.halves),
            own.ranges.p.eq(ranges.p),
            own.ranges.valid.eq(ranges.valid & odd.i.ready),
            ranges.ready.eq(own.ranges.ready & odd.i.ready),
            odd.i.valid.eq(ranges.valid & own.ranges.ready & self.halves),
            odd.i.payload.eq(self.reads.p.n_beats[0]),
        ]
        wiring.connect(m, odd.o, widen.odd)
        wiring.connect(m, own.beats, widen.i)
        wiring.connect(m, widen.o, wiring.flipped(self.values))

    def _written(self, m, name, engine, ranges):
        """The stream of float32 beats for the ranges of a writer."""
        if not self.bf16:
            wiring.connect(m, wiring.flipped(ranges), engine.ranges)
            m.d.comb += engine.beats.p.keep.eq(-1)
            return engine.beats
        m.submodules[f"{name}_narrow"] = narrow = Narrow(self.n_bytes)
        halved(m, ranges, engine.ranges, self.halves)
        low = (1 << self.n_bytes // 2) - 1
        m.d.comb += [
            narrow.on.eq(self.halves),
            engine.beats.p.data.eq(narrow.o.p.data),
            engine.beats.p.last.eq(narrow.o.p.last),
            engine.beats.p.keep.eq(Mux(narrow.whole, -1, low)),
            engine.beats.valid.eq(narrow.o.valid),
            narrow.o.ready.eq(engine.beats.ready),
        ]
        return narrow.i

    def _steer(self, m, results, landings):
        """Who writes is settled in a cycle before the first beat: flags steer, and no queue.
        Nothing moves until a reset once one of them has changed by itself.
        """
        to_where, arriving, terminal = self.destinations, self.arriving, self.terminal_values
        begins, is_result, may, rows = signals("begins is_result may rows")
        to = self.steering
        stands = uneven(m, [to])
        m.d.comb += [
            is_result.eq(to_where.p.keep & to_where.p.down),
            begins.eq(~(to.busy | stands) & to_where.valid & (~is_result | may)),
            to_where.ready.eq(begins),
            landings.p.data.eq(arriving.p.data),
            landings.p.last.eq(arriving.p.last),
            landings.p.keep.eq(-1),
            landings.valid.eq(arriving.valid & to.landing & ~stands),
            results.p.data.eq(Mux(rows, terminal.p.data, arriving.p.data)),
            results.p.last.eq(Mux(rows, terminal.p.last, arriving.p.last)),
            results.valid.eq((rows & terminal.valid) | (to.result & arriving.valid & ~stands)),
            arriving.ready.eq(
                ((to.landing & landings.ready) | (to.result & results.ready) | to.none) & ~stands
            ),
        ]
        with m.If(begins):
            m.d.sync += [
                to.busy.eq(1),
                to.landing.eq(to_where.p.keep & ~to_where.p.down),
                to.result.eq(is_result),
                to.none.eq(~to_where.p.keep),
            ]
        with m.Elif(arriving.valid & arriving.ready & arriving.p.last):
            m.d.sync += to.eq(0)
        if self.with_roots:
            m.d.comb += may.eq(1)
            return
        source = self.sources
        free, row_begins = signals("free row_begins")
        m.d.comb += [
            free.eq(source.valid & ~to.result & ~rows),
            may.eq(free & ~source.payload),
            row_begins.eq(free & source.payload),
            source.ready.eq(row_begins | (begins & is_result)),
            terminal.ready.eq(rows & results.ready),
        ]
        with m.If(row_begins):
            m.d.sync += rows.eq(1)
        with m.Elif(terminal.valid & terminal.ready & terminal.p.last):
            m.d.sync += rows.eq(0)
