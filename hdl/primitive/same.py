"""Members that two parts, or a part and what is around it, call the same.

Plumbing: no golden model of its own.
"""

from collections.abc import Iterable


def same(to, source, names: str | Iterable[str]) -> list:
    """Assignments to members of `to` from those of `source` with the same names.

    names : words in one string, or an iterable of names.
    """
    names = names.split() if isinstance(names, str) else names
    return [getattr(to, name).eq(getattr(source, name)) for name in names]
