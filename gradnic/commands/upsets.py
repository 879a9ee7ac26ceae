"""``gradnic upsets``: register bits of an offload card that change by themselves."""

import re
import time

import click

from gradnic import cluster
from gradnic import quantities as q
from gradnic.output import console, json_option, table, write_json
from gradnic.packages import SIMULATION, needs
from gradnic.quantities import option

PART = 20  # upsets of one run, which begins with cards out of reset


@click.command(cls=q.Command, name="upsets")
@option("--count", q.Whole(1, 10**9), 1000, "Upsets.")
@option("--seed", q.SEED, 1, "Of bits, cycles and values.")
@click.option("--jobs", "with_jobs", is_flag=True, help="Of cards with jobs, two at a time.")
@click.option("--thc", is_flag=True, help="With --jobs: of cards with THC, and jobs of it.")
@click.option("--beside", is_flag=True, help="With --jobs: only registers that all contexts share.")
@click.option("--among", metavar="PATTERN", help="Only registers of such names.")
@cluster.options
@json_option
@needs(**SIMULATION)
def command(count, seed, with_jobs, thc, beside, among, json_file, **where):
    """Change one register bit of an RTL offload card, in one cycle of an all-reduce, many times.

    Each upset hits one of two cards at a random bit and cycle; the round, and the one after it, are
    compared with what they must be. A round that hangs is aborted and followed by the next, and by
    a reset if that does not help. With --jobs it hits one of three cards with five jobs of all
    codecs but THC, with --thc of all, whose watchdogs are on. Registers that carry values are
    counted apart from those that control. Exit status 1 if a reset does not heal the card.

    \b
    Example:
      gradnic upsets --count 1000 --json build/upsets.json
      gradnic upsets --jobs --thc --count 100 --resume build/upsets.jsonl
      gradnic upsets --jobs --count 60 --among 'clerk\\.out|context\\d\\.job'
    """
    from gradnic.sim.offload.upsets import merged

    q.only_with(with_jobs, "--jobs", "beside", "thc")
    if among is not None:
        try:
            re.compile(among)
        except re.error as wrong:
            raise click.UsageError(f"--among {among!r} is no pattern: {wrong}") from None
    screen = console(json_file)
    cards = ("thc" if thc else "jobs") if with_jobs else "rounds"
    same = {"cards": cards, "seed": seed, "beside": beside, "among": among}
    work = [{"part": k, "count": min(PART, count - k * PART), **same}
            for k in range(-(-count // PART))]  # fmt: skip
    parts = cluster.spread(play, work, cluster.of_options(**where), name="parts")
    lasting = next((part for part in parts if not part["ok"]), None)
    if lasting:
        screen.print(f"permanent: {lasting['first']}")
        write_json(json_file, {"ok": False, "seed": seed, "first": lasting["first"]})
        raise SystemExit(1)
    seconds = round(sum(part["seconds"] for part in parts), 1)
    result = merged(parts) | {"ok": True, "cards": cards, "seed": seed, "seconds": seconds}
    title = f"{count:,} upsets among {result['register_bits']:,} register bits of a card"
    rows = [(name, n, f"{n / count:.1%}") for name, n in _rows(result)]
    screen.print(table(title, ("", "upsets", "share"), rows))
    write_json(json_file, result)


def play(cards, count, seed, part, beside, among):
    """One part of a campaign: as `upsets` gives it, and ``ok seconds``; or ``ok`` False and
    ``first``.
    """
    from gradnic.sim.offload.upsets import upsets

    began = time.monotonic()
    try:
        result = upsets(count, cards=cards, seed=[seed, part], beside=beside, among=among)
    except AssertionError as lasting:
        return {"ok": False, "first": str(lasting)}
    found = [{"part": part, **one} for one in result["found"]]
    seconds = round(time.monotonic() - began, 1)
    return result | {"found": found, "ok": True, "seconds": seconds}


def _rows(result):
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
