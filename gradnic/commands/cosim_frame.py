"""``gradnic cosim --topology --link frame``: offload cards over lossy Ethernet, in RTL."""

import numpy as np
from rich.progress import Progress

from ..output import console, table, write_json

REAL = 16  # most nodes for which gradients are trained on the spot
ELEMENTS = 16384


def run(
    gradients,
    *,
    spelling,
    algorithm,
    chunks,
    codec,
    lanes,
    exponent,
    mode,
    prescale,
    block,
    faults,
    p,
    spray,
    elements,
    pcap_file,
    json_file,
):
    """One all-reduce; prints, writes JSON, exits with 1 if anything differs.

    gradients : float32 (n_nodes, n), or a function of the node count that makes them. faults :
    fields of models.offload_cluster.LinkFaults. spray : cards spray their packets over 8 paths,
    each longer than the one before by twice the delay. The rest are the command's options.
    """
    from functools import partial

    from ..models import checker, schedules
    from ..models.offload_cluster import LinkFaults
    from ..models.schedules.rows import compile_table
    from ..models.topology import parse
    from ..sim import offload_run, pcap
    from ..sim.star_worker import RtlWorker, build_engines

    if codec not in offload_run.CODECS:
        raise ValueError(
            f"codec must be one of {', '.join(offload_run.CODECS)} on frame links, not {codec!r}"
        )
    if lanes not in (4, 8, 16):
        raise ValueError(f"lanes must be 4, 8 or 16 on frame links, not {lanes}")
    if not 0 <= p < 1:
        raise ValueError(f"p must be from 0 to below 1, not {p}")
    faults = LinkFaults(**faults)
    topology = parse(spelling)
    options = {} if chunks is None else {"chunks": chunks}
    plan = compile_table(schedules.build(topology, algorithm, **options))
    checker.check(plan, topology)
    screen = console(json_file)
    with Progress(console=console("-"), transient=True) as progress:
        real = topology.n_nodes <= REAL
        if callable(gradients):
            progress.add_task("training", total=None)
            gradients = gradients(topology.n_nodes) if real else None
        if gradients is None:
            rng = np.random.default_rng(1)
            gradients = rng.standard_normal((topology.n_nodes, ELEMENTS)).astype(np.float32)
        gradients = np.ascontiguousarray(gradients[:, : elements or ELEMENTS])
        progress.add_task("cards of RTL", total=None)
        worker = partial(RtlWorker, build_engines(4, block)) if codec == "thc" else None
        outcome, replicas = offload_run.run(
            plan,
            topology,
            gradients,
            codec,
            faults=faults,
            p=p,
            exponent=exponent,
            mode=mode,
            prescale=prescale,
            block=block,
            make_worker=worker,
            n_bytes=4 * lanes,
            skew=2 * faults.delay if spray else 0,
        )
    mean = gradients.astype(np.float64).sum(axis=0)
    power = float((mean**2).sum()) or 1.0
    error = float(((replicas[0] * (len(gradients) if codec == "thc" else 1) - mean) ** 2).sum())
    found = outcome.summary() | {"nmse": error / power}
    rows = [
        ("nodes", outcome.nodes),
        ("floats of each", gradients.shape[1]),
        ("cycles", outcome.cycles),
        ("frames", found["frames"]),
        ("of them lost", found["frames_lost"]),
        ("packets sent again", found["data_again"]),
        ("share of contributions missing", f"{outcome.lost:.4f} of at most {p:.4f}"),
        ("error against the sum, NMSE", f"{found['nmse']:.3g}"),
        ("mismatches", outcome.mismatches),
    ]
    screen.print(table(f"{algorithm} on {spelling}, Ethernet, codec {codec}", ("", ""), rows))
    if outcome.first:
        screen.print(f"first mismatch: {outcome.first}")
    screen.print("RTL and golden cluster agree" if outcome.ok else "RTL and golden cluster DIFFER")
    if pcap_file:
        pcap.write_pcap(pcap_file, [(at, frame) for at, *_, frame in outcome.frames])
    write_json(
        json_file,
        {
            **found,
            "topology": spelling,
            "algorithm": algorithm,
            "link": "frame",
            "codec": codec,
            "lanes": lanes,
            "floats": int(gradients.shape[1]),
            "gradients": "real" if real else "normal",
            "p": p,
        },
    )
    if not outcome.ok:
        raise SystemExit(1)
