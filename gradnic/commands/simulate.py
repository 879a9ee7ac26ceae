"""``gradnic simulate``: one all-reduce on the network model, to thousands of nodes."""

import re
import time

import click

from gradnic import output
from gradnic.models.schedule import bounds
from gradnic.models.schedule.builders.rows import compile_table
from gradnic.models.schedule.checker import check
from gradnic.models.schedule.network_model import Network, simulate
from gradnic.progress import Progress

from .schedule import chunks_per_shard, make, topology_options

_UNITS = {"": 1, "b": 1, "kb": 10**3, "mb": 10**6, "gb": 10**9, "kib": 1 << 10, "mib": 1 << 20,
          "gib": 1 << 30}  # fmt: skip


def parse_bytes(text):
    """Bytes in ``2MiB``, ``100MB`` or ``4096``. ValueError for anything else."""
    match = re.fullmatch(r"([0-9.]+)\s*([a-z]*)", text.strip().lower())
    try:
        value = float(match[1]) * _UNITS[match[2]]
    except (TypeError, KeyError, ValueError):
        raise ValueError(
            f"bytes must be a number with B, KiB, MiB, KB or MB, not {text!r}"
        ) from None
    if value != int(value) or value < 4:
        raise ValueError(f"bytes must be a whole number of 4 or more, not {text!r}")
    return int(value)


def wire_ratio(codec):
    """Bytes on the wire per byte of floats: 1 for ``none``, R for ``ratio:R``."""
    if codec == "none":
        return 1.0
    name, _, value = codec.partition(":")
    try:
        ratio = float(value)
    except ValueError:
        ratio = 0.0
    if name != "ratio" or not 0 < ratio <= 2:
        raise ValueError(f"codec must be none or ratio:R with R in (0, 2], not {codec!r}")
    return ratio


@click.command()
@topology_options
@click.option("--bytes", "size", default="2MiB", show_default=True, help="Tensor: 32KiB, 100MB ...")
@click.option("--link-bytes-per-cycle", type=float, default=16, show_default=True)
@click.option("--link-latency", type=int, default=150, show_default=True, help="Cycles.")
@click.option("--packet", type=int, default=256, show_default=True, help="Payload bytes.")
@click.option("--head", type=int, default=16, show_default=True, help="Bytes.")
@click.option(
    "--flow",
    type=click.Choice(["message", "packet"]),
    default="message",
    show_default=True,
    help="One head per message or per packet.",
)
@click.option("--reduce-per-cycle", type=int, default=32, show_default=True, help="Floats.")
@click.option(
    "--codec",
    default="none",
    show_default=True,
    help="none, or ratio:R: bytes on the wire per byte of floats.",
)
@click.option(
    "--buffer",
    type=int,
    default=5088,
    show_default=True,
    help="Bytes of each link's receive buffer.",
)
@click.option(
    "--issue",
    type=int,
    default=19,
    show_default=True,
    help="Cycles from the last dependency to the first beat.",
)
@click.option(
    "--order",
    "issue_order",
    type=click.Choice(["node", "port"]),
    default="node",
    show_default=True,
    help="A waiting row holds up its node's, or its port's, later rows.",
)
@click.option(
    "--window",
    type=int,
    default=1,
    show_default=True,
    help="Messages of a port among which the first ready one goes.",
)
@output.json_option
def command(size, codec, issue_order, json_file, **options):
    """Simulate one all-reduce, message by message; total cycles, reduction included.

    \b
    Example:
      gradnic simulate --topology torus:8x8 --algorithm multitree --bytes 2MiB --json -
      gradnic simulate --topology mesh:8x8 --algorithm overlapped --chunks 64 --bytes 64MiB
    """
    network = Network(
        **{name: options.pop(name) for name in (
            "link_bytes_per_cycle", "link_latency", "packet", "head", "flow", "reduce_per_cycle",
            "buffer", "issue", "window")},
        order=issue_order, wire_ratio=wire_ratio(codec),
    )  # fmt: skip
    n_bytes = parse_bytes(size)
    table_order = options.pop("order")
    topology, schedule, seconds = make(order=table_order, **options)
    table = compile_table(schedule)
    check(table, topology)
    begin = time.process_time()
    with Progress() as bar:
        task = bar.add_task("messages", total=1.0)
        result = simulate(
            table, topology, n_bytes, network, lambda share: bar.update(task, completed=share)
        )
    overlapped, two_phase, floor = bound_cycles(topology, n_bytes, network)
    figures = {
        "topology": topology.name,
        "algorithm": options["algorithm"],
        "built_as": schedule.algorithm,
        "nodes": topology.n_nodes,
        "bytes": n_bytes,
        "chunks": chunks_per_shard(schedule),
        "flow": network.flow,
        "cycles_total": result.cycles,
        "bound_cycles": overlapped,
        "bound_two_phase_cycles": two_phase,
        "latency_floor_cycles": floor,
        "over_bound": result.cycles / overlapped,
        "allreduce_bandwidth": n_bytes / (result.cycles * network.link_bytes_per_cycle),
        "busiest_link_share": result.busiest_link,
        "messages": result.messages,
        "parked_bytes_max": result.parked_bytes,
        "seconds_to_build": seconds,
        "seconds_to_simulate": time.process_time() - begin,
    }
    shown = [(name.replace("_", " "), value) for name, value in figures.items()]
    output.console(json_file).print(
        output.table(f"{schedule.algorithm} on {topology.name}", ["figure", "value"], shown)
    )
    output.write_json(json_file, figures)


def bound_cycles(topology, n_bytes, network):
    """Cycles that (any schedule, any two-phase schedule, the farthest pair's data) needs.

    Bandwidth bounds count payload on the wire, no heads; the third is the latency of the longest
    shortest path, reduce and gather.
    """
    optimum = bounds.bandwidth_bound(topology)
    wire = n_bytes * network.wire_ratio / network.link_bytes_per_cycle
    two_phase = 2 * float(bounds.throughput_bound(topology)) * wire / topology.n_nodes
    return wire / optimum, two_phase, bounds.latency_floor(topology) * network.link_latency
