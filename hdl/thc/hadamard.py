"""Walsh-Hadamard transform as a stream: a block of elements in, its transform out, no bubble.

Golden model: `gradnic.models.thc.hadamard`.
"""

from types import SimpleNamespace

from amaranth.hdl import Array, Cat, Const, Module, Mux, Signal, signed
from amaranth.lib import data, memory, stream, wiring
from amaranth.lib.wiring import In, Out
from amaranth.utils import ceil_log2

from gradnic.interface.params import (
    BLOCKS,
    check_block,
    check_lanes,
    check_least,
    check_power,
    check_range,
)

from ..primitive.block_ram import BlockRAM
from ..stream.delays import copied, delayed, delayed_flag

GROUP = 2  # lanes that share a memory, and the registers that steer it
LARGEST_LUT_RAM = 32  # beats of a span kept in LUT RAM; block RAM above


def check_shape(lanes, block) -> None:
    """ValueError unless a worker's circuit can be built with so many lanes and such a block."""
    check_lanes(lanes, name="lanes")
    check_block(block)


def growth(width, n_stages, limit):
    """Widths before, between and after `n_stages` butterflies: one bit each, up to `limit`."""
    return [min(width + k, limit) for k in range(n_stages + 1)]


class Hadamard(wiring.Component):
    """Natural-order integer Walsh-Hadamard transform of blocks of 64, 256, 1024 or 4096 elements.

    Element e of a block is lane e % lanes of its beat e // lanes, before and after. Butterflies
    between beats come first, the farthest ones ahead: each keeps the first half of its span in
    memory, adds it to the second half as that arrives, and puts the difference in its place, which
    leaves while the next span arrives. Butterflies between lanes follow. The stages commute, and
    integers are exact, so the order does not show.

    Rate: one beat per cycle, blocks back to back or with any gaps. A block's last beat leaves
    ``latency`` cycles after its last beat came in, at a full-rate input; nothing can stall it, so
    whoever feeds it must have room for what is in flight. Source: THC (NSDI 2024).

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
        beat = {
            end: stream.Signature(data.ArrayLayout(signed(w), lanes))
            for end, w in (("i", in_width), ("o", width))
        }
        super().__init__({"log4": In(2), "i": In(beat["i"]), "o": Out(beat["o"])})

    def elaborate(self, platform):
        m = Module()
        m.d.comb += self.i.ready.eq(1)
        valid, elements = self.i.valid, list(self.i.payload)
        beats = Signal(range(self.block // self.lanes + 1))
        sizes = Array(max(1, b // self.lanes) for b in BLOCKS)
        m.d.sync += beats.eq(sizes[self.log4])
        for stage, span in enumerate(self.spans):
            kind = _Near if span < 4 else _Across
            part = kind(self.lanes, self.widths[stage], self.widths[stage + 1], span)
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


def _ports(lanes, in_width, width):
    """Members of a stage across beats: ``skip`` says that blocks are too small for it."""
    return {
        "skip": In(1),
        "i": In(stream.Signature(data.ArrayLayout(signed(in_width), lanes))),
        "o": Out(stream.Signature(data.ArrayLayout(signed(width), lanes))),
    }


def _steps(m, stage):
    """What a stage across beats does with a beat, a cycle after it came.

    Sums leave as the second half of the span arrives, differences in the `span` cycles after it:
    the first half of what follows takes at least as long, so that the two never meet.

    comes, passes : a beat is here, to be combined; to go by. place : of it within its half.
    meets : it belongs to the second half. leaving, leaving_place : a difference leaves.
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
    m.d.sync += [
        place.eq(place + comes),
        second.eq(second ^ (comes & last)),
        leaving.eq((comes & second & last) | (leaving & ~leaving_last)),
        leaving_place.eq(leaving_place + leaving),  # at 0 again behind the last one
    ]
    return SimpleNamespace(
        comes=comes, passes=passes, place=place, meets=comes & second,
        leaving=leaving, leaving_place=leaving_place,
    )  # fmt: skip


class _Near(wiring.Component):
    """Butterflies between beats that are 1 or 2 apart; a stage of `Hadamard`, in registers."""

    def __init__(self, lanes, in_width, width, span):
        self.span, self.width = span, width
        super().__init__(_ports(lanes, in_width, width))

    def elaborate(self, platform):
        m = Module()
        lanes = len(self.i.payload)
        steps = _steps(m, self)
        arrived = delayed(m, Cat(self.i.payload), 2, name="arrived")
        goes = steps.meets | steps.leaving | steps.passes
        m.d.comb += self.o.valid.eq(delayed_flag(m, goes, 4, name="goes"))
        late = delayed(m, Cat(steps.leaving, steps.leaving_place), 2, name="late")
        here = Cat(steps.place == k for k in range(self.span))
        keeps = here & (steps.comes & ~steps.meets).replicate(self.span)
        ends = delayed(m, here & steps.meets.replicate(self.span), 1, name="ends")
        for start in range(0, lanes, GROUP):
            meets, place, kept_here, left_here, then = (
                copied(m, value, 1, name=f"{name}{start}_")[0]
                for name, value in (
                    ("meets", steps.meets), ("place", steps.place), ("keeps", keeps),
                    ("ends", ends), ("then", late))
            )  # fmt: skip
            leaving, leaving_place = then[0], then[1:]
            for lane in range(start, min(start + GROUP, lanes)):
                new = arrived.word_select(lane, len(arrived) // lanes).as_signed()
                firsts = self._words(m, new, kept_here, f"first{lane}_")
                kept = delayed(m, Mux(meets, Array(firsts)[place], 0), 1, name=f"kept{lane}_")
                new = delayed(m, new, 1, name=f"new{lane}_")
                total = Signal(signed(self.width))
                m.d.comb += total.eq(kept + new)
                rests = self._words(m, kept - new, left_here, f"rest{lane}_")
                result = Mux(
                    leaving,
                    Array(rests)[leaving_place],
                    delayed(m, total, 1, name=f"total{lane}_"),
                )
                m.d.comb += self.o.payload[lane].eq(delayed(m, result, 1, name=f"out{lane}_"))
        return m

    def _words(self, m, value, writes, name):
        """A register for each place; `value` goes into those of the flags `writes`."""
        words = [
            Signal(signed(self.width), name=f"{name}{k}", reset_less=True) for k in range(self.span)
        ]
        for k, word in enumerate(words):
            with m.If(writes[k]):
                m.d.sync += word.eq(value)
        return words


class _Across(wiring.Component):
    """Butterflies between beats that are `span` apart, 4 or more; a stage of `Hadamard`.

    The first half of a span is kept in memory, and differences take its place.
    """

    def __init__(self, lanes, in_width, width, span):
        self.span, self.width = span, width
        super().__init__(_ports(lanes, in_width, width))

    def elaborate(self, platform):
        m = Module()
        lanes = len(self.i.payload)
        steps = _steps(m, self)
        lag = 2 if self.span <= LARGEST_LUT_RAM else 4  # until a word is here
        reads = Mux(steps.leaving, steps.leaving_place, steps.place)
        arrived = delayed(m, Cat(self.i.payload), lag + 1, name="arrived")
        flags = delayed(m, Cat(steps.leaving, steps.passes, steps.meets), lag, name="flags")
        written = delayed(m, steps.place, lag, name="written")
        stored = delayed_flag(m, steps.comes, lag, name="stored")
        for start in range(0, lanes, GROUP):
            stop = min(start + GROUP, lanes)
            steers, address, write_addr, write_en = (
                copied(m, value, 1, name=f"{name}{start}_")[0]
                for name, value in (
                    ("steers", flags), ("reads", reads), ("writes", written), ("stores", stored))
            )  # fmt: skip
            word, write = self._words(m, start, (stop - start) * self.width, address, lag)
            rests = [
                self._butterfly(m, steers, word.word_select(lane - start, self.width).as_signed(),
                                arrived.word_select(lane, len(arrived) // lanes).as_signed(), lane)
                for lane in range(start, stop)
            ]  # fmt: skip
            m.d.comb += [
                write.data.eq(Cat(rests)),
                write.addr.eq(write_addr),
                write.en.eq(write_en),
            ]
        goes = steps.meets | steps.leaving | steps.passes
        m.d.comb += self.o.valid.eq(delayed_flag(m, goes, lag + 2, name="goes"))
        return m

    def _words(self, m, start, width, address, lag):
        """A memory of the span: (word, `lag` - 1 cycles after its address; its write port)."""
        if self.span > LARGEST_LUT_RAM:
            m.submodules[f"words{start}"] = ram = BlockRAM(width, self.span)
            m.d.comb += ram.read_addr.eq(address)
            write = SimpleNamespace(data=ram.write_data, addr=ram.write_addr, en=ram.write_en)
            return delayed(m, ram.read_data, lag - 3, name=f"word{start}_"), write
        words = memory.Memory(
            shape=width, depth=self.span, init=[], attrs={"ram_style": "distributed"}
        )
        m.submodules[f"words{start}"] = words
        read = words.read_port(domain="comb")
        write = words.write_port()
        m.d.comb += read.addr.eq(address)
        return delayed(m, read.data, lag - 1, name=f"word{start}_"), write

    def _butterfly(self, m, steers, kept, new, lane):
        """One lane: its sum goes out; returns what is stored, the first half or a difference."""
        leaving, passes, meets = steers
        total, rest = (
            Signal(signed(self.width), name=f"{name}{lane}", reset_less=True)
            for name in ("total", "rest")
        )
        m.d.sync += [total.eq(kept + new), rest.eq(kept - new)]
        kept = delayed(m, kept, 1, name=f"kept{lane}_")
        new = delayed(m, new, 1, name=f"new{lane}_")
        out = Mux(leaving, kept, Mux(passes, new, total))
        m.d.comb += self.o.payload[lane].eq(delayed(m, out, 1, name=f"out{lane}_"))
        stored = Signal(signed(self.width), name=f"stored{lane}")
        m.d.comb += stored.eq(Mux(meets, rest, new))
        return stored
