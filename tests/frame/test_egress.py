"""Egress queues in the batch engine: the golden port's decisions, frame by frame, and priority."""

import numpy as np
import pytest
from gradnic.hdl.frame import egress as circuit
from gradnic.models.frame.egress import (
    ENQUEUED,
    LIMIT,
    MARKED,
    THRESHOLD,
    Egress,
    classify,
)
from gradnic.models.frame.ipv4 import ip_checksum, ones_complement_sum
from gradnic.sim.engine import batch, stimulus

from gradnic.interface.formats import IPV4

K = [8, 12, 16, 20, 24, 28, 32, 36]
LIMIT_BEATS = 40


def frames_of(rng, n, n_bytes, largest):
    """Frames of all sizes, with every class and ECN value, a tenth of them of other protocols, and
    (queue, important) of each.
    """
    out = []
    for ident in range(n):
        size = int(rng.choice([34, 60, 64, 65, n_bytes * 3, int(rng.integers(34, largest))]))
        header = bytearray(IPV4.pack(
            version=4, ihl=5, tos=int(rng.integers(256)), identification=ident % 65536,
            total_length=size - 14, source=int(rng.integers(1 << 32)), ttl=64,
        ))  # fmt: skip
        if ident % 3 == 0:  # a checksum next to 0, where a mark carries round
            wanted = int(rng.integers(3)) ^ 0xFFFF
            IPV4.identification.put(header, 0, origin=14)
            IPV4.identification.put(
                header, (wanted - ones_complement_sum(header)) % 65535, origin=14
            )
        IPV4.checksum.put(header, ip_checksum(header), origin=14)
        kind = [0x0800, 0x0806, 0x86DD, 0x0008][int(rng.choice(4, p=[0.9, 0.04, 0.04, 0.02]))]
        frame = rng.bytes(12) + kind.to_bytes(2, "big") + bytes(header) + rng.bytes(size - 34)
        out.append((frame, *classify(frame)))
    return out


def build(n_bytes):
    return batch.build(circuit.EgressQueues(n_bytes, queue_beats=64, max_beats=20))


def play(n_bytes, frames, bad=(), **options):
    unit = batch.Instance(build(n_bytes))
    width = circuit.EgressQueues(n_bytes, queue_beats=64, max_beats=20).depth_width
    signals = {"thresholds": sum(k << width * q for q, k in enumerate(K)), "limit": LIMIT_BEATS}
    unit.run(signals=signals, drain=False, max_cycles=70)
    bad = bad or [False] * len(frames)
    beats = unit.model.pack_frames("i", [f for f, _, _ in frames], at_last={"bad": bad})
    run = unit.run({"i": beats}, trace=("event", "dequeued"), reset=False, **options)
    return unit, run


def decode(trace):
    word = np.asarray(trace).astype(np.int64)
    return {"valid": word & 1, "what": word >> 1 & 3, "queue": word >> 3 & 7}


@pytest.mark.parametrize("n_bytes", [16, 32, 64])
@pytest.mark.parametrize(("i", "o"), [(1, 1), (1, 0.5), (1, 0.2), (0.3, 1)])
def test_every_frame_meets_its_golden_fate(n_bytes, i, o):
    rng = stimulus.rng("egress", n_bytes, i, o)
    frames = frames_of(rng, 1200, n_bytes, 22 * n_bytes)
    bad = [len(frame) % 5 == 0 for frame, _, _ in frames]
    unit, run = play(n_bytes, frames, bad, stalls={"i": i, "o": o}, max_cycles=200_000)
    frames = [frame for frame, is_bad in zip(frames, bad, strict=True) if not is_bad]
    port = Egress(K, LIMIT_BEATS, cell=n_bytes, largest=20, most=64)
    event, left = decode(run.traces["event"]), decode(run.traces["dequeued"])
    fates = {0: ENQUEUED, 1: MARKED, 2: THRESHOLD, 3: LIMIT}
    out, number = [], 0
    for t in np.flatnonzero(event["valid"] | left["valid"]):
        if event["valid"][t]:
            frame, queue, important = frames[number]
            before = port.counters.copy()
            port.enqueue(frame, queue, important)
            told = set(port.counters - before)
            assert (fates[int(event["what"][t])], queue, important) in told
            number += 1
        if left["valid"][t]:
            out.append(port.dequeue(int(left["queue"][t])))
    assert number == len(frames)
    assert not any(port.queues)
    assert run.frames("o") == [frame for _, frame in out]
    counted = counters(unit)
    for important in (0, 1):
        for queue in range(8):
            row = {what: port.counters[what, queue, important] for what in fates.values()}
            row[ENQUEUED] -= row[MARKED]
            place = 4 * (queue + 8 * important)
            assert [counted[place + k] for k in range(4)] == [row[fates[k]] for k in range(4)]
    if o < 1:
        assert all(sum(counted[k::4]) for k in range(4))


def alike(frames):
    """The frames in queue 5, important."""
    for frame, _, _ in frames:
        octets = bytearray(frame)
        octets[12:14] = b"\x08\x00"
        octets[15] = 2 << 5 | 1
        yield bytes(octets)


def counters(unit):
    found = []
    for address in range(64):
        run = unit.run(signals={"count_addr": address}, trace=("count",), reset=False, drain=False,
                       max_cycles=1)  # fmt: skip
        found.append(int(run.traces["count"][0]))
    return found


def test_the_lowest_queue_goes_first():
    frames = frames_of(stimulus.rng("priority"), 600, 32, 300)
    _, run = play(32, frames, stalls={"o": 0.4}, max_cycles=100_000)
    event, left = decode(run.traces["event"]), decode(run.traces["dequeued"])
    waiting = []  # (time, queue) of frames inside
    ends = 0
    for t in np.flatnonzero(event["valid"] | left["valid"]):
        if event["valid"][t] and event["what"][t] < 2:
            waiting.append((t, int(event["queue"][t])))
        if left["valid"][t]:
            queue = int(left["queue"][t])
            older = [q for when, q in waiting if when + 3 < ends]
            assert not older or queue <= min(older)
            waiting.remove(min(entry for entry in waiting if entry[1] == queue))
            ends = t  # when the next frame is chosen


def test_rate_and_latency():
    rng = stimulus.rng("rate")
    frames = [(f, *classify(f)) for f in alike(frames_of(rng, 300, 32, 300))]
    _, run = play(32, frames)
    np.testing.assert_array_equal(np.diff(run.taken["i"]), 1)
    gaps = np.diff(run.taken["o"])
    assert gaps[: len(gaps) // 2].max() <= 12  # waits for whole frames to come in only
    one = frames[:1]
    _, run = play(32, one)
    assert run.taken["o"][0] - run.taken["i"][-1] == 11
    _, run = play(32, frames[:1] * 6, stalls={"o": ([0] * 60, 1)})
    np.testing.assert_array_equal(np.diff(run.taken["o"]), 1)


def test_parameters():
    with pytest.raises(ValueError, match="n_bytes must be a power of two from 16 to 128, not 8"):
        circuit.EgressQueues(8)
    with pytest.raises(ValueError, match="max_beats must be 1 to 63, not 64"):
        circuit.EgressQueues(32, queue_beats=64, max_beats=64)
