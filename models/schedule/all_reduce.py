"""Golden collectives of a cluster that runs a schedule table: the sums, in the order defined.

Each node adds ((own + rank 0) + rank 1) + ..., chunk by chunk, whatever the order of arrival, so
float32 results are the same bits on every run and every link. Twin of the scheduler's cluster.
"""

from collections.abc import Callable

import numpy as np

from gradnic.interface.schedule_table import REDUCE, Table

from .traffic import written_out

NAN = 0x7FC00000  # every NaN result of an addition


def chunk_length(n_elems: int, n_chunks: int, unit: int = 16) -> int:
    """Elements per chunk: n_elems / n_chunks, rounded up to units; the last may be short."""
    return -(-n_elems // (unit * n_chunks)) * unit


def add(a: np.ndarray, b: np.ndarray | np.float32) -> np.ndarray:
    """a + b; float32 with one NaN, integers as numpy has them. Same shape and type as `a`."""
    total = a + b
    if total.dtype == np.float32:
        total.view(np.uint32)[np.isnan(total)] = NAN
    return total


def all_reduce(
    table: Table,
    gradients: np.ndarray,
    *,
    combine: Callable = add,
    image: Callable | None = None,
    hop: Callable | None = None,
    switches: int = 0,
) -> np.ndarray:
    """`run_table` of an all-reduce: every node's replica. ValueError if some node lacks a chunk."""
    result, here = run_table(
        table, gradients, combine=combine, image=image, hop=hop, switches=switches
    )
    if not here.all():
        raise ValueError("some node lacks some chunk at the end")
    return result


def run_table(
    table: Table,
    gradients: np.ndarray,
    *,
    combine: Callable = add,
    image: Callable | None = None,
    hop: Callable | None = None,
    switches: int = 0,
) -> tuple[np.ndarray, np.ndarray]:
    """Run `table`, of any collective: what lies where at the end.

    gradients : float32 or int64, shape (n_nodes, n_elems); unchanged.
    switches : of the table's nodes, the last so many own nothing (`in_network`), and n_nodes are
    the others: they add (rank 0 + rank 1) + ..., as the reduce unit does.
    combine : (partial, contribution) -> partial, such as `add` or np.maximum.
    image : function of a finished chunk at its root, such as a codec's image; None: as it is.
    hop : function of a partial sum on its way to the next node, such as a codec's image; finished
    chunks are images already. None: as it is.
    Returns (values of the shape and type of `gradients`, 0 where a node has none; bool of the same
    shape, where it has). ValueError if the shape is wrong, or a row sends what is not there (a
    table that the checker refuses).
    """
    gradients = np.asarray(gradients)
    n_nodes = table.n_nodes - switches
    if gradients.ndim != 2 or len(gradients) != n_nodes:
        raise ValueError(f"gradients must be ({n_nodes}, n_elems), not {gradients.shape}")
    rows = written_out(table)
    length = chunk_length(gradients.shape[1], table.n_chunks * table.repeats)
    start = np.searchsorted(table.peers["node"], np.arange(table.n_nodes))
    landed = {}  # (node, chunk): {rank: contribution}
    result = np.zeros_like(gradients, shape=(table.n_nodes, gradients.shape[1]))
    final, here = set(), np.zeros(gradients.shape, bool)
    with np.errstate(all="ignore"):
        for at in np.lexsort([rows["op"], rows["step"]]):
            row = rows[at]
            node = int(row["node"])
            to = table.peers["to"][start[node] + row["sends"][row["sends"] >= 0]].tolist()
            for chunk in range(row["first"], row["first"] + row["count"]):
                part = slice(chunk * length, (chunk + 1) * length)
                if row["op"] == REDUCE:
                    parts = landed.pop((node, chunk), {})
                    if len(parts) != row["wait"]:
                        raise ValueError(
                            f"step {row['step']}: node {node} has {len(parts)} contributions of "
                            f"chunk {chunk}, not {row['wait']}"
                        )
                    own = node < n_nodes
                    value = gradients[node, part].copy() if own else parts[0]
                    for rank in range(not own, row["wait"]):
                        value = combine(value, parts[rank])
                    if to:
                        value = value if hop is None else hop(value)
                        landed.setdefault((to[0], chunk), {})[int(row["rank"])] = value
                        continue
                    result[node, part] = value if image is None else image(value)
                    final.add((node, chunk))
                    continue
                if (node, chunk) not in final:
                    raise ValueError(f"step {row['step']}: node {node} has no final chunk {chunk}")
                for v in to:
                    result[v, part] = result[node, part]
                    final.add((v, chunk))
    for node, chunk in final:
        if node < n_nodes:
            here[node, chunk * length : (chunk + 1) * length] = True
    return result[:n_nodes], here
