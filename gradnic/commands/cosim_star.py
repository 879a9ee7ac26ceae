"""``gradnic cosim star``: workers and aggregator of RTL, against the golden cluster."""

import click

from gradnic import quantities as q
from gradnic.output import console, json_option, table, write_json
from gradnic.packages import SIMULATION, needs
from gradnic.progress import Progress
from gradnic.quantities import option
from gradnic.text_file import whole

from .cosim_parts import (
    Machine,
    fault_options,
    gradients_of,
    show_verdict,
    source_options,
)


def deaths(texts, n_workers):
    """((worker, time), ...) of "WORKER:TIME" texts."""
    pairs = []
    for text in texts:
        worker, colon, time = text.partition(":")
        try:
            worker, time = whole(worker), whole(time)
            if not colon or min(worker, time) < 0:
                raise ValueError
        except ValueError:
            raise ValueError(f"death must be WORKER:TIME, not {text!r}") from None
        if worker >= n_workers:
            raise ValueError(f"death must be of worker 0 to {n_workers - 1}, not {worker}")
        pairs.append((worker, time))
    if found := q.repeated([worker for worker, _ in pairs]):
        raise ValueError(f"--death names worker {found[0]} twice")
    return tuple(pairs)


@click.command(cls=Machine, name="star")
@option("--workers n_workers", q.Whole(1, 32), 4, "Workers, 1..32.")
@option("--codec", q.OneOf("thc", "int32", "switchml"), "thc")
@option("--lanes", q.LANES, 4, "Floats a cycle.")
@option("--block", q.BLOCK, 1024, "THC's B.")
@fault_options
@click.option("--death", multiple=True, metavar="WORKER:TIME",
              help="Silent from then on; wants --deadline; may repeat.")  # fmt: skip
@click.option("--deadline", type=q.Whole(0, 2**32 - 1, "cycles"), default=0,
              help="Time that closes a slot; 0: waits for all.")  # fmt: skip
@source_options
@json_option
@needs(**SIMULATION)
def command(
    n_workers, codec, lanes, block, loss, duplicate, delay, reorder, seed, death, deadline,
    iteration, elements, files, json_file,
):  # fmt: skip
    """Sum gradients in the network: workers of RTL around an aggregator of RTL.

    Every frame, answer and result is compared. Exit status 1 if anything differs.

    \b
    Example:
      gradnic cosim star --workers 4 --codec thc --loss 0.01 --reorder 64 --json -
      gradnic cosim star --codec int32 --death 1:5000 --deadline 3000
    """
    from gradnic.models.aggregation.star import Faults
    from gradnic.sim.aggregation import star_run

    q.only_with(codec == "thc", "--codec thc", "block", "lanes")
    q.only_with(codec != "switchml", "--codec thc or int32", "death")
    faults = Faults(loss, duplicate, delay, reorder, deaths(death, n_workers))
    if death and not deadline:
        raise ValueError("--death wants --deadline above 0, or its slots never close")
    screen = console(json_file)
    config = star_run.star_config(n_workers, codec, B=block, deadline=deadline)
    with Progress() as progress:
        gradients, source = gradients_of(n_workers, files, iteration, elements, progress)
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
        ("workers with a result", result.done),
        ("cycles of the aggregator", result.cycles),
        ("mismatches", result.mismatches),
    ]  # fmt: skip
    screen.print(table(f"star all-reduce, codec {codec}", ("", ""), rows))
    show_verdict(screen, result.ok, result.first)
    own = {"block": block} if codec == "thc" else {}
    own |= {"deadline": deadline} if deadline else {}
    own |= {"death": [list(pair) for pair in faults.death]} if faults.death else {}
    faulty = {name: getattr(faults, name) for name in ("loss", "duplicate", "delay", "reorder")}
    write_json(
        json_file,
        result.summary()
        | {"machine": "star", "codec": codec, "lanes": lanes, "seed": seed}
        | {"floats": int(gradients.shape[1]), "gradients": source}
        | faulty
        | own,
    )
    if not result.ok:
        raise SystemExit(1)
