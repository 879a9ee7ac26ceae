"""``gradnic soak``: millions of packets, and of attacks, through the RTL aggregator."""

import time

import click

from gradnic import cluster
from gradnic import quantities as q
from gradnic.output import console, json_option, table, write_json
from gradnic.packages import SIMULATION, needs
from gradnic.progress import Progress
from gradnic.quantities import option


@click.command(cls=q.Command, name="soak")
@option("--packets", q.Whole(0, 10**10), 1_000_000, "Contributions.")
@option("--attacks", q.Whole(0, 10**10), 1_000_000, "Forged packets, as well.")
@option("--seed", q.SEED, 1, "Of all that is random.")
@cluster.runs_option
@cluster.options
@json_option
@needs(**SIMULATION)
def command(packets, attacks, seed, runs, json_file, **where):
    """Play packets through the RTL aggregator; hold each frame and counter against the model.

    First contributions of three jobs, in every state that a slot can find them in. Then as many
    again, among forged packets from all ports: what the first job's children are sent must be
    what they are sent without them. Ends at the first difference, with exit status 1.

    \b
    Example:
      gradnic soak --packets 20000 --attacks 20000
      gradnic soak --runs 50 --workers 2 --resume build/soak.jsonl --json build/soak.json
    """
    if not packets and not attacks:
        raise click.UsageError("--packets and --attacks must not both be 0: nothing is played")
    screen = console(json_file)
    if runs > 1 or any(where.values()):
        work = [{"packets": packets, "attacks": attacks, "seed": one}
                for one in cluster.seeds_of(seed, runs)]  # fmt: skip
        results = cluster.spread(play, work, cluster.of_options(**where), name="campaigns")
        cluster.end(screen, results, ("packets", "attacks", "cycles", "answers"), json_file)
        return
    with Progress() as progress:
        task = progress.add_task("packets", total=packets + 2 * attacks)
        result = play(packets, attacks, seed, lambda n: progress.advance(task, n))
    if not result["ok"]:
        screen.print(f"circuit and model differ: {result['first']}")
        write_json(json_file, result)
        raise SystemExit(1)
    counters = result["counters"]
    rows = [(name, f"{result[name]:,}") for name in ("packets", "attacks", "cycles", "answers")]
    rows.append(("answers as without the attack", f"{result['protected']:,}"))
    rows += [(name, f"{count:,}") for name, count in counters.items()]
    screen.print(table("aggregator, RTL against model", ("", ""), rows))
    screen.print("RTL and model agree")
    write_json(json_file, result)


def play(packets, attacks, seed, on_round=None):
    """One campaign: its summary, and ``ok seed seconds``; or ``ok`` False and ``first``."""
    from gradnic.sim.aggregation import soak as star_soak

    began = time.monotonic()
    try:
        result = star_soak.soak(packets, attacks, seed=seed, on_round=on_round).summary()
    except AssertionError as difference:
        return {"ok": False, "seed": seed, "first": str(difference)}
    return result | {"ok": True, "seed": seed, "seconds": round(time.monotonic() - began)}
