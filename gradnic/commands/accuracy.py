"""``gradnic accuracy``: error of THC and of the schemes beside it."""

import click

from gradnic import quantities as q
from gradnic.output import console, json_option, table, write_json
from gradnic.progress import Progress


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
@json_option
def command(distribution, workers, values, trials, seed, json_file):
    """Normalized mean squared error of gradient compressors, side by side.

    Mean and deviation of a trial; with feedback: error of eight rounds together, for schemes whose
    workers keep what they lost. INCEPTIONN's bound is absolute: gradients have an rms of 0.003.

    \b
    Example:
      gradnic accuracy --distribution lognormal --workers 1,4,8,16
    """
    from gradnic.sim.thc.accuracy import compare, schemes

    out = console(json_file)
    with Progress() as progress:
        task = progress.add_task("schemes", total=len(schemes()))
        rows = compare(
            distribution,
            workers,
            n_values=values,
            n_trials=trials,
            seed=seed,
            on_scheme=lambda: progress.advance(task),
        )
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
