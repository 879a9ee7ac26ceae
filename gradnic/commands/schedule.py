"""``gradnic schedule``: from a topology and an algorithm to proven schedule tables."""

import time
from dataclasses import asdict
from pathlib import Path

import click

from gradnic import output
from gradnic import quantities as q
from gradnic.interface import schedule_table as tables
from gradnic.models.schedule import topology as topologies
from gradnic.models.schedule.builders import ALGORITHMS, build
from gradnic.models.schedule.builders.collectives import COLLECTIVES, ROOTED
from gradnic.models.schedule.builders.collectives import collective as of_all_reduce
from gradnic.models.schedule.builders.fastest import cut, fastest
from gradnic.models.schedule.builders.rows import compile_table
from gradnic.models.schedule.builders.shift import shift_rows
from gradnic.models.schedule.checker import check
from gradnic.packages import needs, require
from gradnic.paths import Network, OutputFile, check_files
from gradnic.progress import status
from gradnic.quantities import option
from gradnic.text_file import whole

from .card_options import NAMES, card_options, machine
from .card_options import check as check_card

_EXACT_NODES = 4200  # beyond, the cut search takes minutes; the node bound is at once


_OF_ALL_NODES = (  # what --alone has no use for
    "root", "chunks", "seed", "rule", "order", "dead_links", "dead_nodes", "barrier", "nops",
    "plot_file", "n_bytes", "exports", "export_bytes", *NAMES,
)  # fmt: skip
_WRITERS = {".bin": tables.to_bytes, ".json": tables.to_json, ".h": tables.to_c}
_IN_ROWS = ".bin", ".h"  # of them, those that hold rows as a card reads them


def topology_options(function):
    """The options that name a network, shared with ``gradnic simulate``."""
    for decorate in reversed(
        [
            option(
                "--topology spelling",
                Network(),
                help="torus:8x8 mesh:4x4 ring:8 hypercube:4 fattree:8x2 bigraph:4x8 "
                "dragonfly:AxHxP dgx:8x2 full:8 nvlink:BOXESxGPUSxNICS "
                "pcie:BOXESxGPUSxNICS file:PATH; with +sum+multicast after it, switches can.",
                metavar="NAME:SIZE",
            ),
            click.option("--algorithm", default="multitree", show_default=True, help="See --list."),
            option(
                "--collective",
                q.OneOf(*COLLECTIVES),
                "all_reduce",
                "From the algorithm's all-reduce: a half of it, or the trees of one root.",
            ),
            option("--root", q.NODE, 0, "Node, of reduce and broadcast."),
            option(
                "--ports",
                q.Whole(1, 8),
                help="Ports per node; default: the degree, 1 on switch networks.",
            ),
            option("--chunks", q.CHUNKS, help="Chunks per shard."),
            option("--seed", q.SEED, 0),
            option("--rule", q.OneOf("full", "release"), "full", "When MultiTree closes a step."),
            option(
                "--root-order order",
                q.OneOf("ascending", "center", "random"),
                help="Root order of MultiTree.",
            ),
            click.option(
                "--dead-link",
                "dead_links",
                multiple=True,
                metavar="A-B",
                help="That is down, both ways; may repeat.",
            ),
            click.option(
                "--dead-node",
                "dead_nodes",
                help="That is down, with its links, by number or by its file's name; may repeat.",
                multiple=True,
                metavar="V",
            ),
        ]
    ):
        function = decorate(function)
    return function


def make(spelling, algorithm, ports, chunks, seed, rule, order, dead_links, dead_nodes,
         name="all_reduce", root=0, n_bytes=None, network=None):  # fmt: skip
    """(topology, schedule, seconds to build, tries) from the shared options.

    name : of the collective. n_bytes, network : make `best` the fastest all-reduce for so many
    bytes on network(topology), a Network, and list what was tried, [{algorithm, chunks, cycles}],
    else tries is None; offload cards get other algorithms' tables as `cut` cuts them.
    """
    if spelling is None:
        raise click.UsageError("Missing option '--topology'")
    q.only_with(algorithm == "multitree", "--algorithm multitree", "rule", "order")
    topology = topologies.parse(spelling, ports=ports, in_network=True)
    topology = _without(topology, dead_links, dead_nodes)
    q.only_with(name in ROOTED, f"--collective {' or '.join(ROOTED)}", "root")
    if root >= topology.n_nodes:
        raise click.UsageError(f"--root must be 0 to {topology.n_nodes - 1}, not {root}")
    begin, tries = time.process_time(), None
    if algorithm == "best" and n_bytes is not None:
        with status("building") as say:
            schedule, found = fastest(
                topology, n_bytes, network(topology), chunks=chunks, seed=seed, on_try=say
            )
        tries = [asdict(one) for one in found]
    else:
        options = {"order": order, "rule": rule, "seed": seed}
        if network and chunks is None:
            with status("building") as say:
                schedule = cut(
                    topology, algorithm, n_bytes, network(topology), on_try=say, **options
                )
        else:
            schedule = build(topology, algorithm, chunks=chunks, **options)
    schedule = of_all_reduce(schedule, name, root=root)
    return topology, schedule, time.process_time() - begin, tries


def _vertex(topology, text):
    """The vertex of this number or, in files that have names, of this name; else None."""
    try:
        return whole(text)
    except ValueError:
        return topology.labels.index(text) if text in topology.labels else None


def _without(topology, dead_links, dead_nodes):
    """The topology without these links, of texts A-B, and vertices, of numbers or names."""
    links, nodes = [], []
    for text in dead_links:
        words = text.split("-")  # names may have some, too
        halves = [("-".join(words[:k]), "-".join(words[k:])) for k in range(1, len(words))]
        pairs = [(_vertex(topology, a), _vertex(topology, b)) for a, b in halves]
        meant = [pair for pair in pairs if None not in pair]
        if len(meant) != 1:
            raise click.UsageError(f"--dead-link must be A-B, not {text!r}")
        links += meant
    for text in dead_nodes:
        nodes.append(_vertex(topology, text))
        if nodes[-1] is None:
            raise click.UsageError(f"--dead-node: {topology.name} has no vertex {text}")
    if found := q.repeated([sorted(pair) for pair in links]):  # dead in both directions
        raise click.UsageError(f"--dead-link names {'-'.join(map(str, found[0]))} twice")
    if found := q.repeated(nodes):
        raise click.UsageError(f"--dead-node names {found[0]} twice")
    return topology.without(links, nodes)


def show_algorithms(json_file):
    """The algorithms, as a table and as JSON."""
    shown = output.table("Algorithms", ("algorithm", "what"), ALGORITHMS.items())
    output.console(json_file).print(shown)
    output.write_json(json_file, ALGORITHMS)


def show_tries(tries):
    """What `best` chose from, the fastest first, as a table; the first ten."""
    rows = [(one["algorithm"], f"{one['chunks']:g}", one["cycles"]) for one in tries[:10]]
    return output.table("Fastest of those tried", ("algorithm", "chunks", "cycles"), rows)


def chunks_per_shard(schedule):
    """k as a number: whole unless the table's chunks do not divide by the nodes."""
    return int(schedule.chunks) if schedule.chunks.denominator == 1 else float(schedule.chunks)


def describe(algorithm, topology, schedule, report, layout, seconds, name="all_reduce", root=0):
    """The result that ``--json`` writes; keys and units: docs/guide/schedules.md."""
    from gradnic.models.schedule import bounds

    if name != "all_reduce":
        return _describe_other(algorithm, topology, schedule, report, layout, seconds, name, root)
    exact = topology.n_nodes <= _EXACT_NODES
    bound = float((bounds.throughput_bound if exact else bounds.node_bound)(topology))
    by_cuts = "exact optimum" if bounds.cuts_are_reached(topology) else "bound by cuts"
    overlapped = schedule.period is not None
    per_phase = None if overlapped else schedule.slots_total / 2
    cap, helpers = float(bounds.bandwidth_bound(topology)), schedule.topology.helpers
    finite = topology.n_nodes / schedule.slots_total
    return {
        **_figures(algorithm, topology, schedule, report, layout),
        "slots_per_phase": per_phase,
        "bound_slots": bound,
        "bound_is": by_cuts if exact else "node bound",
        "gap": cap / finite if overlapped else per_phase / bound,
        "allreduce_bandwidth": schedule.steady_bandwidth,
        "allreduce_bandwidth_is": "steady state" if overlapped else "whole table",
        "allreduce_bandwidth_finite": finite,
        "allreduce_bandwidth_bound": cap,
        "period_steps": schedule.period,
        "repeats": schedule.repeats,
        "repeats_proven": report.proven_repeats,
        "latency_floor_hops": bounds.latency_floor(topology),
        "seconds_to_build": seconds,
        **({"switches_that_sum": helpers} if helpers else {}),
    }


def _figures(algorithm, topology, schedule, report, layout):
    """What is told of every collective."""
    return {
        **({"names": list(topology.labels)} if topology.labels else {}),
        "topology": topology.name,
        "algorithm": algorithm,
        "built_as": schedule.algorithm,
        "nodes": topology.n_nodes,
        "ports": topology.ports,
        "steps": report.steps,
        "slots_total": schedule.slots_total,
        "chunks": chunks_per_shard(schedule),
        "max_flows_per_link_slot": report.max_flows,
        "collision": report.collision,
        "entries_per_node_max": report.entries,
        "nops_per_node_max": report.nops,
        "row_bits": layout.width,
        "table_bytes_per_node_max": (report.entries + report.nops) * layout.row_bytes,
        "landing_chunks_max": report.landing_chunks,
        "landing_chunks_any_order": report.landing_chunks_any_order,
    }


def _describe_other(algorithm, topology, schedule, report, layout, seconds, name, root):
    """`describe` for a collective of one phase; roots : where each chunk is complete."""
    from gradnic.models.schedule import bounds

    bound = None
    if topology.n_nodes <= _EXACT_NODES:
        bound = float(bounds.collective_bound(topology, name, root))
    return {
        **_figures(algorithm, topology, schedule, report, layout),
        "collective": name,
        "root": root if name in ROOTED else None,
        "bound_slots": bound,
        "gap": bound and schedule.slots_total / bound,
        "bandwidth": topology.n_nodes / schedule.slots_total,
        "roots": schedule.roots.tolist(),
        "seconds_to_build": seconds,
    }


@click.command(cls=q.Command)
@topology_options
@click.option("--barrier", is_flag=True, help="BAR before each node's first gather row.")
@click.option("--nops", is_flag=True, help="NOP rows for lock-step issue.")
@option(
    "--table table_file",
    OutputFile(*_WRITERS),
    help="Write the table: .bin, .h or .json.",
    metavar="FILE",
)
@option(
    "--row-nodes",
    q.Whole(2, 255),
    help="Rows of .bin and .h as a card reads them that was built for so many nodes: register"
    " build; default: as narrow as they can be.",
)
@option("--row-chunks", q.Whole(2, 8192), help="And for so many chunks: register capacity.")
@option("--node", q.Whole(0, 2**20), help="Print this node's rows.")
@click.option("--alone", is_flag=True, help="Only the table of --node, in closed form (shift).")
@option(
    "--plot plot_file",
    OutputFile(*output.PICTURES),
    help="Draw trees and a link x time chart.",
    metavar="FILE",
)
@option(
    "--bytes n_bytes",
    q.Size(4, step=4),
    help="For this tensor by the network model: best is the fastest; with --card offload others "
    "have the chunks that are.",
)
@card_options
@option(
    "--export exports",
    (q.OneOf("msccl", "msccl++", "chakra"), OutputFile()),
    help="Also write MSCCL's XML, an MSCCL++ plan, or a Chakra trace per rank, FILE.0.et ...; "
    "repeat the option for more.",
    nargs=2,
    multiple=True,
    metavar="FORMAT FILE",
)
@option("--export-bytes", q.Size(4, step=4), "2MiB", "Of the tensor in a Chakra trace.")
@output.list_option
@output.json_option
@needs(schedule=("scipy",))
def command(collective, root, barrier, nops, table_file, node, alone, plot_file, listing, json_file,
            n_bytes, card, lanes, port_lanes, link_bytes_per_cycle, link_latency, codec, exports,
            export_bytes, row_nodes, row_chunks, **options):  # fmt: skip
    """Build, prove and measure the schedule of an all-reduce, or of another collective.

    \b
    Example:
      gradnic schedule --topology torus:8x8 --algorithm multitree --json -
      gradnic schedule --topology bigraph:4x8 --algorithm hdrm --table build/hdrm.h
      gradnic schedule --topology mesh:8x8 --algorithm overlapped --plot build/mesh.png
      gradnic schedule --topology mesh:8x8 --algorithm best --bytes 32KiB --link-latency 150
      gradnic schedule --topology torus:4x4 --algorithm best --bytes 256KiB --card offload \\
        --port-lanes 4 --table build/card.json
      gradnic schedule --topology torus:4x4 --collective broadcast --root 5 --chunks 4
      gradnic schedule --topology fattree:8x2+sum+multicast --algorithm best --json -
      gradnic schedule --topology nvlink:2x8x1 --algorithm forest --export msccl build/forest.xml
    """
    if listing:
        show_algorithms(json_file)
        return
    rows_as = _layout_of(table_file, row_nodes, row_chunks)
    if alone:
        q.only_with(collective == "all_reduce", "--collective all_reduce", "alone")
        q.only_with(False, "the tables of all nodes, not --alone", *_OF_ALL_NODES)
        _one_node(options, node, table_file, rows_as, json_file)
        return
    if plot_file:
        require("--plot", report=("matplotlib",))
        from gradnic.models.schedule.builders.pictures import drawn
    values = card, lanes, port_lanes, link_bytes_per_cycle, link_latency, codec
    figures = dict(zip(NAMES, values, strict=True))
    timed = options["algorithm"] == "best" or card == "offload"
    q.only_with(timed, "--algorithm best, or --card offload", "n_bytes")
    q.only_with(n_bytes is not None, "runs with --bytes", *NAMES)
    check_card(**figures, collective=collective)
    q.only_with(collective == "all_reduce", "--collective all_reduce", "exports")
    traces = [file for kind, file in exports if kind == "chakra"]
    q.only_with(traces, "--export chakra", "export_bytes")
    if traces:
        where = topologies.parse(options["spelling"], ports=options["ports"], in_network=True)
        check_files(f"{file}.{rank}.et" for file in traces for rank in range(where.n_nodes))
    topology, schedule, seconds, tries = make(
        **options,
        name=collective,
        root=root,
        n_bytes=n_bytes,
        network=lambda topology: machine(topology, **figures),
    )
    if exports and schedule.topology.helpers:
        raise click.UsageError(f"--export {exports[0][0]} knows no switches that sum")
    if node is not None and not 0 <= node < schedule.topology.n_nodes:
        raise click.UsageError(f"--node must be 0 to {schedule.topology.n_nodes - 1}, not {node}")
    table = compile_table(schedule, barrier=barrier, nops=nops)
    report = check(table, topology, collective, root=root)
    exported = [
        pair for kind, file in exports for pair in _exported(table, kind, file, export_bytes)
    ]
    text = _table_text(table_file, table, rows_as)
    layout = tables.Layout.fit(table.rows)
    result = describe(
        options["algorithm"], topology, schedule, report, layout, seconds, collective, root
    )
    if tries:
        result |= {"bytes": n_bytes, "cycles_total": tries[0]["cycles"], "tried": tries}
    console = output.console(json_file)
    columns = ["figure", "value"]
    shown = [(key.replace("_", " "), value) for key, value in result.items()
             if value is not None and key not in ("tried", "roots", "names")]  # fmt: skip
    console.print(output.table(f"{schedule.algorithm} on {topology.name}", columns, shown))
    if tries:
        console.print(show_tries(tries))
    if node is not None:
        console.print(_rows(table, node))
    for path, data in exported:
        output.write_whole(path, data)
    if table_file:
        output.write_whole(table_file, text)
    if plot_file:
        output.write_picture(plot_file, drawn(schedule), dpi=110)
    output.write_json(json_file, result)


def _layout_of(table_file, row_nodes, row_chunks):
    """(`Layout`, nodes, chunks) of a card whose rows a file is to have, None for the narrowest."""
    q.only_with(
        Path(table_file or "").suffix in _IN_ROWS, "--table of " + " or ".join(_IN_ROWS),
        "row_nodes", "row_chunks",
    )  # fmt: skip
    if row_nodes is row_chunks is None:
        return None
    if row_nodes is None or row_chunks is None:
        raise click.UsageError("--row-nodes needs --row-chunks, and the other way round")
    return tables.Layout.for_card(row_nodes, row_chunks), row_nodes, row_chunks


def _table_text(path, table, rows_as):
    """What to write to the file at `path`, None for none. rows_as : of `_layout_of`."""
    if not path:
        return None
    layout, *most = rows_as or (None,)
    there = table.n_nodes, table.n_chunks
    for what, limit, count in zip(("nodes", "chunks"), most, there, strict=False):
        if count > limit:
            raise click.UsageError(f"--row-{what} {limit}: the table has {count} {what}")
    kind = Path(path).suffix
    more = (layout,) if kind in _IN_ROWS else ()
    try:
        return _WRITERS[kind](table, *more)
    except ValueError as error:
        raise click.UsageError(f"--row-nodes, --row-chunks: {error}") from None


def _exported(table, kind, path, n_bytes):
    """(path, what to write there) of the table in another program's format."""
    from gradnic.models.schedule import chakra_trace, exports

    if kind == "chakra":
        traces = chakra_trace.traces(table, n_bytes)
        return ((f"{path}.{rank}.et", data) for rank, data in enumerate(traces))
    return [(path, (exports.msccl if kind == "msccl" else exports.mscclpp)(table))]


def _one_node(options, node, table_file, rows_as, json_file):
    """One node's rows without the other nodes'; nothing is proven, so nothing is claimed."""
    if options["algorithm"] != "shift" or node is None:
        raise click.UsageError("--alone needs --algorithm shift and --node V")
    topology = topologies.parse(options["spelling"], ports=options["ports"])
    begin = time.process_time()
    table = shift_rows(topology, node)
    seconds = time.process_time() - begin
    text = _table_text(table_file, table, rows_as)
    result = {"topology": topology.name, "algorithm": "shift", "nodes": topology.n_nodes,
              "node": node, "entries": len(table.rows), "seconds_to_build": seconds}  # fmt: skip
    output.console(json_file).print(
        output.table(f"node {node} of {table.name}", ["figure", "value"], list(result.items()))
    )
    if table_file:
        output.write_whole(table_file, text)
    output.write_json(json_file, result)


def _rows(table, node):
    names = ["op", "bar", "repeat", "flow", "step", "wait", "rank", "first", "count"]
    peers = table.peers[table.peers["node"] == node]["to"]
    words = ("reduce", "gather", "nop")
    rows = [
        (
            words[row["op"]], *(int(row[n]) for n in names[1:-1]), int(row["count"]) + 1,
            " ".join(str(peers[s]) for s in row["sends"] if s >= 0),
        )
        for row in table.of(node)
    ]  # fmt: skip
    return output.table(f"node {node}", [*names, "to nodes"], rows)
