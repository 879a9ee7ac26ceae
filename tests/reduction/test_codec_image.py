"""The codec image, a mask on floats, against the golden model's; and rounds that are not coded."""

from functools import cache

import numpy as np
import pytest
from gradnic.hdl.reduction.codec import Codec
from gradnic.hdl.reduction.codec_image import CodecImage
from gradnic.models import inceptionn
from gradnic.sim.engine import batch, encoding, stimulus

LANES = 8


@cache
def _model(passes):
    return batch.build(CodecImage(LANES, passes=passes))


def _floats(rng):
    """All signs and exponents with the mantissas that are next to the edge of a mask, and noise."""
    edges = np.array([0, 1, *(1 << np.arange(23)), *((1 << 23) - (1 << np.arange(23)))], np.uint32)
    corners = (np.arange(512, dtype=np.uint32)[:, None] << 23 | edges).reshape(-1)
    noise = rng.integers(0, 1 << 32, 1 << 14, np.uint32)
    return np.concatenate([corners, noise])[: (len(corners) + len(noise)) // LANES * LANES]


def _run(model, bits, i=1, o=1, **codec):
    data = bits.reshape(-1, LANES).view(np.uint8).reshape(-1, 4 * LANES)
    last = np.arange(len(data)) % 3 == 2
    run = model.run(
        {"i": model.pack("i", data=data, last=last)},
        signals={"codec": encoding.pack(Codec, **codec)}, seed=4,
        stalls={"i": (np.zeros(8), i), "o": o},  # until the settings have come through
    )  # fmt: skip
    found = run.unpack("o")
    np.testing.assert_array_equal(found["last"], last)
    return run, np.ascontiguousarray(found["data"]).view(np.uint32).reshape(-1)


@pytest.mark.parametrize("paper", [0, 1])
@pytest.mark.parametrize(("exponent", "prescale"), [(113, 0), (117, 0), (120, 9), (126, -40)])
def test_image(exponent, prescale, paper):
    bits = _floats(stimulus.rng("image", exponent))
    want = inceptionn.image(
        bits.view(np.float32), exponent=exponent, prescale=prescale,
        mode=("strict", "paper")[paper],
    )  # fmt: skip
    codec = {"coded": 1, "exponent": exponent, "prescale": prescale & 0xFF, "paper": paper}
    run, found = _run(_model(True), bits, **codec)
    np.testing.assert_array_equal(found, want.view(np.uint32))
    assert np.ptp(np.diff(run.taken["o"])) == 0  # a beat each cycle


@pytest.mark.parametrize(("i", "o"), [(1, 0.3), (0.2, 1), (0.6, 0.6)])
def test_image_with_stalls(i, o):
    bits = _floats(stimulus.rng("stalls"))
    codec = {"coded": 1, "exponent": 117, "prescale": 3}
    want = inceptionn.image(bits.view(np.float32), exponent=117, prescale=3)
    for passes in (False, True):
        _, found = _run(_model(passes), bits, i, o, **codec)
        np.testing.assert_array_equal(found, want.view(np.uint32))


def test_what_is_not_coded_passes():
    bits = _floats(stimulus.rng("passes"))
    run, found = _run(_model(True), bits, exponent=117)
    np.testing.assert_array_equal(found, bits)
    np.testing.assert_array_equal(run.taken["o"], run.taken["i"] + 2)
