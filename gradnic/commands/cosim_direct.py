"""``gradnic cosim direct``: cards on flit links run a table, against the golden sums."""

import click
import numpy as np

from gradnic import quantities as q
from gradnic.interface.flit import FLIT_BYTES, FLIT_FLOATS
from gradnic.output import console, json_option, table, write_json
from gradnic.packages import SIMULATION, needs
from gradnic.progress import Progress
from gradnic.quantities import option

from .card_options import rate_of_file
from .cosim_parts import (
    Machine,
    codec_options,
    floats_of,
    gradients_of,
    network_options,
    show_verdict,
    source_options,
)


@click.command(cls=Machine, name="direct")
@network_options
@option(
    "--flow", q.OneOf("message", "packet"), "message", "One head per message, or per 256 bytes."
)
@option("--codec", q.OneOf("none", "inceptionn", "thc"), "none")
@codec_options
@option("--block", q.BLOCK, 1024, "THC's B.")
@option(
    "--lanes", q.OneOf(8, 16, 32), help="Floats per word of memory; default 8 per port, 32 at most."
)
@option(
    "--link-bytes",
    q.Number(0, FLIT_BYTES, "bytes a cycle", above=True),
    help="Bytes a clock cycle that the slowest link takes. Default: its GB/s where a file has a "
    f"unit, else {FLIT_BYTES}.",
)
@option("--link-latency", q.LATENCY, 150, "Cycles.")
@source_options
@json_option
@needs(**SIMULATION, schedule=("scipy",))
def command(
    topology, algorithm, chunks, flow, codec, exponent, mode, prescale, block, lanes, link_bytes,
    link_latency, iteration, elements, files, json_file,
):  # fmt: skip
    """Run a schedule table on cards of RTL with lossless links between them.

    Every element of every replica is compared with the golden sum of the same table. More than 32
    nodes, or more than 235,146 values, get normal noise unless files are given.

    \b
    Example:
      gradnic cosim direct --topology mesh:2x2 --lanes 8 --elements 300 --link-latency 20
      gradnic cosim direct --topology torus:4x4 --algorithm multitree --elements 8192 --json -
    """
    from gradnic.models.schedule import builders as schedules
    from gradnic.models.schedule import checker
    from gradnic.models.schedule.builders.rows import compile_table
    from gradnic.models.schedule.network_model import lanes_of, of_card, simulate
    from gradnic.models.schedule.topology import parse
    from gradnic.models.schedule.traffic import Traffic
    from gradnic.sim.direct import cluster as flit_cluster
    from gradnic.sim.direct import thc as flit_thc

    from .simulate import bound_cycles

    q.only_with(codec == "inceptionn", "--codec inceptionn", "exponent", "mode", "prescale")
    q.only_with(codec == "thc", "--codec thc", "block")
    spelling = topology
    topology = parse(spelling)
    rate = link_bytes or rate_of_file(topology, FLIT_BYTES, "--link-bytes") or FLIT_BYTES
    options = {} if chunks is None else {"chunks": chunks}
    plan = compile_table(schedules.build(topology, algorithm, **options))
    checker.check(plan, topology)
    most = flit_cluster.most_floats(plan, topology, lanes or 0)

    def check(n_floats):
        if codec != "thc" and n_floats > most:  # THC's rounds are of norms and of narrow sums
            raise click.UsageError(
                f"--elements must be at most {most:,} here, what the cards of {spelling} hold, "
                f"not {n_floats:,}"
            )

    if not files:
        check(elements or floats_of(topology.n_nodes))
    screen = console(json_file)
    with Progress() as progress:
        gradients, source = gradients_of(topology.n_nodes, files, iteration, elements, progress)
        check(gradients.shape[1])
        task = progress.add_task("building the card", total=None)
        wires = flit_cluster.Wires(latency=link_latency, bytes_per_cycle=rate)
        cards = {"wires": wires, "n_lanes": lanes or 0, "packets": flow == "packet"}
        if codec == "thc":
            result, _ = flit_thc.run(plan, topology, gradients, block=block, **cards)
        else:
            if codec == "inceptionn":
                cards["codec"] = {"exponent": exponent, "mode": mode, "prescale": prescale}
            cluster = flit_cluster.Cluster(plan, topology, gradients.shape[1], **cards)
            progress.update(task, total=1, completed=1)
            progress.add_task("all-reduce", total=None)
            result = flit_cluster.cosim(plan, topology, gradients, cluster=cluster)
    n_bytes = 4 * gradients.shape[1]
    network = of_card(
        lanes or lanes_of(topology),
        link_bytes_per_cycle=wires.bytes_per_cycle,
        link_latency=link_latency,
        flow=flow,
    )
    bound, two_phase, _ = bound_cycles(topology, n_bytes, network)
    model = simulate(plan, topology, n_bytes, network).cycles if codec == "none" else None
    traffic = Traffic(plan, topology, gradients.shape[1])
    hops = np.array([len(path) for path in plan.paths])[traffic.path]
    raw_flits = int((-(-traffic.floats // FLIT_FLOATS) * hops).sum())
    rows = [
        ("nodes", result.nodes),
        ("floats of each", gradients.shape[1]),
        ("cycles", result.cycles),
        ("cycles by the network model", model or "raw floats only"),
        ("bound for raw floats, phases overlapped", round(bound)),
        ("flits on all links", result.flits),
        ("flits of raw floats, without heads", raw_flits),
        ("busiest link, share of its time", f"{result.busiest_link_share:.3f}"),
        ("mismatches", result.mismatches),
    ]
    screen.print(table(f"{algorithm} on {spelling}, flit links, {flow} flow", ("", ""), rows))
    show_verdict(screen, result.ok, result.first)
    write_json(
        json_file,
        {
            **result.summary(),
            "topology": spelling,
            "algorithm": algorithm,
            "machine": "direct",
            "flow": flow,
            "codec": codec,
            "flits_raw": raw_flits,
            "floats": int(gradients.shape[1]),
            "link_bytes_per_cycle": rate,
            "gradients": source,
            "model_cycles": model,
            "bound_cycles": bound,
            "bound_two_phase_cycles": two_phase,
        },
    )
    if not result.ok:
        raise SystemExit(1)
