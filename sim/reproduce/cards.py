"""Sixteen offload cards of RTL against the same cards on ns-3: one all-reduce, by cycles.

Both have a link of 100 Gb/s a card to one switch, 1 us of flight each way, the same tables,
tensors, frames and rules; a frame is lost on its first link by a draw of (seed, link, its number
there). The RTL's links and switch are C++ (`gradnic.sim.offload.cluster`), the other's are ns-3's.
Cards of 16 lanes at 250 MHz.
"""

import numpy as np
from gradnic.models.offload.cluster import LinkFaults
from gradnic.models.offload.codec import Raw
from gradnic.models.schedule.builders import build
from gradnic.models.schedule.builders.rows import compile_table
from gradnic.models.schedule.topology import parse

from ..offload.cluster import OffloadCluster
from .claims import Table
from .fabric import HOP
from .ns3_cards import NO_TIMES, Cards

STAR = "fattree:16x1"
ALGORITHMS = ("ring", "halving", "multitree")
CLOCK, GBPS, N_BYTES = 250e6, 100, 64
T_PROBE = 4000  # cycles
LOSS = 0.01
LIMIT = 5  # percent
_DIFFERS = (
    "16 cards on one switch; ns-3 has the golden cards and, of the RTL's times, what its sources "
    "say and six numbers measured on four cards; links, flight, frames and schedules are the same"
)


def tensor(table, n_floats):
    """Gradients of all nodes."""
    noise = np.random.default_rng(1).standard_normal((table.n_nodes, n_floats))
    return noise.astype(np.float32)


def rtl_cycles(table, topology, n_floats, faults):
    """Of one all-reduce by RTL; RuntimeError if it never ends, or if a sum is not the table's."""
    cluster = OffloadCluster(
        table, topology, n_floats, Raw(table.n_nodes), n_bytes=N_BYTES, t_probe=T_PROBE,
        queues=(1 << 30, 1 << 30), thc=False, inc=False,
    )  # fmt: skip
    cluster.call("keep", 0, 0)
    result = cluster.run(tensor(table, n_floats), faults, link_bytes=GBPS * 1e9 / 8 / CLOCK)
    if result.cycles is None:
        raise RuntimeError(f"{table.name}: the cards are not done")
    if (result.replicas != result.replicas[0]).any():
        raise RuntimeError(f"{table.name}: the cards' sums differ")
    return result.cycles


def ns3_cycles(table, topology, n_floats, faults, make, times=None):
    """Of the same by golden cards. make : the class of networks. times : None: those of the RTL."""
    cards = Cards(table, topology, n_floats, make, gbps=GBPS, clock=CLOCK, t_probe=T_PROBE,
                  times=times)  # fmt: skip
    return cards.run(tensor(table, n_floats), faults)


def compare(result, quick, say):
    """Add the claims and the table to a Result. quick : 3 seeds, not 32; 64 Ki floats, no 256."""
    from .ns3_fabric import Ns3Fabric

    topology = parse(STAR)
    tables = {name: compile_table(build(topology, name)) for name in ALGORITHMS}
    flight = LinkFaults(delay=round(HOP * CLOCK / 1e9))
    lossy = [
        LinkFaults(loss=LOSS, seed=seed, delay=flight.delay)
        for seed in range(1, 4 if quick else 33)
    ]
    rows, apart = [], {0.0: [], LOSS: []}
    for name, table in tables.items():
        for n_floats in (1 << 16,) if quick else (1 << 16, 1 << 18):
            for runs in ([flight], lossy) if n_floats == 1 << 16 else ([flight],):
                say(f"16 cards, {name}, {n_floats} floats, loss {runs[0].loss:g}")
                ours, theirs, none = (
                    np.mean([found(faults) for faults in runs])
                    for found in (
                        lambda f, t=table, n=n_floats: rtl_cycles(t, topology, n, f),
                        lambda f, t=table, n=n_floats: ns3_cycles(t, topology, n, f, Ns3Fabric),
                        lambda f, t=table, n=n_floats: ns3_cycles(
                            t, topology, n, f, Ns3Fabric, NO_TIMES
                        ),
                    )
                )
                unit = 1e6 / CLOCK
                apart[runs[0].loss].append(float(100 * (theirs / ours - 1)))
                rows.append((name, n_floats, 100 * runs[0].loss, len(runs), float(ours * unit),
                             float(theirs * unit), apart[runs[0].loss][-1],
                             float(none * unit)))  # fmt: skip
    for loss, what in (0.0, "without loss"), (LOSS, "1 % of frames lost, mean over seeds"):
        found = [abs(one) for one in apart[loss]]
        result.claim(f"all-reduce of 16 cards, RTL against ns-3, {what}", LIMIT, max(found), found,
                     "%", _DIFFERS, better="lower")  # fmt: skip
    result.tables.append(
        Table("All-reduce of 16 cards in RTL and on ns-3", ("schedule", "floats", "loss %", "runs",
              "RTL us", "ns-3 us", "apart %", "ns-3 us, cards that take no time"), rows)
    )  # fmt: skip
