"""Second half of a THC worker's way up: rotated values become indices, by table and dice."""

from amaranth.hdl import Cat, Module, Mux, Signal, signed
from amaranth.lib import data, wiring
from amaranth.lib.wiring import In, Out

from gradnic.interface.params import check_least

from ..primitive.block_ram import BlockRAM
from ..primitive.multiplier import Multiplier
from ..primitive.same import same
from ..stream.delays import copied, delayed
from .scale import half_exponent

Cell = data.StructLayout({"lower": 8, "above": 8, "gap": 8})


class Quantize(wiring.Component):
    """One lane: stochastic rounding to the table's levels, `latency` cycles, no handshake.

    Clips at tF, multiplies into 1/256 table units, looks up the level below, and goes to the level
    above with the probability that keeps the mean, centered to 1/256 table unit.

    Parameters
    ----------
    width : int
        Bits of a rotated value, at least 8.
    levels : bool
        True: with the index comes its level.

    Members
    -------
    log4, t_fixed, unit : In(2), In(10), In(23)
        log4(B) - 3; the clip point in 1/256 sigma; KU = round(g * 2**24 / (2 * tF)). Constant.
    write_en, write_addr, write_data : In(1), In(8), In(Cell)
        Table: for each unit 0..g the lower index, the units above its value, the gap to the next.
    i : In(signed(width))
        A value as it leaves the transform.
    random : In(8)
        Must come `random_lag` cycles after its value.
    o : Out(8)
        Index. With `levels`, level : Out(8), its value in table units.
    """

    latency = 18
    random_lag = 12

    def __init__(self, width: int, *, levels: bool = False) -> None:
        check_least("width", width, 8)
        self.levels = levels
        super().__init__(
            {
                "log4": In(2),
                "t_fixed": In(10),
                "unit": In(23),
                "write_en": In(1),
                "write_addr": In(8),
                "write_data": In(Cell),
                "i": In(signed(width)),
                "random": In(8),
                "o": Out(8),
                **({"level": Out(8)} if levels else {}),
            }
        )

    def elaborate(self, platform):
        m = Module()
        (half,) = copied(m, 4 << self.log4, 1, name="half")
        shifts = copied(m, self.log4, 4, name="shift")
        (t_fixed,) = copied(m, self.t_fixed, 1, name="t_fixed")
        total = Signal(signed(len(self.i) + 1), reset_less=True)
        normal = Signal(signed(len(self.i) - 2), reset_less=True)
        m.d.sync += total.eq(self.i + half)
        size = -(-len(normal) // len(shifts))
        for k, shift in enumerate(shifts):
            part = slice(k * size, min((k + 1) * size, len(normal)))
            m.d.sync += normal[part].eq((total >> half_exponent(shift))[part])
        raised = Signal(signed(len(normal) + 1), reset_less=True)
        m.d.sync += raised.eq(normal + t_fixed)
        clipped = Signal(11, reset_less=True)
        twice = t_fixed << 1
        m.d.sync += clipped.eq(Mux(raised < 0, 0, Mux(raised > twice, twice, raised)))
        m.submodules.times = times = Multiplier(11, 23)
        m.d.comb += [times.a.eq(clipped), times.b.eq(self.unit)]
        u = Signal(16, reset_less=True)
        m.d.sync += u.eq((times.p + (1 << 15)) >> 16)

        m.submodules.table = table = BlockRAM(Cell.size, 256)
        m.d.comb += [
            *same(table, self, "write_en write_addr write_data"),
            table.read_addr.eq(u[8:]),
        ]
        cell = data.View(Cell, table.read_data)
        m.submodules.dice = dice = Multiplier(8, 9)
        m.d.comb += [dice.a.eq(cell.gap), dice.b.eq(Cat(1, self.random))]
        fraction = Cat(delayed(m, u[:8], 2, name="part"), cell.above)
        lag = dice.latency + 1
        closed = delayed(m, cell.gap == 0, dice.latency, name="closed")  # no level is above
        rolled = delayed(m, dice.p | closed.replicate(len(dice.p)), 1, name="rolled")
        fraction = delayed(m, fraction, lag, name="fraction")
        up = delayed(m, rolled <= (fraction << 1), 1, name="up")
        lower = delayed(m, cell.lower, lag + 1, name="lower")
        m.d.comb += self.o.eq(delayed(m, lower + up, 1, name="index"))
        if self.levels:
            below = delayed(m, u[8:], 2, name="units") - cell.above
            below = delayed(m, below[:8], lag + 1, name="below")
            gap = delayed(m, cell.gap, lag + 1, name="gap")
            level = below + Mux(up, gap, 0)
            m.d.comb += self.level.eq(delayed(m, level, 1, name="level"))
        return m
