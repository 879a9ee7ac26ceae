"""Names of signals that are made together.

Plumbing: no golden model of its own.
"""

from amaranth.hdl import Signal


def signals(names: str, shape=1, **kwargs):
    """A `Signal` of each of `names`, which are separated by blanks.

    Of several signals that one statement makes, Amaranth finds the name of the last one alone, and
    calls the others ``$signal``.
    """
    made = []
    for name in names.split():
        made.append(Signal(shape, name=name, src_loc_at=1, **kwargs))
    return made
