"""Mutation campaign of the FIFO on block RAM: what its test must notice, and what it cannot."""

import numpy as np

from ..hdl.ring import BlockFIFO
from ..hdl.streams import Beat
from . import stimulus

SLOTS = 16
WIDTH = 16
LATENCY = 7


def component():
    """The circuit under mutation."""
    return BlockFIFO(Beat(WIDTH), SLOTS)


def test(model):
    """All beats, in order, under every kind of stall; rate, latency, and how much it holds."""
    generator = np.random.default_rng(1)
    data = np.concatenate(
        [stimulus.byte_corners(WIDTH // 8), generator.integers(0, 256, (90, WIDTH // 8), np.uint8)]
    )
    beats = model.pack("i", data=data, last=generator.integers(0, 2, len(data)))
    run = model.run({"i": beats})
    run.check(o=beats)
    assert np.array_equal(run.taken["i"], np.arange(len(beats))), "not at full rate"
    assert np.array_equal(run.taken["o"], run.taken["i"] + LATENCY), "another latency"
    instance, inside = model.instance(), set()
    for fresh in (True, False, False):  # as much again, once it was filled and drained
        stalls = {"o": stimulus.storm(60)}
        run = instance.run({"i": beats[:50]}, stalls=stalls, reset=fresh)
        run.check(o=beats[:50])
        inside.add(int(np.count_nonzero(run.taken["i"] < 60)))
    assert inside == {SLOTS + 8}, f"holds {inside} beats"
    for cycles in range(20, 28):
        run = model.run({"i": beats}, stalls={"o": stimulus.storm(cycles)})
        run.check(o=beats)
        assert np.array_equal(run.taken["o"], cycles + np.arange(len(beats))), "bubbles"
    for name, stalls in stimulus.stall_grid(["i"], ["o"]):
        if name != "storm":
            model.run({"i": beats}, stalls=stalls).check(o=beats)
    for pause in range(1, 12):  # one beat at a time, and two
        for few in ([1], [1, 1]):
            stalls = {"i": few + [0] * pause}
            run = model.run({"i": beats}, stalls=stalls)
            run.check(o=beats)
            assert (run.taken["o"] - run.taken["i"] == LATENCY).all(), "another latency"
            stalls = {"o": few + [0] * pause}
            run = model.run({"i": beats}, stalls=stalls)
            run.check(o=beats)
            assert np.ptp(run.taken["o"]) <= len(beats) * (pause + len(few)) // len(few), "slow"
    instance = model.instance()  # reset in mid-packet leaves nothing behind
    for cycles in (3, 9, 15, 40):
        instance.run({"i": beats}, stalls={"o": 0.3}, drain=False, max_cycles=cycles)
        instance.run({"i": beats[::-1]}, stalls={"o": 0.7}).check(o=beats[::-1])


EXPLAINED = {}
