"""``gradnic accuracy``: error of THC and of the schemes beside it."""

import click

from gradnic.output import console, json_option, table, write_json
from gradnic.progress import Progress


@click.command(name="accuracy")
@click.option("--distribution", default="lognormal", show_default=True)
@click.option("--workers", default="1,4", show_default=True, help="Numbers of workers, by commas.")
@click.option("--values", default=1 << 17, show_default=True, help="Length, a power of two.")
@click.option("--trials", default=3, show_default=True, type=click.IntRange(min=1))
@click.option("--seed", default=0, show_default=True, type=click.IntRange(min=0))
@json_option
def command(distribution, workers, values, trials, seed, json_file):
    """Normalized mean squared error of gradient compressors, side by side.

    \b
    Example:
      gradnic accuracy --distribution lognormal --workers 1,4,8,16
    """
    from gradnic.sim.thc.accuracy import compare, schemes

    try:
        counts = [int(word) for word in workers.split(",")]
    except ValueError:
        raise ValueError(f"workers must be numbers joined by commas, not {workers!r}") from None
    if min(counts) < 1 or max(counts) > 64:
        raise ValueError(f"workers must be 1 to 64, not {workers}")
    if values < 4096 or values & (values - 1):
        raise ValueError(f"values must be a power of two of at least 4096, not {values}")
    out = console(json_file)
    with Progress() as progress:
        task = progress.add_task("schemes", total=len(schemes()))
        rows = compare(
            distribution,
            counts,
            n_values=values,
            n_trials=trials,
            seed=seed,
            on_scheme=lambda: progress.advance(task),
        )
    title = f"NMSE of the mean, {distribution}, {values} values, {trials} trials"
    columns = ["scheme", "bits up", *(f"n = {n}" for n in counts)]
    lines = [[row["scheme"], row["bits"], *row["nmse"].values()] for row in rows]
    out.print(table(title, columns, lines))
    write_json(json_file, {"distribution": distribution, "values": values, "rows": rows})
