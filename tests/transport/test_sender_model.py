"""Sender, golden model: order, selective resend, STOP, spraying, pacing; and whole transfers."""

import numpy as np
import pytest
from gradnic.models.transport.blt import Path, transfer
from gradnic.models.transport.sender import DATA, LINE, PROBE, Pace, Sending, Spray, xorshift


def drain(sending, now):
    out = []
    while (item := sending.next(now)) is not None:
        out.append(item)
    return out


def test_all_packets_then_a_probe():
    s = Sending([(0, 0)] * 3, first=40, t_probe=10)
    assert drain(s, 5) == [(DATA, 40, 0), (DATA, 41, 0), (DATA, 42, 0), (PROBE, 5, 0)]
    assert drain(s, 14) == []
    assert drain(s, 15) == [(PROBE, 15, 1)]
    s.stop()
    assert drain(s, 100) == []
    assert s.done


def test_lost_ones_go_again_important_first_then_low_queues():
    s = Sending([(0, 3), (1, 3), (0, 1), (1, 2), (1, 3)], t_probe=10)
    drain(s, 0)
    assert s.bitmap(0, [0, 1, 2, 3, 4])
    assert [i[1] for i in drain(s, 2)] == [3, 1, 4, 2, 0, 2]
    assert s.n_again == 5


def test_only_bitmaps_of_probes_behind_the_data_are_believed():
    s = Sending([(0, 0)] * 6, t_probe=10)
    assert not s.bitmap(0, [1])  # before any PROBE
    drain(s, 0)
    drain(s, 10)
    assert s.bitmap(0, [1, 2])  # first page
    assert [i[1] for i in drain(s, 12)] == [1, 2, 12]
    assert not s.bitmap(10, [1, 2])  # its PROBE left before these two did
    assert s.bitmap(12, [2])
    s.next(13)
    assert s.bitmap(12, [2, 5])  # the second page of that answer: 2 has gone since
    assert [i[1] for i in drain(s, 14)] == [5, 14]


def test_stop_cancels_what_is_queued():
    s = Sending([(0, 0)] * 6)
    s.next(0)
    s.stop()
    assert s.next(1) is None
    assert not s.bitmap(0, [3])


def test_paths_round_robin_and_random():
    assert [Spray(3).next() for _ in range(1)] == [0]
    s = Spray(3)
    assert [s.next() for _ in range(7)] == [0, 1, 2, 0, 1, 2, 0]
    s = Spray(5, "random", seed=9)
    got = [s.next() for _ in range(5000)]
    assert np.bincount(got, minlength=5).min() > 900
    assert xorshift(1) == 0x00042021


def test_least_recently_marked_path():
    s = Spray(4, "least_marked")
    assert [s.next() for _ in range(3)] == [0, 1, 2]
    s.mark(3)
    assert [s.next() for _ in range(4)] == [0, 1, 2, 0]
    for path in (0, 1, 2):
        s.mark(path)
    assert [s.next() for _ in range(3)] == [3, 3, 3]  # all are marked: the oldest
    s.mark(3)
    assert s.next() == 0


def test_a_silent_path_is_left_and_lost_probes_do_not_end_the_spraying():
    s = Spray(4, "least_marked")
    for path in (0, 1, 3):
        s.mark(path)
    assert s.next() == 2  # dead, it has no mark
    assert s.again(2) != 2
    assert {s.next() for _ in range(8)} == set(range(4))  # all go without a mark again
    for _ in range(20):
        s.again(s.next())
    assert len({s.next() for _ in range(8)}) > 1


def test_a_probe_that_was_refused_is_not_again():
    s = Sending([(0, 0)] * 2, t_probe=16)
    drained = drain(s, 0)
    assert drained[-1] == (PROBE, 0, 0)
    s.refused()
    assert s.next(2) == (PROBE, 2, 0)
    assert s.next(18) == (PROBE, 18, 1)


def test_marked_share_cuts_the_rate_and_its_absence_restores_it():
    p = Pace("ce", floor=1000, step=500)
    p.echo(255, 0)
    assert p.alpha == 255 * 256 // 16
    assert p.rate == LINE - (LINE * p.alpha >> 17)
    for _ in range(100):
        p.echo(255, 0)
    assert p.rate == 1000
    assert abs(p.alpha - 255 * 256) < 256
    p.echo(0, 0)
    assert p.rate == 1500
    for _ in range(300):
        p.echo(0, 0)
    assert p.rate == LINE


def test_round_trips_steer_the_rate():
    p = Pace("rtt", low=10, high=100, step=64)
    p.echo(0, 200)
    assert p.rate == LINE - LINE // 8
    before = p.rate
    p.echo(0, 50)  # falling
    assert p.rate == before + 64
    p.echo(0, 60)  # growing between low and high
    assert p.rate == before + 64 - (before + 64 >> 4)


def test_credit_keeps_the_rate():
    p = Pace("ce", floor=1, step=1)
    p.rate = LINE // 4
    sent = 0
    for _ in range(10_000):
        p.cycle(32, 2000)
        sent += 1500 if p.spend(1500) else 0
    assert abs(sent / (10_000 * 8) - 1) < 0.03


@pytest.mark.parametrize("loss", [0.0, 0.01, 0.1])
@pytest.mark.parametrize("jitter", [0, 5000])
def test_reliable_transfer_brings_everything(loss, jitter):
    got = transfer(1_000_001, Path(loss=loss, jitter=jitter), seed=3)
    assert got.missing == 0
    assert got.stopped >= got.complete
    assert got.complete < got.loss_free + 20 * 20_000 + jitter * 10
    if not loss and not jitter:
        assert got.n_again == 0
        assert got.complete == pytest.approx(got.loss_free)


@pytest.mark.parametrize("p", [0x0148, 0x051F, 0x199A])
def test_bounded_transfer_never_loses_more(p):
    for seed in range(5):
        got = transfer(500_000, Path(loss=0.05), p_q16=p, seed=seed)
        assert 0 <= got.missing <= p / 65536


def test_important_packets_all_arrive():
    """Nine of ten packets may miss; the important ones, every tenth, may not."""
    marks = np.arange(1000) % 10 == 0
    loose, strict = (
        transfer(1000 * 1408, Path(loss=0.2), p_q16=0xE666, important=marks, seed=1,
                 strict_important=wanted)
        for wanted in (False, True)
    )  # fmt: skip
    assert loose.n_again == 0
    assert strict.n_again > 0
    assert strict.complete > loose.complete
