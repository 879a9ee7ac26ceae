"""Register slice and fork: the parts that join circuits.

Every edge inside is an `amaranth.lib.stream`: an offer is kept until taken, and ``valid`` never
waits for ``ready``.

Plumbing: no golden model of its own.
"""

from amaranth.hdl import Module, Mux, ShapeLike, Signal, Value
from amaranth.lib import stream, wiring
from amaranth.lib.wiring import In, Out

from .steering import copies, steered


class Slice(wiring.Component):
    """Register slice: ``o.valid``, ``o.p`` and ``i.ready`` all come from registers.

    Latency 1 cycle, 1 beat per cycle; holds two beats. ``i.ready`` falls one cycle after the
    output stalls, and the beat taken in between waits in the second register.

    Parameters
    ----------
    shape : shape-like
        Payload of both streams.
    half_rate : bool
        One register, and a beat every second cycle at most.
    holds : bool
        ``o.p`` changes only with a beat, also after a reset. Not with `half_rate`.

    Members
    -------
    i, o : In, Out(stream.Signature(shape))
    """

    def __init__(self, shape: ShapeLike, *, half_rate: bool = False, holds: bool = False) -> None:
        if half_rate and holds:
            raise ValueError("half_rate and holds exclude each other")
        self.shape, self.half_rate, self.holds = shape, half_rate, holds
        super().__init__({"i": In(stream.Signature(shape)), "o": Out(stream.Signature(shape))})
        self.valids = copies(self.o.p, "valid")
        self.spares = copies(self.o.p, "spare", init=1)  # the second register is empty
        self.skid = Signal(len(Value.cast(self.o.p)), reset_less=True)

    def elaborate(self, platform):
        m = Module()
        i, o = Value.cast(self.i.p), Value.cast(self.o.p)
        held_one, empty = self.valids[0], self.spares[0]
        m.d.comb += self.o.valid.eq(held_one)
        if self.half_rate:
            m.d.comb += self.i.ready.eq(~held_one)
            for (start, stop), valid in zip(steered(len(o)), self.valids, strict=True):
                held = Signal(stop - start, name=f"held{start}", reset_less=True)
                m.d.comb += o[start:stop].eq(held)
                m.d.sync += valid.eq(Mux(held_one, ~self.o.ready, self.i.valid))
                with m.If(~valid):
                    m.d.sync += held.eq(i[start:stop])
            return m
        m.d.comb += self.i.ready.eq(empty)
        for (start, stop), valid, spare in zip(
            steered(len(o)), self.valids, self.spares, strict=True
        ):
            held = Signal(stop - start, name=f"held{start}", reset_less=True)
            skid = self.skid[start:stop]
            m.d.comb += o[start:stop].eq(held)
            # written out: `o.ready` does not pass the clock enables on its way to the flags
            m.d.sync += [
                valid.eq(self.i.valid | ~empty | (held_one & ~self.o.ready)),
                spare.eq(self.o.ready | ~held_one | (empty & ~self.i.valid)),
            ]
            with m.If(spare):
                m.d.sync += skid.eq(i[start:stop])
            loads = self.o.ready | ~valid
            if self.holds:
                loads &= self.i.valid | ~spare
            with m.If(loads):
                m.d.sync += held.eq(Mux(spare, i[start:stop], skid))
        return m


class Fork(wiring.Component):
    """Copies a stream: each beat leaves once on every output, in order.

    Latency 0, 1 beat per cycle. An output that has taken a beat does not see it again while the
    slower ones still hold it; the beat leaves ``i`` when the last of them takes it. ``i.ready``
    is combinational in the outputs' ``ready``: put a `Slice` in front where that is too slow.

    Parameters
    ----------
    shape : shape-like
        Payload of all streams.
    n : int
        Outputs, at least 1.

    Members
    -------
    i : In(stream.Signature(shape))
    o : Out(stream.Signature(shape)).array(n)
    """

    def __init__(self, shape: ShapeLike, n: int) -> None:
        if n < 1:
            raise ValueError(f"n must be at least 1, not {n!r}")
        self.shape = shape
        self.n = n
        self.taken = Signal(n)  # outputs that already have the beat at the input
        beats = stream.Signature(shape)
        super().__init__({"i": In(beats), "o": Out(beats).array(n)})

    def elaborate(self, platform):
        m = Module()
        taken = Signal(self.n)
        for k, o in enumerate(self.o):
            m.d.comb += [
                o.valid.eq(self.i.valid & ~self.taken[k]),
                o.p.eq(self.i.p),
                taken[k].eq(self.taken[k] | o.ready),
            ]
        m.d.comb += self.i.ready.eq(taken.all())
        with m.If(self.i.valid):
            m.d.sync += self.taken.eq(Mux(self.i.ready, 0, taken))
        return m
