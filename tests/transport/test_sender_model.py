"""Sender, golden model: order, selective resend, STOP; and whole transfers."""

import numpy as np
import pytest
from gradnic.models.transport.blt import Path, transfer
from gradnic.models.transport.sender import DATA, PROBE, Sending


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


def test_a_probe_that_was_refused_is_not_again():
    s = Sending([(0, 0)] * 2, t_probe=16)
    drained = drain(s, 0)
    assert drained[-1] == (PROBE, 0, 0)
    s.refused()
    assert s.next(2) == (PROBE, 2, 0)
    assert s.next(18) == (PROBE, 18, 1)


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
