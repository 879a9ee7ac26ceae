"""Members that two parts, or a part and what is around it, call the same.

Plumbing: no golden model of its own.
"""

from collections.abc import Iterable

from amaranth.lib import wiring
from amaranth.lib.wiring import In


def same(to, source, names: str | Iterable[str]) -> list:
    """Assignments to members of `to` from those of `source` with the same names.

    names : words in one string, or an iterable of names.
    """
    names = names.split() if isinstance(names, str) else names
    return [getattr(to, name).eq(getattr(source, name)) for name in names]


def join(m, inner, outer, member: wiring.Member) -> None:
    """Join `inner`, a part's `member`, to what the component around the part has for it."""
    if member.is_signature:
        wiring.connect(m, inner, wiring.flipped(outer))
    else:
        m.d.comb += inner.eq(outer) if member.flow == In else outer.eq(inner)
