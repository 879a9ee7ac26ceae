"""Sums times 1 / leaves: what the root of a tree makes of a mean.

Golden model: `gradnic.models.offload.scaler`.
"""

import struct

from amaranth.hdl import Cat, Const, Module, Mux, Signal
from amaranth.lib import stream, wiring
from amaranth.lib.wiring import In, Out

from ..stream.admission import entering
from ..stream.beats import Beat
from ..stream.delays import delayed, delayed_flag
from ..stream.fifo import FIFO
from ..thc.float_times import Times, unpacked

DEPTH = 20  # beats under way or waiting
MAX_LEAVES = 255
NAN = 0x7FC00000


def factors():
    """FP32 bits of 1 / leaves for leaves from 0 on; of 0 they are 0."""
    floats = [0.0, *(1 / leaves for leaves in range(1, MAX_LEAVES + 1))]
    return [struct.unpack("<I", struct.pack("<f", value))[0] for value in floats]


class Scaler(wiring.Component):
    """Each float times a factor, or all pass as they are: 1 beat per cycle.

    Latency `latency` cycles, 2 where beats pass.

    Parameters
    ----------
    n_lanes : int

    Members
    -------
    on : In(1)
        Must not change while there are beats inside.
    factor : In(32)
        FP32 bits of a normal number above 0, for the beat at ``i``.
    i, o : In, Out(stream.Signature(Beat(32 * n_lanes)))
    """

    latency = Times.latency + FIFO.latency

    def __init__(self, n_lanes: int) -> None:
        self.n_lanes = n_lanes
        self.queue = FIFO(Beat(32 * n_lanes), DEPTH, watched=True)
        beats = stream.Signature(Beat(32 * n_lanes))
        super().__init__({"on": In(1), "factor": In(32), "i": In(beats), "o": Out(beats)})

    def elaborate(self, platform):
        m = Module()
        queue = self.queue
        go = entering(m, self, queue, DEPTH)
        products = [self._lane(m, k) for k in range(self.n_lanes)]
        valid = delayed_flag(m, go & self.on, Times.latency, name="go")
        last = delayed(m, self.i.p.last, Times.latency, name="last")
        m.d.comb += [
            queue.i.valid.eq(Mux(self.on, valid, go)),
            queue.i.p.last.eq(Mux(self.on, last, self.i.p.last)),
            queue.i.p.data.eq(Mux(self.on, Cat(products), self.i.p.data)),
        ]
        return m

    def _lane(self, m, k):
        """Product of one lane, `Times.latency` later: what is not finite stays so."""
        m.submodules[f"times{k}"] = times = Times()
        word = self.i.p.data[32 * k : 32 * k + 32]
        m.d.comb += [
            *(times.a[name].eq(value) for name, value in unpacked(word).items()),
            *(times.b[name].eq(value) for name, value in unpacked(self.factor).items()),
        ]
        is_nan, is_infinite = Signal(name=f"is_nan{k}"), Signal(name=f"is_infinite{k}")
        m.d.comb += [
            is_nan.eq((word[23:31] == 0xFF) & word[:23].any()),
            is_infinite.eq(word[:31] == 0x7F800000),
        ]
        flags = delayed(m, Cat(is_nan, is_infinite, word[31]), Times.latency, name=f"flags{k}")
        infinite = Cat(Const(0x7F800000, 31), flags[2])
        return Mux(flags[0], NAN, Mux(flags[1], infinite, times.o))
