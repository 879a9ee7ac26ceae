"""ForestColl (Zhao et al., arXiv 2402.06787): optimal trees in any network with switches.

Its schedules reach the bound of two phases exactly; ours, `best` of `gradnic schedule`, as tables
of slots that a checker has run.
"""

import time

from gradnic.models.schedule.bounds import throughput_bound
from gradnic.models.schedule.builders import build
from gradnic.models.schedule.builders.rows import compile_table
from gradnic.models.schedule.checker import check
from gradnic.models.schedule.topology import parse

from .claims import Result, Table, made_of

QUICK = (
    "dgx:8x2", "dgx:8x4", "dgx:8x8", "dgx:8x16", "nvlink:2x8x1", "nvlink:4x8x1", "nvlink:8x8x1",
    "nvlink:16x8x1", "nvlink:2x8x2", "nvlink:2x8x8", "fattree:4x2", "bigraph:4x8",
    "dragonfly:3x1x2", "dragonfly:4x2x2", "pcie:2x4x1",
)  # fmt: skip
NETWORKS = (
    *QUICK, "dragonfly:4x1x4", "nvlink:16x8x8", "pcie:4x8x1", "nvlink:12x8x2", "nvlink:12x8x4",
    "nvlink:16x8x2", "dragonfly:4x2x4", "nvlink:16x8x4",
)  # fmt: skip
LIMIT, SECONDS = 1.0, 60.0  # percent above the bound; of a build
LARGE = 128  # nodes whose builds are timed


def measure(network):
    """`best` on a network: [nodes, bound and slots of a phase, chunks a node, rows of a node at
    most, seconds of processor time to build it]. ValueError if the checker refuses the table.
    """
    topology = parse(network)
    begin = time.process_time()
    schedule = build(topology, "best")
    seconds = time.process_time() - begin
    report = check(compile_table(schedule), topology)
    return [topology.n_nodes, float(throughput_bound(topology)), schedule.slots_total / 2,
            float(schedule.chunks), report.entries, seconds]  # fmt: skip


def points(quick):
    """Arguments of `measure`, one network each, the slowest first."""
    return [(network,) for network in reversed(QUICK if quick else NETWORKS)]


answers = made_of


def run(quick, say, measure=measure):
    """The Result. quick : without the eight slowest networks, and without seconds, which are not
    the same twice.
    """
    result = Result("trees")
    gaps, seconds, rows = {}, {}, []
    for network in QUICK if quick else NETWORKS:
        say(network)
        nodes, bound, slots, chunks, entries, took = measure(network)
        gaps[network] = 100 * (slots / bound - 1)
        if nodes >= LARGE:
            seconds[network] = took
        rows.append((network, nodes, bound, slots, gaps[network], chunks, entries,
                     *([] if quick else [took])))  # fmt: skip
    worst = max(gaps, key=gaps.get)
    result.claim(
        "slots of a phase above the bound, at most", LIMIT, gaps[worst], gaps.values(), "%",
        f"ForestColl's own reach the bound; taken as 1 %. Worst of {len(gaps)} networks: {worst}; "
        "whole chunks in steps of whole slots, checked; range over networks", better="lower",
    )  # fmt: skip
    if not quick:
        slowest = max(seconds, key=seconds.get)
        result.claim(
            f"time to build for {LARGE} GPUs, at most", SECONDS, seconds[slowest],
            seconds.values(), "s", f"taken as a minute; slowest: {slowest}; processor time of this "
            "machine, range over networks", better="lower",
        )  # fmt: skip
    columns = ("network", "GPUs", "bound", "slots of a phase", "above it %", "chunks a node",
               "rows of a node", *([] if quick else ["build, CPU s"]))  # fmt: skip
    result.tables.append(Table("Optimal trees through switches", columns, rows))
    return result
