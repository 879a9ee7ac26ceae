"""Takes the payload out of a frame: shifts it from its place down to byte 0 of a beat.

Plumbing: no golden model of its own.
"""

from collections.abc import Sequence

from amaranth.hdl import Cat, Module, Mux, Signal
from amaranth.lib import data, stream, wiring
from amaranth.lib.wiring import In, Out

from gradnic.interface.params import check_least, check_power

from ..primitive.names import signals
from ..stream.beats import UnitBeat
from ..stream.slice import Slice


def PayloadBeat(n_bytes):
    """Beat of a frame that carries a payload of `n_bytes` beats, for `Realigner`.

    data, last : beat of the whole frame.
    drop : counts at last: the payload is not to be used.
    second : the payload starts at the second of the two offsets.
    n_less_1 : beats of the payload once it starts at byte 0, minus 1; constant over a frame.
    """
    return data.StructLayout(
        {"data": 8 * n_bytes, "last": 1, "drop": 1, "second": 1, "n_less_1": 12}
    )


def two_offsets(offsets) -> tuple:
    """`offsets` as a tuple; ValueError unless they are two integers, none below 0."""
    offsets = tuple(offsets)
    if len(offsets) != 2:
        raise ValueError(f"offsets must be two numbers, not {offsets!r}")
    for k, offset in enumerate(offsets):
        check_least(f"offsets[{k}]", offset, 0)
    return offsets


def rotated(value, n_bytes, by):
    """`value` with byte k moved to byte (k + by) mod n_bytes."""
    octets = [value[8 * k : 8 * k + 8] for k in range(n_bytes)]
    return Cat(octets[(k - by) % n_bytes] for k in range(n_bytes))


class Realigner(wiring.Component):
    """Cuts a payload out of each frame and moves it to byte 0: 3 cycles, 1 beat per cycle.

    The payload starts at one of two constant offsets and ends after the given number of beats;
    what follows in the frame is swallowed. Its last beat is held until the frame has ended, so that
    the verdict on the whole frame leaves with it. A frame that ends too early leaves as a payload
    that is too short, with drop = 1. Bytes of the last beat that lie behind the payload are
    undefined.

    Parameters
    ----------
    n_bytes : int
        Bytes per beat, a power of two from 4 to 128.
    offsets : tuple of two ints
        Bytes of the frame before the payload.

    Members
    -------
    i : In(stream.Signature(PayloadBeat(n_bytes)))
        ``ready`` comes from a register.
    o : Out(stream.Signature(UnitBeat(8 * n_bytes)))
        Comes from registers.
    """

    def __init__(self, n_bytes: int, offsets: Sequence[int]) -> None:
        check_power("n_bytes", n_bytes, 4, 128)
        self.n_bytes = n_bytes
        self.offsets = two_offsets(offsets)
        super().__init__(
            {
                "i": In(stream.Signature(PayloadBeat(n_bytes))),
                "o": Out(stream.Signature(UnitBeat(8 * n_bytes))),
            }
        )

    def elaborate(self, platform):
        m = Module()
        n = self.n_bytes
        m.submodules.entry = entry = Slice(PayloadBeat(n))
        wiring.connect(m, wiring.flipped(self.i), entry.i)
        beat = entry.o.p
        skips = [offset // n for offset in self.offsets]
        shifts = [offset % n for offset in self.offsets]

        turned = Signal(8 * n)
        m.d.comb += turned.eq(
            Mux(
                beat.second,
                rotated(beat.data, n, -shifts[1]),
                rotated(beat.data, n, -shifts[0]),
            )
        )
        # The beat before, rotated; a payload beat is made of it and of the one at the input.
        older = Signal(8 * n, reset_less=True)
        has_older = Signal()
        older_last = Signal(reset_less=True)
        older_drop, older_second = signals("older_drop older_second", reset_less=True)
        inside = Signal()  # the beat at the input is not the first of its frame
        to_skip = Signal(range(max(skips) + 1))  # beats before the payload, from older on
        left = Signal(12, reset_less=True)  # payload beats to come after this one
        ended = Signal()  # the last payload beat of this frame is in the output register

        step, free, emit, load = signals("step free emit load")
        waiting = Signal()  # the output register holds a last beat whose frame has not ended
        held = Signal()
        m.d.comb += [
            free.eq(~held | waiting | self.o.ready),
            step.eq(has_older & free & (older_last | entry.o.valid)),
            load.eq(entry.o.valid & (step | ~has_older)),
            entry.o.ready.eq(step | ~has_older),
            emit.eq(~ended & (older_last | (to_skip == 0))),
            self.o.valid.eq(held & ~waiting),
        ]
        splice = Cat(
            Mux(
                older_second,
                (older if k < n - shifts[1] else turned)[8 * k : 8 * k + 8],
                (older if k < n - shifts[0] else turned)[8 * k : 8 * k + 8],
            )
            for k in range(n)
        )
        with m.If(step):
            m.d.sync += has_older.eq(0)
            with m.If(emit):
                m.d.sync += [
                    self.o.p.data.eq(splice),
                    self.o.p.last.eq(older_last | (left == 0)),
                    self.o.p.drop.eq(older_drop | (left != 0) | (to_skip != 0)),
                    held.eq(1),
                    waiting.eq(~older_last & (left == 0)),
                    ended.eq(~older_last & (left == 0)),
                    left.eq(left - 1),
                ]
            with m.Elif(ended & older_last):
                m.d.sync += [waiting.eq(0), self.o.p.drop.eq(older_drop), ended.eq(0)]
            with m.Elif(~waiting):
                m.d.sync += held.eq(0)
            with m.If(to_skip != 0):
                m.d.sync += to_skip.eq(to_skip - 1)
        with m.Elif(self.o.valid & self.o.ready):
            m.d.sync += held.eq(0)
        with m.If(load):
            m.d.sync += [
                has_older.eq(1),
                older.eq(turned),
                older_last.eq(beat.last),
                older_drop.eq(beat.drop),
                older_second.eq(beat.second),
                inside.eq(~beat.last),
            ]
            with m.If(~inside):
                m.d.sync += [
                    left.eq(beat.n_less_1),
                    to_skip.eq(Mux(beat.second, skips[1], skips[0])),
                ]
        return m
