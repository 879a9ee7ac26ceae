"""The golden aggregator: each row of the slot rule, then whole all-reduces under faults."""

from collections import Counter

import numpy as np
import pytest
from gradnic.models.aggregation.aggregator import Aggregator, AggregatorTop
from gradnic.models.aggregation.contribution import contribution
from gradnic.models.aggregation.jobs import Config, Job
from gradnic.models.aggregation.star import Client, Faults, run
from gradnic.models.frame.address import Address
from gradnic.models.frame.ipv4 import checksums_hold
from gradnic.models.thc import worker as thc

from gradnic.interface.aggregator import REGISTERS
from gradnic.interface.formats import AGGREGATOR, GRADNIC, HEAD_BYTES, IPV4, UDP, Op

N = 3


def children(n=N):
    return tuple(Address(i, 0x020000000001 + i, 0x0A000001 + i, 50_000 + i) for i in range(n))


def config(**job):
    job = Job(**{"job": 5, "children": children(), "n_slots": 4} | job)
    other = Job(job=6, children=children(), first_slot=100, n_slots=4)
    return Config(0x0200000000FF, 0x0A0000FF, len(job.children), (job, other))


def up(config, child, *, gen=0, slot=1, seq=7, codes=None, job=None, arg=0x1234, **more):
    job = job or config.jobs[0]
    if job.kind == "int32":
        payload, op = np.asarray(codes, "<i4").tobytes(), Op.INT32
    else:
        codes = np.full(job.C, child) if codes is None else codes
        payload, op = thc.pack(codes, job.b), Op.THC_IDX
    fields = {"op": op, "gen": gen, "slot": slot, "tensor": 2, "seq": seq, "arg": arg}
    return contribution(job, child, aggregator=config, payload=payload, **fields | more)


def headers(out):
    return [GRADNIC.parse(frame) for _, frame in out]


def test_sum_is_multicast_once_all_are_in():
    c = config()
    unit = Aggregator(c)
    assert unit.receive(up(c, 0), 0, 0) == []
    assert unit.receive(up(c, 2, last=1), 2, 1) == []
    out = unit.receive(up(c, 1), 1, 2)
    assert [port for port, _ in out] == [0, 1, 2]
    table = thc.solve_table(4, 30, 1 / 32)
    for child, (_, frame) in enumerate(out):
        header = GRADNIC.parse(frame)
        assert header["op"] == Op.THC_SUM
        assert (header["ph"], header["src"], header["arg"]) == (1, AGGREGATOR, 0b111)
        assert (header["p0"], header["last"], header["part"], header["retx"]) == (3, 1, 0, 0)
        assert (header["tensor"], header["seq"], header["slot"], header["set"]) == (2, 7, 1, 0)
        assert set(frame[HEAD_BYTES:]) == {table[0] + table[1] + table[2]}
        assert checksums_hold(frame, len(frame))
        assert UDP.destination_port.get(frame) == 50_000 + child
        assert IPV4.ttl.get(frame) == 64


def test_duplicate_changes_nothing():
    c = config()
    unit = Aggregator(c)
    for child, port in ((0, 0), (0, 0), (1, 1), (0, 0)):
        unit.receive(up(c, child), port, 0)
    assert unit.counters["duplicates"] == 2
    out = unit.receive(up(c, 2), 2, 0)
    assert out[0][1][HEAD_BYTES] == sum(thc.solve_table(4, 30, 1 / 32)[:3])


def test_closed_slot_answers_again():
    c = config()
    unit = Aggregator(c)
    (first, *_) = [unit.receive(up(c, child), child, 0) for child in range(3)][2]
    (again,) = unit.receive(up(c, 0), 0, 9)
    assert GRADNIC.retx.get(again[1]) == 1
    assert again[1][HEAD_BYTES:] == first[1][HEAD_BYTES:]
    assert unit.counters["retransmitted"] == 1


def test_stale_packet_is_refused_and_told():
    c = config()
    unit = Aggregator(c)
    for child in range(3):
        unit.receive(up(c, child, gen=2), child, 0)
    before = unit.engine.slots[1, 0].sums.copy()
    (answer,) = unit.receive(up(c, 1, gen=0), 1, 1)
    header = GRADNIC.parse(answer[1])
    assert (header["op"], header["p0"], header["gen"], header["arg"]) == (Op.CONTROL, 4, 0, 2)
    np.testing.assert_array_equal(unit.engine.slots[1, 0].sums, before)


def test_newer_generation_claims_across_the_wrap():
    c = config()
    unit = Aggregator(c)
    for child in range(3):
        unit.receive(up(c, child, gen=0xFFFE), child, 0)
    unit.receive(up(c, 0, gen=0), 0, 1)
    assert unit.engine.slots[1, 0].record.gen == 0
    assert unit.engine.slots[1, 0].record.bitmap == 1
    assert unit.receive(up(c, 1, gen=0xFFFE), 1, 2)[0][1][HEAD_BYTES - 4 :] != b""
    assert unit.counters["stale"] == 1


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"op": 9}, "format"),
        ({"gen": 1}, "format"),
        ({"ph": 1}, "owner"),
        ({"src": 3}, "owner"),
        ({"src": 1}, "owner"),
        ({"op": Op.INT32}, "config"),
        ({"p1": 31}, "config"),
        ({"elems": 1000}, "config"),
    ],
)
def test_refused_before_any_slot_is_read(change, reason):
    c = config()
    unit = Aggregator(c)
    frame = bytearray(up(c, 0))
    for name, value in change.items():
        GRADNIC[name].put(frame, value)
    assert unit.receive(bytes(frame), 0, 0) == []
    assert unit.counters == Counter({reason: 1})
    assert unit.engine.slots == {}


def test_damaged_frames_are_dropped():
    c = config()
    unit = Aggregator(c)
    frame = up(c, 0)
    assert unit.receive(frame, 0, 0, bad=True) == []
    assert unit.receive(frame[:-1], 0, 0) == []
    assert unit.receive(frame[:24] + b"\0\0" + frame[26:], 0, 0) == []
    assert unit.receive(frame[:50], 0, 0) == []
    assert unit.counters == Counter(bad=1, length=2, checksum=1)


def test_who_may_speak():
    """A child's address at its port but from the network, or with another MAC: dropped."""
    c = config()
    unit = Aggregator(c)
    assert unit.receive(up(c, 0), 3, 0) == []
    assert unit.receive(patched(up(c, 0), 6, b"\x04"), 0, 0) == []
    assert unit.counters == {"owner": 2}
    assert unit.engine.slots == {}


def test_what_only_looks_like_ours_crosses():
    """Another version; no child's address, or not at its port: whatever else fits."""
    c = config()
    unit = Aggregator(c)
    own = up(c, 0)
    for frame, port in (
        (patched(own, 42, bytes([own[42] ^ 0x80])), 0),
        (patched(own, 29, b"\x99"), 0),
        (own, 1),
        (own, 4),
    ):
        assert unit.receive(frame, port, 0) == [((port + 3) % 6, frame)]
    assert not unit.counters
    assert unit.engine.slots == {}


def patched(frame, at, octets):
    return frame[:at] + octets + frame[at + len(octets) :]


def test_foreign_traffic_and_unknown_jobs_cross():
    c = config()
    unit = Aggregator(c)
    unknown = bytearray(up(c, 0))
    GRADNIC.job.put(unknown, 77)
    for frame in (b"\xff" * 60, bytes(unknown), b""):
        assert unit.receive(frame, 1, 0) == [(4, frame)]
        assert unit.receive(frame, 4, 0) == [(1, frame)]


def test_another_jobs_slot_is_a_collision():
    c = config()
    unit = Aggregator(c)
    ((port, frame),) = unit.receive(up(c, 0, slot=100), 0, 0)
    assert port == 3
    assert GRADNIC.coll.get(frame) == 1
    assert unit.engine.slots == {}


def test_differing_claim_changes_nothing():
    c = config()
    unit = Aggregator(c)
    unit.receive(up(c, 0), 0, 0)
    for change in ({"seq": 8}, {"arg": 0x1235}, {"lc": 1}):
        assert unit.receive(up(c, 1, **change), 1, 0) == []
    assert unit.counters["config"] == 3
    assert unit.engine.slots[1, 0].record.bitmap == 1


def test_partial_close_fills_with_half_of_g():
    c = config(close="n_min", n_min=2)
    unit = Aggregator(c)
    unit.receive(up(c, 0), 0, 0)
    out = unit.receive(up(c, 1), 1, 0)
    table = thc.solve_table(4, 30, 1 / 32)
    header = GRADNIC.parse(out[0][1])
    assert (header["part"], header["p0"], header["arg"]) == (1, 2, 0b11)
    assert out[0][1][HEAD_BYTES] == table[0] + table[1] + 15
    (late,) = unit.receive(up(c, 2), 2, 0)
    assert late[1][HEAD_BYTES:] == out[2][1][HEAD_BYTES:]
    assert unit.counters["late"] == 1


def test_deadline_closes_what_is_open():
    c = config(deadline=50)
    unit = Aggregator(c)
    unit.receive(up(c, 1), 1, 10)
    assert unit.tick(59) == []
    assert len(unit.tick(60)) == 3
    assert unit.tick(100) == []


def test_bounded_loss_closes_the_tensor():
    """One of three children may miss of every two chunks: 1/6 of the bytes."""
    c = config(close="bounded", total_bytes=1024, p_q16=round(65536 / 6) + 1)
    unit = Aggregator(c)
    frames = [(k, slot) for slot in (0, 1) for k in range(3)]
    closed = 0
    for child, slot in frames[:-2]:
        closed += len(unit.receive(up(c, child, slot=slot, seq=slot), child, 0))
    assert closed == 3
    assert len(unit.receive(up(c, 1, slot=1, seq=1), 1, 0)) == 3


@pytest.mark.parametrize("rule", ["wrap", "saturate", "error"])
def test_int32_overflow(rule):
    c = config(kind="int32", overflow=rule)
    unit = Aggregator(c)
    values = [[2**31 - 1, -5, 7], [1, -6, 8], [0, 1, 9]]
    for child in range(3):
        out = unit.receive(up(c, child, codes=values[child], p0=child, p1=255), child, 0)
    header = GRADNIC.parse(out[0][1])
    top = 2**31 - 1 if rule == "saturate" else -(2**31)
    assert list(np.frombuffer(out[0][1][HEAD_BYTES:], "<i4")) == [top, -10, 24]
    assert (header["ovf"], header["p0"], header["p1"]) == (1, 2, 255)
    said = next(f for f in REGISTERS["job_rule"].fields if f.name == "overflow")
    assert "all set OVF" in said.doc


def test_congestion_mark_is_sticky():
    c = config()
    unit = Aggregator(c)
    marked = bytearray(up(c, 1))
    IPV4.ecn.put(marked, 3)
    from gradnic.models.frame.ipv4 import ip_checksum

    IPV4.checksum.put(marked, ip_checksum(marked[14:34]))
    unit.receive(up(c, 0), 0, 0)
    unit.receive(bytes(marked), 1, 0)
    assert {h["ecn"] for h in headers(unit.receive(up(c, 2), 2, 0))} == {1}


def all_reduce(faults, *, n=4, n_values=20_000, seed=0, k0=0, **job):
    rng = np.random.default_rng(seed)
    gradients = rng.standard_normal((n, n_values)).astype(np.float32)
    gradients[1, 3000:6000] = 0
    c = config(children=children(n), n_slots=8, **job)
    worker = thc.Worker(n, 42)
    clients = [Client(c, c.jobs[0], i, worker, x, round=3, k0=k0) for i, x in enumerate(gradients)]
    unit = Aggregator(c)
    run(unit, clients, faults, seed=seed)
    return worker, gradients, clients, unit


def direct(worker, gradients):
    """The same all-reduce without a network."""
    norms = np.maximum.reduce([worker.norms(x) for x in gradients])
    indices = [worker.encode(x, norms, round=3, worker=i) for i, x in enumerate(gradients)]
    return worker.decode(sum(worker.table[z] for z in indices), norms, round=3)


@pytest.mark.parametrize(
    "faults",
    [
        Faults(),
        Faults(loss=0.001),
        Faults(loss=0.01, duplicate=0.05, reorder=64),
        Faults(loss=0.1, duplicate=0.1, reorder=5000),
    ],
    ids=["clean", "loss 0.1 %", "loss 1 %, reordered", "loss 10 %, later than the timer"],
)
@pytest.mark.parametrize("k0", [0, (8 << 16) - 5], ids=["start", "generation wraps"])
def test_every_worker_gets_the_exact_sum(faults, k0):
    worker, gradients, clients, unit = all_reduce(faults, k0=k0)
    expected = direct(worker, gradients)
    for client in clients:
        assert client.result().tobytes() == expected.tobytes()
    chunks = len(clients[0].plan)
    assert unit.counters["accepted"] == 4 * chunks


def test_a_dead_worker_does_not_stop_the_rest():
    faults = Faults(loss=0.01, reorder=30, death=((2, 400),))
    worker, gradients, clients, unit = all_reduce(faults, deadline=3000)
    assert clients[0].done
    assert not clients[2].done
    assert unit.counters["partial"] > 0
    replicas = {clients[i].result().tobytes() for i in (0, 1, 3)}
    assert len(replicas) == 1
    expected = direct(worker, gradients)
    missing = [chunk for chunk, bitmap in enumerate(clients[0].bitmaps) if not bitmap >> 2 & 1]
    whole = [chunk for chunk in range(len(clients[0].bitmaps)) if chunk not in missing]
    got = clients[0].result().reshape(-1, 1024)
    assert missing
    np.testing.assert_array_equal(got[whole], expected.reshape(-1, 1024)[whole])


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: config(children=children(9)), "n \\* g must be below 2\\*\\*8, not 9 \\* 30"),
        (lambda: config(close="n_min", g=31), "g must be even where slots close in part, not 31"),
        (lambda: config(first_slot=99), "slot 100 belongs to jobs 5 and 6"),
        (lambda: config(w=9), "w must be 8, 12 or 16, not 9"),
        (lambda: config(first_slot=-5), "first_slot must be 0 to 8191, not -5"),
        (lambda: config(n_slots=1.5), "n_slots must be 1 to 8192, not 1.5"),
        (lambda: config(B=100), "block must be 64, 256, 1024 or 4096, not 100"),
        (lambda: config(b=9), "b must be 1 to 8, not 9"),
        (lambda: config(g=13), "g must be 14 to 255, not 13"),
        (lambda: config(C=100), "C must be a multiple of 64, not 100"),
        (lambda: config(C=0), "C must be 64 to 8192, not 0"),
        (lambda: config(C=8192, w=16), "C must be at most 8160 with w = 16, not 8192"),
        (lambda: config(C=-1), "C must be 64 to 8192, not -1"),
        (lambda: config(close="n_min", n_min=9), "n_min must be 1 to 3, not 9"),
        (lambda: config(n_min=0), "n_min must be 1 to 3, not 0"),
        (lambda: config(deadline=-1), "deadline must be 0 to 4294967295, not -1"),
        (lambda: config(p_q16=70000), "p_q16 must be 0 to 65535, not 70000"),
        (lambda: config(total_bytes=-1), "total_bytes must be 0 to 366503875925, not -1"),
        (lambda: config(n=2.5), "n must be 1 to 255, not 2.5"),
        (lambda: config(job=1.5), "job must be 0 to 255, not 1.5"),
        (lambda: Config(-1, 1, 1, ()), "mac must be 0 to 281474976710655, not -1"),
        (lambda: Config(1, -1, 1, ()), "ip must be 0 to 4294967295, not -1"),
        (lambda: Config(1, 1, 1, (), udp_port=70000), "udp_port must be 0 to 65535, not 70000"),
        (lambda: Config(1, 1, 1, (), n_words=-1), "n_words must be 1 to 2048, not -1"),
        (lambda: Config(1, 1, 1.5, ()), "n_ports must be 1 to 32, not 1.5"),
        (lambda: Address(-1, 0, 0), "port must be 0 to 63, not -1"),
        (lambda: Address(0, -1, 0), "mac must be 0 to 281474976710655, not -1"),
        (lambda: Address(0, 1 << 48, 0), "mac must be 0 to 281474976710655, not 28147497671065"),
        (lambda: Address(0, 0, -1), "ip must be 0 to 4294967295, not -1"),
        (lambda: Address(0, 0, 0, 70000), "udp_port must be 0 to 65535, not 70000"),
        *((lambda port=port: Aggregator(config()).receive(bytes(60), port, 0),
           f"port must be 0 to 5, not {port}") for port in (-1, 6, 99, 1.5)),
        *((lambda port=port: AggregatorTop(config()).receive(bytes(60), port, 0),
           f"port must be 0 to 5, not {port}") for port in (-1, 99, 1.5)),
        (lambda: up(config(), 3), "child must be 0 to 2, not 3"),
        (lambda: up(config(), -1, codes=np.zeros(1024, int)), "child must be 0 to 2, not -1"),
        (lambda: Faults(loss=1.5), "loss must be from 0 to below 1, not 1.5"),
    ],
)  # fmt: skip
def test_errors_name_the_value_and_the_limit(call, message):
    with pytest.raises(ValueError, match=message):
        call()
