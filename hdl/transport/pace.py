"""Pacing of a sender: a rate that congestion marks or round trips steer, and a credit of bytes.

Golden model: `gradnic.models.transport.pace`.
"""

from amaranth.hdl import Cat, Module, Mux, Signal, signed
from amaranth.lib import data, stream, wiring
from amaranth.lib.wiring import In, Out
from amaranth.utils import ceil_log2

from ..primitive.multiplier import Multiplier
from ..primitive.names import signals
from ..primitive.setting import setting

LINE = 1 << 16  # the line's rate
GAIN = 4
OFF, BY_MARKS, BY_ROUND_TRIP = range(3)

PaceRules = data.StructLayout({"rule": 2, "floor": 17, "step": 17, "low": 32, "high": 32})
"""Registers, see `gradnic.models.transport.pace.Pace`; floor 1 to 65536."""

Echo = data.StructLayout({"ce_share": 8, "round_trip": 32})


def complement(value):
    """One less than the negative of an unsigned value."""
    return ~Cat(value, 0).as_signed()


class Pace(wiring.Component):
    """Lets frames go at `rate` / 65536 of the line. An echo takes 7 cycles.

    Twin of `gradnic.models.transport.pace.Pace`. Each cycle adds n_bytes * rate / 65536 bytes to
    the credit, up to ``burst``, at the rate of the cycle before; a frame goes while the credit is
    not below 0, three cycles after the one before at the soonest. In the cycle in which the rate
    rises, and while a frame is being paid for, the credit may pass ``burst`` by up to 5 * n_bytes.

    Parameters
    ----------
    n_bytes : int
        What the line takes per cycle, a power of two.

    Members
    -------
    rules : In(PaceRules)
    burst : In(16)
        Bytes.
    echoes : In(stream.Signature(Echo))
        Marked share in 1/256 and round trip that the receiver's answers tell.
    frames : In(stream.Signature(16))
        Bytes of a frame that wants to go; taken when it may.
    rate : Out(17)
    """

    def __init__(self, n_bytes: int) -> None:
        if n_bytes < 1 or n_bytes & (n_bytes - 1):
            raise ValueError(f"n_bytes must be a power of two, not {n_bytes!r}")
        self.n_bytes = n_bytes
        super().__init__(
            {
                "rules": In(PaceRules),
                "burst": In(16),
                "echoes": In(stream.Signature(Echo)),
                "frames": In(stream.Signature(16)),
                "rate": Out(17, init=LINE),
            }
        )

    def elaborate(self, platform):
        m = Module()
        self._credit(m)
        m.submodules.product = product = Multiplier(17, 17)
        # they outlive a reset of what contexts of a card share: the network is as it was
        alpha, held = setting(m, 17, "alpha"), setting(m, 17, "held", init=LINE)
        clock = Signal(3)
        m.d.comb += self.rate.eq(held)
        before = Signal(32)
        has_before = Signal()
        # what is added to the rate: `change`, and one more where that is the complement of a cut
        change = Signal(signed(19))
        cuts = Signal()
        wanted = Signal(signed(20))
        rules, echo = self.rules, self.echoes.p
        rate = Signal.like(self.rate)  # the multiplier's, which stands where it must
        m.d.sync += rate.eq(self.rate)
        share = echo.ce_share << 8 - GAIN
        m.d.comb += [
            product.a.eq(rate),
            product.b.eq(alpha),
            self.echoes.ready.eq(clock == 6),
        ]
        # an echo stands while the clock runs
        slow, fine = signals("slow fine", reset_less=True)
        below, longer = signals("below longer", reset_less=True)
        compared = (
            (slow, echo.round_trip, rules.high),
            (below, rules.low, echo.round_trip),
            (longer, echo.round_trip, before),
        )
        for flag, one, other in compared:
            self._greater(m, flag, one, other)
        m.d.sync += [
            wanted.eq((Cat(1, self.rate, 0).as_signed() + Cat(cuts, change).as_signed()) >> 1),
            fine.eq(below | ~(has_before & longer)),
        ]
        with m.If(self.echoes.valid):
            m.d.sync += clock.eq(Mux(clock == 6, 0, clock + 1))
        with m.If((clock == 0) & self.echoes.valid & (rules.rule == BY_MARKS)):
            m.d.sync += alpha.eq(alpha + share - (alpha >> GAIN))
        with m.If(clock == 4):
            m.d.sync += [change.eq(0), cuts.eq(0)]
            with m.If(rules.rule == BY_MARKS):
                marked = echo.ce_share.any()
                m.d.sync += [
                    change.eq(Mux(marked, complement(product.p >> 17), rules.step)),
                    cuts.eq(marked),
                ]
            with m.If(rules.rule == BY_ROUND_TRIP):
                m.d.sync += [
                    before.eq(echo.round_trip),
                    has_before.eq(1),
                    change.eq(Mux(slow, complement(self.rate >> 3),
                                  Mux(fine, rules.step, complement(self.rate >> 4)))),
                    cuts.eq(slow | ~fine),
                ]  # fmt: skip
        with m.If((clock == 6) & (rules.rule != OFF)):
            least = Mux(wanted < rules.floor, rules.floor, wanted)
            m.d.sync += held.eq(Mux(wanted > LINE, LINE, least))
        with m.If(rules.rule == OFF):
            m.d.sync += held.eq(LINE)
        return m

    def _greater(self, m, flag, one, other):
        """`flag` after two cycles: `one` is greater than `other`; in halves, for short carries."""
        above, same, below = signals("above same below", reset_less=True)
        half = len(one) // 2
        m.d.sync += [
            above.eq(one[half:] > other[half:]),
            same.eq(one[half:] == other[half:]),
            below.eq(one[:half] > other[:half]),
            flag.eq(above | same & below),
        ]

    def _credit(self, m):
        """Credit in 1/65536 bytes. A frame is paid for two cycles after it went, and only then may
        the next one go; one carry chain from register to register.
        """
        width = 16 + 16 + 2
        credit = Signal(signed(width))
        added = self.rate << ceil_log2(self.n_bytes)
        most = self.burst << 16
        limit = Signal(signed(width + 1), reset_less=True)  # from there on the credit is full
        owes, pays, paid = signals("owes pays paid")
        full = Signal(reset_less=True)
        price = Signal(16, reset_less=True)
        change = Signal(signed(width))
        m.d.comb += self.frames.ready.eq(~(credit[-1] | owes | pays))
        m.d.sync += [
            owes.eq(self.frames.valid & self.frames.ready),
            pays.eq(owes),
            paid.eq(pays),
            full.eq(credit > limit),
            price.eq(self.frames.payload),
            change.eq(added - (Mux(owes, price, 0) << 16)),
            limit.eq(most - added),
            credit.eq(credit + change),
        ]
        with m.If(full & ~owes & ~pays & ~paid):
            m.d.sync += credit.eq(most)
