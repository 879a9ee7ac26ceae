"""Small parts of free-running pipelines: delays, thermometers and the room behind them."""

from amaranth.hdl import Cat, Module, Shape, Signal, Value
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out

ROOM_LAG = 3  # cycles from a unit's start to a `Room.open` that knows of it


def delayed(m, value, cycles, *, name="delayed"):
    """`value` as it was `cycles` cycles ago, through registers without reset."""
    for k in range(cycles):
        register = Signal(Shape.cast(Value.cast(value).shape()), name=f"{name}{k}", reset_less=True)
        m.d.sync += register.eq(value)
        value = register
    return value


def delayed_flag(m, flag, cycles, *, name="flag"):
    """One-bit `flag` as it was `cycles` cycles ago, 0 after reset."""
    for k in range(cycles):
        register = Signal(name=f"{name}{k}")
        m.d.sync += register.eq(flag)
        flag = register
    return flag


def thermometer(m, count, n_lanes, *, name="below"):
    """Mask of the bytes of a beat whose number is less than `count` was 2 cycles ago.

    count : unsigned value of log2(4 * n_lanes) bits. The mask has one plane of lanes for each of
    the four bytes of a lane. Two steps of one LUT a bit: lanes first, then the bytes within one.
    """
    above = Signal(n_lanes, name=f"{name}_above", reset_less=True)
    here = Signal(n_lanes, name=f"{name}_here", reset_less=True)
    ones = Signal(2, name=f"{name}_ones", reset_less=True)
    lane = count[2:]
    m.d.sync += [
        above.eq(Cat(lane > k for k in range(n_lanes))),
        here.eq(Cat(lane == k for k in range(n_lanes))),
        ones.eq(count[:2]),
    ]
    result = Signal(4 * n_lanes, name=name, reset_less=True)
    m.d.sync += result.eq(
        Cat(above | (here & (ones > byte).replicate(n_lanes)) for byte in range(4))
    )
    return result


class Room(wiring.Component):
    """Says whether one more unit may start: counts what units hold of a store.

    A unit takes all that it may ever need when it starts, and gives it back when it is gone, so
    that a unit once started never waits for room. ``open`` is a register that lags behind by
    `ROOM_LAG` cycles; the store must have room for what starts in between.

    Parameters
    ----------
    size : int
        Places in the store.
    largest : int
        Places of the largest unit.
    smallest : int
        Places of the smallest unit, one of which can start in each cycle.

    Members
    -------
    take, give : In(range(largest + 1))
        Places taken and given back in this cycle.
    open : Out(1)
        A unit may start in this cycle.
    """

    def __init__(self, size, *, largest=1, smallest=1):
        self.most = size - largest - ROOM_LAG * smallest
        if self.most < 0:
            raise ValueError(f"size must be at least {size - self.most}, not {size!r}")
        places = range(largest + 1)
        self.used = Signal(range(size + 1))
        super().__init__({"take": In(places), "give": In(places), "open": Out(1)})

    def elaborate(self, platform):
        m = Module()
        change = Signal(Shape(len(self.take) + 1, signed=True))
        m.d.sync += [
            change.eq(self.take - self.give),
            self.used.eq(self.used + change),
            self.open.eq(self.used <= self.most),
        ]
        return m
