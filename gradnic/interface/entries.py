"""Entries of the tables that ``table_write`` fills, bit by bit, and a page of them.

What the driver packs and the circuit reads. They depend on what a card was built with, as
`gradnic.interface.params.Offload` and `Jobs` say.
"""

from dataclasses import dataclass, fields
from typing import Any

from . import job_card
from .offload import TABLE_WORDS, Table
from .params import Jobs, Offload
from .schedule_table import FIELDS, Layout

N_PEERS = 16  # peer indices of a table


@dataclass(frozen=True)
class Entry:
    """A kind of entry. number : of its table. at : what its address is. fields : (name, bits, what
    it says) from bit 0 on.
    """

    number: int
    name: str
    at: str
    fields: tuple[tuple[str, int, str], ...]

    @property
    def places(self) -> dict[str, tuple[int, int]]:
        """{field: (lowest bit, bits)}."""
        found, low = {}, 0
        for name, width, _ in self.fields:
            found[name], low = (low, width), low + width
        return found


def entries(card: Offload) -> list[Entry]:
    """Those that a card of these parameters takes, by their tables' numbers."""
    jobs = isinstance(card, Jobs)
    layout = Layout.for_card(card.n_nodes, card.n_chunks)

    def of_table(n: int) -> str:
        return f"table * {n} + " if jobs else ""

    found = [
        Entry(Table.ROWS, "row", f"{of_table(card.n_rows)}row, in order", _row(layout)),
        Entry(Table.PLACES, "place", f"{of_table(card.n_chunks)}chunk", _place(card.n_ranks)),
        Entry(
            Table.NEIGHBORS, "neighbor", "its number, 0 to 15",
            (
                ("valid", 1, "0: nobody has this number"), ("node", 8, "SRC of its packets"),
                ("port", max(1, (card.n_ports - 1).bit_length()), "of this card, that leads there"),
                ("mac", 48, "its MAC address"), ("ip", 32, "its IPv4 address"),
            ),
        ),
        Entry(
            Table.PEERS, "peer", f"{of_table(N_PEERS)}peer index of a row",
            (("neighbor", 4, "its number"),),
        ),
        Entry(
            Table.LAYERS, "layer", "class of a job" if jobs else "layer of a tensor",
            (("queue", 3, "of its packets, 0 served first"),),
        ),
        Entry(
            Table.DSCPS, "dscp", "2 * queue + important",
            (("dscp", 6, "of its packets; 8 * (7 - queue) is usual"),),
        ),
        Entry(
            Table.THRESHOLD, "threshold", "0",
            (("score", 9, "from which on a packet is important, 0 to 256"),),
        ),
    ]  # fmt: skip
    if not isinstance(card, Jobs):
        found.append(
            Entry(
                Table.ALLOWANCES, "allowance", "neighbor",
                (("bytes", 40, "times leaves, that it may lose in the next round; with "
                  "closing.at_share, those that must come"),),
            )
        )  # fmt: skip
        if card.thc:
            found.append(
                Entry(
                    Table.CHECKS, "check", "packet of a round of THC",
                    (("check", 20, "low bits of the XOR of its blocks' agreed norms"),),
                )
            )  # fmt: skip
    else:
        found += _of_jobs(card)
    if card.queues:
        found.append(
            Entry(
                Table.QUEUES, "queue", "queue, or 8",
                (("beats", 16, "depth above which it drops or marks, 0 for none; at 8, the most "
                  "that any holds"),),
            )
        )  # fmt: skip
    return sorted(found, key=lambda one: one.number)


def _row(layout: Layout) -> tuple[tuple[str, int, str], ...]:
    words = {name: text for name, (_, text) in FIELDS.items()}
    bits = [(name, getattr(layout, name), text) for name, text in words.items()]
    for k in range(layout.n_sends):
        bits += [(f"sends{k}", 1, "there is such a peer"), (f"peer{k}", layout.peer, "its index")]
    assert {f.name for f in fields(layout)} == {*words, "peer", "n_sends"}
    return tuple(bits)


def _place(n_ranks: int) -> tuple[tuple[str, int, str], ...]:
    bits = []
    for k in range(n_ranks):
        bits += [
            (f"up{k}", 1, f"contribution of rank {k} to this chunk comes, to be added here"),
            (f"neighbor{k}", 4, "from this neighbor"),
            (f"leaves{k}", 8, "nodes that it is the sum of"),
            (f"flow{k}", 13, "and of this flow"),
        ]
    bits += [("down", 1, "the result of this chunk comes"), ("from", 4, "from this neighbor")]
    return tuple(bits)


def _of_jobs(card: Jobs) -> list[Entry]:
    found = [
        Entry(
            job_card.JOBS, "table", "number of the table; written last of it",
            (
                ("valid", 1, "0: unloaded, jobs that name it are refused"),
                ("rows", 16, "of this node"), ("peers", 8, "of this node"),
                ("lockstep", 1, "1: rows keep to their steps"),
                ("chunks", 14, "of the tensor: of all repeats"),
                ("stride", 14, "chunks of one repeat"),
                ("repeats", 14, "1 unless periodic"),
                ("iterations", 15, "repeats + stages - 1, 1 unless periodic"),
                ("leaves", 12, "nodes that contribute to a sum, 1 where nothing is added"),
                ("collective", 3, "of the jobs that may name it"),
                ("offset", 16, "THC: leaves * g"),
                ("scale", 32, "THC: clip / 256 / (leaves * g * block), FP32; 0: no jobs with THC"),
                ("code", 2, "THC: 0, 1, 2 for sums of 8, 12, 16 bits, the fewest with "
                 "leaves * g < 2^bits"),
            ),
        )
    ]  # fmt: skip
    if card.thc:
        found.append(
            Entry(
                job_card.CELLS, "cell", "unit of the THC table, 0 to g",
                (
                    ("lower", 8, "largest index whose level is not above the unit"),
                    ("above", 8, "the unit less that level"),
                    ("gap", 8, "from that level to the next one, 0 behind the last"),
                ),
            )
        )  # fmt: skip
        if card.bits == 8:
            found.append(
                Entry(job_card.LEVELS, "level", "index of THC", (("level", 8, "its level"),))
            )
    return found


def markdown(card: Any) -> str:
    """A section for people: how an entry is written, and one table of all fields. Empty for tops
    without such tables.
    """
    if not isinstance(card, Offload):
        return ""
    lines = [
        "",
        "## Entries of tables",
        "",
        f"An entry is written by its words in table_data_0 to table_data_{TABLE_WORDS - 1}, bit 0 "
        "of the entry in bit 0 of the first, those above it 0, and then table_write with table, "
        "address and a toggle that is not what it was. What tables hold after power-up is "
        "undefined, after a reset what it was, but for valid bits of neighbors and tables, which "
        "are 0: fill all that jobs or rounds look at, layers and DSCPs among it.",
        "",
        "| table | entry | address | bits | field | meaning |",
        "| --- | --- | --- | --- | --- | --- |",
    ]
    for one in entries(card):
        for name, width, text in one.fields:
            low = one.places[name][0]
            bits = f"{low + width - 1}:{low}" if width > 1 else str(low)
            lines.append(
                f"| {int(one.number)} | {one.name} | {one.at} | {bits} | {name} | {text} |"
            )
    return "\n".join(lines) + "\n"
