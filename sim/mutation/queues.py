"""What the campaigns of the two FIFOs play: order, rate, latency, capacity, stalls, resets."""

import numpy as np

from ..engine import stimulus


def test(model, width, *, latency, holds, pauses):
    """A queue of `Beat(width)` keeps all beats, at full rate, with the stated latency and capacity.

    latency : cycles from a beat taken to its offer. holds : beats inside while the output stalls.
    pauses : beats inside from which on it may wait though it is not full.
    """
    generator = np.random.default_rng(1)
    data = np.concatenate(
        [stimulus.byte_corners(width // 8), generator.integers(0, 256, (90, width // 8), np.uint8)]
    )
    beats = model.pack("i", data=data, last=generator.integers(0, 2, len(data)))

    def play(**stalls):
        run = model.run({"i": beats}, stalls=stalls)
        run.check(o=beats)
        return run

    run = play()
    assert (np.diff(run.taken["i"]) == 1).all(), "not at full rate"
    assert np.array_equal(run.taken["o"], run.taken["i"] + latency), "another latency"
    instance = model.instance()
    for fresh in (True, False, False):  # as much again, once it was filled and drained
        stalls, few = {"o": stimulus.storm(4 * holds)}, beats[: 2 * holds]
        run = instance.run({"i": few}, stalls=stalls, reset=fresh)
        run.check(o=few)
        inside = run.taken["i"][run.taken["i"] < 4 * holds]
        assert len(inside) == holds, f"holds {len(inside)} beats"
        assert np.ptp(inside) == holds - 1, "pauses before it is full"
    for pause in (1, 2, 3):  # it fills with pauses, too
        storm = (pause + 1) * (holds + 2)
        run = play(i=[1] + [0] * pause, o=stimulus.storm(storm))
        n_inside = int((run.taken["i"] < storm).sum())
        assert n_inside == holds, f"holds {n_inside} beats of those that came with pauses"
        assert (np.diff(run.taken["i"][1:holds]) == pause + 1).all(), "pauses before it is full"
    for few in (2, 3):  # at any level it takes what it has room for
        for first in range(few + 1):
            offers = ([0] + [1] * first + [0] + ([1] * few + [0]) * holds)[: 3 * holds]
            run = play(i=(offers, 1), o=stimulus.storm(3 * holds))
            taken = run.taken["i"][:holds]
            assert np.array_equal(taken, np.flatnonzero(offers)[:holds]), "pauses before it is full"
    for cycles in range(20, 28):  # a mutant lost a cycle after each stall of odd length
        run = play(o=stimulus.storm(cycles))
        assert np.array_equal(run.taken["o"], cycles + np.arange(len(beats))), "bubbles"
    for few in range(1, pauses):  # at any level, beats come and go at once
        start = [1] * few + [0] * 20
        for late in (0, 1, 2):
            run = play(i=(start + [0] * late, 1), o=([0] * len(start), 1))
            assert (np.diff(run.taken["i"][few:]) == 1).all(), "pauses though it is not full"
    for name, stalls in stimulus.stall_grid(["i"], ["o"]):
        if name != "storm":
            play(**stalls)
    for pause in range(1, 12):
        for few in ([1], [1, 1]):
            run = play(i=few + [0] * pause)
            assert (run.taken["o"] - run.taken["i"] == latency).all(), "another latency"
            run = play(o=few + [0] * pause)
            assert np.ptp(run.taken["o"]) <= len(beats) * (pause + len(few)) // len(few), "slow"
    for _ in range(20):  # each beat leaves as soon as it may, whatever came and went before
        offers, ready = generator.integers(0, 2, (2, 300))
        run = play(i=(offers, 1), o=(ready, 1))
        now = -1
        for came, left in zip(run.taken["i"], run.taken["o"], strict=True):
            now = max(came + latency, now + 1)
            while now < len(ready) and not ready[now]:
                now += 1
            assert left == now, "a bubble"
    instance = model.instance()  # reset in mid-packet leaves nothing behind
    for cycles in (3, 5, 8, 13, 40):
        instance.run({"i": beats}, stalls={"o": 0.3}, drain=False, max_cycles=cycles)
        instance.run({"i": beats[::-1]}, stalls={"o": 0.7}).check(o=beats[::-1])
    for cycles in (1, 2, 3, 5):  # nor a beat that it counts
        instance.run({"i": beats}, stalls={"o": 0}, drain=False, max_cycles=cycles)
        run = instance.run({"i": beats}, stalls={"o": stimulus.storm(4 * holds)})
        run.check(o=beats)
        n_inside = int((run.taken["i"] < 4 * holds).sum())
        assert n_inside == holds, f"holds {n_inside} beats after a reset"
