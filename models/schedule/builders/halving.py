"""Halving-doubling, and HDRM (EFLOPS, HPCA 2020): the same steps with ranks placed on a BiGraph.

The mapping is the closed form of the one that the MultiTree authors' simulator constructs.
"""

import numpy as np

from ..topology import Topology
from .lockstep import Steps
from .schedule import GATHER, REDUCE, Schedule


def halving(topology: Topology) -> Schedule:
    """Halving-doubling with rank = node number; 2 log2 N steps, N a power of two."""
    return _build("halving", topology, np.arange(topology.n_nodes))


def hdrm(topology: Topology) -> Schedule:
    """Halving-doubling with rank mapping: at most one flow per directed switch link and step."""
    if not topology.name.startswith("bigraph:") or "-" in topology.name:
        raise ValueError(f"HDRM needs a BiGraph, not {topology.name}")
    hosts, switches = len(topology.hosts[0]), topology.n_switches
    return _build("hdrm", topology, placement(hosts, switches))


def placement(hosts: int, switches: int) -> np.ndarray:
    """Node of each rank on bigraph:`hosts`x`switches`; int64 (hosts * switches,).

    Rank r = j * switches + 2 * i + b sits on an upper switch where popcount(r) is even: number
    (i + j) mod switches/2; else on lower switch i; at host port j. ValueError unless hosts and
    switches/2 are powers of two and hosts <= switches/2.
    """
    half = switches // 2
    for name, value in ("hosts per switch", hosts), ("switches / 2", half):
        if value & (value - 1):
            raise ValueError(f"HDRM needs powers of two: {name} is {value}")
    if hosts > half:
        raise ValueError(
            f"HDRM needs hosts per switch <= switches / 2, not {hosts} > {half}: "
            "flows would share switch links"
        )
    rank = np.arange(hosts * switches)
    j, i = rank // switches, rank % switches // 2
    lower = np.bitwise_count(rank) % 2
    switch = np.where(lower == 1, half + i, (i + j) % half)
    return switch * hosts + j


def _build(name: str, topology: Topology, node: np.ndarray) -> Schedule:
    """Step s exchanges with rank xor 2^s; a rank keeps the half that its bit s selects.

    Chunk numbers are the owners' ranks with the bits reversed, so that every message is one range.
    """
    n = topology.n_nodes
    bits = n.bit_length() - 1
    if 1 << bits != n:
        raise ValueError(f"{name} needs a power of two of nodes, not {n}")
    rank = np.arange(n)
    steps = Steps(topology)
    kept = np.zeros(n, np.int64)  # first chunk that each rank still reduces
    for s in range(bits):
        size = n >> (s + 1)
        mine = kept + (rank >> s & 1) * size
        theirs = kept + (1 - (rank >> s & 1)) * size
        partner = node[rank ^ 1 << s]
        steps.add(REDUCE, s, node, partner, theirs, size)
        steps.add(GATHER, 2 * bits - 1 - s, node, partner, mine, size)
        kept = mine
    roots = np.empty(n, np.int64)
    roots[kept] = node
    return steps.schedule(name, n, roots)
