"""First half of a THC worker's way up: floats over their block's norm, as fixed point."""

from amaranth.hdl import Cat, Const, Module, Mux, Signal, signed, unsigned
from amaranth.lib import data, wiring
from amaranth.lib.wiring import In, Out

from ..primitive.multiplier import Multiplier
from ..primitive.names import signals
from ..stream.delays import copied, delayed, late

F = 8  # fraction bits at sigma = 1

Factor = data.StructLayout({"factor": 17, "offset": signed(11), "silent": 1})


def half_exponent(log4):
    """h = log2(B) / 2 of a block of 64 << 2 * log4 elements."""
    return log4 + 3


def _offset_by_factor(exponent):
    return 285 - F - exponent


def _offset_by_norm(exponent, log4):
    return exponent + (32 - F) - half_exponent(log4)


def _silent(exponent):
    """A norm of 0, a denormal one, Inf or NaN."""
    return (exponent == 0) | (exponent == 255)


class Reciprocal(wiring.Component):
    """What scales a block: a 17-bit factor and an exponent offset, one block per cycle.

    A value is (its 17-bit mantissa times the factor) >> (offset - its exponent). The factor is
    floor(2**39 / mantissa of the norm), by a divider of two stages for a quotient bit. With
    ``tensor`` the word is not a norm but the tensor's factor S = sqrt(d) / l: nothing is divided.

    Members
    -------
    log4, tensor : In(2), In(1)
        Constant while blocks are inside.
    word : In(32)
        FP32 bits of a block's agreed norm, or S.
    result : Out(Factor)
        ``latency`` cycles later. Silent where the norm is 0 (or denormal), Inf or NaN.
    """

    latency = 36

    log4: In(2)
    tensor: In(1)
    word: In(32)
    result: Out(Factor)

    def elaborate(self, platform):
        m = Module()
        exponent = self.word[23:31]
        divisor = Signal(24, reset_less=True)
        m.d.sync += divisor.eq(Cat(self.word[:23], 1))
        # 2**39 / divisor, divisor in [2**23, 2**24): 17 quotient bits, from 2**16 down to 2**0
        remainder, quotient = Const(1 << 23, 25), Const(0, 17)
        for bit in range(17):
            difference = delayed(m, remainder - divisor, 1, name=f"difference{bit}_")
            remainder, quotient, divisor = (
                delayed(m, value, 1, name=f"{name}{bit}_")
                for name, value in (
                    ("remainder", remainder), ("quotient", quotient), ("divisor", divisor))
            )  # fmt: skip
            fits = ~difference[-1]
            left = Mux(fits, difference, remainder)[:24]
            remainder, quotient, divisor = (
                delayed(m, value, 1, name=f"{name}{bit}_next")
                for name, value in (
                    ("remainder", Cat(0, left)), ("quotient", Cat(fits, quotient)[:17]),
                    ("divisor", divisor))
            )  # fmt: skip
        by_factor, by_norm = (
            delayed(m, offset, 1, name=name)
            for name, offset in (
                ("by_factor", _offset_by_factor(exponent)),
                ("by_norm", _offset_by_norm(exponent, self.log4)),
            )
        )
        offset = Mux(self.tensor, by_factor, by_norm)
        mantissa = delayed(m, self.word[8:23], 1, name="mantissa")
        odd = delayed(m, _silent(exponent), 1, name="odd")
        known = late(m, Cat(mantissa, odd, offset), self.latency - 2, name="known")
        mantissa, odd, offset = Cat(known[:15], 1), known[15], known[16:].as_signed()
        result = Signal(Factor, reset_less=True)
        m.d.sync += [
            result.factor.eq(Mux(self.tensor, mantissa, quotient)),
            result.offset.eq(offset),
            result.silent.eq(odd),
        ]
        m.d.comb += self.result.eq(result)
        return m


class SerialReciprocal(wiring.Component):
    """What `Reciprocal` gives, a bit of the factor a cycle.

    Members
    -------
    start, word : In(1), In(32)
        The word stands until the result is used.
    log4, tensor, result : as of `Reciprocal`
        There `latency` cycles behind ``start``, until the next one.
    """

    latency = 18

    log4: In(2)
    tensor: In(1)
    start: In(1)
    word: In(32)
    result: Out(Factor)

    def elaborate(self, platform):
        m = Module()
        exponent, result = self.word[23:31], self.result
        remainder = Signal(25, reset_less=True)
        quotient = Signal(17, reset_less=True)
        left = Signal(range(18))
        difference = remainder - Cat(self.word[:23], 1)
        fits = ~difference[-1]
        with m.If(self.start):
            m.d.sync += [remainder.eq(1 << 23), left.eq(17)]
        with m.Elif(left != 0):
            m.d.sync += [
                remainder.eq(Cat(0, Mux(fits, difference, remainder)[:24])),
                quotient.eq(Cat(fits, quotient)),
                left.eq(left - 1),
            ]
        m.d.comb += [
            result.factor.eq(Mux(self.tensor, Cat(self.word[8:23], 1), quotient)),
            result.offset.eq(
                Mux(self.tensor, _offset_by_factor(exponent), _offset_by_norm(exponent, self.log4))
            ),
            result.silent.eq(_silent(exponent)),
        ]
        return m


class Scale(wiring.Component):
    """One lane: an FP32 value becomes fixed point with 8 fraction bits, `latency` cycles later.

    Rounds half away from zero, saturates at 2**(h + 8); denormals are 0. No handshake, no reset.

    Members
    -------
    log4 : In(2)
        log4(B) - 3, constant.
    word, factor, offset, negate : In(32), In(17), In(signed(11)), In(1)
        The value, its block's factor and offset, and whether the sign diagonal turns it.
    o : Out(signed(16))
    """

    latency = 10

    log4: In(2)
    word: In(32)
    factor: In(17)
    offset: In(signed(11))
    negate: In(1)
    o: Out(signed(16))

    def elaborate(self, platform):
        m = Module()
        exponent = self.word[23:31]
        m.submodules.times = times = Multiplier(17, 17)
        m.d.comb += [times.a.eq(Cat(self.word[7:23], 1)), times.b.eq(self.factor)]

        # while the product is made: which shift, and the cases in which there is none
        shift = Signal(signed(12), reset_less=True)
        nothing, negative = signals("nothing negative", reset_less=True)
        m.d.sync += [
            shift.eq(self.offset - exponent),
            nothing.eq(exponent == 0),
            negative.eq(self.word[31] ^ self.negate),
        ]
        amount = Signal(6, reset_less=True)  # shift - 1: the last bit out rounds
        zero, full = signals("zero full", reset_less=True)
        m.d.sync += [
            amount.eq((shift - 1)[:6]),
            zero.eq(nothing | (shift >= 62)),
            full.eq(shift < 1),
        ]
        amount = delayed(m, amount, times.latency - 2, name="amount")
        zero = delayed(m, zero, times.latency - 2, name="zero")
        full = delayed(m, full, times.latency - 2, name="full")
        negative = delayed(m, negative, times.latency - 1, name="negative")

        value = times.p
        for turn, low in enumerate((4, 2, 0)):
            shifted = Signal(34, name=f"shifted{turn}", reset_less=True)
            m.d.sync += shifted.eq(value >> (amount[low : low + 2] << low))
            value = shifted
            amount, zero, full, negative = (
                delayed(m, s, 1, name=f"{name}{turn}")
                for name, s in (("a", amount), ("z", zero), ("f", full), ("n", negative))
            )
        rounded = Signal(34, reset_less=True)
        low = Signal(15, reset_less=True)
        above = Signal(reset_less=True)
        (log4,) = copied(m, self.log4, 1, name="log4")
        # the limit is a power of two: at or above it exactly if one of the bits from it up is set
        m.d.sync += [
            rounded.eq((value + 1) >> 1),
            low.eq(rounded[:15]),
            above.eq((rounded >> (half_exponent(log4) + F)).any()),
        ]
        zero, full, negative = (
            delayed(m, s, 2, name=f"{name}3")
            for name, s in (("z", zero), ("f", full), ("n", negative))
        )
        magnitude = Signal(unsigned(15), reset_less=True)
        limit = Signal(15)
        m.d.comb += limit.eq(1 << (3 + F) << log4)
        sign = Signal(reset_less=True)
        m.d.sync += [
            magnitude.eq(Mux(zero, 0, Mux(full | above, limit, low))),
            sign.eq(negative),
        ]
        turned = Mux(sign, -magnitude, magnitude)
        m.d.comb += self.o.eq(delayed(m, turned, 1, name="turned"))
        return m
