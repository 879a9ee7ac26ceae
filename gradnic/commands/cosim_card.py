"""``gradnic cosim card``: offload cards over lossy Ethernet, in RTL."""

import math

import click

from gradnic import quantities as q
from gradnic.output import console, json_option, table, write_json
from gradnic.packages import SIMULATION, needs
from gradnic.progress import Progress
from gradnic.quantities import option

from . import cosim_jobs
from .card_options import check_port_lanes
from .cosim_jobs import job_options
from .cosim_parts import (
    Machine,
    codec_options,
    fault_options,
    gradients_of,
    network_options,
    pcap_option,
    show_verdict,
    source_options,
)

PACKET = 352  # elements of a packet, at most
FRAME = 2048  # bytes that hold any frame of a card
MARK = 16384  # bytes, unless told
ELEMENTS = 16384  # of a trained gradient, unless told


@click.command(cls=Machine, name="card")
@network_options
@option("--codec", q.OneOf("none", "bf16", "inceptionn", "thc"), "none", "bf16: of jobs.")
@codec_options
@option("--block", q.BLOCK, 1024, "THC's B.")
@option("--lanes", q.LANES, 4, "Floats a cycle; 32: one all-reduce, no jobs.")
@option(
    "--port-lanes",
    q.OneOf(1, 2, 4, 8, 16, 32),
    help="Floats a cycle of each port and its line; default: as many as --lanes. "
    "With --lanes over the number of ports all run at their line.",
)
@fault_options
@click.option("--p", type=q.BELOW_ONE, default=0.0,
              help="Share of the contributions that may be missing.")  # fmt: skip
@option("--give-up", q.OneOf("range", "share"), "range",
        "A PROBE may give up what fits the allowance of its range, or all that is missing once the "
        "rest of all is here.")  # fmt: skip
@click.option("--spray", is_flag=True, help="Over 8 paths of different length.")
@option(
    "--important", q.SHARE, help="Share of the gradients that is important by size; default: all."
)
@click.option("--queue", type=q.Whole(0, 1 << 30, "bytes"), default=0,
              help="Bytes of a switch's queue; 0: it has no queues.")  # fmt: skip
@option(
    "--mark",
    q.Whole(1, 1 << 30, "bytes"),
    help=f"Bytes of it that mark or drop what comes; default: {MARK}, or all of a smaller one.",
)
@option(
    "--egress",
    q.OneOf("switch", "card"),
    "switch",
    "Whose queues: a switch's, or the cards' own, in RTL.",
)
@option("--pace", q.OneOf("off", "ce", "rtt"), "off", "What steers the rate.")
@job_options
@source_options
@pcap_option
@json_option
@needs(**SIMULATION, schedule=("scipy",))
def command(
    topology, algorithm, chunks, codec, exponent, mode, prescale, block, lanes, port_lanes, loss,
    duplicate, delay, reorder, seed, p, give_up, spray, important, queue, mark, egress, pace,
    n_buckets, n_bytes, op, kind, collective, root, jobs_file, n_active, n_engines, watchdog,
    plot_file, memory, channels, clock, iteration, elements, files, pcap_file, json_file,
):  # fmt: skip
    """Run a schedule table on offload cards over Ethernet: a whole all-reduce by the cards.

    Every replica is compared with sums that follow from the table and from what the cards say they
    gave up. More than 32 nodes, or more than 235,146 values, get normal noise unless files are
    given.

    With --buckets or --jobs each card takes jobs from a queue, on normal noise; every result and
    status is compared with golden cards, or with the sums of the table for more than 262,144
    values; with --p, with sums without what the cards say they gave up.

    \b
    Example:
      gradnic cosim card --topology torus:4x4 --codec thc --loss 0.01 --p 0.02 --spray
      gradnic cosim card --topology bigraph:2x4 --p 0.2 --important 0.5 --queue 65536
      gradnic cosim card --topology torus:4x4 --lanes 16 --port-lanes 4 --algorithm best
      gradnic cosim card --topology ring:3 --queue 12288 --mark 4096 --egress card
      gradnic cosim card --topology ring:3 --buckets 8 --bytes 16KiB --plot build/jobs.svg
      gradnic cosim card --topology ring:3 --buckets 4 --collective reduce_scatter
      gradnic cosim card --topology ring:3 --buckets 4 --type bf16 --codec bf16
      gradnic cosim card --topology ring:3 --buckets 4 --bytes 64KiB --loss 0.05 --p 0.2
      gradnic cosim card --topology ring:3 --codec thc --buckets 8 --bytes 16KiB --active 4
      gradnic cosim card --topology ring:2 --lanes 16 --buckets 8 --memory ddr4-2400
      gradnic cosim card --topology torus:2x2 --lanes 8 --port-lanes 4 --buckets 4 --bytes 16KiB
      gradnic cosim card --topology ring:3 --buckets 4 --queue 12288 --mark 4096 --egress card
    """
    from gradnic.models.offload.cluster import LinkFaults
    from gradnic.models.schedule.builders import build
    from gradnic.models.schedule.topology import parse
    from gradnic.sim.frame import pcap
    from gradnic.sim.offload import run as offload_run

    q.only_with(
        codec == "inceptionn" or jobs_file, "--codec inceptionn or --jobs", "exponent", "mode",
        "prescale",
    )  # fmt: skip
    q.only_with(codec == "thc" or jobs_file, "--codec thc or --jobs", "block")
    q.only_with(p or jobs_file, "a share that may miss: --p or --jobs", "give_up")
    q.only_with(memory, "DRAM, with --memory", "channels", "clock")
    q.only_with(queue, "queues: --queue", "mark", "egress")
    check_port_lanes(port_lanes, lanes)
    mark = mark or min(MARK, queue)
    _check_queue(queue, mark, lanes if egress == "card" else None)
    network = parse(topology)
    delay = _delay(network, delay)
    faults = LinkFaults(loss=loss, duplicate=duplicate, delay=delay, reorder=reorder, seed=seed)
    n_nodes = network.n_nodes
    build(network, algorithm, **({} if chunks is None else {"chunks": chunks}))
    if n_buckets or jobs_file:
        if lanes > 16:
            raise ValueError(f"lanes must be 4, 8 or 16 for jobs, not {lanes}")
        settings = {"exponent": exponent, "mode": mode, "prescale": prescale}
        cosim_jobs.run(
            topology, algorithm, chunks=chunks, codec=codec, settings=settings, block=block,
            lanes=lanes, port_lanes=port_lanes, queues=(queue, mark) if queue else None,
            egress=egress, faults=faults, p=p, at_share=give_up == "share", n_buckets=n_buckets,
            n_bytes=n_bytes, op=op, kind=kind, collective=collective, root=root,
            jobs_file=jobs_file, memory=memory, channels=channels, clock=clock,
            n_active=n_active, n_engines=n_engines, watchdog=watchdog, plot_file=plot_file,
            pcap_file=pcap_file, json_file=json_file,
        )  # fmt: skip
        return
    q.only_with(
        False, "jobs: --buckets or --jobs", "n_bytes", "n_active", "n_engines", "watchdog",
        "plot_file", "op", "kind", "collective", "root", "memory", "channels", "clock",
    )  # fmt: skip
    if codec == "bf16":
        raise click.UsageError("--codec bf16 is for jobs: --buckets or --jobs")
    if codec == "thc":
        offload_run.granularity(n_nodes)
    screen = console(json_file)
    with Progress() as progress:
        wanted = elements or (None if files else ELEMENTS)
        gradients, source = gradients_of(n_nodes, files, iteration, wanted, progress)
        progress.add_task("cards of RTL", total=None)
        outcome, found = offload_run.cosim(
            topology,
            algorithm,
            gradients,
            codec,
            chunks=chunks,
            lanes=lanes,
            port_lanes=port_lanes,
            faults=faults,
            spray=spray,
            important=important,
            pace=pace,
            queues=(queue, mark) if queue else None,
            egress=egress == "card",
            p=p,
            at_share=give_up == "share",
            exponent=exponent,
            mode=mode,
            prescale=prescale,
            block=block,
        )
    title = f"{algorithm} on {topology}, Ethernet, codec {codec}"
    screen.print(table(title, ("", ""), _rows(outcome, found, gradients.shape[1], p)))
    show_verdict(screen, outcome.ok, outcome.first)
    if pcap_file:
        pcap.write_pcap(pcap_file, [(at, frame) for at, *_, frame in outcome.frames])
    write_json(
        json_file,
        {
            **found,
            "topology": topology,
            "algorithm": algorithm,
            "machine": "card",
            "codec": codec,
            "lanes": lanes,
            "port_lanes": port_lanes or lanes,
            "floats": int(gradients.shape[1]),
            "gradients": source,
            "p": p,
        },
    )
    if not outcome.ok:
        raise SystemExit(1)


def _check_queue(queue, mark, lanes):
    """ValueError for bytes of an egress queue that cannot be; lanes : of the card that has it."""
    if queue and mark > queue:
        raise ValueError(f"--mark must be 1 to {queue}, the bytes of the queue, not {mark}")
    if 0 < queue < FRAME:
        raise ValueError(f"--queue must be 0, or {FRAME} bytes at least for a frame, not {queue}")
    if lanes:
        from gradnic.hdl.frame.queue_rules import most_beats
        from gradnic.hdl.offload.port_exit import longest_frame

        most = 4 * lanes * most_beats(longest_frame(4 * lanes, PACKET))
        if queue > most:
            raise ValueError(f"--queue must be at most {most} bytes in a card, not {queue}")


def _delay(network, delay):
    """Cycles of all links: --delay, or where that is not given a file's latency."""
    if q.given("delay"):
        return delay
    said = {math.ceil(cycles) for cycles in network.latencies(delay).tolist()}
    if len(said) > 1:
        raise ValueError(
            f"links of {network.name} are {min(said)} to {max(said)} cycles long, and those "
            "between cards are alike: give --delay"
        )
    return q.LINK_TIME.convert(str(*said), None, None)


def _modelled(found):
    """Rows of what the network model says, which knows no faults."""
    cycles = found["model_cycles"]
    if cycles is None:
        return [("cycles by the network model", "without faults only")]
    return [
        ("cycles by the network model", cycles),
        ("frames that overrun ports in it", found["model_overruns"]),
    ]


def _rows(outcome, found, n_floats, p):
    """What the screen shows of a round."""
    return [
        ("nodes", outcome.nodes),
        ("built as", f"{found['built_as']}, {found['chunks']:g} chunks a node"),
        ("floats of each", n_floats),
        ("bytes a cycle of each link", f"{found['link_bytes_per_cycle']:g}"),
        ("cycles", outcome.cycles),
        *_modelled(found),
        ("frames", found["frames"]),
        ("of them lost", found["frames_lost"]),
        ("dropped and marked by queues", f"{found['frames_dropped']}, {found['frames_marked']}"),
        ("packets sent again", found["data_again"]),
        ("share of contributions missing", f"{outcome.lost:.4f} of at most {p:.4f}"),
        ("error against the sum, NMSE", "-" if found["nmse"] is None else f"{found['nmse']:.3g}"),
        ("values that are not finite", found["not_finite"]),
        ("mismatches", outcome.mismatches),
    ]
