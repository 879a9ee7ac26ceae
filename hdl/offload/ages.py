"""Which of some contexts began before which.

Plumbing: no golden model of its own.
"""

from amaranth.hdl import Signal


def ages(m, started):
    """Flags ``older[i][j]``: context i began before context j; of those that have begun.

    started : of as many bits as there are contexts; a strobe: this one is the youngest now, and two
    are never at once.
    """
    n = len(started)
    older = [[Signal(name=f"older{i}_{j}") for j in range(n)] for i in range(n)]
    for i in range(n):
        with m.If(started[i]):
            for j in range(n):
                if j != i:
                    m.d.sync += [older[j][i].eq(1), older[i][j].eq(0)]
    return older
