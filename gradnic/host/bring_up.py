"""A card with jobs made ready for them: addresses, schedule tables, memory."""

from collections.abc import Mapping, Sequence
from typing import Any

from gradnic.interface.job import collective_of
from gradnic.interface.schedule_table import Layout, Table
from gradnic.models.offload.plan import SEQ_UNIT, Plan
from gradnic.models.transport.tagger import default_dscp

from .jobs import JobDriver
from .offload_driver import N_NEIGHBORS

T_PROBE = 4000  # cycles


def bring_up(
    card: JobDriver,
    node: int,
    tables: Sequence[Table],
    book: Mapping[int, Any],
    layout: Layout,
    *,
    tenant: int,
    memory: tuple[int, int],
    landing: Sequence[int],
    n_elems: int,
    packet: int = 352,
    t_probe: int = T_PROBE,
    watchdog: int = 0,
    thc: Mapping[str, Any] | None = None,
    scratch: Sequence[int] = (),
) -> None:
    """Write all that jobs need; on return they can be posted. Nodes in any order.

    Jobs that an earlier host left are ended first; neighbors and tables that the card had before
    are gone. What it remembers of rounds that are over stays until a reset: jobs of a tensor go on
    where its GENs were.

    card : of `node`. tables : under the numbers 0 on. book : by node, what
    has ``port``, ``mac`` and ``ip``: this node, and each that it speaks to at the port that leads
    there; `gradnic.models.offload.cluster.addresses` finds it. layout : the card's, of rows.
    tenant : JOB of all packets. memory : (first byte, bytes) where gradients and results may lie,
    region 0. landing : first byte of each engine's landing areas, in landing memory, of
    `JobDriver.landing_bytes`. n_elems : elements of the largest tensor. packet : elements of a
    packet, a multiple of 32 with BF16, else of 16. t_probe, watchdog : cycles; watchdog 0 is off.
    thc : of a card with THC, the arguments of `JobDriver.set_thc`; scratch : first byte of each
    context's, of `JobDriver.scratch_bytes`.

    ValueError for what does not fit the card; `CardGone` if no card has taken it.
    """
    own = book[node]
    others = [u for u in book if u != node]
    index = {u: k for k, u in enumerate(others)}
    if packet % SEQ_UNIT:
        raise ValueError(f"packet must be a multiple of {SEQ_UNIT}, not {packet}")
    card.check_packet(packet)
    card.end_jobs()
    card.identify(mac=own.mac, ip=own.ip, node=node, tenant=tenant, udp_port=own.udp_port)
    card.unload_tables()
    for u in others:
        card.add_neighbor(index[u], node=u, port=book[u].port, mac=book[u].mac, ip=book[u].ip)
    for number in range(len(others), N_NEIGHBORS):  # of tables before
        card.remove_neighbor(number)
    card.tag(dscps=default_dscp(), threshold=0, back_layer=0)
    if thc is not None:  # before tables: it says how wide their sums are
        card.set_thc(**thc)
        card.set_scratch(scratch, n_elems, max(leaves(table) for table in tables))
    for number, table in enumerate(tables):
        load_table(card, number, table, node, index, layout)
    card.set("packet", units=packet // SEQ_UNIT)
    card.write("t_probe", t_probe)
    card.write("watchdog", watchdog)
    card.allow_memory(0, *memory)
    card.set_landing(landing, n_elems)
    card.check()


def leaves(table: Table) -> int:
    """Nodes that contribute to a sum."""
    return Plan(table, SEQ_UNIT * table.n_chunks * table.repeats).n_leaves


def load_table(
    card: JobDriver,
    number: int,
    table: Table,
    node: int,
    index: Mapping[int, int],
    layout: Layout,
) -> None:
    """Load a node's part of a schedule table under a number. index : {node: neighbor's number}."""
    plan = Plan(table, SEQ_UNIT * table.n_chunks * table.repeats)
    rows, peers = table.of(node), table.peers[table.peers["node"] == node]
    places = []
    for chunk in range(plan.n_chunks):
        up = {
            chunks[chunk].rank: (index[u], chunks[chunk].leaves, chunks[chunk].flow)
            for u, chunks in plan.up[node].items()
            if chunk in chunks
        }
        down = [index[u] for u, chunks in plan.down[node].items() if chunk in chunks]
        places.append((up, down[0] if down else None))
    card.load_table(
        number, layout.pack(rows), layout.row_bytes, places,
        [index[int(p["to"])] for p in sorted(peers, key=lambda p: p["index"])],
        n_chunks=plan.n_chunks, leaves=plan.n_leaves, repeats=table.repeats,
        stages=int(rows["repeat"].max(initial=0)) if table.period else 1,
        stride=table.n_chunks, collective=collective_of(table),
    )  # fmt: skip
