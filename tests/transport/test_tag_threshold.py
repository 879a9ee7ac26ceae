"""Thresholds: the quantile by itself; the circuit over rounds of several tensors; large counts."""

import numpy as np
import pytest
from gradnic.hdl.transport.tag_threshold import Thresholds
from gradnic.models.transport.tag_threshold import N_BINS, NOTHING, Threshold, quantile
from gradnic.sim.engine import batch, stimulus

N_TENSORS = 3
CLEAR = N_TENSORS * N_BINS + 4  # cycles before anything is taken


def round_of(rng, kind, n=120):
    """(tensor, score, elems) of a round's packets; the last tensor has none in a quiet one."""
    tensor = rng.integers(0, N_TENSORS - (kind == "quiet"), n)
    score = {
        "ends": rng.choice([0, 255], n),
        "one": np.full(n, 77),
        "quiet": rng.integers(90, 100, n),
        "any": rng.integers(0, N_BINS, n),
    }[kind]
    elems = rng.choice([0, 1, 16, 336, 65535], n) if kind == "any" else rng.integers(1, 9, n)
    return tensor, score, elems


@pytest.mark.parametrize("use_histogram", [0, 1])
@pytest.mark.parametrize(("i", "o"), [(1, 1), (0.3, 1), (1, 0.1), (0.6, 0.2)])
def test_rounds_equal_golden(use_histogram, i, o):
    rng = stimulus.rng("tag threshold", use_histogram, i, o)
    unit = batch.Instance(batch.build(Thresholds(N_TENSORS)))
    unit.run(drain=False, max_cycles=CLEAR)
    golden = [Threshold() for _ in range(N_TENSORS)]
    for kind in ("any", "ends", "quiet", "one", "any", "quiet", "any"):
        told = {"use_histogram": use_histogram, "share": int(rng.choice([0, 1, 128, 255]))}
        if kind in ("quiet", "one") or not use_histogram:  # the host has its way
            which, value = int(rng.integers(N_TENSORS)), int(rng.choice([0, 77, 78, 200, NOTHING]))
            golden[which].value = value
            host = {"write_en": 1, "write_tensor": which, "write_value": value}
            unit.run(signals=told | host, reset=False, drain=False, max_cycles=1)
        told |= {"write_en": 0}
        packets = round_of(rng, kind)
        scores = unit.model.pack(
            "scores", **dict(zip(("tensor", "score", "elems"), packets, strict=True))
        )
        run = unit.run({"scores": scores}, signals=told, reset=False,
                       stalls={"scores": i, "reached": o})  # fmt: skip
        want = [
            golden[t].reached(s, e) for t, s, e in zip(*(x.tolist() for x in packets), strict=True)
        ]
        assert run.unpack("reached").tolist() == want
        over = rng.permutation(N_TENSORS)
        ends = unit.model.pack("ends", over)
        unit.run({"ends": ends}, signals=told, reset=False, stalls={"ends": i}, idle_cycles=700)
        for tensor in over:
            golden[tensor].end_round(told["share"] if use_histogram else None)


def test_a_score_takes_six_cycles():
    unit = batch.Instance(batch.build(Thresholds(N_TENSORS)))
    unit.run(drain=False, max_cycles=CLEAR)
    scores = unit.model.pack("scores", tensor=1, score=np.arange(40), elems=1)
    run = unit.run({"scores": scores}, reset=False)
    assert set(np.diff(run.taken["scores"]).tolist()) == {6}


def test_large_counts():
    """A histogram of a tensor with 2^28 elements: 4,096 packets of 65,535."""
    unit = batch.Instance(batch.build(Thresholds(1)))
    unit.run(drain=False, max_cycles=520, signals={"use_histogram": 1, "share": 64})
    score = np.arange(4096) % 256
    beats = unit.model.pack("scores", tensor=0, score=score, elems=65535)
    unit.run({"scores": beats}, reset=False)
    end = unit.run({"ends": unit.model.pack("ends", [0])}, reset=False, idle_cycles=700)
    assert 520 <= end.taken["ends"][0] <= 545
    asked = unit.model.pack("scores", tensor=0, score=np.arange(256), elems=0)
    got = unit.run({"scores": asked}, reset=False).unpack("reached")
    histogram = np.bincount(score, minlength=256) * 65535
    np.testing.assert_array_equal(got, np.arange(256) >= quantile(histogram, 64))


def test_quantile_weighs_elements():
    histogram = np.zeros(256, np.int64)
    histogram[[3, 90, 200]] = 1000, 500, 500
    assert quantile(histogram, 128) == 90
    assert quantile(histogram, 64) == 200
    assert quantile(histogram, 65) == 90
    assert quantile(histogram, 255) == 3
    assert quantile(histogram, 0) == quantile(histogram * 0, 128) == NOTHING
