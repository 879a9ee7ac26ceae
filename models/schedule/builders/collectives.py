"""Other collectives from the schedule of an all-reduce: one of its halves, or one root's trees.

Reduce-scatter is the reduce half and all-gather the gather half: shards lie where the all-reduce
completes them, so one after the other is the all-reduce, bit for bit. Reduce and broadcast take
the trees of one root for the whole tensor, chunk after chunk, as close as the links allow.

Sources: MPI 4.0, chapter 6, for the names; the split of an all-reduce into both halves is
Rabenseifner's; the pipelined tree is the textbook's (Sanders et al., chapter 13). Ours: that trees
come from whatever algorithm built the all-reduce.
"""

from collections import Counter

import numpy as np

from .schedule import GATHER, REDUCE, Schedule, ordered

COLLECTIVES = {
    "all_reduce": "every node gets the sum",
    "reduce_scatter": "each node gets the sum of its chunks",
    "all_gather": "every node gets each node's chunks",
    "reduce": "the root gets the sum",
    "broadcast": "every node gets the root's tensor",
}
ROOTED = ("reduce", "broadcast")
_REDUCING = ("reduce_scatter", "reduce")


def collective(schedule: Schedule, name: str, *, root: int = 0) -> Schedule:
    """The Schedule of collective `name` from that of an all-reduce.

    root : int, of reduce and broadcast; not looked at by the others.
    ValueError if nodes complete unlike numbers of chunks (double trees), or `root` none.
    """
    if name not in COLLECTIVES:
        raise ValueError(f"collective must be one of {', '.join(COLLECTIVES)}, not {name!r}")
    if name == "all_reduce":
        return schedule
    if schedule.topology.helpers:
        raise ValueError(f"{schedule.algorithm} sums in switches: an all-reduce, not {name}")
    if name in ROOTED:
        return _rooted(schedule, name, root)
    n_nodes = schedule.topology.n_nodes
    share = np.bincount(schedule.roots, minlength=n_nodes)
    if share.min() != share.max():
        v = int(share.argmin())
        raise ValueError(
            f"{schedule.algorithm} completes {share[v]} of {schedule.n_chunks} chunks at node {v}: "
            f"{name} needs equal shares"
        )
    transfers = schedule.transfers[schedule.transfers["op"] == _operation(name)]
    return _made(schedule, name, _from_zero(transfers), schedule.roots, schedule.flows,
                 schedule.period, schedule.repeats)  # fmt: skip


def _operation(name: str) -> int:
    return REDUCE if name in _REDUCING else GATHER


def _from_zero(transfers: np.ndarray) -> np.ndarray:
    transfers = transfers.copy()
    transfers["step"] -= transfers["step"].min()
    return transfers


def _made(
    schedule: Schedule, name: str, transfers: np.ndarray, roots: np.ndarray, flows: np.ndarray,
    period: int | None, repeats: int,
) -> Schedule:  # fmt: skip
    return Schedule(
        f"{schedule.algorithm} {name}", schedule.topology, len(roots), roots, flows,
        ordered(transfers), schedule.routes, period, repeats,
    )  # fmt: skip


def _rooted(schedule: Schedule, name: str, root: int) -> Schedule:
    """The trees of `root` in turn, for as many chunks as the all-reduce has."""
    mine = np.flatnonzero(schedule.roots == root)
    if not len(mine):
        some = ", ".join(map(str, np.unique(schedule.roots)[:8]))
        raise ValueError(f"{schedule.algorithm} has no tree of root {root}, but of {some}")
    transfers = schedule.transfers[schedule.transfers["op"] == _operation(name)]
    trees = [_tree(transfers, chunk) for chunk in mine.tolist()]
    needs = [_needs(schedule, tree) for tree in trees]
    n_chunks = schedule.chunks_total
    busy, placed, start = Counter(), [], 0
    for chunk in range(n_chunks):
        k = chunk % len(trees)
        start = _earliest(needs[k], busy, start)
        for (what, which, step), (n, _) in needs[k].items():
            busy[what, which, step + start] += n
        placed.append(trees[k].copy())
        placed[-1]["step"] += start
        placed[-1]["first"] = chunk
    flows = np.resize(schedule.flows[mine], n_chunks)
    roots = np.full(n_chunks, root, schedule.roots.dtype)
    return _made(schedule, name, np.concatenate(placed), roots, flows, None, 1)


def _tree(transfers: np.ndarray, chunk: int) -> np.ndarray:
    """Transfers of one chunk, from step 0 on; steps without any are left out."""
    first = transfers["first"]
    tree = transfers[(first <= chunk) & (chunk < first + transfers["count"])].copy()
    tree["count"] = 1
    tree["step"] = np.unique(tree["step"], return_inverse=True)[1]
    return tree


def _needs(schedule: Schedule, tree: np.ndarray) -> dict[tuple, tuple[int, int]]:
    """{(what, which, step): (messages of the tree there, its capacity in messages)}."""
    topology = schedule.topology
    room = np.maximum(1, np.floor(topology.bandwidth + 1e-9)).astype(int)
    index, links = schedule.routes.expand(tree["route"])
    steps = tree["step"][index]
    uses = [(("link", a, s), room[a]) for a, s in zip(links.tolist(), steps.tolist(), strict=True)]
    if topology.port_limited:
        uses += [
            ((end, v, s), topology.ports)
            for end in ("src", "dst")
            for v, s in zip(tree[end].tolist(), tree["step"].tolist(), strict=True)
        ]
    counts = Counter(place for place, _ in uses)
    return {place: (counts[place], room) for place, room in uses}


def _earliest(needs: dict, busy: Counter, start: int) -> int:
    """The first step from `start` on in which a tree overfills no place beside those before it."""
    while any(
        (there := busy.get((what, which, step + start), 0)) and there + n > room
        for (what, which, step), (n, room) in needs.items()
    ):
        start += 1
    return start
