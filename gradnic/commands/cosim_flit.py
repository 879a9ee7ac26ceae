"""``gradnic cosim --topology``: cards on flit links run a table, against the golden sums."""

import numpy as np
from rich.progress import Progress

from gradnic.interface.flit import FLIT_FLOATS
from gradnic.output import console, table, write_json

REAL = 16  # most nodes for which gradients are trained on the spot
CODECS = ("none", "inceptionn", "thc")


def run(
    gradients,
    *,
    spelling,
    algorithm,
    chunks,
    codec,
    exponent,
    mode,
    prescale,
    block,
    flow,
    lanes,
    link_bytes,
    link_latency,
    elements,
    json_file,
):
    """One all-reduce by RTL on a topology; prints, writes JSON, exits with 1 if anything differs.

    gradients : float32 (n_nodes, n), or a function of the node count that makes them, or None for
    normal noise. The other arguments are the command's options.
    """
    from gradnic.models.schedule import builders as schedules
    from gradnic.models.schedule import checker
    from gradnic.models.schedule.builders.rows import compile_table
    from gradnic.models.schedule.network_model import of_card, simulate
    from gradnic.models.schedule.topology import parse
    from gradnic.models.schedule.traffic import Traffic
    from gradnic.sim.direct import cluster as flit_cluster
    from gradnic.sim.direct import thc as flit_thc

    from .simulate import bound_cycles

    if codec not in CODECS:
        raise ValueError(f"codec must be one of {', '.join(CODECS)} on flit links, not {codec!r}")
    if flow not in ("message", "packet"):
        raise ValueError(f"flow must be message or packet, not {flow!r}")
    topology = parse(spelling)
    options = {} if chunks is None else {"chunks": chunks}
    plan = compile_table(schedules.build(topology, algorithm, **options))
    checker.check(plan, topology)
    screen = console(json_file)
    with Progress(console=console("-"), transient=True) as progress:
        real = gradients is not None and topology.n_nodes <= REAL
        if callable(gradients):
            gradients = gradients(topology.n_nodes) if real else None
        if gradients is not None and elements and elements > gradients.shape[1]:
            gradients = None
        if gradients is None:
            rng = np.random.default_rng(1)
            shape = topology.n_nodes, elements or 8192
            gradients = rng.standard_normal(shape).astype(np.float32)
            real = False
        gradients = gradients[:, :elements]
        task = progress.add_task("building the card", total=None)
        wires = flit_cluster.Wires(latency=link_latency, bytes_per_cycle=link_bytes or 16)
        cards = {"wires": wires, "n_lanes": lanes, "packets": flow == "packet"}
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
        lanes or flit_cluster.lanes_of(topology),
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
    if result.first:
        screen.print(f"first mismatch: {result.first}")
    screen.print("RTL and golden cluster agree" if result.ok else "RTL and golden cluster DIFFER")
    write_json(
        json_file,
        {
            **result.summary(),
            "topology": spelling,
            "algorithm": algorithm,
            "link": "flit",
            "flow": flow,
            "codec": codec,
            "flits_raw": raw_flits,
            "floats": int(gradients.shape[1]),
            "gradients": "real" if real else "normal",
            "model_cycles": model,
            "bound_cycles": bound,
            "bound_two_phase_cycles": two_phase,
        },
    )
    if not result.ok:
        raise SystemExit(1)
