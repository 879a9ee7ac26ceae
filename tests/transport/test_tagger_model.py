"""Tagger, golden model: queues, the rule of importance and ToS."""

import numpy as np
import pytest
from gradnic.models.transport.tagger import CONTROL, PULL, Packet, Rules, Tagger, layer_queue


def test_front_layers_take_the_first_queues():
    assert [layer_queue(k, 16) for k in range(16)] == [k // 2 for k in range(16)]
    assert [layer_queue(k, 3) for k in range(3)] == [0, 2, 5]
    assert layer_queue(0, 1) == 0
    with pytest.raises(ValueError, match="layer must be 0 to 2, not 3"):
        layer_queue(3, 3)


def test_threshold_comes_from_the_round_before():
    tagger = Tagger(Rules(source="histogram", n_tensors=2))
    tagger.thresholds[0].value = 120
    small, large = np.float32([2.0**-20]), np.float32([2.0**10])
    packet = Packet(0, 0, elems=336)
    assert [tagger.tag(packet, x).important for x in (small, large)] == [0, 1]
    tagger.end_round(0)
    assert [one.value for one in tagger.thresholds] == [137, 0]
    for _ in range(3):
        tagger.tag(packet, small)
    tagger.end_round(0)
    assert tagger.thresholds[0].value == 107
    tagger.end_round(0)  # a round without packets changes nothing
    assert tagger.thresholds[0].value == 107


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
