"""Mutation campaign of the small FIFO: what its test must notice, and what it cannot."""

import numpy as np
from gradnic.hdl.fifo import FIFO
from gradnic.hdl.streams import Beat

from . import stimulus

DEPTH = 4
WIDTH = 32


def component():
    """The circuit under mutation."""
    return FIFO(Beat(WIDTH), DEPTH)


def test(model):
    """All beats, in order, under every kind of stall, at full rate, with the stated latency."""
    generator = np.random.default_rng(1)
    data = np.concatenate(
        [stimulus.byte_corners(WIDTH // 8), generator.integers(0, 256, (60, WIDTH // 8), np.uint8)]
    )
    beats = model.pack("i", data=data, last=generator.integers(0, 2, len(data)))
    run = model.run({"i": beats})
    run.check(o=beats)
    assert np.array_equal(run.taken["i"], np.arange(len(beats))), "not at full rate"
    assert np.array_equal(run.taken["o"], run.taken["i"] + 2), "latency is not 2"
    # It holds depth beats and the output register's one, without a pause, and so it does again
    # once it was filled and drained.
    instance = model.instance()
    for fresh in (True, False):
        full = {"stalls": {"o": stimulus.storm(20)}, "reset": fresh}
        run = instance.run({"i": beats[:12]}, **full)
        run.check(o=beats[:12])
        assert np.array_equal(run.taken["i"][: DEPTH + 1], np.arange(DEPTH + 1)), "holds less"
        assert run.taken["i"][DEPTH + 1] > 20, "holds more"
    for cycles in (20, 21):  # a mutant lost a cycle after each stall of odd length
        run = model.run({"i": beats}, stalls={"o": stimulus.storm(cycles)})
        run.check(o=beats)
        assert np.array_equal(run.taken["o"], cycles + np.arange(len(beats))), "bubbles"
    for name, stalls in stimulus.stall_grid(["i"], ["o"]):
        if name != "storm":
            model.run({"i": beats}, stalls=stalls).check(o=beats)
    instance = model.instance()  # reset in mid-packet leaves nothing behind
    for cycles in (3, 5, 8, 13):
        instance.run({"i": beats}, stalls={"o": 0.3}, drain=False, max_cycles=cycles)
        instance.run({"i": beats[::-1]}, stalls={"o": 0.7}).check(o=beats[::-1])
