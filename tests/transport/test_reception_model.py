"""Receiver, golden model: bytes that complete, drop reasons, pooled closing, bitmaps."""

import numpy as np
import pytest
from gradnic.models.transport.reception import (
    DONE,
    OPEN,
    Reception,
    packet_sizes,
    wanted_packets,
)


def test_drop_reasons_change_nothing():
    r = Reception(packet_sizes(1000, 336), round=7)
    assert r.data(0, 1344, round=7) is None
    for args, round_, reason in (
        ((0, 1344), 7, "duplicate"),
        ((1, 1344), 6, "stale"),
        ((3, 1344), 7, "range"),
        ((-1, 1344), 7, "range"),
        ((2, 1344), 7, "length"),
    ):
        assert r.data(*args, round=round_) == reason
    assert (r.n_bytes, r.status) == (1344, OPEN)
    r.data(1, 1344, round=7)
    assert r.data(2, 4 * 328, round=7) is None
    assert r.status == DONE
    assert r.data(2, 4 * 328, round=7) == "duplicate"
    assert sum(r.counters.values()) == 6


def test_a_short_last_packet_weighs_as_itself():
    """Counting packets would stop at 9 of 10 with p = 10 %: the short one saves a byte only."""
    sizes = packet_sizes(9 * 100 + 1, 100, 1)
    r = Reception(sizes, p_q16=0x1999)  # 901 bytes, 90 may miss: no whole packet of 100 may
    for k in [*range(8), 9]:
        r.data(k, int(sizes[k]), round=0)
    assert r.status == OPEN
    r = Reception(sizes, p_q16=0x1999)
    for k in range(9):
        r.data(k, 100, round=0)
    assert (r.status, r.lost) == (DONE, 1)
    assert r.data(9, 1, round=0) == "late"


def test_completion_is_tested_on_the_probe_too():
    r = Reception(packet_sizes(100, 1, 1), p_q16=0x0A00, strict_important=True)
    for k in range(99):
        r.data(k, 1, round=0, important=int(k < 10))
    assert r.status == OPEN  # how many important ones there are is not known yet
    assert not r.probe(0, 100, n_important=11)
    assert r.probe(0, 100, n_important=10)
    assert r.status == DONE


def test_pooled_allowance_closes_ranges():
    r = Reception(np.full(100, 10), p_q16=int(0.05 * 65536) + 1, eager=False)
    for k in range(100):
        if k % 10 not in (3, 4):
            r.data(k, 10, round=0)
    assert r.status == OPEN
    assert [r.probe(10 * k, 10) for k in range(10)] == [True, True] + [False] * 8
    assert (r.lost, r.allowance) == (40, 10)
    assert r.data(3, 10, round=0) == "late"
    r.data(24, 10, round=0)
    assert r.probe(20, 10)
    assert r.allowance == 0
    assert not r.probe(30, 1 + 3)
    for k in range(100):
        r.data(k, 10, round=0)
    assert r.status == DONE
    assert r.lost == 50 <= r.total - r.need


def test_ranges_close_once_the_rest_of_all_is_here():
    r = Reception(np.full(100, 10), p_q16=1 << 14, eager=False, at_share=True)
    for k in range(74):
        r.data(k, 10, round=0)
    assert not r.probe(70, 10)
    assert r.data(90, 10, round=0) is None
    assert r.probe(70, 10)
    assert (r.lost, r.data(75, 10, round=0)) == (60, "late")
    assert r.probe(80, 20)
    assert (r.status, r.lost) == (DONE, r.total - r.need)


def test_weights_count_leaves():
    r = Reception([10, 10, 10], weights=[1, 4, 1], p_q16=1 << 15, eager=False)
    assert (r.total, r.need) == (60, 30)
    assert not r.probe(1, 1)
    assert r.probe(0, 1)
    assert r.probe(2, 1)
    assert r.allowance == 10


@pytest.mark.parametrize("n", [1, 7, 8, 9, 1000, 8192, 8193, 40000])
@pytest.mark.parametrize("share", [0.0, 0.0005, 0.5, 1.0])
def test_bitmaps_list_what_is_missing(n, share):
    r = Reception(np.full(n, 4))
    came = np.random.default_rng(n).random(n) >= share
    for k in np.flatnonzero(came):
        r.data(int(k), 4, round=0)
    for first, count in ((0, n), (n // 3, n - n // 3), (n // 2, 1)):
        wanted = []
        for form, start, size, payload in r.bitmaps(first, count):
            assert len(payload) <= 1024
            assert form or start % 32 == 0
            wanted += wanted_packets(form, start, size, payload)
        assert wanted == [k for k in range(first, first + count) if not came[k]]


def test_the_shorter_form_is_sent():
    r = Reception(np.full(80, 4))
    assert [body[0] for body in r.bitmaps(0, 80)] == [1]
    assert [body[0] for body in r.bitmaps(0, 64)] == [0]
    with pytest.raises(ValueError, match="must have 10 bytes, not 9"):
        wanted_packets(0, 0, 80, bytes(9))
