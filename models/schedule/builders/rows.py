"""From transfers to the table that cards execute."""

import numpy as np

from gradnic.interface.schedule_table import MAX_SENDS, PEER, ROW, Table

from .schedule import GATHER, NOP, REDUCE, Schedule


def compile_table(schedule: Schedule, *, barrier: bool = False, nops: bool = False) -> Table:
    """The Table of a Schedule.

    Reduce transfers become rows with the number of contributions to wait for and their rank at
    the parent (order of arrival, then of source); each chunk's root gets a terminal row in the
    step of its first gather, or after its last contribution where nothing is gathered; gather
    transfers of one chunk range, node and step share rows of up to 4 peers. A node issues its rows
    strictly in turn, so those of one step are listed in the order in which what they wait for
    arrives: none holds up another that could go. A node without transfers gets one NOP row.

    barrier : bool
        BAR on every node's first gather row: the paper's node-local change of phase.
    nops : bool
        A NOP row for every run of steps without a row, for lock-step issue.
    """
    transfers = schedule.transfers
    peers, paths, index = _peers(schedule)
    reduces = transfers["op"] == REDUCE
    arrived, wait, rank = _contributions(schedule, transfers[reduces])
    up = _rows(transfers[reduces])
    up["wait"], up["rank"] = wait, rank
    up["sends"][:, 0] = index[reduces]
    top = _terminal_rows(schedule, arrived)
    down = _gather_rows(transfers[~reduces], index[~reduces])
    rows = np.concatenate([up, top, down])
    waited = rows["step"] - _ready(schedule, up, top, down)
    rows["count"] -= 1
    if schedule.period:
        rows["repeat"] = rows["step"] // schedule.period + 1
        rows["step"] %= schedule.period
    keys = (rows["first"], rows["flow"], rows["op"], -waited, rows["step"], rows["node"])
    rows = rows[np.lexsort(keys)]
    if barrier:
        gather = np.flatnonzero(rows["op"] == GATHER)
        rows["bar"][gather[np.unique(rows["node"][gather], return_index=True)[1]]] = 1
    if nops:
        rows = _with_nops(rows)
    rows = _one_row_each(rows, schedule.topology.n_nodes)
    return Table(
        f"{schedule.algorithm} {schedule.topology.name}", schedule.topology.n_nodes,
        schedule.n_chunks, schedule.period or 0, schedule.repeats, rows, peers, paths,
    )  # fmt: skip


def _rows(transfers):
    rows = np.zeros(len(transfers), ROW)
    rows["node"] = transfers["src"]
    for name in ("op", "flow", "step", "first", "count"):
        rows[name] = transfers[name]
    rows["sends"] = -1
    return rows


def _peers(schedule):
    """Peers and paths of all nodes, and each transfer's peer index at its source."""
    topology, transfers, routes = schedule.topology, schedule.transfers, schedule.routes
    key = transfers["src"].astype(np.int64) * len(routes) + transfers["route"]
    keys, at, inverse = np.unique(key, return_index=True, return_inverse=True)
    peers = np.zeros(len(keys), PEER)
    peers["node"] = keys // len(routes)
    start = np.searchsorted(peers["node"], np.arange(topology.n_nodes))
    peers["index"] = np.arange(len(keys)) - start[peers["node"]]
    peers["to"] = transfers["dst"][at]
    used, peers["path"] = np.unique(keys % len(routes), return_inverse=True)
    paths = [tuple(routes[r].tolist()) for r in used]
    position = {
        link: i for v in range(topology.n_nodes) for i, (link, _) in enumerate(topology.out[v])
    }
    card = topology.links[[path[0] for path in paths], 0] < topology.n_owners
    port = np.array([position[path[0]] for path in paths])  # of a switch: one a link
    port[card] %= topology.ports
    peers["port"] = port[peers["path"]]
    return peers, paths, peers["index"][inverse]


def _expand(transfers):
    """(transfer, chunk) for every chunk of every transfer."""
    count = transfers["count"].astype(np.int64)
    index = np.repeat(np.arange(len(transfers)), count)
    offset = np.arange(len(index)) - np.repeat(np.cumsum(count) - count, count)
    return index, transfers["first"][index] + offset


def _contributions(schedule, reduces):
    """Contributions that reach each (node, chunk); each transfer's wait, and rank at its end."""
    n_chunks = schedule.n_chunks
    index, chunk = _expand(reduces)
    place = reduces["dst"][index].astype(np.int64) * n_chunks + chunk
    arrived = np.bincount(place, minlength=schedule.topology.n_nodes * n_chunks)
    if not len(reduces):
        return arrived, *np.zeros((2, 0), np.int64)
    order = np.lexsort([reduces["src"][index], reduces["step"][index], place])
    sorted_place = place[order]
    begin = np.searchsorted(sorted_place, sorted_place)  # where this place's group starts
    rank = np.empty(len(order), np.int64)
    rank[order] = np.arange(len(order)) - begin
    first = np.concatenate([[0], np.cumsum(reduces["count"])[:-1]]).astype(np.int64)
    wait = arrived[reduces["src"].astype(np.int64) * n_chunks + reduces["first"]]
    return arrived, wait, rank[first]


def _terminal_rows(schedule, arrived):
    """One row per run of chunks with the same root, flow, wait and step."""
    transfers, n_chunks = schedule.transfers, schedule.n_chunks
    gathers = transfers[transfers["op"] == GATHER]
    gathers = gathers[np.isin(gathers["src"], np.unique(schedule.roots))]
    index, chunk = _expand(gathers)
    at_root = schedule.roots[chunk] == gathers["src"][index]
    step = np.full(n_chunks, np.iinfo(np.int32).max)
    np.minimum.at(step, chunk[at_root], gathers["step"][index[at_root]])
    if not len(gathers):
        index, chunk = _expand(transfers)
        at_root = schedule.roots[chunk] == transfers["dst"][index]
        step[:] = 0
        np.maximum.at(step, chunk[at_root], transfers["step"][index[at_root]] + 1)
    if schedule.sums is not None:
        step = schedule.sums
    chunks = np.arange(n_chunks)
    wait = arrived[schedule.roots.astype(np.int64) * n_chunks + chunks]
    key = np.stack([schedule.roots, schedule.flows, wait, step])
    begin = np.flatnonzero(np.concatenate([[True], (key[:, 1:] != key[:, :-1]).any(axis=0)]))
    rows = np.zeros(len(begin), ROW)
    rows["op"], rows["sends"] = REDUCE, -1
    rows["node"], rows["flow"] = schedule.roots[begin], schedule.flows[begin]
    rows["wait"], rows["step"], rows["first"] = wait[begin], step[begin], begin
    rows["count"] = np.diff(np.concatenate([begin, [n_chunks]]))
    return rows


def _ready(schedule, up, top, down):
    """Per row, of reduce, terminal and gather rows in turn, the step in which the last message that
    it waits for is sent; -1: none. Gather rows at a root are ready with its terminal row.
    """
    transfers, n_chunks = schedule.transfers, schedule.n_chunks
    shape = schedule.topology.n_nodes * n_chunks
    summed, final = np.full(shape, -1), np.full(shape, -1)
    for arrived, op in (summed, REDUCE), (final, GATHER):
        some = transfers[transfers["op"] == op]
        index, chunk = _expand(some)
        place = some["dst"][index].astype(np.int64) * n_chunks + chunk
        np.maximum.at(arrived, place, some["step"][index])

    def last(arrived, rows):
        index, chunk = _expand(rows)
        result = np.full(len(rows), -1)
        place = rows["node"][index].astype(np.int64) * n_chunks + chunk
        np.maximum.at(result, index, arrived[place])
        return result, place, index

    reduced, _, _ = last(summed, up)
    done, place, index = last(summed, top)
    final[place] = done[index]
    return np.concatenate([reduced, done, last(final, down)[0]])


def _gather_rows(gathers, peer):
    """Gather transfers that share node, step, flow and chunks become rows of up to 4 sends."""
    if not len(gathers):
        return _rows(gathers)
    names = ("count", "first", "flow", "step", "src")
    order = np.lexsort([peer, *(gathers[n] for n in names)])
    gathers, peer = gathers[order], peer[order]
    key = np.stack([gathers[n] for n in names])
    new = np.concatenate([[True], (key[:, 1:] != key[:, :-1]).any(axis=0)])
    begin = np.flatnonzero(new)
    within = np.arange(len(gathers)) - begin[np.cumsum(new) - 1]
    heads = within % MAX_SENDS == 0
    rows = _rows(gathers[heads])
    rows["sends"][np.cumsum(heads) - 1, within % MAX_SENDS] = peer
    return rows


def _one_row_each(rows, n_nodes):
    """The rows with a NOP row for every node without any, such as leaves of a broadcast: a card
    does not start on an empty table.
    """
    nodes = np.arange(n_nodes)
    idle = nodes[np.searchsorted(rows["node"], nodes) == np.searchsorted(rows["node"], nodes + 1)]
    more = np.zeros(len(idle), ROW)
    more["op"], more["node"], more["sends"] = NOP, idle, -1
    return np.insert(rows, np.searchsorted(rows["node"], idle), more)


def _with_nops(rows):
    """The rows with one NOP row in every gap of a node's steps."""
    before = np.concatenate([[-1], rows["step"][:-1]])
    before[np.concatenate([[True], rows["node"][1:] != rows["node"][:-1]])] = -1
    gap = rows["step"] - before - 1
    at = np.flatnonzero(gap > 0)
    idle = np.zeros(len(at), ROW)
    idle["op"], idle["sends"] = NOP, -1
    idle["node"], idle["step"] = rows["node"][at], before[at] + 1
    idle["count"] = gap[at] - 1
    return np.insert(rows, at, idle)
