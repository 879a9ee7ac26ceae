"""Training with a codec in the loop: what the workers see is what the hardware would give them."""

from dataclasses import asdict, dataclass

import numpy as np

from . import codecs as train_codecs
from . import network as training


@dataclass(frozen=True)
class Epoch:
    """One line of a training run.

    Attributes
    ----------
    epoch : int, 1 is the first.
    loss : float, mean cross-entropy of the images trained on.
    accuracy : float, share of the 1,000 test images labelled right.
    nmse : float, squared error of the workers' mean over the mean squared norm of a gradient, mean
        over the iterations of the epoch whose sum is finite, NaN where none is; THC's error
        feedback makes it larger than the codec's own.
    wire_ratio : float, bytes on all links with FP32 over those with the codec, so far.
    skipped : int, iterations of the epoch whose update was not finite: weights and momentum stayed.
    """

    epoch: int
    loss: float
    accuracy: float
    nmse: float
    wire_ratio: float
    skipped: int


def check(codec, n_workers, batch, options):
    """ValueError for what `run` would refuse, at once."""
    if n_workers * batch > training.N_TRAIN:
        raise ValueError(
            f"workers * batch must be at most {training.N_TRAIN}, not {n_workers} * {batch}"
        )
    train_codecs.make(codec, n_workers, options)


def iterations(epochs, n_workers, batch, task=training.PERCEPTRON):
    """How many iterations `run` takes: what is left of an epoch's samples is not used."""
    return epochs * max(1, task.n_train // (n_workers * batch) if n_workers * batch else 0)


def run(
    codec,
    *,
    epochs=5,
    n_workers=4,
    batch=25,
    loss="sum",
    rate=0.05,
    seed=0,
    options=None,
    on_iteration=None,
    on_epoch=None,
    task=training.PERCEPTRON,
):
    """Train the network of `gradnic.sim.training.network` with `codec` between its workers.

    codec : of `codecs.CODECS`; options : of its class there or in `gradnic.sim.training.baselines`.
    loss : "sum" or "mean" over a worker's batch, the scale of its gradients. on_iteration(i) and
    on_epoch(`Epoch`) are called after each. Weights and batches are
    the same for all codecs. task : another network and its samples.

    Returns [`Epoch`]. ValueError for an unknown codec, or options out of range.
    """
    if epochs < 1:
        raise ValueError(f"epochs must be at least 1, not {epochs!r}")
    exchange = train_codecs.make(codec, n_workers, options or {})
    n_train = task.n_train
    test = tuple(rows[n_train:] for rows in task.data())
    rows, errors = [], []

    def watched(gradients):
        total = exchange(gradients)
        with np.errstate(over="ignore", invalid="ignore", divide="ignore"):
            error = total / n_workers - gradients.mean(axis=0)
            size = np.square(gradients, dtype=np.float64).sum(axis=1).mean()
            share = float(np.square(error, dtype=np.float64).sum() / size)
        if np.isfinite(share):
            errors.append(share)
        return total

    def finished(network, mean_loss):
        row = Epoch(
            epoch=len(rows) + 1,
            loss=mean_loss,
            accuracy=network.accuracy(*test),
            nmse=float(np.mean(errors)) if errors else float("nan"),
            wire_ratio=exchange.raw_bytes / exchange.wire_bytes,
            skipped=network.skipped - sum(row.skipped for row in rows),
        )
        errors.clear()
        rows.append(row)
        if on_epoch:
            on_epoch(row)

    training.train(
        [iterations(epochs, n_workers, batch, task)],
        n_workers=n_workers,
        batch=batch,
        loss=loss,
        rate=rate,
        seed=seed,
        exchange=watched,
        on_iteration=on_iteration and (lambda i, _: on_iteration(i)),
        on_epoch=finished,
        task=task,
    )
    return rows


def as_json(rows):
    """Epochs as plain dictionaries; what is not finite as None, which JSON has."""
    return [
        {name: value if np.isfinite(value) else None for name, value in asdict(row).items()}
        for row in rows
    ]
