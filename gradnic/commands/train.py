"""``gradnic train``: what a codec costs in accuracy, before anyone builds hardware."""

import click

from gradnic import quantities as q
from gradnic.output import console, json_option, table, write_json
from gradnic.packages import DATA, needs
from gradnic.progress import Progress
from gradnic.quantities import option

COLUMNS = ("codec", "epoch", "loss", "accuracy", "NMSE", "wire ratio", "skipped")


@click.command(cls=q.Command, name="train")
@option(
    "--codec codecs",
    q.OneOf(
        "none",
        "inceptionn",
        "thc",
        "bf16",
        "fp16",
        "truncated",
        "powersgd",
        "prioritized",
        "thc-partial",
    ),
    help="Repeat it to compare. Default: none, inceptionn and thc.",
    multiple=True,
    callback=q.once,
)
@option("--epochs", q.Whole(1, 10_000), 5)
@option("--workers", q.Whole(2, 4000), 4)
@option("--batch", q.Whole(1, 4000, "images"), 25, "Images a worker sees an iteration.")
@option("--loss", q.OneOf("sum", "mean"), "sum", "sum or mean over a worker's batch.")
@option("--rate", q.Number(0, 1000, above=True), 0.05, "Learning rate; momentum is 0.9.")
@option("--exponent", q.EXPONENT, 117, "inceptionn: 113..126.")
@option("--mode", q.MODE, "strict", "inceptionn: strict or paper.")
@option("--prescale", q.PRESCALE, 0, "inceptionn: -128..127.")
@option("--bits", q.Whole(1, 8), 4, "thc: bits of an index, 1..8.")
@option("-g granularity", q.Whole(1, 255), 30, "thc: units of the table.")
@click.option(
    "-p",
    "clipped",
    type=q.Number(0, 1, above=True, below=True),
    default=1 / 32,
    help="thc: share that is clipped; default 1/32.",
)
@option("--norm", q.OneOf("block", "tensor"), "block", "thc: block or tensor.")
@click.option("--feedback/--no-feedback", default=True, show_default=True, help="thc: of errors.")
@option("--cut", q.Whole(1, 24, "bits"), 16, "truncated: low bits of a float that go.")
@option("--rank", q.Whole(1, 128), 4, "powersgd: of a product.")
@option(
    "--drop",
    q.BELOW_ONE,
    0.0,
    "Share of packets lost, 0 up to 1; not powersgd, thc-partial.",
)
@click.option("--rescale", is_flag=True, help="Sums of what arrived are scaled up to all workers.")
@option("--seed", q.SEED, 0)
@json_option
@needs(**DATA)
def command(codecs, epochs, workers, batch, loss, rate, seed, json_file, **chosen):
    """Train a 784-256-128-10 network on MNIST images with golden codecs between its workers.

    Data-parallel SGD; all codecs start from the same weights and see the same batches. INCEPTIONN
    runs as a ring that codes every hop, THC through an aggregator with error feedback in the
    host's memory. Lost packets count as zero.

    \b
    Example:
      gradnic train --epochs 5
      gradnic train --codec thc --bits 2 -g 20 --no-feedback --epochs 3
      gradnic train --codec none --drop 0.02 --json -
    """
    from gradnic.sim.training import run as train

    for names, own in OWN.items():
        used = any(codec in names for codec in codecs or ALL)
        q.only_with(used, f"--codec {q.joined(names)}", *own)
    misses = chosen["drop"] or "thc-partial" in codecs
    q.only_with(misses, "what is lost: --drop above 0, or --codec thc-partial", "rescale")
    options = {codec: settings(codec, seed, **chosen) for codec in codecs or ALL}
    for codec, own in options.items():
        train.check(codec, workers, batch, own)
    screen = console(json_file)
    results = {}
    with Progress() as progress:
        for codec, own in options.items():
            total = train.iterations(epochs, workers, batch)
            task = progress.add_task(f"{codec}, iterations", total=total)
            results[codec] = train.run(
                codec,
                epochs=epochs,
                n_workers=workers,
                batch=batch,
                loss=loss,
                rate=rate,
                seed=seed,
                options=own,
                on_iteration=lambda i, task=task: progress.update(task, completed=i),
            )
    lines = [
        (codec, row.epoch, row.loss, row.accuracy, row.nmse, row.wire_ratio, row.skipped)
        for codec, rows in results.items()
        for row in rows
    ]
    screen.print(table(f"{workers} workers, {batch} images each", COLUMNS, lines))
    write_json(
        json_file,
        {
            "workers": workers,
            "batch": batch,
            "loss": loss,
            "rate": rate,
            "seed": seed,
            "runs": [
                {"codec": codec, "options": options[codec], "epochs": train.as_json(rows)}
                for codec, rows in results.items()
            ],
        },
    )


ALL = ("none", "inceptionn", "thc")
OWN = {  # options, by the codecs that they are for
    ("inceptionn",): ("exponent", "mode", "prescale"),
    ("thc", "thc-partial"): ("bits", "granularity", "clipped", "norm", "feedback"),
    ("truncated",): ("cut",),
    ("powersgd",): ("rank",),
    ("none", "bf16", "fp16", "inceptionn", "truncated", "thc", "prioritized", "thc-partial"): (
        "rescale",
    ),
}


def settings(codec, seed, *, exponent, mode, prescale, bits, granularity, clipped, norm, feedback,
             cut, rank, drop, rescale):  # fmt: skip
    """Options of the codec's exchange, out of those of the command line."""
    if drop and codec in ("powersgd", "thc-partial"):
        raise click.UsageError(
            f"--drop goes with all but powersgd and thc-partial, and {codec} is among the "
            "codecs: it has no packets that may miss. Name them: --codec none --codec thc"
        )
    if codec == "prioritized" and drop > 0.5:
        raise click.UsageError(
            f"--drop must be 0 to 0.5 with prioritized, "
            f"which loses smaller values alone, not {drop}"
        )
    if codec == "powersgd":
        return {"rank": rank, "seed": seed}
    own = {"rescale": rescale, "seed": seed}
    if codec != "thc-partial":
        own["loss"] = drop
    if drop and codec in ("inceptionn", "truncated"):
        own["random"] = True  # a share of a hop's few packets, rounded down, may be none
    if codec == "truncated":
        own["bits"] = cut
    if codec == "inceptionn":
        own |= {"exponent": exponent, "mode": mode, "prescale": prescale}
    if codec in ("thc", "thc-partial"):
        own |= {"b": bits, "g": granularity, "p": clipped, "norm": norm, "feedback": feedback}
    return own
