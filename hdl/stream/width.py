"""Converts a stream between beat widths.

Plumbing: no golden model of its own.
"""

from amaranth.hdl import Module, Mux, ShapeLike, Signal
from amaranth.lib import data, stream, wiring
from amaranth.lib.wiring import In, Out


class WidthConverter(wiring.Component):
    """Widens or narrows beats by a whole ratio; packets keep their bytes, and each its ``last``.

    To wider beats: narrow beats fill a wide one from the low end; it is offered in the cycle
    after its last piece was taken, which is the piece with ``last`` or the one that fills it. Lanes
    after ``last`` are 0, in ``data`` and in ``keep``. 1 narrow beat per cycle.

    To narrower beats: the first piece is offered in the cycle after the wide beat was taken, then
    one per cycle; ``last`` is on the last piece. With ``keep``, pieces without a kept byte are left
    out; without, every piece is offered.

    Other fields (``bad``, ``drop``, ``meta``, ...) go to every piece, and to a wide beat come from
    its last piece. ``i.ready`` is combinational in ``o.ready``; ``o`` comes from registers.

    Parameters
    ----------
    i_shape, o_shape : data.StructLayout
        With ``data`` and ``last``, and the same other fields in the same order; ``data``, and
        ``keep`` if there is one, are 2 to 64 times as wide in one as in the other.

    Members
    -------
    i, o : In(stream.Signature(i_shape)), Out(stream.Signature(o_shape))
    """

    def __init__(self, i_shape: ShapeLike, o_shape: ShapeLike) -> None:
        for name, shape in (("i_shape", i_shape), ("o_shape", o_shape)):
            if not isinstance(shape, data.StructLayout) or not {"data", "last"} <= {*shape.members}:
                raise ValueError(f"{name} must have the fields data and last, not {shape!r}")
        widths = [{name: field.width for name, field in s} for s in (i_shape, o_shape)]
        self.scaled = ["data", "keep"] if "keep" in i_shape.members else ["data"]
        self.copied = [name for name in i_shape.members if name not in ("data", "keep", "last")]
        narrow, wide = sorted(widths, key=lambda w: w["data"])
        self.ratio = wide["data"] // narrow["data"]
        expected = {
            name: w * (self.ratio if name in self.scaled else 1) for name, w in narrow.items()
        }
        if list(wide.items()) != list(expected.items()) or not 2 <= self.ratio <= 64:
            raise ValueError(
                "data and keep must be 2 to 64 times as wide in one of i_shape and o_shape as in "
                f"the other, and other fields alike, not {widths[0]} and {widths[1]}"
            )
        self.widens = widths[1] is wide
        self.at = Signal(range(self.ratio))  # piece to fill next, or piece offered
        self.held = Signal(o_shape if self.widens else i_shape, reset_less=True)
        super().__init__({"i": In(stream.Signature(i_shape)), "o": Out(stream.Signature(o_shape))})

    def elaborate(self, platform):
        return self._widen() if self.widens else self._narrow()

    def _widen(self):
        m = Module()
        i, held = self.i.p, self.held
        m.d.comb += [self.o.p.eq(held), self.i.ready.eq(self.o.ready | ~self.o.valid)]
        with m.If(self.o.ready):
            m.d.sync += self.o.valid.eq(0)
        with m.If(self.i.valid & self.i.ready):
            ends = i.last | (self.at == self.ratio - 1)
            m.d.sync += [
                self.o.valid.eq(ends),
                self.at.eq(Mux(ends, 0, self.at + 1)),
                held.last.eq(i.last),
                *(held[name].eq(i[name]) for name in self.copied),
            ]
            for name in self.scaled:
                n_bits = len(i[name])
                for piece in range(self.ratio):
                    lane = held[name][piece * n_bits : (piece + 1) * n_bits]
                    with m.If(self.at == piece):
                        m.d.sync += lane.eq(i[name])
                    with m.Elif(self.at == 0):
                        m.d.sync += lane.eq(0)
        return m

    def _narrow(self):
        m = Module()
        o, held = self.o.p, self.held
        n_bits = {name: len(o[name]) for name in self.scaled}
        final = self.at == self.ratio - 1
        if "keep" in self.scaled:
            final = final | ~held.keep[n_bits["keep"] :].any()
        m.d.comb += [
            self.i.ready.eq(~self.o.valid | (self.o.ready & final)),
            *(o[name].eq(held[name][: n_bits[name]]) for name in self.scaled),
            *(o[name].eq(held[name]) for name in self.copied),
            o.last.eq(held.last & final),
        ]
        with m.If(self.i.ready):
            m.d.sync += [self.o.valid.eq(self.i.valid), held.eq(self.i.p), self.at.eq(0)]
        with m.Elif(self.o.ready):
            m.d.sync += [
                self.at.eq(self.at + 1),
                *(held[name].eq(held[name] >> n_bits[name]) for name in self.scaled),
            ]
        return m
