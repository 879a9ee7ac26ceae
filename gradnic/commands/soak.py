"""``gradnic soak``: millions of packets, and of attacks, through the RTL aggregator."""

import time

import click

from gradnic import quantities as q
from gradnic.output import console, json_option, table, write_json
from gradnic.packages import SIMULATION, needs
from gradnic.progress import Progress


@click.command(name="soak")
@click.option(
    "--packets",
    type=q.Whole(0, 10**10),
    default=1_000_000,
    show_default=True,
    help="Contributions.",
)
@click.option(
    "--attacks",
    type=q.Whole(0, 10**10),
    default=1_000_000,
    show_default=True,
    help="Forged packets, as well.",
)
@click.option("--seed", type=q.SEED, default=1, show_default=True, help="Of all that is random.")
@json_option
@needs(**SIMULATION)
def command(packets, attacks, seed, json_file):
    """Play packets through the RTL aggregator; hold each frame and counter against the model.

    First contributions of three jobs, in every state that a slot can find them in. Then as many
    again, among forged packets from all ports: what the first job's children are sent must be
    what they are sent without them. Ends at the first difference, with exit status 1.

    \b
    Example:
      gradnic soak --packets 20000 --attacks 20000
    """
    from gradnic.sim.aggregation import soak as star_soak

    screen = console(json_file)
    began = time.monotonic()
    with Progress() as progress:
        task = progress.add_task("packets", total=packets + 2 * attacks)
        try:
            result = star_soak.soak(
                packets, attacks, seed=seed, on_round=lambda n: progress.advance(task, n)
            ).summary()
        except AssertionError as difference:
            screen.print(f"circuit and model differ: {difference}")
            write_json(json_file, {"ok": False, "seed": seed, "first": str(difference)})
            raise SystemExit(1) from None
    result |= {"ok": True, "seed": seed, "seconds": round(time.monotonic() - began)}
    counters = result["counters"]
    rows = [(name, f"{result[name]:,}") for name in ("packets", "attacks", "cycles", "answers")]
    rows.append(("answers as without the attack", f"{result['protected']:,}"))
    rows += [(name, f"{count:,}") for name, count in counters.items()]
    screen.print(table("aggregator, RTL against model", ("", ""), rows))
    screen.print("RTL and model agree")
    write_json(json_file, result)
