"""Jobs on cards of RTL: ``gradnic cosim card`` with ``--buckets`` or ``--jobs``."""

import click

from gradnic import quantities as q
from gradnic.interface.job import Collective, ending
from gradnic.models.offload.memory import DRAMS
from gradnic.output import PICTURES, console, table, write_json, write_picture
from gradnic.packages import require
from gradnic.paths import InputFile, OutputFile
from gradnic.progress import Progress
from gradnic.quantities import option
from gradnic.text_file import shown_path

from .cosim_parts import show_verdict

_NOT_YET = (
    "spray", "important", "pace", "iteration", "elements", "files",
)  # fmt: skip


def job_options(function):
    """Jobs from queues instead of one round."""
    for decorate in (
        option(
            "--plot plot_file",
            OutputFile(*PICTURES),
            help="Jobs: a picture over time, .svg, .png or .pdf.",
            metavar="FILE",
        ),
        click.option(
            "--watchdog",
            type=q.Whole(0, 2**32 - 1, "cycles"),
            default=0,
            help="Jobs: cycles without progress that end one; 0: none.",
        ),
        option("--active n_active", q.Whole(1, 4, "jobs"), 2, "Jobs side by side."),
        option(
            "--engines n_engines",
            q.Whole(1, 4, "engines"),
            None,
            "Jobs whose rounds are side by side; as many as --active.",
        ),
        option(
            "--jobs jobs_file",
            InputFile(),
            metavar="FILE",
            help="A JSON list of jobs: bytes or elems; class, at, nodes, root, abort, errors, "
            "silent, and fields of descriptors.",
        ),
        option("--root", q.NODE, 0, "Node, of buckets of reduce and broadcast."),
        option("--op", q.OneOf("sum", "mean", "max"), "sum", "Of the buckets."),
        option("--type kind", q.OneOf("fp32", "bf16"), "fp32", "Of the buckets in memory."),
        option(
            "--collective",
            q.OneOf(*(c.name.lower() for c in Collective)),
            "all_reduce",
            "Of the buckets.",
        ),
        option("--bytes n_bytes", q.Size(4, 1 << 28), "64KiB", "Of each bucket."),
        option(
            "--memory",
            q.OneOf(*DRAMS),
            help="Jobs: of the cards; default: a beat a cycle at each port.",
        ),
        option(
            "--channels",
            q.OneOf(1, 2, 4),
            2,
            "Of it, for all but landings, and again for those.",
        ),
        option("--clock", q.Number(1, 2000, "MHz"), 250.0, "Of the cards, beside --memory."),
        option("--buckets n_buckets", q.JOBS, help="So many jobs, posted at once."),
    ):
        function = decorate(function)
    return function


def run(
    topology, algorithm, *, chunks, codec, settings, block, lanes, port_lanes, queues, egress,
    faults, p, at_share, n_buckets, n_bytes, op, kind, collective, root, jobs_file, n_active,
    n_engines, watchdog, plot_file, pcap_file, json_file, memory=None, channels=2, clock=250.0,
):  # fmt: skip
    """Run jobs, show and write what came of them; exit status 1 if anything differs."""
    from gradnic.models.schedule.builders.collectives import ROOTED  # needs SciPy, as the rest
    from gradnic.models.schedule.topology import parse
    from gradnic.sim.frame import pcap
    from gradnic.sim.offload import job_list, job_run
    from gradnic.sim.offload.dram import timing

    q.only_with(False, "single rounds, not for jobs", *_NOT_YET)
    q.only_with(
        not jobs_file, "jobs that --jobs does not name", "n_buckets", "n_bytes", "op", "kind",
        "collective", "root", "p",
    )  # fmt: skip
    q.only_with(collective in ROOTED, f"--collective {' or '.join(ROOTED)}", "root")
    if jobs_file:
        posted = job_list.read(jobs_file, codec=codec)
    else:
        posted = job_list.buckets(
            n_buckets, n_bytes, codec=codec, op=op, kind=kind, collective=collective, root=root
        )
    if plot_file:
        require("--plot", report=("matplotlib",))
        from gradnic.sim.report.job_picture import drawn
    screen = console(json_file)
    if n_engines and n_engines > n_active:
        raise ValueError(f"engines must be 1 to {n_active}, as there are jobs, not {n_engines}")
    rate = parse(topology).rate_behind(4 * (port_lanes or lanes))
    with Progress() as progress:
        progress.add_task("cards of RTL", total=None)
        outcome = job_run.cosim(
            topology, algorithm, posted, chunks=chunks, lanes=lanes, n_active=n_active,
            n_engines=n_engines or 0, faults=faults, settings=settings, block=block,
            watchdog=watchdog, p=p, at_share=at_share, link_bytes=rate,
            port_bytes=port_lanes and 4 * port_lanes,
            **{"queues" if egress == "card" else "switches": queues},
            dram=timing(memory, channels, 4 * lanes, clock) if memory else None,
        )  # fmt: skip
    columns = ("job", "class", "bytes", "posted", "done", "status")
    rows = [
        (*(job[name] for name in ("id", *columns[1:-1])), _ended(job)) for job in outcome.jobs[:32]
    ]
    title = f"{algorithm} on {shown_path(topology)}: {len(posted)} jobs, {n_active} active"
    screen.print(table(title, columns, rows))
    if len(posted) > len(rows):
        screen.print(f"and {len(posted) - len(rows)} more")
    steady = outcome.steady_rate
    screen.print(
        f"{outcome.cycles} cycles, packets with payload on the lines {outcome.line_share:.1%} of "
        f"the time from the first to the last, {outcome.input_rate:.2f} beats of gradient a cycle"
        + ("" if steady is None else f", {steady:.2f} behind end {n_active}, with all stages full")
    )
    given_up = sum(job["given_up"] for job in outcome.jobs)
    if given_up:
        screen.print(f"given up: {given_up} bytes, times the leaves that they stood for")
    if queues:
        screen.print(f"dropped and marked by queues: {outcome.dropped}, {outcome.marked}")
    if outcome.nmse is not None:
        screen.print(f"error of THC against the mean, NMSE: {outcome.nmse:.3g}")
    if outcome.barked:
        screen.print(
            f"{outcome.barked} ends that the watchdog explains are not compared: {watchdog} cycles "
            "are fewer than PROBEs and other jobs may take"
        )
    show_verdict(screen, outcome.ok, outcome.first)
    if plot_file:
        picture = drawn(outcome, posted, link_bytes=rate, title=title)
        write_picture(plot_file, picture, dpi=110)
    if pcap_file:
        pcap.write_pcap(pcap_file, [(at, frame) for at, *_, frame in outcome.sent])
    write_json(
        json_file,
        {
            "ok": outcome.ok,
            "bit_exact": not outcome.mismatches,
            "mismatches": outcome.mismatches,
            "cycles": outcome.cycles,
            "line_share": outcome.line_share,
            "input_rate": outcome.input_rate,
            "steady_rate": outcome.steady_rate,
            "nmse": outcome.nmse,
            "jobs": outcome.jobs,
            "not_compared": outcome.barked,
            "machine": "card",
            "topology": topology,
            "algorithm": algorithm,
            "codec": codec,
            "lanes": lanes,
            "port_lanes": port_lanes or lanes,
            "link_bytes_per_cycle": rate,
            **(
                {"frames_dropped": outcome.dropped, "frames_marked": outcome.marked}
                if queues
                else {}
            ),
            "active": n_active,
            "engines": n_engines or n_active,
            **({"memory": memory, "channels": channels} if memory else {}),
            "golden": outcome.reference,
        },
    )
    if not outcome.ok:
        raise SystemExit(1)


def _ended(job):
    """How a job ended, in words."""
    return "-" if job["status"] is None else ending(job["status"], job["detail"])
