"""A schedule table as messages and what each of them sets free, in flat arrays for a simulation."""

import numpy as np

from gradnic.interface.schedule_table import NOP, REDUCE, Table

from .topology import Topology


class Traffic:
    """All messages of one all-reduce of `n_floats`, periodic tables written out.

    unit : floats of which chunks are multiples.

    Members
    -------
    paths : list of tuples
        Places that a message takes in turn: links, and where ports bind, the sender's network
        interface (n_links + node) before and the receiver's (n_links + n_nodes + node) after them.
    path, dst, floats, is_reduce, message_row : arrays (n_messages,)
        In the order of the senders' tables.
    position, queue_lengths
        A message's place in line at the first place of its path, and the length of each line.
    need : (n_rows,)
        Chunk arrivals that a row waits for. `wait`, `row_floats` (n_rows,): contributions to each
        of its chunks, 0 for gather rows, and the floats of these chunks. `node` (n_rows,): its
        node; `first`, `count` (n_rows,): its chunks; `reduces` (n_rows,): it is no gather row;
        `send_start` (n_rows + 1,): its messages; `first_rows` (n_nodes,): each node's first
        row.
    feeds, feed_count, feed_start
        Rows that a source sets free, and by how many chunk arrivals. Sources are the messages,
        then the terminal rows; `terminal_source` (n_rows,) is a terminal row's source, else -1.
    free_rows : rows that wait for nothing. `chunk_floats` : of a chunk.
    """

    def __init__(self, table: Table, topology: Topology, n_floats: int, *, unit: int = 16) -> None:
        self.n_nodes = table.n_nodes
        rows = written_out(table)
        n_chunks = table.n_chunks * table.repeats
        start = np.searchsorted(table.peers["node"], np.arange(table.n_nodes))
        index, slot = np.nonzero(rows["sends"] >= 0)
        peer = table.peers[start[rows["node"][index]] + rows["sends"][index, slot]]
        self.path = peer["path"].copy()
        self.dst = peer["to"].copy()
        self.is_reduce = rows["op"][index] == REDUCE
        self.send_start = np.searchsorted(index, np.arange(len(rows) + 1))
        length = -(-n_floats // (unit * n_chunks)) * unit
        self.chunk_floats = length
        first = rows["first"].astype(np.int64)
        self.first, self.count = first, rows["count"].astype(np.int64)
        self.reduces = rows["op"] == REDUCE
        ends = np.minimum((first + rows["count"]) * length, n_floats)
        self.row_floats = ends - np.minimum(first * length, n_floats)
        self.wait = np.where(rows["op"] == REDUCE, rows["wait"], 0).astype(np.int64)
        self.message_row = index.astype(np.int32)
        self.floats = self.row_floats[index]
        self._places(table, topology)
        self._dependencies(rows, index, n_chunks)

    def _places(self, table: Table, topology: Topology) -> None:
        n_links = topology.n_links
        self.paths, self.n_places = list(table.paths), n_links
        if topology.port_limited:
            self.n_places += 2 * self.n_nodes
            ends = topology.links
            self.paths = [
                (n_links + int(ends[p[0], 0]), *p, n_links + self.n_nodes + int(ends[p[-1], 1]))
                for p in table.paths
            ]
        first = np.array([p[0] for p in self.paths], np.int32)[self.path]
        order = np.argsort(first, kind="stable")
        counts = np.bincount(first, minlength=self.n_places)
        self.position = np.empty(len(first), np.int32)
        self.position[order] = np.arange(len(first)) - np.repeat(np.cumsum(counts) - counts, counts)
        self.queue_lengths = counts.tolist()

    def _dependencies(self, rows: np.ndarray, index: np.ndarray, n_chunks: int) -> None:
        n_rows, n_messages = len(rows), len(index)
        reduce_row = rows["op"] == REDUCE
        terminal = reduce_row & (rows["sends"] < 0).all(axis=1)
        self.terminal_source = np.full(n_rows, -1, np.int32)
        self.terminal_source[terminal] = n_messages + np.arange(terminal.sum())
        count = rows["count"].astype(np.int64)
        self.need = np.where(reduce_row, rows["wait"] * count, count)
        self.node = rows["node"]
        self.first_rows = np.searchsorted(rows["node"], np.arange(self.n_nodes))
        self.free_rows = np.flatnonzero(self.need == 0)

        def places(row: np.ndarray, node: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
            """(index into row, node * n_chunks + chunk) of every chunk of these rows."""
            n = count[row]
            which = np.repeat(np.arange(len(row)), n)
            offset = np.arange(len(which)) - np.repeat(np.cumsum(n) - n, n)
            return which, node[which] * n_chunks + rows["first"][row][which] + offset

        sources, targets = [], []
        up = np.flatnonzero(self.is_reduce)
        down = np.flatnonzero(~self.is_reduce)
        tops = np.flatnonzero(terminal)
        nodes = rows["node"].astype(np.int64)
        brings: tuple[list, list] = (
            [(up, index[up], self.dst[up])],
            [(down, index[down], self.dst[down]), (self.terminal_source[tops], tops, nodes[tops])],
        )
        for row_kind, parts in zip((reduce_row, ~reduce_row), brings, strict=True):
            waiting = np.flatnonzero(row_kind)
            which, key = places(waiting, nodes[waiting])
            order = np.argsort(key, kind="stable")
            key, which = key[order], waiting[which[order]]
            for source, row, node in parts:
                part, arrived = places(row, node)
                low = np.searchsorted(key, arrived, "left")
                n = np.searchsorted(key, arrived, "right") - low
                pick = np.repeat(low - (np.cumsum(n) - n), n) + np.arange(n.sum())
                sources.append(np.repeat(source[part], n).astype(np.int32))
                targets.append(which[pick].astype(np.int32))
        pairs = np.concatenate(sources).astype(np.int64)
        pairs *= n_rows
        pairs += np.concatenate(targets)
        del sources, targets
        pairs, self.feed_count = np.unique(pairs, return_counts=True)
        n_sources = n_messages + len(tops)
        self.feed_start = np.searchsorted(pairs, n_rows * np.arange(n_sources + 1))
        self.feeds = (pairs % n_rows).astype(np.int32)


def written_out(table: Table) -> np.ndarray:
    """Rows that do something, absolute steps and chunks, by node and order of issue."""
    rows = table.rows[table.rows["op"] != NOP].copy()
    rows["count"] += 1
    if not table.period:
        return rows
    again = np.arange(table.repeats)
    result = np.tile(rows, table.repeats)
    turn = np.repeat(again, len(rows))
    result["step"] += (result["repeat"].astype(np.int64) - 1 + turn) * table.period
    result["first"] += turn * table.n_chunks
    return result[np.lexsort([result["op"], result["step"], result["node"]])]
