"""SwitchML-UDP: the switch's rule frame by frame, the worker's arithmetic, and both over links."""

import numpy as np
import pytest
from gradnic.models.aggregation.star import Faults, run
from gradnic.models.aggregation.switchml import SwitchmlJob, SwitchmlSwitch
from gradnic.models.aggregation.switchml_worker import SwitchmlWorker, exponent, factor, quantize
from gradnic.models.frame.address import Address
from gradnic.models.frame.ipv4 import checksums_hold, ip_checksum, udp_frame

from gradnic.interface.formats import IPV4, UDP
from gradnic.interface.switchml import SWITCHML

MAC, IP = 0x02AA00000000, 0x0A0000FE


def workers(n, first=0):
    return tuple(
        Address(first + i, 0x020000000000 + first + i, 0x0A000001 + first + i, 4000 + i)
        for i in range(n)
    )


def switch(*jobs, n_ports=4):
    return SwitchmlSwitch(MAC, IP, n_ports, jobs)


def packet(job, child, *, slot=0, set=0, number=7, values=None, **fields):
    values = np.full(job.values, child + 1) if values is None else values
    head = {"type": 1, "size": {64: 1, 256: 3}[job.values], "job": job.job, "packet": number}
    head = SWITCHML.pack(**head | {"slot": slot, "set": set} | fields)
    w = job.children[child]
    payload = head + np.asarray(values, ">i4").tobytes()
    return udp_frame((w.mac, w.ip, w.udp_port), (MAC, IP, 0xBEE3), payload, 128)


def sums(frame, n=64):
    return np.frombuffer(frame, ">i4", n, SWITCHML.stop)


JOB = SwitchmlJob(5, workers(3), first_slot=8, n_slots=8, values=64)


def test_a_result_as_the_worker_expects_it():
    """Bytes from outside the field tables: docs/spec/wire.md, one by one."""
    unit = switch(JOB)
    for child in (2, 0):
        sent = packet(JOB, child, slot=9, set=1, number=0x01020304, e0=child - 5, e1=child)
        assert unit.receive(sent, child) == []
    last = packet(JOB, 1, slot=9, set=1, number=0xA1B2C3D4, e0=-100, e1=-128)
    out = unit.receive(last, 1)
    assert [port for port, _ in out] == [0, 1, 2]
    assert len(last) == 308
    frame = out[0][1]
    assert frame[:14].hex() == "020000000000" + "02aa00000000" + "0800"
    assert frame[14:24].hex() == "45000126000000004011"
    assert frame[26:34].hex() == "0a0000fe" + "0a000001"
    assert frame[34:42].hex() == "bee3" + f"{4001:04x}" + "0112" + "0000"  # ports of the last
    assert frame[42:52].hex() == "1105" + "a1b2c3d4" + "8009" + "fd02"
    assert frame[52:] == bytes.fromhex("00000006") * 64
    assert checksums_hold(frame, len(frame))
    assert len(packet(SwitchmlJob(1, workers(1)), 0)) == 1076


def test_seen_packets_are_answered_only_when_complete():
    unit = switch(JOB)
    assert unit.receive(packet(JOB, 0, slot=8), 0) == []
    assert unit.receive(packet(JOB, 0, slot=8), 0) == []
    unit.receive(packet(JOB, 1, slot=8), 1)
    assert len(unit.receive(packet(JOB, 2, slot=8), 2)) == 3
    again = unit.receive(packet(JOB, 1, slot=8, number=99), 1)
    assert [(port, sums(frame)[0]) for port, frame in again] == [(1, 6)]
    assert SWITCHML.packet.get(again[0][1]) == 99
    assert unit.counters == {"accepted": 3, "claims": 1, "duplicates": 1, "retransmitted": 1}


def test_the_other_sets_bit_is_cleared_even_by_a_seen_packet():
    unit = switch(JOB)
    for set in (0, 1):
        for child in range(3):
            unit.receive(packet(JOB, child, slot=8, set=set), child)
    assert unit.sets[8, 0].bitmap == 0
    assert unit.sets[8, 1].bitmap == 7
    unit.receive(packet(JOB, 1, slot=8, set=1), 1)
    assert unit.sets[8, 1].bitmap == 7
    unit.receive(packet(JOB, 1, slot=8, set=0), 1)
    assert (unit.sets[8, 0].bitmap, unit.sets[8, 1].bitmap) == (2, 5)
    unit.receive(packet(JOB, 1, slot=8, set=0), 1)  # seen, and clears nothing new
    assert (unit.sets[8, 0].bitmap, unit.sets[8, 1].bitmap) == (2, 5)


def test_sums_wrap_and_exponents_take_the_signed_maximum():
    unit = switch(SwitchmlJob(5, workers(2), values=64))
    job = unit.jobs[5]
    top = np.full(64, 2**31 - 1)
    unit.receive(packet(job, 0, values=top, e0=-3, e1=-128), 0)
    out = unit.receive(packet(job, 1, values=np.arange(64), e0=-4, e1=127), 1)
    expected = (top + np.arange(64) + 2**31) % 2**32 - 2**31
    np.testing.assert_array_equal(sums(out[0][1]), expected)
    assert [SWITCHML[name].get(out[1][1]) for name in ("e0", "e1")] == [-3, 127]
    # the next round overwrites: neither sums nor exponents of the one before remain
    for set in (1, 0):
        for child in range(2):
            out = unit.receive(packet(job, child, set=set, e0=-9, e1=-9), child)
    assert sums(out[0][1])[0] == 3
    assert SWITCHML.e0.get(out[0][1]) == -9


def test_one_worker_gets_every_packet_back():
    job = SwitchmlJob(1, workers(1), values=64)
    unit = switch(job)
    for set in (0, 1, 0):
        out = unit.receive(packet(job, 0, set=set), 0)
        assert [(port, sums(frame)[0]) for port, frame in out] == [(0, 1)]


def test_the_known_failure_under_reordering():
    """SwitchML's rule needs paths that keep the order: worker 0 accepts a sum without worker 1."""
    job = SwitchmlJob(1, workers(2), values=64)
    unit = switch(job)
    unit.receive(packet(job, 0, set=0), 0)
    assert len(unit.receive(packet(job, 1, set=0), 1)) == 2  # both accept round 0
    late = packet(job, 1, set=0)  # sent once more, and delayed
    assert unit.receive(packet(job, 1, set=1), 1) == []
    unit.receive(late, 1)
    out = unit.receive(packet(job, 0, set=1), 0)
    assert [sums(frame)[0] for _, frame in out] == [1, 1]  # not 3


def foreign(frame):
    return frame[:36] + b"\x12\x34" + frame[38:]


def test_frames_that_are_not_the_profiles_cross():
    unit = switch(JOB)
    frame = packet(JOB, 0)
    for odd in (foreign(frame), frame[:43], packet(SwitchmlJob(6, workers(1)), 0), b"x" * 20):
        assert unit.receive(odd, 1) == [(5, odd)]
        assert unit.receive(odd, 6) == [(2, odd)]
    assert not unit.counters
    assert not unit.sets


def patched(frame, at, octets):
    frame = bytearray(frame)
    frame[at : at + len(octets)] = octets
    IPV4.checksum.put(frame, ip_checksum(frame[14:34]))
    return bytes(frame)


@pytest.mark.parametrize(
    ("reason", "change"),
    [
        ("length", lambda f: f[:-1]),
        ("length", lambda f: f[:48]),
        ("length", lambda f: patched(f, 38, b"\0\0")),
        ("length", lambda f: patched(patched(f, 38, b"\x01\x0e"), 16, b"\x01\x22")),
        ("checksum", lambda f: f[:25] + b"\x5a" + f[26:]),
        ("checksum", lambda f: f[:40] + b"\x12\x34" + f[42:]),
        ("config", lambda f: patched(f, 42, b"\x13")),
        ("owner", lambda f: patched(f, 6, b"\x04")),
        ("collisions", lambda f: patched(f, 49, b"\x07")),
        ("collisions", lambda f: patched(f, 48, b"\x80\x10")),
    ],
)
def test_what_is_dropped_changes_nothing(reason, change):
    unit = switch(JOB)
    wrong = change(packet(JOB, 0, slot=8))
    assert unit.receive(wrong, 0) == []
    assert unit.counters == {reason: 1}
    assert not unit.sets
    unit.counters.clear()
    unit.receive(packet(JOB, 0, slot=8), 0, bad=True)
    unit.receive(packet(JOB, 0, slot=8), 4)  # from the network
    assert unit.counters == {"bad": 1, "owner": 1}
    unit.counters.clear()
    own = packet(JOB, 0, slot=8)
    for frame, port in (
        (own, 1),  # the packet of worker 0 at worker 1's port
        (patched(own, 42, b"\x21"), 0),
        (patched(own, 42, b"\x01"), 0),
        (patched(own, 29, b"\x09"), 0),
    ):
        assert [crossed for _, crossed in unit.receive(frame, port)] == [frame]
    assert not unit.counters
    assert not unit.sets


def test_exponents_of_chunks():
    def of(*values):
        return exponent(np.array(values, np.float32))

    assert of(0, 0) == of(-0.0) == -126
    assert of(1e-40) == -126  # denormal
    assert of(1, -0.5) == 1
    assert of(1.99, -1.2) == 1
    assert of(-2) == 2
    assert of(3.4e38) == 128 - 256
    assert of(np.inf) == of(-np.inf, 5) == of(np.nan) == 129 - 256


def test_quantization_rounds_as_the_client_does():
    halves = np.array([0.5, 1.5, 2.5, -0.5, -1.5, -2.5], np.float32)
    tail = quantize(halves, np.float32(1))
    np.testing.assert_array_equal(tail, [1, 2, 3, -1, -2, -3])  # one by one: half away
    vector = quantize(np.resize(halves, 18), np.float32(1))
    np.testing.assert_array_equal(vector[:6], [0, 2, 2, 0, -2, -2])  # sixteen: to even
    np.testing.assert_array_equal(vector[16:], [-2, -3])
    extremes = np.array([np.inf, -np.inf, np.nan, 3e9], np.float32)
    np.testing.assert_array_equal(quantize(extremes, np.float32(1)), [-(2**31)] * 4)


def test_no_sum_of_n_workers_overflows():
    just_below = np.nextafter(np.float32(2), np.float32(0))
    for n in (1, 2, 3, 7, 32):
        for magnitude in (1e-25, 1.0, 1e30):
            value = np.float32(just_below * np.float32(magnitude))
            e = exponent(np.array([value]))
            one = int(quantize(np.array([value]), factor(e, n))[0])
            assert 2**30 / n < n * one / n <= 2**31 - 1
            assert n * one <= 2**31 - 1 + n


def test_tiny_chunks_come_back_as_zeros():
    """Below 2**-97 the scale is infinite: what is sent is no number, what comes back is 0."""
    for chunk in (np.zeros(16, np.float32), np.full(16, 1e-35, np.float32)):
        scale = factor(exponent(chunk), 3)
        assert np.isinf(scale)
        sent = quantize(chunk, scale)
        assert (sent == -(2**31)).all()
        assert (np.float32(sent) / scale == 0).all()


def reduced(gradients, n):
    """The all-reduce without a network, in plain arithmetic."""
    out = np.zeros_like(gradients[0])
    for at in range(0, out.size, 64):
        part = gradients[:, at : at + 64]
        scale = factor(max(exponent(x) for x in part), n)
        total = sum(quantize(x, scale).astype(np.int64) for x in part)
        out[at : at + 64] = (total.astype(np.int32).astype(np.float32)) / scale
    return out


@pytest.mark.parametrize("n", [1, 3, 4])
@pytest.mark.parametrize(
    "faults",
    [Faults(), Faults(loss=0.01, duplicate=0.02), Faults(loss=0.1, duplicate=0.1)],
    ids=["clean", "loss 1 %", "loss 10 %"],
)
@pytest.mark.parametrize("size", [64 * 50 + 13, 70, 5], ids=["long", "shorter", "one packet"])
def test_every_worker_gets_the_sum_on_paths_in_order(n, faults, size):
    rng = np.random.default_rng(size + n)
    job = SwitchmlJob(1, workers(n), first_slot=3, n_slots=8, values=64)
    unit = switch(job)
    shift = 5
    for _ in range(2):  # a second tensor on the same slots
        scales = np.float32(2.0) ** rng.integers(-20, 20, size)
        gradients = (rng.standard_normal((n, size)) * scales).astype(np.float32)
        gradients[:, 10:300] = 0
        # the timer must outlast a round trip: else a copy crosses the next packet of its worker
        clients = [
            SwitchmlWorker((MAC, IP), job, i, x, shift=shift) for i, x in enumerate(gradients)
        ]
        run(unit, clients, faults, seed=n)
        for client in clients:
            assert client.result().tobytes() == reduced(gradients, n).tobytes()
        shift = clients[0].next_shift
    assert unit.counters["accepted"] == n * 2 * clients[0].n_packets


def test_timer_doubles_after_a_hundred_timeouts():
    job = SwitchmlJob(1, workers(2), n_slots=4, values=64)
    client = SwitchmlWorker((MAC, IP), job, 0, np.ones(1000), timeout=10)
    client.start(0)
    assert client.tick(9) == []
    for turn in range(1, 26):
        assert len(client.tick(10 * turn)) == 4
    assert client.timeout == 20
    for turn in range(50):
        client.tick(10**4 * (turn + 1))
    assert client.timeout == 40  # the second time after 200


def test_results_of_other_jobs_and_packets_are_ignored():
    job = SwitchmlJob(1, workers(1), n_slots=4, values=64)
    unit = switch(job)
    client = SwitchmlWorker((MAC, IP), job, 0, np.ones(100))
    first = client.start(0)
    answer = unit.receive(first[0], 0)[0][1]
    assert client.receive(patched(answer, 43, b"\x02"), 0) == []
    assert client.receive(patched(answer, 44, b"\x99\0\0\0"), 0) == []
    assert len(client.receive(answer, 0)) == 1
    assert client.receive(answer, 0) == []
    with pytest.raises(ValueError, match="3 packets have no answer yet"):
        client.result()
    assert UDP.source_port.get(first[0]) == 4000


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: SwitchmlJob(256, workers(1)), "job must be 0 to 255, not 256"),
        (lambda: SwitchmlJob(1, ()), "children must be 1 to 32, not 0"),
        (lambda: SwitchmlJob(1, workers(1), 16380), "16380 \\+ 64 must lie within 0 to 16383"),
        (lambda: SwitchmlJob(1, workers(1), -5), "first_slot must be 0 to 16383, not -5"),
        (lambda: SwitchmlJob(1, workers(1), 0, 1.5), "n_slots must be 1 to 16384, not 1.5"),
        (lambda: switch(JOB).receive(bytes(60), 99), "port must be 0 to .*, not 99"),
        (lambda: SwitchmlJob(1, workers(1), values=32), "values must be 64 or 256, not 32"),
        (
            lambda: SwitchmlWorker((MAC, IP), JOB, 0, np.ones(9), window=9),
            "window must be 1 to 8, not 9",
        ),
    ],
)
def test_errors_name_the_value_and_the_limit(call, message):
    with pytest.raises(ValueError, match=message):
        call()
