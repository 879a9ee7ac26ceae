"""The network that makes gradients: right, repeatable, and of the scale that its loss names."""

import numpy as np
import pytest
from gradnic.models import inceptionn
from gradnic.sim.training import network as training


def test_gradient_is_the_slope_of_the_loss():
    rng = np.random.default_rng(3)
    network = training.Network((6, 5, 4, 3), seed=1)
    images = rng.standard_normal((7, 6)).astype(np.float32)
    labels = rng.integers(0, 3, 7)
    gradient, _ = network.gradient(images, labels)
    start = network.parameters.astype(np.float64)
    for i in range(start.size):
        losses = []
        for step in (1e-5, -1e-5):
            network.parameters = start.copy()
            network.parameters[i] += step
            losses.append(network.gradient(images.astype(np.float64), labels)[1])
        assert abs((losses[0] - losses[1]) / 2e-5 - gradient[i]) < 1e-4


def test_gradients_repeat_and_differ_between_workers():
    first, _ = training.train([2], n_workers=3, batch=8)
    again, _ = training.train([1, 2], n_workers=3, batch=8)
    np.testing.assert_array_equal(first[2], again[2])
    assert first[2].shape == (3, 235146)
    assert first[2].dtype == np.float32
    assert not np.array_equal(first[2][0], first[2][1])


def test_sum_loss_is_the_batch_times_the_mean_loss():
    mean, _ = training.train([3], batch=25)
    total, _ = training.train([3], batch=25, loss="sum")
    np.testing.assert_allclose(total[3], 25 * mean[3], rtol=1e-3, atol=1e-6)


def test_training_learns_and_gradients_have_the_published_profile():
    """Shares of the tags near those of the anchors (a small numpy model of the same network)."""
    kept, network = training.train([1, 200])
    images, labels = training.load_images()
    assert network.accuracy(images[4000:], labels[4000:]) > 0.91
    for iteration, scale, zeros in [(1, 1, 0.37), (200, 1, 0.90), (1, 25, 0.03), (200, 25, 0.41)]:
        tags = inceptionn.tags(kept[iteration] * np.float32(scale))
        assert abs(np.mean(tags == 0) - zeros) < 0.15


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ({"iterations": []}, "iterations"),
        ({"iterations": [0]}, r"not \[0\]"),
        ({"iterations": [1], "n_workers": 0}, "not 0 "),
        ({"iterations": [1], "n_workers": 200}, "not 200 "),
        ({"iterations": [1], "loss": "max"}, "not 'max'"),
    ],
)
def test_arguments_out_of_range_are_refused(arguments, words):
    with pytest.raises(ValueError, match=words):
        training.train(**arguments)
