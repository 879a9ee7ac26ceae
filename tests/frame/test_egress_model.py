"""Egress queues, golden model: priority, thresholds, limit, marks, counters."""

import numpy as np
import pytest
from gradnic.models.frame.egress import CE, ENQUEUED, LIMIT, MARKED, THRESHOLD, Egress
from gradnic.models.frame.ipv4 import incremental_checksum, ip_checksum, retag

from gradnic.interface.formats import IPV4


def frame(n_bytes, ecn=0, ident=0):
    header = bytearray(
        IPV4.pack(version=4, ihl=5, ecn=ecn, total_length=n_bytes - 14, identification=ident)
    )
    IPV4.checksum.put(header, ip_checksum(header), origin=14)
    return bytes(12) + b"\x08\x00" + bytes(header) + bytes(n_bytes - 34)


def test_lower_queues_leave_first_in_order():
    port = Egress([1000, 1000, 1000], 1000)
    for ident, queue in enumerate([2, 1, 2, 0, 1]):
        assert port.enqueue(frame(64, ident=ident), queue, 0)
    out = [port.dequeue() for _ in range(5)]
    assert [queue for queue, _ in out] == [0, 1, 1, 2, 2]
    assert [IPV4.identification.get(f) for _, f in out] == [3, 1, 4, 0, 2]
    assert port.dequeue() is None
    assert port.used == [0, 0, 0]


def test_threshold_drops_or_marks_and_limit_drops_all():
    port = Egress([128, 256], 300)
    taken = [port.enqueue(frame(64, ecn=e), 0, int(e > 0)) for e in (0, 2, 0, 2, 1, 3, 2)]
    assert taken == [True, True, False, True, True, False, False]
    assert dict(port.counters) == {
        (ENQUEUED, 0, 0): 1,
        (ENQUEUED, 0, 1): 3,
        (THRESHOLD, 0, 0): 1,
        (MARKED, 0, 1): 2,
        (LIMIT, 0, 1): 2,
    }
    out = [port.dequeue()[1] for _ in range(4)]
    assert [IPV4.ecn.get(f) for f in out] == [0, 2, CE, CE]
    assert all(IPV4.checksum.get(f) == ip_checksum(f[14:34]) for f in out)


def test_the_back_queue_is_cut_later():
    port = Egress([128, 256], 300)
    assert [port.enqueue(frame(64), q, 0) for q in (0, 0, 0)] == [True, True, False]
    assert [port.enqueue(frame(64), q, 0) for q in (1,) * 5] == [True] * 4 + [False]


def test_cells_round_up():
    port = Egress([4], 4, cell=32)
    assert [port.enqueue(frame(65), 0, 0), port.enqueue(frame(65), 0, 0)] == [True, False]
    assert port.used == [3]
    port.dequeue()
    assert port.used == [0]


def test_an_existing_mark_is_kept_and_not_counted():
    port = Egress([10], 100)
    assert port.enqueue(frame(64, ecn=CE), 0, 1)
    assert port.counters == {(ENQUEUED, 0, 1): 1}


def test_cancelled_frames_leave_room():
    port = Egress([300], 300)
    for ident in range(4):
        port.enqueue(frame(64, ident=ident), 0, 0)
    assert port.cancel(lambda f: IPV4.identification.get(f) % 2 == 0) == 2
    assert port.used == [128]
    assert IPV4.identification.get(port.dequeue()[1]) == 1


def test_parameters():
    with pytest.raises(ValueError, match=r"thresholds must not decrease, not \[5, 4\]"):
        Egress([5, 4], 10)
    with pytest.raises(ValueError, match="limit must be at least 5, not 4"):
        Egress([5], 4)


def test_incremental_checksum_equals_the_full_one():
    rng = np.random.default_rng(5)
    for word in [0, 1, 0xFFFF, 0xFFFE, *rng.integers(0, 1 << 16, 200).tolist()]:
        header = bytearray(IPV4.pack(version=4, ihl=5, tos=0x28, total_length=1400, ttl=64))
        IPV4.identification.put(header, word, origin=14)
        IPV4.checksum.put(header, ip_checksum(header), origin=14)
        frame = retag(bytes(14) + bytes(header), int(rng.integers(256)))
        assert IPV4.checksum.get(frame) == ip_checksum(frame[14:34])
    assert incremental_checksum(0xDD2F, 0x5555, 0x3285) == 0x0000  # RFC 1624, section 4
