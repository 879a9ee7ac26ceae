"""A schedule table played step by step, symbolically: whose values are in each partial sum.

For every chunk and node the set of nodes whose values it holds; `checker` says what of.
"""

import numpy as np

from gradnic.interface.schedule_table import GATHER, REDUCE

from .topology import Topology

_BLOCK_BYTES = 64 << 20  # memory for the sets of one block of chunks


class TableError(ValueError):
    """A table that does not do what it should. The message names step, node and chunk."""


def expand(records: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Each record's chunks one by one: (index of the record, chunk), two arrays."""
    count = records["count"].astype(np.int64)
    index = np.repeat(np.arange(len(records)), count)
    offset = np.arange(len(index)) - np.repeat(np.cumsum(count) - count, count)
    return index, records["first"][index] + offset


def replay(
    rows: np.ndarray,
    sends: np.ndarray,
    topology: Topology,
    n_chunks: int,
    *,
    adds: bool,
    delivers: bool,
) -> None:
    """Step by step, in blocks of chunks, so that memory stays bounded. TableError for what is sent,
    completed or delivered wrongly.

    rows, sends : as of `checker`. adds : whether sums are made. delivers : whether all get them.
    """
    n_nodes, n_owners = topology.n_nodes, topology.n_owners
    words = -(-n_nodes // 64)
    block = max(1, _BLOCK_BYTES // (n_nodes * words * 8))
    n_steps = int(max(rows["step"].max(), sends["step"].max())) + 1
    terminal = rows[(rows["op"] == REDUCE) & (rows["sends"] < 0).all(axis=1)]
    by_chunk = np.argsort(sends["first"], kind="stable")
    starts, longest = sends["first"][by_chunk], int(sends["count"].max())
    for low in range(0, n_chunks, block):
        high = min(low + block, n_chunks)
        state = Block(n_nodes, n_owners, low, high, adds=adds)
        near = by_chunk[slice(*np.searchsorted(starts, [low - longest + 1, high]))]
        moves, tops = _cut(sends[np.sort(near)], low, high), _cut(terminal, low, high)
        moves = moves[np.argsort(moves["step"], kind="stable")]
        tops = tops[np.argsort(tops["step"], kind="stable")]
        cuts = np.searchsorted(moves["step"], np.arange(n_steps + 1))
        top_cuts = np.searchsorted(tops["step"], np.arange(n_steps + 1))
        for step in range(n_steps):
            state.finish(step, tops[top_cuts[step] : top_cuts[step + 1]])
            state.move(step, moves[cuts[step] : cuts[step + 1]], rows["wait"])
        state.end(delivers=delivers)


def _cut(records: np.ndarray, low: int, high: int) -> np.ndarray:
    """The parts of records that concern chunks low .. high-1."""
    inside = (records["first"] < high) & (records["first"] + records["count"] > low)
    part = records[inside].copy()
    end = np.minimum(part["first"] + part["count"], high)
    part["first"] = np.maximum(part["first"], low)
    part["count"] = end - part["first"]
    return part


class Block:
    """State of chunks low .. high-1: places are chunk * n_nodes + node, chunk counted from low."""

    def __init__(
        self, n_nodes: int, n_owners: int, low: int, high: int, *, adds: bool = True
    ) -> None:
        self.n_nodes, self.n_owners, self.low, self.adds = n_nodes, n_owners, low, adds
        n = (high - low) * n_nodes
        node = np.arange(n) % n_nodes
        self.holds = np.zeros((n, -(-n_nodes // 64)), np.uint64)  # whose values are in the sum
        self.holds[np.arange(n), node // 64] = np.uint64(1) << (node % 64).astype(np.uint64)
        self.holds[node >= n_owners] = 0
        self.all = np.bitwise_or.reduce(self.holds[:n_nodes], axis=0)
        self.added = np.zeros(n, np.int32)
        self.sent = np.zeros(n, bool)
        self.final = np.zeros(n, bool)

    def _name(self, place: int) -> str:
        return f"node {place % self.n_nodes}, chunk {place // self.n_nodes + self.low}"

    def _places(self, records: np.ndarray, end: str) -> tuple[np.ndarray, np.ndarray]:
        index, chunk = expand(records)
        return index, (chunk - self.low).astype(np.int64) * self.n_nodes + records[end][index]

    def _refuse(self, step: int, places: np.ndarray, bad: np.ndarray, what: str) -> None:
        if bad.any():
            raise TableError(f"step {step}: {self._name(int(places[bad][0]))} {what}")

    def finish(self, step: int, tops: np.ndarray) -> None:
        """Terminal rows: the sum is complete."""
        index, at = self._places(tops, "node")
        self._refuse(step, at, self.added[at] != tops["wait"][index],
                     "is completed with the wrong number of contributions")  # fmt: skip
        if self.adds:
            self._refuse(step, at, (self.holds[at] != self.all).any(axis=1),
                         "is completed without every node's part")  # fmt: skip
        self.sent[at] = self.final[at] = True

    def move(self, step: int, moves: np.ndarray, wait: np.ndarray) -> None:
        """All messages of one step: read first, then deliver."""
        reduces, gathers = (moves[moves["op"] == op] for op in (REDUCE, GATHER))
        index, at = self._places(reduces, "src")
        self._refuse(step, at, self.added[at] != wait[reduces["row"][index]],
                     "is sent before its contributions came, or waits for too few")  # fmt: skip
        carried = self.holds[at]
        self.sent[at] = True
        _, source = self._places(gathers, "src")
        self._refuse(step, source, ~self.final[source], "is gathered before it is final here")
        index, to = self._places(reduces, "dst")
        ranks = reduces["rank"][index]
        for turn in np.unique(ranks):  # several contributions in one step are added in their order
            now = ranks == turn
            place = to[now]
            self._refuse(step, place, self.sent[place], "receives a part after it has left")
            doubled = (self.holds[place] & carried[now]).any(axis=1)
            self._refuse(step, place, doubled, "would count a part twice")
            self.holds[place] |= carried[now]
            self.added[place] += 1
        _, to = self._places(gathers, "dst")
        self._refuse(step, to, self.final[to], "is delivered twice")
        if len(np.unique(to)) < len(to):
            self._refuse(step, to, np.bincount(to)[to] > 1, "is delivered twice")
        self.final[to] = True

    def end(self, *, delivers: bool = True) -> None:
        """Every chunk is final everywhere; if none is delivered, at its root alone, which is where
        its one terminal row is.
        """
        owned = np.arange(len(self.final)) % self.n_nodes < self.n_owners
        lost = np.flatnonzero(~self.final & owned)
        if delivers and len(lost):
            raise TableError(f"{self._name(int(lost[0]))} is never delivered")
        if not delivers and self.final.sum() != len(self.final) // self.n_nodes:
            place = np.flatnonzero(self.final.reshape(-1, self.n_nodes).sum(axis=1) > 1)[0]
            raise TableError(f"chunk {place + self.low} is gathered, must stay at its root")
