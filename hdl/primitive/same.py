"""Members that two parts, or a part and what is around it, call the same.

Plumbing: no golden model of its own.
"""

from collections.abc import Iterable, Mapping

from amaranth.lib import wiring
from amaranth.lib.wiring import Out


def same(to, source, names: str | Iterable[str]) -> list:
    """Assignments to members of `to`, or fields of a view, from those of `source` with the same
    names.

    names : words in one string, or an iterable of names.
    """
    names = names.split() if isinstance(names, str) else names
    return [getattr(to, name).eq(getattr(source, name)) for name in names]


def by_name(interface) -> dict:
    """{name: what stands there} of all members of an interface, in their order."""
    return {name: getattr(interface, name) for name in interface.signature.members}


def _apart(name, member, value):
    """Of an array its elements, as `wiring.connect` takes none of interfaces: (name, member, what
    stands there) of each.
    """
    if not member.dimensions:
        yield name, member, value
        return
    if member.is_signature:
        one = Out(member.signature)  # as seen from the outside, whichever way the member is
    else:
        one = wiring.Member(member.flow, member.shape, init=member.init)
    for k, part in enumerate(value):
        yield f"{name}{k}", one, part


class _Some:
    """Members of `whole` as an interface, {what they are called here: its name for them}; within
    `whole` the others see them flipped.
    """

    def __init__(self, whole, names, *, within=False):
        members, values = {}, by_name(whole)
        for name, its in names.items():
            member = whole.signature.members[its]
            for key, one, value in _apart(name, member, values[its]):
                members[key] = one
                flips = within and one.is_signature
                vars(self)[key] = wiring.flipped(value) if flips else value
        signature = wiring.Signature(members)
        self.signature = signature.flip() if within else signature


def meet(m, one, other, names: Iterable[str]) -> None:
    """`wiring.connect` of the members `names` of two parts."""
    names = {name: name for name in names}
    wiring.connect(m, _Some(one, names), _Some(other, names))


def join(m, part, around, names: Iterable[str], called: Mapping[str, str] | None = None) -> None:
    """`wiring.connect` of the members `names` of `part` to those of `around`, the component in
    which it is. called : {name: what it is called there}, where that is another one.
    """
    own = {name: name for name in names}
    wiring.connect(m, _Some(part, own), _Some(around, {**own, **(called or {})}, within=True))
