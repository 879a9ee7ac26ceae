"""Parts of the aggregator top, each against plain Python: turns, lost frames."""

import numpy as np
import pytest
from gradnic.hdl.aggregation.answer import AnswerFramer, AnswerPort
from gradnic.hdl.aggregation.gate import Gate
from gradnic.hdl.aggregation.parser import ContributionParser
from gradnic.hdl.aggregation.slot_sweep import Sweep
from gradnic.hdl.frame.packet_fifo import PacketFIFO
from gradnic.hdl.frame.round_robin import RoundRobin
from gradnic.hdl.stream.beats import FrameBeat
from gradnic.sim.engine import batch

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
