"""The way out of a card at a narrow port: whole frames, own ones that wait, none that is bad."""

import numpy as np
import pytest
from gradnic.hdl.offload.port_exit import PortExit
from gradnic.sim.engine import batch

N_BYTES, PORT_BYTES, OWN_BEATS, N_FRAMES = 16, 4, 10, 3


@pytest.mark.parametrize(("i", "o"), [(1, 1), (0.5, 1), (1, 0.3)])
def test_one_store_makes_its_source_wait(i, o):
    """Without queues: all but the bad ones leave, in order, however slow the line is."""
    model = batch.build(
        PortExit(N_BYTES, PORT_BYTES, meta_width=4, own_beats=OWN_BEATS, n_frames=N_FRAMES)
    )
    rng = np.random.default_rng(5)
    sizes = rng.integers(64, N_BYTES * OWN_BEATS + 1, (2, 200))
    own, host = ([bytes([k]) + rng.bytes(int(n) - 1) for n in s] for k, s in enumerate(sizes))
    bad = rng.integers(0, 5, 200) == 0
    inputs = {
        "own": model.pack_frames("own", own, at_last={"bad": bad}),
        "host": model.pack_frames("host", host, meta=7),
    }
    run = model.run(inputs, stalls={"host": i, "mac": o})
    frames, told = run.frames("mac"), run.unpack("mac")
    assert [f for f in frames if f[0] == 0] == [f for f, no in zip(own, bad, strict=True) if not no]
    assert [f for f in frames if f[0] == 1] == host
    metas = told["meta"][told["last"] == 1].tolist()
    assert metas == [7 * frame[0] for frame in frames]
    assert run.taken["own"][-1] > 2 * len(inputs["own"])  # a line of a quarter
