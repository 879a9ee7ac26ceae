"""``gradnic upsets``: register bits of an offload card that change by themselves."""

import re
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
@click.option("--jobs", "with_jobs", is_flag=True, help="Of cards with jobs, two at a time.")
@click.option("--beside", is_flag=True, help="With --jobs: only registers that all contexts share.")
@click.option("--among", metavar="PATTERN", help="With --jobs: only registers of such names.")
@json_option
@needs(**SIMULATION)
def command(count, seed, with_jobs, beside, among, json_file):
    r"""Change one register bit of an RTL offload card, in one cycle of an all-reduce, many times.

    Each upset hits one of two cards at a random bit and cycle; the round, and the one after it, are
    compared with what they must be. A round that hangs is aborted and followed by the next, and by
    a reset if that does not help. With --jobs it hits one of three cards with five jobs of all
    codecs, whose watchdogs are on; registers that carry values are counted apart from those that
    control. Exit status 1 if a reset does not heal the card.

    \b
    Example:
      gradnic upsets --count 1000 --json build/upsets.json
      gradnic upsets --jobs --count 300 --json -
      gradnic upsets --jobs --count 50 --among 'clerk\.out|context\d\.job'
    """
    from gradnic.sim.offload.job_upsets import job_upsets
    from gradnic.sim.offload.upsets import upsets

    q.only_with(with_jobs, "--jobs", "beside", "among")
    if among is not None:
        try:
            re.compile(among)
        except re.error as wrong:
            raise click.UsageError(f"--among {among!r} is no pattern: {wrong}") from None
    screen = console(json_file)
    began = time.monotonic()
    campaign = job_upsets if with_jobs else upsets
    more = {"beside": beside, "among": among} if with_jobs else {}
    with Progress() as progress:
        task = progress.add_task("upsets", total=count)

        def told(done, _):
            progress.update(task, completed=done)

        try:
            result = campaign(count, seed=seed, progress=told, **more)
        except ValueError as wrong:  # of --among
            raise click.UsageError(str(wrong)) from None
        except AssertionError as lasting:
            screen.print(f"permanent: {lasting}")
            write_json(json_file, {"ok": False, "seed": seed, "first": str(lasting)})
            raise SystemExit(1) from None
    result |= {"ok": True, "seed": seed, "seconds": round(time.monotonic() - began, 1)}
    rows = [
        (name, n, f"{n / count:.1%}") for name, n in (_of_jobs if with_jobs else _of_rounds)(result)
    ]
    title = f"{count:,} upsets among {result['register_bits']:,} register bits of a card"
    screen.print(table(title, ("", "upsets", "share"), rows))
    write_json(json_file, result)


def _of_rounds(result):
    rows = [*result["fates"].items()]
    rows += [(f"hangs, over with the {how}", n) for how, n in result["hangs"].items()]
    return [*rows, ("wrong again until reset", result["wrong_again_until_reset"])]


def _of_jobs(result):
    rows = [
        (f"{fate}, in {kind}", n)
        for kind, fates in result["fates"].items()
        for fate, n in fates.items()
    ]
    rows += [(f"hangs, over with the {how}", n) for how, n in result["hangs"].items()]
    helped = {"next": "until one more round", "written anew": "until tables were written anew"}
    rows += [
        (f"wrong again {helped.get(how, 'until reset')}", n) for how, n in result["after"].items()
    ]
    return [*rows, ("need a reset", result["resets"])]
