"""``gradnic cosim --aggregator``: workers and aggregator of RTL, against the golden cluster."""

from rich.progress import Progress

from gradnic.output import console, table, write_json


def check(n_workers, codec, lanes):
    """ValueError for what the star does not take."""
    from gradnic.sim.aggregation import star_run

    if not 1 <= n_workers <= 32:
        raise ValueError(f"workers must be 1 to 32, not {n_workers}")
    if codec not in star_run.CODECS:
        raise ValueError(f"codec must be {', '.join(star_run.CODECS)}, not {codec!r}")
    if lanes not in (4, 8, 16, 32):
        raise ValueError(f"lanes must be 4, 8, 16 or 32, not {lanes}")


def deaths(texts):
    """((worker, time), ...) of "WORKER:TIME" texts."""
    pairs = []
    for text in texts:
        worker, colon, time = text.partition(":")
        if not (colon and worker.isdigit() and time.isdigit()):
            raise ValueError(f"death must be WORKER:TIME, not {text!r}")
        pairs.append((int(worker), int(time)))
    return tuple(pairs)


def run(make, *, n_workers, codec, lanes, block, elements, deadline, faults, seed, json_file):
    """Sum the gradients that `make(n_workers)` gives, float32 (n, n_values), and show the result.

    The other arguments are the command's options.

    Exit status 1 if anything differs.
    """
    from gradnic.sim.aggregation import star_run

    screen = console(json_file)
    config = star_run.star_config(n_workers, codec, B=block, deadline=deadline)
    with Progress(console=console("-"), transient=True) as progress:
        progress.add_task("training", total=None)
        gradients = make(n_workers)[:, :elements]
        progress.add_task(f"building the aggregator, {n_workers} ports", total=None)
        libraries = star_run.build(config, codec, lanes=lanes)
        progress.add_task("all-reduce", total=None)
        result = star_run.cosim(gradients, config, libraries, faults, codec=codec, seed=seed)
    counters = result.counters
    rows = [
        ("workers", n_workers),
        ("floats of each", gradients.shape[1]),
        ("loss, copies", f"{100 * faults.loss:g} %, {100 * faults.duplicate:g} %"),
        ("frames at the aggregator", result.frames),
        ("contributions added", counters["accepted"]),
        ("duplicates, late, stale", f"{counters['duplicates']}, {counters['late']}, "
                                    f"{counters['stale']}"),
        ("results sent, sent again", f"{result.answers}, {counters['retransmitted']}"),
        ("slots closed in part", counters["partial"]),
        ("cycles of the aggregator", result.cycles),
        ("mismatches", result.mismatches),
    ]  # fmt: skip
    screen.print(table(f"star all-reduce, codec {codec}", ("", ""), rows))
    if result.first:
        screen.print(f"first mismatch: {result.first}")
    screen.print("RTL and golden cluster agree" if result.ok else "RTL and golden cluster DIFFER")
    faulty = {name: getattr(faults, name) for name in ("loss", "duplicate", "delay", "reorder")}
    write_json(
        json_file,
        result.summary()
        | {"codec": codec, "lanes": lanes, "floats": int(gradients.shape[1]), "seed": seed}
        | faulty,
    )
    if not result.ok:
        raise SystemExit(1)
