"""Events wait for the writes before them, in order, and no longer."""

import numpy as np
import pytest
from gradnic.hdl.transport.completions import N_WRITES, Completions
from gradnic.models.transport.completions import events
from gradnic.sim.engine import batch, stimulus


def test_events_wait_for_their_writes():
    model = batch.build(Completions())
    rng = stimulus.rng("completions")
    n = 300
    written, event = rng.integers(0, 2, n), rng.integers(0, 2, n)
    chunk = rng.integers(0, 8192, n)
    beats = model.pack("entries", written=written, event=event, chunk=chunk)
    n_stored = int(written.sum())
    pulses = np.zeros(4000, int)
    at = np.sort(rng.choice(np.arange(400, 4000), n_stored, replace=False))
    pulses[at] = 1
    run = model.run({"entries": beats}, signals={"stored": [*pulses, 0]}, drain=False,
                    max_cycles=4100)  # fmt: skip
    golden = np.array(events(written, event, chunk, at))
    run.check(events=model.pack("events", golden[:, 1]))
    due, own = golden[:, 0], written[event == 1] == 1
    came = run.taken["events"]
    assert (came >= due + 3).all()
    assert (came[own][-20:] == due[own][-20:] + 3).mean() > 0.5  # others wait their turn
    assert run.taken["entries"][N_WRITES + 2 :].min() > at[0]  # no more than so many are held


def test_times_must_fit():
    assert events([0, 1, 1, 0], [1, 0, 1, 1], [7, 8, 8, 9], [20, 30]) == [(0, 7), (30, 8), (30, 9)]
    with pytest.raises(ValueError, match="stored must have 1 times, not 2"):
        events([1], [1], [3], [20, 30])
