"""``gradnic fuzz``: bad frames in volume through an RTL card."""

import time

import click

from gradnic import quantities as q
from gradnic.output import console, json_option, table, write_json
from gradnic.packages import SIMULATION, needs
from gradnic.progress import Progress


@click.command(name="fuzz")
@click.option(
    "--card",
    type=q.OneOf("inline", "offload"),
    default="inline",
    show_default=True,
    help="Which card.",
)
@click.option("--frames", type=q.Whole(1, 10**10), default=100_000, show_default=True, help="Bad.")
@click.option(
    "--lanes",
    type=q.LANES,
    help="Of the in-line card, 4 unless told; the offload card has 4.",
)
@click.option(
    "--seed", type=q.SEED, default=1, show_default=True, help="Of frames, order and stalls."
)
@json_option
@needs(**SIMULATION)
def command(card, frames, lanes, seed, json_file):
    """Play bad and foreign frames through an RTL card, with good ones between them.

    In-line card: both directions at once, under random stalls: frames cut, too long, with wrong
    checksums, lengths, fields and coded units, marked bad, and those that are none of ours, each
    followed by a good one. Every frame that leaves and every counter is compared with the golden
    card.

    Offload card: 256 cards at once, as gates, each armed and in the middle of a round. Frames of
    the round have fields and bytes of their heads changed, their lengths, marks and claims, are
    cut, grown or oversize, half of them with a right IPv4 checksum; right ones come between them.
    Each must have the one fate that it has by the rules, the right ones too; all that is written
    and sent, and the counters, are compared, and the round must end as it does without them. The
    library takes minutes to build; frames are played in rounds of 65,025.

    Ends at the first difference, with exit status 1.

    \b
    Example:
      gradnic fuzz --frames 2000
      gradnic fuzz --card offload --frames 100000 --json build/fuzz.json
    """
    if card == "offload" and lanes:
        raise click.UsageError("--lanes is for the in-line card; the offload card is played with 4")
    screen = console(json_file)
    began = time.monotonic()
    with Progress() as progress:
        task = progress.add_task("bad frames", total=frames)

        def show(done, _):
            progress.update(task, completed=done)

        try:
            result = (
                _inline(frames, lanes or 4, seed, show)
                if card == "inline"
                else _offload(frames, seed, show)
            )
        except AssertionError as difference:
            screen.print(f"circuit and model differ: {difference}")
            write_json(json_file, {"ok": False, "seed": seed, "first": str(difference)})
            raise SystemExit(1) from None
    shown, line = result.pop("shown"), result.pop("line")
    result |= {"ok": True, "card": card, "seed": seed}
    result["seconds"] = round(time.monotonic() - began, 1)
    for title, counts in shown.items():
        screen.print(table(title, ("", "frames"), counts.items()))
    screen.print(line)
    write_json(json_file, result)


def _inline(frames, lanes, seed, show):
    from gradnic.sim.inline import fuzz

    result = fuzz.fuzz(frames, model=fuzz.build(lanes), seed=seed, progress=show)
    line = (
        f"{result['bad']:,} bad and foreign frames, a good one behind each: "
        f"{result['cycles']:,} cycles, RTL and model agree"
    )
    return result | {"lanes": lanes, "shown": {"bad frames": result["classes"]}, "line": line}


def _offload(frames, seed, show):
    from gradnic.sim.offload import fuzz as offload_fuzz

    result = offload_fuzz.fuzz(frames, seed=seed, progress=show)
    line = (
        f"{result['frames']:,} broken frames and {result['right']:,} right ones between them: each "
        f"as it must, and {result['rounds']} times 255 rounds complete"
    )
    shown = {"broken frames": result["kinds"], "what became of them": result["reasons"]}
    return result | {"shown": shown, "line": line}
