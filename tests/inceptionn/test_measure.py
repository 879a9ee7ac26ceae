"""Ratios and errors against hand-counted packets."""

import numpy as np
import pytest
from gradnic.models import inceptionn
from gradnic.models.inceptionn import measure


def test_ratios_of_hand_counted_packets():
    # 8 floats of every tag's size: 16 bits of tags; 0, 8, 16 and 32 bits a float
    x = np.repeat(np.float32([0, 2**-8, 2**-3, 3]), 2)
    result = measure.ratios(x)
    bits = 16 + 2 * (0 + 8 + 16 + 32)
    assert result["value_ratio"] == 256 / bits
    assert result["payload_ratio"] == 32 / (2 + 14)
    assert result["wire_ratio"] == (64 + 32 + 24) / (64 + 16 + 24)
    assert result["tag_shares"] == [0.25] * 4
    for kind in ("value", "payload", "wire"):
        assert result[f"bf16_{kind}_ratio"] == result[f"{kind}_ratio"] / 2


def test_last_group_and_last_packet_count():
    x = np.zeros(337, np.float32)
    result = measure.ratios(x)
    assert result["value_ratio"] == 16
    assert result["payload_ratio"] == 4 * 337 / (84 + 2)
    assert result["wire_ratio"] == (4 * 337 + 2 * 88) / (84 + 2 + 2 * 88)


def test_paper_framing_pads_short_frames():
    assert list(measure.frame_bytes([0, 17, 18, 19, 1344], head=42)) == [84, 84, 84, 85, 1410]


def test_wire_ratio_counts_the_units_that_are_sent():
    x = np.random.default_rng(5).laplace(0, 0.01, 5000).astype(np.float32)
    units = [inceptionn.compress(x[i : i + 336]) for i in range(0, x.size, 336)]
    wire = sum(max(64 + len(u), 60) + 24 for u in units)
    raw = 4 * x.size + 88 * len(units)
    assert measure.ratios(x)["wire_ratio"] == raw / wire


def test_fidelity():
    x = np.float32([3, -4, np.inf, np.nan])
    nmse, worst = measure.fidelity(x, np.float32([3, -3, np.inf, np.nan]))
    assert (nmse, worst) == (pytest.approx(1 / 25), 1)
    assert measure.fidelity(np.zeros(3), np.zeros(3)) == (0, 0)
    assert measure.fidelity(np.float32([3e38]), np.float32([1.5e38]))[0] == pytest.approx(0.25)
    with pytest.raises(ValueError, match=r"\(3,\) and \(1,\)"):
        measure.fidelity(np.zeros(3), np.zeros(1))


def test_stats_respect_the_bound():
    x = np.random.default_rng(6).laplace(0, 0.01, 5000).astype(np.float32)
    result = measure.inceptionn_stats(x, exponent=119, prescale=2)
    assert result["bound"] == 2**-10
    assert 0 < result["max_abs_error"] < result["bound"]
    assert 0 < result["nmse"] < 0.1
