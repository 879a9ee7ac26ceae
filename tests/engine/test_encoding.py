"""Beats as arrays: equal to Amaranth's own packing, and whole frames in and out."""

import numpy as np
import pytest
from amaranth.hdl import Const, signed
from amaranth.lib import data
from gradnic.hdl.stream.beats import Beat, FrameBeat
from gradnic.sim.engine.encoding import n_bytes, pack, pack_frames, unpack, unpack_frames

SHAPE = data.StructLayout(
    {
        "count": 16,
        "exponent": 7,
        "paper": 1,
        "prescale": signed(8),
        "odd": 13,
        "wide": 70,
        "last": 1,
    }
)


def test_pack_equals_amaranth():
    rng = np.random.default_rng(1)
    n = 50
    wide = rng.integers(0, 256, (n, 9), np.uint8)
    wide[:, 8] &= 0x3F
    values = {
        "count": rng.integers(0, 1 << 16, n),
        "exponent": rng.integers(0, 1 << 7, n),
        "paper": rng.integers(0, 2, n),
        "prescale": np.concatenate([[-128, 127, -1], rng.integers(-128, 128, n - 3)]),
        "odd": rng.integers(0, 1 << 13, n),
        "last": rng.integers(0, 2, n),
    }
    beats = pack(SHAPE, wide=wide, **values)
    for i in range(n):
        row = {name: int(column[i]) for name, column in values.items()}
        row["wide"] = int.from_bytes(wide[i].tobytes(), "little")
        bits = Const(row, SHAPE).as_value().value
        assert beats[i].tobytes() == bits.to_bytes(n_bytes(SHAPE), "little")
    fields = unpack(SHAPE, beats)
    assert set(fields) == {*values, "wide"}
    for name, column in values.items():
        np.testing.assert_array_equal(fields[name], column)
    np.testing.assert_array_equal(fields["wide"], wide)


def test_plain_payloads_and_lanes():
    np.testing.assert_array_equal(pack(9, np.array([1, 511])), [[1, 0], [255, 1]])
    np.testing.assert_array_equal(unpack(signed(3), pack(signed(3), np.array([-4, 3]))), [-4, 3])
    lanes = np.array([[1.0, -2.0, 0.5, 0.0]], np.float32)
    beats = pack(Beat(128), data=lanes, last=1)
    assert beats[0, :16].tobytes() == lanes.tobytes()
    assert beats[0, 16] == 1


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"count": [70000]}, "field 'count' must be within 0..65535, not 70000"),
        ({"prescale": [-129]}, "field 'prescale' must be within -128..127, not -129"),
        ({"wide": [1]}, "field 'wide' of 70 bits takes rows of 9 bytes"),
        ({"wide": np.full((1, 9), 255, np.uint8)}, "field 'wide' has 70 bits, not more"),
        ({"wide": np.zeros((1, 8), np.uint8)}, "field 'wide' takes 9 bytes a beat, not 8"),
        ({"count": [0.5]}, "field 'count' takes integers, not float64"),
        ({"count": [1, 2], "odd": [1, 2, 3]}, r"fields differ in length: \[2, 3\]"),
        ({"size": [1]}, r"not \['size'\]"),
    ],
)
def test_pack_refuses(fields, message):
    with pytest.raises(ValueError, match=message):
        pack(SHAPE, **fields)


@pytest.mark.parametrize("lane", [1, 4, 8, 64])
def test_frames_there_and_back(lane):
    rng = np.random.default_rng(lane)
    shape = FrameBeat(lane, meta_width=5)
    frames = [rng.bytes(n) for n in (1, lane, lane + 1, 2 * lane - 1 or 1, 60, 1514)]
    beats = pack_frames(shape, frames, at_last={"bad": [0, 1, 0, 0, 0, 1]}, meta=np.arange(6))
    assert unpack_frames(shape, beats) == frames
    fields = unpack(shape, beats)
    assert fields["bad"].sum() == 2
    assert not fields["bad"][fields["last"] == 0].any()
    np.testing.assert_array_equal(np.unique(fields["meta"]), np.arange(6))


def test_unpack_frames_refuses():
    shape = FrameBeat(4)
    beats = pack(shape, data=np.zeros((1, 4), np.uint8), keep=0b0101, last=1)
    with pytest.raises(ValueError, match="keep of beat 0 must be contiguous"):
        unpack_frames(shape, pack(shape, data=np.zeros((1, 4), np.uint8), keep=0b0101, last=1))
    with pytest.raises(ValueError, match="end inside a frame"):
        unpack_frames(shape, pack(shape, data=np.zeros((1, 4), np.uint8), keep=15, last=0))
    with pytest.raises(ValueError, match=r"beats must be uint8 \(n, 5\), not uint8 \(1, 4\)"):
        unpack(shape, beats[:, :4])
    with pytest.raises(ValueError, match="at least 1 byte"):
        pack_frames(shape, [b""])
