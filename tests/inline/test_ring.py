"""The golden ring: replicas equal, sums right, frames as the card's own model sends them."""

import numpy as np
import pytest
from gradnic.models import inceptionn
from gradnic.models.inline import ring as ring_exchange
from gradnic.models.inline.card import InlineCard
from scapy.layers.inet import IP, UDP
from scapy.layers.l2 import Ether

from gradnic.interface.inline import InlineSettings


def gradients(n_workers, n_floats, seed=0):
    rng = np.random.default_rng([seed, n_workers])
    scale = np.exp2(rng.integers(-13, 1, (n_workers, n_floats)))
    return (rng.standard_normal((n_workers, n_floats)) * scale).astype(np.float32)


def codec(**setting):
    return lambda block: inceptionn.image(block, **setting)


def assert_same_bits(a, b):
    np.testing.assert_array_equal(a.view(np.uint32), b.view(np.uint32))


@pytest.mark.parametrize("setting", [{}, {"rounding": "nearest"}, {"mode": "paper"}], ids=str)
@pytest.mark.parametrize("n_workers", range(2, 17))
def test_replicas_are_equal_and_near_the_sum(n_workers, setting):
    given = gradients(n_workers, 1003)
    image = codec(**setting)
    replicas = ring_exchange.ring_allreduce(given, ring_exchange.image_exchange(image), image)
    for replica in replicas:
        assert_same_bits(replica, replicas[0])
    assert_same_bits(image(replicas[0]), replicas[0])
    exact = given.astype(np.float64).sum(axis=0)
    bound = 2**-7 if setting.get("mode") == "paper" else 2**-10
    assert np.abs(replicas[0] - exact).max() < n_workers * bound + 1e-5


@pytest.mark.parametrize("n_workers", [2, 3, 5])
def test_every_float_passes_the_codec_as_the_rule_says(n_workers):
    """A second formulation: each block is a chain of sums that starts at its own worker."""
    given = gradients(n_workers, 8 * n_workers)
    image = codec()
    expected = []
    for block in range(n_workers):
        columns = slice(8 * block, 8 * block + 8)
        partial = given[block, columns]
        for hop in range(1, n_workers):
            partial = image(partial) + given[(block + hop) % n_workers, columns]
        expected.append(image(partial))
    replicas = ring_exchange.ring_allreduce(given, ring_exchange.image_exchange(image), image)
    assert_same_bits(replicas[0], np.concatenate(expected))


def test_without_a_codec_the_sum_is_plain():
    given = gradients(4, 100)
    replicas = ring_exchange.ring_allreduce(given, lambda step, blocks: np.roll(blocks, 1, axis=0))
    for block in range(4):
        columns = slice(32 * block, min(32 * block + 32, 100))
        total = given[block, columns]
        for hop in range(1, 4):
            total = total + given[(block + hop) % 4, columns]
        assert_same_bits(replicas[2, columns], total)


def test_nan_of_a_sum_is_canonical():
    given = np.zeros((3, 24), np.float32)
    given[0, :4] = np.array([0x7F800001, 0xFFC12345, 0x7F800000, 0x7F7FFFFF], np.uint32).view("f4")
    given[1, 2:4] = np.array([0xFF800000, 0x7F7FFFFF], np.uint32).view("f4")
    image = codec()
    replicas = ring_exchange.ring_allreduce(given, ring_exchange.image_exchange(image), image)
    expected = np.zeros(24, np.uint32)
    expected[:4] = [0x7FC00000, 0x7FC00000, 0x7FC00000, 0x7F800000]
    for replica in replicas:
        np.testing.assert_array_equal(replica.view(np.uint32), expected)


@pytest.mark.parametrize(("n_floats", "n_workers", "block"), [(1, 2, 8), (64, 4, 16), (65, 4, 24)])
def test_blocks_are_whole_groups(n_floats, n_workers, block):
    assert ring_exchange.block_floats(n_floats, n_workers) == block


@pytest.mark.parametrize("given", [np.zeros((1, 8), "f4"), np.zeros((2, 8)), np.zeros(8, "f4")])
def test_gradients_of_another_kind_are_refused(given):
    with pytest.raises(ValueError, match=r"n_workers must|float32"):
        ring_exchange.ring_allreduce(given, None)


SETTINGS = InlineSettings(paper=True, exponent=117)


@pytest.mark.parametrize("n_workers", [2, 4])
def test_golden_cards_give_the_same_replicas(n_workers):
    given = gradients(n_workers, 5000)
    cards = ring_exchange.Cards(n_workers, SETTINGS, ring_exchange.Framing())
    by_frames = ring_exchange.ring_allreduce(given, cards, codec())
    image = codec()
    replicas = ring_exchange.ring_allreduce(given, ring_exchange.image_exchange(image), image)
    assert_same_bits(by_frames, replicas)
    assert len(cards.traffic) == 2 * n_workers - 2
    n_frames = sum(len(step.sent[i]) for step in cards.traffic for i in range(n_workers))
    assert sum(card.counters["tx_coded"] for card in cards.cards) == n_frames
    assert sum(card.counters["rx_coded"] for card in cards.cards) == n_frames


def test_frames_that_do_not_shrink_cross_uncoded():
    """Paper mode sends what would grow as it came; the owner's image keeps replicas equal."""
    given = np.full((2, 900), 3, np.float32)
    cards = ring_exchange.Cards(2, SETTINGS, ring_exchange.Framing())
    replicas = ring_exchange.ring_allreduce(given, cards, codec())
    np.testing.assert_array_equal(replicas, np.full((2, 900), 6))
    assert cards.cards[0].counters["tx_size"] == cards.cards[0].counters["rx_kept"] > 0


def test_frames_are_what_another_stack_reads():
    block = gradients(1, 700)[0]
    frames = ring_exchange.Framing().frames(block, 2, 3)
    assert [len(f) for f in frames] == [42 + 1344, 42 + 1344, 42 + 112]
    for k, frame in enumerate(frames):
        packet = Ether(frame)
        assert (packet.src, packet.dst) == ("02:00:00:00:00:02", "02:00:00:00:00:03")
        assert (packet[IP].src, packet[IP].dst) == ("10.0.0.3", "10.0.0.4")
        assert (packet[IP].tos, packet[IP].id) == (0x28, k)
        stated = packet[IP].chksum, packet[UDP].chksum
        del packet[IP].chksum, packet[UDP].chksum
        again = Ether(bytes(packet))
        assert (again[IP].chksum, again[UDP].chksum) == stated
        assert len(packet[UDP].payload) == len(frame) - 42
    np.testing.assert_array_equal(ring_exchange.Framing().floats(frames), block)


def test_a_card_that_does_not_act_passes_them_bit_for_bit():
    frames = ring_exchange.Framing(tos=0).frames(gradients(1, 400)[0], 0, 1)
    card = InlineCard(SETTINGS)
    assert [card.transmit(f) for f in frames] == [(f, False) for f in frames]


def test_short_frames_are_padded_and_the_padding_is_not_read():
    frames = ring_exchange.Framing().frames(np.float32([1.5]), 0, 1)
    assert [len(f) for f in frames] == [60]
    np.testing.assert_array_equal(ring_exchange.Framing().floats(frames), [1.5])
