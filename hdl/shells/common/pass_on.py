"""Members that a wrapper has as the card inside of it.

Plumbing: no golden model of its own.
"""

from ...primitive.same import join


def pass_on(m, card, wrapper, *, but=()):
    """Join each member of `card`, except those called as in `but`, to that of `wrapper`."""
    join(m, card, wrapper, [name for name in card.signature.members if name not in but])
