"""Values of a few bits each, packed without gaps, most significant bit first; and the way back."""

from amaranth.hdl import Array, Cat, Const, Module, Mux, Signal
from amaranth.lib import data, wiring
from amaranth.lib.wiring import In, Out

from gradnic.interface.params import check_least

from ..primitive.names import signals
from ..stream.delays import copied, delayed, delayed_flag

UNITS = 8  # a beat out is eight units of one bit per lane
GROUP = 16  # bits that one copy of a register steers


def reversed_bits(value):
    """Bits of `value`, with those of each byte in reverse: a bit stream that fills bytes from
    their top becomes one that counts upward, and back.
    """
    return Cat(value[i ^ 7] for i in range(len(value)))


def _check_lanes(lanes) -> None:
    check_least("lanes", lanes, 2)
    if lanes % 2:
        raise ValueError(f"lanes must be a multiple of 2, not {lanes!r}")


def _turned(value, n):
    """The bits of `value`, each `n` places further up, the last ones first."""
    return Cat(value[-n:], value[:-n]) if n else value


class BitPacker(wiring.Component):
    """Packs a beat of `lanes` values into a bit stream, in beats of `lanes` bytes.

    The first value's top bit is the top bit of byte 0, as in THC's reference code. A beat in
    gives `bits` / 8 of a beat out, `latency` cycles later at the earliest; nothing can stall it.
    What is packed must be a whole number of beats out before `bits` changes.

    Parameters
    ----------
    lanes : int
        Values per beat, a multiple of 2.

    Members
    -------
    bits : In(4)
        Bits of a value, 1 to 8; constant while beats are inside.
    valid, values : In(1), In(ArrayLayout(8, lanes))
    done, merged, octets : Out(1), Out(1), Out(8 * lanes)
        A beat is full (``done``), or one came in that did not fill one (``merged``).
    """

    latency = 5

    def __init__(self, lanes: int) -> None:
        _check_lanes(lanes)
        self.lanes = lanes
        super().__init__(
            {
                "bits": In(4),
                "valid": In(1),
                "values": In(data.ArrayLayout(8, lanes)),
                "done": Out(1),
                "merged": Out(1),
                "octets": Out(8 * lanes),
            }
        )

    def elaborate(self, platform):
        m = Module()
        lanes, size = self.lanes, UNITS * self.lanes
        # bits in order of the stream, as if they were the low bits of a number
        dense = Signal(size, reset_less=True)
        choices = Array(
            Cat(
                self.values[p // bits][bits - 1 - p % bits] if p < lanes * bits else Const(0, 1)
                for p in range(size)
            )
            for bits in range(1, 9)
        )
        kinds = [list(choice) for choice in choices]
        for start in range(0, size, UNITS):
            (width,) = copied(m, (self.bits - 1)[:3], 1, name=f"width{start}_")
            part = Array(Cat(kind[start : start + UNITS]) for kind in kinds)
            m.d.sync += dense[start : start + UNITS].eq(part[width])
        arrives = delayed_flag(m, self.valid, 1, name="arrives")

        base = Signal(3)
        total = Signal(4)
        m.d.comb += total.eq(base + self.bits)
        with m.If(arrives):
            m.d.sync += base.eq(total)
        base_before = delayed(m, base, 1, name="held_base")
        full_before = delayed_flag(m, arrives & total[3], 1, name="fills")
        here_before = delayed_flag(m, arrives, 1, name="follows")
        full = delayed_flag(m, full_before, 1, name="full")
        here = delayed_flag(m, here_before, 1, name="here")
        # turned by the base: first by half a beat or not, then by up to three units
        half, turned = (Signal(size, name=name, reset_less=True) for name in ("half", "turned"))
        for start in range(0, size, GROUP):
            part = slice(start, start + GROUP)
            by_half = Signal(name=f"by_half{start}", attrs={"keep_register": 1})
            with m.If(arrives):
                m.d.sync += by_half.eq(total[2])
            (by,) = copied(m, base[:2], 1, name=f"by{start}")
            m.d.sync += [
                half[part].eq(Array(_turned(dense, n * lanes)[part] for n in (0, 4))[by_half]),
                turned[part].eq(Array(_turned(half, n * lanes)[part] for n in range(4))[by]),
            ]

        kept, out = signals("kept out", size, reset_less=True)
        for unit in range(UNITS):
            part = slice(unit * lanes, (unit + 1) * lanes)
            is_after = unit >= base_before
            (after,) = copied(m, is_after, 1, name=f"after{unit}_")
            # what lies before the base belongs to the next beat, if this one overflows
            (keeps,) = copied(m, here_before & (is_after | full_before), 1, name=f"keeps{unit}_")
            m.d.sync += out[part].eq(Mux(after, turned[part], kept[part]))
            with m.If(keeps):
                m.d.sync += kept[part].eq(turned[part])
        m.d.sync += [self.done.eq(delayed_flag(m, full, 1, name="full"))]
        m.d.sync += [self.merged.eq(delayed_flag(m, here & ~full, 1, name="merges"))]
        m.d.comb += self.octets.eq(delayed(m, reversed_bits(out), 1, name="octets"))
        return m


class BitUnpacker(wiring.Component):
    """Takes a bit stream, in beats of 2 * `lanes` bytes, apart into values of 8, 12 or 16 bits.

    Full rate out: a beat of `lanes` values per cycle for as long as beats in are at hand.

    Parameters
    ----------
    lanes : int
        Values per beat, a multiple of 2.

    Members
    -------
    code : In(2)
        0, 1, 2 for 8, 12, 16 bits; constant while beats are inside.
    available, word, take : In(1), In(16 * lanes), Out(1)
        A beat is at hand; the one that was taken 2 cycles ago; and: it is used up in this cycle.
    open : In(1)
        A beat out may be produced in this cycle.
    produces, done, values : Out(1), Out(1), Out(ArrayLayout(16, lanes))
        A beat out is produced; it is there `latency` cycles later.
    """

    latency = 5
    SIZES = (2, 3, 4)  # quarters of a beat in that a beat out takes, by code

    def __init__(self, lanes: int) -> None:
        _check_lanes(lanes)
        self.lanes = lanes
        super().__init__(
            {
                "code": In(2),
                "available": In(1),
                "word": In(16 * lanes),
                "take": Out(1),
                "open": In(1),
                "produces": Out(1),
                "done": Out(1),
                "values": Out(data.ArrayLayout(16, lanes)),
            }
        )

    def elaborate(self, platform):
        m = Module()
        lanes, quarter = self.lanes, 4 * self.lanes
        size = Signal(3)
        m.d.sync += size.eq(self.code + 2)
        # quarters left in the beat before, which are its last ones
        left = Signal(3)
        enough = Signal()
        after = Signal(3)
        m.d.comb += [
            self.produces.eq(self.open & (enough | self.available)),
            self.take.eq(self.open & ~enough & self.available),
            after.eq(left + Mux(enough, 0, 4) - size),
        ]
        with m.If(self.produces):
            m.d.sync += [left.eq(after), enough.eq(after >= size)]
        size_in = len(self.word)
        # a register more than the sums need: what decides and what obeys lie far apart
        takes = delayed_flag(m, self.take, 1, name="takes")
        word = reversed_bits(self.word)
        previous = Signal(size_in, reset_less=True)
        window = Signal(2 * size_in, reset_less=True)
        dense = Signal(size_in, reset_less=True)
        m.d.sync += window.eq(Cat(previous, word))
        held = delayed(m, left[:2], 2, name="held")  # fewer than 4 where a beat begins
        for start in range(0, size_in, GROUP):
            part = slice(start, start + GROUP)
            (took,) = copied(m, takes, 1, name=f"took{start}_")
            with m.If(took):
                m.d.sync += previous[part].eq(word[part])
            (holds,) = copied(m, held, 1, name=f"holds{start}_")
            m.d.sync += dense[part].eq(
                Array((window >> ((4 - n) * quarter))[part] for n in range(4))[holds]
            )
        for lane in range(lanes):
            shapes = Array(
                Cat(dense[width * lane : width * (lane + 1)][::-1]) for width in (8, 12, 16, 16)
            )
            (code,) = copied(m, self.code, 1, name=f"code{lane}")
            m.d.comb += self.values[lane].eq(delayed(m, shapes[code], 1, name=f"value{lane}_"))
        m.d.comb += self.done.eq(delayed_flag(m, self.produces, self.latency, name="inside"))
        return m
