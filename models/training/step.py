"""Seconds of a training step: passes over the layers, buckets of gradients, one network.

Buckets are filled as PyTorch's DistributedDataParallel does it from the second step on (Li et al.,
VLDB 2020, section 3.2): tensors in the order in which their gradients come, last layer first; a
bucket closes with the tensor that makes it reach its limit, 1 MiB for the first, 25 MiB for the
others. Its all-reduce starts when all of its gradients are there and the one before has ended.
"""

import heapq
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from .devices import Accelerator, passes
from .layers import FLOAT_BYTES, Model

FIRST, CAP = 1 << 20, 25 << 20  # bytes
ORDERS = ("ready", "layer")
_STEPS = 6  # simulated; the last one's length is the period


@dataclass(frozen=True)
class Bucket:
    """Gradients that travel together: bytes in FP32, and the layers they belong to."""

    n_bytes: int
    layers: tuple


def buckets(model: Model, *, first: int | None = FIRST, cap: int | None = CAP) -> list[Bucket]:
    """The buckets of `model`, in the order in which they become ready.

    first, cap : bytes at which the first and every other bucket closes; None: never.
    """
    limits = [first, cap]
    if any(limit is not None and limit < 1 for limit in limits):
        raise ValueError(f"buckets must have 1 byte or more, not {limits}")
    result, layers, size = [], [], 0
    for layer, floats in reversed(model.tensors):
        size += FLOAT_BYTES * floats
        if layer not in layers:
            layers.append(layer)
        limit = limits[min(len(result), 1)]
        if limit is not None and size >= limit:
            result.append(Bucket(size, tuple(layers)))
            layers, size = [], 0
    if size:
        result.append(Bucket(size, tuple(layers)))
    return result


@dataclass(frozen=True)
class Step:
    """Times of a step in steady state, seconds.

    total : from one step's start to the next one's. compute : both passes and the update.
    communication : of all all-reduces, host codecs included, as if nothing overlapped.
    """

    total: float
    compute: float
    communication: float

    @property
    def exposed(self) -> float:
        """Seconds in which the accelerator waits for gradients."""
        return max(0.0, self.total - self.compute)

    @property
    def share(self) -> float:
        """Of the step that is spent waiting."""
        return self.exposed / self.total


def steps_per_epoch(samples: int, n_nodes: int, batch: int) -> int:
    """Steps in which `n_nodes` with `batch` samples each see all `samples`; the last may be short.

    ValueError for a count below 1.
    """
    if min(samples, n_nodes, batch) < 1:
        raise ValueError(
            f"samples, nodes and batch must be at least 1, not {samples}, {n_nodes}, {batch}"
        )
    return -(-samples // (n_nodes * batch))


def step(
    model: Model,
    device: Accelerator,
    batch: int,
    exchange: Callable,
    *,
    overlap: bool = True,
    order: str = "ready",
    first: int | None = FIRST,
    cap: int | None = CAP,
    update: float = 0.0,
) -> Step:
    """The Step of `model` on every node's `device` with `batch` samples each.

    exchange : function of a bucket's bytes to (encode, network, decode) seconds, or to the
        network's alone: of the host's codec before and behind an all-reduce, and of that. Encoders,
        network and decoders work on one bucket each at a time.
    overlap : all-reduce during the backward pass; False: everything in one bucket after it.
    order : ``ready``: buckets in the order in which they are ready, the next forward pass waits
        for all; ``layer``: of the ready ones the one that the forward pass needs first goes first,
        and each of its layers waits for its own buckets only (P3 and ByteScheduler).
    update : seconds of the optimizer, after the last bucket, or spread over layers.
    """
    if order not in ORDERS:
        raise ValueError(f"order must be one of {', '.join(ORDERS)}, not {order!r}")
    if not overlap:
        first = cap = None
    parts = buckets(model, first=first, cap=cap)
    times = passes(model, device, batch)
    stages = [_stages(exchange(part.n_bytes)) for part in parts]
    compute = sum(map(sum, times)) + update
    communication = sum(map(sum, stages))
    starts, arrival = [0.0], None
    for _ in range(_STEPS):
        arrival, next_start = _one_step(starts[-1], times, parts, stages, arrival, overlap, order)
        starts.append(next_start)
    if order == "ready" or not overlap:
        return Step(starts[-1] - starts[-2] + update, compute, communication)
    return Step(max(starts[-1] - starts[-2], compute), compute, communication)


def _stages(seconds: Any) -> tuple[float, ...]:
    return (0.0, float(seconds), 0.0) if isinstance(seconds, int | float) else tuple(seconds)


def _one_step(
    start: float,
    times: Sequence[tuple[float, float]],
    parts: Sequence[Bucket],
    stages: Sequence[tuple[float, ...]],
    arrival: Sequence[float] | None,
    overlap: bool,
    order: str,
) -> tuple[list[float], float]:
    """When each layer's gradients have arrived, and when the next step may start.

    arrival : of the step before, per layer; with order ``layer`` its forward pass waits for them.
    """
    now = start
    by_layer = order == "layer" and overlap
    for i, (forward, _) in enumerate(times):
        if by_layer and arrival is not None:
            now = max(now, arrival[i])
        now += forward
    ready = [0.0] * len(times)
    for i in reversed(range(len(times))):
        now += times[i][1]
        ready[i] = now
    backward_end = now
    due = [max(ready[i] for i in part.layers) if overlap else backward_end for part in parts]
    done = _pipeline(due, stages, [min(part.layers) for part in parts] if by_layer else None)
    arrived = [0.0] * len(times)
    for part, at in zip(parts, done, strict=True):
        for i in part.layers:
            arrived[i] = max(arrived[i], at)
    return arrived, backward_end if by_layer else max(backward_end, *done)


def _pipeline(
    due: Sequence[float], stages: Sequence[tuple[float, ...]], rank: Sequence[int] | None
) -> list[float]:
    """When each bucket has passed encoder, network and decoder; rank : urgency, None: in turn."""
    encoded, free = [], 0.0
    for at, (encode, _, _) in zip(due, stages, strict=True):
        free = max(at, free) + encode
        encoded.append(free)
    there, coming = [], 0  # heap of (urgency, bucket); those not encoded yet, in turn
    free, decoder, done = 0.0, 0.0, [0.0] * len(due)
    for _ in due:
        if not there:
            free = max(free, encoded[coming])
        while coming < len(due) and encoded[coming] <= free:
            heapq.heappush(there, (rank[coming] if rank else coming, coming))
            coming += 1
        _, i = heapq.heappop(there)
        free += stages[i][1]
        decoder = max(decoder, free) + stages[i][2]
        done[i] = decoder
    return done
