"""Sums whose second operand is chosen on its way in, in one LUT a bit with its carry.

Plumbing: no golden model of its own.
"""

from amaranth.hdl import Cat, Const, Instance, Module, Signal, signed
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out

from .target import family

SUM, REST = 0x96AA, 0x95AA  # INIT of a CCU2C: A + (B ^ C) where D is 1, else A; A - (B & C)


class SteeredSum(wiring.Component):
    """``a`` alone, ``a + b`` or ``a - b``, combinational.

    Yosys (0.70) gives the choice a LUT in front of each bit of an ECP5's carry chain, whose own LUT
    has two inputs left: the ECP5 body uses these.

    Parameters
    ----------
    width : int
        Bits of operands and of the sum, which wraps.

    Members
    -------
    a, b, o : In(signed(width)), In(signed(width)), Out(signed(width))
    minus, counts : In(1), In(1)
        Subtract ``b``; without the second ``o`` is ``a``, and ``minus`` must be 0.
    """

    def __init__(self, width: int) -> None:
        self.width = width
        shape = signed(width)
        super().__init__(
            {"a": In(shape), "b": In(shape), "minus": In(1), "counts": In(1), "o": Out(shape)}
        )

    def elaborate(self, platform):
        m = Module()
        # ones below the operands carry 1 into what is subtracted: its inverse, and 1
        a, n = Cat(Const(1, 1), self.a), self.width
        if family(platform) == "ecp5":
            b, minus, counts = Cat(self.minus, self.b), Cat(0, self.minus.replicate(n)), self.counts
            total = _chain(m, SUM, a, b, minus, Cat(1, counts.replicate(n)))
        else:
            other = (self.b ^ self.minus.replicate(n)) & self.counts.replicate(n)
            total = a.as_signed() + Cat(self.minus, other).as_signed()
        m.d.comb += self.o.eq(total[1:])
        return m


class SteeredRest(wiring.Component):
    """``a - b``, or ``a`` without ``counts``, combinational: see `SteeredSum`.

    Parameters and members as of it, but ``minus``.
    """

    def __init__(self, width: int) -> None:
        self.width = width
        shape = signed(width)
        super().__init__({"a": In(shape), "b": In(shape), "counts": In(1), "o": Out(shape)})

    def elaborate(self, platform):
        m = Module()
        counts = self.counts.replicate(self.width)
        if family(platform) == "ecp5":
            ones = Const(-1, self.width)
            m.d.comb += self.o.eq(_chain(m, REST, self.a, self.b, counts, ones, carry=1))
        else:
            m.d.comb += self.o.eq(self.a - (self.b & counts).as_signed())
        return m


def _chain(m, init, a, b, c, d, *, carry=0):
    """Sums of a chain of CCU2C, whose two LUTs have equal contents; as many bits as `a` has."""
    a_width = len(a)
    total = Signal(a_width + a_width % 2)
    a, b, c, d = (Cat(operand, Const(0, 1))[: len(total)] for operand in (a, b, c, d))
    for k in range(0, len(total), 2):
        after = Signal(name=f"carry{k + 2}")
        pins = {
            f"i_{pin}{half}": operand[k + half]
            for half in (0, 1)
            for pin, operand in zip("ABCD", (a, b, c, d), strict=True)
        }
        m.submodules[f"bits{k}"] = Instance(
            "CCU2C",
            **{f"p_INIT{half}": Const(init, 16) for half in (0, 1)},
            **{f"p_INJECT1_{half}": "NO" for half in (0, 1)},
            i_CIN=carry,
            o_COUT=after,
            o_S0=total[k],
            o_S1=total[k + 1],
            **pins,
        )
        carry = after
    return total[:a_width]
