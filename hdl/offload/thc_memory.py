"""Ways between memory and the circuits of a THC worker: what a pass reads, and what it writes.

Part of `gradnic.hdl.offload.thc_pass`, whose golden model it follows.
"""

from amaranth.hdl import Module, Mux, Signal
from amaranth.lib import data, stream, wiring
from amaranth.lib.wiring import In, Out
from amaranth.utils import ceil_log2

from ..axi.axi4 import ReadPort, WritePort
from ..axi.bursts import LENGTH_WIDTH, Range, Region
from ..axi.dma import WRITTEN, ReadEngine, WriteEngine
from ..primitive.names import signals
from ..primitive.target import with_exit
from ..stream.beats import Beat
from ..stream.fifo import FIFO
from ..stream.slice import Slice

WIDTHS = LENGTH_WIDTH, 23  # numbers of beats; of blocks of 64 elements: 2**28 of those
BLOCK = 1024  # elements of the largest block
AHEAD = 4  # beats of norms that wait
N_RANGES = 16
UNDER_WAY = 5  # bits of the number of ranges: fewer than 32 are written at a time


def Norm(blocks_width):
    """The norm of a block, and the block's number."""
    return data.StructLayout({"word": 32, "number": blocks_width})


def norms_width(n_bytes, blocks_width):
    """Bits of the number of beats of norms."""
    return blocks_width - ceil_log2(n_bytes // 4)


class Pad(wiring.Component):
    """Gradients as whole blocks: +0 for ever behind the last element; a beat a cycle. What comes
    behind its beats vanishes: of BF16 that is half a beat of memory, which must not stay there.

    Parameters
    ----------
    lanes : int
        Floats of a beat, a power of two.
    width : int
        Bits of the number of beats that come.

    Members
    -------
    n_beats : In(width)
        Beats that come, at least 1; constant, from two cycles before the first one on.
    tail : In(log2(lanes))
        Elements of the last beat that comes; 0 : all.
    i, o : In(stream.Signature(Beat(32 * lanes))), Out(stream.Signature(32 * lanes))
    """

    def __init__(self, lanes: int, *, width: int = LENGTH_WIDTH) -> None:
        self.lanes, self.width = lanes, width
        super().__init__(
            {
                "n_beats": In(width),
                "tail": In(ceil_log2(lanes)),
                "i": In(stream.Signature(Beat(32 * lanes))),
                "o": Out(stream.Signature(32 * lanes)),
            }
        )

    def elaborate(self, platform):
        m = Module()
        m.submodules.near = near = Slice(32 * self.lanes)
        wiring.connect(m, near.o, wiring.flipped(self.o))
        came = Signal(self.width)
        filling = Signal()
        final = Signal(self.width, reset_less=True)
        last = Signal()
        m.d.sync += final.eq(self.n_beats - 1)
        m.d.comb += last.eq(came == final)
        m.d.comb += [
            near.i.valid.eq(self.i.valid | filling),
            self.i.ready.eq(near.i.ready | filling),
        ]
        for lane in range(self.lanes):
            empty = Signal(name=f"empty{lane}", attrs={"keep": 1})  # a net for one lane's bits
            word = self.i.p.data.word_select(lane, 32)
            m.d.comb += [
                empty.eq(filling | (last & (self.tail != 0) & (self.tail <= lane))),
                near.i.payload.word_select(lane, 32).eq(Mux(empty, 0, word)),
            ]
        with m.If(self.i.valid & self.i.ready & ~filling):
            m.d.sync += [came.eq(came + 1), filling.eq(last)]
        return m


class BlockReader(wiring.Component):
    """Reads norms and values of blocks, norms ahead: 1 beat of values per cycle, but one in 64.

    Norms come a beat for `lanes` blocks, one such beat ahead of the values that they are of. An
    address of its queues that changes by itself stops it until a reset: see `FIFO`.

    Parameters
    ----------
    n_bytes, address_width : int
    widths : (int, int)
        Bits of numbers of beats and of blocks.
    sums : bool
        Values are sums of 8, 12 or 16 bits instead of floats.

    Members
    -------
    start : In(1)
        A level, from which on the other settings are constant; reset comes before the next one.
    log4, n_blocks, n_beats, halves : In(2), In(widths[1]), In(widths[0]), In(1)
        log4(B) - 3; blocks; beats of values that there are, of the blocks' or fewer; floats have
        half of their bytes. code : In(2), with `sums`: 0, 1, 2 for 8, 12, 16 bits
    regions : In(ArrayLayout(Region, 2))
        Norms, values.
    norms : Out(stream.Signature(Norm(widths[1])))
    beats : Out(stream.Signature(Beat(8 * n_bytes)))
    failed : Out(1)
        A pulse: an access went wrong.
    port : Out(ReadPort)
    """

    def __init__(
        self,
        n_bytes: int,
        address_width: int,
        *,
        widths: tuple[int, ...] = WIDTHS,
        sums: bool = False,
    ) -> None:
        self.n_bytes, self.address_width, self.sums = n_bytes, address_width, sums
        self.widths = widths
        self.kinds = FIFO(1, N_RANGES, stops=True)
        self.words = FIFO(8 * n_bytes, AHEAD, stops=True)
        region = Region(n_bytes, address_width)
        super().__init__(
            {
                "start": In(1),
                "log4": In(2),
                "n_blocks": In(widths[1]),
                "n_beats": In(widths[0]),
                **({"code": In(2)} if sums else {"halves": In(1)}),
                "regions": In(data.ArrayLayout(region, 2)),
                "norms": Out(stream.Signature(Norm(widths[1]))),
                "beats": Out(stream.Signature(Beat(8 * n_bytes))),
                "failed": Out(1),
                "port": Out(ReadPort(n_bytes, address_width)),
            }
        )

    def elaborate(self, platform):
        m = Module()
        m.submodules.engine = engine = ReadEngine(self.n_bytes, self.address_width, n_regions=2)
        wiring.connect(m, engine.port, wiring.flipped(self.port))
        m.submodules.kinds = kinds = self.kinds
        m.submodules.words = words = self.words
        m.d.comb += [
            engine.regions.eq(self.regions),
            self.failed.eq(engine.refused | engine.failed),
        ]
        self._ask(m, engine.ranges, kinds.i)
        self._hand_out(m, engine.beats, kinds.o, words)
        return m

    def _ask(self, m, ranges, kind):
        """Norms of the first blocks; then in turns those of the next, and the values before."""
        n, lanes = self.n_bytes, self.n_bytes // 4
        beats_width, blocks_width = self.widths
        group = Signal(range(BLOCK + 1))  # of values: in beats
        left = Signal(beats_width)
        offset = Signal(beats_width)
        part = Signal(range(BLOCK + 1))
        asked, n_norms = (
            Signal(norms_width(n, blocks_width), name=s) for s in ("asked", "n_norms")
        )
        all_asked = Signal(reset_less=True)  # asked == n_norms
        ready = ranges.ready & kind.ready
        m.d.comb += part.eq(Mux(left < group, left, group))
        m.d.sync += n_norms.eq((self.n_blocks + (lanes - 1)) >> ceil_log2(lanes))
        for k in range(3):
            with m.If(self.log4 == k):
                size = 64 << 2 * k
                m.d.sync += group.eq(
                    (size >> 3) * (self.code + 2) if self.sums else size >> self.halves
                )
        with m.FSM() as fsm:
            with m.State("REST"):
                m.d.sync += left.eq(self.n_beats)
                with m.If(self.start):
                    m.next = "SETTLE"
            with m.State("SETTLE"):
                m.next = "FIRST"
            with m.State("FIRST"):
                m.d.comb += [ranges.valid.eq(kind.ready), kind.valid.eq(ranges.ready)]
                m.d.comb += [kind.payload.eq(1), ranges.p.n_beats.eq(1)]
                with m.If(ready):
                    m.d.sync += [asked.eq(1), all_asked.eq(n_norms == 1)]
                    m.next = "NORMS"
            with m.State("NORMS"):
                m.d.comb += [ranges.p.offset.eq(asked), ranges.p.n_beats.eq(1)]
                m.d.comb += kind.payload.eq(1)
                with m.If(all_asked):
                    m.next = "VALUES"
                with m.Else():
                    m.d.comb += [ranges.valid.eq(kind.ready), kind.valid.eq(ranges.ready)]
                    with m.If(ready):
                        m.d.sync += [asked.eq(asked + 1), all_asked.eq(asked + 1 == n_norms)]
                        m.next = "VALUES"
            with m.State("VALUES"):
                m.d.comb += [ranges.p.offset.eq(offset), ranges.p.n_beats.eq(part)]
                m.d.comb += ranges.p.region.eq(1)
                with m.If(left == 0):  # norms of blocks that are all padding may be left
                    m.next = "NORMS"
                    with m.If(all_asked):
                        m.next = "DONE"
                with m.Else():
                    m.d.comb += [ranges.valid.eq(kind.ready), kind.valid.eq(ranges.ready)]
                    with m.If(ready):
                        m.d.sync += [left.eq(left - part), offset.eq(offset + part)]
                        m.next = "NORMS"
            with m.State("DONE"):
                pass
        with_exit(fsm)

    def _hand_out(self, m, beats, kind, words):
        """Beats that came, each by its `kind`; norms one by one, with their numbers."""
        lanes, (_, blocks_width) = self.n_bytes // 4, self.widths
        is_norm = kind.payload
        m.d.comb += [
            words.i.payload.eq(beats.p.data),
            words.i.valid.eq(beats.valid & kind.valid & is_norm),
            self.beats.p.eq(beats.p),
            self.beats.valid.eq(beats.valid & kind.valid & ~is_norm),
            beats.ready.eq(kind.valid & Mux(is_norm, words.i.ready, self.beats.ready)),
            kind.ready.eq(beats.valid & beats.ready & beats.p.last),
        ]
        number = Signal(blocks_width)
        place = Signal(ceil_log2(lanes))
        m.submodules.near = near = Slice(Norm(blocks_width))
        wiring.connect(m, near.o, wiring.flipped(self.norms))
        there = words.o.valid & (number != self.n_blocks)
        m.d.comb += [
            place.eq(number),
            near.i.valid.eq(there),
            near.i.p.word.eq(words.o.payload.word_select(place, 32)),
            near.i.p.number.eq(number),
            words.o.ready.eq(near.i.ready & there & place.all()),
        ]
        with m.If(there & near.i.ready):
            m.d.sync += number.eq(number + 1)


class BurstWriter(wiring.Component):
    """Writes a region from its start, as beats come; a beat a cycle.

    An address of its queues that changes by itself stops it until a reset: see `FIFO`.

    Parameters
    ----------
    n_bytes, address_width : int
    width : int
        Bits of the number of beats.

    Members
    -------
    region : In(Region)
        Its ``n_beats``, at least 1, are written; beats that come behind them vanish. Constant from
        reset on.
    tail : In(log2(n_bytes))
        Bytes of the last beat that are written; 0 : all.
    i : In(stream.Signature(8 * n_bytes))
    done : Out(1)
        A level: all is written, and the memory has answered. failed : Out(1), a pulse
    port : Out(WritePort)
    """

    def __init__(self, n_bytes: int, address_width: int, *, width: int = LENGTH_WIDTH) -> None:
        self.n_bytes, self.address_width, self.width = n_bytes, address_width, width
        self.ranges = FIFO(Range(), 4, stops=True)
        super().__init__(
            {
                "region": In(Region(n_bytes, address_width)),
                "tail": In(ceil_log2(n_bytes)),
                "i": In(stream.Signature(8 * n_bytes)),
                "done": Out(1),
                "failed": Out(1),
                "port": Out(WritePort(n_bytes, address_width)),
            }
        )

    def elaborate(self, platform):
        m = Module()
        n = self.n_bytes
        m.submodules.engine = engine = WriteEngine(n, self.address_width)
        m.submodules.ranges = ranges = self.ranges
        wiring.connect(m, ranges.o, engine.ranges)
        wiring.connect(m, engine.port, wiring.flipped(self.port))
        beats = engine.beats
        count, n_beats = signals("count n_beats", self.width)  # that came, and are to come
        first = Signal(self.width)  # of the burst that they will be in
        n_asked, n_done = signals("n_asked n_done", UNDER_WAY)
        # all that is written has come, by a flag and by count
        surplus, whole = signals("surplus whole")
        last, goes, ends = signals("last goes ends")
        keep = Signal(n)
        m.d.comb += [
            engine.regions[0].eq(self.region),
            n_beats.eq(self.region.n_beats),
            last.eq(count + 1 == n_beats),
            keep.eq(Mux(last & (self.tail != 0), (1 << self.tail) - 1, ~0)),
            beats.p.data.eq(self.i.payload),
            beats.p.keep.eq(keep),
            beats.valid.eq(self.i.valid & ~surplus & ranges.i.ready),
            self.i.ready.eq(surplus | (beats.ready & ranges.i.ready)),
            goes.eq(beats.valid & beats.ready),
            ends.eq(goes & (last | ((count + 1)[: ceil_log2(WRITTEN)] == 0))),
            ranges.i.valid.eq(ends),
            ranges.i.p.offset.eq(first),
            ranges.i.p.n_beats.eq(count + 1 - first),
            self.done.eq(surplus & whole & (n_asked == n_done)),
            self.failed.eq(engine.done & ~engine.stored),
        ]
        with m.If(goes):
            m.d.sync += count.eq(count + 1)
        m.d.sync += [n_done.eq(n_done + engine.done), whole.eq(count == n_beats)]
        with m.If(goes & last):
            m.d.sync += surplus.eq(1)
        with m.If(ends):
            m.d.sync += [n_asked.eq(n_asked + 1), first.eq(count + 1)]
        return m
