"""What a host derives from a schedule table before a card can run it over lossy links.

Chunks are cut into packets, which all cards number alike, and each card learns what every neighbor
will send it: the place of a contribution in the order of addition, and how many leaves it stands
for. Both are constants of (flow, neighbor).
"""

from dataclasses import dataclass

import numpy as np

from gradnic.interface.params import check_least
from gradnic.interface.schedule_table import NOP, REDUCE, Table

from ..schedule.traffic import written_out
from ..transport.locator import Located, locate_offset
from ..transport.packet_walk import Cut

SEQ_UNIT = 16  # elements that SEQ counts in
CHECK = (1 << 20) - 1  # of ARG; the contributions are above


@dataclass(frozen=True)
class Row:
    """A table row, absolute: chunks first .. stop - 1; `to` lists (node, port) of its peers."""

    is_reduce: bool
    bar: bool
    flow: int
    wait: int
    rank: int
    first: int
    stop: int
    to: tuple


@dataclass(frozen=True)
class Contribution:
    """What one neighbor sends of one chunk on the way up: flow, rank, and leaves below it."""

    flow: int
    rank: int
    leaves: int


class Plan:
    """A table cut to one tensor.

    Parameters
    ----------
    table : gradnic.interface.schedule_table.Table
    n_elems : int
    unit : int
        Chunks are rounded up to so many elements: 16, or whole blocks for THC.
    packet : int
        Elements per packet, a multiple of 16; a packet never crosses a chunk.

    Attributes
    ----------
    cut : `packet_walk.Cut`, of the tensor
    n_chunks, chunk : chunks, elements of each (the last ones may be short or empty)
    per_chunk : packets of a chunk; packet j of chunk c has the number c * per_chunk + j
    n_packets : those numbers from 0 on that have elements
    elems : int64, shape (n_packets,)
    rows : one list of `Row` a node
    row_numbers : one list a node: what number each has in the table, and how many there are, with
        rows that do nothing
    up : one dict a node: {source: {chunk: Contribution}}
    down : one dict a node: {source: set of chunks that it gathers to us}
    depth : most hops from a leaf to its root
    n_leaves : nodes whose values are in each sum: all, or one where nothing is added
    parts : bool, shape (n_nodes, n_chunks): a node's own partial of a chunk leaves it
    wanted : bool, shape (n_nodes, n_packets): packets of the result that a node ends with
    """

    def __init__(
        self, table: Table, n_elems: int, *, unit: int = SEQ_UNIT, packet: int = 352
    ) -> None:
        check_least("n_elems", n_elems, 1)
        if packet < SEQ_UNIT or packet % SEQ_UNIT:
            raise ValueError(f"packet must be a multiple of {SEQ_UNIT} elements, not {packet!r}")
        if unit % SEQ_UNIT:
            raise ValueError(f"unit must be a multiple of {SEQ_UNIT} elements, not {unit!r}")
        self.n_nodes, self.n_elems, self.packet = table.n_nodes, n_elems, packet
        self.n_chunks = table.n_chunks * table.repeats
        self.chunk = -(-n_elems // (unit * self.n_chunks)) * unit
        self.cut = Cut(n_elems, self.chunk, packet)
        self.per_chunk, self.n_packets = self.cut.per_chunk, self.cut.n_packets
        spans = [self.span(k) for k in range(self.n_packets)]
        self.elems = np.array([stop - start for start, stop in spans], np.int64)
        self.parts = np.zeros((self.n_nodes, self.n_chunks), bool)
        final = np.zeros((self.n_nodes, self.n_chunks), bool)
        self._read(table, final)
        self.wanted = final[:, np.arange(self.n_packets) // self.per_chunk]
        self.n_leaves = self.n_nodes if self.parts.any() else 1
        self._count_leaves()

    def span(self, number: int) -> tuple[int, int]:
        """Elements start, stop of a packet."""
        return self.cut.span(number)

    def number(self, offset: int) -> int | None:
        """Number of the packet that starts at element `offset`, or None if none does."""
        found = self._located(offset)
        return found.number if found.whole and offset < self.n_elems else None

    def packet_of(self, elem: int) -> int:
        """Number of the packet that holds element `elem`."""
        return self._located(elem).number

    def _located(self, elem: int) -> Located:
        cut = self.cut
        return locate_offset(elem, chunk=cut.chunk, per_chunk=cut.per_chunk, packet=cut.packet)

    def packets(self, first: int, stop: int) -> range:
        """Range of the packets of chunks first .. stop - 1 that have elements."""
        return self.cut.packets(first, stop)

    def blocks(self, first: int, last: int, size: int) -> slice:
        """Slice of the blocks of `size` elements that packets first .. last have elements of."""
        return slice(self.span(first)[0] // size, -(-self.span(last)[1] // size))

    def check(self, number: int, norms: np.ndarray, size: int) -> int:
        """Low 20 bits of the XOR of the agreed norms of a packet's blocks: its ARG's check."""
        return int(np.bitwise_xor.reduce(norms[self.blocks(number, number, size)])) & CHECK

    def _read(self, table: Table, final: np.ndarray) -> None:
        """Rows, and who sends what to whom; `final` is filled."""
        start = np.searchsorted(table.peers["node"], np.arange(table.n_nodes))
        self.rows = [[] for _ in range(self.n_nodes)]
        self.up = [{} for _ in range(self.n_nodes)]
        self.down = [{} for _ in range(self.n_nodes)]
        self.parent = np.full((self.n_chunks, self.n_nodes), -1)
        for r in written_out(table):
            v, first, stop = int(r["node"]), int(r["first"]), int(r["first"] + r["count"])
            peers = table.peers[start[v] + r["sends"][r["sends"] >= 0]]
            to = tuple((int(p["to"]), int(p["port"])) for p in peers)
            row = Row(r["op"] == REDUCE, bool(r["bar"]), int(r["flow"]), int(r["wait"]),
                      int(r["rank"]), first, stop, to)  # fmt: skip
            self.rows[v].append(row)
            if row.is_reduce:
                (self.parts if to else final)[v, first:stop] = True
            for u, _ in to:
                if row.is_reduce:
                    self.parent[first:stop, v] = u
                    into = self.up[u].setdefault(v, {})
                    into.update(
                        (c, Contribution(row.flow, row.rank, 0)) for c in range(first, stop)
                    )
                else:
                    self.down[u].setdefault(v, set()).update(range(first, stop))
                    final[u, first:stop] = True

        self.row_numbers = []
        for v, rows in enumerate(self.rows):
            does = table.rows["op"][table.rows["node"] == v] != NOP
            numbers = np.arange(len(rows)) if table.period else np.flatnonzero(does)
            self.row_numbers.append([*numbers.tolist(), len(rows) + int((~does).sum())])

    def _count_leaves(self) -> None:
        """Leaves below every (chunk, node), by walking each node's way to the root."""
        leaves = np.ones((self.n_chunks, self.n_nodes), np.int64)
        chunks = np.arange(self.n_chunks)
        self.depth = 0
        for node in range(self.n_nodes):
            at, hops = self.parent[:, node].copy(), 0
            while (at >= 0).any():
                hops += 1
                below = at >= 0
                leaves[chunks[below], at[below]] += 1
                at[below] = self.parent[chunks[below], at[below]]
            self.depth = max(self.depth, hops)
        for into in self.up:
            for u, chunks_of in into.items():
                for c, one in chunks_of.items():
                    chunks_of[c] = Contribution(one.flow, one.rank, int(leaves[c, u]))
