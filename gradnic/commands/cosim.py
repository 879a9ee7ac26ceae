"""``gradnic cosim``: N cards of RTL in a ring, one all-reduce, against the golden cluster."""

import click
import numpy as np
from rich.progress import Progress

from gradnic.arrays import load_floats
from gradnic.output import console, json_option, table, write_json

from . import cosim_flit, cosim_frame, cosim_star


def load_gradients(files, nodes):
    """float32 (nodes, n) of `files`, one a worker; ValueError if they do not go together."""
    if len(files) != nodes:
        raise ValueError(f"gradients must be {nodes} files, one a node, not {len(files)}")
    arrays = [load_floats(name).reshape(-1) for name in files]
    if len({x.size for x in arrays}) != 1:
        raise ValueError(f"gradients differ in size: {[x.size for x in arrays]}")
    return np.stack(arrays)


@click.command(name="cosim")
@click.option("--nodes", default=4, show_default=True, help="Workers, 2 to 16.")
@click.option(
    "--topology", help="Cards with a scheduler on this network, instead of in-line cards in a ring."
)
@click.option(
    "--link",
    default="flit",
    show_default=True,
    help="With --topology: flit (lossless, direct networks) or frame (Ethernet, which may lose).",
)
@click.option(
    "--p", default=0.0, help="On frame links: share of the contributions that may be missing."
)
@click.option("--spray", is_flag=True, help="On frame links: over 8 paths of different length.")
@click.option(
    "--important",
    type=float,
    help="On frame links: share of the gradients that is important by size; default: all.",
)
@click.option(
    "--queue", default=0, help="On frame links: bytes of a switch's queue; 0: it has no queues."
)
@click.option(
    "--mark", default=16384, show_default=True, help="Bytes of it that mark or drop what comes."
)
@click.option(
    "--pace",
    type=click.Choice(["off", "ce", "rtt"]),
    default="off",
    show_default=True,
    help="On frame links: what steers the rate.",
)
@click.option("--flow", default="message", show_default=True, help="On flit links: or packet.")
@click.option("--link-latency", default=150, show_default=True, help="Cycles, with --topology.")
@click.option("--chunks", type=int, help="Chunks per shard, with --topology.")
@click.option("--aggregator", is_flag=True, help="Workers around an aggregator, instead of a ring.")
@click.option("--workers", default=4, show_default=True, help="With --aggregator, 1 to 32.")
@click.option(
    "--loss",
    default=0.0,
    help="With --aggregator or on frame links: share of frames lost on a link.",
)
@click.option(
    "--duplicate", default=0.0, help="With --aggregator or on frame links: share that comes twice."
)
@click.option(
    "--delay",
    default=10,
    show_default=True,
    help="With --aggregator or on frame links: time on a link.",
)
@click.option(
    "--reorder",
    default=0,
    help="With --aggregator or on frame links: up to so much more time, for each frame anew.",
)
@click.option(
    "--death",
    multiple=True,
    metavar="WORKER:TIME",
    help="With --aggregator: a worker is silent from then on; wants --deadline.",
)
@click.option(
    "--deadline", default=0, help="With --aggregator: time that closes a slot; 0: waits for all."
)
@click.option("--block", default=1024, show_default=True, help="THC's B.")
@click.option("--seed", default=0, show_default=True, help="Of the faults.")
@click.option("--algorithm", help="Default ring; with --topology multitree.")
@click.option(
    "--codec",
    help="inceptionn or none; default inceptionn. With --topology none (default), inceptionn or "
    "thc; with --aggregator thc (default), int32 or switchml.",
)
@click.option("--lanes", type=int, help="Floats a cycle: 4, 8, 16 or 32; default 8 in the ring.")
@click.option("--exponent", default=117, show_default=True, help="113..126; 117 is 2^-10.")
@click.option("--mode", default="strict", show_default=True, help="strict or paper.")
@click.option("--prescale", default=0, show_default=True, help="Power of two, -128..127.")
@click.option("--floats", default=336, show_default=True, help="Floats a frame, 1..2104.")
@click.option(
    "--link-bytes",
    type=float,
    help="Bytes a clock cycle that a link takes; default 8 (at 156.25 MHz 10 Gb/s), with "
    "--topology 16; 0: no limit.",
)
@click.option("--iteration", default=200, show_default=True, help="Whose gradients to sum.")
@click.option("--elements", default=None, type=int, help="Only so many values of each gradient.")
@click.option(
    "--gradients",
    "files",
    multiple=True,
    help="An .npy file a node instead, float32; repeat the option.",
)
@click.option(
    "--pcap", "pcap_file", metavar="FILE", help="Write the frames on the wires as a capture."
)
@json_option
def command(
    nodes,
    topology,
    link,
    p,
    spray,
    important,
    queue,
    mark,
    pace,
    flow,
    link_latency,
    chunks,
    aggregator,
    workers,
    loss,
    duplicate,
    delay,
    reorder,
    death,
    deadline,
    block,
    seed,
    algorithm,
    codec,
    lanes,
    exponent,
    mode,
    prescale,
    floats,
    link_bytes,
    iteration,
    elements,
    files,
    pcap_file,
    json_file,
):
    """Sum real gradients over cards of RTL; compare each frame and replica with golden cards.

    Hosts send ordinary UDP frames marked with ToS 0x28, add, and apply the owner's codec image;
    cards code. Gradients are those of `gradnic gradients` with --loss sum, made on the spot, unless
    files are given. Exit status 1 if anything differs.

    \b
    Example:
      gradnic cosim --nodes 4 --algorithm ring --codec inceptionn --lanes 8 --json -
      gradnic cosim --aggregator --workers 4 --codec thc --loss 0.01 --reorder 64 --json -
      gradnic cosim --topology torus:4x4 --algorithm multitree --elements 8192 --json -
      gradnic cosim --link frame --topology torus:4x4 --codec thc --loss 0.01 --p 0.02 --spray
      gradnic cosim --link frame --topology bigraph:2x4 --p 0.2 --important 0.5 --queue 65536
    """
    from gradnic.models.aggregation.star import Faults
    from gradnic.models.inceptionn.bands import bands
    from gradnic.sim.frame import pcap
    from gradnic.sim.inline import ring as cluster
    from gradnic.sim.training import network as training

    if elements is not None and elements < 1:
        raise ValueError(f"elements must be at least 1, not {elements}")

    def train(n_nodes):
        kept, _ = training.train([iteration], n_workers=n_nodes, loss="sum")
        return kept[iteration]

    if aggregator:
        codec, lanes = codec or "thc", lanes or 4
        cosim_star.check(workers, codec, lanes)
        faults = Faults(loss, duplicate, delay, reorder, cosim_star.deaths(death))
        cosim_star.run(
            (lambda n: load_gradients(files, n) if files else train(n)),
            n_workers=workers,
            codec=codec,
            lanes=lanes,
            block=block,
            elements=elements,
            deadline=deadline,
            faults=faults,
            seed=seed,
            json_file=json_file,
        )
        return
    if topology and link == "frame":
        cosim_frame.run(
            load_gradients(files, len(files)) if files else train,
            spelling=topology,
            algorithm=algorithm or "multitree",
            chunks=chunks,
            codec=codec or "none",
            lanes=lanes or 4,
            exponent=exponent,
            mode=mode,
            prescale=prescale,
            block=block,
            faults={
                "loss": loss,
                "duplicate": duplicate,
                "delay": delay,
                "reorder": reorder,
                "seed": seed,
            },
            p=p,
            spray=spray,
            important=important,
            queues=(queue, mark) if queue else None,
            pace=pace,
            elements=elements,
            pcap_file=pcap_file,
            json_file=json_file,
        )
        return
    if topology:
        if link != "flit":
            raise ValueError(f"link must be flit or frame, not {link!r}")
        cosim_flit.run(
            load_gradients(files, len(files)) if files else train,
            spelling=topology,
            algorithm=algorithm or "multitree",
            chunks=chunks,
            codec=codec or "none",
            exponent=exponent,
            mode=mode,
            prescale=prescale,
            block=block,
            flow=flow,
            lanes=lanes or 0,
            link_bytes=link_bytes,
            link_latency=link_latency,
            elements=elements,
            json_file=json_file,
        )
        return
    algorithm, codec, lanes = algorithm or "ring", codec or "inceptionn", lanes or 8
    link_bytes = 8.0 if link_bytes is None else link_bytes
    if not 2 <= nodes <= 16:
        raise ValueError(f"nodes must be 2 to 16, not {nodes}")
    if algorithm != "ring":
        raise ValueError(f"algorithm must be ring, not {algorithm!r}")
    if codec not in cluster.CODECS:
        raise ValueError(f"codec must be {' or '.join(cluster.CODECS)}, not {codec!r}")
    if lanes not in (4, 8, 16, 32):
        raise ValueError(f"lanes must be 4, 8, 16 or 32, not {lanes}")
    if not 1 <= floats <= 2104:
        raise ValueError(f"floats must be 1 to 2104, not {floats}")
    bands(exponent, mode, prescale)
    screen = console(json_file)
    with Progress(console=console("-"), transient=True) as progress:
        if files:
            gradients = load_gradients(files, nodes)
        else:
            task = progress.add_task("training", total=iteration)
            kept, _ = training.train(
                [iteration],
                n_workers=nodes,
                loss="sum",
                on_iteration=lambda i, _: progress.update(task, completed=i),
            )
            gradients = kept[iteration]
        gradients = gradients[:, :elements]
        task = progress.add_task(f"building the card, {lanes} lanes", total=None)
        model = cluster.build_card(lanes)
        progress.update(task, total=1, completed=1)
        task = progress.add_task("all-reduce", total=2 * nodes - 2)
        result = cluster.cosim(
            gradients,
            model,
            codec=codec,
            exponent=exponent,
            mode=mode,
            prescale=prescale,
            n_floats=floats,
            link_bytes=link_bytes,
            on_step=lambda step: progress.update(task, completed=step),
        )
    rows = [
        ("workers", nodes),
        ("floats of each", gradients.shape[1]),
        ("frames on the wires", result.frames),
        ("bytes on the wires, sent raw", result.raw_bytes),
        ("bytes on the wires, as sent", result.wire_bytes),
        ("cycles", result.cycles),
        ("mismatches", result.mismatches),
    ]
    screen.print(table(f"ring all-reduce, codec {codec}", ("", ""), rows))
    if result.first:
        screen.print(f"first mismatch: {result.first}")
    screen.print("RTL and golden cluster agree" if result.ok else "RTL and golden cluster DIFFER")
    write_json(
        json_file,
        {
            **result.summary(),
            "algorithm": algorithm,
            "codec": codec,
            "lanes": lanes,
            "floats": int(gradients.shape[1]),
            "link_bytes": link_bytes,
        },
    )
    if pcap_file:
        n_frames = pcap.write_pcap(pcap_file, pcap.wire_frames(result, lanes))
        screen.print(f"wrote {n_frames} frames to {pcap_file}", soft_wrap=True)
    if not result.ok:
        raise SystemExit(1)
