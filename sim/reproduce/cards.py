"""Sixteen offload cards of RTL against the same cards on ns-3: one all-reduce, by cycles.

Both have a link of 100 Gb/s a card to one switch, 1 us of flight each way, the same tables,
tensors, frames and rules; RTL loses a frame on its first link by a draw of (seed, link, its number
there), and ns-3 the same frames. The RTL's links and switch are C++
(`gradnic.sim.offload.cluster`), the other's are ns-3's.
Cards of 16 lanes at 250 MHz.
"""

from dataclasses import dataclass
from functools import cache

import numpy as np
from gradnic.models.offload.cluster import LinkFaults
from gradnic.models.offload.codec import Raw
from gradnic.models.schedule.builders import build
from gradnic.models.schedule.builders.rows import compile_table
from gradnic.models.schedule.topology import parse

from ..offload.cluster import OffloadCluster
from .claims import Table
from .fabric import HOP
from .ns3_cards import Cards, Same, content
from .timed_card import NO_TIMES, RTL

STAR = "fattree:16x1"
ALGORITHMS = ("ring", "halving", "multitree")
CLOCK, GBPS, N_BYTES = 250e6, 100, 64
T_PROBE = 4000  # cycles
LOSS = 0.01
BOUNDS = (0.1, 0.3)  # p of the contributions that may miss then, end to end
LIMIT = 5  # percent
_DIFFERS = (
    "16 cards on one switch; ns-3 has the golden cards and, of the RTL's times, what its sources "
    "say and six numbers measured on four cards; links, flight, frames and schedules are the same"
)


def tensor(table, n_floats):
    """Gradients of all nodes."""
    noise = np.random.default_rng(1).standard_normal((table.n_nodes, n_floats))
    return noise.astype(np.float32)


@dataclass(frozen=True)
class Round:
    """cycles; packets that cards gave up; frames lost; sent : as `ns3_cards.Same` takes it."""

    cycles: int
    given_up: int
    n_lost: int
    sent: list


def rtl_round(table, topology, n_floats, faults, p=0.0):
    """One all-reduce by RTL, a `Round`. p : share that may miss.

    `Unfinished` if it never ends, RuntimeError if the cards' sums differ.
    """
    cluster = OffloadCluster(
        table, topology, n_floats, Raw(table.n_nodes), n_bytes=N_BYTES, t_probe=T_PROBE, p=p,
        queues=(1 << 30, 1 << 30), thc=False, inc=False,
    )  # fmt: skip
    result = cluster.run(tensor(table, n_floats), faults, link_bytes=GBPS * 1e9 / 8 / CLOCK)
    if (result.replicas != result.replicas[0]).any():
        raise RuntimeError(f"{table.name}: the cards' sums differ")
    lost = [int(record["copies"]) == 0 for record in result.sent]
    nodes = [int(record["node"]) for record in result.sent]
    sent = list(zip(nodes, map(content, result.frames), lost, strict=True))
    return Round(result.cycles, sum(map(len, result.given_up.values())), sum(lost), sent)


def ns3_round(table, topology, n_floats, losses, make, p=0.0, timed=RTL):
    """The same of golden cards. make : the class of networks. timed : of `timed_card`."""
    cards = Cards(table, topology, n_floats, make, gbps=GBPS, clock=CLOCK, t_probe=T_PROBE, p=p,
                  timed=timed)  # fmt: skip
    cycles = cards.run(tensor(table, n_floats), losses)
    return Round(cycles, cards.n_given_up, cards.n_lost, [])


@cache
def _table(name):
    topology = parse(STAR)
    return compile_table(build(topology, name)), topology


@cache
def measure(name, n_floats, loss, p, seed, network="ns3"):
    """One all-reduce under the same losses: cycles of RTL, of ns-3, of ns-3 with cards that take no
    time, frames lost and packets given up by RTL and by ns-3. A list.
    """
    from .dlcp import fabric_of

    make = fabric_of(network)
    table, topology = _table(name)
    faults = LinkFaults(loss=loss, seed=seed, delay=round(HOP * CLOCK / 1e9))
    rtl = rtl_round(table, topology, n_floats, faults, p)
    ours, bare = (
        ns3_round(table, topology, n_floats, Same(rtl.sent), make, p, timed)
        for timed in (RTL, NO_TIMES)
    )
    return [rtl.cycles, ours.cycles, bare.cycles, rtl.n_lost, ours.n_lost, rtl.given_up,
            ours.given_up]  # fmt: skip


def compare(result, quick, say, measure):
    """Add the claims and the table to a Result. quick : 3 seeds, not 8; 64 Ki floats, no 256.

    measure : of `dlcp`.
    """
    seeds = range(1, 4 if quick else 9)
    cases = [(0.0, 0.0, range(1)), *((LOSS, p, seeds) for p in (0.0, *BOUNDS))]
    rows, apart = [], {(loss, p): [] for loss, p, _ in cases}
    for name in ALGORITHMS:
        for n_floats in (1 << 16,) if quick else (1 << 16, 1 << 18):
            for loss, p, runs in cases if n_floats == 1 << 16 else cases[:1]:
                say(f"16 cards, {name}, {n_floats} floats, loss {loss:g}, p {p:g}")
                found = np.array([measure("cards", name, n_floats, loss, p, seed) for seed in runs])
                rtl, theirs, none, *missing = map(float, found.mean(axis=0))
                unit = 1e6 / CLOCK
                apart[loss, p].append(100 * (theirs / rtl - 1))
                rows.append((name, n_floats, 100 * loss, 100 * p, len(runs), rtl * unit,
                             theirs * unit, apart[loss, p][-1], none * unit, *missing))  # fmt: skip
    for (loss, p), found in apart.items():
        what = f"{100 * loss:g} % of frames lost, mean over seeds" if loss else "without loss"
        what += f", p = {100 * p:g} %" if p else ""
        sizes = [abs(one) for one in found]
        result.claim(f"all-reduce of 16 cards, RTL against ns-3, {what}", LIMIT, max(sizes), sizes,
                     "%", _DIFFERS, better="lower")  # fmt: skip
    result.tables.append(
        Table("All-reduce of 16 cards in RTL and on ns-3", ("schedule", "floats", "loss %", "p %",
              "runs", "RTL us", "ns-3 us", "apart %", "ns-3 us, cards that take no time",
              "RTL loses", "ns-3 loses", "RTL gives up", "ns-3 gives up"), rows)
    )  # fmt: skip
