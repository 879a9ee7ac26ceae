"""The conv net and the transformer: their vectors, their gradients, and that they learn."""

import numpy as np
import pytest

pytest.importorskip("torch", reason="needs gradnic[train]")

from gradnic.sim.training import run, torch_networks

TASKS = {"conv": torch_networks.CONV_NET, "transformer": torch_networks.TRANSFORMER}


@pytest.mark.parametrize("name", TASKS)
def test_a_step_down_the_gradient_lowers_the_loss(name):
    """Also: the vector is the network, and the sum's gradient is the mean's times the batch."""
    task = TASKS[name]
    inputs, labels = (rows[:8] for rows in task.data())
    network, twin = task.network(3), task.network(3)
    before = network.parameters
    np.testing.assert_array_equal(before, twin.parameters)
    assert before.size == sum(int(np.prod(shape)) for shape in network.shapes)
    gradient, loss = network.gradient(inputs, labels)
    summed, _ = network.gradient(inputs, labels, loss="sum")
    np.testing.assert_allclose(summed, 8 * gradient, rtol=1e-3, atol=1e-5)
    network.parameters = before - np.float32(0.01) * gradient
    step = np.abs(network.parameters - before).max()
    assert step == pytest.approx(0.01 * np.abs(gradient).max(), rel=1e-3)
    slope = float(np.square(gradient, dtype=np.float64).sum())
    after = network.gradient(inputs, labels)[1]
    assert after == pytest.approx(loss - 0.01 * slope, abs=0.005 * slope + 1e-4)


def test_text_windows_follow_each_other():
    inputs, labels = torch_networks.load_text()
    assert inputs.shape == labels.shape
    np.testing.assert_array_equal(inputs[:, 1:], labels[:, :-1])


def test_the_conv_net_learns(monkeypatch):
    """A quarter of an epoch, with losses in its back layers: far above guessing."""
    task = torch_networks.Task(torch_networks.load_images, torch_networks.conv_net, 1000)
    options = {"loss": 0.3, "region": "back"}
    rows = run.run("regional", epochs=2, rate=0.05, task=task, options=options)
    assert rows[-1].accuracy > 0.5
    assert 0 < rows[-1].nmse < 0.3
