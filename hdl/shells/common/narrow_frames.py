"""A card at a tap whose beats are narrower than its own.

Plumbing: no golden model of its own.
"""

from amaranth.hdl import Module, Shape
from amaranth.lib import stream, wiring
from amaranth.lib.wiring import In, Out

from ...stream.beats import FrameBeat
from ...stream.width import WidthConverter


class NarrowFrames(wiring.Component):
    """`card` with all of its streams of frames `n_bytes` wide: `WidthConverter` at each.

    1 narrow beat a cycle each way, and 1 or 2 cycles more.

    Parameters
    ----------
    card : wiring.Component
        With any ports, among them streams of `FrameBeat`.
    n_bytes : int
        Bytes of a beat outside; the card's are 2, 4, … 64 times as many.

    Members
    -------
    The card's own, with narrow streams.
    """

    def __init__(self, card, n_bytes: int) -> None:
        self.card = card
        self.parts, members = {}, {}
        for name, member in card.signature.members.items():
            wide = self._frames(getattr(card, name))
            if wide is not None:
                meta_width = Shape.cast(wide.members.get("meta", 0)).width
                narrow = FrameBeat(n_bytes, meta_width=meta_width)
                ends = (narrow, wide) if member.flow == In else (wide, narrow)
                self.parts[name] = WidthConverter(*ends)
                outside = stream.Signature(narrow)
                member = In(outside) if member.flow == In else Out(outside)
            members[name] = member
        super().__init__(members)

    @staticmethod
    def _frames(value):
        """Layout of a stream of frames, or None for any other member."""
        if not hasattr(value, "p"):
            return None
        shape = value.p.shape()
        return shape if {"data", "keep", "last", "bad"} <= {*shape.members} else None

    def elaborate(self, platform):
        m = Module()
        m.submodules.card = card = self.card
        for name, member in card.signature.members.items():
            inner, outer = getattr(card, name), getattr(self, name)
            if name in self.parts:
                m.submodules[name] = part = self.parts[name]
                if member.flow == In:
                    wiring.connect(m, wiring.flipped(outer), part.i)
                    wiring.connect(m, part.o, inner)
                else:
                    wiring.connect(m, inner, part.i)
                    wiring.connect(m, part.o, wiring.flipped(outer))
            elif member.is_signature:
                wiring.connect(m, inner, wiring.flipped(outer))
            else:
                m.d.comb += inner.eq(outer) if member.flow == In else outer.eq(inner)
        return m
