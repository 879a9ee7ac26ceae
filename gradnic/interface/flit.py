"""The flit layer's head and a card's share of a round: what circuits, models and hosts agree on.

A message is one head of 16 bytes, or one per 256-byte packet, and the payload of one table row to
one peer: chunk after chunk, each in whole flits. Source: docs/spec/card.md.
"""

from dataclasses import dataclass

import numpy as np

from .schedule_table import REDUCE, Table

FLIT_BYTES = 16
FLIT_FLOATS = 4
PACKET_FLITS = 16  # payload of a packet: 256 bytes
UNIT_FLITS = 64  # that are coded together, at most: 256 floats
CHUNK_FLOATS = 16  # chunks are multiples of it

HEAD = {  # name: bits, from bit 0 of the head flit; the rest is 0
    "gather": 1,
    "more": 1,  # a packet, or a coded unit, that goes on with its message
    "ends": 1,  # a coded unit: the message's last
    "flits": 7,  # that a coded unit had
    "bytes": 11,  # that it has
    "spare": 11,
    "flow": 16,
    "step": 16,
    "rank": 16,  # of a partial: its place in the receiver's order of addition
    "first": 16,  # chunks first .. first + count
    "count": 16,
    "route": 16,  # row of the table's paths, for the switches
}


@dataclass(frozen=True)
class Share:
    """Where a node keeps its tensor and what lands: sizes in words of `n_lanes` floats.

    Parameters
    ----------
    n_lanes : int
    n_floats : int
        Of the tensor.
    n_chunks : int
        Of the tensor, those of all repeats.
    ranks : int array (n_chunks,)
        Contributions that each chunk gets at this node.

    A chunk and a contribution each have a place of `chunk_words`; those of rank r of chunk c is
    number ``base[c] + r``.
    """

    n_lanes: int
    n_floats: int
    n_chunks: int
    ranks: np.ndarray

    @property
    def chunk_floats(self) -> int:
        return -(-self.n_floats // (CHUNK_FLOATS * self.n_chunks)) * CHUNK_FLOATS

    @property
    def chunk_words(self) -> int:
        return -(-self.chunk_floats // self.n_lanes)

    @property
    def live(self) -> int:
        """Chunks that are not empty."""
        return -(-self.n_floats // self.chunk_floats)

    @property
    def chunk_flits(self) -> tuple[int, int]:
        """Flits of a chunk, and of the last one that is not empty."""
        last = self.n_floats - (self.live - 1) * self.chunk_floats
        return self.chunk_floats // FLIT_FLOATS, -(-last // FLIT_FLOATS)

    @property
    def base(self) -> np.ndarray:
        return np.concatenate([[0], np.cumsum(self.ranks[:-1])]).astype(np.int64)

    @property
    def n_places(self) -> int:
        """Of contributions."""
        return int(self.ranks.sum())

    def to_words(self, values: np.ndarray) -> np.ndarray:
        """uint32 (n_chunks * chunk_words, n_lanes) of a tensor, float32 (n_floats,)."""
        padded = np.zeros((self.n_chunks, self.chunk_floats), np.uint32)
        padded.reshape(-1)[: self.n_floats] = np.ascontiguousarray(values, np.float32).view("u4")
        words = np.zeros((self.n_chunks, self.chunk_words * self.n_lanes), np.uint32)
        words[:, : self.chunk_floats] = padded
        return words.reshape(-1, self.n_lanes)

    def from_words(self, words: np.ndarray) -> np.ndarray:
        """float32 (n_floats,) of `to_words`' result."""
        chunks = words.reshape(self.n_chunks, self.chunk_words * self.n_lanes)
        flat = chunks[:, : self.chunk_floats].reshape(-1)[: self.n_floats]
        return np.ascontiguousarray(flat).view(np.float32)


def contributions(table: Table) -> np.ndarray:
    """int (n_nodes, n_chunks): what each node adds to each chunk, periodic tables written out."""
    n_chunks = table.n_chunks * table.repeats
    result = np.zeros((table.n_nodes, n_chunks), np.int64)
    rows = table.rows[table.rows["op"] == REDUCE]
    for turn in range(table.repeats):
        for row in rows[rows["wait"] > 0]:
            first = int(row["first"]) + turn * table.n_chunks
            result[row["node"], first : first + int(row["count"]) + 1] = row["wait"]
    return result
