"""``gradnic budget``: whether a board's memory keeps up with its line, for an offload card."""

import click

from gradnic import quantities as q
from gradnic.output import console, json_option, table, write_json
from gradnic.quantities import option

COLUMNS = ("board", "memory", "channels", "used", "peak", "at least", "needed", "share of the line")


@click.command(cls=q.Command, name="budget")
@option("--line", q.Number(1, 800, "Gb/s"), 100.0, "Of each card, in Gb/s.")
@json_option
def command(line, json_file):
    """Print what memory an offload card needs at its line, and what boards give it.

    One card on a board; half of its channels, up to 4, hold gradients and results, as many hold
    landings. GB/s of one such half: the peak; what reads and writes in turns get at least, with
    refresh, turns of the bus, and a miss for each row; what a card needs, one stream to read and
    one to write. `gradnic goodput --memory ddr4-2400 --channels 2` plays it in RTL.

    \b
    Example:
      gradnic budget
      gradnic budget --line 200 --json -
    """
    from gradnic.models.offload.memory import BOARDS, budget

    found = [budget(board, line) for board in BOARDS]
    rows = [
        (*(str(one[key]) for key in ("board", "memory", "channels", "used")),
         *(f"{one[key]:.1f}" for key in ("peak", "least", "needed")),
         f"{min(one['reduce'], one['gather']):.0%}")
        for one in found
    ]  # fmt: skip
    console(json_file).print(table(f"Memory at {line:g} Gb/s, in GB/s", COLUMNS, rows))
    write_json(json_file, found)
