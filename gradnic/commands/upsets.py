"""``gradnic upsets``: register bits of an offload card that change by themselves."""

import time

import click

from gradnic import quantities as q
from gradnic.output import console, json_option, table, write_json
from gradnic.packages import SIMULATION, needs
from gradnic.progress import Progress
from gradnic.quantities import option


@click.command(name="upsets")
@option("--count", q.Whole(1, 10**9), 1000, "Upsets.")
@option("--seed", q.SEED, 1, "Of bits, cycles and values.")
@json_option
@needs(**SIMULATION)
def command(count, seed, json_file):
    """Change one register bit of an RTL offload card, in one cycle of an all-reduce, many times.

    Each upset hits one of two cards at a random bit and cycle; the round, and the one after it, are
    compared with what they must be. A round that hangs is aborted and followed by the next, and by
    a reset if that does not help. Exit status 1 if a reset does not heal the card.

    \b
    Example:
      gradnic upsets --count 1000 --json build/upsets.json
    """
    from gradnic.sim.offload import upsets as offload_campaigns

    screen = console(json_file)
    began = time.monotonic()
    with Progress() as progress:
        task = progress.add_task("upsets", total=count)
        try:
            result = offload_campaigns.upsets(
                count, seed=seed, progress=lambda done, _: progress.update(task, completed=done)
            )
        except AssertionError as lasting:
            screen.print(f"permanent: {lasting}")
            write_json(json_file, {"ok": False, "seed": seed, "first": str(lasting)})
            raise SystemExit(1) from None
    result |= {"ok": True, "seed": seed, "seconds": round(time.monotonic() - began, 1)}
    rows = [(name, n, f"{n / count:.1%}") for name, n in result["fates"].items()]
    rows += [(f"hangs, over with the {how}", n, f"{n / count:.1%}")
             for how, n in result["hangs"].items()]  # fmt: skip
    n = result["wrong_again_until_reset"]
    rows.append(("wrong again until reset", n, f"{n / count:.1%}"))
    title = f"{count:,} upsets among {result['register_bits']:,} register bits of a card"
    screen.print(table(title, ("", "upsets", "share"), rows))
    write_json(json_file, result)
