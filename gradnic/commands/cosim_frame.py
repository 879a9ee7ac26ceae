"""``gradnic cosim --topology --link frame``: offload cards over lossy Ethernet, in RTL."""

import numpy as np
from rich.progress import Progress

from gradnic.output import console, table, write_json

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
    important,
    queues,
    pace,
    elements,
    pcap_file,
    json_file,
):
    """One all-reduce; prints, writes JSON, exits with 1 if anything differs.

    gradients : float32 (n_nodes, n), or a function of the node count that makes them. faults :
    fields of models.offload_cluster.LinkFaults. spray : cards spray their packets over 8 paths,
    each longer than the one before by twice the delay. The rest are the command's options.
    """
    from gradnic.models.offload.cluster import LinkFaults
    from gradnic.models.schedule.topology import parse
    from gradnic.sim.frame import pcap
    from gradnic.sim.offload import run as offload_run

    if codec not in offload_run.CODECS:
        raise ValueError(
            f"codec must be one of {', '.join(offload_run.CODECS)} on frame links, not {codec!r}"
        )
    if lanes not in (4, 8, 16):
        raise ValueError(f"lanes must be 4, 8 or 16 on frame links, not {lanes}")
    if important is not None and not 0 <= important <= 1:
        raise ValueError(f"important must be from 0 to 1, not {important}")
    if queues and not 0 < queues[1] <= queues[0]:
        raise ValueError(f"mark must be 1 to {queues[0]}, the bytes of the queue, not {queues[1]}")
    if not 0 <= p < 1:
        raise ValueError(f"p must be from 0 to below 1, not {p}")
    faults = LinkFaults(**faults)
    topology = parse(spelling)
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
        outcome, found = offload_run.cosim(
            spelling,
            algorithm,
            gradients,
            codec,
            chunks=chunks,
            lanes=lanes,
            faults=faults,
            spray=spray,
            important=important,
            pace=pace,
            queues=queues,
            p=p,
            exponent=exponent,
            mode=mode,
            prescale=prescale,
            block=block,
        )
    rows = [
        ("nodes", outcome.nodes),
        ("floats of each", gradients.shape[1]),
        ("cycles", outcome.cycles),
        ("frames", found["frames"]),
        ("of them lost", found["frames_lost"]),
        ("dropped and marked by switches", f"{found['frames_dropped']}, {found['frames_marked']}"),
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
