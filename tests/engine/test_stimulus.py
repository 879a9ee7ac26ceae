"""Stimulus: seeds are independent and repeat, corners sit where they must."""

import numpy as np
import pytest
from gradnic.sim.engine import stimulus


def test_seeds(monkeypatch):
    monkeypatch.setenv("GRADNIC_SEED", "7")
    one = stimulus.rng("a", 1).integers(0, 1 << 32, 8)
    np.testing.assert_array_equal(one, stimulus.rng("a", 1).integers(0, 1 << 32, 8))
    assert (one != stimulus.rng("a", 2).integers(0, 1 << 32, 8)).any()
    seed = stimulus.seed_for("a")
    monkeypatch.setenv("GRADNIC_SEED", "8")
    assert (one != stimulus.rng("a", 1).integers(0, 1 << 32, 8)).any()
    assert seed != stimulus.seed_for("a")
    assert 0 <= seed < 1 << 31


@pytest.mark.parametrize("text", ["-1", "x", str(1 << 31)])
def test_seed_refuses(monkeypatch, text):
    monkeypatch.setenv("GRADNIC_SEED", text)
    with pytest.raises(ValueError, match=f"not '{text}'"):
        stimulus.master_seed()


def test_float_corners():
    bits = stimulus.float_corners()
    values = bits.view(np.float32)
    assert np.isnan(values).any()
    assert {0, 1 << 31, 0x7F800000, 0xFF800000, 1, 0x7F7FFFFF, 0x3F800000} <= set(bits.tolist())
    assert len(bits) == 256 * 268
    exponents, counts = np.unique(bits >> 23 & 255, return_counts=True)
    assert exponents.tolist() == list(range(256))
    assert len(set(counts)) == 1
    assert set(stimulus.float_corners([117]) >> 23 & 255) == {117}
    with pytest.raises(ValueError, match=r"within 0..255, not \[256\]"):
        stimulus.float_corners([256])


def test_float_noise_is_aimed():
    bits = stimulus.float_noise(10_000, np.random.default_rng(1), center=117, spread=3)
    near = np.abs((bits >> 23 & 255).astype(int) - 117) <= 3
    assert 0.9 < near.mean() < 1


def test_lengths_bytes_and_stalls():
    lengths = stimulus.length_corners(64, 1514, smallest=60)
    assert {60, 61, 63, 64, 65, 127, 128, 129, 1513, 1514} <= set(lengths)
    assert lengths == sorted(set(lengths))
    with pytest.raises(ValueError, match=r"smallest must be within 1..5, not 6"):
        stimulus.length_corners(4, 5, smallest=6)
    rows = stimulus.byte_corners(2)
    assert rows.shape == (4 + 16, 2)
    assert (rows[4:].view("<u2")[:, 0] == 1 << np.arange(16)).all()
    grid = stimulus.stall_grid(["a"], ["b"])
    assert [stalls for name, stalls in grid if name == "full"] == [{"a": 1, "b": 1}]
    (storm,) = [stalls["b"] for name, stalls in grid if name == "storm"]
    assert len(storm[0]) == 10_000
    assert not storm[0].any()


def test_gradients_are_real():
    real = stimulus.gradients(1)
    assert real.shape == (4, 235_146)
    assert real.dtype == np.float32
    assert not real.flags.writeable
    assert (real[0] != real[1]).any()
