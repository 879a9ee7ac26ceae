"""FP32 addition, rounded to nearest even: the adder of the reduce unit."""

from amaranth.hdl import Cat, Module, Mux, Signal
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out

NAN = 0x7FC00000  # every NaN result
N_FRAME = 28  # bits of a sum: carry, 24 of the mantissa, guard, round, sticky


class FloatAdd(wiring.Component):
    """Sum of two FP32 words, to nearest even: IEEE-754 with subnormals, every NaN is 0x7FC00000.

    Latency `latency` cycles, one sum per cycle, no handshake, no reset. Equal to ``fp.add RNE`` of
    SMT-LIB for all 2^64 pairs, by proof. An operand's mantissa has 24 bits: with the hidden one, or
    shifted left by one place where the exponent is 0, so that subnormals need no other path.

    Members
    -------
    a, b, o : In(32), In(32), Out(32)
        FP32 bits.
    """

    latency = 12

    a: In(32)
    b: In(32)
    o: Out(32)

    def elaborate(self, platform):
        m = Module()

        def held(name, value, shape=None):
            register = Signal(shape or len(value), name=name, reset_less=True)
            m.d.sync += register.eq(value)
            return register

        # 1: which is larger, and what is special
        a, b = held("a1", self.a), held("b1", self.b)
        less = held("less", self.a[:31] < self.b[:31])
        apart_a = held("apart_a", self.a[23:31] - self.b[23:31], 8)
        apart_b = held("apart_b", self.b[23:31] - self.a[23:31], 8)
        ones = [held(f"ones_{n}", x[23:31].all()) for n, x in (("a", self.a), ("b", self.b))]
        some = [held(f"some_{n}", x[:23].any()) for n, x in (("a", self.a), ("b", self.b))]

        # 2: the larger magnitude in front
        def mantissa(x):
            normal = x[23:31].any()
            return Mux(normal, Cat(x[:23], 1), Cat(0, x[:23]))

        exponent = held("exponent2", Mux(less, b, a)[23:31])
        sign = held("sign2", Mux(less, b, a)[31])
        large = held("large2", Mux(less, mantissa(b), mantissa(a)))
        small = held("small2", Mux(less, mantissa(a), mantissa(b)))
        apart = held("apart2", Mux(less, apart_b, apart_a))
        minus = held("minus2", a[31] ^ b[31])
        nan = (ones[0] & some[0]) | (ones[1] & some[1]) | (ones[0] & ones[1] & (a[31] ^ b[31]))
        nan, infinite = held("nan2", nan), held("infinite2", ones[0] | ones[1])

        def along(stage):
            """The values that only travel, one stage on."""
            nonlocal exponent, sign, nan, infinite
            exponent, sign = held(f"exponent{stage}", exponent), held(f"sign{stage}", sign)
            nan, infinite = held(f"nan{stage}", nan), held(f"infinite{stage}", infinite)

        # 3 and 4: the smaller one to its place; what falls off is one sticky bit
        far, by8 = apart[5:].any(), apart[3:5]
        frame = Cat(0, 0, 0, small)
        coarse = Mux(by8[1], Mux(by8[0], frame >> 24, frame >> 16), Mux(by8[0], frame >> 8, frame))
        lost = Mux(
            by8[1],
            Mux(by8[0], small[:21].any(), small[:13].any()),
            by8[0] & small[:5].any(),
        )
        large, minus = held("large3", large), held("minus3", minus)
        fine = held("fine3", apart[:3])
        value = held("value3", Mux(far, 0, coarse), 27)
        lost = held("lost3", Mux(far, small.any(), lost))
        along(3)
        shifted = Signal(27)
        m.d.comb += shifted.eq(value >> fine)
        below = Cat((value[k] & (fine > k)) for k in range(7)).any()
        large, minus = held("large4", large), held("minus4", minus)
        value = held("value4", Cat(shifted[0] | below | lost, shifted[1:]))
        along(4)

        # 5: the sum, never below 0
        frame = Cat(0, 0, 0, large, 0)
        total = held("total5", Mux(minus, frame - value, frame + value)[:N_FRAME])
        minus = held("minus5", minus)
        along(5)

        # 6: which group of four has the first one, and each group's first one; 7: its place
        groups = [total[k : k + 4] for k in range(N_FRAME - 4, -1, -4)]
        first = [g.any() & ~total[N_FRAME - 4 * k :].any() for k, g in enumerate(groups)]
        first = held("first6", Cat(first))
        inner = [Mux(g[3], 0, Mux(g[2], 1, Mux(g[1], 2, 3))) for g in groups]
        inner = [held(f"inner6_{k}", x, 2) for k, x in enumerate(inner)]
        total, empty = held("total6", total), held("empty6", minus & (total == 0))
        along(6)
        place = Cat(
            *(Cat(f & x[i] for f, x in zip(first, inner, strict=True)).any() for i in range(2)),
            *(Cat(first[k] for k in range(7) if k >> i & 1).any() for i in range(3)),
        )
        total, place = held("total7", total), held("place7", place)
        sign = sign & ~empty  # x - x is +0
        along(7)

        # 8: to the left as far as the exponent allows: subnormal results end at exponent 0
        total = held("total8", total)
        shift = held("shift8", Mux(exponent < place, exponent[:5], place))
        along(8)
        # 9 and 10
        by16 = Mux(shift[3], total << 24, total << 16)
        by8 = Mux(shift[3], total << 8, total)
        total = held("total9", Mux(shift[4], by16, by8)[:N_FRAME])
        shift = held("shift9", shift)
        along(9)
        total = held("total10", (total << shift[:3])[:N_FRAME])
        placed = held("placed10", (exponent + 1 - shift)[:8])
        along(10)

        # 11: rounding; a carry out of the fraction is the next exponent, and out of that Inf
        kept, rest = total[4:], total[:4]
        over = infinite | (kept[23] & placed.all())
        up = held("up11", rest[3] & (kept[0] | rest[:3].any()) & ~over)
        fraction = Mux(over, 0, kept[:23])
        word = held("word11", Cat(fraction, Mux(over, 255, Mux(kept[23], placed, 0))[:8]))
        along(11)
        # 12
        word = held("word12", Mux(nan, NAN, Cat((word + up)[:31], sign)))
        m.d.comb += self.o.eq(word)
        return m
