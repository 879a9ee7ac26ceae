"""``gradnic simulate``: one all-reduce on the network model, to thousands of nodes."""

import time

import click
import numpy as np

from gradnic import cluster, output
from gradnic import quantities as q
from gradnic.models.schedule import network_run
from gradnic.models.schedule.builders import ISSUE
from gradnic.models.schedule.builders.rows import compile_table
from gradnic.models.schedule.checker import check
from gradnic.models.schedule.network_model import Network, simulate
from gradnic.packages import needs
from gradnic.progress import Progress
from gradnic.quantities import option

from .card_options import NAMES, card_options, machine
from .card_options import check as check_card
from .schedule import ROOTED, chunks_per_shard, make, show_algorithms, show_tries, topology_options

_NOT_OF_CARDS = (
    "packet", "head", "reduce_per_cycle", "buffer", "issue", "issue_order", "window",
)  # fmt: skip


@click.command(cls=q.Command)
@topology_options
@option(
    "--bytes size",
    q.Listed(q.Size(4, step=4)),
    "2MiB",
    "Tensor: 32KiB, 100MB ...; several with commas between: a run each.",
)
@card_options
@option("--packet", q.Whole(1, 1 << 20, "bytes"), 256, "Payload bytes.")
@option("--head", q.Whole(0, 1 << 16, "bytes"), 16, "Bytes.")
@option("--flow", q.OneOf("message", "packet"), "message", "One head per message or per packet.")
@option(
    "--reduce-per-cycle",
    q.Whole(1, 1 << 20, "floats"),
    32,
    "Floats that a node adds; it reads as many, or 32.",
)
@option(
    "--buffer",
    q.Whole(1, 1 << 40, "bytes"),
    help="Bytes of each link's receive buffer. Default: 5088, or what covers a round trip of the "
    "longest link.",
)
@option("--issue", q.LINK_TIME, 19, "Cycles from the last dependency to the first beat.")
@option(
    "--order issue_order",
    q.OneOf("node", "port"),
    help="A waiting row holds up its node's, or its port's, later rows. Default: what the "
    "algorithm is best with, node, or port for dbtree.",
)
@option(
    "--window",
    q.Whole(1, 1024),
    help="Messages of a port among which the first ready one goes. Default: what the algorithm is "
    "best with, 1, or 64 for dbtree.",
)
@cluster.options
@output.list_option
@output.json_option
@needs(schedule=("scipy",))
def command(size, listing, json_file, scheduler, workers, resume, parquet, **options):
    """Simulate one all-reduce, or another collective, message by message; total cycles, reduction
    included. JSON of several sizes is a list.

    Nodes are those of the MultiTree authors' simulator. --card makes them gradnic's cards, within
    3 % of their RTL, which takes up to 11 % more than is told without it.

    \b
    Example:
      gradnic simulate --topology torus:8x8 --algorithm multitree --bytes 2MiB --json -
      gradnic simulate --topology mesh:8x8 --algorithm overlapped --chunks 64 --bytes 64MiB
      gradnic simulate --topology torus:4x4 --codec ratio:3.05 --bytes 2MiB
      gradnic simulate --topology torus:8x8 --collective reduce_scatter
      gradnic simulate --topology dgx:8x2+sum+multicast --algorithm best --bytes 64MiB
      gradnic simulate --topology torus:4x4 --card offload --lanes 16 --port-lanes 4 --bytes 256KiB
      gradnic simulate --topology torus:2x2 --card offload --port-lanes 4 --codec inceptionn
      gradnic simulate --topology torus:16x16 --bytes 32KiB,2MiB,64MiB,1GB --workers 2
    """
    if listing:
        show_algorithms(json_file)
        return
    q.only_with(options["collective"] in ROOTED, f"--collective {' or '.join(ROOTED)}", "root")
    card = options["card"]
    q.only_with(card != "offload", "direct links; offload cards send packets", "flow")
    q.only_with(not card, "runs without --card, which has the figures of the card", *_NOT_OF_CARDS)
    check_card(**{name: options[name] for name in (*NAMES, "collective")})
    work = [{"n_bytes": n_bytes, **options} for n_bytes in size]
    where = cluster.of_options(scheduler, workers, resume, parquet)
    if len(work) > 1 or where != cluster.Cluster():
        found = cluster.spread(run, work, where, name="sizes")
    else:
        with Progress() as bar:
            task = bar.add_task("messages", total=1.0)
            found = [run(**work[0], progress=lambda share: bar.update(task, completed=share))]
    screen = output.console(json_file)
    for figures in found:
        tries = figures.get("tried")
        shown = [(name.replace("_", " "), v) for name, v in figures.items()
                 if v is not None and name != "tried"]  # fmt: skip
        title = f"{figures['built_as']} on {figures['topology']}"
        screen.print(output.table(title, ["figure", "value"], shown))
        if tries:
            screen.print(show_tries(tries))
    output.write_json(json_file, found[0] if len(found) == 1 else found)


def _machine(topology, algorithm, issue_order, window, **options):
    """The Network of the options."""
    if options["card"]:
        return machine(topology, **{name: options[name] for name in (*NAMES, "flow")})
    asked = {"order": issue_order, "window": window}
    asked = {name: value for name, value in asked.items() if value is not None}
    options["read_per_cycle"] = max(Network.read_per_cycle, options["reduce_per_cycle"])
    return machine(topology, **options, **ISSUE.get(algorithm, {}) | asked)


def run(n_bytes, collective, root, progress=None, **options):
    """The figures of one all-reduce, as a dict of JSON; options : of the command."""
    given = {name: options.pop(name) for name in (*NAMES, "flow", *_NOT_OF_CARDS)}

    def network_on(topology):
        return _machine(topology, options["algorithm"], **given)

    topology, schedule, seconds, tries = make(
        n_bytes=n_bytes, network=network_on, name=collective, root=root, **options
    )
    network = network_on(topology)
    table = compile_table(schedule)
    check(table, topology, collective, root=root)
    if advice := network_run.advice(int((table.rows["sends"] >= 0).sum())):
        click.echo(advice, err=True)
    begin = time.process_time()
    result = simulate(table, topology, n_bytes, network, progress)
    if result.overruns:
        click.echo(f"overruns: {result.overruns} frames find no room behind their port and go "
                   "again", err=True)  # fmt: skip
    bounds = _bounds(topology, n_bytes, network, collective, root)
    asked = np.isnan(topology.latencies(np.nan)).any()  # not every link has its own
    figures = {
        "topology": topology.name,
        "algorithm": options["algorithm"],
        "built_as": schedule.algorithm,
        "nodes": topology.n_nodes,
        "bytes": n_bytes,
        "card": given["card"],
        "link_bytes_per_cycle": network.link_bytes_per_cycle,
        "link_latency": network.link_latency if asked else None,
        "packet": network.packet,
        "head": network.head,
        "buffer": None if given["card"] == "offload" else network.buffer,
        "codec": given["codec"],
        "chunks": chunks_per_shard(schedule),
        "flow": network.flow,
        "order": network.order,
        "window": network.window,
        "cycles_total": result.cycles,
        "collective": collective,
        **bounds,
        "over_bound": result.cycles / bounds["bound_cycles"],
        ("allreduce_bandwidth" if collective == "all_reduce" else "bandwidth"): n_bytes
        / (result.cycles * network.link_bytes_per_cycle),
        "busiest_link_share": result.busiest_link,
        "messages": result.messages,
        "parked_bytes_max": result.parked_bytes,
        "overruns": result.overruns if given["card"] == "offload" else None,
        "seconds_to_build": seconds,
        "seconds_to_simulate": time.process_time() - begin,
    }
    return figures | ({"tried": tries} if tries else {})


def _bounds(topology, n_bytes, network, collective, root):
    """What a collective needs at least, by name; see `bound_cycles`."""
    from gradnic.models.schedule import bounds

    if collective != "all_reduce":
        slots = float(bounds.collective_bound(topology, collective, root))
        wire = n_bytes * network.wire_ratio / network.link_bytes_per_cycle
        return {"bound_cycles": slots * wire / topology.n_nodes}
    names = ("bound_cycles", "bound_two_phase_cycles", "latency_floor_cycles")
    return dict(zip(names, bound_cycles(topology, n_bytes, network), strict=True))


def bound_cycles(topology, n_bytes, network):
    """Cycles that (any schedule, any two-phase schedule, the farthest pair's data) needs.

    Bandwidth bounds count payload on the wire, no heads; the third is the latency of the longest
    shortest path, reduce and gather.
    """
    from gradnic.models.schedule import bounds

    optimum = bounds.bandwidth_bound(topology)
    wire = n_bytes * network.wire_ratio / network.link_bytes_per_cycle
    two_phase = 2 * float(bounds.throughput_bound(topology)) * wire / topology.n_nodes
    return wire / optimum, two_phase, bounds.latency_floor_cycles(topology, network.link_latency)
