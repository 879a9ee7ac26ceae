"""Size of a packet's values as eight bits, while they stream by.

Golden model: `gradnic.models.transport.tag_score`.
"""

from amaranth.hdl import Cat, Const, Module, Mux, Signal, signed
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out
from amaranth.utils import ceil_log2

from ..stream.delays import delayed, delayed_flag

SUM_WIDTH = 28  # 4096 values of 16 bits


class Scorer(wiring.Component):
    """Largest exponent, or logarithm of the sum of |g|: one beat per cycle, no handshake.

    Twin of `max_score` and `sum_score` of `gradnic.models.transport.tag_score`. The score comes
    `latency` cycles after a packet's last beat; packets follow each other without a gap.

    Parameters
    ----------
    n_lanes : int
        Float32 values per beat; those that a packet does not fill must be +0.

    Members
    -------
    push, last, data : In(1), In(1), In(32 * n_lanes)
        A beat; last: the packet's.
    by_sum, unit : In(1), In(8)
        Sum instead of maximum, in units of 2**(unit - 127); constant while packets are inside.
    done, score : Out(1), Out(8)
    """

    def __init__(self, n_lanes: int) -> None:
        self.n_lanes = n_lanes
        self.latency = 3 + ceil_log2(n_lanes) + 1 + 5 + 1
        super().__init__(
            {
                "push": In(1),
                "last": In(1),
                "data": In(32 * n_lanes),
                "by_sum": In(1),
                "unit": In(8),
                "done": Out(1),
                "score": Out(8),
            }
        )

    def elaborate(self, platform):
        m = Module()
        exponents, sums = [], []
        for k in range(self.n_lanes):
            exponent, fixed = self._lane(m, self.data.word_select(k, 32), k)
            exponents.append(exponent)
            sums.append(fixed)
        lag = 3
        while len(sums) > 1:
            width, n = len(sums[0]) + 1, len(sums) // 2
            larger = [Signal(8, name=f"larger{k}_of{n}", reset_less=True) for k in range(n)]
            added = [Signal(width, name=f"sum{k}_of{n}", reset_less=True) for k in range(n)]
            for i, (a, b) in enumerate(zip(exponents[::2], exponents[1::2], strict=True)):
                m.d.sync += larger[i].eq(Mux(a > b, a, b))
            for i, (a, b) in enumerate(zip(sums[::2], sums[1::2], strict=True)):
                m.d.sync += added[i].eq(a + b)
            exponents, sums, lag = larger, added, lag + 1

        push = delayed_flag(m, self.push, lag, name="push")
        ends = delayed_flag(m, self.push & self.last, lag, name="ends")
        first = Signal(init=1)
        top = Signal(8, reset_less=True)
        total = Signal(SUM_WIDTH, reset_less=True)
        with m.If(push):
            m.d.sync += [
                first.eq(ends),
                top.eq(Mux(first | (exponents[0] > top), exponents[0], top)),
                total.eq(Mux(first, 0, total) + sums[0]),
            ]
        self._code(m, top, total, delayed_flag(m, ends, 1, name="summed"))
        return m

    def _lane(self, m, word, k):
        """Exponent, and |value| in whole units, 3 cycles later."""
        exponent = Signal(8, name=f"exponent{k}", reset_less=True)
        significand = Signal(16, name=f"significand{k}", reset_less=True)
        shift = Signal(signed(10), name=f"shift{k}", reset_less=True)
        coarse = Signal(16, name=f"coarse{k}", reset_less=True)
        nothing, most = (Signal(name=f"{name}{k}", reset_less=True) for name in ("nothing", "most"))
        fixed = Signal(16, name=f"fixed{k}", reset_less=True)
        m.d.sync += [
            exponent.eq(word[23:31]),
            significand.eq(Cat(word[8:23], 1)),
            shift.eq(self.unit + 15 - word[23:31]),
            nothing.eq((exponent == 0) | (~shift[-1] & shift[4:].any())),
            most.eq(shift[-1]),
            coarse.eq(significand >> (shift[2:4] << 2)),
            fixed.eq(
                Mux(
                    nothing,
                    0,
                    Mux(most, 0xFFFF, coarse >> delayed(m, shift[:2], 1, name=f"fine{k}")),
                )
            ),
        ]
        return delayed(m, exponent, 2, name=f"exponent_of{k}"), fixed

    def _code(self, m, top, total, done):
        """Shift the highest bit of the sum to bit 31 in five steps, then take the three behind."""
        value, place = Cat(Const(0, 32 - SUM_WIDTH), total), Const(SUM_WIDTH - 1, 5)
        for step in (16, 8, 4, 2, 1):
            small = ~value[32 - step :].any()
            shifted = Signal(32, name=f"shifted{step}", reset_less=True)
            highest = Signal(5, name=f"highest{step}", reset_less=True)
            m.d.sync += [
                shifted.eq(Mux(small, value << step, value)),
                highest.eq(place - Mux(small, step, 0)),
            ]
            value, place = shifted, highest
        little = delayed(m, Cat(total[:3], total[3:].any()), 5, name="little")
        top = delayed(m, top, 5, name="top")
        code = Mux(little[3], Cat(value[28:31], (place - 2)[:5]), little[:3])
        m.d.sync += [
            self.done.eq(delayed_flag(m, done, 5, name="coded")),
            self.score.eq(Mux(self.by_sum, code, top)),
        ]
