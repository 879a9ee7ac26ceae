"""Judges the whole of a frame as it streams by: length, UDP checksum, bad mark.

Plumbing: sums as RFC 1071 has them; benches compare with `gradnic.models.frame.ipv4`.
"""

from amaranth.hdl import Cat, Const, Module, Mux, Signal
from amaranth.lib import data, wiring
from amaranth.lib.wiring import In, Out
from amaranth.utils import ceil_log2

from gradnic.interface.formats import UDP
from gradnic.interface.inline import Fate
from gradnic.interface.params import check_power

from ..primitive.names import signals
from .classes import FATE_WIDTH, FrameClass

SUM_WIDTH = 30  # words of a frame of 16 KiB, and the pseudo header
FOLDS = 3


def Verdict(n_bytes: int):
    """What became known at the end of a frame.

    fate : `gradnic.interface.inline.Fate`.
    bad : mark of the last beat.
    tail : bytes of the last beat, minus 1.
    """
    return data.StructLayout({"fate": FATE_WIDTH, "bad": 1, "tail": max(1, ceil_log2(n_bytes))})


class FrameCheck(wiring.Component):
    """Ends a frame's class with what its beats show: free-running, `latency` cycles.

    The UDP checksum is a one's complement sum of big-endian words: beats are cut to the UDP
    segment, a tree adds the words of a beat, an accumulator the beats, and carries are folded in
    at the end. The fate is the first of bad, length, checksum that applies, then that of the head.

    Parameters
    ----------
    n_bytes : int
        Bytes per beat, a power of two from 4 to 128.

    Members
    -------
    push, first, last, bad, data, keep : In
        A beat of one of our frames.
    info : In(FrameClass())
        Counts with the first beat.
    gone, cut : In(1), In(1)
        Count with the last beat: no verdict is wanted; the frame was cut for want of room.
    done, verdict : Out(1), Out(Verdict(n_bytes))
        One pulse per frame that is not gone, `latency` cycles after its last beat.
    """

    def __init__(self, n_bytes: int) -> None:
        check_power("n_bytes", n_bytes, 4, 128)
        self.n_bytes = n_bytes
        self.n_levels = ceil_log2(n_bytes // 2)
        self.latency = 3 + self.n_levels + 1 + FOLDS + 1
        super().__init__(
            {
                "push": In(1),
                "first": In(1),
                "last": In(1),
                "bad": In(1),
                "data": In(8 * n_bytes),
                "keep": In(n_bytes),
                "info": In(FrameClass()),
                "gone": In(1),
                "cut": In(1),
                "done": Out(1),
                "verdict": Out(Verdict(n_bytes)),
            }
        )

    def elaborate(self, platform):
        m = Module()
        n = self.n_bytes
        tail_width = ceil_log2(n)

        # The segment ends `n_whole` beats after this one; not here: `whole`; before it: `over`.
        n_whole = Signal(len(self.info.end) - tail_width, reset_less=True)
        whole, over = signals("whole over", reset_less=True)
        beat_data = Signal(8 * n, reset_less=True)
        index = Signal(range(UDP.start // n + 2))  # beats since the first, saturating
        tail = Signal(tail_width, reset_less=True)
        n_here = Signal(tail_width + 1, reset_less=True)  # bytes of this beat: tail + 1
        first, last, push = signals("first last push")
        ends = {"bad": self.bad, "gone": self.gone, "cut": self.cut}
        flags = {name: Signal(name=name, reset_less=True) for name in ends}
        info = Signal(FrameClass(), reset_less=True)
        m.d.sync += [
            push.eq(self.push),
            first.eq(self.first),
            last.eq(self.push & self.last),
            *(flags[name].eq(flag) for name, flag in ends.items()),
            beat_data.eq(self.data),
            # keep is contiguous: the number of ones is where they end
            tail.eq(_encoded(self.keep, tail_width, 0)),
            n_here.eq(_encoded(self.keep, tail_width + 1, 1)),
        ]
        with m.If(self.push):
            m.d.sync += [n_whole.eq(n_whole - 1), whole.eq(whole & (n_whole != 1)), over.eq(~whole)]
            with m.If(self.first):
                beats = self.info.end[tail_width:]
                m.d.sync += [
                    n_whole.eq(beats),
                    whole.eq(beats.any()),
                    over.eq(0),
                    info.eq(self.info),
                    index.eq(0),
                ]
            with m.Elif(index != UDP.start // n + 1):
                m.d.sync += index.eq(index + 1)

        end = info.end[:tail_width]
        up_to_end = Cat(end > k for k in range(n))
        inside = Mux(over, 0, Mux(whole, Const(-1, n), up_to_end))
        summed = self._sum(m, index, inside, beat_data)

        # One word of flags per frame follows beside: it is known with the last beat.
        ended = data.StructLayout(
            {
                "fate": FATE_WIDTH,
                "bad": 1,
                "cut": 1,
                "short": 1,
                "unchecked": 1,
                "unsummed": 1,
                "tail": tail_width,
            }
        )
        now = Signal(ended)
        m.d.comb += [
            now.fate.eq(info.fate),
            now.bad.eq(flags["bad"]),
            now.cut.eq(flags["cut"]),
            now.short.eq(
                Mux(whole, (n_whole != 1) | (end != 0) | ~n_here[-1], ~over & (end > n_here))
            ),
            now.unchecked.eq(info.unchecked),
            now.unsummed.eq(info.unsummed),
            now.tail.eq(tail),
        ]
        self._add_up(m, summed, info.pseudo, now, push, first, last & ~flags["gone"])
        return m

    def _add_up(self, m, summed, pseudo, now, push, first, lasts):
        """Sums of beats to those of frames, folded; `now` and the flags go along with them."""
        depth, ended = 2 + self.n_levels, now.shape()
        beside, pushes, firsts = now, push, first
        for k in range(depth):
            beside = _later(m, beside, f"beside{k}", shape=ended)
            pushes = _later(m, pushes, f"push{k}", reset=True)
            firsts = _later(m, firsts, f"first{k}")
            lasts = _later(m, lasts, f"last{k}", reset=True)
        for k in range(depth):
            pseudo = _later(m, pseudo, f"pseudo{k}")

        total = Signal(SUM_WIDTH, reset_less=True)
        with m.If(pushes):
            m.d.sync += total.eq(Mux(firsts, pseudo, total) + summed)
        folds = total
        for k in range(FOLDS):
            folds = _later(m, folds[:16] + folds[16:], f"fold{k}")
        for k in range(1 + FOLDS):
            beside = _later(m, beside, f"after{k}", shape=ended)
            lasts = _later(m, lasts, f"ended{k}", reset=True)

        self._judge(m, beside, lasts, folds[:16] != 0xFFFF)

    def _sum(self, m, index, inside, beat_data):
        """Sum of a beat's words of the segment; `inside` : its bytes that are not behind the end.
        The adders take as many cycles as they have levels.
        """
        n = self.n_bytes
        mask = Signal(n, reset_less=True)
        masked = Signal(8 * n, reset_less=True)
        to_mask = Signal(8 * n, reset_less=True)
        begins = Const(~((1 << UDP.start % n) - 1) & (1 << n) - 1, n)
        from_start = Mux(
            index == UDP.start // n,
            begins,
            Mux(index > UDP.start // n, Const(-1, n), Const(0, n)),
        )
        m.d.sync += [
            mask.eq(from_start & inside),
            to_mask.eq(beat_data),
            masked.eq(Cat(Mux(mask[k], to_mask[8 * k : 8 * k + 8], 0) for k in range(n))),
        ]
        words = [
            Cat(masked[16 * k + 8 : 16 * k + 16], masked[16 * k : 16 * k + 8])
            for k in range(n // 2)
        ]
        while len(words) > 1:
            sums = []
            for a, b in zip(words[::2], words[1::2], strict=True):
                total = Signal(len(a) + 1, reset_less=True, name=f"sum{len(words)}_{len(sums)}")
                m.d.sync += total.eq(a + b)
                sums.append(total)
            words = sums
        return words[0]

    def _judge(self, m, beside, lasts, wrong):
        """The class that the frame ends with; the last that applies."""
        wrong = ~beside.unsummed & wrong
        fate = Mux(
            beside.unchecked | ~wrong | (beside.fate == Fate.LENGTH), beside.fate, Fate.CHECKSUM
        )
        fate = Mux(beside.short & ~beside.unchecked, Fate.LENGTH, fate)
        fate = Mux(beside.bad & ~beside.unchecked, Fate.BAD, fate)
        fate = Mux(beside.cut, Fate.OVERRUN, fate)
        m.d.sync += [
            self.done.eq(lasts),
            self.verdict.fate.eq(fate),
            self.verdict.bad.eq(beside.bad),
            self.verdict.tail.eq(beside.tail),
        ]


def _encoded(keep, width, plus):
    """Place of the last one of a contiguous mask, and `plus`; 0 for no ones."""
    n = len(keep)
    edges = [keep[k] & ~keep[k + 1] if k + 1 < n else keep[k] for k in range(n)]
    return Cat(
        Cat(edges[k] for k in range(n) if (k + plus) >> bit & 1).any() for bit in range(width)
    )


def _later(m, value, name, *, shape=None, reset=False):
    held = Signal(value.shape() if shape is None else shape, name=name, reset_less=not reset)
    m.d.sync += held.eq(value)
    return held
