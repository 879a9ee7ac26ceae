"""The schedule table that a card executes: its row fields in one place, and its file formats.

Row semantics: docs/guide/schedules.md. A row is a little-endian word of 64 bits (more only where
the fields need more); fields follow each other from bit 0 in the order of `FIELDS`, then the sends,
each a valid bit and a peer index. One table serves every tensor and round: rows name chunks, and
address = tensor base + chunk * chunk bytes.
"""

import json
import struct
from dataclasses import dataclass, fields
from typing import Any

import numpy as np

from gradnic.text_file import visible

REDUCE, GATHER, NOP = 0, 1, 2
MAX_SENDS = 4  # peers in one row; a node that sends to more in one step uses several rows

FIELDS = {  # name: (numpy type, what it says)
    "op": ("u1", "0 reduce, 1 gather, 2 no operation for `count` steps"),
    "bar": ("u1", "1: wait until all earlier rows are out and all ports idle"),
    "repeat": ("u2", "0: once; s + 1: stage s of a repeated row, chunk += stride per repeat"),
    "flow": ("i4", "flow number, carried by the messages"),
    "step": ("i4", "local step in which the row issues; modulo the period in repeated rows"),
    "wait": ("i4", "contributions that must have been added to each chunk"),
    "rank": ("i4", "place of this partial in the parent's order of addition"),
    "first": ("i4", "first chunk"),
    "count": ("i4", "chunks less one; of a NOP: steps less one"),
}

ROW = np.dtype(
    [("node", "i4")]
    + [(name, kind) for name, (kind, _) in FIELDS.items()]
    + [("sends", "i2", MAX_SENDS)]  # peer indices, -1 where unused
)
PEER = np.dtype(
    [
        ("node", "i4"),
        ("index", "i4"),  # what a row names: 0 .. n_peers(node) - 1
        ("port", "i4"),  # of the node, the position of the path's first link among its links
        ("to", "i4"),  # the node at the other end
        ("path", "i4"),  # row of `paths`
    ]
)
ROW_COLUMNS, PEER_COLUMNS = ROW.names or (), PEER.names or ()


def bits(largest: int) -> int:
    """Width of a field that holds 0 .. largest; 1 at least."""
    return max(1, int(largest).bit_length())


@dataclass(frozen=True)
class Layout:
    """Widths in bits of the row fields, of a peer index, and how many peers a row names."""

    op: int
    bar: int
    repeat: int
    flow: int
    step: int
    wait: int
    rank: int
    first: int
    count: int
    peer: int
    n_sends: int

    def __post_init__(self) -> None:
        for f in fields(self):
            width = getattr(self, f.name)
            if not 1 <= width <= 32:
                raise ValueError(f"{f.name} must be 1 to 32, not {width}")
        if self.n_sends > MAX_SENDS:
            raise ValueError(f"n_sends must be 1 to {MAX_SENDS}, not {self.n_sends}")

    @classmethod
    def for_nodes(cls, n_nodes: int, *, ports: int = 4, chunks: int = 1) -> "Layout":
        """Widths from the node count: any algorithm here with `chunks` chunks per shard fits.

        Cards with several ports have at most 16 peers and wait for at most 15 contributions;
        cards with one port have two peers (paths there and back) per other node. 64 nodes, 1
        chunk: 51 bits with one port, 59 with 4 or more.
        """
        n_chunks = n_nodes * chunks
        one = ports == 1
        return cls(
            op=2, bar=1, repeat=4, flow=bits(n_chunks - 1), step=bits(2 * n_chunks - 1),
            wait=bits(n_nodes - 1) if one else 4, rank=bits(n_nodes - 2) if one else 4,
            first=bits(n_chunks - 1), count=bits(max(1, n_chunks // 2 - 1)),
            peer=bits(2 * n_nodes - 3) if one else 4, n_sends=1 if one else min(ports, MAX_SENDS),
        )  # fmt: skip

    @classmethod
    def for_card(cls, n_nodes: int, n_chunks: int) -> "Layout":
        """That of an offload card built for tables of so many nodes and chunks."""
        return cls.for_nodes(n_nodes, ports=MAX_SENDS, chunks=-(-n_chunks // n_nodes))

    @classmethod
    def fit(cls, rows: np.ndarray) -> "Layout":
        """The narrowest layout that holds these rows."""
        widths = {name: bits(rows[name].max(initial=0)) for name in FIELDS}
        widths.update(op=2, bar=1)
        used = int((rows["sends"] >= 0).sum(axis=1).max(initial=1))
        return cls(**widths, peer=bits(rows["sends"].max(initial=0)), n_sends=max(1, used))

    @property
    def width(self) -> int:
        """Bits of a row that mean something."""
        return sum(getattr(self, name) for name in FIELDS) + self.n_sends * (self.peer + 1)

    @property
    def row_bytes(self) -> int:
        """Bytes of a row in the image: whole 64-bit words."""
        return -(-self.width // 64) * 8

    @property
    def offsets(self) -> dict[str, tuple[int, int]]:
        """{field: (first bit, width)}; the sends are ``send0`` (its valid bit first) and so on."""
        result, at = {}, 0
        for name in FIELDS:
            result[name] = (at, getattr(self, name))
            at += getattr(self, name)
        for i in range(self.n_sends):
            result[f"send{i}"] = (at, self.peer + 1)
            at += self.peer + 1
        return result

    def pack(self, rows: np.ndarray) -> bytes:
        """Image of `rows` (ROW array), bytes. ValueError names the first field that is too wide."""
        words = np.zeros((len(rows), self.row_bytes // 8), np.uint64)
        if (rows["sends"][:, self.n_sends :] >= 0).any():
            raise ValueError(f"a row names more than {self.n_sends} peers")
        for name, (at, width) in self.offsets.items():
            if name.startswith("send"):
                peer = rows["sends"][:, int(name[4:])].astype(np.int64)
                values = np.where(peer >= 0, peer * 2 + 1, 0)
            else:
                values = rows[name].astype(np.int64)
            if len(values) and (values.max() >> width or values.min() < 0):
                raise ValueError(f"{name} {values.max()} needs more than {width} bits")
            word, shift = divmod(at, 64)
            words[:, word] |= values.astype(np.uint64) << np.uint64(shift)
            if shift + width > 64:
                words[:, word + 1] |= values.astype(np.uint64) >> np.uint64(64 - shift)
        return words.astype("<u8").tobytes()

    def unpack(self, image: bytes, node: int = 0) -> np.ndarray:
        """The ROW array in an image of one node. ValueError if the length is not whole rows."""
        if len(image) % self.row_bytes:
            raise ValueError(f"{len(image)} bytes are no whole rows of {self.row_bytes}")
        words = np.frombuffer(image, "<u8").reshape(-1, self.row_bytes // 8)
        rows = np.zeros(len(words), ROW)
        rows["node"], rows["sends"] = node, -1
        for name, (at, width) in self.offsets.items():
            word, shift = divmod(at, 64)
            values = words[:, word] >> np.uint64(shift)
            if shift + width > 64:
                values = values | words[:, word + 1] << np.uint64(64 - shift)
            values = (values & np.uint64((1 << width) - 1)).astype(np.int64)
            if name.startswith("send"):
                rows["sends"][:, int(name[4:])] = np.where(values & 1, values >> 1, -1)
            else:
                rows[name] = values
        return rows


@dataclass(frozen=True, eq=False)
class Table:
    """All nodes' rows and peers. Two tables are equal if all arrays are: see `same`.

    Parameters
    ----------
    name : str
        Algorithm and topology.
    n_nodes, n_chunks : int
        n_chunks: of the tensor, or of one repeat of a periodic table.
    period, repeats : int
        Steps from one repeat to the next, 0 where rows run once; and how many repeats.
    rows : ROW array, by node, each node's rows in order of issue
    peers : PEER array, by node and index
    paths : list of tuples of int
        Links that a message to a peer takes, in order.
    """

    name: str
    n_nodes: int
    n_chunks: int
    period: int
    repeats: int
    rows: np.ndarray
    peers: np.ndarray
    paths: list

    def of(self, node: int) -> np.ndarray:
        """Rows of one node."""
        a, b = np.searchsorted(self.rows["node"], [node, node + 1])
        return self.rows[a:b]

    def same(self, other: "Table") -> bool:
        """True if every field and row is the same."""
        meta = ("name", "n_nodes", "n_chunks", "period", "repeats", "paths")
        return (
            all(getattr(self, m) == getattr(other, m) for m in meta)
            and np.array_equal(self.rows, other.rows)
            and np.array_equal(self.peers, other.peers)
        )


_HEAD = struct.Struct("<4sHIIIIII11B")  # magic, name, nodes, chunks, period, repeats, peers, paths


def to_bytes(table: Table, layout: Layout | None = None) -> bytes:
    """The whole table as one binary file: head, layout, peers, paths, row counts, images."""
    layout = layout or Layout.fit(table.rows)
    name = table.name.encode()
    widths = [getattr(layout, f.name) for f in fields(layout)]
    flat = [link for path in table.paths for link in path]
    parts = [
        _HEAD.pack(
            b"GNT1", len(name), table.n_nodes, table.n_chunks, table.period, table.repeats,
            len(table.peers), len(table.paths), *widths,
        ),
        name,
        np.array(table.peers.tolist(), "<i4").tobytes(),
        np.array([len(path) for path in table.paths], "<i4").tobytes(),
        np.array(flat, "<i4").tobytes(),
        np.bincount(table.rows["node"], minlength=table.n_nodes).astype("<i4").tobytes(),
        layout.pack(table.rows),
    ]  # fmt: skip
    return b"".join(parts)


def from_bytes(data: bytes) -> tuple[Table, Layout]:
    """(table, layout) from `to_bytes`. ValueError where the file is cut or of another kind."""
    if len(data) < _HEAD.size or data[:4] != b"GNT1":
        raise ValueError("no schedule table: the file must start with GNT1")
    _, n_name, n_nodes, n_chunks, period, repeats, n_peers, n_paths, *widths = _HEAD.unpack_from(
        data
    )
    layout = Layout(*widths)
    at = _HEAD.size

    def take(n: int) -> bytes:
        nonlocal at
        if at + n > len(data):
            raise ValueError(f"the table is cut short: {len(data)} bytes")
        at += n
        return data[at - n : at]

    def ints(n: int) -> np.ndarray:
        return np.frombuffer(take(4 * n), "<i4").astype(np.int32)

    name = take(n_name).decode()
    columns = ints(len(PEER_COLUMNS) * n_peers).reshape(-1, len(PEER_COLUMNS)).T
    peers = np.zeros(n_peers, PEER)
    for column, values in zip(PEER_COLUMNS, columns, strict=True):
        peers[column] = values
    ends = np.cumsum(ints(n_paths))
    flat = ints(int(ends[-1]) if n_paths else 0).tolist()
    paths = [tuple(flat[a:b]) for a, b in zip([0, *ends[:-1]], ends, strict=True)]
    counts = ints(n_nodes)
    rows = layout.unpack(take(int(counts.sum()) * layout.row_bytes))
    if at != len(data):
        raise ValueError(f"{len(data) - at} bytes follow the table")
    rows["node"] = np.repeat(np.arange(n_nodes), counts)
    return Table(name, n_nodes, n_chunks, period, repeats, rows, peers, paths), layout


def to_json(table: Table) -> str:
    """The table as text: rows and peers as lists in the order of their column names."""
    return json.dumps(
        {
            "name": table.name,
            "n_nodes": table.n_nodes,
            "n_chunks": table.n_chunks,
            "period": table.period,
            "repeats": table.repeats,
            "row_columns": list(ROW_COLUMNS),
            "rows": [
                [*row[:-1], [s for s in row[-1] if s >= 0]]
                for row in zip(*(table.rows[n].tolist() for n in ROW_COLUMNS), strict=True)
            ],
            "peer_columns": list(PEER_COLUMNS),
            "peers": [list(peer) for peer in table.peers.tolist()],
            "paths": [list(path) for path in table.paths],
        }
    )


def from_json(text: str) -> Table:
    """The table in `text`, as `to_json` wrote it. ValueError names what is missing."""
    try:
        data = json.loads(visible(text))
        rows = np.zeros(len(data["rows"]), ROW)
        for i, name in enumerate(ROW_COLUMNS[:-1]):
            rows[name] = [row[i] for row in data["rows"]]
        rows["sends"] = -1
        for i, row in enumerate(data["rows"]):
            rows["sends"][i, : len(row[-1])] = row[-1]
        peers = np.array([tuple(peer) for peer in data["peers"]], PEER)
        names = ("name", "n_nodes", "n_chunks", "period", "repeats")
        meta: dict[str, Any] = {name: data[name] for name in names}
        paths = [tuple(path) for path in data["paths"]]
        return Table(**meta, rows=rows, peers=peers, paths=paths)
    except (KeyError, TypeError, IndexError) as error:
        raise ValueError(f"no schedule table in this JSON: {error!r}") from None


def to_c(table: Table, layout: Layout | None = None) -> str:
    """A C header: offsets and widths of the fields, and each node's rows as uint64_t words."""
    layout = layout or Layout.fit(table.rows)
    words = layout.row_bytes // 8
    lines = [
        f"/* Schedule table {table.name}: {table.n_nodes} nodes, {table.n_chunks} chunks. */",
        "#pragma once",
        "#include <stdint.h>",
        f"#define GRADNIC_TABLE_NODES {table.n_nodes}",
        f"#define GRADNIC_TABLE_CHUNKS {table.n_chunks}",
        f"#define GRADNIC_TABLE_PERIOD {table.period}",
        f"#define GRADNIC_TABLE_REPEATS {table.repeats}",
        f"#define GRADNIC_ROW_WORDS {words}",
    ]
    for name, (at, width) in layout.offsets.items():
        lines += [f"#define GRADNIC_ROW_{name.upper()}_BIT {at}",
                  f"#define GRADNIC_ROW_{name.upper()}_WIDTH {width}"]  # fmt: skip
    counts, names, to_peers = [], [], []
    for node in range(table.n_nodes):
        rows = table.of(node)
        values = np.frombuffer(layout.pack(rows), "<u8").tolist() or [0]
        body = ", ".join(f"0x{v:016x}" for v in values)
        lines.append(f"static const uint64_t gradnic_rows_{node}[] = {{{body}}};")
        peers = table.peers[table.peers["node"] == node]
        body = ", ".join(f"{{{p['port']}, {p['to']}}}" for p in peers) or "{0, 0}"
        lines.append(f"static const uint16_t gradnic_peers_{node}[][2] = {{{body}}};")
        counts.append(str(len(rows)))
        names.append(f"gradnic_rows_{node}")
        to_peers.append(f"gradnic_peers_{node}")
    lines += [
        f"static const uint32_t gradnic_row_count[] = {{{', '.join(counts)}}};",
        f"static const uint64_t *const gradnic_rows[] = {{{', '.join(names)}}};",
        f"static const uint16_t (*const gradnic_peers[])[2] = {{{', '.join(to_peers)}}};",
    ]
    return "\n".join(lines) + "\n"
