"""The parts that the shells share, alone: sizer, register windows, reset handshake."""

from functools import cache

import numpy as np
import pytest
from gradnic.hdl.shells.fan import LiteFan
from gradnic.hdl.shells.resets import ResetHandshake
from gradnic.hdl.shells.sizer import Sizer
from gradnic.sim import batch, encoding, stimulus

N_BYTES = 4
DEPTH = 16  # beats


def rng_for(*key):
    return np.random.default_rng([stimulus.master_seed(), *key])


def some_frames(rng, n, longest):
    return [rng.bytes(int(rng.integers(1, longest * N_BYTES + 1))) for _ in range(n)]


@cache
def sizer():
    return batch.build(Sizer(N_BYTES, DEPTH, meta_width=8))


def frames_of(model, run):
    """[(bytes, {field: its values over the frame})] of all frames that left."""
    fields = run.unpack("o")
    frames = encoding.unpack_frames(model.streams["o"].shape, run.outputs["o"])
    parts = np.split(np.arange(len(fields["last"])), np.flatnonzero(fields["last"]) + 1)
    return [
        (f, {k: v[part] for k, v in fields.items()})
        for f, part in zip(frames, parts[:-1], strict=True)
    ]


def test_sizes_come_with_the_first_beat():
    rng, model = rng_for(3), sizer()
    frames = [*some_frames(rng, 80, DEPTH), *some_frames(rng, 40, 1)]
    frames += [rng.bytes(DEPTH * N_BYTES), rng.bytes(DEPTH * N_BYTES + 1), rng.bytes(1)]
    bad = rng.random(len(frames)) < 0.3
    bad[-1] = False
    meta = np.arange(len(frames)) & 255
    kept = [k for k, f in enumerate(frames) if not bad[k] and len(f) <= DEPTH * N_BYTES]
    for duty in (1, 0.4):
        i = model.pack_frames("i", frames, meta=meta, at_last={"bad": bad})
        run = model.run({"i": i}, stalls={"i": duty, "o": duty}, trace=["dropped"])
        back = frames_of(model, run)
        assert [f for f, _ in back] == [frames[k] for k in kept]
        for k, (frame, side) in zip(kept, back, strict=True):
            assert set(side["size"]) == {len(frame)}
            assert set(side["meta"]) == {meta[k]}
        assert int(np.sum(run.traces["dropped"])) == len(frames) - len(kept)


def test_windows():
    with pytest.raises(ValueError, match="n must be 1 to 16 windows of 4096 bytes, not 17"):
        LiteFan(17, inner_width=8)
    with pytest.raises(ValueError, match="not 0"):
        LiteFan(0, inner_width=8)

    with pytest.raises(ValueError, match="inner_width must be at most 12, not 13"):
        LiteFan(1, inner_width=13)


def test_reset_is_held_and_then_done():
    model = batch.build(ResetHandshake(5))
    rstn = [1, 1, 1, 0, 0, *[1] * 12]
    run = model.run(
        signals={"rstn": np.array(rstn)}, trace=["reset", "done"], drain=False, max_cycles=20
    )
    reset, done = np.asarray(run.traces["reset"]), np.asarray(run.traces["done"])
    held = np.flatnonzero(reset)
    assert len(held) == 2 + 5 - 1
    assert list(held) == list(range(held[0], held[-1] + 1))
    assert not done[: held[-1] + 1].any()
    assert done[held[-1] + 1 :].all()
