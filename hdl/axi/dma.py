"""Memory engines: ranges of a registered region, read or written in AXI4 bursts.

Every range is checked against what the host registered before an address leaves the card.

Plumbing: no golden model of its own.
"""

from amaranth.hdl import Cat, Module, Mux, Signal, signed
from amaranth.lib import data, stream, wiring
from amaranth.lib.wiring import In, Out
from amaranth.utils import ceil_log2

from ..primitive.names import signals
from ..primitive.same import same
from ..stream.beats import Beat
from ..stream.block_fifo import BlockFIFO
from ..stream.fifo import FIFO
from ..stream.slice import Slice
from .axi4 import OKAY, ReadPort, WritePort, drive_address
from .bursts import N_BURSTS, BurstSplitter

WRITTEN = 16  # beats of a burst that is written, at most


class ReadEngine(wiring.Component):
    """Reads ranges from memory ahead of need, in order: 1 beat per cycle from bursts of 4 up.

    Plumbing: no golden model of its own.

    Bursts are asked for as long as the store has room for all their beats, so ``rready`` never
    falls, and a memory with ``store_beats`` cycles of latency still gives full rate. A refused
    range, or one that the memory answers with an error, has all its beats, zeros where refused.

    Parameters
    ----------
    n_bytes, address_width, burst_beats, n_regions : int
        See `BurstSplitter`.
    store_beats : int
        Beats under way or waiting, a power of two, at least 4 bursts.

    Members
    -------
    regions, ranges : see `BurstSplitter`
    beats : Out(stream.Signature(Beat(8 * n_bytes)))
        ``last`` ends a range.
    refused, failed : Out(1)
        One pulse per range outside the region; one per beat with an error answer, and one where
        the store (`BlockFIFO`) or the splitter stops.
    port : Out(ReadPort(n_bytes, address_width))
    """

    def __init__(
        self,
        n_bytes: int,
        address_width: int = 64,
        *,
        burst_beats: int = 16,
        n_regions: int = 1,
        store_beats: int = 256,
    ) -> None:
        if store_beats < 4 * burst_beats or store_beats & (store_beats - 1):
            raise ValueError(
                f"store_beats must be a power of two of at least {4 * burst_beats}, "
                f"not {store_beats!r}"
            )
        self.n_bytes = n_bytes
        self.burst_beats = burst_beats
        self.store_beats = store_beats
        self.splitter = BurstSplitter(
            n_bytes, address_width, burst_beats=burst_beats, n_regions=n_regions
        )
        self.store = BlockFIFO(Beat(8 * n_bytes), store_beats, stops=True)
        super().__init__(
            {
                "regions": In(self.splitter.regions_shape),
                "ranges": In(stream.Signature(self.splitter.range)),
                "beats": Out(stream.Signature(Beat(8 * n_bytes))),
                "refused": Out(1),
                "failed": Out(1),
                "port": Out(ReadPort(n_bytes, address_width)),
            }
        )

    def elaborate(self, platform):
        m = Module()
        m.submodules.splitter = splitter = self.splitter
        m.submodules.store = store = self.store
        wiring.connect(m, wiring.flipped(self.ranges), splitter.ranges)
        wiring.connect(m, store.o, wiring.flipped(self.beats))
        m.d.comb += splitter.regions.eq(self.regions)
        burst, port = splitter.bursts.p, self.port
        asked = data.StructLayout({"n_less_1": burst.n_less_1.shape(), "ends": 1, "refused": 1})
        m.submodules.asked = awaited = FIFO(asked, N_BURSTS, stops=True)
        m.submodules.requests = requests = Slice(splitter.burst, half_rate=True)

        # A burst starts when its beats have room; what leaves gives room back a cycle later. The
        # splitter rests a cycle after each burst, so `room` may know of one two cycles later.
        most = self.store_beats - self.burst_beats
        spare = Signal(range(-self.burst_beats, most + 1), init=most)  # beyond a whole burst
        taken = Signal(signed(len(burst.n_less_1) + 1))  # by a burst: its beats, below 0
        room, left, go = signals("room left go")
        m.d.comb += [
            room.eq(~spare[-1]),
            go.eq(splitter.bursts.valid & room & awaited.i.ready & requests.i.ready),
            splitter.bursts.ready.eq(room & awaited.i.ready & requests.i.ready),
            awaited.i.valid.eq(go),
            *same(awaited.i.p, burst, "n_less_1 ends refused"),
            requests.i.valid.eq(go & ~burst.refused),
            requests.i.p.eq(burst),
            *drive_address(port, "ar", requests.o.p, self.n_bytes),
            port.arvalid.eq(requests.o.valid),
            requests.o.ready.eq(port.arready),
        ]
        less = Cat(burst.n_less_1, 0)
        m.d.sync += [
            taken.eq(Mux(go, ~less, 0)),
            left.eq(self.beats.valid & self.beats.ready),
            # one carry chain: what has left is the carry into it
            spare.eq((Cat(1, spare).as_signed() + Cat(left, taken).as_signed()) >> 1),
            self.refused.eq(go & burst.refused & burst.ends),
        ]

        count = Signal(len(burst.n_less_1))
        take, final = signals("take final")
        head = awaited.o.p
        m.d.comb += [
            final.eq(count == head.n_less_1),
            store.i.valid.eq(awaited.o.valid & (head.refused | port.rvalid)),
            store.i.p.data.eq(Mux(head.refused, 0, port.rdata)),
            store.i.p.last.eq(final & head.ends),
            take.eq(store.i.valid & store.i.ready),
            port.rready.eq(awaited.o.valid & ~head.refused & store.i.ready),
            awaited.o.ready.eq(take & final),
        ]
        stops, stopped = signals("stops stopped")
        m.d.comb += stops.eq(store.stopped | splitter.astray)
        m.d.sync += [
            stopped.eq(stops),
            self.failed.eq((port.rvalid & port.rready & (port.rresp != OKAY)) | (stops & ~stopped)),
        ]
        with m.If(take):
            m.d.sync += count.eq(Mux(final, 0, count + 1))
        return m


class WriteEngine(wiring.Component):
    """Writes ranges to memory, in order: 1 beat per cycle from bursts of 2 up.

    Plumbing: no golden model of its own.

    An address leaves once all beats of its burst are here: a port that is shared, and whatever
    memory is behind it, promises the order of data with the order of addresses, and a burst that
    waits for beats that others hold up would have them all wait in a circle. Beats may come before
    or after their range; two bursts of them have room. Those of a refused range are taken and lost.

    Parameters
    ----------
    n_bytes, address_width, n_regions : int
        See `BurstSplitter`.
    ends : bool
        Beats say which one is the last of its range, and ``stored`` is 0, until a reset, once one
        says so that is not, or the other way round.

    Members
    -------
    regions, ranges : see `BurstSplitter`
    beats : In(stream.Signature({data, keep})), with `ends` {data, keep, last}
        As many as the ranges have; bytes not kept stay as they are in memory.
    done, stored, refused : Out(1)
        One pulse per range, in order, once the memory has answered for all of it; ``stored`` is 0
        then if the range was ``refused`` or an answer was an error, and until a reset once an
        address of the store, or what the splitter knows, has changed by itself.
    port : Out(WritePort(n_bytes, address_width))
    """

    def __init__(
        self, n_bytes: int, address_width: int = 64, *, n_regions: int = 1, ends: bool = False
    ) -> None:
        self.n_bytes = n_bytes
        self.splitter = BurstSplitter(
            n_bytes, address_width, burst_beats=WRITTEN, n_regions=n_regions
        )
        self.ends = ends
        last = {"last": 1} if ends else {}
        self.beat = data.StructLayout({"data": 8 * n_bytes, "keep": n_bytes} | last)
        self.store = FIFO(self.beat, 2 * WRITTEN, watched=True)
        length = self.splitter.bursts.p.n_less_1.shape()
        sent = data.StructLayout({"n_less_1": length, "refused": 1} | ({"ends": 1} if ends else {}))
        answered = data.StructLayout({"ends": 1, "refused": 1})
        self.to_send = FIFO(sent, N_BURSTS, stops=True)
        self.awaited = FIFO(answered, N_BURSTS, stops=True)
        super().__init__(
            {
                "regions": In(self.splitter.regions_shape),
                "ranges": In(stream.Signature(self.splitter.range)),
                "beats": In(stream.Signature(self.beat)),
                "done": Out(1),
                "stored": Out(1),
                "refused": Out(1),
                "port": Out(WritePort(n_bytes, address_width)),
            }
        )

    def elaborate(self, platform):
        m = Module()
        m.submodules.splitter = splitter = self.splitter
        wiring.connect(m, wiring.flipped(self.ranges), splitter.ranges)
        m.d.comb += splitter.regions.eq(self.regions)
        m.submodules.requests = requests = Slice(splitter.burst, half_rate=True)
        m.submodules.to_send = self.to_send
        m.submodules.awaited = self.awaited
        m.submodules.words = store = self.store
        wiring.connect(m, wiring.flipped(self.beats), store.i)
        self._begin(m, requests)
        misplaced = self._send(m, store.o)
        wrong = store.astray | splitter.astray
        self._hear(m, wrong | misplaced if self.ends else wrong)
        return m

    def _begin(self, m, requests):
        """Bursts whose beats are all here; their addresses go by `requests`."""
        splitter, store, port = self.splitter, self.store, self.port
        to_send, awaited, burst = self.to_send, self.awaited, splitter.bursts.p
        # Beats that came and are in no burst yet. What comes, or goes with a burst, counts a cycle
        # later: the splitter rests a cycle after each burst.
        there = Signal(signed(ceil_log2(2 * WRITTEN + 2) + 1))
        taken = Signal(signed(len(burst.n_less_1) + 1))  # by a burst: its beats, below 0
        came, go, free = signals("came go free")
        m.d.sync += [
            came.eq(store.i.valid & store.i.ready),
            taken.eq(Mux(go, ~Cat(burst.n_less_1, 0), 0)),
            there.eq((Cat(1, there).as_signed() + Cat(came, taken).as_signed()) >> 1),
        ]
        m.d.comb += [
            free.eq(
                requests.i.ready
                & to_send.i.ready
                & awaited.i.ready
                & (there.as_unsigned() > burst.n_less_1)
            ),
            go.eq(splitter.bursts.valid & free),
            splitter.bursts.ready.eq(free),
            requests.i.valid.eq(go & ~burst.refused),
            requests.i.p.eq(burst),
            to_send.i.valid.eq(go),
            to_send.i.p.n_less_1.eq(burst.n_less_1),
            to_send.i.p.refused.eq(burst.refused),
            *([to_send.i.p.ends.eq(burst.ends)] if self.ends else []),
            awaited.i.valid.eq(go),
            awaited.i.p.ends.eq(burst.ends),
            awaited.i.p.refused.eq(burst.refused),
            *drive_address(port, "aw", requests.o.p, self.n_bytes),
            port.awvalid.eq(requests.o.valid),
            requests.o.ready.eq(port.awready),
        ]

    def _send(self, m, words):
        """Beats of the oldest burst; with `ends` a flag: a range did not end where its beats do."""
        to_send, port = self.to_send, self.port
        head = to_send.o.p
        count = Signal(len(head.n_less_1))
        take, final = signals("take final")
        m.d.comb += [
            final.eq(count == head.n_less_1),
            words.ready.eq(to_send.o.valid & (head.refused | port.wready)),
            take.eq(words.valid & words.ready),
            to_send.o.ready.eq(take & final),
            port.wdata.eq(words.p.data),
            port.wstrb.eq(words.p.keep),
            port.wlast.eq(final),
            port.wvalid.eq(words.valid & to_send.o.valid & ~head.refused),
        ]
        with m.If(take):
            m.d.sync += count.eq(Mux(final, 0, count + 1))
        if not self.ends:
            return None
        misplaced = Signal()
        with m.If(take & (words.p.last != (final & head.ends))):
            m.d.sync += misplaced.eq(1)
        return misplaced

    def _hear(self, m, wrong):
        """Answers, in the order of bursts: `done` with the last one of a range."""
        awaited, port = self.awaited, self.port
        answer, failed, good = signals("answer failed good")
        m.d.comb += [
            port.bready.eq(awaited.o.valid & ~awaited.o.p.refused),
            answer.eq(awaited.o.valid & (awaited.o.p.refused | port.bvalid)),
            awaited.o.ready.eq(answer),
            good.eq(~Cat(failed, awaited.o.p.refused, port.bresp != OKAY, wrong).any()),
        ]
        m.d.sync += [
            self.done.eq(answer & awaited.o.p.ends),
            self.stored.eq(answer & awaited.o.p.ends & good),
            self.refused.eq(answer & awaited.o.p.ends & awaited.o.p.refused),
        ]
        with m.If(answer):
            m.d.sync += failed.eq(~good & ~awaited.o.p.ends)
