"""Switches that add and copy what passes: NVLink SHARP, aggregating Ethernet switches.

Such a switch is a vertex that computes and owns nothing: it adds the contributions of its children
as gradnic's aggregator does, sends the sum on or completes it, and copies what comes back.
Schedules for it count it as a node behind the others. Two phases gain nothing from it, since each
node must still take in what it lacks (ForestColl, arXiv 2402.06787); sums that end in a switch do.
"""

from dataclasses import replace

import numpy as np

from .topology import Topology


def able(topology: Topology) -> list[int]:
    """The switches that sum, multicast or both; ascending vertices."""
    return sorted({*topology.sums, *topology.multicasts})


def computing(topology: Topology) -> Topology:
    """The same network, with every switch that sums or multicasts a node that owns nothing.

    They are the last `helpers` nodes, in the order of `able`; links keep their numbers. Vertices
    are numbered anew: table node n_nodes + i is switch able[i]. ValueError where ports bind.
    """
    switches = able(topology)
    if not switches or topology.helpers:
        return topology
    if topology.port_limited:
        raise ValueError(
            f"{topology.name}: switches that sum take nodes with a port for each link, "
            f"not {topology.ports}"
        )
    rest = [v for v in range(topology.n_nodes, topology.n_vertices) if v not in set(switches)]
    new = np.empty(topology.n_vertices, np.int32)
    new[[*range(topology.n_nodes), *switches, *rest]] = np.arange(topology.n_vertices)
    return replace(
        topology, n_nodes=topology.n_nodes + len(switches), n_switches=len(rest),
        links=new[topology.links], sums=tuple(sorted(new[[*topology.sums]].tolist())),
        multicasts=tuple(sorted(new[[*topology.multicasts]].tolist())), helpers=len(switches),
        shape=(),
    )  # fmt: skip
