"""Pipelined multiplier, for which an ECP5 uses the registers inside its multiplier blocks.

Plumbing: no golden model of its own.
"""

from amaranth.hdl import Cat, ClockSignal, Const, Instance, Module, Signal, signed, unsigned
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out

from .target import family

PIECE = 18  # operand bits of MULT18X18D
PIECES = {"xilinx": (26, 17), "intel": (27, 27)}  # unsigned operands of one DSP48E2, one Intel DSP


class Multiplier(wiring.Component):
    """Exact product of two integers: one per cycle, `latency` cycles later; no handshake, no reset.

    The portable body is a product behind registers. The ECP5 body uses MULT18X18D with its input,
    pipeline and output registers, which synthesis does not infer (Yosys 0.70); operands of more
    than 18 bits take two or four of them, whose products are added in two further stages. For
    xilinx and intel wide operands are cut into pieces that one multiplier takes, each product with
    three registers that it has inside, and added in the same two stages.

    Parameters
    ----------
    a_width, b_width : int
        Bits per operand, 1 to 36.
    is_signed : bool
        Both operands and the product are two's complement; else all are unsigned.

    Attributes
    ----------
    latency : int
        Cycles from operands to product: 3 if both operands have at most 18 bits, else 5.

    Members
    -------
    a, b : In(a_width), In(b_width)
    p : Out(a_width + b_width)
        Signed if ``is_signed``, as are ``a`` and ``b``.
    """

    def __init__(self, a_width: int, b_width: int, *, is_signed: bool = False) -> None:
        for name, width in (("a_width", a_width), ("b_width", b_width)):
            if not 1 <= width <= 2 * PIECE:
                raise ValueError(f"{name} must be 1 to {2 * PIECE}, not {width!r}")
        self.is_signed = is_signed
        self.latency = 3 if max(a_width, b_width) <= PIECE else 5
        shape = signed if is_signed else unsigned
        super().__init__(
            {
                "a": In(shape(a_width)),
                "b": In(shape(b_width)),
                "p": Out(shape(a_width + b_width)),
            }
        )

    def elaborate(self, platform):
        name = family(platform)
        if name == "ecp5":
            return self._ecp5()
        if name in PIECES and self.latency > 3:
            return self._in_pieces(*PIECES[name])
        return self._portable()

    def _in_pieces(self, a_piece, b_piece):
        m = Module()
        sums = [[], []]  # products at even places do not meet; those between them come second
        for a_at, a in enumerate(_cut(self.a, a_piece, self.is_signed)):
            for b_at, b in enumerate(_cut(self.b, b_piece, self.is_signed)):
                product = _registered(m, a, b, f"product{a_at}_{b_at}", 3)
                sums[(a_at + b_at) % 2].append(product << a_at * a_piece + b_at * b_piece)
        total = Signal.like(self.p, reset_less=True)
        halves = []
        for k, products in enumerate(sums):
            half = Signal(self.p.shape(), name=f"half{k}", reset_less=True)
            m.d.sync += half.eq(sum(products))
            halves.append(half)
        m.d.sync += total.eq(halves[0] + halves[1])
        m.d.comb += self.p.eq(total)
        return m

    def _portable(self):
        m = Module()
        m.d.comb += self.p.eq(_registered(m, self.a, self.b, "product", self.latency))
        return m

    def _ecp5(self):
        m = Module()
        products = {
            (a_at, b_at): self._mult18x18d(m, a, b)
            for a_at, a in enumerate(_cut(self.a, PIECE, self.is_signed))
            for b_at, b in enumerate(_cut(self.b, PIECE, self.is_signed))
        }
        low = products[0, 0]
        if len(products) == 1:
            m.d.comb += self.p.eq(low)
            return m
        # low and high do not overlap: 36 bits each; the two middle ones overlap both.
        middle = Signal(signed(2 * PIECE + 2), reset_less=True)
        outer = Signal(signed(4 * PIECE + 1), reset_less=True)
        total = Signal.like(self.p, reset_less=True)
        zero = Const(0, 1)
        m.d.sync += [
            middle.eq(products.get((0, 1), zero) + products.get((1, 0), zero)),
            outer.eq(Cat(low, products[1, 1]).as_signed() if (1, 1) in products else low),
            total.eq(outer + (middle << PIECE)),
        ]
        m.d.comb += self.p.eq(total)
        return m

    def _mult18x18d(self, m, a, b):
        """The product of two pieces, 3 cycles later."""
        is_signed = a.shape().signed or b.shape().signed
        product = Signal((signed if is_signed else unsigned)(2 * PIECE))
        args = {"i_CLK0": ClockSignal(), "i_CE0": 1, "i_RST0": 0}
        for register in ("INPUTA", "INPUTB", "PIPELINE", "OUTPUT"):
            args[f"p_REG_{register}_CLK"] = "CLK0"
        for name, piece in (("A", a), ("B", b)):
            args[f"i_SIGNED{name}"] = int(piece.shape().signed)
            args[f"i_SOURCE{name}"] = 0
            extended = Signal(piece.shape().__class__(PIECE, piece.shape().signed))
            m.d.comb += extended.eq(piece)
            for bit in range(PIECE):
                args[f"i_{name}{bit}"] = extended[bit]
                args[f"i_C{bit}"] = 0
        for bit in range(2 * PIECE):
            args[f"o_P{bit}"] = product[bit]
        m.submodules += Instance("MULT18X18D", **args)
        used = product[: len(a) + len(b)]  # what is above is known, and would only lengthen sums
        return used.as_signed() if is_signed else used


def _cut(operand, size, is_signed):
    """The operand in pieces of `size` bits, low one first; the last one has the sign, if any."""
    if len(operand) <= size:
        return [operand]
    high = operand[size:]
    return [operand[:size], high.as_signed() if is_signed else high]


def _registered(m, a, b, name, latency):
    """The product of two values, `latency` cycles later, in registers for a multiplier's own."""
    held_a = Signal(a.shape(), name=f"{name}_a", reset_less=True)
    held_b = Signal(b.shape(), name=f"{name}_b", reset_less=True)
    m.d.sync += [held_a.eq(a), held_b.eq(b)]
    product = held_a * held_b
    for stage in range(1, latency):
        held = Signal(product.shape(), name=f"{name}{stage}", reset_less=True, attrs={"use_dsp": 1})
        m.d.sync += held.eq(product)
        product = held
    return product
