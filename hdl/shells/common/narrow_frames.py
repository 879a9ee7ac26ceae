"""A card at a tap whose beats are narrower than its own.

Plumbing: no golden model of its own.
"""

from amaranth.hdl import Module, Shape
from amaranth.lib import data, stream, wiring
from amaranth.lib.wiring import In, Out

from ...primitive.same import by_name
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
            wide = self._frames(member)
            if wide is not None:
                meta_width = Shape.cast(wide.members.get("meta", 0)).width
                narrow = FrameBeat(n_bytes, meta_width=meta_width)
                ends = (narrow, wide) if member.flow == In else (wide, narrow)
                n = member.dimensions
                self.parts[name] = [WidthConverter(*ends) for _ in range(*n or (1,))]
                outside = stream.Signature(narrow)
                member = (In if member.flow == In else Out)(outside).array(*n)
            members[name] = member
        super().__init__(members)

    @staticmethod
    def _frames(member):
        """Layout of a stream of frames, or None for any other member."""
        if not (member.is_signature and isinstance(member.signature, stream.Signature)):
            return None
        shape = member.signature.members["payload"].shape
        fields = shape.members if isinstance(shape, data.StructLayout) else {}
        return shape if {"data", "keep", "last", "bad"} <= {*fields} else None

    def elaborate(self, platform):
        m = Module()
        m.submodules.card = card = self.card
        inside, outside = by_name(card), by_name(self)
        for name, parts in self.parts.items():
            member, inner, outer = card.signature.members[name], inside[name], outside[name]
            if not member.dimensions:
                inner, outer = [inner], [outer]
            for k, part in enumerate(parts):
                m.submodules[f"{name}{k}" if member.dimensions else name] = part
                ends = (wiring.flipped(outer[k]), inner[k])
                source, target = ends if member.flow == In else ends[::-1]
                wiring.connect(m, source, part.i)
                wiring.connect(m, part.o, target)
        pass_on(m, card, self, but=self.parts)
        return m
