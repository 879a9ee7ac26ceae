"""In which order an all-reduce adds the workers' values: parts of the tensor, each with its tree.

Sums of coded floats depend on it, and the codec acts on every edge of the tree. `ring` is that of
in-line cards, `star` that of a server behind an in-line card, `of_table` that of offload cards
which run a schedule table. `summed` adds by it; each value depends on its own element alone, so
any slice of a tensor can be summed by itself.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from gradnic.interface.schedule_table import REDUCE, Table

from .all_reduce import add, chunk_length
from .traffic import written_out

SERVER = -1  # a root that has no values of its own


@dataclass(frozen=True)
class Part:
    """Elements start to stop - 1 of a tensor, and how they are added.

    root : int, where the sum is complete, a worker or `SERVER`. additions : tuple of (parent,
    child), in an order in which each child's own sum is complete before it is added.
    """

    start: int
    stop: int
    root: int
    additions: tuple


def summed(
    additions: Sequence[tuple[int, int]],
    root: int,
    own: Sequence[np.ndarray] | np.ndarray,
    *,
    image: Callable[[np.ndarray], np.ndarray],
) -> np.ndarray:
    """What the root sends round.

    own : float32 (n_workers, n), or any sequence of such rows. image : what the codec makes of
    the values of an edge, and of the finished sum. Returns float32 (n,).
    """
    partial = {}
    with np.errstate(over="ignore", invalid="ignore"):
        for parent, child in additions:
            sent = image(partial.pop(child) if child in partial else own[child])
            if parent in partial:
                partial[parent] = add(partial[parent], sent)
            else:
                partial[parent] = sent if parent == SERVER else add(own[parent], sent)
    return image(partial[root] if root in partial else own[root])


def ring(n_workers: int, n_elems: int) -> list[Part]:
    """Parts of INCEPTIONN's ring: N blocks of a multiple of 8, block b starts at worker b."""
    length = -(-n_elems // (8 * n_workers)) * 8
    parts = []
    for b in range(n_workers):
        way = [(b + k) % n_workers for k in range(n_workers)]
        parts.append((way[-1], tuple(zip(way[1:], way[:-1], strict=True))))
    return _cut(parts, length, n_elems)


def star(n_workers: int, n_elems: int) -> list[Part]:
    """One part: a server adds what the workers send, in their order."""
    return [Part(0, n_elems, SERVER, tuple((SERVER, worker) for worker in range(n_workers)))]


def of_table(table: Table, n_elems: int) -> list[Part]:
    """Parts of a schedule table: its chunks, children added by rank."""
    n_chunks = table.n_chunks * table.repeats
    rows = written_out(table)
    rows = rows[rows["op"] == REDUCE]
    start = np.searchsorted(table.peers["node"], np.arange(table.n_nodes))
    children = [{} for _ in range(n_chunks)]  # of each chunk, {parent: [(rank, child)]}
    roots: list[Any] = [None] * n_chunks
    for row in rows:
        node, to = int(row["node"]), row["sends"][row["sends"] >= 0]
        for chunk in range(row["first"], row["first"] + row["count"]):
            if len(to):
                parent = int(table.peers["to"][start[node] + to[0]])
                children[chunk].setdefault(parent, []).append((int(row["rank"]), node))
            else:
                roots[chunk] = node
    parts = [(root, _additions(root, of)) for root, of in zip(roots, children, strict=True)]
    return _cut(parts, chunk_length(n_elems, n_chunks), n_elems)


def _additions(root: int, children: Mapping[int, list[tuple[int, int]]]) -> tuple[tuple, ...]:
    """(parent, child) of a tree, depth first, ranks in order."""
    found = []
    stack: list[tuple[int | None, int, bool]] = [(None, root, False)]
    while stack:
        parent, node, complete = stack.pop()
        if complete:
            found.append((parent, node))
            continue
        if parent is not None:
            stack.append((parent, node, True))
        stack.extend((node, child, False) for _, child in sorted(children.get(node, ()))[::-1])
    return tuple(found)


def _cut(parts: Iterable[tuple], length: int, n_elems: int) -> list[Part]:
    """`Part`s of `length` elements, without the empty ones."""
    return [
        Part(k * length, min((k + 1) * length, n_elems), root, additions)
        for k, (root, additions) in enumerate(parts)
        if k * length < n_elems
    ]
