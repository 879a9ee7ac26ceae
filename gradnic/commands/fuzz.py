"""``gradnic fuzz``: bad frames in volume through the RTL in-line card."""

import time

import click
from rich.progress import Progress

from ..output import console, json_option, table, write_json


@click.command(name="fuzz")
@click.option("--frames", type=click.IntRange(1), default=100_000, show_default=True, help="Bad.")
@click.option("--lanes", type=click.Choice(["4", "8", "16", "32"]), default="4", show_default=True)
@click.option("--seed", default=1, show_default=True, help="Of frames, order and stalls.")
@json_option
def command(frames, lanes, seed, json_file):
    """Play bad and foreign frames through the RTL card, each followed by a good one.

    Both directions at once, under random stalls: frames cut, too long, with wrong checksums,
    lengths, fields and coded units, marked bad, and those that are none of ours. Every frame that
    leaves and every counter is compared with the golden card. Ends at the first difference, with
    exit status 1.

    \b
    Example:
      gradnic fuzz --frames 2000
      gradnic fuzz --frames 100000 --json build/fuzz.json
    """
    from gradnic.sim import fuzz

    screen = console(json_file)
    began = time.monotonic()
    with Progress(console=console("-"), transient=True) as progress:
        task = progress.add_task("bad frames", total=frames)
        try:
            result = fuzz.fuzz(
                frames,
                model=fuzz.build(int(lanes)),
                seed=seed,
                progress=lambda done, _: progress.update(task, completed=done),
            )
        except AssertionError as difference:
            screen.print(f"circuit and model differ: {difference}")
            write_json(json_file, {"ok": False, "seed": seed, "first": str(difference)})
            raise SystemExit(1) from None
    result |= {"ok": True, "seed": seed, "lanes": int(lanes)}
    result["seconds"] = round(time.monotonic() - began, 1)
    screen.print(table("bad frames", ("class", "frames"), result["classes"].items()))
    screen.print(
        f"{result['bad']:,} bad and foreign frames, a good one behind each: "
        f"{result['cycles']:,} cycles, RTL and model agree"
    )
    write_json(json_file, result)
