"""Walsh-Hadamard transform as a stream: a block of elements in, its transform out, no bubble."""

from amaranth.hdl import Array, Cat, Module, Mux, Signal, signed
from amaranth.lib import data, memory, stream, wiring
from amaranth.lib.wiring import In, Out
from amaranth.utils import ceil_log2

from .pipeline import copied, delayed, delayed_flag

BLOCKS = (64, 256, 1024, 4096)
GROUP = 2  # lanes that share a memory, and the registers that steer it


def check_shape(lanes, block):
    """ValueError unless a worker's circuit can be built with so many lanes and such a block."""
    if lanes not in (4, 8, 16, 32):
        raise ValueError(f"lanes must be 4, 8, 16 or 32, not {lanes!r}")
    if block not in BLOCKS:
        raise ValueError(f"block must be 64, 256, 1024 or 4096, not {block!r}")


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

    def __init__(self, lanes, block=1024, *, in_width=15, width=21):
        if lanes not in (2, 4, 8, 16, 32, 64):
            raise ValueError(f"lanes must be a power of two from 2 to 64, not {lanes!r}")
        if block not in BLOCKS:
            raise ValueError(f"block must be 64, 256, 1024 or 4096, not {block!r}")
        if not 2 <= in_width <= width:
            raise ValueError(f"in_width must be 2 to {width} bits, not {in_width!r}")
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
            part = _Across(self.lanes, self.widths[stage], self.widths[stage + 1], span)
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
            delayed = Signal(name=f"valid{k}")
            m.d.sync += delayed.eq(valid)
            valid, elements = delayed, results
        m.d.comb += [self.o.valid.eq(valid), Cat(self.o.payload).eq(Cat(elements))]
        return m


class _Across(wiring.Component):
    """Butterflies between beats that are `span` apart; a stage of `Hadamard`.

    Sums leave as the second half of the span arrives, differences in the `span` cycles after it:
    the first half of what follows takes at least as long, so that the two never meet.
    """

    def __init__(self, lanes, in_width, width, span):
        self.span, self.width = span, width
        super().__init__(
            {
                "skip": In(1),
                "i": In(stream.Signature(data.ArrayLayout(signed(in_width), lanes))),
                "o": Out(stream.Signature(data.ArrayLayout(signed(width), lanes))),
            }
        )

    def elaborate(self, platform):
        m = Module()
        span, lanes = self.span, len(self.i.payload)
        place = Signal(ceil_log2(span))  # of the beat that arrives, within its half
        second = Signal()  # it belongs to the second half
        leaving = Signal()  # differences are leaving
        leaving_place = Signal.like(place)
        last = place == span - 1
        with m.If(self.i.valid & ~self.skip):
            m.d.sync += [place.eq(place + 1), second.eq(second ^ last)]
        with m.If(self.i.valid & ~self.skip & second & last):
            m.d.sync += [leaving.eq(1), leaving_place.eq(0)]
        with m.Elif(leaving):
            m.d.sync += [
                leaving.eq(leaving_place != span - 1),
                leaving_place.eq(leaving_place + 1),
            ]
        meets = self.i.valid & ~self.skip & second
        stores = self.i.valid & ~self.skip
        uses_kept, uses_new = meets | leaving, meets | (self.i.valid & self.skip)
        # below four beats what was written must be there at once; above, registers fit between
        lag = 1 if span < 4 else 2
        flags = delayed(m, Cat(uses_kept, uses_new, meets), lag - 1, name="flags")
        reads = Mux(leaving, leaving_place, place)
        arrived = delayed(m, Cat(self.i.payload), lag, name="arrived")
        for start in range(0, lanes, GROUP):
            stop = min(start + GROUP, lanes)
            (steers,), (address,) = (
                copied(m, value, 1, name=f"{name}{start}")
                for name, value in (("steers", flags), ("reads", reads))
            )
            words = memory.Memory(shape=(stop - start) * self.width, depth=span, init=[])
            m.submodules[f"words{start}"] = words
            read, write = words.read_port(domain="comb"), words.write_port()
            word = delayed(m, read.data, lag - 1, name=f"word{start}_")
            stored = [
                self._butterfly(m, steers, word.word_select(lane - start, self.width),
                                arrived.word_select(lane, len(arrived) // lanes), lane)
                for lane in range(start, stop)
            ]  # fmt: skip
            m.d.comb += [
                read.addr.eq(address),
                write.data.eq(delayed(m, Cat(stored), lag - 1, name=f"stored{start}_")),
            ]
            (written,) = copied(m, delayed(m, place, 2 * lag - 2), 1, name=f"place{start}")
            (writes,) = copied(m, delayed_flag(m, stores, 2 * lag - 2), 1, name=f"stores{start}")
            m.d.comb += [write.addr.eq(written), write.en.eq(writes)]
        m.d.sync += self.o.valid.eq(delayed_flag(m, uses_kept | uses_new, lag, name="goes"))
        return m

    def _butterfly(self, m, steers, kept, arrived, lane):
        """One lane: its sum goes out; returns what is stored, the first half or a difference."""
        uses_kept, uses_new, meets = steers
        kept, new = kept.as_signed(), Signal(signed(self.width), name=f"new{lane}")
        m.d.comb += new.eq(arrived.as_signed())
        m.d.sync += self.o.payload[lane].eq(Mux(uses_kept, kept, 0) + Mux(uses_new, new, 0))
        # kept - new or new: the inverted bits' one more comes in as a carry
        inverted = Cat(meets, new ^ meets.replicate(self.width))
        difference = Cat(meets, Mux(meets, kept, 0)) + inverted
        return difference[1 : self.width + 1]
