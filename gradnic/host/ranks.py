"""Ranks and their cards: each rank has one of its own, and every node of the table has a rank."""

from collections.abc import Sequence
from typing import NamedTuple


class Held(NamedTuple):
    """The card of a rank: its node number and MAC address, and nodes of its table, if known."""

    node: int
    mac: int
    n_nodes: int | None = None


def check_cards(held: Sequence[Held]) -> None:
    """ValueError unless the ranks' cards are those of a table's nodes, one each.

    held : by rank, and alike on all of them, so that all are told. Where none knows how many nodes
    there are, as many as ranks.
    """
    n, known = len(held), sorted({one.n_nodes for one in held if one.n_nodes})
    if known[1:]:
        raise ValueError(f"tables of the ranks' cards have different numbers of nodes: {known}")
    nodes = range(known[0] if known else n)
    holders = {node: [r for r, one in enumerate(held) if one.node == node] for node in nodes}
    faults = [
        f"ranks {_listed(ranks)} have {_cards([held[r] for r in ranks])}"
        for ranks in holders.values()
        if ranks[1:]
    ]
    faults += [
        f"rank {r} has node {one.node}" for r, one in enumerate(held) if one.node not in nodes
    ]
    if without := [node for node in nodes if not holders[node]]:
        faults.append(f"no rank has node {_listed(without, 'or')}")
    if n != len(nodes):
        what = f"world size must be {len(nodes)}, the nodes of the cards' table, not {n}"
    else:
        what = f"{n} ranks must have the cards of nodes 0 to {n - 1}, one each"
    if faults:
        raise ValueError(f"{what}: {'; '.join(faults)}")


def _cards(held: Sequence[Held]) -> str:
    """What cards of one node are: one card, by its address, or several."""
    addresses = sorted({one.mac.to_bytes(6, "big").hex(":") for one in held})
    if addresses[1:]:
        return f"cards that say they are node {held[0].node} ({_listed(addresses)})"
    return f"one card, node {held[0].node} ({addresses[0]})"


def _listed(what: Sequence, joined: str = "and") -> str:
    """``0, 1 and 4``."""
    *most, last = map(str, what)
    return f"{', '.join(most)} {joined} {last}" if most else last
