"""``gradnic transport``: what a loss bound is worth, on the golden sender and receiver."""

import math

import click
import numpy as np

from gradnic import cluster, output
from gradnic import quantities as q
from gradnic.models.transport.allowance_walk import need_bytes
from gradnic.models.transport.blt import Path, transfer
from gradnic.packages import require
from gradnic.quantities import option

PACKETS = 10_000_000  # of a tensor: a run of them takes minutes
PROBES = 100_000  # before an answer to the first can be there: as long


@click.command(cls=q.Command)
@option("--bytes size", q.Size(4, 1 << 40), "100MB", "Tensor.")
@option("--loss", q.Number(0, 0.9), 0.01, "Share of frames lost; above 0.9 it would not end.")
@option(
    "--p bounds",
    q.Listed(q.BELOW_ONE),
    "0,0.005,0.01,0.015,0.02,0.025,0.03",
    "Loss bounds, from 0 to below 1.",
)
@option("--round-trip", q.Number(0.001, 10_000_000, "microseconds"), 20.0, "Microseconds.")
@option("--gbps", q.Number(0.001, 100_000, "Gb/s"), 100.0, "Line rate.")
@option("--payload", q.Whole(1, 9000, "bytes"), 1408, "Bytes per packet.")
@option(
    "--probe",
    q.Number(0.001, 10_000_000, "microseconds"),
    help="Microseconds between PROBEs; default: a round trip.",
)
@option(
    "--jitter",
    q.Number(0, 10_000_000, "microseconds"),
    0.0,
    "Microseconds that a frame may be late, and overtaken.",
)
@option("--runs", q.Whole(1, 100_000), 3, "Different losses.")
@option(
    "--plot",
    output.OutputFile(*output.PICTURES),
    help="Picture of the curve over p: .png, .svg or .pdf.",
    metavar="FILE",
)
@cluster.options
@output.json_option
def command(size, loss, bounds, round_trip, gbps, payload, probe, jitter, runs, plot, json_file,
            **where):  # fmt: skip
    """Time until a tensor is complete under loss, over the share p that may be missing.

    One sender, one receiver, packet by packet; `over_loss_free` is against the same path without
    loss.

    \b
    Example:
      gradnic transport --bytes 100MB --loss 0.01 --plot tail.svg
      gradnic transport --bytes 1MB --loss 0.001 --p 0,0.02 --runs 20
      gradnic transport --runs 50 --workers 2 --resume build/transport.jsonl
    """
    if plot:
        require("--plot", report=("matplotlib",))
    if (n_packets := -(-size // payload)) > PACKETS:
        raise ValueError(
            f"packets must be at most {PACKETS:,}, bytes by payload, not {n_packets:,}"
        )
    if (n_probes := (round_trip + jitter) / (probe or round_trip)) > PROBES:
        raise ValueError(
            f"PROBEs on the way must be at most {PROBES:,}, round trip and jitter by the time "
            f"between them, not {math.ceil(n_probes):,}"
        )
    same = {"n_bytes": size, "gbps": gbps, "round_trip": round_trip, "loss": loss,
            "jitter": jitter, "payload": payload, "probe": probe, "runs": runs}  # fmt: skip
    work = [{"p": p, **same} for p in bounds]
    rows = cluster.spread(point, work, cluster.of_options(**where), name="loss bounds")
    columns = list(rows[0])
    title = f"{size:,} bytes at {gbps:g} Gb/s, {round_trip:g} us, {loss:g} lost"
    shown = output.table(title, [c.replace("_", " ") for c in columns],
                         [[row[c] for c in columns] for row in rows])  # fmt: skip
    output.console(json_file).print(shown)
    if plot:
        output.write_picture(plot, drawn(rows, title))
    output.write_json(json_file, {
        "bytes": size, "loss": loss, "round_trip_us": round_trip, "gbps": gbps,
        "payload": payload, "probe_us": probe or round_trip, "jitter_us": jitter, "runs": runs,
        "curve": rows,
    })  # fmt: skip


def point(p, n_bytes, gbps, round_trip, loss, jitter, payload, probe, runs):
    """One point of the curve: means over the runs, and the worst. Times in microseconds."""
    path, p_q16 = Path(gbps, 1000 * round_trip, loss, 1000 * jitter), int(p * 65536)
    done = [
        transfer(n_bytes, path, p_q16=p_q16, payload=payload, seed=seed,
                 t_probe=None if probe is None else 1000 * probe)
        for seed in range(runs)
    ]  # fmt: skip
    over = np.array([d.complete / d.loss_free for d in done])
    return {
        "p": p,
        "need_bytes": need_bytes(n_bytes, p_q16),
        "milliseconds": float(np.mean([d.complete for d in done])) / 1e6,
        "over_loss_free": float(over.mean()),
        "over_loss_free_worst": float(over.max()),
        "sent_again": float(np.mean([d.n_again for d in done])),
        "probes": float(np.mean([d.n_probes for d in done])),
        "missing_worst": max(d.missing for d in done),
    }


def drawn(rows, title):
    """A matplotlib Figure: mean and worst time over p, against the path without loss."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(7, 4), layout="constrained")
    axes = figure.add_subplot()
    p = [100 * row["p"] for row in rows]
    axes.plot(p, [row["over_loss_free_worst"] for row in rows], ".-", label="worst of the runs")
    axes.plot(p, [row["over_loss_free"] for row in rows], ".-", label="mean of the runs")
    axes.axhline(1, color="0.4", linestyle="--", label="without loss")
    axes.set(title=title, xlabel="share p that may be missing, %")
    axes.set_ylabel("time until complete, multiples of that without loss")
    axes.legend()
    return figure
