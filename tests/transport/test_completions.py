"""Events wait for the writes before them, in order, and no longer."""

import numpy as np
from gradnic.hdl.transport.completions import N_WRITES, Completions
from gradnic.sim.engine import batch


def test_events_wait_for_their_writes():
    model = batch.build(Completions())
    rng = np.random.default_rng(1)
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
    run.check(events=model.pack("events", chunk[event == 1]))
    known = at[np.maximum(np.cumsum(written) - 1, 0)]  # when an entry's last write was stored
    due = known[(event == 1) & (written == 1)]
    came = run.taken["events"][written[event == 1] == 1]
    assert (came >= due + 3).all()
    assert (came[-20:] == due[-20:] + 3).mean() > 0.5  # others wait their turn
    assert run.taken["entries"][N_WRITES + 2 :].min() > at[0]  # no more than so many are held
