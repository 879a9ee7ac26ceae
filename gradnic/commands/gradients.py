"""``gradnic gradients``: real gradients of a small network, as .npy files."""

from pathlib import Path

import click
import numpy as np

from gradnic import quantities as q
from gradnic.arrays import save_floats
from gradnic.output import console, json_option, table, write_json
from gradnic.packages import DATA, needs
from gradnic.paths import OutputFolder, check_files
from gradnic.progress import Progress
from gradnic.quantities import option


@click.command(cls=q.Command, name="gradients")
@option("--out folder", OutputFolder(), "build/gradients", "Folder for the files.")
@option("--iterations", q.Listed(q.ITERATION), "1,200", "Iterations to keep, the first is 1.")
@option("--workers", q.Whole(1, 4000), 4, "Workers.")
@option("--batch", q.Whole(1, 4000, "images"), 25, "Images a worker sees an iteration.")
@option(
    "--loss",
    q.OneOf("sum", "mean"),
    "sum",
    "sum or mean over the batch: the scale of the gradients.",
)
@option("--seed", q.SEED, 0, "Of weights and batches.")
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

    names = {(i, w): f"{loss}_{i:04d}_w{w}.npy" for i in iterations for w in range(workers)}
    check_files(f"{folder}/{name}" for name in names.values())
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
            name = names[iteration, worker]
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
