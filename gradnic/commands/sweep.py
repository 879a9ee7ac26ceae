"""``gradnic sweep``: all 2^32 floats through the RTL value path."""

import sys

import click

from gradnic import quantities as q
from gradnic.output import console, json_option, table, write_json
from gradnic.packages import SIMULATION, needs
from gradnic.progress import Progress
from gradnic.quantities import option


@click.command(cls=q.Command, name="sweep")
@click.option("--mode", type=q.OneOf("strict", "paper", "all"), default="all")
@option(
    "--exponent",
    q.EXPONENT,
    help="May repeat; default 117 119 121.",
    multiple=True,
    callback=q.once,
)
@option("--prescale", q.PRESCALE, 0)
@click.option("--rounding", type=q.ROUNDING, default="trunc")
@option("--stride", q.Whole(1, 2**32), 1, "1: every float.")
@option("--jobs", q.JOBS, help="Threads; default one a core.")
@option(
    "--adder",
    q.Whole(1, 10**13, "pairs"),
    help="The FP32 adder instead: 7.6 million corner pairs and so many random ones.",
    metavar="PAIRS",
)
@json_option
@needs(**SIMULATION)
def command(mode, exponent, prescale, rounding, stride, jobs, adder, json_file):
    """Code and decode every float in RTL; compare tags and values with the model and the bound.

    The lanes of compressor and decompressor are simulated as gates, 256 floats at a time. The exit
    status is 1 if a float differs or leaves the bound.

    \b
    Example:
      gradnic sweep --mode strict --exponent 117
      gradnic sweep --stride 65537 --json -
      gradnic sweep --adder 1000000000
    """
    if adder:
        other_options = "the sweep of floats, not for --adder"
        q.only_with(False, other_options, "mode", "exponent", "prescale", "rounding", "stride")
        _sweep_adder(adder, jobs, json_file)
        return
    from gradnic.sim.inceptionn import sweep

    modes = sweep.MODES if mode == "all" else (mode,)
    if rounding == "nearest":
        modes = [name for name in modes if name == "strict"]
        if not modes:
            raise ValueError("rounding must be trunc in paper mode, not nearest")
    results = []
    with Progress() as progress:
        for name in modes:
            for bound in exponent or sweep.EXPONENTS:
                task = progress.add_task(f"{name} 2^{bound - 127}", total=None)
                results.append(
                    sweep.sweep(
                        mode=name,
                        exponent=bound,
                        prescale=prescale,
                        rounding=rounding,
                        stride=stride,
                        jobs=jobs,
                        progress=lambda done, total, task=task: progress.update(
                            task, completed=done, total=total
                        ),
                    )
                )
    write_json(json_file, results)
    keys = ("mode", "exponent", "floats", "mismatches", "max_abs_error", "bound", "seconds")
    columns = ("mode", "E", "floats", "differ", "worst error", "bound", "s")
    rows = [[result[key] for key in keys] for result in results]
    title = f"floats through the RTL value path, pre-scale {prescale}"
    console(json_file).print(table(title, columns, rows))
    if not all(result["ok"] for result in results):
        sys.exit(1)


def _sweep_adder(n_random, jobs, json_file):
    from gradnic.sim.reduction import adder_check

    with Progress() as progress:
        tasks = {
            "corner": progress.add_task("corner pairs", total=None),
            "random": progress.add_task("random pairs", total=n_random),
        }
        result = adder_check.campaign(
            n_random,
            jobs=jobs,
            progress=lambda name, done: progress.update(tasks[name], completed=done),
        )
    write_json(json_file, result)
    console(json_file).print(table("FP32 adder against numpy", ("", ""), result.items()))
    if not result["ok"]:
        sys.exit(1)
