"""Networks as tables of layers: parameters, and the matrix product that a sample costs.

The tables (``layers.json``) list layers in the order of the forward pass as
``[name, weights, biases, m, n, k]``: per sample an (m, k) by (k, n) product, which is 2 m n k
operations forward, and twice that backward (the gradients of the weights and of the input); the
first layer with a product has no gradient of its input. ``{"repeat": r, "name": ..., "layers":
[...]}`` stands for r copies. Each table names its source.
"""

import inspect
import json
from collections.abc import Mapping
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
    if not isinstance(rows, list):
        raise ValueError(f"layers must be a list, not {_shown(rows)}")
    for row in rows:
        match row:
            case [str(name), *numbers] if len(numbers) == 5 and all(map(_is_count, numbers)):
                yield Layer(prefix + name, *numbers)
            case {"name": str(name), "repeat": repeat, "layers": inner} if _is_count(repeat):
                for i in range(repeat):
                    yield from _rows(inner, f"{prefix}{name}{i}.")
            case _:
                raise ValueError(
                    "a layer must be [name, weights, biases, m, n, k] or an object of name, repeat "
                    f"and layers, numbers whole and not negative, not {_shown(row)}"
                )


def _is_count(value):
    return type(value) is int and value >= 0


def _shown(value):
    """The beginning of a value as JSON."""
    text = json.dumps(value)
    return text if len(text) <= 80 else f"{text[:77]}..."


@cache
def _tables():
    return json.loads(resources.files(__package__).joinpath("layers.json").read_text())


def names() -> tuple[str, ...]:
    """Names of the tables that come along."""
    return tuple(_tables())


def _model(name, table):
    try:
        rows = tuple(_rows(table.get("layers")))
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
        table = json.loads(read_text(name))
    except ValueError as error:
        raise ValueError(f"{name} is no JSON: {error}") from None
    except RecursionError:
        raise ValueError(f"{name} is nested too deeply") from None
    if not isinstance(table, dict):
        raise ValueError(f"{name}: a table of layers is an object with the key layers")
    return _model(Path(name).stem, table)


def from_module(module, sample) -> Model:
    """The Model of a PyTorch module. sample : a batch of one, passed through it once: its inputs as
    a tuple, by their names as a dict, or one of another type; the module's buffers, such as
    statistics of normalization, and the processor's random numbers stay as they were.

    Every parameter that is trained is there once, where it is used first, so that DDP would reduce
    the same; those of modules that are never called come first, as if their gradients were whole
    last. A module of one or two parameters is a layer, others a layer each. ValueError if none is
    trained, or if the sum differs from that of `module.parameters()`.

    Products are counted of Linear, Conv1d to Conv3d and their transposes, RNN, LSTM and GRU and
    their cells, and MultiheadAttention, over all calls; not what attention multiplies without
    parameters, nor what is written without these modules. Frozen ones count as if trained. A
    complex parameter is two floats, as in DDP's buckets, and its products are four real ones.
    """
    import torch

    modules = dict(module.named_modules())
    called, products = {}, {}  # names in the order of their first calls; tensor: (m, n, k)

    def begin(name):
        return lambda *_: called.setdefault(name)

    def end(name):
        def note(part, args, keywords, output):
            parts = 2 if any(values.is_complex() for values in part.parameters()) else 1
            for tensor, (m, n, k) in _products(part, args, keywords, output).items():
                where = f"{name}.{tensor}".lstrip(".")
                called.setdefault(where.rpartition(".")[0])
                products[where] = m + products.get(where, (0,))[0], parts * n, parts * k

        return note

    handles = []
    for name, part in modules.items():
        handles.append(part.register_forward_pre_hook(begin(name)))
        handles.append(part.register_forward_hook(end(name), with_kwargs=True))
    buffers = [(b, b.clone()) for b in module.buffers() if not torch.nn.parameter.is_lazy(b)]
    try:
        with torch.no_grad(), torch.random.fork_rng(devices=[]):
            if isinstance(sample, Mapping):
                module(**sample)
            else:
                module(*sample if type(sample) is tuple else (sample,))  # packed ones are tuples
    finally:
        for buffer, before in buffers:
            buffer.copy_(before)
        for handle in handles:
            handle.remove()
    rows, seen = [], set()
    for name in [*(name for name in modules if name not in called), *called]:
        tensors = {}  # floats that are trained and stand nowhere else yet, and the product
        for tensor, values in modules[name].named_parameters(prefix=name, recurse=False):
            counts = values.requires_grad and id(values) not in seen
            tensors[tensor] = _floats(values) if counts else 0, products.pop(tensor, None)
            seen.add(id(values))
        for tensor in [t for t in products if t.rpartition(".")[0] == name]:  # computed weights
            tensors[tensor] = 0, products.pop(tensor)
        rows += _layers(name, tensors)
    name = type(module).__name__
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


def _floats(values):
    """Of a parameter's gradient: a complex number is two."""
    return values.numel() * (2 if values.is_complex() else 1)


def _layers(name, tensors):
    """Layers of one module's tensors, {name: (floats, product or None)}."""
    made = [product for _, product in tensors.values() if product]
    if len(tensors) <= 2 and len(made) <= 1:
        sizes = [*(floats for floats, _ in tensors.values()), 0, 0]
        result = [Layer(name, *sizes[:2], *(made or [(0, 0, 0)])[0])]
    else:
        result = [
            Layer(tensor, floats, 0, *(product or (0, 0, 0)))
            for tensor, (floats, product) in tensors.items()
        ]
    return [layer for layer in result if layer.parameters or layer.forward]


def _products(part, args, keywords, output):
    """{parameter's name within a PyTorch module: (m, n, k)} of one call."""
    from torch import nn

    convolutions = nn.Conv1d | nn.Conv2d | nn.Conv3d
    transposes = nn.ConvTranspose1d | nn.ConvTranspose2d | nn.ConvTranspose3d
    recurrent = nn.RNNBase | nn.RNNCellBase
    if isinstance(part, nn.Linear):
        n = part.out_features
        return {"weight": (output.numel() // n, n, part.in_features)}
    if isinstance(part, convolutions):
        n = part.out_channels
        return {"weight": (output.numel() // n, n, part.weight[0].numel())}
    if not isinstance(part, transposes | recurrent | nn.MultiheadAttention):
        return {}
    given = inspect.signature(part.forward).bind(*args, **keywords).arguments
    if isinstance(part, nn.MultiheadAttention):
        e = part.embed_dim
        queries = given["query"].numel() // e
        keys, values = given["key"].numel() // part.kdim, given["value"].numel() // part.vdim
        result = {"out_proj.weight": (queries, e, e)}
        if part.in_proj_weight is not None:  # three matrices in one
            return {"in_proj_weight": (queries + keys + values, e, e), **result}
        return {"q_proj_weight": (queries, e, e), "k_proj_weight": (keys, e, part.kdim),
                "v_proj_weight": (values, e, part.vdim), **result}  # fmt: skip
    if isinstance(part, transposes):
        k = part.in_channels
        return {"weight": (given["input"].numel() // k, part.weight[0].numel(), k)}
    rows = given["input"].data.numel() // part.input_size  # of a packed sequence, too
    return {
        name: (rows, *values.shape) for name, values in part.named_parameters() if values.dim() == 2
    }
