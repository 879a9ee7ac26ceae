"""Walsh-Hadamard transform as a stream: a block of elements in, its transform out, no bubble."""

from types import SimpleNamespace

from amaranth.hdl import Array, Cat, Const, Module, Mux, Signal, signed
from amaranth.lib import data, memory, stream, wiring
from amaranth.lib.wiring import In, Out
from amaranth.utils import ceil_log2

from gradnic.interface.params import (
    BLOCKS,
    check_block,
    check_least,
    check_power,
    check_range,
)

from ..primitive.block_ram import BlockRAM
from ..primitive.steered_sum import SteeredRest, SteeredSum
from ..stream.delays import Delay, copied, delayed, delayed_flag, late

GROUP = 2  # lanes that share a memory, and the registers that steer it
LARGEST_LUT_RAM = 32  # beats of a span kept in LUT RAM; block RAM above


def check_shape(lanes, block) -> None:
    """ValueError unless a worker's circuit can be built with so many lanes and such a block."""
    check_power("lanes", lanes, 2, 32)
    check_block(block)


def growth(width, n_stages, limit):
    """Widths before, between and after `n_stages` butterflies: one bit each, up to `limit`."""
    return [min(width + k, limit) for k in range(n_stages + 1)]


def rotation(lanes, in_width, width):
    """Signature of a `Hadamard` of these parameters."""
    beat = {
        end: stream.Signature(data.ArrayLayout(signed(w), lanes))
        for end, w in (("i", in_width), ("o", width))
    }
    return wiring.Signature({"log4": In(2), "i": In(beat["i"]), "o": Out(beat["o"])})


class Hadamard(wiring.Component):
    """Natural-order integer Walsh-Hadamard transform of blocks of 64, 256, 1024 or 4096 elements.

    Element e of a block is lane e % lanes of its beat e // lanes, before and after. Butterflies
    between beats come first, the farthest ones ahead: each keeps the first half of its span in
    memory, adds it to the second half as that arrives, and puts the difference in its place, which
    leaves while the next span arrives. Butterflies between lanes follow. The stages commute, and
    integers are exact, so the order does not show.

    Rate: one beat per cycle, blocks back to back or with any gaps. The last of a block's b beats
    leaves ``latency`` + b - 1 cycles after it came in. Nothing can stall it, so whoever feeds it
    must have room for what is in flight. Source: THC (NSDI 2024).

    Parameters
    ----------
    lanes : int
        Elements per beat, a power of two from 2 to 64.
    block : int
        Largest block: 64, 256, 1024 or 4096.
    in_width, width : int
        Bits of an element before the first and after the last butterfly, two's complement; no
        partial sum may exceed `width` bits.

    Members
    -------
    log4 : In(2)
        log4(B) - 3 of the blocks to come; may change only while no beat is inside.
    i, o : In, Out(stream)
        Beats of `lanes` elements. ``i`` is always ready, and ``o`` does not wait for ready.
    """

    def __init__(
        self, lanes: int, block: int = 1024, *, in_width: int = 15, width: int = 21
    ) -> None:
        check_power("lanes", lanes, 2, 64)
        check_block(block)
        check_least("width", width, 2)
        check_range("in_width", in_width, 2, width)
        self.lanes, self.block = lanes, block
        self.spans = [2**k for k in reversed(range((block // lanes).bit_length() - 1))]
        self.widths = growth(in_width, block.bit_length() - 1, width)
        self.latency = sum(2 + _lag(span) for span in self.spans) + lanes.bit_length() - 1
        super().__init__(rotation(lanes, in_width, width))

    def elaborate(self, platform):
        m = Module()
        m.d.comb += self.i.ready.eq(1)
        valid, elements = self.i.valid, list(self.i.payload)
        beats = Signal(range(self.block // self.lanes + 1))
        sizes = Array(max(1, b // self.lanes) for b in BLOCKS)
        m.d.sync += beats.eq(sizes[self.log4])
        for stage, span in enumerate(self.spans):
            part = _Stage(self.lanes, self.widths[stage], self.widths[stage + 1], span)
            m.submodules[f"across{span}"] = part
            skip = Signal(name=f"skip{span}")
            m.d.sync += skip.eq(beats <= span)
            m.d.comb += [
                part.skip.eq(skip),
                part.i.valid.eq(valid),
                Cat(part.i.payload).eq(Cat(elements)),
            ]
            valid, elements = part.o.valid, list(part.o.payload)
        for k in range(self.lanes.bit_length() - 1):
            width = self.widths[len(self.spans) + k + 1]
            results = [
                Signal(signed(width), name=f"sum{k}_{j}", reset_less=True)
                for j in range(self.lanes)
            ]
            for j in range(self.lanes):
                near, far = elements[j & ~(1 << k)], elements[j | 1 << k]
                m.d.sync += results[j].eq(near - far if j >> k & 1 else near + far)
            valid, elements = delayed_flag(m, valid, 1, name=f"valid{k}_"), results
        m.d.comb += [self.o.valid.eq(valid), Cat(self.o.payload).eq(Cat(elements))]
        return m


def _lag(span):
    """Cycles from a beat, a cycle after it came to a stage, to the word that it is to meet."""
    return min(span, 2) if span <= LARGEST_LUT_RAM else 4


def _steps(m, stage):
    """What a stage across beats does with a beat, a cycle after it came.

    Sums leave as the second half of the span arrives, differences in the `span` cycles after it:
    the first half of what follows takes at least as long, so that the two never meet.

    comes, passes : a beat is here, to be combined; to go by. place : of it within its half.
    meets : it belongs to the second half. leaving, leaving_place : a difference leaves, also in the
    next cycle (leaves_next).
    """
    span, i, skip = stage.span, stage.i, stage.skip
    comes = delayed_flag(m, i.valid & ~skip, 1, name="comes")
    passes = delayed_flag(m, i.valid & skip, 1, name="passes")
    place = Signal(ceil_log2(span))
    second = Signal()
    leaving = Signal()
    leaving_place = Signal.like(place)
    if span == 1:
        last, leaving_last = Const(1), Const(1)
    else:
        last, leaving_last = Signal(name="last"), Signal(name="leaving_last")
        with m.If(comes):
            m.d.sync += last.eq(place == span - 2)
        with m.If(leaving):
            m.d.sync += leaving_last.eq(leaving_place == span - 2)
    leaves_next = (comes & second & last) | (leaving & ~leaving_last)
    m.d.sync += [
        place.eq(place + comes),
        second.eq(second ^ (comes & last)),
        leaving.eq(leaves_next),
        leaving_place.eq(leaving_place + leaving),  # at 0 again behind the last one
    ]
    return SimpleNamespace(
        comes=comes, passes=passes, place=place, meets=comes & second,
        leaving=leaving, leaving_place=leaving_place, leaves_next=leaves_next,
    )  # fmt: skip


class _Stage(wiring.Component):
    """Butterflies between beats that are `span` apart, each lane with one adder and one subtractor.

    The first half of a span is kept, and second less first takes its place, which leaves negated:
    so each bit of a result is one LUT with its carry, whatever is chosen before it.

    What is kept is in registers up to 2 beats, in LUT RAM up to 32, and else in block RAM.
    """

    def __init__(self, lanes, in_width, width, span):
        self.span, self.width = span, width
        self.in_registers = span < 4
        self.lag = _lag(span)
        super().__init__(
            {
                "skip": In(1),  # blocks are too small for this stage
                "i": In(stream.Signature(data.ArrayLayout(signed(in_width), lanes))),
                "o": Out(stream.Signature(data.ArrayLayout(signed(width), lanes))),
            }
        )

    def elaborate(self, platform):
        m = Module()
        lanes, lag = len(self.i.payload), self.lag
        steps = _steps(m, self)
        delay = late if lag >= Delay.LEAST else delayed
        arrived = delay(m, Cat(self.i.payload), lag, name="arrived")
        leaves = delayed(m, steps.leaves_next, lag - 1, name="leaves")
        flags = delayed(m, Cat(steps.leaving, steps.passes, steps.meets), lag - 1, name="flags")
        reads = Mux(steps.leaving, steps.leaving_place, steps.place)
        written = delayed(m, steps.place, lag - 1, name="written")
        stored = delayed_flag(m, steps.comes, lag - 1, name="stored")
        for start in range(0, lanes, GROUP):
            stop = min(start + GROUP, lanes)
            leaves_here, steers, address, write_addr, write_en = (
                copied(m, value, 1, name=f"{name}{start}_")[0]
                for name, value in (
                    ("leaves", leaves), ("steers", flags), ("reads", reads), ("writes", written),
                    ("stores", stored))
            )  # fmt: skip
            write = SimpleNamespace(
                data=Signal((stop - start) * self.width, name=f"rests{start}"),
                addr=write_addr,
                en=write_en,
            )
            word = self._words(m, start, address, write)
            rests = [
                self._butterfly(m, leaves_here, steers,
                                word.word_select(lane - start, self.width).as_signed(),
                                arrived.word_select(lane, len(arrived) // lanes).as_signed(), lane)
                for lane in range(start, stop)
            ]  # fmt: skip
            m.d.comb += write.data.eq(Cat(rests))
        goes = steps.meets | steps.leaving | steps.passes
        m.d.comb += self.o.valid.eq(delayed_flag(m, goes, lag + 1, name="goes"))
        return m

    def _words(self, m, start, address, write):
        """What is kept of a group of lanes: the word that is read, `lag` - 1 cycles behind address.

        Place by place a word is written `span` cycles before it is read, at the least: a memory
        has a register in front for that.
        """
        width = len(write.data)
        if self.in_registers:
            words = [
                Signal(width, name=f"word{start}_{k}", reset_less=True) for k in range(self.span)
            ]
            for k, word in enumerate(words):
                with m.If(write.en & (write.addr == k)):
                    m.d.sync += word.eq(write.data)
            return delayed(m, Array(words)[address], self.lag - 1, name=f"kept{start}_")
        late = Cat(
            delayed(m, write.data, 1, name=f"rest{start}_"),
            delayed(m, write.addr, 1, name=f"place{start}_"),
            delayed_flag(m, write.en, 1, name=f"put{start}_"),
        )
        if self.span > LARGEST_LUT_RAM:
            m.submodules[f"words{start}"] = ram = BlockRAM(width, self.span)
            m.d.comb += [
                ram.read_addr.eq(address),
                Cat(ram.write_data, ram.write_addr, ram.write_en).eq(late),
            ]
            return delayed(m, ram.read_data, self.lag - 3, name=f"word{start}_")
        words = memory.Memory(
            shape=width, depth=self.span, init=[], attrs={"ram_style": "distributed"}
        )
        m.submodules[f"words{start}"] = words
        read = words.read_port(domain="comb")
        port = words.write_port()
        m.d.comb += [read.addr.eq(address), Cat(port.data, port.addr, port.en).eq(late)]
        return delayed(m, read.data, self.lag - 1, name=f"word{start}_")

    def _butterfly(self, m, leaves, steers, kept, arrived, lane):
        """One lane: its result goes out; returns what is to be kept.

        leaves : a difference leaves, a cycle before `steers` and `kept` say so.
        """
        leaving, passes, meets = steers
        new = delayed(m, arrived, 1, name=f"new{lane}_")
        adds = delayed(m, Mux(leaves, 0, arrived), 1, name=f"adds{lane}_")
        m.submodules[f"total{lane}"] = total = SteeredSum(self.width)
        m.submodules[f"rest{lane}"] = rest = SteeredRest(self.width)
        m.d.comb += [
            total.a.eq(adds),
            total.b.eq(kept),
            total.minus.eq(leaving),
            total.counts.eq(~passes),
            self.o.payload[lane].eq(delayed(m, total.o, 1, name=f"out{lane}_")),
            rest.a.eq(new),
            rest.b.eq(kept),
            rest.counts.eq(meets),
        ]
        return rest.o
