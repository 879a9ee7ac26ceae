"""Accelerators: seconds that a layer takes, forward and backward."""

import math
from dataclasses import dataclass

from gradnic.interface.params import check_least

from .constants import value
from .layers import Layer, Model, load


@dataclass(frozen=True)
class Device:
    """An accelerator that sustains one rate on every product.

    operations : per second, forward and backward alike; > 0. overhead : seconds a layer and pass;
        0 or more. ValueError otherwise.
    """

    name: str
    operations: float
    overhead: float = 0.0

    def __post_init__(self) -> None:
        if not self.operations > 0:
            raise ValueError(f"{self.name}: operations must be above 0, not {self.operations}")
        if not 0 <= self.overhead < math.inf:
            raise ValueError(f"{self.name}: overhead must be 0 s or more, not {self.overhead}")

    def seconds(self, layer: Layer, batch: int, *, first: bool = False) -> tuple[float, float]:
        """(forward, backward) of `batch` samples. first : no gradient of the input is due."""
        forward = layer.forward * batch / self.operations
        return forward + self.overhead, forward * (1 if first else 2) + self.overhead


@dataclass(frozen=True)
class Systolic:
    """Arrays of rows x columns multipliers that keep the outputs in place, a sample an array.

    The accelerator of the MultiTree paper: 16 arrays of 32 x 32 at 1 GHz, SCALE-Sim's output
    stationary flow: an (m, k) by (k, n) product takes ceil(m / rows) ceil(n / columns) folds of
    k + rows + columns - 2 cycles. Memory is taken to keep up. ValueError unless rows, columns and
    arrays are whole numbers of at least 1, and the clock, in Hz, above 0.
    """

    name: str = "systolic"
    rows: int = int(value("array.side"))
    columns: int = int(value("array.side"))
    arrays: int = int(value("array.count"))
    clock: float = value("array.clock")

    def __post_init__(self) -> None:
        for part in "rows", "columns", "arrays":
            check_least(f"{self.name}: {part}", getattr(self, part), 1)
        if not 0 < self.clock < math.inf:
            raise ValueError(f"{self.name}: clock must be above 0, not {self.clock}")

    def _cycles(self, m: int, n: int, k: int) -> int:
        folds = -(-m // self.rows) * -(-n // self.columns)
        return folds * (k + self.rows + self.columns - 2) if m * n * k else 0

    def seconds(self, layer: Layer, batch: int, *, first: bool = False) -> tuple[float, float]:
        """(forward, backward) of `batch` samples: weights' gradient is (k, m) by (m, n), the
        input's (m, n) by (n, k).
        """
        rounds = -(-batch // self.arrays) / self.clock
        m, n, k = layer.m, layer.n, layer.k
        forward = self._cycles(m, n, k)
        backward = self._cycles(k, n, m) + (0 if first else self._cycles(m, k, n))
        return rounds * forward, rounds * backward


Accelerator = Device | Systolic


def passes(model: Model, device: Accelerator, batch: int) -> list[tuple[float, float]]:
    """[(forward, backward)] seconds of every layer of `model`, in the order of the forward pass.

    batch : samples. ValueError unless it is an integer of at least 1.
    """
    check_least("batch", batch, 1)
    first = next((i for i, layer in enumerate(model.layers) if layer.forward), -1)
    return [device.seconds(layer, batch, first=i == first) for i, layer in enumerate(model.layers)]


def compute_seconds(model: Model, device: Accelerator, batch: int) -> float:
    """Seconds of forward and backward pass of `batch` samples, nothing else."""
    return sum(map(sum, passes(model, device, batch)))


def _from_resnet50(name: str, constant: str) -> Device:
    """A device that trains as many ResNet-50 images a second as `constant` says."""
    model = load("resnet50")
    unit = Device("unit", 1.0)
    return Device(name, compute_seconds(model, unit, 1) * value(constant))


def device(name: str) -> Accelerator:
    """The device of a name: ``v100-fp32``, ``v100-amp``, ``a100-tf32`` or ``systolic``. ValueError
    for another one.

    GPUs sustain what their published ResNet-50 training throughput says.
    """
    if name == "systolic":
        return Systolic()
    if name not in ("v100-fp32", "v100-amp", "a100-tf32"):
        known = "v100-fp32, v100-amp, a100-tf32, systolic"
        raise ValueError(f"device must be one of {known}, not {name!r}")
    return _from_resnet50(name, f"{name}.resnet50")
