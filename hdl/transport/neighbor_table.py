"""The table of neighbors: who has which number, as the host wrote it.

Plumbing: no golden model of its own.
"""

from amaranth.lib import memory

from ..primitive.zeroed_table import filled
from .records import N_NEIGHBORS


def neighbor_table(m, shape, entry):
    """A table of `shape`, a `Neighbor`, which `entry`, a `NeighborWrite`, fills; returns a port
    that reads it in no time.
    """
    m.submodules.neighbors = table = memory.Memory(shape=shape, depth=N_NEIGHBORS, init=[])
    return filled(m, table, entry.enable, entry.index, entry.neighbor)
