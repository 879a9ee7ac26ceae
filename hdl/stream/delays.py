"""Values a number of cycles later, and copies of registers.

Plumbing: no golden model of its own.
"""

from amaranth.hdl import Module, Mux, Signal, Value
from amaranth.lib import data, wiring
from amaranth.lib.wiring import In, Out

from gradnic.interface.params import check_least

from ..primitive.block_ram import BlockRAM
from ..primitive.target import dense
from .slice import Slice


def delayed(m, value, cycles: int, *, name: str = "delayed"):
    """`value` as it was `cycles` cycles ago, through registers without reset; of the same shape."""
    shape = value.shape() if isinstance(value, data.View) else Value.cast(value).shape()
    for k in range(cycles):
        register = Signal(shape, name=f"{name}{k}", reset_less=True)
        m.d.sync += register.eq(value)
        value = register
    return value


class Delay(wiring.Component):
    """`i` as it was `cycles` cycles ago, 4 or more, no reset: registers, or a ring in block RAM on
    a dense target. Members: i, o : In(width), Out(width).
    """

    LEAST = 4  # cycles

    def __init__(self, width: int, cycles: int) -> None:
        check_least("cycles", cycles, self.LEAST)
        self.width, self.cycles = width, cycles
        super().__init__({"i": In(width), "o": Out(width)})

    def elaborate(self, platform):
        m = Module()
        if not dense(platform):
            m.d.comb += self.o.eq(delayed(m, self.i, self.cycles))
            return m
        # the word that was written cycles - 2 ago is read, and then overwritten
        period = self.cycles - 1
        m.submodules.ring = ring = BlockRAM(self.width, period)
        place = Signal(range(period), reset_less=True)
        m.d.sync += [
            place.eq(Mux(place == period - 1, 0, place + 1)),
            ring.write_addr.eq(place),
        ]
        m.d.comb += [
            ring.write_en.eq(1),
            ring.write_data.eq(self.i),
            ring.read_addr.eq(place),
            self.o.eq(ring.read_data),
        ]
        return m


def late(m, value, cycles: int, *, name: str):
    """`delayed` for a wide value or many cycles, in a part of its own: see `Delay`."""
    shape = value.shape() if isinstance(value, data.View) else None
    value = Value.cast(value)
    m.submodules[f"{name}_delay"] = delay = Delay(len(value), cycles)
    m.d.comb += delay.i.eq(value)
    return data.View(shape, delay.o) if shape else delay.o


def step(m, name: str, source, shape, *, half_rate: bool = False):
    """One more register stage of a stream: returns (payload to fill from source.p, its output).

    The caller drives the payload combinationally; valid and ready are connected here. half_rate :
    as of `Slice`.
    """
    m.submodules[name] = part = Slice(shape, half_rate=half_rate)
    m.d.comb += [part.i.valid.eq(source.valid), source.ready.eq(part.i.ready)]
    return part.i.p, part.o


def delayed_flag(m, flag, cycles: int, *, name: str = "flag") -> Signal:
    """One-bit `flag` as it was `cycles` cycles ago, 0 after reset."""
    for k in range(cycles):
        register = Signal(name=f"{name}{k}")
        m.d.sync += register.eq(flag)
        flag = register
    return flag


def registers(m, flags, values, k):
    """({name: `delayed_flag`}, {name: `delayed`}) of a beat's signals, in its register `k`."""
    return (
        {name: delayed_flag(m, flag, 1, name=f"{name}_at{k}") for name, flag in flags.items()},
        {name: delayed(m, value, 1, name=f"{name}_at{k}") for name, value in values.items()},
    )


def copied(m, value, n: int, *, name: str = "copy") -> list[Signal]:
    """`n` registers that hold `value` of the cycle before, and that synthesis keeps apart."""
    copies = []
    for k in range(n):
        shape = Value.cast(value).shape()
        copy = Signal(shape, name=f"{name}_copy{k}", attrs={"keep_register": 1})
        m.d.sync += copy.eq(value)
        copies.append(copy)
    return copies


def voted(m, after, name: str):
    """`after` a cycle later, 0 after reset: two of three registers say it, so that one that
    changes by itself heals in a cycle. Each holds it in a way of its own, so that no tool takes one
    for another.
    """
    n, said = len(after), []
    for k, flips in enumerate((0, (1 << n) - 1, sum(1 << bit for bit in range(0, n, 2)))):
        held = Signal(n, name=f"{name}{k}", init=flips)
        m.d.sync += held.eq(after ^ flips)
        said.append(held ^ flips)
    a, b, c = said
    return (a & b) | (a & c) | (b & c)
