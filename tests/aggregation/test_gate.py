"""What passes the gate, frame by frame: heads, payloads, frames sent on, and reasons."""

import numpy as np
import pytest
from gradnic.hdl.aggregation.gate import Gate
from gradnic.models.aggregation import gate as golden
from gradnic.models.aggregation import parser
from gradnic.models.aggregation.aggregator import AggregatorTop
from gradnic.sim.aggregation import frames as makers
from gradnic.sim.aggregation.tables import programmed
from gradnic.sim.engine import batch

from gradnic.interface.aggregator import MAX_FRAME, Refusal

N = 16
CONFIG = makers.small_config()


@pytest.fixture(scope="module")
def gate():
    return batch.build(Gate(N, CONFIG.n_ports, len(CONFIG.jobs)), name="gate")


def ours(rng, n):
    """(frame, bad mark, port) of frames of the jobs, mixed: sound ones, faults and attacks."""
    top = AggregatorTop(CONFIG)
    given = makers.traffic(CONFIG, rng, n, share_bad=0.5)
    frames = [
        (frame, bad, port)
        for port, frames in given.items()
        for frame, bad in frames
        if top.is_ours(frame, port) and len(frame) <= MAX_FRAME
    ]
    return [frames[k] for k in rng.permutation(len(frames))]


def beats_of(model, frames):
    """Beats for ``i``: the side band says port and side."""
    n = CONFIG.n_ports
    return model.pack_frames(
        "i",
        [frame for frame, _, _ in frames],
        at_last={"bad": [int(bad) for _, bad, _ in frames]},
        meta=np.array([port % n << 1 | port // n for *_, port in frames]),
    )


def passing(frames):
    """(heads, payloads, frames sent on, {reason: number}) of the golden gate."""
    heads, payloads, collided, refused = [], [], [], dict.fromkeys(Refusal, 0)
    for frame, bad, port in frames:
        job = AggregatorTop(CONFIG).aggregator.job_of(frame, port)
        reason = golden.refusal(frame, job, port, bad=bad)
        refused[reason] += 1
        if reason is Refusal.COLLISIONS:
            collided.append((port, golden.collided(frame)))
        elif not reason:
            native = job.kind != "switchml"
            head = parser.contribution_head(frame, native=native)
            src = parser.speaker(frame, job, port)
            heads.append(head | {"job": CONFIG.jobs.index(job), "src": src})
            payload = parser.payload(frame, native=native)
            payloads += [(native, payload)] if payload else []
    return heads, payloads, collided, refused


def turned(payload):
    """SwitchML's words, which are big-endian, as ours are; what is no word is no value."""
    words = np.frombuffer(payload[: len(payload) // 4 * 4], ">u4")
    return words.astype("<u4").tobytes()


@pytest.mark.parametrize("duty", [1.0, 0.5])
def test_the_gate_lets_pass_what_the_model_does(gate, duty):
    frames = ours(np.random.default_rng(8), 1000)
    heads, payloads, collided, refused = passing(frames)
    assert min(refused.values()) > 3
    run = programmed(gate, CONFIG).run(
        {"i": beats_of(gate, frames)},
        reset=False,
        stalls={port: duty for port in ("i", "heads", "values", "collided")},
        trace=["refused"],
    )
    got = run.unpack("heads")
    for name in got:
        np.testing.assert_array_equal(got[name], [head[name] for head in heads], err_msg=name)
    ends = run.unpack("values")["last"].astype(bool)
    pieces = np.split(run.unpack("values")["data"], np.flatnonzero(ends) + 1)
    assert not len(pieces.pop())
    for piece, (native, payload) in zip(pieces, payloads, strict=True):
        assert len(piece) == -(-len(payload) // N)
        wanted = payload if native else turned(payload)
        assert piece.tobytes()[: len(wanted)] == wanted
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
