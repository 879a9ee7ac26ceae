"""Wide registers by chunks: copies of what steers them, so that no net drives too many.

Plumbing: no golden model of its own.
"""

from amaranth.hdl import Cat, Signal, Value

CHUNK = 128  # bits of payload that one register steers: a wider fan-out costs 0.7 ns on an ECP5


def chunks(width: int, size=CHUNK) -> list[tuple[int, int]]:
    """Ranges (start, stop) of at most `size` bits that cover `width` bits."""
    return [(start, min(start + size, width)) for start in range(0, width, size)] or [(0, 0)]


def steered(width: int) -> list[tuple[int, int]]:
    """`chunks`, where there are several behind an empty one.

    The registers of the first are for the users of a flag: the gates behind those that steer wide
    data stand in the middle of it, far from everything else.
    """
    ranges = chunks(width)
    return [(0, 0), *ranges] if len(ranges) > 1 else ranges


def copies(payload, name: str, init: int = 0) -> list[Signal]:
    """One register for each range of `steered`; all always agree, and synthesis keeps them.

    A register that Yosys may merge with its copies is no use: see `gradnic.fpga.flow` for the
    attribute.
    """
    return [
        Signal(name=f"{name}{stop}", init=init, attrs={"keep_register": 1})
        for _, stop in steered(len(Value.cast(payload)))
    ]


def _stepped(m, thermometer, came, gone):
    """(bits below, bits above, a step up, a step down, signal of what comes next, for each bit)."""
    n, name = len(thermometer), thermometer.name
    rises, falls = (Signal(name=f"{name}_{way}") for way in ("rises", "falls"))
    m.d.comb += [rises.eq(came & ~gone), falls.eq(gone & ~came)]
    below, above = Cat(1, thermometer[:-1]), Cat(thermometer[1:], 0)
    return below, above, rises.replicate(n), falls.replicate(n), Signal(n, name=f"{name}_next")


def moved(m, thermometer: Signal, came, gone) -> Signal:
    """A thermometer (bit k: more than k) after one more came, or one has gone; or both: as it was.

    One LUT of five inputs a bit. Written with two conditions it would become a wide clock enable,
    behind three LUT more.
    """
    below, above, rises, falls, after = _stepped(m, thermometer, came, gone)
    m.d.comb += after.eq(above | (thermometer & ~falls) | (below & rises))
    return after


def healed(m, thermometer: Signal, came, gone) -> Signal:
    """`moved`, of a thermometer that is 0 most of the time; a queue has 6 LUT4 more on an ECP5.

    Without a step each bit follows two of three, itself and its neighbors. So a bit that changes by
    itself heals, but for those beside the last 1; with `moved` a queue that is empty would take
    any such bit for as many beats.
    """
    below, above, rises, falls, after = _stepped(m, thermometer, came, gone)
    stays = (below & above) | (thermometer & (below | above))
    m.d.comb += after.eq((below & rises) | (above & falls) | (stays & ~rises & ~falls))
    return after
