"""``gradnic accuracy``: error of THC and of the schemes beside it."""

import click

from gradnic import cluster
from gradnic import quantities as q
from gradnic.output import console, json_option, table, write_json
from gradnic.paths import OutputFile


@click.command(name="accuracy")
@click.option(
    "--distribution",
    type=q.OneOf("lognormal", "gaussian", "laplace"),
    default="lognormal",
    show_default=True,
)
@click.option(
    "--workers",
    type=q.Listed(q.Whole(1, 64)),
    default="1,4",
    show_default=True,
    help="Numbers of workers, by commas.",
)
@click.option(
    "--values",
    type=q.Power(12, 26),
    default=1 << 17,
    show_default=True,
    help="Length, a power of two.",
)
@click.option("--trials", default=3, show_default=True, type=q.Whole(1, 10_000))
@click.option("--seed", default=0, show_default=True, type=q.SEED)
@click.option(
    "--scheduler",
    metavar="ADDRESS",
    help="A Dask scheduler, tcp://host:8786, whose workers do a scheme each.",
)
@click.option(
    "--processes",
    type=q.Whole(0, 1024),
    default=0,
    show_default=True,
    help="Local Dask processes; 0: all in this one.",
)
@click.option(
    "--resume",
    type=OutputFile(".jsonl"),
    metavar="FILE.jsonl",
    help="Keep each scheme's row here; what is there already is not run again.",
)
@json_option
def command(distribution, workers, values, trials, seed, json_file, scheduler, processes, resume):
    """Normalized mean squared error of gradient compressors, side by side.

    Mean and deviation of a trial; with feedback: error of eight rounds together, for schemes whose
    workers keep what they lost. INCEPTIONN's bound is absolute: gradients have an rms of 0.003.

    \b
    Example:
      gradnic accuracy --distribution lognormal --workers 1,4,8,16
    """
    from gradnic.sim.thc.accuracy import scheme_row, schemes

    out = console(json_file)
    same = {"distribution": distribution, "workers": list(workers), "n_values": values,
            "n_trials": trials, "seed": seed}  # fmt: skip
    work = [{"scheme": name, **same} for name, *_ in schemes()]
    where = cluster.of_options(scheduler, processes, resume, workers_option="--processes")
    rows = cluster.spread(scheme_row, work, where, name="schemes")
    for row in rows:  # JSON's keys are text
        for figure in "nmse", "deviation", "feedback":
            row[figure] = row[figure] and {int(n): value for n, value in row[figure].items()}
    title = f"NMSE of the mean, {distribution}, {values} values, {trials} trials"
    columns = ["scheme", "bits up", *(f"n = {n}" for n in workers),
               *(f"feedback, n = {n}" for n in workers)]  # fmt: skip
    lines = [
        [
            row["scheme"], row["bits"],
            *(f"{row['nmse'][n]:.3g} +- {row['deviation'][n]:.1g}" for n in workers),
            *(f"{row['feedback'][n]:.3g}" if row["feedback"] else "" for n in workers),
        ]
        for row in rows
    ]  # fmt: skip
    out.print(table(title, columns, lines))
    write_json(json_file, {"distribution": distribution, "values": values, "rows": rows})
