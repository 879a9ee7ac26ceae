"""Small parts of free-running pipelines: delays, thermometers and the room behind them.

Plumbing: no golden model of its own.
"""

from amaranth.hdl import Cat, Module, Mux, Shape, Signal
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out

from ..primitive.names import signals
from .delays import copied, delayed, delayed_flag
from .steering import moved

ROOM_LAG = 5  # cycles from a unit's start to a `Room.open` that knows of it, and one more
LAG = ROOM_LAG + 1  # `admit` tells a room in the next cycle, and its flags meet in a register
AHEAD = 4  # units admitted before they start: what sustains one per cycle


def current(m, name, source, *, ends):
    """Move from unit to unit: returns (valid, load).

    valid : there is a unit. load : the next one is taken from stream `source` in this cycle.
    ends : comb value: the present unit ends in this cycle, or there is none.

    Users set what they count per unit from ``source.p`` where ``load`` is 1, after everything else,
    so that no path runs from a unit's fields to the end of the one before. Since ``load`` comes
    late in its cycle, the stream carries only what is needed at once; the rest waits in a
    `CreditQueue`.
    """
    valid, load = Signal(name=f"{name}_valid"), Signal(name=f"{name}_load")
    m.d.comb += [load.eq(source.valid & ends), source.ready.eq(ends)]
    m.d.sync += valid.eq(load | (valid & ~ends))
    return valid, load


def credit(
    m: Module,
    n: int,
    *,
    take: Signal,
    give,
    none: bool = False,
    gate: int = 1,
    copies: int = 0,
    name: str = "credits",
) -> Signal:
    """Flag: one of `n` credits is left. Flag `take` takes one in this cycle, `give` gives one back.

    What is given back counts from the second cycle on. With `none` there is none to begin with.
    The flag wants `gate` of the cycle before, too. A thermometer, so that nothing is compared, and
    one cycle old: `take` comes late, and reaches the flag, which is a register, but not `n` bits.

    With `copies`, for users far away: a list of so many registers, a cycle older still, which do
    not offer the last two credits of at least 3, and know no `gate`.
    """
    left = Signal(n, init=0 if none else -1, name=name)
    kept = {"keep_register": 1}  # `n` bits hang on them, and others may have registers of the same
    taken, given = (Signal(name=f"{name}_{flag}", attrs=kept) for flag in ("taken", "given"))
    now = moved(m, left, given, taken)
    m.d.sync += [taken.eq(take), given.eq(give), left.eq(now)]
    if copies:
        return copied(m, left[2], copies, name=f"{name}_free")
    free = Signal(init=not none, name=f"{name}_free")
    m.d.sync += free.eq((now[1:2].any() | (now[0] & ~take)) & gate)
    return free


def entering(m: Module, part, queue, depth: int) -> Signal:
    """Flag: a beat of ``part.i`` enters lanes that never wait, on their way to `queue`.

    It has room for all of them, `depth`, and gives ``part.o``.
    """
    m.submodules.queue = queue
    wiring.connect(m, queue.o, wiring.flipped(part.o))
    go = Signal()
    free = credit(m, depth, take=go, give=part.o.valid & part.o.ready)
    m.d.comb += [go.eq(part.i.valid & free), part.i.ready.eq(free)]
    return go


def thermometer(m, count, n_lanes, *, name: str = "below"):
    """Mask of the bytes of a beat whose number is less than `count` was 3 cycles ago.

    count : unsigned value of log2(4 * n_lanes) bits. The mask has one plane of lanes for each of
    the four bytes of a lane. Two copies of the count for four lanes each, then two steps of one LUT
    a bit: lanes first, then the bytes within one.
    """
    above = Signal(n_lanes, name=f"{name}_above", reset_less=True)
    here = Signal(n_lanes, name=f"{name}_here", reset_less=True)
    near = n_lanes if n_lanes <= 16 else 8  # lanes of one register: 32 lie all over the device
    copies = []
    for start in range(0, n_lanes, 4):
        kept = {"keep_register": 1}
        copy, other = (
            Signal.like(count, name=f"{name}_{part}{start}", reset_less=True, attrs=kept)
            for part in ("count", "other")
        )
        copies.append(copy)
        m.d.sync += [copy.eq(count), other.eq(count)]
        for k in range(start, start + 4):
            m.d.sync += [above[k].eq(copy[2:] > k), here[k].eq(other[2:] == k)]
    low = []
    for copy in copies[near // 4 - 1 :: near // 4]:
        kept = {} if near == n_lanes else {"keep_register": 1}
        ones = Signal(2, name=f"{name}_ones{len(low) or ''}", reset_less=True, attrs=kept)
        m.d.sync += ones.eq(copy[:2])
        low.append(ones)
    result = Signal(4 * n_lanes, name=name, reset_less=True)
    m.d.sync += result.eq(
        Cat(
            above | (here & Cat((ones > byte).replicate(near) for ones in low)) for byte in range(4)
        )
    )
    return result


def more_than(places):
    """What `admit` wants to know of a number of places: bit k says that it is more than k + 1.

    Written out: comparisons would be carry chains.
    """
    low, many = places[:3], places[3:].any()
    return Cat(many | (low > k) for k in range(1, LAG))


class Room(wiring.Component):
    """Says whether one more unit may start: counts what units hold of a store.

    Plumbing: no golden model of its own.

    A unit takes all that it may ever need when it starts, and gives it back when it is gone, so
    that a unit once started never waits for room. ``open`` is a register that lags behind by
    ``lag`` cycles; the store must have room for what starts in between: a place a cycle. Units may
    not follow faster than that, even those that break off (`admit`).

    Parameters
    ----------
    size : int
        Places in the store.
    largest : int
        Places of the largest unit.
    smallest : int
        Places of the smallest unit, one of which can start in each cycle.
    lag : int
        `ROOM_LAG`, or more if ``take`` is told later than the unit starts.

    Members
    -------
    take, give : In(range(largest + 1))
        Places taken and given back in this cycle.
    open : Out(1)
        A unit may start in this cycle.
    """

    def __init__(
        self, size: int, *, largest: int = 1, smallest: int = 1, lag: int = ROOM_LAG
    ) -> None:
        self.most = size - largest - lag * smallest
        if self.most < 0:
            raise ValueError(f"size must be at least {size - self.most}, not {size!r}")
        places = range(largest + 1)
        self.used = Signal(range(size + 1))
        super().__init__({"take": In(places), "give": In(places), "open": Out(1)})

    def elaborate(self, platform):
        m = Module()
        taken = Signal.like(self.take)
        given = Signal.like(self.give)
        change = Signal(Shape(len(self.take) + 1, signed=True))
        m.d.sync += [
            taken.eq(self.take),
            given.eq(self.give),
            change.eq(taken - given),
            self.used.eq(self.used + change),
            self.open.eq(self.used <= self.most),
        ]
        return m


def admit(m, needs, rooms, *, free: int = 1):
    """Flag: the next unit of stream `needs` has its room from this cycle on.

    needs.p : places that the unit takes of the rooms, under their names, and ``more``, `more_than`
    of the most of them. rooms : {name: `Room`} with a lag of `LAG`; one that `needs` does not name
    gives one place. free : flag, a unit may be admitted.

    The next unit follows when as many cycles have passed as this one took places, at most `LAG`.
    So one that announces much and breaks off after its first beat cannot make the next one overrun
    a store; where each beat takes a place, this holds up nothing. Users admit units some time
    before they start, since the flag that ends a unit is the latest of its cycle.
    """
    all_open, goes = signals("all_open goes")
    pause = Signal(LAG - 1)
    m.d.comb += [
        needs.ready.eq(all_open & ~pause[0] & free),
        goes.eq(needs.valid & needs.ready),
    ]
    m.d.sync += [
        all_open.eq(Cat(room.open for room in rooms.values()).all()),
        pause.eq(Mux(goes, needs.p.more, pause >> 1)),
    ]
    went = delayed_flag(m, goes, 1, name="went")
    took = delayed(m, needs.p, 1, name="took")
    for name, room in rooms.items():
        m.submodules[f"{name}_room"] = room
        places = took[name] if name in needs.p.shape().members else 1
        m.d.comb += room.take.eq(Mux(went, places, 0))
    return goes


def admitted(m, needs, rooms, *, ends, gate: int = 1):
    """Flag, a register: there is an admitted unit (`admit`) whose end is still to come.

    ends : flag, a unit ends; only where there is one. gate : the flag wants this one, too, of the
    cycle before. Up to `AHEAD` units are admitted.
    """
    goes = Signal()
    free = credit(m, AHEAD, take=goes, give=ends, name="ahead")
    m.d.comb += goes.eq(admit(m, needs, rooms, free=free))
    return credit(m, AHEAD, take=ends, give=goes, none=True, gate=gate, name="admitted")
