"""One-port MultiTree in closed form: in slot t every root r sends to node r + t + 1.

All trees have depth 1, every slot is a cyclic shift, and shifts cross a k-ary n-tree routed by the
destination's digits, or boxes with full bandwidth, without meeting. N - 1 slots, the bound with one
port. Each node's table can be written down alone, so thousands of nodes need no memory.
"""

import numpy as np

from gradnic.interface.schedule_table import PEER, ROW, Table

from ..routing import Router
from ..topology import Topology
from .lockstep import Steps
from .schedule import GATHER, REDUCE, Schedule


def shift(topology: Topology) -> Schedule:
    """Shift all-reduce: reduce-scatter by falling distance, all-gather by rising distance."""
    n = topology.n_nodes
    steps = Steps(topology)
    node = np.arange(n)
    for t in range(n - 1):
        down = (node - t - 1) % n
        steps.add(REDUCE, n - 2 - t, node, down, down)
        steps.add(GATHER, n - 1 + t, node, (node + t + 1) % n, node)
    return steps.schedule("shift", n, node)


def shift_rows(topology: Topology, node: int) -> Table:
    """The Table of one node of `shift`, made without the others, which have no rows in it.

    Rows name the same nodes as the whole table's; peer indices count the other nodes upwards.
    """
    n = topology.n_nodes
    if not 0 <= node < n:
        raise ValueError(f"node must be 0 to {n - 1}, not {node}")
    router = Router(topology)
    others = np.array([v for v in range(n) if v != node])
    peers = np.zeros(n - 1, PEER)
    peers["node"], peers["index"], peers["to"] = node, np.arange(n - 1), others
    peers["path"] = np.arange(n - 1)
    index = np.empty(n, np.int64)
    index[others] = np.arange(n - 1)
    distance = np.arange(1, n)
    rows = np.zeros(2 * n - 1, ROW)
    rows["node"], rows["sends"] = node, -1
    up, top, down = rows[: n - 1], rows[n - 1], rows[n:]
    to = (node - distance[::-1]) % n
    up["op"], up["flow"], up["first"] = REDUCE, to, to
    up["step"], up["sends"][:, 0] = np.arange(n - 1), index[to]
    # contributions reach a root by falling distance too: the farthest is first
    up["rank"] = np.arange(n - 1)
    top["op"], top["flow"], top["first"] = REDUCE, node, node
    top["wait"], top["step"] = n - 1, n - 1
    down["op"], down["flow"], down["first"] = GATHER, node, node
    down["step"], down["sends"][:, 0] = n - 1 + np.arange(n - 1), index[(node + distance) % n]
    paths = [router.path(node, int(v)) for v in others]
    return Table(f"shift {topology.name}", n, n, 0, 1, rows, peers, paths)
