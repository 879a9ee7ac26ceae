"""A queue whose user decides from flags: the beats two cycles later, in order, at full rate."""

import numpy as np
import pytest
from amaranth.hdl import Module
from amaranth.lib import stream, wiring
from amaranth.lib.wiring import In, Out
from gradnic.hdl.stream.credit_queue import DEPTH, CreditQueue
from gradnic.hdl.stream.delays import delayed_flag
from gradnic.sim.engine import batch, stimulus

WIDTH = 200  # more than one piece


class Taker(wiring.Component):
    """Takes what is at hand whenever ``may``; says when a beat's word is there."""

    i: In(stream.Signature(WIDTH))
    may: In(1)
    there: Out(1)
    word: Out(WIDTH)

    def elaborate(self, platform):
        m = Module()
        m.submodules.queue = queue = CreditQueue(WIDTH)
        wiring.connect(m, wiring.flipped(self.i), queue.i)
        m.d.comb += [
            queue.take.eq(queue.available & self.may),
            self.there.eq(delayed_flag(m, queue.take, 2)),
            self.word.eq(queue.word),
        ]
        return m


@pytest.fixture(scope="module")
def model():
    return batch.build(Taker())


@pytest.fixture
def beats():
    return stimulus.rng("late queue").integers(0, 256, (300, WIDTH // 8), np.uint8)


def words(run):
    """Words that were there, and the cycles in which they were."""
    there = np.flatnonzero(run.traces["there"])
    return run.traces["word"][there].reshape(len(there), -1).view(np.uint8)[:, : WIDTH // 8], there


@pytest.mark.parametrize("duty", [1.0, 0.5, 0.05])
@pytest.mark.parametrize("asked", [1.0, 0.5, 0.05])
def test_beats_come_in_order(model, beats, duty, asked):
    may = stimulus.rng("asked", asked).random(8000) < asked
    run = model.run(
        {"i": beats}, stalls={"i": duty}, signals={"may": may}, trace=("there", "word"),
        idle_cycles=2000, max_cycles=20_000,
    )  # fmt: skip
    got, cycles = words(run)
    np.testing.assert_array_equal(got, beats)
    if duty == asked == 1:
        assert (np.diff(cycles) == 1).all(), "not a beat per cycle"
        assert cycles[0] - run.taken["i"][0] == 5


def test_it_holds_as_many_beats_as_it_says(model, beats):
    run = model.run({"i": beats}, signals={"may": [0] * 400 + [1]}, trace=("there", "word"))
    assert np.count_nonzero(run.taken["i"] < 400) == DEPTH
    np.testing.assert_array_equal(words(run)[0], beats)
