"""Proves a schedule table right, or says what is wrong; knows nothing of the builders.

The table is replayed symbolically: for every chunk and node the set of nodes whose values are in
the partial sum. Nothing but rows, peers, paths and the graph is read.
"""

from dataclasses import dataclass

import numpy as np

from gradnic.interface.schedule_table import GATHER, NOP, REDUCE, Table

from .in_network import computing
from .replay import TableError, expand, replay
from .topology import Topology

_REDUCES = ("all_reduce", "reduce_scatter", "reduce")
_DELIVERS = ("all_reduce", "all_gather", "broadcast")
_ROOTED = ("reduce", "broadcast")
_SHARED = ("reduce_scatter", "all_gather")


@dataclass(frozen=True)
class Report:
    """What a table that passed does.

    Parameters
    ----------
    steps : int
        Sequential steps of the whole collective.
    chunk_slots : float
        Their total length, in times of one chunk over the slowest link.
    max_flows : int
        Most messages on one directed link in one step (per unit of bandwidth); with a period, in
        one step of the steady state.
    collision : str or None
        The first link and step with more than one, and who sends there.
    entries : int
        Most rows of one node, NOPs not counted.
    nops : int
        Most NOP rows of one node.
    landing_chunks : int
        Most chunks that arrive in one step at one node, or wait there for an earlier rank, if
        every message keeps its step.
    landing_chunks_any_order : int
        The same if messages may take any time: all contributions but the next in rank wait.
    proven_repeats : int
        Repeats that were replayed: prologue, one full period and epilogue; 1 without a period.
    """

    steps: int
    chunk_slots: float
    max_flows: int
    collision: str | None
    entries: int
    nops: int
    landing_chunks: int
    landing_chunks_any_order: int
    proven_repeats: int


def check(
    table: Table, topology: Topology, collective: str = "all_reduce", *, root: int = 0
) -> Report:
    """Replay `table` on `topology`; a Report. TableError if the result is not the collective's.

    Proven of all_reduce: every chunk of every node is reduced exactly once and delivered to every
    node; no row sends before its contributions have come or after it has sent; contributions have
    distinct ranks; waiting is never cyclic; paths are walks from sender to receiver. A periodic
    table is replayed for so many repeats that one whole period has all stages active; later
    periods repeat it with other chunks. Contention is counted, not refused: see `Report.max_flows`.

    Switches that can take part of an all-reduce: nodes behind the others of the table, see
    `in_network`. They own nothing, send only what has come, add only where they sum, and gather
    only where they multicast; nobody waits for them to get the result.

    Of reduce_scatter: the same, but every chunk ends at one node, the same number at each. Of
    all_gather: nothing is added, and each node's share of the chunks is delivered to every node.
    Of reduce and broadcast: the same with all chunks at `root`.
    """
    if collective not in (*_REDUCES, *_DELIVERS):
        raise ValueError(f"no collective {collective!r}")
    if table.n_nodes > topology.n_nodes and collective == "all_reduce":
        topology = computing(topology)
    if table.n_nodes != topology.n_nodes:
        raise TableError(
            f"the table is for {table.n_nodes} nodes, {topology.name} has {topology.n_nodes}"
        )
    _check_rows(table)
    ends = _check_paths(table, topology)
    rows = table.rows[table.rows["op"] != NOP]
    rows, n_chunks, repeats = _unroll(table, rows)
    sends = _sends(rows, table, ends)
    _check_abilities(rows, topology)
    roots = _check_once(rows, topology, n_chunks, collective in _REDUCES)
    _check_roots(roots, table.n_nodes, collective, root)
    _check_acyclic(rows, sends, table.n_nodes, n_chunks)
    replay(
        rows, sends, topology, n_chunks,
        adds=collective in _REDUCES, delivers=collective in _DELIVERS,
    )  # fmt: skip
    landing = _landing(rows, sends, table.n_nodes, n_chunks)
    flows, collision, lengths = _contention(table, topology, sends)
    steps = int(sends["step"].max()) + 1
    chunk_slots = float(lengths.sum())
    if table.period:
        steps += (table.repeats - repeats) * table.period
        chunk_slots += (table.repeats - repeats) * lengths[_steady(table, repeats)].sum()
    counts = np.bincount(table.rows["node"], minlength=table.n_nodes)
    idle = np.bincount(table.rows["node"][table.rows["op"] == NOP], minlength=table.n_nodes)
    waits = rows[(rows["op"] == REDUCE) & (rows["wait"] > 1)]
    any_order = np.bincount(
        waits["node"], weights=(waits["wait"] - 1) * waits["count"], minlength=1
    )
    return Report(
        steps, chunk_slots, flows, collision, int((counts - idle).max()), int(idle.max()),
        landing, int(any_order.max()), repeats,
    )  # fmt: skip


def _check_rows(table):
    rows = table.rows
    limit = table.n_chunks
    last = rows["first"] + rows["count"]
    n_peers = np.bincount(table.peers["node"], minlength=table.n_nodes)
    bad = (
        ("names a node outside the table", (rows["node"] < 0) | (rows["node"] >= table.n_nodes)),
        ("has an unknown operation", rows["op"] > NOP),
        ("has a step below 0", rows["step"] < 0),
        (
            f"names chunks outside 0 to {limit - 1}",
            (rows["op"] != NOP)
            & ((rows["first"] < 0) | (rows["count"] < 0) | (last >= limit)),
        ),
        ("names a peer that the node has not",
         (rows["sends"] >= n_peers[rows["node"] % table.n_nodes][:, None]).any(axis=1)),
        ("reduces to more than one peer",
         (rows["op"] == REDUCE) & ((rows["sends"] >= 0).sum(axis=1) > 1)),
        ("gathers to nobody", (rows["op"] == GATHER) & (rows["sends"] < 0).all(axis=1)),
        ("repeats, but the table has no period",
         (rows["repeat"] > 0) if not table.period else (rows["repeat"] == 0) & (rows["op"] != NOP)),
    )  # fmt: skip
    for what, where in bad:
        if where.any():
            at = int(np.flatnonzero(where)[0])
            row = int(at - np.searchsorted(rows["node"], rows["node"][at]))
            raise TableError(f"row {row} of node {rows['node'][at]} {what}")
    if (np.diff(rows["node"]) < 0).any():
        raise TableError("rows are not grouped by node")


def _check_paths(table, topology):
    """Start of each node's peers; every peer's path leads from the node to the peer."""
    start = np.searchsorted(table.peers["node"], np.arange(table.n_nodes))
    for peer in table.peers:
        at = int(peer["node"])
        for link in table.paths[peer["path"]]:
            if not 0 <= link < topology.n_links or topology.links[link, 0] != at:
                raise TableError(
                    f"peer {peer['index']} of node {peer['node']}: path breaks at {at}"
                )
            at = int(topology.links[link, 1])
        if at != peer["to"]:
            raise TableError(f"peer {peer['index']} of node {peer['node']}: path ends at {at}")
    return start


def _steady(table, repeats):
    """Steps of one period in which every stage of an unrolled table is active."""
    stages = int(table.rows["repeat"].max())
    begin = (stages - 1) * table.period
    return slice(begin, begin + table.period)


def _unroll(table, rows):
    """Rows with absolute steps and chunks: of all repeats that a proof needs."""
    rows = rows.copy()
    rows["count"] += 1
    if not table.period:
        return rows, table.n_chunks, 1
    if rows["step"].max() >= table.period:
        raise TableError(f"a row's step is beyond the period of {table.period}")
    stages = int(rows["repeat"].max())
    repeats = min(table.repeats, 2 * stages)
    parts = []
    for i in range(repeats):
        part = rows.copy()
        part["step"] += (rows["repeat"].astype(np.int32) - 1 + i) * table.period
        part["first"] += i * table.n_chunks
        parts.append(part)
    return np.concatenate(parts), table.n_chunks * repeats, repeats


_SEND = np.dtype(
    [("row", "i4"), ("op", "u1"), ("src", "i4"), ("dst", "i4"), ("step", "i4"), ("rank", "i4"),
     ("first", "i4"), ("count", "i4"), ("path", "i4")]
)  # fmt: skip


def _sends(rows, table, start):
    """One record per message."""
    index, slot = np.nonzero(rows["sends"] >= 0)
    sends = np.zeros(len(index), _SEND)
    peer = table.peers[start[rows["node"][index]] + rows["sends"][index, slot]]
    sends["row"], sends["src"] = index, rows["node"][index]
    for name in ("op", "step", "rank", "first", "count"):
        sends[name] = rows[name][index]
    sends["dst"], sends["path"] = peer["to"], peer["path"]
    return sends


def _check_abilities(rows, topology):
    """Rows of switches are of those that can, and send nothing of their own."""
    mine = rows[rows["node"] >= topology.n_owners]
    for op, can, what in (
        (REDUCE, topology.sums, "reduces, but does not sum"),
        (GATHER, topology.multicasts, "gathers, but does not multicast"),
    ):
        wrong = mine["node"][(mine["op"] == op) & ~np.isin(mine["node"], can)]
        if len(wrong):
            raise TableError(f"switch {wrong[0]} {what}")
    empty = mine["node"][(mine["op"] == REDUCE) & (mine["wait"] == 0)]
    if len(empty):
        raise TableError(f"switch {empty[0]} reduces what nobody sent it")


def _check_once(rows, topology, n_chunks, adds):
    """Each node parts with each chunk once: by one reduce row, of which one is terminal; without
    additions, there is only that one. A switch need not. Returns the node of each chunk's terminal
    row.
    """
    n_nodes = topology.n_nodes
    reduces = rows[rows["op"] == REDUCE]
    terminal = reduces[(reduces["sends"] < 0).all(axis=1)]
    if not adds and len(terminal) < len(reduces):
        v = reduces["node"][(reduces["sends"] >= 0).any(axis=1)][0]
        raise TableError(f"node {v} reduces, where nothing is to be added")
    index, chunk = expand(reduces)
    times = np.bincount(
        chunk * n_nodes + reduces["node"][index], minlength=n_nodes * n_chunks
    ).reshape(n_chunks, n_nodes)
    wrong = times != 1
    wrong[:, topology.n_owners :] = times[:, topology.n_owners :] > 1
    if adds and wrong.any():
        c, v = np.argwhere(wrong)[0]
        how = "never reduces" if times[c, v] == 0 else f"reduces {times[c, v]} times"
        raise TableError(f"node {v} {how} chunk {c}: each part must be reduced exactly once")
    index, chunk = expand(terminal)
    tops = np.bincount(chunk, minlength=n_chunks)
    if (tops != 1).any():
        c = int(np.flatnonzero(tops != 1)[0])
        raise TableError(f"chunk {c} has {tops[c]} terminal rows, must have 1")
    roots = np.empty(n_chunks, np.int64)
    roots[chunk] = terminal["node"][index]
    return roots


def _check_roots(roots, n_nodes, collective, root):
    """Chunks are at the nodes where the collective wants them before or after."""
    if collective in _ROOTED and (roots != root).any():
        c = int(np.flatnonzero(roots != root)[0])
        raise TableError(f"chunk {c} is at node {roots[c]}, must be at the root, {root}")
    share = np.bincount(roots, minlength=n_nodes)
    if collective in _SHARED and share.min() != share.max():
        a, b = int(share.argmin()), int(share.argmax())
        raise TableError(
            f"node {a} has {share[a]} chunks, node {b} has {share[b]}: {collective} needs as many "
            "at each"
        )


def _check_acyclic(rows, sends, n_nodes, n_chunks):
    """Following each chunk's reduce messages from any node ends at its terminal row."""
    reduces = sends[sends["op"] == REDUCE]
    index, chunk = expand(reduces)
    to = np.arange(n_nodes * n_chunks).reshape(n_chunks, n_nodes)
    base = chunk.astype(np.int64) * n_nodes
    to.ravel()[base + reduces["src"][index]] = base + reduces["dst"][index]
    far = to
    for _ in range(max(1, (n_nodes - 1).bit_length())):
        far = far.ravel()[far]
    stuck = np.argwhere(to.ravel()[far] != far)
    if len(stuck):
        c, v = stuck[0]
        at = int(far[c, v] % n_nodes)
        loop = [at]
        while (at := int(to[c, at] % n_nodes)) not in loop:
            loop.append(at)
        names = " -> ".join(map(str, [*loop[loop.index(at) :], at]))
        raise TableError(f"chunk {c}: nodes wait for each other in a cycle, {names}")


def _landing(rows, sends, n_nodes, n_chunks):
    """Most chunks at one node in one step that arrive or wait for an earlier rank.

    TableError unless the ranks at each node and chunk are 0 .. wait - 1, each once.
    """
    reduces = sends[sends["op"] == REDUCE]
    if not len(reduces):
        return 0
    index, chunk = expand(reduces)
    place = chunk.astype(np.int64) * n_nodes + reduces["dst"][index]
    wait = np.zeros(n_nodes * n_chunks, np.int32)
    mine = rows[rows["op"] == REDUCE]
    which, own = expand(mine)
    wait[own.astype(np.int64) * n_nodes + mine["node"][which]] = mine["wait"][which]
    order = np.lexsort([reduces["rank"][index], place])
    place, rank = place[order], reduces["rank"][index][order]
    step, node = reduces["step"][index][order], reduces["dst"][index][order]
    bad = np.flatnonzero((rank >= wait[place]) | (rank < 0))
    twice = np.flatnonzero((place[1:] == place[:-1]) & (rank[1:] == rank[:-1]))
    for at, what in (bad, "beyond its count of contributions"), (twice, "twice"):
        if len(at):
            v, c = node[at[0]], place[at[0]] // n_nodes
            raise TableError(f"node {v}, chunk {c} has rank {rank[at[0]]} {what}")
    group = np.cumsum(np.concatenate([[0], place[1:] != place[:-1]]))
    n_steps = int(step.max()) + 2
    added = np.maximum.accumulate(group * n_steps + step) - group * n_steps
    change = np.zeros((n_nodes, n_steps), np.int64)  # +1 on arrival, -1 after the addition
    np.add.at(change, (node, step), 1)
    np.add.at(change, (node, added + 1), -1)
    return int(change.cumsum(axis=1).max())


def _contention(table, topology, sends):
    """(most messages per link, step and unit of bandwidth, the first collision, step lengths)."""
    n_steps = int(sends["step"].max()) + 1
    lengths = np.array([len(p) for p in table.paths])
    start = np.cumsum(lengths) - lengths
    flat = np.concatenate([np.array(p, np.int64) for p in table.paths])
    hops = lengths[sends["path"]]
    index = np.repeat(np.arange(len(sends)), hops)
    offset = np.arange(len(index)) - np.repeat(np.cumsum(hops) - hops, hops)
    link = flat[start[sends["path"]][index] + offset]
    key = sends["step"][index].astype(np.int64) * topology.n_links + link
    size = n_steps * topology.n_links
    messages = np.bincount(key, minlength=size).reshape(n_steps, -1)
    load = np.bincount(key, weights=sends["count"][index], minlength=size).reshape(n_steps, -1)
    room = np.maximum(1, np.floor(topology.bandwidth + 1e-9))
    flows = np.ceil(messages / room).astype(int)
    longest = (load / topology.bandwidth).max(axis=1)
    if topology.port_limited:
        for end in "src", "dst":
            key = sends["step"].astype(np.int64) * table.n_nodes + sends[end]
            ni = np.bincount(key, weights=sends["count"], minlength=n_steps * table.n_nodes)
            longest = np.maximum(longest, ni.reshape(n_steps, -1).max(axis=1) / topology.ports)
    collision = None
    if flows.max() > 1:
        step, at = np.argwhere(flows > 1)[0]
        both = sends[index[(link == at) & (sends["step"][index] == step)]]
        names = ", ".join(f"{s}->{d}" for s, d in zip(both["src"], both["dst"], strict=True))
        a, b = topology.links[at]
        collision = f"step {step}, link {a}->{b}: {names}"
    return int(flows.max()), collision, longest
