"""``gradnic accuracy``: error of THC and of the schemes beside it."""

import click

from gradnic import cluster
from gradnic import quantities as q
from gradnic.output import console, json_option, table, write_json
from gradnic.paths import OutputFile
from gradnic.quantities import option


@click.command(cls=q.Command, name="accuracy")
@option("--distribution", q.OneOf("lognormal", "gaussian", "laplace"), "lognormal")
@option("--workers", q.Listed(q.Whole(1, 64)), "1,4", "Numbers of workers, by commas.")
@option("--values", q.Power(12, 26), 1 << 17, "Length, a power of two from 4,096 on.")
@option("--trials", q.Whole(1, 10_000), 3)
@option("--seed", q.SEED, 0)
@click.option(
    "--scheduler",
    metavar="ADDRESS",
    help="A Dask scheduler, tcp://host:8786, whose workers do a scheme each.",
)
@option("--processes", q.Whole(0, 1024), 0, "Local Dask processes; 0: all in this one.")
@cluster.parquet_option
@option(
    "--resume",
    OutputFile(".jsonl"),
    help="Keep each scheme's row here; what is there already is not run again.",
    metavar="FILE.jsonl",
)
@json_option
def command(distribution, workers, values, trials, seed, json_file, scheduler, processes, **files):
    """Normalized mean squared error of gradient compressors, side by side.

    Squared error of the mean gradient over the mean squared norm of one, so that an unbiased
    scheme's falls with the workers; mean and deviation of a trial. With feedback: error of eight
    rounds together, for schemes whose workers keep what they lost. Values of lognormal are all
    positive: signs say nothing of them. INCEPTIONN's bound is absolute: gradients have an rms of
    0.003.

    \b
    Example:
      gradnic accuracy --distribution lognormal --workers 1,4,8,16
    """
    from gradnic.sim.thc.accuracy import scheme_row, schemes

    out = console(json_file)
    same = {"distribution": distribution, "workers": list(workers), "n_values": values,
            "n_trials": trials, "seed": seed}  # fmt: skip
    work = [{"scheme": name, **same} for name, *_ in schemes()]
    where = cluster.of_options(scheduler, processes, **files, workers_option="--processes")
    rows = cluster.spread(scheme_row, work, where, name="schemes")
    for row in rows:  # JSON's keys are text
        for figure in "nmse", "deviation", "feedback", "feedback_deviation":
            row[figure] = row[figure] and {int(n): value for n, value in row[figure].items()}
    title = f"NMSE of the mean, {distribution}, {values} values, {trials} trials"
    columns = ["scheme", "bits up", *(f"n = {n}" for n in workers),
               *(f"feedback, n = {n}" for n in workers)]  # fmt: skip
    lines = [
        [
            row["scheme"], row["bits"],
            *(f"{row['nmse'][n]:.3g} +- {row['deviation'][n]:.1g}" for n in workers),
            *(f"{row['feedback'][n]:.3g} +- {row['feedback_deviation'][n]:.1g}"
              if row["feedback"] else "" for n in workers),
        ]
        for row in rows
    ]  # fmt: skip
    out.print(table(title, columns, lines))
    write_json(json_file, {"distribution": distribution, "values": values, "trials": trials,
                           "seed": seed, "rows": rows})  # fmt: skip
