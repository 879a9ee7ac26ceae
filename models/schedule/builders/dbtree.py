"""Double binary tree: two trees, inner nodes of one the leaves of the other, half the data each."""

from ..topology import Topology
from .placing import place_trees
from .schedule import Schedule


def parents(n: int) -> list[int]:
    """Parent of each node in a binary tree over 0 .. n-1 with node 0 on top; -1 there. A list.

    A node with z trailing zeros sits on level z; odd nodes are leaves. The shape that NCCL uses.
    """
    result = [-1]
    for v in range(1, n):
        bit = v & -v
        up = (v ^ bit) | bit << 1
        result.append(up if up < n else v ^ bit)
    return result


def dbtree(topology: Topology, *, chunks: int = 1) -> Schedule:
    """Double binary tree, pipelined chunk by chunk; even chunks take the first tree.

    The second tree is the first one mirrored (N even) or turned by one (N odd), so that no node
    has children in both, but for node 0's side. Chunk c is completed at its tree's top.
    """
    n = topology.n_nodes
    first = parents(n)
    other = [n - 1 - v if n % 2 == 0 else (v + 1) % n for v in range(n)]
    second = [-1] * n
    for v, up in enumerate(first):
        second[other[v]] = -1 if up < 0 else other[up]
    trees = [(0, first), (other[0], second)]
    return place_trees("dbtree", topology, [trees[c % 2] for c in range(n * chunks)])
