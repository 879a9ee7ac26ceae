"""Notices a bit of a wide register that changes by itself.

Plumbing: no golden model of its own.
"""

from amaranth.hdl import Cat, Signal, Value

CHUNK = 32  # bits behind one register: two levels of LUTs, and two more behind those


def astray(m, pointers, moves, *, name: str = "pointers"):
    """Flag: a bit of `pointers` changed by itself since they last moved, two cycles ago or before.

    moves : flag, one of them moves in this cycle. What changes while they move every cycle, or the
    next one, is not noticed.
    """
    moved = Signal(name=f"{name}_moved")
    m.d.sync += moved.eq(moves)
    return strayed(m, Cat(pointers), ~moved, name=name)


def strayed(m, record, stands, *, name: str = "parity"):
    """Flag: the parity of `record` is another one than when it came to stand, a cycle ago.

    stands : flag, 1 from the second cycle of the value that is to stay until it may change again.
    Bits that change in that cycle, and two at once, are not noticed.
    """
    bits = Value.cast(record)
    starts = range(0, len(bits), CHUNK)
    parts, kept = Signal(len(starts), name=f"{name}_parts"), Signal(name=f"{name}_kept")
    stood = Signal(name=f"{name}_stood")
    m.d.sync += [parts.eq(Cat(bits[k : k + CHUNK].xor() for k in starts)), stood.eq(stands)]
    with m.If(~stood):
        m.d.sync += kept.eq(parts.xor())
    return stood & (parts.xor() != kept)


def uneven(m, flags):
    """Flag: an odd number of `flags` is 1, or was in a cycle before; it stays so until a reset.

    flags : an even number of them is 1 in each cycle, unless one has changed by itself.
    """
    astray, flag = Signal(name="astray"), Signal(name="stands")
    m.d.comb += flag.eq(astray | Cat(flags).xor())
    m.d.sync += astray.eq(flag)
    return flag
