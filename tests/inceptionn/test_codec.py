"""The golden codec against exact arithmetic written a second time, vectors and its own rules."""

from fractions import Fraction

import numpy as np
import pytest
from gradnic.models.inceptionn import (
    coded_size,
    coded_sizes,
    compress,
    decompress,
    image,
    tags,
)
from hypothesis import given, settings
from hypothesis import strategies as st

RUN_TIME = [  # every band width, both ends of the pre-scale, all roundings
    {"exponent": e, "mode": m, "prescale": p, "rounding": r}
    for e, p in [
        (117, 0),
        (119, 0),
        (121, 0),
        (113, -3),
        (126, 10),
        (120, -128),
        (113, 112),
        (124, 127),
    ]
    for m, r in [("strict", "trunc"), ("strict", "nearest"), ("paper", "trunc")]
]
MANTISSAS = np.unique(
    [0, 1, 2, 0x7FFFFF, 0x7FFFFE, 0x400000, 0x3FFFFF, 0x2AAAAA, 0x555555, 0x7FFE00, 0x7DFFFF]
    + [1 << k for k in range(23)]
    + [(1 << k) - 1 for k in range(23)]
    + [0x7FFFFF ^ ((1 << k) - 1) for k in range(23)]
).astype(np.uint32)
CORNERS = ((np.arange(512, dtype=np.uint32)[:, None] << np.uint32(23)) | MANTISSAS).reshape(-1)


def floats(*bits):
    return np.array(bits, np.uint32).view(np.float32)


def name(setting):
    return "-".join(str(v) for v in setting.values())


def of_decoder(setting):
    return {k: v for k, v in setting.items() if k != "rounding"}


# --- a second implementation: one float at a time, exact rationals, no tables ------------------


def slow_value(bits, exponent, mode, prescale, rounding):
    """Tag, payload bytes and decoded bits of one float, from the formulas in rationals."""
    negative, e, m = bits >> 31, bits >> 23 & 255, bits & 0x7FFFFF
    if e == 255 or (e > 0 and e + prescale >= 127):
        return 3, bits.to_bytes(4, "little"), bits
    if e == 0 or e + prescale < exponent:
        return 0, b"", 0
    magnitude = Fraction((1 << 23) | m, 1 << 23) * Fraction(2) ** (e + prescale - 127)
    middle = exponent + (128 - exponent) // 2
    tag, width, top = 2, 15, 126
    if e + prescale < middle:
        tag, width, top = 1, 7, middle - 1 if mode == "strict" else 126
    lsb = Fraction(2) ** (top - 127 - (width - 1))
    half = Fraction(1, 2) if rounding == "nearest" else 0
    code = min((magnitude / lsb + half).__floor__(), 2**width - 1)
    payload = (code | negative << width).to_bytes(tag, "little")
    decoded = code * lsb / Fraction(2) ** prescale
    if decoded < Fraction(2) ** -126:
        return tag, payload, 0
    return tag, payload, int(np.float32(float(decoded)).view(np.uint32)) | negative << 31


def slow_unit(bits, **setting):
    """A whole coded unit and the floats behind it."""
    coded = [slow_value(int(b), **setting) for b in bits]
    words = b""
    for start in range(0, len(coded), 8):
        word = sum(tag << 2 * lane for lane, (tag, _, _) in enumerate(coded[start : start + 8]))
        words += word.to_bytes(2, "little")
    return words + b"".join(p for _, p, _ in coded), np.array([d for *_, d in coded], np.uint32)


@pytest.mark.parametrize("setting", RUN_TIME, ids=name)
def test_every_sign_and_exponent_agrees_with_exact_arithmetic(setting):
    rng = np.random.default_rng(7)
    bits = np.concatenate([CORNERS[::3], rng.integers(0, 1 << 32, 5003, np.uint32)])
    unit, decoded = slow_unit(bits, **setting)
    for fast in (False, True):
        assert compress(bits.view(np.float32), **setting, fast=fast) == unit
        back = decompress(unit, bits.size, **of_decoder(setting), fast=fast)
        np.testing.assert_array_equal(back.view(np.uint32), decoded)
    np.testing.assert_array_equal(image(bits.view(np.float32), **setting).view(np.uint32), decoded)


@given(data=st.data())
@settings(max_examples=150, deadline=None)
def test_any_float_at_any_setting_agrees_with_exact_arithmetic(data):
    mode, rounding = data.draw(
        st.sampled_from([("strict", "trunc"), ("strict", "nearest"), ("paper", "trunc")])
    )
    setting = {
        "exponent": data.draw(st.integers(113, 126)),
        "mode": mode,
        "prescale": data.draw(st.integers(-128, 127)),
        "rounding": rounding,
    }
    near = st.integers(setting["exponent"] - 2, 128).map(lambda x: x - setting["prescale"])
    banded = st.builds(
        lambda s, e, m: s << 31 | min(max(e, 0), 255) << 23 | m,
        st.integers(0, 1),
        near,
        st.integers(0, 0x7FFFFF),
    )
    drawn = data.draw(st.lists(banded | st.integers(0, 0xFFFFFFFF), min_size=1, max_size=40))
    bits = np.array(drawn, np.uint32)
    unit, decoded = slow_unit(bits, **setting)
    for fast in (False, True):
        assert compress(bits.view(np.float32), **setting, fast=fast) == unit
        back = decompress(unit, bits.size, **of_decoder(setting), fast=fast)
        np.testing.assert_array_equal(back.view(np.uint32), decoded)


# --- vectors by docs/spec/codec.md ---------------------------------------------------------------

VECTORS = [  # input, tag, payload in paper mode, payload in strict mode (None: same)
    (0x3F800000, 3, "0000803f", None),
    (0x3F7FFFEF, 2, "ff7f", None),
    (0x3F000000, 2, "0040", None),
    (0xBE99999A, 2, "66a6", None),
    (0x3D000000, 2, "0004", None),
    (0x3CF5C28F, 1, "03", "7a"),
    (0xBCA3D70A, 1, "82", "d1"),
    (0x3C800000, 1, "02", "40"),
    (0x3C23D70A, 1, "01", "28"),
    (0x3B83126F, 1, "00", "10"),
    (0xBA902DE0, 1, "80", "84"),
    (0x3A800000, 1, "00", "04"),
    (0x3A000000, 0, "", None),
    (0x00000000, 0, "", None),
    (0x80000000, 0, "", None),
    (0x000116C2, 0, "", None),
    (0x7F800000, 3, "0000807f", None),
    (0x7FC00000, 3, "0000c07f", None),
]


@pytest.mark.parametrize("fast", [False, True])
@pytest.mark.parametrize("vector", VECTORS, ids=lambda v: f"{v[0]:08X}")
def test_vectors(vector, fast):
    bits, tag, paper, strict = vector
    x = floats(bits)
    word = bytes([tag, 0])
    assert compress(x, mode="paper", fast=fast) == word + bytes.fromhex(paper)
    assert compress(x, fast=fast) == word + bytes.fromhex(paper if strict is None else strict)


DECODED = [  # mode, tag, payload, float
    ("strict", 1, "7a", 0x3CF40000),
    ("strict", 1, "d1", 0xBCA20000),
    ("strict", 1, "28", 0x3C200000),
    ("strict", 1, "10", 0x3B800000),
    ("strict", 1, "84", 0xBA800000),
    ("strict", 1, "04", 0x3A800000),
    ("strict", 1, "00", 0),
    ("strict", 1, "80", 0),
    ("strict", 2, "0000", 0),
    ("strict", 2, "0080", 0),
    ("paper", 1, "03", 0x3CC00000),
    ("paper", 1, "82", 0xBC800000),
    ("paper", 1, "01", 0x3C000000),
    ("paper", 1, "00", 0),
    ("paper", 1, "80", 0),
    ("strict", 2, "66a6", 0xBE999800),
    ("paper", 2, "ff7f", 0x3F7FFE00),
]


@pytest.mark.parametrize("fast", [False, True])
@pytest.mark.parametrize("vector", DECODED, ids=lambda v: "-".join(map(str, v[:3])))
def test_decoded_vectors(vector, fast):
    mode, tag, payload, bits = vector
    unit = bytes([tag, 0]) + bytes.fromhex(payload)
    assert decompress(unit, 1, mode=mode, fast=fast).view(np.uint32) == bits


def test_one_group_unit():
    x = floats(
        0x3F800000, 0x3F000000, 0xBE99999A, 0x3CF5C28F, 0xBA902DE0, 0, 0x3A800000, 0x7F800000
    )
    strict = bytes.fromhex("6b d1 00 00 80 3f 00 40 66 a6 7a 84 04 00 00 80 7f")
    assert compress(x) == strict
    assert compress(x, mode="paper") == strict[:10] + bytes.fromhex("03 80 00") + strict[13:]


@pytest.mark.parametrize(
    ("setting", "bits", "tag", "payload", "decoded"),
    [
        ({"prescale": 10}, 0x3A800000, 3, "0000803a", 0x3A800000),
        ({"prescale": 10}, 0x3A03126F, 2, "8941", 0x3A031200),
        ({"prescale": 10}, 0xB649539C, 1, "8c", 0xB6400000),
        ({"prescale": 10}, 0x33D6BF95, 0, "", 0),
        ({"prescale": -3}, 0x40800000, 2, "0040", 0x40800000),
        ({"prescale": -3}, 0x41000000, 3, "00000041", 0x41000000),
        ({"prescale": -3}, 0xBFC00000, 2, "0098", 0xBFC00000),
        ({"rounding": "nearest"}, 0x3F7FFFEF, 2, "ff7f", 0x3F7FFE00),
        ({"rounding": "nearest"}, 0x3CF5C28F, 1, "7b", 0x3CF60000),
        ({"rounding": "nearest"}, 0xBA902DE0, 1, "85", 0xBAA00000),
        ({"rounding": "nearest"}, 0x3CFFFFFF, 1, "7f", 0x3CFE0000),
    ],
)
def test_prescale_and_rounding_vectors(setting, bits, tag, payload, decoded):
    unit = compress(floats(bits), **setting)
    assert unit == bytes([tag, 0]) + bytes.fromhex(payload)
    assert image(floats(bits), **setting).view(np.uint32) == decoded


# --- corner cases, and the codec's rules ---------------------------------------------------------


def test_nan_payload_and_infinity_survive():
    odd = np.array([0x7F800001, 0xFFC12345, 0x7FFFFFFF, 0xFF800000, 0x7F7FFFFF], np.uint32)
    np.testing.assert_array_equal(image(odd.view(np.float32)).view(np.uint32), odd)
    assert set(tags(odd.view(np.float32))) == {3}


@pytest.mark.parametrize("exponent", range(113, 127))
def test_the_bound_itself_is_exact_in_strict_mode(exponent):
    bound = np.float32(2.0 ** (exponent - 127))
    x = np.array([bound, -bound, np.nextafter(bound, np.float32(0))], np.float32)
    np.testing.assert_array_equal(image(x, exponent=exponent), [bound, -bound, 0])


@pytest.mark.parametrize("rounding", ["trunc", "nearest"])
@pytest.mark.parametrize("exponent", range(113, 127))
def test_strict_guarantee_and_idempotence(exponent, rounding):
    rng = np.random.default_rng(exponent)
    bits = np.concatenate([CORNERS, rng.integers(0, 1 << 32, 30000, np.uint32)])
    x = bits.view(np.float32)
    x = x[np.isfinite(x)]
    for prescale in (0, 1, -1, 7, -30, -128, exponent - 1):
        setting = {"exponent": exponent, "prescale": prescale, "rounding": rounding}
        once = image(x, **setting)
        error = np.abs(x.astype(np.float64) - once)
        assert error.max() < 2.0 ** (exponent - 127 - prescale)
        np.testing.assert_array_equal(image(once, **setting).view(np.uint32), once.view(np.uint32))
        again = compress(once, **setting)
        assert (
            compress(decompress(again, once.size, exponent=exponent, prescale=prescale), **setting)
            == again
        )


@pytest.mark.parametrize(
    ("exponent", "worst"), [(113, 128), (117, 8), (119, 2), (120, 1), (126, 1)]
)
def test_paper_mode_exceeds_the_bound_by_the_stated_factor(exponent, worst):
    x = CORNERS.view(np.float32)
    x = x[np.isfinite(x)]
    error = np.abs(x.astype(np.float64) - image(x, exponent=exponent, mode="paper")).max()
    ratio = error / 2.0 ** (exponent - 127)
    assert worst * (1 - 2**-6) < ratio < worst if worst > 1 else ratio < 1
    # same tags and sizes as strict
    strict, paper = compress(x, exponent=exponent), compress(x, exponent=exponent, mode="paper")
    assert len(strict) == len(paper)
    assert strict[: x.size // 4] == paper[: x.size // 4]


def test_paper_mode_is_idempotent_in_values():
    x = CORNERS.view(np.float32)
    once = image(x, mode="paper")
    np.testing.assert_array_equal(image(once, mode="paper").view(np.uint32), once.view(np.uint32))


@pytest.mark.parametrize("fast", [False, True])
@pytest.mark.parametrize("n", [*range(1, 26), 336, 337, 343, 32767, 32768, 32769, 65543])
def test_every_count_modulo_eight(n, fast):
    rng = np.random.default_rng(n)
    x = (rng.standard_normal(n) * np.exp2(rng.integers(-14, 2, n))).astype(np.float32)
    unit = compress(x, fast=fast)
    assert unit == compress(x, fast=not fast)
    assert len(unit) == coded_size(x)
    back = decompress(unit, n, fast=fast)
    assert back.shape == (n,)
    np.testing.assert_array_equal(back, image(x))


def test_sizes_are_those_of_any_array_and_of_whole_packets():
    class Tensor:  # has numpy's protocol and a method `size`, as PyTorch's
        def size(self):
            raise AssertionError

        def __array__(self, dtype=None, copy=None):
            return np.ones(9, np.float32)

    assert coded_size(Tensor()) == len(compress(Tensor())) == 40
    with pytest.raises(ValueError, match=r"floats must be at least 1, not shape \(0,\)"):
        coded_size(np.zeros(0, np.float32))
    for wrong in (336.0, 0, "8"):
        with pytest.raises(
            ValueError, match=f"n_floats must be an integer of at .*, not {wrong!r}"
        ):
            coded_sizes(np.ones(9, np.float32), wrong)


@pytest.mark.parametrize("fast", [False, True])
def test_smallest_and_largest_units(fast):
    zeros, ones = np.zeros(4096, np.float32), np.ones(4096, np.float32)
    assert compress(zeros, fast=fast) == bytes(1024)
    unit = compress(ones, fast=fast)
    assert unit == b"\xff" * 1024 + ones.tobytes()
    np.testing.assert_array_equal(decompress(unit, 4096, fast=fast), ones)


def test_shapes():
    x = np.linspace(-1, 1, 60, dtype=np.float32).reshape(3, 4, 5)
    assert image(x).shape == tags(x).shape == (3, 4, 5)
    assert compress(x) == compress(x.reshape(-1))
    assert compress(x.T) == compress(np.ascontiguousarray(x.T))
    assert compress(np.float32(0.3)) == compress(x.reshape(-1)[:1] * 0 + np.float32(0.3))
    assert image(np.float32(0.3)).shape == ()


def test_sizes_of_packets():
    x = np.random.default_rng(1).standard_normal(1000).astype(np.float32) / 16
    sizes = coded_sizes(x, 336)
    assert list(sizes) == [len(compress(x[i : i + 336])) for i in range(0, 1000, 336)]


@pytest.mark.parametrize("fast", [False, True])
def test_malformed_units_are_refused(fast):
    x = np.linspace(-0.5, 0.5, 11, dtype=np.float32)
    unit = compress(x)
    for broken, count, words in [
        (unit[:-1], 11, "must have"),
        (unit + b"\0", 11, "must have"),
        (unit, 0, "count"),
        (unit, -8, "count"),
        (unit, True, "count"),
        (unit, 11.0, "count"),
        (unit, 10, "padding"),
        (unit, 3, "padding|must have"),
        (unit[:3], 11, "tag bytes, not 3"),
        (b"", 1, "tag bytes, not 0"),
        (bytes([unit[0] ^ 3]) + unit[1:], 11, "must have"),
        (unit[:3] + bytes([unit[3] | 0x80]) + unit[4:], 11, "padding"),
    ]:
        with pytest.raises(ValueError, match=words):
            decompress(broken, count, fast=fast)


@pytest.mark.parametrize(
    ("setting", "words"),
    [
        ({"exponent": 112}, "not 112"),
        ({"exponent": 127}, "not 127"),
        ({"exponent": 117.0}, "not 117.0"),
        ({"prescale": 128}, "not 128"),
        ({"prescale": -129}, "not -129"),
        ({"mode": "loose"}, "not 'loose'"),
        ({"rounding": "up"}, "not 'up'"),
        ({"mode": "paper", "rounding": "nearest"}, "paper mode, not 'nearest'"),
    ],
)
def test_settings_out_of_range_are_refused(setting, words):
    with pytest.raises(ValueError, match=words):
        compress(np.ones(3, np.float32), **setting)
    with pytest.raises(ValueError, match=words):
        image(np.ones(3, np.float32), **setting)


@pytest.mark.parametrize("x", [np.ones(3), np.ones(3, np.int32), [1.0], np.ones(0, np.float32)])
def test_only_floats_of_32_bits(x):
    with pytest.raises(ValueError, match="floats must be"):
        compress(x)


def test_settings_of_numpy_types_are_taken():
    x = np.ones(3, np.float32) / 3
    assert compress(x, exponent=np.int64(119), prescale=np.int8(-2)) == compress(
        x, exponent=119, prescale=-2
    )
