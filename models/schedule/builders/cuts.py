"""Cuts that a network must keep to hold spanning trees out of every node: found by max-flow.

A network holds k trees from every root exactly if every vertex set S that misses a node has
capacity out of it for all roots in it: B+(S) >= k |S & nodes| (Edmonds; with switches that pass as
much on as they get: Bang-Jensen, Frank and Jackson, 1995).
"""

import numpy as np
from scipy.sparse import csr_array
from scipy.sparse.csgraph import breadth_first_order, maximum_flow


def broken(capacity: np.ndarray, n_nodes: int, trees: int) -> np.ndarray:
    """Sets with less capacity out of them than roots; bool (n_sets, n_vertices).

    capacity : int (n_vertices, n_vertices), nodes first. trees : k, per root.
    One max-flow per node. Nodes that held are merged with the source: a set that is still to be
    found must have them inside, or it would have been found with them.
    """
    need = n_nodes * trees
    heads, tails = np.nonzero(capacity)
    source = len(capacity)
    weights = np.minimum(capacity[heads, tails], need)
    graph = csr_array(
        (
            np.concatenate([weights, np.full(n_nodes, trees)]).astype(np.int32),
            (np.concatenate([heads, np.full(n_nodes, source)]),
             np.concatenate([tails, np.arange(n_nodes)])),
        ),
        shape=(source + 1, source + 1),
    )  # fmt: skip
    start = graph.indptr[source]
    found = []
    for v in range(n_nodes):
        inside = behind(graph, source, v, need)
        if inside is None:
            graph.data[start + v] = need
        else:
            found.append(inside[:-1])
    return np.array(found, bool).reshape(-1, source)


def behind(graph: csr_array, source: int, sink: int, need: int) -> np.ndarray | None:
    """The source's side of a cut of less than `need`; None where the flow is as much."""
    result = maximum_flow(graph, source, sink)
    if result.flow_value >= need:
        return None
    rest = graph - result.flow
    rest.data = np.maximum(rest.data, 0)
    rest.eliminate_zeros()
    inside = np.zeros(graph.shape[0], bool)
    inside[breadth_first_order(rest, source, return_predecessors=False)] = True
    return inside


def around(capacity: np.ndarray, n_nodes: int) -> np.ndarray:
    """Sets worth watching from the start: a switch with its own nodes, and all but these."""
    sets = []
    for w in range(n_nodes, len(capacity)):
        inside = np.zeros(len(capacity), bool)
        inside[w] = True
        inside[:n_nodes] = capacity[w, :n_nodes] > 0
        if inside[:n_nodes].any() and not inside[:n_nodes].all():
            sets += [inside, ~inside]
    return np.array(sets, bool).reshape(-1, len(capacity))
