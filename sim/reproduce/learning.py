"""Accuracy by epoch with every codec, seeds in a row, and accuracy against seconds.

The network and the images of `gradnic.sim.training`, four workers of 25 images or ten of
10: the same weights and images for all codecs with one seed. Gradients are summed over the batch.
"""

from dataclasses import dataclass
from functools import cache

import numpy as np
from gradnic.models.schedule.builders import build
from gradnic.models.schedule.topology import parse
from gradnic.sim.training import run as training
from gradnic.sim.training.baselines import parents_of

VARIANTS = {
    "FP32": ("none", {}),
    "BF16": ("bf16", {}),
    "FP16": ("fp16", {}),
    **{f"cut {bits} bits": ("truncated", {"bits": bits}) for bits in (16, 22, 24)},
    "PowerSGD, rank 4": ("powersgd", {"rank": 4}),
    "INCEPTIONN 2^-10": ("inceptionn", {"exponent": 117}),
    "INCEPTIONN 2^-8": ("inceptionn", {"exponent": 119}),
    "INCEPTIONN 2^-6": ("inceptionn", {"exponent": 121}),
    "INCEPTIONN 2^-10, 1 % lost": (
        "inceptionn",
        {"exponent": 117, "loss": 0.01, "random": True, "rescale": True},
    ),
    "THC": ("thc", {}),
    "THC, 0.1 % lost": ("thc", {"loss": 0.001, "random": True}),
    "THC, 1 % lost": ("thc", {"loss": 0.01, "random": True}),
    "THC along MultiTree, 1 % lost": (
        "thc-trees",
        {"loss": 0.01, "random": True, "rescale": True, "trees": "multitree"},
    ),
    "THC along double trees, 1 % lost": (
        "thc-trees",
        {"loss": 0.01, "random": True, "rescale": True, "trees": "dbtree"},
    ),
    "FP32, ten workers": ("none", {}),
    "THC, ten workers": ("thc", {}),
    "THC, one of ten workers late": ("thc-partial", {"late": 1, "rescale": True}),
    "BF16, 1 % lost": ("bf16", {"loss": 0.01, "random": True}),
    "FP32, 1 % lost": ("none", {"loss": 0.01, "random": True}),
    "FP32, 10 % lost, small first": ("prioritized", {"loss": 0.1}),
}
REGIONAL = {  # what of the network is lost, nine tenths of a third of it
    f"FP32, 90 % lost of a third: {region}": ("regional", {"loss": 0.9, "region": region})
    for region in ("anywhere", "front", "middle", "back", "small", "large")
}
MODELS = {
    "mlp": 0.05,
    "conv": 0.05,
    "transformer": 0.3,
}  # learning rates with which FP32 learns
GUESS = {"mlp": 0.1, "conv": 0.1, "transformer": 0.0}
SEEDED = (
    "regional",
    "inceptionn",
    "bf16",
    "none",
    "thc",
    "thc-partial",
    "thc-trees",
    "powersgd",
    "prioritized",
)  # those that draw random numbers


@dataclass(frozen=True)
class Curve:
    """accuracy : float64 (n_seeds, n_epochs + 1), first `GUESS`. nmse, wire_ratio : means."""

    accuracy: np.ndarray
    nmse: float
    wire_ratio: float

    @property
    def final(self):
        """Of each seed, mean of its last two epochs."""
        return self.accuracy[:, -2:].mean(axis=1)


def extent(quick, model="mlp"):
    """(seeds, epochs) of the runs."""
    return (2, 3) if quick else (5, 8 if model == "mlp" else 5)


@cache
def task_of(model):
    """(Task, shapes of its tensors, number of parameters) of a name in `MODELS`."""
    if model == "mlp":
        from gradnic.sim.training import baselines, network

        return network.PERCEPTRON, baselines.SHAPES, 235_146
    from gradnic.sim.training import torch_networks

    task = {"conv": torch_networks.CONV_NET, "transformer": torch_networks.TRANSFORMER}[model]
    one = task.network(0)
    return task, one.shapes, one.parameters.size


@cache
def trained(variant, model, epochs, seed):
    """One training run of a name in `VARIANTS` or `REGIONAL`: a dict of JSON.

    accuracy : of each epoch, first `GUESS`; nmse : their mean; wire_ratio : of the whole run. A
    run of the conv net takes 0.6 s an epoch, of the transformer 1.7 s.
    """
    codec, options = (VARIANTS | REGIONAL)[variant]
    task, shapes, _ = task_of(model)
    if codec == "powersgd":
        options = options | {"shapes": shapes}
    if "trees" in options:
        star = build(parse("fattree:4x1"), options["trees"])
        options = {k: v for k, v in options.items() if k != "trees"}
        options |= {"parents": parents_of(star)}
    n_workers, batch = (10, 10) if "ten" in variant else (4, 25)
    own = options | ({"seed": seed} if codec in SEEDED else {})
    rows = training.run(
        codec, epochs=epochs, n_workers=n_workers, batch=batch, seed=seed, options=own,
        rate=MODELS[model], task=task,
    )  # fmt: skip
    return {
        "accuracy": [GUESS[model]] + [row.accuracy for row in rows],
        "nmse": float(np.mean([row.nmse for row in rows])),
        "wire_ratio": rows[-1].wire_ratio,
    }


def curve(variant, quick, model="mlp", run=trained):
    """The Curve of a name in `VARIANTS` or `REGIONAL`. run : called as `trained` is."""
    n_seeds, epochs = extent(quick, model)
    runs = [run(variant, model, epochs, seed) for seed in range(n_seeds)]
    return Curve(
        np.array([one["accuracy"] for one in runs]),
        float(np.mean([one["nmse"] for one in runs])),
        float(np.mean([one["wire_ratio"] for one in runs])),
    )


def seconds_to(mean, target, per_epoch):
    """Seconds until the accuracy `mean`, (n_epochs + 1,), reaches `target`; None if it never does.

    Between epochs in a straight line.
    """
    reached = np.flatnonzero(mean >= target)
    if not len(reached):
        return None
    i = int(reached[0])
    before = mean[i - 1]
    return per_epoch * (i - 1 + (target - before) / (mean[i] - before))


def accuracy_lost(variant, quick, base="FP32"):
    """(mean, per seed) of `base`'s final accuracy less this variant's, in points."""
    base, other = curve(base, quick).final, curve(variant, quick).final
    lost = 100 * (base - other)
    return float(lost.mean()), lost.tolist()
