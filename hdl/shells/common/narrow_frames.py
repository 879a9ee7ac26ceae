"""A card at a tap whose beats are narrower than its own.

Plumbing: no golden model of its own.
"""

from amaranth.hdl import Module, Shape
from amaranth.lib import stream, wiring
from amaranth.lib.wiring import In, Out

from ...stream.beats import FrameBeat
from ...stream.width import WidthConverter
from .pass_on import pass_on


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

    def __init__(self, card: wiring.Component, n_bytes: int) -> None:
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
        for name, part in self.parts.items():
            m.submodules[name] = part
            inner, outer = getattr(card, name), wiring.flipped(getattr(self, name))
            comes_in = card.signature.members[name].flow == In
            source, target = (outer, inner) if comes_in else (inner, outer)
            wiring.connect(m, source, part.i)
            wiring.connect(m, part.o, target)
        pass_on(m, card, self, but=self.parts)
        return m
