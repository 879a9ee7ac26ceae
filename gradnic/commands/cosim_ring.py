"""``gradnic cosim ring``: in-line cards of RTL in a ring, against the golden ring."""

import click

from gradnic import quantities as q
from gradnic.output import console, json_option, table, write_json
from gradnic.packages import SIMULATION, needs
from gradnic.progress import Progress
from gradnic.quantities import option

from .cosim_parts import (
    Machine,
    codec_options,
    gradients_of,
    pcap_option,
    show_verdict,
    source_options,
)


@click.command(cls=Machine, name="ring")
@option("--nodes", q.Whole(2, 16), 4, "Workers, 2..16.")
@option("--codec", q.OneOf("inceptionn", "none"), "inceptionn")
@option("--lanes", q.LANES, 8, "Floats a cycle.")
@codec_options
@option("--floats", q.FRAME_FLOATS, 336, "Floats a frame, 1..2104.")
@option(
    "--link-bytes",
    q.Number(0, 1000, "bytes a cycle"),
    8.0,
    "Bytes a clock cycle that a link takes: 8 at 156.25 MHz is 10 Gb/s; 0: no limit.",
)
@source_options
@pcap_option
@json_option
@needs(**SIMULATION)
def command(
    nodes, codec, lanes, exponent, mode, prescale, floats, link_bytes, iteration, elements, files,
    pcap_file, json_file,
):  # fmt: skip
    """Sum real gradients over in-line cards in a ring.

    Hosts send ordinary UDP frames marked with ToS 0x28, add, and apply the owner's codec image;
    cards code. Every frame and replica is compared. Exit status 1 if anything differs.

    \b
    Example:
      gradnic cosim ring --nodes 4 --codec inceptionn --lanes 8 --json -
    """
    from gradnic.sim.frame import pcap
    from gradnic.sim.inline import ring as cluster

    q.only_with(codec == "inceptionn", "--codec inceptionn", "exponent", "mode", "prescale")
    screen = console(json_file)
    with Progress() as progress:
        gradients, source = gradients_of(nodes, files, iteration, elements, progress)
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
    show_verdict(screen, result.ok, result.first)
    write_json(
        json_file,
        {
            **result.summary(),
            "machine": "ring",
            "codec": codec,
            "lanes": lanes,
            "floats": int(gradients.shape[1]),
            "gradients": source,
            "link_bytes": link_bytes,
        },
    )
    if pcap_file:
        n_frames = pcap.write_pcap(pcap_file, pcap.wire_frames(result, lanes))
        screen.print(f"wrote {n_frames} frames to {pcap_file}", soft_wrap=True)
    if not result.ok:
        raise SystemExit(1)
