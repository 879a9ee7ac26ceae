"""Networks as tables of layers: parameters, and the matrix product that a sample costs.

The tables (``layers.json``) list layers in the order of the forward pass as
``[name, weights, biases, m, n, k]``: per sample an (m, k) by (k, n) product, which is 2 m n k
operations forward, and twice that backward (the gradients of the weights and of the input); the
first layer with a product has no gradient of its input. ``{"repeat": r, "name": ..., "layers":
[...]}`` stands for r copies. Each table names its source. A file has one table, an object of
``layers`` and, as texts, ``name``, ``sample`` and ``source``; other keys are a ValueError.
"""

import json
import warnings
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cache
from importlib import resources
from pathlib import Path
from typing import TYPE_CHECKING, Any

from gradnic.text_file import from_json, read_text

if TYPE_CHECKING:
    from torch.nn import Module

FLOAT_BYTES = 4
MAX_LAYERS = 100_000  # of a table, repeats unrolled
MAX_COUNT = 1 << 48  # parameters, or a side of a product
KEYS = ("name", "sample", "source", "layers")  # of a table in a file


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


def _rows(rows: Any) -> list[Layer]:
    """Layers of rows, repeats unrolled: at most `MAX_LAYERS`."""
    if not isinstance(rows, list):
        raise ValueError(f"layers must be a list, not {_shown(rows)}")
    layers = []
    for row in rows:
        match row:
            case [str(name), *numbers] if len(numbers) == 5 and all(map(_is_count, numbers)):
                found, repeat = [Layer(name, *numbers)], None
            case {"name": str(name), "repeat": repeat, "layers": inner, **others} if (
                _is_count(repeat) and not others
            ):
                found = _rows(inner)
            case _:
                raise ValueError(
                    "a layer must be [name, weights, biases, m, n, k] or an object of name, repeat "
                    f"and layers, whole numbers from 0 to 2^48, not {_shown(row)}"
                )
        n_layers = len(layers) + len(found) * (1 if repeat is None else repeat)
        if n_layers > MAX_LAYERS:
            raise ValueError(f"there must be at most {MAX_LAYERS} layers, not {n_layers}")
        if repeat is None:
            layers += found
        elif found:
            layers += [replace(layer, name=f"{name}{i}.{layer.name}")
                       for i in range(repeat) for layer in found]  # fmt: skip
    return layers


def _is_count(value: Any) -> bool:
    return type(value) is int and 0 <= value <= MAX_COUNT


def _shown(value: Any) -> str:
    """The beginning of a value as JSON."""
    text = json.dumps(value)
    return text if len(text) <= 80 else f"{text[:77]}..."


@cache
def _tables() -> dict[str, Any]:
    return json.loads(resources.files(__package__).joinpath("layers.json").read_text())


def names() -> tuple[str, ...]:
    """Names of the tables that come along."""
    return tuple(_tables())


def _model(name: str, table: Mapping) -> Model:
    if "layers" not in table:
        raise ValueError(f"{name}: a table of layers is an object with the key layers")
    try:
        rows = tuple(_rows(table["layers"]))
    except ValueError as error:
        raise ValueError(f"{name}: {error}") from None
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
        table = from_json(read_text(name))
    except ValueError as error:
        raise ValueError(f"{name} is no JSON: {error}") from None
    except RecursionError:
        raise ValueError(f"{name} is nested too deeply") from None
    if not isinstance(table, dict):
        raise ValueError(f"{name}: a table of layers is an object with the key layers")
    if unknown := sorted(table.keys() - set(KEYS)):
        raise ValueError(
            f"{name}: keys of a table are {', '.join(KEYS[:-1])} and layers, not "
            f"{', '.join(unknown)}"
        )
    for key in KEYS[:-1]:
        if not isinstance(table.get(key, ""), str):
            raise ValueError(f"{name}: {key} must be a text, not {_shown(table[key])}")
    return _model(table.get("name", Path(name).stem), table)


def from_module(module: "Module", sample: Any) -> Model:
    """The Model of a PyTorch module. sample : a batch of one, passed through it once: its inputs as
    a tuple, by their names as a dict, or one of another type; the module's buffers, such as
    statistics of normalization, and the processor's random numbers stay as they were.

    Every parameter that is trained is there once, where it is used first, so that DDP would reduce
    the same; those of modules that are never called come first, as if their gradients were whole
    last. A module of one or two parameters is a layer, others a layer each. ValueError if none is
    trained, or if the sum differs from that of `module.parameters()`.

    Products of matrices are counted wherever they are made, by modules of torch.nn or not, over all
    calls: with the layer whose parameter is in them, those of two activations, as in attention, as
    layers of their own. Sums, activations and other work by elements do not count. Operators that
    multiply and are not known, such as those of extensions, are named in a warning. Those with
    frozen parameters count backward as if these were trained. A complex parameter is two floats, as
    in DDP's buckets, and its products are four real ones. Gradients are taken to be FP32: a
    warning names trained parameters of other sizes. ValueError for what is no module, such as a
    dict of its state, for modules that torch.jit.script made, or that torch.compile must have
    whole.
    """
    import torch

    from .torch_products import watched

    name = type(module).__name__
    if not isinstance(module, torch.nn.Module):
        raise ValueError(f"module must be a torch.nn.Module, not {name}")
    sizes = {v.dtype for v in module.parameters() if v.requires_grad and not v.is_complex()}
    if others := sorted(str(kind) for kind in sizes if kind.itemsize != FLOAT_BYTES):
        names = ", ".join(others)
        warnings.warn(
            f"{name}: parameters of {names} count as FP32, {FLOAT_BYTES} bytes each of gradients "
            "and buckets",
            stacklevel=2,
        )
    modules = dict(module.named_modules())
    buffers = [(b, b.clone()) for b in module.buffers() if not torch.nn.parameter.is_lazy(b)]
    try:
        with torch.no_grad(), torch.random.fork_rng(devices=[]), watched(module) as found:
            if isinstance(sample, Mapping):
                module(**sample)
            else:
                module(*sample if type(sample) is tuple else (sample,))  # packed ones are tuples
    except RuntimeError as error:
        if "no compiled frames" not in str(error):
            raise
        raise ValueError(
            f"{name}: what torch.compile makes whole, as for flex_attention, cannot be watched: "
            "give the module with products or scaled_dot_product_attention instead"
        ) from None
    finally:
        for buffer, before in buffers:
            buffer.copy_(before)
    if found.unknown:
        unknown = ", ".join(found.unknown)
        warnings.warn(f"{name}: products that {unknown} may make are not counted", stacklevel=2)
    rows, seen, products = [], set(), found.products
    for place in [*(place for place in modules if place not in found.called), *found.called]:
        if place in found.loose:
            label, n, k = place
            rows.append(Layer(label, 0, 0, found.loose[place], n, k))
            continue
        tensors = {}  # floats that are trained and stand nowhere else yet, and the product
        for tensor, values in modules[place].named_parameters(prefix=place, recurse=False):
            counts = values.requires_grad and id(values) not in seen
            tensors[tensor] = _floats(values) if counts else 0, products.pop(tensor, {})
            seen.add(id(values))
        for tensor in [t for t in products if t.rpartition(".")[0] == place]:  # computed weights
            tensors[tensor] = 0, products.pop(tensor)
        rows += _layers(place, tensors)
    model = Model(name, "one sample", f"torch module {name}", tuple(rows))
    trained = sum(_floats(values) for values in module.parameters() if values.requires_grad)
    if model.parameters != trained:
        raise ValueError(
            f"{name}: its modules own {model.parameters} parameters that are trained, and "
            f"parameters() names {trained}"
        )
    if not trained:
        raise ValueError(f"{name}: the layers have no parameters that are trained")
    return model


def _floats(values: Any) -> int:
    """Of a parameter's gradient: a complex number is two."""
    return values.numel() * (2 if values.is_complex() else 1)


def _layers(name: str, tensors: Mapping[str, tuple[int, dict]]) -> list[Layer]:
    """Layers of one module's tensors, {name: (floats, products {(n, k): m})}."""
    made = [(m, n, k) for _, products in tensors.values() for (n, k), m in products.items()]
    if len(tensors) <= 2 and len(made) <= 1:
        weights, biases, *_ = *(floats for floats, _ in tensors.values()), 0, 0
        m, n, k = (made or [(0, 0, 0)])[0]
        result = [Layer(name, weights, biases, m, n, k)]
    else:
        result = []
        for tensor, (floats, products) in tensors.items():
            for (n, k), m in (products or {(0, 0): 0}).items():
                result.append(Layer(tensor, floats, 0, m, n, k))
                floats = 0
    return [layer for layer in result if layer.parameters or layer.forward]
