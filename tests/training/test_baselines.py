"""Exchanges of others: BF16 as everybody has it, PowerSGD on low ranks, losses that are meant."""

import ml_dtypes
import numpy as np
import pytest
from gradnic.models.inceptionn.measure import frame_bytes
from gradnic.models.schedule.builders import build
from gradnic.models.schedule.topology import parse
from gradnic.models.thc.baselines import truncated
from gradnic.sim.training import baselines, codecs


def test_bf16_is_everybodys_bf16():
    rng = np.random.default_rng(1)
    bits = rng.integers(0, 1 << 32, 1 << 16, dtype=np.uint64).astype(np.uint32)
    values = bits.view(np.float32)
    with np.errstate(invalid="ignore"):  # what a NaN becomes is everybody's own
        theirs = values.astype(ml_dtypes.bfloat16).astype(np.float32)
    finite = ~np.isnan(values)
    np.testing.assert_array_equal(baselines.bf16(values)[finite], theirs[finite])
    assert np.isnan(baselines.bf16(values)[~finite]).all()


def test_fp16_ends_where_halves_do():
    """Rounded to even, subnormal ones kept; what a half does not hold is Inf, and the sum of two
    that it holds, too.
    """
    values = np.array([1 + 2**-11, 1 + 3 * 2**-11, 2**-25, 2**-24, 65519, 65520, -1e9], np.float32)
    exact = np.array([1, 1 + 2**-9, 0, 2**-24, 65504, np.inf, -np.inf], np.float32)
    np.testing.assert_array_equal(baselines.fp16(values), exact)
    exchange = baselines.Fp16(2)
    summed = exchange(np.array([[60000, 1, 2**-12], [60000, 2**-11, 0]], np.float32))
    np.testing.assert_array_equal(summed, np.array([np.inf, 1, 2**-12], np.float32))


def test_packets_of_half_floats_may_be_lost():
    """Of 672 values each, whole."""
    gradients = np.ones((2, 3 * 672), np.float32)
    summed = codecs.make("bf16", 2, {"loss": 0.34, "seed": 1})(gradients).reshape(3, 672)
    assert (summed == summed[:, :1]).all()
    assert sorted(summed[:, 0]) in ([0, 2, 2], [1, 1, 2])  # one packet of each worker


@pytest.mark.parametrize("codec", ["none", "fp16"])
def test_what_is_lost_is_zero_whatever_it_was(codec):
    """Inf, too: the sum is that of what arrived, and no NaN."""
    gradients = np.full((1, 4 * 672), np.inf, np.float32)
    summed = codecs.make(codec, 1, {"loss": 0.25, "seed": 1})(gradients)
    assert sorted(set(summed.tolist())) == [0, np.inf]


@pytest.mark.parametrize("codec", ["inceptionn", "truncated"])
@pytest.mark.parametrize("rescale", [False, True])
def test_a_packet_lost_on_a_ring_takes_what_was_summed_before_it(codec, rescale):
    """Block b goes from worker b on to its owner b - 1: what is left is an end of that way, and
    every worker has the same. 2^i of worker i says who is in; powers of two are coded exactly.
    """
    n, packets = 4, 16
    gradients = np.repeat(2 ** np.arange(n, dtype=np.float32), n * packets * 336).reshape(n, -1)
    options = {"loss": 0.3, "random": True, "rescale": rescale, "seed": 3}
    exchange = codecs.make(codec, n, options)
    blocks = exchange(gradients).reshape(n, packets, 336)
    assert (blocks == blocks[:, :, :1]).all()
    seen = set()
    for b, block in enumerate(blocks[:, :, 0]):
        way = [2.0 ** ((b + i) % n) for i in range(n)]
        scale = [np.float32(n / k if rescale else 1) for k in range(1, n + 1)]
        ends = {sum(way[n - k :]) * scale[k - 1]: k for k in range(1, n + 1)}
        rounded = {float(exchange.image(np.float32([end] * 8))[0]): k for end, k in ends.items()}
        assert set(block) <= set(rounded)
        seen |= {rounded[value] for value in block}
    assert seen == {1, 2, 3, 4}


def test_a_ring_without_loss_is_as_before():
    """Draws nothing, multiplies nothing: NaN and -0 stay what the codec makes of them."""
    gradients = np.float32([[np.nan, -0.0, 1.5, 3e38] * 8, [1, -0.0, 2.25, 3e38] * 8])
    plain, asked = (codecs.make("inceptionn", 2, own) for own in ({}, {"loss": 0.01, "seed": 5}))
    np.testing.assert_array_equal(
        plain(gradients).view(np.uint32), asked(gradients).view(np.uint32)
    )


@pytest.mark.parametrize("kind", [baselines.Bf16, baselines.Fp16])
def test_half_floats_halve_the_payload(kind):
    exchange = kind(2)
    gradients = np.random.default_rng(2).standard_normal((2, 67_200)).astype(np.float32)
    total = exchange(gradients)
    assert np.abs(total - gradients.sum(axis=0)).max() < 0.05
    assert exchange.raw_bytes / exchange.wire_bytes == pytest.approx(2, rel=1e-3)


@pytest.mark.parametrize("bits", [16, 22, 24])
def test_a_ring_cuts_low_bits_on_every_hop(bits):
    rng = np.random.default_rng(2)
    gradients = rng.standard_normal((4, 67_200)).astype(np.float32)
    exchange = codecs.make("truncated", 4, {"bits": bits})
    total = exchange(gradients)
    assert not (total.view(np.uint32) & ((1 << bits) - 1)).any()
    wanted = np.zeros(67_200, np.float32)
    block = 67_200 // 4
    for owner in range(4):  # the worker that adds its own last
        where = slice((owner + 1) % 4 * block, ((owner + 1) % 4 + 1) * block)
        partial = gradients[(owner + 1) % 4, where]
        for step in 2, 3, 4:
            partial = partial.view(np.uint32) & np.uint32((1 << 32) - (1 << bits))
            partial = partial.view(np.float32) + gradients[(owner + step) % 4, where]
        cut = partial.view(np.uint32) & np.uint32((1 << 32) - (1 << bits))
        wanted[where] = cut.view(np.float32)
    np.testing.assert_array_equal(total, wanted)
    payload = 336 * (32 - bits) / 8
    assert exchange.raw_bytes / exchange.wire_bytes == pytest.approx(
        (1344 + frame_bytes(0)) / (payload + frame_bytes(0)), rel=1e-3
    )


def test_what_is_not_finite_is_not_cut():
    values = np.array([np.inf, -np.inf, np.nan, 3e38, -0.0, 1.5], np.float32)
    cut = truncated(values, 24)
    np.testing.assert_array_equal(cut[:3], values[:3])
    assert cut.view(np.uint32)[3:].tolist() == [0x7F000000, 0x80000000, 0x3F000000]
    for bits in 0, 25:
        with pytest.raises(ValueError, match=f"bits cut off must be 1 to 24, not {bits}"):
            truncated(values, bits)


def test_powersgd_finds_a_matrix_of_its_rank():
    rng = np.random.default_rng(3)
    left, right = rng.standard_normal((30, 2)), rng.standard_normal((2, 20))
    biases = rng.standard_normal((3, 20))
    rows = [np.concatenate([(w * left @ right).ravel(), biases[w]]) for w in range(3)]
    gradients = np.stack(rows).astype(np.float32)
    exchange = baselines.PowerSgd(3, rank=2, shapes=[(30, 20), (20,)])
    np.testing.assert_allclose(exchange(gradients), gradients.sum(axis=0), rtol=1e-3, atol=1e-3)
    np.testing.assert_allclose(exchange.errors.sum(axis=0), 0, atol=1e-3)
    assert exchange.raw_bytes / exchange.wire_bytes > 3


def test_powersgd_sends_late_what_it_kept():
    """Of a constant gradient the sum over steps comes through, whatever the rank."""
    rng = np.random.default_rng(4)
    gradients = rng.standard_normal((2, 30 * 20 + 20)).astype(np.float32)
    exchange = baselines.PowerSgd(2, rank=4, shapes=[(30, 20), (20,)])
    n_steps = 60
    total = sum(exchange(gradients) for _ in range(n_steps)) / n_steps
    true = gradients.sum(axis=0)
    assert np.square(total - true).sum() < 0.05 * np.square(true).sum()


def test_prioritized_losses_spare_the_large_packets():
    exchange = baselines.Prioritized(2, loss=0.2, important=0.5)
    gradients = np.ones((2, 336 * 20), np.float32)
    gradients[:, : 336 * 10] *= 5
    total = exchange(gradients)
    assert (total[: 336 * 10] == 10).all()
    assert (total[336 * 10 :] < 2).sum() > 0
    assert sum(2 - total[336 * 10 :: 336]) == 2 * 4  # four packets of each worker
    with pytest.raises(ValueError, match="important"):
        baselines.Prioritized(2, loss=0.6)


def test_partial_sums_leave_whole_workers_out():
    gradients = np.random.default_rng(5).standard_normal((5, 4096)).astype(np.float32)
    exchange = baselines.PartialThc(5, late=2, rescale=True)
    arrived = exchange.arrivals(4096)
    assert sorted(arrived.sum(axis=1)) == [0, 0, 4096, 4096, 4096]
    exact = gradients.sum(axis=0)
    error = np.square(exchange(gradients) - exact).sum() / np.square(gradients).sum()
    assert 0.1 < error < 5
    with pytest.raises(ValueError, match="late"):
        baselines.PartialThc(5, late=5)
    with pytest.raises(ValueError, match="g must be even where packets are lost, not 31"):
        baselines.PartialThc(5, late=2, g=31)
    assert baselines.PartialThc(5, late=0, g=31).worker.g == 31


def test_random_losses_are_a_share_on_average():
    exchange = codecs.Exchange(4, loss=0.001, random=True, seed=1)
    shares = [1 - exchange.arrivals(336 * 500).mean() for _ in range(20)]
    assert np.mean(shares) == pytest.approx(0.001, rel=0.3)
    assert len(set(shares)) > 3


@pytest.mark.parametrize("region", baselines.REGIONS)
def test_regional_losses_stay_in_their_third(region):
    """9 packets of 336; a third of 3, two of them lost: by place, or by size, which grows here."""
    x = np.repeat(np.arange(1, 10, dtype=np.float32), 336)[None]
    exchange = baselines.Regional(1, region=region, loss=0.7)
    where = {"front": {0, 1, 2}, "small": {0, 1, 2}, "middle": {3, 4, 5}, "back": {6, 7, 8},
             "large": {6, 7, 8}}.get(region, set(range(9)))  # fmt: skip
    seen = set()
    for _ in range(8):
        lost = set(np.flatnonzero(exchange(x).reshape(9, 336)[:, 0] == 0).tolist())
        assert len(lost) == 2
        assert lost <= where
        seen |= lost
    assert len(seen) > 2


def test_regional_names_its_regions():
    with pytest.raises(ValueError, match=r"region must be one of anywhere, .*, not 'left'"):
        baselines.Regional(2, region="left")


def test_powersgd_takes_tensors_of_more_axes():
    """A tensor of rank one as a matrix of its first axis and the rest comes back as it was."""
    rng = np.random.default_rng(5)
    exchange = baselines.PowerSgd(1, rank=1, shapes=[(4,), (6, 2, 5), (3,)])
    product = np.outer(rng.standard_normal(6), rng.standard_normal(10)).ravel()
    x = np.concatenate([rng.standard_normal(4), product, rng.standard_normal(3)])
    np.testing.assert_allclose(exchange(x[None].astype(np.float32)), x, rtol=1e-3, atol=1e-4)


def test_sums_lost_in_a_tree_take_their_branch_along():
    """0 -> 1 -> 2 -> 3 in one tree, a star round 0 in the other: what is in, and what of it."""
    chain, star = [1, 2, 3, -1], [-1, 0, 0, 0]
    exchange = baselines.TreeThc(4, parents=[chain, star], loss=0.4, random=True, rescale=True)
    arrived = exchange.arrivals(1024 * 64 - 100)
    assert arrived.shape == (4, 1024 * 64 - 100)
    packets = arrived[:, ::1024]
    first, second = packets[:, :32], packets[:, 32:]
    assert first[3].all()
    assert second[0].all()
    assert (first[0] <= first[1]).all()
    assert (first[1] <= first[2]).all()
    shares = [first[0].mean(), first[1].mean(), first[2].mean(), *second[1:].mean(axis=1)]
    np.testing.assert_allclose(shares, [0.6**3, 0.6**2, 0.6, 0.6, 0.6, 0.6], atol=0.3)
    gradients = np.ones((4, 8 * 1024), np.float32)
    whole = baselines.TreeThc(4, parents=[chain, star])(gradients)
    np.testing.assert_allclose(exchange(gradients).mean(), whole.mean(), rtol=0.3)
    with pytest.raises(ValueError, match=r"parents must be \(n_trees, 4\), not \(2, 3\)"):
        baselines.TreeThc(4, parents=[[1, 2, -1]] * 2)


def test_parents_are_those_of_the_schedule():
    """On one switch MultiTree is stars, a double binary tree of four has a branch of two."""
    switch = parse("fattree:4x1")
    stars = np.tile(np.arange(4)[:, None], 4)
    np.fill_diagonal(stars, -1)
    np.testing.assert_array_equal(baselines.parents_of(build(switch, "multitree")), stars)
    double = baselines.parents_of(build(switch, "dbtree"))
    np.testing.assert_array_equal(double, [[-1, 2, 0, 2], [1, 3, 1, -1]] * 2)
