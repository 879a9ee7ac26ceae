"""A schedule table as programs of GPU runtimes: per rank and peer a block of sends or receives.

A block's steps run in order; two blocks on one pair of ranks see the same messages in the same
order. Steps of other blocks of the rank that must be done before are named as dependencies.
"""

from collections import defaultdict
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from gradnic.interface.schedule_table import REDUCE, Table

from .traffic import written_out

SEND, ADD, STORE = "send", "add", "store"


@dataclass
class Step:
    """One message's end: chunks first .. first + count - 1 are sent, added or stored.

    after : (block, step) of the same rank that must be done before; needed : some other waits.
    message : number, the same at both ends.
    """

    kind: str
    first: int
    count: int
    message: int
    after: list = field(default_factory=list)
    needed: bool = False


@dataclass
class Block:
    """Messages from one rank to one other, at one of the two ends. part : which, of `longest`."""

    peer: int
    sends: bool
    part: int
    steps: list = field(default_factory=list)


def programs(table: Table, longest: int | None = None) -> list[list[Block]]:
    """Blocks of every rank, a list of lists of `Block`, from a table that the checker passes.

    Contributions to a chunk are added one after the other in the order of their ranks, so floats
    come out as on the cards, bit for bit. Messages stand in the order of the table's steps, which
    is one that every wait can be met in. longest : messages of a block, those beyond are in others
    of the same pair of ranks, cut alike at both ends; None: a block has all.
    """
    rows = written_out(table)
    start = np.searchsorted(table.peers["node"], np.arange(table.n_nodes))
    ranks = [[] for _ in range(table.n_nodes)]
    where = [{} for _ in range(table.n_nodes)]  # (peer, sends, part): index of the block
    n_sent = defaultdict(int)  # messages of (rank, peer, sends) so far
    writer = {}  # (rank, chunk): (block, step) that wrote it last

    def append(rank: int, peer: int, kind: Any, row: Any, message: int, wait: bool) -> Any:
        pair = rank, peer, kind == SEND
        key = peer, kind == SEND, n_sent[pair] // longest if longest else 0
        n_sent[pair] += 1
        if key not in where[rank]:
            where[rank][key] = len(ranks[rank])
            ranks[rank].append(Block(*key))
        b = where[rank][key]
        chunks = range(int(row["first"]), int(row["first"] + row["count"]))
        before = {writer[rank, c] for c in chunks if (rank, c) in writer} if wait else set()
        latest = {}  # of each block the last step that is waited for
        for other, step in before:
            if other != b:
                latest[other] = max(step, latest.get(other, 0))
        for other, step in latest.items():
            ranks[rank][other].steps[step].needed = True
        steps = ranks[rank][b].steps
        after = sorted(latest.items())
        steps.append(Step(kind, chunks.start, len(chunks), message, after))
        if kind != SEND:
            writer.update(((rank, c), (b, len(steps) - 1)) for c in chunks)

    message = 0
    for at in np.lexsort([rows["op"], rows["step"]]):
        row = rows[at]
        node, reduces = int(row["node"]), row["op"] == REDUCE
        for peer in table.peers["to"][start[node] + row["sends"][row["sends"] >= 0]].tolist():
            append(node, peer, SEND, row, message, wait=True)
            append(peer, node, ADD if reduces else STORE, row, message, wait=reduces)
            message += 1
    return ranks
