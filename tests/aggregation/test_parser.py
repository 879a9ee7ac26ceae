"""What the circuit reads in the head of a frame of ours is what the golden parser reads."""

import numpy as np
import pytest
from gradnic.hdl.aggregation.parser import ContributionParser, Facts
from gradnic.hdl.aggregation.slot_records import ContributionHead
from gradnic.hdl.frame.classes import FrameClass
from gradnic.models.aggregation import gate, parser
from gradnic.models.aggregation.aggregator import AggregatorTop
from gradnic.models.frame.parser import is_sound
from gradnic.sim.aggregation import frames as makers
from gradnic.sim.aggregation.tables import programmed
from gradnic.sim.engine import batch, encoding

from gradnic.interface.aggregator import MAX_FRAME, Refusal
from gradnic.interface.formats import HEAD_BYTES, UDP
from gradnic.interface.inline import Fate

N = 16
CONFIG = makers.small_config()
META_WIDTH = 2
SHOWN = {Refusal.LENGTH: Fate.LENGTH, Refusal.CHECKSUM: Fate.CHECKSUM}


@pytest.fixture(scope="module")
def model():
    return batch.build(ContributionParser(N, CONFIG.n_ports, len(CONFIG.jobs)))


def nested(shape, beats, name, inner):
    """Fields of a field that is a struct itself."""
    value = encoding.unpack(shape, beats)[name]
    return encoding.unpack(inner, value)


@pytest.mark.parametrize("duty", [1.0, 0.4])
def test_facts_equal_the_golden_ones(model, duty):
    rng = np.random.default_rng(4)
    top, n = AggregatorTop(CONFIG), CONFIG.n_ports
    frames = [
        (frame, port)
        for port, frames in makers.traffic(CONFIG, rng, 800, share_bad=0.6).items()
        for frame, _ in frames
        if top.is_ours(frame, port) and len(frame) <= MAX_FRAME
    ]
    frames = [frames[k] for k in rng.permutation(len(frames))]
    meta = np.array([port % n << 1 | port // n for _, port in frames])
    beats = model.pack_frames("i", [frame for frame, _ in frames], meta=meta)
    run = programmed(model, CONFIG).run(
        {"i": beats}, reset=False, stalls={"i": duty, "beats": duty, "facts": duty}
    )
    assert run.frames("beats") == [frame for frame, _ in frames]
    facts = run.unpack("facts")
    shape = Facts(META_WIDTH)
    heads = nested(shape, run.outputs["facts"], "head", ContributionHead)
    checks = nested(shape, run.outputs["facts"], "check", FrameClass())
    np.testing.assert_array_equal(facts["port"], meta)
    assert checks["ours"].all()
    seen = set()
    for k, (frame, port) in enumerate(frames):
        job = top.aggregator.job_of(frame, port)
        native = job.kind != "switchml"
        assert facts["switchml"][k] == (not native)
        whole = gate.refusal(frame, job, port)  # of the whole frame: the head shows some of it
        fate = Fate(int(checks["fate"][k]))
        assert fate in (Fate.CODED, SHOWN.get(whole))
        if whole in SHOWN:
            continue
        reason = parser.claim(frame, job, port)
        reason = Refusal.FORMAT if native and not is_sound(frame) else reason
        assert (facts["refusal"][k], reason) == (whole, whole)
        seen.add((native, reason))
        head = parser.contribution_head(frame, native=native)
        head["job"] = CONFIG.jobs.index(job)
        if reason in (Refusal.NONE, Refusal.COLLISIONS):
            head["src"] = parser.speaker(frame, job, port)
        else:
            del head["src"]
        head["slot"] %= 2**14
        assert {name: int(heads[name][k]) for name in head} == head
        assert checks["end"][k] == UDP.start + UDP.length.get(frame)
    natives = (Refusal.NONE, Refusal.FORMAT, Refusal.OWNER, Refusal.COLLISIONS)
    assert seen == {(True, r) for r in natives} | {(False, r) for r in (natives[0], natives[2])}


def test_full_rate_and_latency(model):
    """Frames back to back without a stall; facts 10 cycles after the 64th byte."""
    rng = np.random.default_rng(2)
    frames = [makers.sound(CONFIG, rng, job=CONFIG.jobs[0], child=0) for _ in range(50)]
    beats = model.pack_frames("i", frames, meta=0)
    run = programmed(model, CONFIG).run({"i": beats}, reset=False)
    assert np.ptp(run.taken["i"]) == len(beats) - 1
    starts = np.cumsum([0] + [-(-len(frame) // N) for frame in frames[:-1]])
    told = run.taken["i"][starts + HEAD_BYTES // N - 1]
    np.testing.assert_array_equal(run.taken["facts"] - told, 10)
