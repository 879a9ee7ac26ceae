"""Sizes of packets' values: in real numbers, and while they stream by."""

import numpy as np
import pytest
from gradnic.hdl.transport.tag_score import Scorer
from gradnic.models.transport.tag_score import code, max_score, sum_score
from gradnic.sim.engine import batch, stimulus


def packets(n_lanes, unit):
    """Values of packets of one beat to many: corners, and magnitudes around `unit`."""
    rng = stimulus.rng("scores", n_lanes, unit)
    corners = stimulus.float_corners().view(np.float32)
    made = [corners[k : k + 5 * n_lanes] for k in range(0, len(corners), 5 * n_lanes)]
    for n_beats in (1, 1, 2, 3, 7, 64 // n_lanes * 4):
        exponents = rng.integers(max(1, unit - 4), min(255, unit + 20), n_beats * n_lanes)
        bits = rng.integers(2, size=exponents.size) << 31 | exponents << 23
        bits |= rng.integers(1 << 23, size=exponents.size)
        made.append(bits.astype(np.uint32).view(np.float32))
    full = np.frombuffer(np.full(4096, 0x7F7FFFFF, np.uint32).tobytes(), np.float32)
    return [*made, full if n_lanes == 16 else full[:64]]


@pytest.mark.parametrize(
    ("n_lanes", "by_sum", "unit"), [(4, 0, 117), (4, 1, 117), (4, 1, 1), (4, 1, 254), (16, 1, 117)]
)
def test_scores(n_lanes, by_sum, unit):
    """Packets close behind each other, with cycles without a beat; each score at its latency."""
    made = packets(n_lanes, unit)
    beats, last = [], []
    for values in made:
        rows = np.zeros((-(-values.size // n_lanes), n_lanes), np.float32)
        rows.ravel()[: values.size] = values
        beats.append(rows.view(np.uint8))
        last += [0] * (len(rows) - 1) + [1]
    gaps = stimulus.rng("score gaps").random(len(last)) < 0.1
    at = 1 + np.arange(len(last)) + np.cumsum(gaps)  # the first cycle stands during reset
    part = Scorer(n_lanes)
    n = at[-1] + part.latency + 2
    push, ends = np.zeros((2, n), int)
    data = np.full((n, 4 * n_lanes), 0xFF, np.uint8)  # what is not pushed does not count
    push[at], ends[at], data[at] = 1, last, np.concatenate(beats)
    run = batch.build(part).run(
        {},
        signals={"push": push, "last": ends, "data": data, "by_sum": by_sum, "unit": unit},
        trace=["done", "score"],
        drain=False,
        max_cycles=n,
    )
    done = np.flatnonzero(run.traces["done"])
    np.testing.assert_array_equal(done, np.flatnonzero(ends) + part.latency)
    golden = [sum_score(values, unit) if by_sum else max_score(values) for values in made]
    assert run.traces["score"][done].tolist() == golden


def test_max_score_is_the_largest_exponent():
    bits = stimulus.float_corners()
    for word in bits[::97]:
        value = np.array([0, word], np.uint32).view(np.float32)
        assert max_score(value) == int(word) >> 23 & 255
    assert max_score([]) == 0


@pytest.mark.parametrize("unit", [100, 127, 0, 255])
def test_sum_score_follows_the_real_sum(unit):
    rng = np.random.default_rng(unit)
    for _ in range(200):
        x = rng.standard_normal(336) * 2.0 ** rng.integers(-20, 14)
        x = x.astype(np.float32)
        whole = np.minimum(np.floor(np.abs(x.astype(np.float64)) / 2.0 ** (unit - 127)), 65535)
        score = sum_score(x, unit)
        low, high = (
            code(int(whole.sum() * (1 - 2**-15)) - 1 if whole.sum() > 1 else 0),
            code(int(whole.sum())),
        )
        assert low <= score <= high
    odd = np.array([np.inf, np.nan, 1e-40, 0], np.float32)
    assert sum_score(odd, 127) == code(2 * 65535)


def test_code_is_monotonous_and_fits():
    values = [*range(5000), *(2**k + d for k in range(12, 28) for d in (-1, 0, 1))]
    codes = [code(v) for v in sorted(values)]
    assert codes == sorted(codes)
    assert codes[-1] < 256
    assert [code(v) for v in (0, 7, 8, 15, 16, 2**27)] == [0, 7, 8, 15, 16, 200]
