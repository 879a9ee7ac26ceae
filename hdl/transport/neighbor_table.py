"""The table of neighbors: who has which number, as the host wrote it.

Plumbing: no golden model of its own.
"""

from amaranth.lib import memory

from .records import N_NEIGHBORS


def neighbor_table(m, shape, entry):
    """A table of `shape`, a `Neighbor`, which `entry`, a `NeighborWrite`, fills; returns a port
    that reads it in no time.
    """
    m.submodules.neighbors = table = memory.Memory(shape=shape, depth=N_NEIGHBORS, init=[])
    write = table.write_port()
    read = table.read_port(domain="comb")
    m.d.comb += [
        write.en.eq(entry.enable),
        write.addr.eq(entry.index),
        write.data.eq(entry.neighbor),
    ]
    return read
