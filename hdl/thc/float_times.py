"""FP32 arithmetic of the decoders: integers to floats, and products rounded to nearest even."""

from amaranth.hdl import Cat, Module, Mux, Signal, signed
from amaranth.lib import data, wiring
from amaranth.lib.wiring import In, Out

from gradnic.interface.params import check_range

from ..primitive.multiplier import Multiplier
from ..primitive.names import signals
from ..stream.delays import delayed

Float = data.StructLayout({"mantissa": 24, "exponent": signed(11), "sign": 1, "zero": 1})


def unpacked(word):
    """An FP32 word as fields of `Float`; denormals count as zero, the word is finite."""
    return {
        "mantissa": Cat(word[:23], 1),
        "exponent": word[23:31],
        "sign": word[31],
        "zero": ~word[23:31].any(),
    }


class IntToFloat(wiring.Component):
    """A signed integer as sign, exponent and 24-bit mantissa, rounded to nearest even.

    Latency `latency` cycles, one per cycle, no handshake.

    Parameters
    ----------
    width : int
        Bits of the integer, 2 to 33.

    Members
    -------
    i, o : In(signed(width)), Out(Float)
        The exponent is biased by 127; the mantissa has its leading one.
    """

    def __init__(self, width: int) -> None:
        check_range("width", width, 2, 33)
        self.width = width
        self.n_steps = (width - 1).bit_length()
        self.latency = 5 + self.n_steps
        super().__init__({"i": In(signed(width)), "o": Out(Float)})

    def elaborate(self, platform):
        m = Module()
        size = 2**self.n_steps
        sign = Signal(reset_less=True)
        value = Signal(size, reset_less=True)
        m.d.sync += [
            sign.eq(self.i[-1]),
            value.eq(Mux(self.i[-1], -self.i, self.i)[: self.width]),
        ]
        # each step's flag is made a cycle ahead, from both values that may come
        flag = Signal(name="empty", reset_less=True)
        m.d.sync += flag.eq(value[size // 2 :] == 0)
        value = delayed(m, value, 1, name="positive")
        count = None
        for step in reversed(range(self.n_steps)):
            empty, top = flag, size - 2**step
            shifted = Signal(size, name=f"shifted{step}", reset_less=True)
            m.d.sync += shifted.eq(Mux(empty, value << 2**step, value))
            bits = Signal(self.n_steps - step, name=f"count{step}", reset_less=True)
            m.d.sync += bits.eq(Cat(empty, count) if count is not None else empty)
            if step:
                half = 2 ** (step - 1)
                flag = Signal(name=f"empty{step}", reset_less=True)
                m.d.sync += flag.eq(
                    Mux(empty, value[top - half : top] == 0, value[size - half :] == 0)
                )
            value, count = shifted, bits
        sign = delayed(m, sign, self.n_steps + 1, name="sign")
        kept, rest = (value[-24:], value[:-24]) if size >= 24 else (value << (24 - size), None)
        exponent = 127 + size - 1 - count
        # rounded up or not; a carry out of all ones makes the next power of two
        whole = Signal(24, reset_less=True)
        up = Signal(reset_less=True)
        placed = Signal(signed(11), reset_less=True)
        if rest is not None and len(rest):
            m.d.sync += up.eq(rest[-1] & (kept[0] | rest[:-1].any()))
        m.d.sync += [whole.eq(kept), placed.eq(exponent)]
        rounded = Signal(25, reset_less=True)
        biased, next_biased = (
            Signal(signed(11), name=name, reset_less=True) for name in ("biased", "next_biased")
        )
        m.d.sync += [rounded.eq(whole + up), biased.eq(placed), next_biased.eq(placed + 1)]
        result = Signal(Float, reset_less=True)
        m.d.sync += [
            result.mantissa.eq(Mux(rounded[24], 1 << 23, rounded)),
            result.exponent.eq(Mux(rounded[24], next_biased, biased)),
            result.sign.eq(delayed(m, sign, 2, name="sign_late")),
            result.zero.eq(delayed(m, ~value[-1], 2, name="zero")),
        ]
        m.d.comb += self.o.eq(result)
        return m


class Times(wiring.Component):
    """FP32 product, rounded to nearest even; zero and subnormal results are +0, too large ones Inf.

    Latency `latency` cycles, one per cycle, no handshake.

    Members
    -------
    a, b : In(Float)
    o : Out(32)
        FP32 bits.
    """

    latency = 10

    a: In(Float)
    b: In(Float)
    o: Out(32)

    def elaborate(self, platform):
        m = Module()
        m.submodules.times = times = Multiplier(24, 24)
        m.d.comb += [times.a.eq(self.a.mantissa), times.b.eq(self.b.mantissa)]
        added, exponent, next_exponent = (
            Signal(signed(12), name=name, reset_less=True)
            for name in ("added", "exponent", "next_exponent")
        )
        m.d.sync += added.eq(self.a.exponent + self.b.exponent)
        added = delayed(m, added, times.latency - 2, name="added")
        m.d.sync += [exponent.eq(added - 127), next_exponent.eq(added - 126)]
        sign = delayed(m, self.a.sign ^ self.b.sign, times.latency + 4, name="sign")
        zero = delayed(m, self.a.zero | self.b.zero, times.latency + 3, name="zero")

        # the product is in [1, 4): one place right if it is 2 or more
        kept = Signal(24, reset_less=True)
        half = Signal(reset_less=True)
        rest = Signal(7, reset_less=True)  # any of the bits below the half, by fours
        placed = Signal(signed(12), reset_less=True)
        high = times.p[47]
        m.d.sync += [
            kept.eq(Mux(high, times.p[24:], times.p[23:47])),
            half.eq(Mux(high, times.p[23], times.p[22])),
            rest.eq(Cat(*(times.p[k : min(k + 4, 22)].any() for k in range(0, 22, 4)),
                        high & times.p[22])),
            placed.eq(Mux(high, next_exponent, exponent)),
        ]  # fmt: skip
        held = Signal(24, reset_less=True)
        up = Signal(reset_less=True)
        ones, least = signals("ones least", reset_less=True)
        final = Signal(signed(12), reset_less=True)
        m.d.sync += [
            held.eq(kept),
            up.eq(half & (kept[0] | rest.any())),
            ones.eq(kept.all()),
            final.eq(placed),
            least.eq(placed == 0),
        ]
        rounded = Signal(25, reset_less=True)
        exponents = Signal(data.ArrayLayout(8, 2))
        # between the largest subnormal and the least normal number, FP32 rounds up from all ones
        to_least = Signal(reset_less=True)
        small, large = signals("small large", 2, reset_less=True)  # without and with
        m.d.sync += [
            rounded.eq(held + up),
            to_least.eq(least & ones),
            Cat(exponents).eq(Cat(final[:8], (final + 1)[:8])),
            small.eq(Cat(final < 1, final < 0)),
            large.eq(Cat(final > 254, final > 253)),
        ]
        carried = rounded[24]
        fraction = Signal(23, reset_less=True)
        number = Signal(8, reset_less=True)
        nothing, infinite = signals("nothing infinite", reset_less=True)
        m.d.sync += [
            fraction.eq(Mux(carried | to_least, 0, rounded[:23])),
            number.eq(Mux(to_least, 1, Mux(carried, exponents[1], exponents[0]))),
            nothing.eq(zero | (Mux(carried, small[1], small[0]) & ~to_least)),
            infinite.eq(Mux(carried, large[1], large[0])),
        ]
        word = Cat(Mux(infinite, 0, fraction), number | infinite.replicate(8), sign)
        m.d.comb += self.o.eq(delayed(m, Mux(nothing, 0, word), 1, name="word"))
        return m
