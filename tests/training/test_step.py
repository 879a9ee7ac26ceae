"""Buckets as DDP fills them, and a step's time against cases that can be worked out by hand."""

import numpy as np
import pytest
from gradnic.models.training import layers
from gradnic.models.training.devices import Device
from gradnic.models.training.step import CAP, FIRST, buckets, step, steps_per_epoch


def model_of(*sizes):
    rows = tuple(layers.Layer(f"l{i}", s, 0, 1, 1, s) for i, s in enumerate(sizes))
    return layers.Model("test", "one", "here", rows)


UNIT = Device("unit", 2.0)  # a layer of s parameters takes s seconds forward


def test_buckets_close_where_torch_closes_them():
    torch = pytest.importorskip("torch", reason="PyTorch is an extra of its own, 190 MB")
    import torch.distributed as dist

    for name in layers.names():
        model = layers.load(name)
        tensors = [torch.empty(floats, device="meta") for _, floats in reversed(model.tensors)]
        theirs, _ = dist._compute_bucket_assignment_by_size(tensors, [FIRST, CAP])
        sizes = [4 * sum(tensors[i].numel() for i in bucket) for bucket in theirs]
        assert [part.n_bytes for part in buckets(model)] == sizes


def test_buckets_cover_the_model_once():
    for name in layers.names():
        model = layers.load(name)
        parts = buckets(model)
        assert sum(part.n_bytes for part in parts) == model.n_bytes
        assert parts[0].n_bytes >= min(FIRST, model.n_bytes)
        whole = buckets(model, first=None, cap=None)
        assert [part.n_bytes for part in whole] == [model.n_bytes]


def test_an_epoch_sees_every_sample():
    assert [steps_per_epoch(n, 4, 25) for n in (1, 100, 101, 4000)] == [1, 1, 2, 40]
    with pytest.raises(ValueError, match="must be at least 1, not 10, 0, 2"):
        steps_per_epoch(10, 0, 2)


def test_without_overlap_times_add_up():
    model = model_of(3, 5)
    result = step(model, UNIT, 1, lambda n: n / 8, overlap=False)
    compute = 3 + 5 + 2 * 5 + 3  # no gradient of the first layer's input
    assert result.compute == compute
    assert result.communication == 4
    assert result.total == compute + 4
    assert result.share == pytest.approx(4 / (compute + 4))


def test_overlap_hides_all_but_the_last_bucket():
    model = model_of(3, 5, 7)
    result = step(model, UNIT, 1, lambda n: n / 20, first=1, cap=1)
    # 1.4 s behind the last layer's 14, 1.0 behind the middle one's 10, 0.6 after the first one's 3
    assert result.total == pytest.approx(result.compute + 0.6)


def test_slow_network_runs_back_to_back():
    model = model_of(3, 5, 7)
    result = step(model, UNIT, 1, lambda n: n * 10.0, first=1, cap=1)
    ready = 15 + 14  # forward pass, and the gradients of the last layer
    assert result.total == pytest.approx(ready + 600)


def test_layer_order_starts_the_next_pass_early():
    model = model_of(3, 5, 7)
    waiting = step(model, UNIT, 1, lambda n: n / 2, first=1, cap=1)
    early = step(model, UNIT, 1, lambda n: n / 2, first=1, cap=1, order="layer")
    assert early.total < waiting.total
    assert early.total >= early.compute


def test_layer_order_by_hand():
    """The last layer's bucket goes first; of the others the first layer's."""
    model = model_of(1, 1, 2)
    result = step(model, UNIT, 1, lambda n: float(n), first=1, cap=1, order="layer")
    # pass of 4, backward 4, 2, 1: ready at 8, 10, 11; network 8-16, then layer 0 16-20, layer 1
    # 20-24. Next pass: layer 0 20-21, layer 1 24-25, layer 2 25-27; backward from 27 instead of 4
    assert result.total == pytest.approx(27 - 4)


def test_host_codec_is_a_pipeline():
    model = model_of(*[1 << 20] * 8)
    fast = Device("fast", 1e15)
    parts = len(buckets(model, first=1, cap=1))
    result = step(model, fast, 1, lambda n: (0.1, 0.3, 0.2), first=1, cap=1)
    assert result.total == pytest.approx(0.1 + parts * 0.3 + 0.2, rel=1e-3)
    assert result.communication == pytest.approx(parts * 0.6)


def test_wrong_arguments():
    with pytest.raises(ValueError, match="fifo"):
        step(model_of(1), UNIT, 1, lambda n: 1.0, order="fifo")
    with pytest.raises(ValueError, match="1 byte"):
        buckets(model_of(1), cap=0)
    with pytest.raises(ValueError, match="above 0"):
        Device("none", 0)


def test_more_overlap_never_hurts_and_never_beats_compute():
    rng = np.random.default_rng(5)
    for _ in range(30):
        model = model_of(*rng.integers(1, 50, rng.integers(1, 9)).tolist())
        speed = rng.choice([0.01, 0.3, 5.0])
        times = {
            order: step(model, UNIT, 1, lambda n, s=speed: n * s, first=1, cap=1, order=order)
            for order in ("ready", "layer")
        }
        serial = step(model, UNIT, 1, lambda n, s=speed: n * s, overlap=False)
        for result in times.values():
            assert result.compute <= result.total + 1e-9 <= serial.total + 2e-9
