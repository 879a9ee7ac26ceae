"""Members that a wrapper has as the card inside of it.

Plumbing: no golden model of its own.
"""

from amaranth.lib import wiring
from amaranth.lib.wiring import In


def pass_on(m, card, wrapper, *, but=()):
    """Join each member of `card`, except those called as in `but`, to that of `wrapper`."""
    for name, member in card.signature.members.items():
        if name in but:
            continue
        inner, outer = getattr(card, name), getattr(wrapper, name)
        if member.is_signature:
            wiring.connect(m, inner, wiring.flipped(outer))
        else:
            m.d.comb += inner.eq(outer) if member.flow == In else outer.eq(inner)
