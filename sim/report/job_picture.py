"""Jobs over time: whose packets a line carries, and when each job was posted and ended."""

import numpy as np

from gradnic.interface.formats import GRADNIC, Op

BINS = 240


def drawn(outcome, posted, *, link_bytes, title):
    """A matplotlib Figure of a run's jobs.

    Above: share of the lines that packets with payload of each class take, in bins of time, all
    ports together. Below: a bar a job, from post to end, dark where its packets left.
    """
    from matplotlib.figure import Figure

    layers = {one.job.tensor: one.job.layer for one in posted}
    rows = {one.job.tensor: k for k, one in enumerate(posted)}
    packets = [
        (at, GRADNIC.tensor.get(frame), (node, port), len(frame) + 24)
        for at, node, port, frame in outcome.sent
        if GRADNIC.op.get(frame) != Op.CONTROL
    ]
    end = max([1, *(at for at, *_ in packets), *(j["done"] or 0 for j in outcome.jobs)])
    n_ports = max(1, len({where for _, _, where, _ in packets}))
    edges = np.linspace(0, end, BINS + 1)
    figure = Figure(figsize=(12, 3 + min(8, 0.12 * len(posted) + 1)), layout="constrained")
    ratios = (2, 3) if len(posted) > 8 else (2, 2)
    above, below = figure.subplots(2, 1, sharex=True, height_ratios=ratios)
    colors = [f"C{k}" for k in range(8)]
    shown, heights = [], []
    for layer in sorted(set(layers.values())):
        mine = [(at, n) for at, tensor, _, n in packets if layers.get(tensor) == layer]
        weights = [n for _, n in mine]
        total, _ = np.histogram([at for at, _ in mine], edges, weights=weights)
        heights.append(total / (link_bytes * np.diff(edges) * n_ports))
        shown.append(layer)
    if heights:
        above.stackplot(
            edges[:-1], heights, step="post", colors=[colors[k] for k in shown],
            labels=[f"class {k}" for k in shown],
        )  # fmt: skip
        above.legend(loc="upper right", fontsize="small")
    above.set(ylabel="share of the lines", ylim=(0, 1.05), title=title)
    for k, job in enumerate(outcome.jobs):
        if job["done"] is not None:
            span = (job["posted"], job["done"] - job["posted"])
            below.broken_barh([span], (k - 0.4, 0.8), color=colors[job["class"]], alpha=0.25)
    for layer in shown:
        mine = [(at, rows[t]) for at, t, _, _ in packets if layers.get(t) == layer]
        below.scatter(
            [at for at, _ in mine], [row for _, row in mine], s=2, marker="|", color=colors[layer]
        )
    below.set(xlabel="cycles", ylabel="job", ylim=(len(posted) - 0.5, -0.5))
    return figure
