"""Small parts of free-running pipelines: delays, thermometers and the room behind them."""

from amaranth.hdl import Cat, Module, Shape, Signal, Value
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out

from .streams import Slice

ROOM_LAG = 5  # cycles from a unit's start to a `Room.open` that knows of it


def delayed(m, value, cycles, *, name="delayed"):
    """`value` as it was `cycles` cycles ago, through registers without reset."""
    for k in range(cycles):
        register = Signal(Shape.cast(Value.cast(value).shape()), name=f"{name}{k}", reset_less=True)
        m.d.sync += register.eq(value)
        value = register
    return value


def step(m, name, source, shape):
    """One more register stage of a stream: returns (payload to fill from source.p, its output).

    The caller drives the payload combinationally; valid and ready are connected here.
    """
    m.submodules[name] = part = Slice(shape)
    m.d.comb += [part.i.valid.eq(source.valid), source.ready.eq(part.i.ready)]
    return part.i.p, part.o


def current(m, name, source, shape, *, end, may_load=1):
    """Hold the unit that is being worked on: returns (valid, payload, load, next payload).

    The next unit is loaded from stream `source` in the cycle of `end`, or when there is none, if
    `may_load`; both are comb values. Users set what they count per unit where ``load`` is 1, after
    everything else, so that no path runs from a unit's fields to the end of the one before.
    """
    ahead, stream = step(m, f"{name}_ahead", source, shape)
    m.d.comb += ahead.eq(source.p)
    valid, load = Signal(name=f"{name}_valid"), Signal(name=f"{name}_load")
    held = Signal(shape, name=name, reset_less=True)
    m.d.comb += [load.eq(stream.valid & may_load & (~valid | end)), stream.ready.eq(load)]
    m.d.sync += valid.eq(load | (valid & ~end))
    with m.If(load):
        m.d.sync += held.eq(stream.p)
    return valid, held, load, stream.p


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
        taken, given = Signal.like(self.take), Signal.like(self.give)
        change = Signal(Shape(len(self.take) + 1, signed=True))
        m.d.sync += [
            taken.eq(self.take),
            given.eq(self.give),
            change.eq(taken - given),
            self.used.eq(self.used + change),
            self.open.eq(self.used <= self.most),
        ]
        return m
