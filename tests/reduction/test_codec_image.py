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
def _model(passes, wide=False):
    return batch.build(CodecImage(LANES, passes=passes, wide=wide))


def _floats(rng):
    """All signs and exponents with the mantissas that are next to the edge of a mask, and noise."""
    edges = np.array([0, 1, *(1 << np.arange(23)), *((1 << 23) - (1 << np.arange(23)))], np.uint32)
    corners = (np.arange(512, dtype=np.uint32)[:, None] << 23 | edges).reshape(-1)
    noise = rng.integers(0, 1 << 32, 1 << 14, np.uint32)
    return np.concatenate([corners, noise])[: (len(corners) + len(noise)) // LANES * LANES]


def _run(model, bits, i=1, o=1, fill=0, **codec):
    data = bits.reshape(-1, LANES).view(np.uint8).reshape(-1, 4 * LANES)
    last = np.arange(len(data)) % 3 == 2
    run = model.run(
        {"i": model.pack("i", data=data, last=last)},
        signals={"codec": encoding.pack(Codec, **codec)} | ({"fill": fill} if fill else {}), seed=4,
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


@pytest.mark.parametrize(("wide", "code", "kind", "most"), [
    (False, 0, "u1", 255), (True, 0, "u1", 255), (True, 1, ">u2", 4095), (True, 2, ">u2", 65535),
])  # fmt: skip
def test_what_is_filled_in_stops_at_the_largest_sum(wide, code, kind, most):
    """All sums of 8 bits; of more, those near the ends of a byte and of the code, and noise."""
    rng = stimulus.rng("filled", code)
    near = (np.arange(0, most + 1, 256)[:, None] + np.arange(-3, 4)).clip(0, most).reshape(-1)
    noise = rng.integers(0, most + 1, 4 * LANES * 200 - near.size)
    sums = np.concatenate([np.arange(256).repeat(8) if most == 255 else near, noise])
    sums = sums[: sums.size // (4 * LANES) * 4 * LANES].astype(kind)
    for fill in (1, 90, 127, *([300, 1000, 2047] if code else [])):
        _, found = _run(_model(True, wide), sums.view(np.uint32), fill=fill, code=code)
        want = np.minimum(sums.astype(int) + fill, most)
        assert (want == most).any()
        np.testing.assert_array_equal(found.view(kind), want)
