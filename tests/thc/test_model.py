"""THC worker: the published tables and vectors, then the laws, then its compiled twin."""

import numpy as np
import pytest
from gradnic.models.thc import shared_random as thc_random
from gradnic.models.thc import worker as thc
from gradnic.models.thc.floats import INFINITE
from gradnic.models.thc.scale import factors_of_norms, scale

PUBLISHED = """
4 30 1/32 1/64: 0 3 5 7 9 11 13 14 16 17 19 21 23 25 27 30
4 30 1/16: 0 2 4 6 8 10 12 14 16 18 20 22 24 26 28 30
4 30 1/128 1/256: 0 4 6 8 10 12 13 14 16 17 18 20 22 24 26 30
4 30 1/512: 0 4 7 9 11 12 13 14 16 17 18 19 21 23 26 30
4 34 1/16 1/32 1/64 1/128: 0 3 6 8 10 12 14 16 18 20 22 24 26 28 31 34
4 34 1/256 1/512: 0 4 7 9 11 13 15 16 18 19 21 23 25 27 30 34
4 34 1/1024: 0 5 8 10 12 14 15 16 18 19 20 22 24 26 29 34
4 16 1/32 1/64: 0 2 3 4 5 6 7 8 8 9 10 11 12 13 14 16
3 16 1/16 1/32 1/64 1/128 1/256 1/512: 0 3 5 7 9 11 13 16
3 16 1/1024: 0 4 6 7 9 10 12 16
3 34 1/16 1/32: 0 6 11 15 19 23 28 34
3 34 1/64 1/128: 0 7 11 15 19 23 27 34
3 42 1/1024: 0 10 15 19 23 27 32 42
2 34 1/512 1/1024: 0 13 21 34
"""
TABLES = [
    (int(b), int(g), 1 / int(p[2:]), tuple(map(int, values.split())))
    for line in PUBLISHED.strip().splitlines()
    for head, values in [line.split(":")]
    for b, g, *ps in [head.split()]
    for p in ps
]
SHAPES = [
    {},
    {"B": 64},
    {"B": 256, "b": 3, "g": 34},
    {"B": 4096, "b": 8, "g": 254, "p": 1 / 64},
    {"b": 1, "g": 1},
    {"b": 4, "g": 16},
    {"norm": "tensor"},
]


def ramp():
    return ((np.arange(64) - 31.5) / 64).astype(np.float32)


def hard_values(rng, n=40_000, *, infinite=True):
    """Many scales, zero blocks, subnormals, one spike, and a block that is not finite."""
    x = rng.standard_normal(n) * np.exp(4 * rng.standard_normal(n))
    x = x.astype(np.float32)
    x[5000:10_000] = 0
    x[12_000:17_000] = 1e-40
    x[18_000:23_000] = 0
    x[20_000] = 3e38 if infinite else 3e18
    if infinite:
        x[30_000] = np.inf
    return x


def test_there_are_29_published_tables():
    assert len(TABLES) == 29


@pytest.mark.parametrize(("b", "g", "p", "table"), TABLES)
def test_published_table(b, g, p, table):
    assert thc.solve_table(b, g, p) == table


@pytest.mark.parametrize("b", range(1, 9))
def test_table_is_symmetric_and_increasing(b):
    for g in (max(1, 2**b - 2), 2**b - 1, 255):
        table = np.array(thc.solve_table(b, g, 1 / 32))
        gaps = np.diff(table)
        assert (table + table[::-1] == g).all()
        assert table[0] == 0
        assert (np.delete(gaps, 2 ** (b - 1) - 1) > 0).all()
        assert gaps[2 ** (b - 1) - 1] >= 0


@pytest.mark.parametrize(
    ("p", "t"), [(16, 1.8627318674), (32, 2.1538746941), (64, 2.4175590162), (1024, 3.2971933457)]
)
def test_clip_points(p, t):
    assert thc.clip_point(1 / p) == pytest.approx(t, abs=1e-10)


@pytest.mark.parametrize(
    ("p", "t_fixed", "unit"),
    [(16, 477, 527585), (32, 551, 456730), (64, 619, 406556), (128, 681, 369542),
     (256, 739, 340539), (512, 793, 317350), (1024, 844, 298173)],
)  # fmt: skip
def test_quantizer_constants(p, t_fixed, unit):
    worker = thc.Worker(1, 0, p=1 / p)
    assert (worker.t_fixed, worker.unit) == (t_fixed, unit)


def test_random_source_vectors():
    assert thc_random.fmix32([1])[0] == 0x514E28B7
    assert thc_random.step(np.array([1], np.uint32))[0] == 0x00042021
    k = thc_random.key(1, 0, 0)
    assert k[0] == 0x5F50DFFA
    assert list(thc_random.lane_keys(k)[[0, 1, 63]]) == [0x4C529BA7, 0xF79B0573, 0x9188FD0B]
    assert [v[0] for v in thc_random.block_hashes(k, 0, [0])] == [0x4CC111F3, 0x8FA7B3B2]
    drawn = thc_random.random_bytes(1, 0, 0, 0, [0], 128)[0]
    assert drawn[:8].tobytes().hex() == "36784cde7f057507"
    assert drawn[64:68].tobytes().hex() == "ebf2dac6"
    k = thc_random.key(1, 0, thc_random.SIGN_WORKER)
    assert k[0] == 0x5EAAC939
    h1 = thc_random.block_hash(k, 0, [0])
    assert h1[0] == 0xBC3D5AA9
    words = np.packbits(thc_random.signs(h1, 64)[0], bitorder="little").view("<u4")
    assert list(words) == [0xFA6652BD, 0x360CBE05]


def test_worked_block():
    worker = thc.Worker(1, 1, B=64)
    norms = worker.norms(ramp())
    assert norms[0] == 0x4013C89B
    indices = worker.encode(ramp(), norms, round=0, worker=0)
    assert list(indices[:8]) == [12, 9, 7, 9, 3, 6, 12, 11]
    assert thc.pack(indices, 4).hex() == (
        "c97936cbe6b76e156ba9a835c51fad3b87a4a702792cce6cc87f48a9c9bb7d37"
    )
    output = worker.decode(worker.table[indices], norms, round=0)
    assert [f"{v:08X}" for v in output[:4].view(np.uint32)] == [
        "BEF6834D", "BEF6834D", "BEFBD072", "BEE14EB7"
    ]  # fmt: skip
    assert np.square(output - ramp()).sum() / np.square(ramp()).sum() == pytest.approx(
        0.0163, abs=5e-5
    )


def test_norm_is_within_its_truncation():
    rng = np.random.default_rng(7)
    x = (rng.standard_normal((200, 1024)) * np.exp(5 * rng.standard_normal((200, 1)))).astype("f4")
    exact = np.sqrt(np.square(x, dtype=float).sum(axis=1))
    got = thc.Worker(1, 0).norms(x).view(np.float32)
    # 17-bit mantissas lose at most 2**-16 of the largest value in each of the 1024 elements
    assert (np.abs(got - exact) <= exact * 1024**0.5 * 2.0**-15).all()
    order = rng.permutation(1024)
    np.testing.assert_array_equal(got, thc.Worker(1, 0).norms(x[:, order]).view(np.float32))


def test_quantizer_is_centered():
    """Over all 256 random bytes the mean of every u is at most 1/256 table unit off."""
    worker = thc.Worker(1, 0)
    rotated = np.arange(-worker.t_fixed, worker.t_fixed + 1)
    levels = worker.table[
        worker.quantizer(rotated[:, None], np.arange(256, dtype=np.uint8)[None, :])
    ]
    u = (rotated + worker.t_fixed) * worker.unit + (1 << 15) >> 16
    assert np.abs(levels.mean(axis=1) - u / 256).max() <= 1 / 256


@pytest.mark.parametrize("n", [1, 4])
def test_nmse_on_gaussian_blocks(n):
    """.01307 of the table and .00727 of the clip; clip errors are common to all workers."""
    rng = np.random.default_rng(n)
    x = rng.standard_normal(1 << 19).astype(np.float32)
    worker = thc.Worker(n, 3)
    norms = worker.norms(x)
    sums = sum(
        worker.table[worker.encode(x, norms, round=1, worker=w)].astype(int) for w in range(n)
    )
    error = np.square(worker.decode(sums, norms, round=1) - x).sum() / np.square(x).sum()
    assert error == pytest.approx(0.01307 / n + 0.00727, rel=0.03)


def test_homomorphic_law():
    """Decoding the sum of the workers' table values is the mean of decoding each alone."""
    rng = np.random.default_rng(5)
    parts = rng.standard_normal((4, 5000)).astype(np.float32)
    many, one = thc.Worker(4, 9), thc.Worker(1, 9)
    norms = np.maximum.reduce([many.norms(x) for x in parts])
    indices = [many.encode(x, norms, round=2, worker=w) for w, x in enumerate(parts)]
    together = many.decode(sum(many.table[z] for z in indices), norms, round=2)
    alone = [one.decode(one.table[z], norms, round=2) for z in indices]
    np.testing.assert_allclose(together, np.mean(alone, axis=0, dtype=float), atol=2e-6)


def test_silent_blocks():
    worker = thc.Worker(2, 0)
    x = np.ones((4, 1024), np.float32)
    x[0], x[1, 5] = 0, np.inf
    norms = worker.norms(x)
    assert norms[0] == 0
    assert norms[1] == 0x7F800000
    norms[2] -= 1  # below this worker's own: must not contribute
    indices = worker.encode(x, norms, round=0, worker=0).reshape(4, 1024)
    assert (indices[:3] == 8).all()
    assert not (indices[3] == 8).all()
    output = worker.decode(2 * worker.table[indices.reshape(-1)], norms, round=0).reshape(4, 1024)
    assert (output[0] == 0).all()
    assert (output[1].view(np.uint32) == 0x7FC00000).all()


def test_one_spike_and_all_equal_blocks():
    worker = thc.Worker(1, 0)
    spike = np.zeros((1, 1024), np.float32)
    spike[0, 100] = -3.0
    scaled = scale(spike, *factors_of_norms(worker.norms(spike), worker.h), worker.h)
    assert scaled[0, 100] == -(1 << 13)  # sqrt(1024) sigma
    assert (np.abs(thc.hadamard(scaled)) == 1 << 13).all()
    equal = np.ones((1, 1024), np.float32)
    scaled = scale(equal, *factors_of_norms(worker.norms(equal), worker.h), worker.h)
    assert (scaled == 256).all()
    assert thc.hadamard(scaled)[0, 0] == 1 << 18


def test_error_feedback_loses_nothing_over_rounds():
    """With the residual fed back, the mean of many rounds approaches the gradient."""
    rng = np.random.default_rng(1)
    x = rng.standard_normal(2048).astype(np.float32)
    worker = thc.Worker(1, 4)
    errors = {}
    for feedback in (False, True):
        residual, total = np.zeros_like(x), np.zeros(x.size)
        for turn in range(40):
            fed = x + residual * feedback
            norms = worker.norms(fed)
            indices = worker.encode(fed, norms, round=turn, worker=0)
            total += worker.decode(worker.table[indices], norms, round=turn)
            residual = worker.residual(fed, indices, norms)
        errors[feedback] = np.square(total / 40 - x).sum() / np.square(x).sum()
    assert errors[True] < errors[False] / 5


@pytest.mark.parametrize("norm", ["block", "tensor"])
@pytest.mark.parametrize("bad", [np.inf, -np.inf, np.nan, np.float32(-np.nan), 3e38], ids=str)
def test_what_is_not_finite_is_not_remembered(norm, bad):
    """Worker 1 overflows in one block: nobody remembers anything of it, and all else as ever."""
    worker, x = thc.Worker(2, 4, norm=norm), np.random.default_rng(8).standard_normal((2, 4096))
    x = x.astype(np.float32)
    x[1, 1500:1503] = bad  # three of 3e38 have a norm beyond float32
    norms = np.maximum(*(worker.norms(row) for row in x))
    hit = norms == INFINITE
    assert list(hit) == ([True] if norm == "tensor" else [False, True, False, False])
    for rank, row in enumerate(x):
        indices = worker.encode(row, norms, round=0, worker=rank)
        error = worker.residual(row, indices, norms)
        alone = thc.Worker(1, 4, norm=norm).decode(worker.table[indices], norms, round=0)
        wanted = np.where(np.isfinite(alone), row, 0) - np.where(np.isfinite(alone), alone, 0)
        np.testing.assert_array_equal(error.view("u4"), wanted.view("u4"))


def test_a_code_that_overflows_is_not_remembered():
    x = np.zeros(1024, np.float32)
    x[5] = 3.39e38  # its norm is finite; what its codes stand for is beyond float32 now and then
    over = 0
    for seed in range(20):
        worker = thc.Worker(1, seed)
        norms = worker.norms(x)
        indices = worker.encode(x, norms, round=0, worker=0)
        own = worker.decode(worker.table[indices], norms, round=0)
        over += not np.isfinite(own).all()
        error = worker.residual(x, indices, norms)
        finite = np.isfinite(own)
        np.testing.assert_array_equal(error, np.where(finite, x - np.where(finite, own, 0), 0))
    assert over


@pytest.mark.parametrize("width", range(1, 17))
def test_pack_round_trip(width):
    rng = np.random.default_rng(width)
    for count in (0, 1, 2, 7, 8, 1023, 1024):
        values = rng.integers(0, 2**width, count)
        data = thc.pack(values, width)
        assert len(data) == -(-count * width // 8)
        np.testing.assert_array_equal(thc.unpack(data, width, count), values)
        bits = "".join(f"{v:0{width}b}" for v in values)
        assert bits == "".join(f"{v:08b}" for v in data)[: len(bits)]


def test_nibbles_are_unpacked_as_nibbles(monkeypatch):
    """Not bit by bit, as other widths are: about 27 times as fast, measured on 64 MiB."""
    monkeypatch.delattr(np, "unpackbits")
    assert thc.unpack(b"\x12\xf0", 4, 3).tolist() == [1, 2, 15]
    with pytest.raises(AttributeError, match="unpackbits"):
        thc.unpack(bytes(3), 3, 8)


@pytest.mark.skipif(
    thc.compiled is None, reason="numba is not installed: there is no compiled twin"
)
def test_compiled_is_the_default(monkeypatch):
    x = np.zeros(64, np.float32)
    norms = thc.Worker(2, 0).norms(x)
    monkeypatch.setattr(thc, "compiled", object())  # of which nothing can be had
    with pytest.raises(AttributeError):
        thc.Worker(2, 0).encode(x, norms, round=0, worker=0)
    thc.Worker(2, 0, fast=False).encode(x, norms, round=0, worker=0)


@pytest.mark.skipif(
    thc.compiled is None, reason="numba is not installed: there is no compiled twin"
)
@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_compiled_twin_is_equal(shape):
    rng = np.random.default_rng(11)
    x = hard_values(rng, infinite=shape.get("norm") != "tensor")
    results = []
    for fast in (True, False):
        worker = thc.Worker(3, 77, **shape, fast=fast)
        norms = worker.norms(x)
        indices = worker.encode(x, norms, round=2, worker=5, tensor=3)
        low = np.where(norms < 0x7F800000, np.minimum(norms, 0x3A000000), norms).astype(np.uint32)
        clipped = worker.encode(x, low, round=2, worker=5, tensor=3, clips=True)
        sums = worker.table[indices] * 3
        results.append((norms, indices, clipped, worker.decode(sums, norms, round=2, tensor=3)))
    for fast, plain in zip(*results, strict=True):
        assert fast.tobytes() == plain.tobytes()


@pytest.mark.parametrize("B", [64, 1024])
def test_a_norm_below_the_own_one_silences_or_clips(B):
    x = np.random.default_rng(6).standard_normal(4 * B).astype(np.float32)
    worker, told = thc.Worker(1, 9, B=B), {"round": 4, "worker": 2}
    norms = worker.norms(x)
    low = norms.copy()
    low[1], low[2], low[3] = low[1] - 1, low[2] - (1 << 23), 1 << 23  # a half, and the least one
    silent, clipped = (
        worker.encode(x, low, **told, clips=clips).reshape(4, B) for clips in (False, True)
    )
    assert (silent[1:] == 8).all()
    honest = worker.encode(x, norms, **told, clips=True).reshape(4, B)
    np.testing.assert_array_equal(honest, worker.encode(x, norms, **told).reshape(4, B))
    np.testing.assert_array_equal(clipped[0], honest[0])
    assert (clipped[1] != honest[1]).mean() < 0.01  # a last place
    assert ((clipped[2] == 0) | (clipped[2] == 15)).mean() > 0.2  # twice as large


def test_without_numba_numpy_is_the_default_and_fast_an_error(monkeypatch):
    x = np.linspace(-1, 1, 64, dtype=np.float32)
    norms = thc.Worker(1, 0, B=64).norms(x)
    monkeypatch.setattr(thc, "compiled", None)
    np.testing.assert_array_equal(thc.Worker(1, 0, B=64).norms(x), norms)
    with pytest.raises(ValueError, match="fast must not be True where numba is not installed"):
        thc.Worker(1, 0, fast=True)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: thc.Worker(0, 0), "n must be an integer of 1 to 69905, not 0"),
        (lambda: thc.Worker(1.5, 0), "n must be an integer of 1 to 69905, not 1.5"),
        (lambda: thc.Worker(1 << 40, 0), "n must be an integer of 1 to 69905, not 1099511627776"),
        (lambda: thc.Worker(1, 0, b=2.5), "b must be 1 to 8, not 2.5"),
        (lambda: thc.Worker(1, 0, b=4.0), "b must be 1 to 8, not 4.0"),
        (lambda: thc.Worker(1, 0, g=30.5), "g must be 14 to 255 for b = 4, not 30.5"),
        (lambda: thc.Worker(1, 0, B=64.0), "B must be 64, 256, 1024 or 4096, not 64.0"),
        (lambda: thc.Worker(1, 0, p=1 - 1e-16), "p must be below 0.9984, .* not 0.99999999"),
        (lambda: thc.Worker(1, -1), "seed must be an integer of 0 to 4294967295, not -1"),
        (lambda: thc.Worker(1, 1 << 32), "seed must be an integer of 0 to 4294967295, not 429496"),
        (lambda: thc.Worker(1, 1.0), "seed must be an integer of 0 to 4294967295, not 1.0"),
        (lambda: thc.Worker(1, 0, sign_round=1 << 32), "sign_round must be an integer of 0 to 42"),
        (lambda: thc.Worker(1, 0, B=512), "B must be 64, 256, 1024 or 4096, not 512"),
        (lambda: thc.Worker(1, 0, norm="row"), "norm must be 'block' or 'tensor', not 'row'"),
        (lambda: thc.solve_table(9, 255, 0.1), "b must be 1 to 8, not 9"),
        (lambda: thc.solve_table(6, 30, 0.1), "g must be 62 to 255 for b = 6, not 30"),
        (lambda: thc.solve_table(4, 30, 2), "p must lie between 0 and 1, not 2"),
        (lambda: thc.pack([16], 4), "values must be 0 to 15, not 16"),
        (lambda: thc.pack([-1, 3], 4), "values must be 0 to 15, not -1"),
        (lambda: thc.pack([0.5], 4), "values must be integers, not float64"),
        (lambda: thc.pack([[1, 2]], 4), "values must have shape (n,), not (1, 2)"),
        (lambda: thc.pack([1], 4.0), "width must be an integer of 1 to 16, not 4.0"),
        (lambda: thc.unpack(b"", 4, -1), "count must be an integer of 0 to 4294967295, not -1"),
        (lambda: thc.unpack(b"", 17, 0), "width must be an integer of 1 to 16, not 17"),
        (lambda: thc.unpack(b"abc", 4, 8), "8 values of 4 bits are 4 bytes, not 3"),
        (lambda: thc.Worker(1, 0).encode(np.ones(9), [1, 2], round=0, worker=0), "norms must have"),
        (lambda: thc.Worker(1, 0).decode(np.ones(9), [1], round=0), "sums must have shape"),
        (
            lambda: thc.Worker(1, 0).decode(np.ones(1024), [1], round=0),
            "sums must be integers, not",
        ),
        (lambda: thc.Worker(1, 0).values([3, -1]), "indices must be 0 to 15, not -1"),
        (lambda: thc.Worker(1, 0).values([3, 16]), "indices must be 0 to 15, not 16"),
        (lambda: thc.Worker(1, 0).values([0.5]), "indices must be integers, not float64"),
        (lambda: thc.Worker(1, 0).norms(None), "x must hold real numbers, not object"),
        (lambda: thc.Worker(1, 0).norms(np.zeros((0, 3))), "at least one value, not shape (0, 3)"),
        (lambda: thc.Worker(1, 0).norms([1j]), "x must hold real numbers, not complex128"),
    ],
)
def test_errors_name_the_value_and_the_limit(call, message):
    with pytest.raises(ValueError, match=message.replace("(", r"\(").replace(")", r"\)")):
        call()


WHOLE = "must be an integer of 0 to 4294967295, not"


@pytest.mark.parametrize("norm", ["block", "tensor"])
@pytest.mark.parametrize(
    ("change", "message"),
    [
        *(({name: value}, f"{name} {WHOLE} {value!r}")
          for name in ("round", "tensor") for value in (-1, 1.5, "1", 1 << 32)),
        *(({"worker": value}, "worker must be an integer of 0 to 4294967294, not")
          for value in (-1, 1.5, "1", 0xFFFFFFFF)),
        *(({"first_block": value}, "first_block must be an integer of 0 to 4294967295, not")
          for value in (-1, 1.5, "1", 1 << 32)),
        ({"norms": np.ones(1, np.float32)}, "norms, the bits of FP32, must be integers, not float"),
        ({"norms": [-1]}, "norms must be 0 to 4294967295, not -1"),
        ({"norms": [1 << 32]}, "norms must be 0 to 4294967295, not 4294967296"),
        ({"x": np.zeros(0, np.float32)}, r"x must hold at least one value, not shape \(0,\)"),
    ],
)  # fmt: skip
def test_all_three_refuse_what_they_would_misread(norm, change, message):
    """Norms as floats, most of all, became bits of denormals, and all gradients zero."""
    worker, x = thc.Worker(1, 0, B=64, norm=norm), np.ones(64, np.float32)
    given = {"x": x, "norms": worker.norms(x), "round": 0, "worker": 0, "tensor": 0} | change
    x, norms = given.pop("x"), given.pop("norms")
    indices = np.zeros(64, np.uint8)
    with pytest.raises(ValueError, match=message):
        worker.encode(x, norms, **given)
    if change.keys() & {"round", "tensor", "norms"}:
        with pytest.raises(ValueError, match=message):
            worker.decode(indices, norms, round=given["round"], tensor=given["tensor"])
    if change.keys() & {"tensor", "norms", "x"}:
        with pytest.raises(ValueError, match=message):
            worker.residual(x, indices, norms, tensor=given["tensor"])


@pytest.mark.parametrize("fast", [True, False])
def test_sums_of_the_other_byte_order_are_the_same_sums(fast):
    worker, x = thc.Worker(2, 7, B=64, fast=fast), np.linspace(-1, 1, 64, dtype=np.float32)
    norms = worker.norms(x)
    sums = 2 * worker.table[worker.encode(x, norms, round=1, worker=0)]
    swapped = worker.decode(sums.astype(">u2"), norms.astype(">u4"), round=1)
    assert swapped.tobytes() == worker.decode(sums, norms, round=1).tobytes()
