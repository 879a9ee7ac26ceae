"""Networks as tables of layers: parameters, and the matrix product that a sample costs.

The tables (``layers.json``) list layers in the order of the forward pass as
``[name, weights, biases, m, n, k]``: per sample an (m, k) by (k, n) product, which is 2 m n k
operations forward, and twice that backward (the gradients of the weights and of the input); the
first layer with a product has no gradient of its input. ``{"repeat": r, "name": ..., "layers":
[...]}`` stands for r copies. Each table names its source.
"""

import json
from dataclasses import dataclass
from functools import cache
from importlib import resources
from pathlib import Path

from gradnic.text_file import read_text

FLOAT_BYTES = 4


@dataclass(frozen=True)
class Layer:
    """One layer. weights, biases : parameters. m, n, k : its product per sample, 0 for none."""

    name: str
    weights: int
    biases: int
    m: int
    n: int
    k: int

    @property
    def parameters(self) -> int:
        return self.weights + self.biases

    @property
    def forward(self) -> int:
        """Operations (a multiplication and an addition are two) of the forward pass, a sample."""
        return 2 * self.m * self.n * self.k


@dataclass(frozen=True)
class Model:
    """A network. layers : in the order of the forward pass. sample, source : in words."""

    name: str
    sample: str
    source: str
    layers: tuple

    @property
    def parameters(self) -> int:
        return sum(layer.parameters for layer in self.layers)

    @property
    def n_bytes(self) -> int:
        """Of its gradient in FP32."""
        return FLOAT_BYTES * self.parameters

    @property
    def forward(self) -> int:
        """Operations of the forward pass per sample."""
        return sum(layer.forward for layer in self.layers)

    @property
    def tensors(self) -> list[tuple[int, int]]:
        """(layer number, floats) of every parameter tensor, in the order of registration."""
        return [
            (i, size)
            for i, layer in enumerate(self.layers)
            for size in (layer.weights, layer.biases)
            if size
        ]


def _rows(rows, prefix=""):
    for row in rows:
        if isinstance(row, dict):
            for i in range(row["repeat"]):
                yield from _rows(row["layers"], f"{prefix}{row['name']}{i}.")
        else:
            name, *numbers = row
            if len(numbers) != 5 or not all(type(n) is int and n >= 0 for n in numbers):
                raise ValueError(f"layer {name!r} must be [name, weights, biases, m, n, k]: {row}")
            yield Layer(prefix + name, *numbers)


@cache
def _tables():
    return json.loads(resources.files(__package__).joinpath("layers.json").read_text())


def names() -> tuple[str, ...]:
    """Names of the tables that come along."""
    return tuple(_tables())


def _model(name, table):
    try:
        rows = tuple(_rows(table["layers"]))
    except (KeyError, TypeError) as error:
        raise ValueError(f"{name}: a table of layers needs the key {error}") from None
    if not sum(layer.parameters for layer in rows):
        raise ValueError(f"{name}: the layers have no parameters")
    return Model(name, table.get("sample", "one sample"), table.get("source", name), rows)


def load(name: str) -> Model:
    """The Model of a table that comes along, or of a JSON file with one table.

    ValueError for an unknown name or a malformed table, OSError for a file that cannot be read.
    """
    if name in _tables():
        return _model(name, _tables()[name])
    if not str(name).endswith(".json"):
        raise ValueError(f"model must be a .json file or one of {', '.join(names())}, not {name!r}")
    try:
        table = json.loads(read_text(name))
    except ValueError as error:
        raise ValueError(f"{name} is no JSON: {error}") from None
    if not isinstance(table, dict):
        raise ValueError(f"{name}: a table of layers is an object with the key layers")
    return _model(Path(name).stem, table)


def from_module(module, sample) -> Model:
    """The Model of a PyTorch module. sample : a batch of one, passed through it once.

    Products are counted for Linear and Conv1d to Conv3d (what attention multiplies without
    parameters is not), parameters for every module that owns some.
    """
    import torch

    rows, order = {}, []

    def product(owner, inputs, output):
        del inputs
        if isinstance(owner, torch.nn.Linear):
            return output.numel() // owner.out_features, owner.out_features, owner.in_features
        if isinstance(owner, torch.nn.Conv1d | torch.nn.Conv2d | torch.nn.Conv3d):
            weight = owner.weight
            return output[0, 0].numel(), owner.out_channels, weight[0].numel()
        return 0, 0, 0

    def hook(name):
        def note(owner, inputs, output):
            if name not in rows:
                order.append(name)
                own = list(owner.parameters(recurse=False))
                weights = own[0].numel() if own else 0
                biases = sum(p.numel() for p in own[1:])
                rows[name] = Layer(name, weights, biases, *product(owner, inputs, output))

        return note

    handles = [
        part.register_forward_hook(hook(name))
        for name, part in module.named_modules()
        if any(True for _ in part.parameters(recurse=False))
    ]
    try:
        with torch.no_grad():
            module(sample)
    finally:
        for handle in handles:
            handle.remove()
    name = type(module).__name__
    return Model(name, "one sample", f"torch module {name}", tuple(rows[n] for n in order))
