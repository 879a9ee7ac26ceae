"""Tagger, golden model: scores, thresholds, the rule of importance, ToS and checksum."""

import numpy as np
import pytest
from gradnic.models.transport.tagger import (
    CONTROL,
    NOTHING,
    PULL,
    Packet,
    Rules,
    Tagger,
    code,
    layer_queue,
    max_score,
    quantile,
    sum_score,
)
from gradnic.sim.engine import stimulus


def test_front_layers_take_the_first_queues():
    assert [layer_queue(k, 16) for k in range(16)] == [k // 2 for k in range(16)]
    assert [layer_queue(k, 3) for k in range(3)] == [0, 2, 5]
    assert layer_queue(0, 1) == 0
    with pytest.raises(ValueError, match="layer must be 0 to 2, not 3"):
        layer_queue(3, 3)


def test_max_score_is_the_largest_exponent():
    bits = stimulus.float_corners()
    for word in bits[::97]:
        value = np.array([0, word], np.uint32).view(np.float32)
        assert max_score(value) == int(word) >> 23 & 255
    assert max_score([]) == 0


@pytest.mark.parametrize("unit", [100, 127, 0, 255])
def test_sum_score_follows_the_real_sum(unit):
    rng = np.random.default_rng(unit)
    for _ in range(200):
        x = rng.standard_normal(336) * 2.0 ** rng.integers(-20, 14)
        x = x.astype(np.float32)
        whole = np.minimum(np.floor(np.abs(x.astype(np.float64)) / 2.0 ** (unit - 127)), 65535)
        score = sum_score(x, unit)
        low, high = (
            code(int(whole.sum() * (1 - 2**-15)) - 1 if whole.sum() > 1 else 0),
            code(int(whole.sum())),
        )
        assert low <= score <= high
    odd = np.array([np.inf, np.nan, 1e-40, 0], np.float32)
    assert sum_score(odd, 127) == code(2 * 65535)


def test_code_is_monotonous_and_fits():
    values = [*range(5000), *(2**k + d for k in range(12, 28) for d in (-1, 0, 1))]
    codes = [code(v) for v in sorted(values)]
    assert codes == sorted(codes)
    assert codes[-1] < 256
    assert [code(v) for v in (0, 7, 8, 15, 16, 2**27)] == [0, 7, 8, 15, 16, 200]


def test_quantile_weighs_elements():
    histogram = np.zeros(256, np.int64)
    histogram[[3, 90, 200]] = 1000, 500, 500
    assert quantile(histogram, 128) == 90
    assert quantile(histogram, 64) == 200
    assert quantile(histogram, 65) == 90
    assert quantile(histogram, 255) == 3
    assert quantile(histogram, 0) == quantile(histogram * 0, 128) == NOTHING


def test_threshold_comes_from_the_round_before():
    tagger = Tagger(Rules(source="histogram", n_tensors=2))
    tagger.thresholds[0] = 120
    small, large = np.float32([2.0**-20]), np.float32([2.0**10])
    packet = Packet(0, 0, elems=336)
    assert [tagger.tag(packet, x).important for x in (small, large)] == [0, 1]
    tagger.end_round(0)
    assert tagger.thresholds == [137, 0]
    for _ in range(3):
        tagger.tag(packet, small)
    tagger.end_round(0)
    assert tagger.thresholds[0] == 107
    tagger.end_round(0)  # a round without packets changes nothing
    assert tagger.thresholds[0] == 107


@pytest.mark.parametrize(
    ("rules", "packet", "important"),
    [
        ({"source": "off"}, Packet(0, 0), 0),
        ({"source": "off", "back_layer_start": 3}, Packet(0, 2), 0),
        ({"source": "off", "back_layer_start": 3}, Packet(0, 3), 1),
        ({"source": "off"}, Packet(0, 0, CONTROL), 1),
        ({"source": "off"}, Packet(0, 0, PULL), 1),
        ({"source": "off", "pull_all_important": False}, Packet(0, 0, PULL), 0),
        ({"source": "host"}, Packet(0, 0, scored=False), 0),
        ({"source": "host"}, Packet(0, 0), 1),
    ],
)
def test_importance(rules, packet, important):
    tag = Tagger(Rules(n_layers=4, **rules)).tag(packet, [1.0])
    assert tag.important == important
    assert tag.queue == packet.layer * 2
    assert tag.tos == 8 * (7 - tag.queue) << 2 | 2 * important


def test_rules_name_what_is_wrong():
    for wrong, words in (
        ({"n_layers": 0}, "n_layers must be 1 to 4096, not 0"),
        ({"score": "min"}, "score must be one of max, sum, not 'min'"),
        ({"share": 256}, "share must be 0 to 255, not 256"),
        ({"queues": (8,)}, "a queue must be 0 to 7"),
    ):
        with pytest.raises(ValueError, match=words):
            Rules(**wrong)
