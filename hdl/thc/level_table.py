"""Turns THC indices into levels as they are summed, and sums of 12 bits into 16."""

from amaranth.hdl import Array, Cat, Const, Module, Mux, Signal
from amaranth.lib import data, memory, stream, wiring
from amaranth.lib.wiring import In, Out

from gradnic.interface.params import check_power

from ..primitive.names import signals
from ..stream.beats import Beat
from .bit_packer import reversed_bits

WHOLE = 16  # parts that a beat is cut in: what a beat of levels is made of is some of them

LevelWrite = data.StructLayout({"enable": 1, "index": 8, "level": 8})
"""The level of an index, to be written while ``enable`` is 1 and no indices come."""


def _starts(n_parts):
    """Where a beat out begins in the newest beat in, if each takes so many parts; negative: in the
    one before.
    """
    found, start = [], 0
    while start not in found:
        found.append(start)
        start += n_parts
        start -= WHOLE if start + n_parts > WHOLE else 0
    return found


class LevelTable(wiring.Component):
    """Passes beats as they are, or looks up indices: of 4 bits each beat becomes two.

    Latency 1 cycle, 2 with indices of 2 to 8 bits; 1 beat of output per cycle. Indices are most
    significant first in their byte, one level per byte comes out, in the same order. Levels are
    looked up in LUT RAM, as a choice of 16 each takes 30 times as many LUT; 16 of them are written
    over and over, a level a cycle.

    Where sums are wide, each level has two bytes, the first of them 0, and a beat of indices
    becomes twice as many; three beats of sums of 12 bits become four of 16.

    Parameters
    ----------
    n_bytes : int
        Of a beat, a power of two from 4 to 128; with `wide` from 16.
    wide : bool
        True: sums may have more than 8 bits.
    bits : int
        4: all indices have 4 bits. 8: they have 2 to 8.

    Members
    -------
    levels : In(ArrayLayout(8, 16))
        With 4 bits. Must not change from 16 cycles before a beat of indices on until it has left.
    write, bits : In(LevelWrite), In(4)
        With 8 bits, for ``levels``. bits : of an index, 2 to 8; constant while beats are inside.
    code : In(2)
        With `wide`: 0, 1, 2 for sums of 8, 12, 16 bits. Constant from the cycle before a beat
        comes until it has left, as ``bits`` is.
    i : In(stream.Signature({data, last, expand, plain}))
        expand : indices. plain, with `wide`: the beat passes, whatever it is. Both are constant up
        to ``last``, which ends whole beats out.
    o : Out(stream.Signature(Beat(8 * n_bytes)))
    """

    def __init__(self, n_bytes: int, *, wide: bool = False, bits: int = 4) -> None:
        check_power("n_bytes", n_bytes, 16 if wide else 4, 128)
        if bits not in (4, 8):
            raise ValueError(f"bits must be 4 or 8, not {bits!r}")
        self.n_bytes, self.wide = n_bytes, wide
        self.many = bits == 8
        self.sizes = range(2, 9) if self.many else (4,)
        shape = data.StructLayout(
            {"data": 8 * n_bytes, "last": 1, "expand": 1} | ({"plain": 1} if wide else {})
        )
        table = {"levels": In(data.ArrayLayout(8, 16))}
        if bits == 8:
            table = {"write": In(LevelWrite), "bits": In(4)}
        super().__init__(
            {
                **table,
                **({"code": In(2)} if wide else {}),
                "i": In(stream.Signature(shape)),
                "o": Out(stream.Signature(Beat(8 * n_bytes))),
            }
        )

    def elaborate(self, platform):
        m = Module()
        i, o, n = self.i, self.o, self.n_bytes
        level = self._table(m)
        bits = Const(4)
        if self.many:
            bits = Signal(4, name="bits_held")
            m.d.sync += bits.eq(self.bits)
        wide = Const(0, 1)
        twelve = Signal()
        if self.wide:  # held here: what says so is far away, and ``ready`` waits for it
            code = Signal(2, name="code_held")
            m.d.sync += code.eq(self.code)
            wide = code != 0
            m.d.comb += twelve.eq(~i.p.expand & ~i.p.plain & (code == 1))
        # what the next beat out is made of, in parts of the beats in, bits in order of the stream
        now = reversed_bits(i.p.data)
        split = self.wide or self.many  # what becomes a beat may come in two
        before = Signal(8 * n, name="before", reset_less=True) if split else Const(0, 8 * n)
        at = Signal(5, init=WHOLE)
        after = Signal(6)
        n_parts = Signal(5)
        ready, ends = signals("ready ends")
        first = Signal(init=1)  # of a range; the next beat out is the last of one
        whole = Signal()
        both = Signal(16 * n)
        m.d.comb += both.eq(Cat(before, now))
        widths = {2 * size for size in self.sizes} | set(self.sizes if self.wide else ())
        indices = Signal(8 * n)
        m.d.comb += indices.eq(_window(at, both, widths))
        beyond = after + (n_parts << 1)  # where the beat after the next one ends
        fits = i.p.expand & (wide | (bits <= 4)) if self.many else i.p.expand
        m.d.comb += [
            n_parts.eq(Mux(i.p.expand, Mux(wide, bits, bits << 1), Mux(twelve, 12, WHOLE))),
            after.eq(at + n_parts),
            ends.eq(Mux(first, ~fits, whole)),  # of two beats out of the first one, or none
            i.ready.eq(ready & ends),
        ]
        with m.If(ready & i.valid):
            m.d.sync += [
                at.eq(Mux(ends, after - WHOLE, after)),
                whole.eq(Mux(ends, beyond > 3 * WHOLE, beyond > 2 * WHOLE)),
                first.eq(ends & i.p.last),
            ]
            if split:
                with m.If(ends):
                    m.d.sync += before.eq(now)
        chosen = []
        for k in range(n):
            fields = [_first_highest(indices, k, size) for size in self.sizes]
            chosen.append(Array(fields)[bits - self.sizes[0]] if self.many else fields[0])
        parts = {
            "valid": i.valid,
            "last": i.p.last & ends,
            "data": i.p.data,
            "kind": Cat(i.p.expand, Mux(i.p.expand, wide, twelve)) if self.wide else i.p.expand,
            **{f"chosen{k}": field for k, field in enumerate(chosen)},
        }
        if self.wide:
            parts["sums"] = Signal(6 * n, name="sums_now")
            m.d.comb += parts["sums"].eq(_window(at, both, {12}))
        leaves = o.ready | ~o.valid
        if self.many:  # which field, and what level it stands for: in a cycle each
            held = {name: Signal.like(part, name=name) for name, part in parts.items()}
            m.d.comb += ready.eq(leaves | ~held["valid"])
            with m.If(ready):
                m.d.sync += [held[name].eq(part) for name, part in parts.items()]
            parts = held
        else:
            m.d.comb += ready.eq(leaves)
        levels = [level(parts[f"chosen{k}"]) for k in range(n)]
        kinds = [parts["data"], Cat(levels)]
        if self.wide:  # one choice of four, and no choice behind another
            words = [_first_highest(parts["sums"], k, 12) for k in range(n // 2)]
            kinds.append(Cat(Cat(word[8:], Const(0, 4), word[:8]) for word in words))
            kinds.append(Cat(Cat(Const(0, 8), one) for one in levels[: n // 2]))
        with m.If(leaves):
            m.d.sync += [
                o.valid.eq(parts["valid"]),
                o.p.data.eq(_choice(parts["kind"], kinds)),
                o.p.last.eq(parts["last"]),
            ]
        return m

    def _table(self, m):
        """A function of an index: its level."""
        m.submodules.table = table = memory.Memory(
            shape=8, depth=256 if self.many else 16, init=[], attrs={"ram_style": "distributed"}
        )
        write = table.write_port()
        if self.many:
            m.d.comb += [
                write.en.eq(self.write.enable),
                write.addr.eq(self.write.index),
                write.data.eq(self.write.level),
            ]
        else:
            turn = Signal(4)
            m.d.sync += turn.eq(turn + 1)
            m.d.comb += [
                write.en.eq(1),
                write.addr.eq(turn),
                write.data.eq(self.levels.as_value().word_select(turn, 8)),
            ]

        def level(index):
            read = table.read_port(domain="comb")
            m.d.comb += read.addr.eq(index)
            return read.data

        return level


def _window(at, both, widths):
    """Parts of two beats from number `at` on: as many as the largest of `widths`. Of those that a
    smaller one does not reach, what comes there is left open.
    """
    size, parts = len(both) // (2 * WHOLE), []
    for k in range(max(widths)):
        starts = {WHOLE + start for width in widths if width > k for start in _starts(width)}
        low = min((start & -start).bit_length() - 1 for start in starts)
        high = 5 if len({start % WHOLE for start in starts}) < len(starts) else 4
        choice = dict.fromkeys(range(1 << high - low), max(starts))
        choice |= {(start >> low) % (1 << high - low): start for start in starts}
        words = [both[(start + k) * size :][:size] for start in choice.values()]
        parts.append(_choice(at[low:high], words))
    return Cat(parts)


def _choice(index, words):
    """One of 2**len(index) words, as choices of two: a LUT takes two steps of them."""
    if len(words) == 1:
        return words[0]
    half = len(words) // 2
    low, high = (_choice(index[:-1], some) for some in (words[:half], words[half:]))
    return Mux(index[-1], high, low)


def _first_highest(stream_bits, k, size):
    """Field `k` of so many bits each, the first the most significant one."""
    return Cat(stream_bits[size * k : size * (k + 1)][::-1])


class SumPacker(wiring.Component):
    """Four beats of sums of 16 bits become three of 12 in no time; or all pass as they are.

    Most significant byte first, as they leave; the twin of what `LevelTable` makes wide.

    Parameters
    ----------
    n_bytes : int
        Of a beat, a power of two from 16 to 128.

    Members
    -------
    on : In(1)
        Of the beat at ``i``; constant up to ``last``, which ends whole groups of four beats.
    i, o : In, Out(stream.Signature(Beat(8 * n_bytes)))
    """

    def __init__(self, n_bytes: int) -> None:
        check_power("n_bytes", n_bytes, 16, 128)
        self.n_bytes = n_bytes
        beats = stream.Signature(Beat(8 * n_bytes))
        super().__init__({"on": In(1), "i": In(beats), "o": Out(beats)})

    def elaborate(self, platform):
        m = Module()
        i, o, size = self.i, self.o, 2 * self.n_bytes
        turn = Signal(2)
        kept = Signal(3 * size, reset_less=True)  # what of the beat before has not left
        packed = []
        for k in range(0, 4 * size, 32):
            high, low, next_high, next_low = (i.p.data[k + 8 * j :][:8] for j in range(4))
            packed += [low[4:], high[:4], next_high[:4], low[:4], next_low]
        now = Cat(packed)
        joined = [
            i.p.data,
            Cat(kept, now[:size]),
            Cat(kept[size:], now[: 2 * size]),
            Cat(kept[2 * size :], now),
        ]
        m.d.comb += [
            o.p.data.eq(_choice(turn & self.on.replicate(2), joined)),
            o.p.last.eq(i.p.last),
            o.valid.eq(i.valid & (~self.on | (turn != 0))),
            i.ready.eq(o.ready | (self.on & (turn == 0))),
        ]
        with m.If(self.on & i.valid & i.ready):
            m.d.sync += [turn.eq(turn + 1), kept.eq(now)]
        return m
