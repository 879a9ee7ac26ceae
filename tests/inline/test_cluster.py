"""The cluster's own parts: the wire's timing, and that a card which does nothing is found out."""

import numpy as np
import pytest
from gradnic.models.inline.ring import Framing
from gradnic.sim.inline import ring as cluster
from gradnic.sim.inline.idle_card import IdleCard


@pytest.fixture(scope="module")
def idle():
    return cluster.build(IdleCard(4), "idle4")


@pytest.fixture(scope="module")
def gradients():
    rng = np.random.default_rng(11)
    return (rng.standard_normal((3, 2000)) * 0.02).astype(np.float32)


def test_uncoded_ring_of_idle_cards_is_exact(idle, gradients):
    result = cluster.cosim(gradients, idle, codec="none")
    assert result.ok
    assert result.mismatches == 0
    assert result.frames == 3 * 4 * 2  # 3 workers, 4 steps, 672 floats in 2 frames
    assert result.wire_bytes == result.raw_bytes == 3 * 4 * (2 * (42 + 24) + 4 * 672)
    assert len(result.step_cycles) == 4


def test_idle_cards_are_found_out_where_frames_should_be_coded(idle, gradients):
    result = cluster.cosim(gradients, idle)
    assert not result.ok
    assert not result.bit_exact
    assert result.mismatches > 0
    assert result.first.startswith("step 1, on the wire of worker 0: frame 0 is 1386 bytes, not")


def test_a_slow_wire_takes_its_time(idle, gradients):
    fast = cluster.cosim(gradients, idle, codec="none")
    slow = cluster.cosim(gradients, idle, codec="none", link_bytes=2)
    assert slow.ok
    per_step = slow.wire_bytes / 3 / 4 / 2
    assert fast.cycles < slow.cycles
    for cycles in slow.step_cycles:
        assert per_step - 16 < cycles < per_step + 30


def test_arrivals_by_hand():
    frames = [b"a" * 64, b"b" * 42, b"c" * 33]
    taken = np.array([5, 6, 7, 8, 9, 10])
    np.testing.assert_array_equal(cluster.arrivals(frames, taken, 32, 0), taken)
    # 8 preamble + 32, + 32 more, then 24 + 64 bytes in all before the next begins
    due = cluster.arrivals(frames, taken, 32, 8)
    np.testing.assert_array_equal(due, [10, 14, 21, 23, 32, 33])


def test_wire_bytes_of_short_and_long_frames():
    assert [cluster.wire_bytes(b"x" * n) for n in (42, 60, 61, 1386)] == [84, 84, 85, 1410]


@pytest.mark.parametrize(
    ("setting", "words"),
    [({"codec": "zip"}, "'zip'"), ({"exponent": 200}, "200"), ({"link_bytes": -1}, "-1")],
)
def test_settings_out_of_range_are_refused(idle, gradients, setting, words):
    with pytest.raises(ValueError, match=words):
        cluster.cosim(gradients, idle, **setting)


def test_floats_a_frame_are_the_framings(idle, gradients):
    result = cluster.cosim(gradients, idle, codec="none", n_floats=48)
    assert result.ok
    assert result.frames == 3 * 4 * 14
    assert len(Framing(n_floats=48).frames(gradients[0, :672], 0, 1)) == 14
