"""``gradnic transport``: what a loss bound is worth, on the golden sender and receiver."""

import click
import numpy as np

from gradnic import output
from gradnic.models.transport.blt import Path, transfer
from gradnic.models.transport.reception import need_bytes
from gradnic.sim.report import svg

from .simulate import parse_bytes

_STYLE = (
    "<style>text{font:12px sans-serif;fill:#444}.axis{stroke:#999}"
    ".mean{fill:none;stroke:#1668b8;stroke-width:2}.worst{fill:none;stroke:#c0504d}"
    ".free{stroke:#444;stroke-dasharray:4 3}</style>"
)


@click.command()
@click.option("--bytes", "size", default="100MB", show_default=True, help="Tensor.")
@click.option("--loss", type=float, default=0.01, show_default=True, help="Share of frames lost.")
@click.option("--p", "bounds", default="0,0.005,0.01,0.015,0.02,0.025,0.03", show_default=True,
              help="Loss bounds, from 0 to below 1.")  # fmt: skip
@click.option("--round-trip", type=float, default=20.0, show_default=True, help="Microseconds.")
@click.option("--gbps", type=float, default=100.0, show_default=True, help="Line rate.")
@click.option("--payload", type=int, default=1408, show_default=True, help="Bytes per packet.")
@click.option("--probe", type=float, help="Microseconds between PROBEs; default: a round trip.")
@click.option("--jitter", type=float, default=0.0, show_default=True,
              help="Microseconds that a frame may be late, and overtaken.")  # fmt: skip
@click.option("--runs", type=int, default=3, show_default=True, help="Different losses.")
@click.option("--plot", metavar="FILE.svg", help="Picture of the curve over p.")
@output.json_option
def command(size, loss, bounds, round_trip, gbps, payload, probe, jitter, runs, plot, json_file):
    """Time until a tensor is complete under loss, over the share p that may be missing.

    One sender, one receiver, packet by packet; `over_loss_free` is against the same path without
    loss.

    \b
    Example:
      gradnic transport --bytes 100MB --loss 0.01 --plot tail.svg
      gradnic transport --bytes 1MB --loss 0.001 --p 0,0.02 --runs 20
    """
    n_bytes = parse_bytes(size)
    if runs < 1 or payload < 1:
        raise ValueError(f"runs and payload must be at least 1, not {runs} and {payload}")
    path = Path(gbps, 1000 * round_trip, loss, 1000 * jitter)
    rows = []
    console = output.console("-")
    with console.status("") as status:
        say = output.progress_to(console, status)
        for text in bounds.split(","):
            say(f"p = {text}")
            rows.append(_row(_share(text), n_bytes, path, payload, probe, runs))
    columns = list(rows[0])
    title = f"{size} at {gbps:g} Gb/s, {round_trip:g} us, {loss:g} lost"
    shown = output.table(title, [c.replace("_", " ") for c in columns],
                         [[row[c] for c in columns] for row in rows])  # fmt: skip
    output.console(json_file).print(shown)
    if plot:
        output.write_whole(plot, _picture(rows, title))
    output.write_json(json_file, {
        "bytes": n_bytes, "loss": loss, "round_trip_us": round_trip, "gbps": gbps,
        "payload": payload, "jitter_us": jitter, "runs": runs, "curve": rows,
    })  # fmt: skip


def _share(text):
    try:
        p = float(text)
    except ValueError:
        p = -1.0
    if not 0 <= p < 1:
        raise ValueError(f"p must be from 0 to below 1, not {text!r}")
    return p


def _row(p, n_bytes, path, payload, probe, runs):
    """One point of the curve: means over the runs, and the worst."""
    p_q16 = int(p * 65536)
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


def _picture(rows, title):
    """Mean and worst time over p, against the loss-free path."""
    width, height, left, top = 560, 300, 60, 40
    right, bottom = width - 20, height - 40
    values = [r["over_loss_free_worst"] for r in rows] + [r["over_loss_free"] for r in rows] + [1]
    low, high = min(values), max(values)
    low, high = low - 0.1 * (high - low + 0.01), high + 0.1 * (high - low + 0.01)
    p_most = max(max(r["p"] for r in rows), 1e-9)

    def x(p):
        return left + (right - left) * p / p_most

    def y(value):
        return bottom - (bottom - top) * (value - low) / (high - low)

    parts = [_STYLE, svg.text(left, 20, title), svg.line(left, bottom, right, bottom),
             svg.line(left, top, left, bottom), svg.line(left, y(1), right, y(1), cls="free"),
             svg.text(left + 6, y(1) - 4, "without loss")]  # fmt: skip
    for row in rows:
        parts.append(svg.text(x(row["p"]), bottom + 16, f"{100 * row['p']:g} %", anchor="middle"))
    for value in np.linspace(low, high, 5):
        parts.append(svg.text(left - 6, y(value) + 4, f"{value:.3f}", anchor="end"))
    for name, cls in (("over_loss_free", "mean"), ("over_loss_free_worst", "worst")):
        parts.append(svg.polyline([(x(r["p"]), y(r[name])) for r in rows], cls=cls))
    parts.append(svg.text((left + right) / 2, height - 6, "share p that may be missing",
                          anchor="middle"))  # fmt: skip
    return svg.drawing(width, height, parts, label=title)
