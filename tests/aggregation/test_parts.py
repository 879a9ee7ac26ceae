"""Parts of the aggregator top, each against plain Python: turns, lost frames, the gate."""

from dataclasses import replace

import numpy as np
import pytest
from gradnic.hdl.aggregation.answer import AnswerFramer, AnswerPort
from gradnic.hdl.aggregation.gate import Gate
from gradnic.hdl.aggregation.parser import ContributionParser
from gradnic.hdl.aggregation.slot_sweep import Sweep
from gradnic.hdl.frame.packet_fifo import PacketFIFO
from gradnic.hdl.frame.round_robin import RoundRobin
from gradnic.hdl.stream.beats import FrameBeat
from gradnic.models.aggregation.aggregator import AggregatorTop
from gradnic.models.aggregation.parser import Aggregator
from gradnic.sim.aggregation import frames as makers
from gradnic.sim.engine import batch

from gradnic.interface.aggregator import Refusal
from gradnic.interface.formats import GRADNIC, HEAD_BYTES, UDP

N = 16


@pytest.mark.parametrize("n", [2, 5])
def test_sources_take_turns(n):
    model = batch.build(RoundRobin(N, n), name=f"round_robin{n}")
    rng = np.random.default_rng(n)
    frames = {k: [rng.bytes(int(rng.integers(1, 70))) for _ in range(20)] for k in range(n)}
    shape = model.streams["o"].shape
    inputs = {f"i__{k}": model.pack_frames(f"i__{k}", given) for k, given in frames.items()}
    run = model.run(inputs, ["o"])
    meta = run.unpack("o")["meta"][run.unpack("o")["last"].astype(bool)].tolist()
    assert meta == list(range(n)) * 20
    assert run.frames("o") == [frames[k][i] for i in range(20) for k in range(n)]
    assert np.ptp(run.taken["o"]) == len(run.outputs["o"]) - 1  # no gap between frames
    for duty in (0.3, 0.8):
        run = model.run(inputs, ["o"], stalls={port: duty for port in (*inputs, "o")})
        meta = run.unpack("o")["meta"][run.unpack("o")["last"].astype(bool)]
        for k in range(n):
            got = [f for f, source in zip(run.frames("o"), meta, strict=True) if source == k]
            assert got == frames[k]
    for name, beats in inputs.items():
        run = model.run({name: beats}, ["o"])
        assert np.ptp(run.taken["o"]) == len(beats) - 1  # a source alone has no gaps either
    assert shape["meta"].width == max(1, (n - 1).bit_length())


def test_frames_are_lost_whole():
    """A store of 16 beats that nobody empties for long; frames of 1 to 16 beats."""
    model = batch.build(PacketFIFO(FrameBeat(4), 16, drop=None, lossy=True))
    rng = np.random.default_rng(3)
    frames = [bytes([k % 256]) * 4 * int(rng.integers(1, 17)) for k in range(400)]
    beats = model.pack_frames("i", frames)
    run = model.run({"i": beats}, ["o"], signals={"drop": 0}, trace=["overflow"])
    assert run.frames("o") == frames[: len(run.frames("o"))] or run.traces["overflow"].sum()
    for duty in (0.05, 0.5):
        run = model.run(
            {"i": beats},
            ["o"],
            signals={"drop": 0},
            trace=["overflow"],
            stalls={"o": duty, "i": 0.9},
        )
        got = run.frames("o")
        lost = int(run.traces["overflow"].sum())
        assert lost > 0
        assert len(got) + lost == len(frames)
        rest = iter(frames)
        assert all(any(frame == other for other in rest) for frame in got)  # in order, whole
    slow = model.run(
        {"i": beats},
        ["o"],
        signals={"drop": 0},
        trace=["overflow"],
        stalls={"i": ([0], [1] + [0] * 9)},
    )
    assert slow.frames("o") == frames
    assert slow.traces["overflow"].sum() == 0


SMALL = makers.small_config()
CONFIG = replace(SMALL, jobs=SMALL.jobs[:2])  # those that speak our own frames


def programmed(model, config):
    """Signals that hold the gate's tables, and an instance whose children are written."""
    names = config.udp_port
    for k, job in enumerate(config.jobs):
        names |= (job.job | 1 << 8) << (16 + 10 * k)
    jobs = 0
    layout = model.levels["jobs"].shape
    for k, job in enumerate(config.jobs):
        at = layout[k].offset
        for name, value in (("first_slot", job.first_slot), ("n_slots", job.n_slots)):
            jobs |= value << at + layout[k].shape[name].offset
    instance = model.instance()
    entries = []
    for k, job in enumerate(config.jobs):
        for src, child in enumerate(job.children):
            entry = child.mac | child.ip << 48 | child.udp_port << 80 | src << 96 | 1 << 101
            entries.append(1 | child.port << 1 | k << 2 | entry << 3)
    size = model.levels["write"].size
    rows = np.array([list(e.to_bytes(size, "little")) for e in [*entries, 0]], np.uint8)
    jobs = np.frombuffer(jobs.to_bytes(model.levels["jobs"].size, "little"), np.uint8)[None]
    signals = {"names": names, "jobs": jobs, "write": rows}
    instance.run(signals=signals, drain=False, max_cycles=len(rows) + 1, probe_cycles=0)
    return instance


@pytest.fixture(scope="module")
def gate():
    return batch.build(Gate(N, 2, 2), name="gate")


@pytest.mark.parametrize("duty", [1.0, 0.5])
def test_the_gate_refuses_what_the_model_refuses(gate, duty):
    rng = np.random.default_rng(8)
    top = AggregatorTop(CONFIG)
    golden = Aggregator(CONFIG)
    given = makers.traffic(CONFIG, rng, 300, share_bad=0.5)
    frames = [
        (frame, bad, port)
        for port, frames in given.items()
        for frame, bad in frames
        if top.is_ours(frame, port) and len(frame) <= 16384
    ]
    frames = [frames[k] for k in rng.permutation(len(frames))]
    heads, payloads, collided, refused = [], [], [], dict.fromkeys(Refusal, 0)
    for frame, bad, port in frames:
        job = golden.job_of(frame, port)
        reason = golden._refusal(frame, job, port, bad)
        head = GRADNIC.parse(frame[:HEAD_BYTES].ljust(64))
        if not reason and not job.owns(head["slot"]):
            collided.append((port, golden.receive(frame, port, 0)[0][1]))
            reason = "collisions"
        refused[Refusal[(reason or "none").upper()]] += 1
        if not reason:
            heads.append((CONFIG.jobs.index(job), head, frame))
            payload = frame[HEAD_BYTES : UDP.start + UDP.length.get(frame)]
            payloads += [payload] if payload else []
    assert min(refused.values()) > 3
    beats = gate.pack_frames(
        "i",
        [frame for frame, _, _ in frames],
        at_last={"bad": [int(bad) for _, bad, _ in frames]},
        meta=np.array([port % 2 << 1 | port // 2 for *_, port in frames]),
    )
    run = programmed(gate, CONFIG).run(
        {"i": beats},
        reset=False,
        stalls={port: duty for port in ("i", "heads", "values", "collided")},
        trace=["refused"],
    )
    got = run.unpack("heads")
    assert len(got["job"]) == len(heads)
    for k, (job, head, frame) in enumerate(heads):
        assert got["job"][k] == job
        for name in ("src", "op", "gen", "slot", "lc", "tensor", "tree", "seq", "elems", "arg"):
            assert got[name][k] == head[name]
        assert got["length"][k] == UDP.length.get(frame) - 30
        assert got["ecn"][k] == head["ecn"] | (frame[15] & 3 == 3)
    ends = run.unpack("values")["last"].astype(bool)
    pieces = np.split(run.unpack("values")["data"], np.flatnonzero(ends) + 1)[:-1]
    assert [p.tobytes()[: len(w)] for p, w in zip(pieces, payloads, strict=True)] == payloads
    assert all(len(p) == -(-len(w) // N) for p, w in zip(pieces, payloads, strict=True))
    shown = run.unpack("collided")
    ports = shown["meta"][shown["last"].astype(bool)].tolist()
    assert list(zip(ports, run.frames("collided"), strict=True)) == collided
    counts = {r: int((run.traces["refused"] >> int(r) & 1).sum()) for r in Refusal}
    assert counts == refused


def test_a_gate_at_full_rate(gate):
    """Frames back to back: as many cycles as they have beats."""
    rng = np.random.default_rng(1)
    frames = [makers.sound(CONFIG, rng, job=CONFIG.jobs[0], child=0) for _ in range(100)]
    beats = gate.pack_frames("i", frames, meta=0)
    run = programmed(gate, CONFIG).run({"i": beats}, reset=False)
    assert np.ptp(run.taken["i"]) == len(beats) - 1
    assert len(run.outputs["heads"]) == 100


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: Gate(8, 2, 2), "n_bytes must be a power of two from 16 to 64, not 8"),
        (lambda: Gate(N, 33, 2), "n_ports must be 1 to 32, not 33"),
        (lambda: ContributionParser(N, 2, 17), "n_jobs must be 1 to 16, not 17"),
        (lambda: AnswerFramer(128, 2), "n_bytes must be a power of two from 16 to 64, not 128"),
        (lambda: AnswerPort(N, 2, 2, 2), "number must be 0 to 1, not 2"),
        (lambda: AnswerPort(N, 2, 2, 0, queued=257), "queued must be 0 to 256, not 257"),
        (lambda: Sweep(2, 1), "place_width must be 2 to 14, not 1"),
        (lambda: Sweep(0, 4), "n_jobs must be 1 to 16, not 0"),
    ],
)
def test_errors_name_the_value_and_the_limit(call, message):
    with pytest.raises(ValueError, match=message):
        call()
