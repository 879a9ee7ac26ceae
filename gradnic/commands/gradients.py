"""``gradnic gradients``: real gradients of a small network, as .npy files."""

from pathlib import Path

import click
import numpy as np

from gradnic import quantities as q
from gradnic.arrays import save_floats
from gradnic.output import console, json_option, table, write_json
from gradnic.packages import DATA, needs
from gradnic.paths import OutputFolder
from gradnic.progress import Progress


@click.command(name="gradients")
@click.option(
    "--out",
    "folder",
    type=OutputFolder(),
    default="build/gradients",
    show_default=True,
    help="Folder for the files.",
)
@click.option(
    "--iterations",
    type=q.Listed(q.ITERATION),
    default="1,200",
    show_default=True,
    help="Iterations to keep, the first is 1.",
)
@click.option("--workers", type=q.Whole(1, 4000), default=4, show_default=True, help="Workers.")
@click.option(
    "--batch",
    type=q.Whole(1, 4000, "images"),
    default=25,
    show_default=True,
    help="Images a worker sees an iteration.",
)
@click.option(
    "--loss",
    type=q.OneOf("sum", "mean"),
    default="sum",
    show_default=True,
    help="sum or mean over the batch: the scale of the gradients.",
)
@click.option("--seed", type=q.SEED, default=0, show_default=True, help="Of weights and batches.")
@json_option
@needs(**DATA)
def command(folder, iterations, workers, batch, loss, seed, json_file):
    """Train a 784-256-128-10 network on MNIST images and keep its gradients.

    Data-parallel SGD: all workers see the same weights and batches of their own. Each file
    LOSS_ITERATION_wWORKER.npy holds 235,146 float32 values, layer by layer, weights before biases.

    \b
    Example:
      gradnic gradients --iterations 1,40,200 --workers 4 --out build/gradients
    """
    from gradnic.sim.training import network as training

    with Progress() as progress:
        task = progress.add_task("training", total=max(iterations, default=1))
        kept, network = training.train(
            iterations,
            n_workers=workers,
            batch=batch,
            loss=loss,
            seed=seed,
            on_iteration=lambda i, _: progress.update(task, completed=i),
        )
    images, labels = training.load_images()
    accuracy = network.accuracy(images[training.N_TRAIN :], labels[training.N_TRAIN :])
    rows = []
    for iteration, gradients in kept.items():
        for worker, gradient in enumerate(gradients):
            name = f"{loss}_{iteration:04d}_w{worker}.npy"
            save_floats(Path(folder) / name, gradient)
            rms = float(np.sqrt(np.mean(np.square(gradient, dtype=np.float64))))
            rows.append((name, iteration, worker, rms, float(np.abs(gradient).max())))
    columns = ("file", "iteration", "worker", "rms", "max_abs")
    console(json_file).print(table(f"gradients in {folder}", columns, rows))
    console(json_file).print(f"test accuracy {accuracy:.3f} after {max(iterations)} iterations")
    write_json(
        json_file,
        {
            "folder": str(folder),
            "loss": loss,
            "workers": workers,
            "batch": batch,
            "seed": seed,
            "accuracy": accuracy,
            "files": [dict(zip(columns, row, strict=True)) for row in rows],
        },
    )
