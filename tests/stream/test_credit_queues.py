"""A queue whose user decides from flags: the beats two cycles later, in order, at full rate."""

import numpy as np
import pytest
from amaranth.hdl import Module, Signal
from amaranth.lib import stream, wiring
from amaranth.lib.wiring import In, Out
from gradnic.hdl.stream.admission import credit
from gradnic.hdl.stream.credit_queue import DEPTH, CreditQueue
from gradnic.hdl.stream.delays import delayed_flag
from gradnic.sim.engine import batch, stimulus

WIDTH = 200  # more than one piece


class Taker(wiring.Component):
    """Takes what is at hand whenever ``may``; says when a beat's word is there. It counts itself if
    the queue does not.
    """

    i: In(stream.Signature(WIDTH))
    may: In(1)
    there: Out(1)
    word: Out(WIDTH)

    def __init__(self, queue):
        self.queue = queue
        super().__init__()

    def elaborate(self, platform):
        m = Module()
        m.submodules.queue = queue = self.queue
        room, enters = Signal(), queue.i.valid
        if queue.never_full:
            m.d.comb += room.eq(credit(m, queue.depth, take=enters, give=queue.take))
            stored = credit(m, queue.depth, take=queue.take, give=enters, none=True, name="stored")
        else:
            m.d.comb += room.eq(queue.i.ready)
            stored = queue.available
        m.d.comb += [
            self.i.ready.eq(room),
            enters.eq(self.i.valid & room),
            queue.i.p.eq(self.i.p),
            queue.take.eq(stored & self.may),
            self.there.eq(delayed_flag(m, queue.take, 2)),
            self.word.eq(queue.word),
        ]
        return m


@pytest.fixture(scope="module", params=[(DEPTH, False), (DEPTH, True), (64, True)])
def built(request):
    depth, never_full = request.param
    queue = CreditQueue(WIDTH, depth, never_full=never_full)
    return batch.build(Taker(queue)), queue


@pytest.fixture
def beats():
    return stimulus.rng("late queue").integers(0, 256, (300, WIDTH // 8), np.uint8)


def words(run):
    """Words that were there, and the cycles in which they were."""
    there = np.flatnonzero(run.traces["there"])
    return run.traces["word"][there].reshape(len(there), -1).view(np.uint8)[:, : WIDTH // 8], there


@pytest.mark.parametrize("duty", [1.0, 0.5, 0.05])
@pytest.mark.parametrize("asked", [1.0, 0.5, 0.05])
def test_beats_come_in_order(built, beats, duty, asked):
    model, queue = built
    may = stimulus.rng("asked", asked).random(8000) < asked
    run = model.run(
        {"i": beats}, stalls={"i": duty}, signals={"may": may}, trace=("there", "word"),
        idle_cycles=2000, max_cycles=20_000,
    )  # fmt: skip
    got, cycles = words(run)
    np.testing.assert_array_equal(got, beats)
    if duty == asked == 1:
        assert (np.diff(cycles) == 1).all(), "not a beat per cycle"
        assert cycles[0] - run.taken["i"][0] == (4 if queue.never_full else 5)


def test_it_holds_as_many_beats_as_it_says(built, beats):
    model, queue = built
    run = model.run({"i": beats}, signals={"may": [0] * 400 + [1]}, trace=("there", "word"))
    assert np.count_nonzero(run.taken["i"] < 400) == queue.depth
    np.testing.assert_array_equal(words(run)[0], beats)
