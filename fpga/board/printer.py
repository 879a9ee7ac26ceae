"""Parts of an on-board test: decimal counters, and lines of text with the counters in them."""

import re

from amaranth.hdl import Array, Cat, Const, Module, Mux, Signal
from amaranth.lib import memory, stream, wiring
from amaranth.lib.wiring import In, Out

ESCAPE = 0x80  # characters from here on stand for a digit or for a letter of the verdict
VERDICTS = ("PASS", "FAIL", "HANG")


class Decimal(wiring.Component):
    """Counts in decimal, and stops at all nines.

    n_digits : int, at least 1.

    Members
    -------
    count, clear : In(1). Clear wins.
    value : Out(4 * n_digits), a digit in 4 bits, the lowest first.
    """

    def __init__(self, n_digits):
        if n_digits < 1:
            raise ValueError(f"n_digits must be at least 1, not {n_digits!r}")
        self.n_digits = n_digits
        super().__init__({"count": In(1), "clear": In(1), "value": Out(4 * n_digits)})

    def elaborate(self, platform):
        m = Module()
        digits = [self.value.word_select(k, 4) for k in range(self.n_digits)]
        nines = Signal(self.n_digits)
        m.d.comb += nines.eq(Cat(digit == 9 for digit in digits))
        with m.If(self.clear):
            m.d.sync += self.value.eq(0)
        with m.Elif(self.count & ~nines.all()):
            for k, digit in enumerate(digits):
                with m.If(nines[:k].all()):
                    m.d.sync += digit.eq(Mux(nines[k], 0, digit + 1))
        return m


class Printer(wiring.Component):
    """Sends one of several lines of text, with counters and a verdict filled in as they stand.

    Parameters
    ----------
    lines : list of str, ASCII. ``{name}`` stands for the digits of counter `name`, and
        ``{verdict}`` for PASS, FAIL or HANG. A line ends with CR and LF, which are added.
    counters : dict of name to number of decimal digits; at most 124 digits together.

    Members
    -------
    start : In(1), with ``line`` : In, which one; ignored while a line is being sent.
    verdict : In(2), index in `VERDICTS`. ``verdict`` and counters must stand still meanwhile.
    idle : Out(1), low from the cycle after ``start`` until all characters have been taken.
    o : Out(stream.Signature(8))
    <name> : In(4 * digits), value of each counter as `Decimal` gives it.
    """

    def __init__(self, lines, counters):
        self.counters = counters
        self.glyphs = {}  # (name, digit) or ("verdict", letter): character code
        for name, n_digits in counters.items():
            for k in range(n_digits):
                self.glyphs[name, k] = ESCAPE + len(self.glyphs)
        for k in range(4):
            self.glyphs["verdict", k] = ESCAPE + len(self.glyphs)
        if len(self.glyphs) > 128:
            raise ValueError(f"counters must have 124 digits at most, not {len(self.glyphs) - 4}")
        self.text, self.starts = [], []
        for line in lines:
            self.starts.append(len(self.text))
            self.text += [*self._encode(line + "\r\n"), 0]
        super().__init__(
            {
                "start": In(1),
                "line": In(range(len(lines))),
                "verdict": In(range(len(VERDICTS))),
                "idle": Out(1),
                "o": Out(stream.Signature(8)),
                **{name: In(4 * n_digits) for name, n_digits in counters.items()},
            }
        )

    def _encode(self, line):
        for part in re.split(r"(\{\w+\})", line):
            if part[:1] != "{":
                yield from part.encode("ascii")
            elif part == "{verdict}":
                yield from (self.glyphs["verdict", k] for k in range(4))
            elif part[1:-1] in self.counters:
                digits = reversed(range(self.counters[part[1:-1]]))
                yield from (self.glyphs[part[1:-1], k] for k in digits)
            else:
                raise ValueError(f"{part} must name a counter or be {{verdict}}")

    def elaborate(self, platform):
        m = Module()
        m.submodules.text = text = memory.Memory(shape=8, depth=len(self.text), init=self.text)
        read = text.read_port()
        glyphs = [
            Cat(getattr(self, name).word_select(k, 4), Const(ord("0") >> 4, 4))
            for name, n_digits in self.counters.items()
            for k in range(n_digits)
        ]
        for k in range(4):
            letters = Array(Const(ord(verdict[k]), 8) for verdict in VERDICTS)
            glyphs.append(letters[self.verdict])
        glyph = Signal(8)
        where = Signal(range(len(self.text)))
        m.d.comb += read.addr.eq(where)
        m.d.sync += glyph.eq(Array(glyphs)[read.data[:7]])
        with m.FSM():
            with m.State("IDLE"):
                m.d.comb += self.idle.eq(1)
                with m.If(self.start):
                    starts = Array(Const(start, len(where)) for start in self.starts)
                    m.d.sync += where.eq(starts[self.line])
                    m.next = "READ"
            with m.State("READ"):
                m.next = "GLYPH"
            with m.State("GLYPH"):
                m.next = "CHOOSE"
            with m.State("CHOOSE"):
                m.d.sync += [where.eq(where + 1), self.o.valid.eq(read.data != 0)]
                m.d.sync += self.o.p.eq(Mux(read.data[7], glyph, read.data))
                m.next = "SEND"
                with m.If(read.data == 0):
                    m.next = "IDLE"
            with m.State("SEND"):
                with m.If(self.o.ready):
                    m.d.sync += self.o.valid.eq(0)
                    m.next = "READ"
        return m
