"""A port sorts its frames as the golden one does: ours whole or not at all, the others all."""

import numpy as np
import pytest
from gradnic.hdl.frame.intake import Intake
from gradnic.models.frame import intake as golden
from gradnic.sim.aggregation import frames as makers
from gradnic.sim.aggregation.tables import level
from gradnic.sim.engine import batch, stimulus

from gradnic.interface.aggregator import MAX_FRAME
from gradnic.interface.formats import GRADNIC, HEAD_BYTES

N = 16
CONFIG = makers.small_config(2)
THC, WORDS, SWITCHML = CONFIG.jobs
HEARD = {THC.job: (0, 1), WORDS.job: (1,), SWITCHML.job: (0, 1)}
"""Which children of each job may speak at this port."""
DISABLED = 9  # number of a fourth job, for which all may


@pytest.fixture(scope="module")
def model():
    return batch.build(Intake(N, 4, n_senders=2, meta_width=3))


def is_ours(frame):
    native, switchml = (
        {job.job: [job.children[k].ip for k in HEARD[job.job]] for job in jobs}
        for jobs in ((THC, WORDS), (SWITCHML,))
    )
    return golden.is_ours(frame, CONFIG.udp_port, native, switchml)


def programmed(model):
    """An instance with the jobs and who may speak."""
    jobs, senders = [], []
    for job in CONFIG.jobs:
        kind = int(job.kind == "switchml")
        jobs.append({"number": job.job, "enabled": 1, "switchml": kind})
        senders.append(
            [
                {"ip": child.ip, "enabled": int(k in HEARD[job.job])}
                for k, child in enumerate(job.children)
            ]
        )
    jobs.append({"number": DISABLED, "enabled": 0, "switchml": 0})
    senders.append(senders[0])
    instance = model.instance()
    signals = {
        "names": level(model, "names", {"port": CONFIG.udp_port, "jobs": jobs}),
        "senders": level(model, "senders", senders),
    }
    instance.run(signals=signals, drain=False, max_cycles=4, probe_cycles=0)
    return instance


def beginnings(rng):
    """Of one frame of each job, all beginnings up to behind the head."""
    for job in CONFIG.jobs:
        frame = makers.sound(CONFIG, rng, job=job, child=1)
        yield from (frame[:n] for n in range(1, HEAD_BYTES + 2))


def mixed(rng, n):
    """Frames in random order: contributions, faults, attacks, foreign ones, and beginnings."""
    frames = [f for some in makers.traffic(CONFIG, rng, n, share_bad=0.5).values() for f, _ in some]
    frames += beginnings(rng)
    for child in (0, 1):
        frame = bytearray(makers.sound(CONFIG, rng, job=THC, child=child))
        GRADNIC.job.put(frame, DISABLED)
        frames += [bytes(frame), makers.sound(CONFIG, rng, job=WORDS, child=child)]
    return [frames[k] for k in rng.permutation(len(frames)) if len(frames[k]) <= 9000]


def sorted_frames(model, frames, bad, meta):
    """(ours, foreign) as they leave: beats of the golden ones."""
    ours = np.array([is_ours(frame[:MAX_FRAME]) for frame in frames])
    let_in = [golden.cut(frame, mark) for frame, mark in zip(frames, bad, strict=True)]
    out = []
    for port, which in (("ours", ours), ("foreign", ~ours)):
        chosen = np.flatnonzero(which)
        fields = {"meta": meta[chosen]} if port == "foreign" else {}
        marks = {"bad": [int(let_in[k][1]) for k in chosen]}
        out.append(model.pack_frames(port, [let_in[k][0] for k in chosen], at_last=marks, **fields))
    return ours, *out


@pytest.mark.parametrize(("i", "foreign"), [(1, 1), (0.5, 1), (1, 0.3), (0.6, 0.6)])
def test_frames_are_sorted_as_by_the_model(model, i, foreign):
    rng = stimulus.rng("intake", i, foreign)
    frames = mixed(rng, 200)
    bad, meta = rng.random(len(frames)) < 0.1, rng.integers(0, 8, len(frames))
    ours, wanted, crossing = sorted_frames(model, frames, bad, meta)
    assert min(ours.sum(), (~ours).sum()) > 200
    beats = model.pack_frames("i", frames, at_last={"bad": bad.astype(int)}, meta=meta)
    run = programmed(model).run(
        {"i": beats},
        reset=False,
        stalls={"i": i, "foreign": foreign},
        trace=("crossed", "oversize", "overrun"),
    )
    run.check(ours=wanted, foreign=crossing)
    counts = {name: int(flags.sum()) for name, flags in run.traces.items()}
    assert counts == {"crossed": (~ours).sum(), "oversize": 0, "overrun": 0}
    if i == foreign == 1:
        assert np.ptp(run.taken["i"]) == len(beats) - 1


def test_long_frames_are_cut_and_bad(model):
    """One beat too long, much too long, and just as long as may be; ours and others in turn."""
    rng = stimulus.rng("intake", "long")
    own = makers.sound(CONFIG, rng, job=THC, child=0)[:HEAD_BYTES]
    sizes = [MAX_FRAME + 1, MAX_FRAME, MAX_FRAME + N, MAX_FRAME + 3000]
    frames = []
    for size in sizes:
        frames += [own + rng.bytes(size - len(own)), rng.bytes(size)]
    zeros = np.zeros(len(frames), int)
    ours, wanted, crossing = sorted_frames(model, frames, zeros, zeros)
    np.testing.assert_array_equal(ours, [True, False] * len(sizes))
    beats = model.pack_frames("i", frames, meta=0)
    run = programmed(model).run({"i": beats}, reset=False, trace=("oversize", "overrun"))
    run.check(ours=wanted, foreign=crossing)
    assert run.traces["oversize"].sum() == 6
    assert not run.traces["overrun"].any()


def test_ours_without_room_are_lost_whole_and_others_never(model):
    rng = stimulus.rng("intake", "lost")
    frames = mixed(rng, 200)
    zeros = np.zeros(len(frames), int)
    ours, _, crossing = sorted_frames(model, frames, zeros, zeros)
    beats = model.pack_frames("i", frames, meta=0)
    run = programmed(model).run(
        {"i": beats}, reset=False, stalls={"ours": 0.05}, trace=("overrun",)
    )
    run.check(foreign=crossing)
    assert np.ptp(run.taken["i"]) == len(beats) - 1  # ours never hold up the line
    got, lost = run.frames("ours"), int(run.traces["overrun"].sum())
    assert 20 < lost == ours.sum() - len(got)
    rest = (frame for frame, own in zip(frames, ours, strict=True) if own)
    assert all(any(frame == other for other in rest) for frame in got)


def test_a_foreign_frame_leaves_13_cycles_after_its_45th_byte_or_its_last(model):
    rng = stimulus.rng("intake", "latency")
    for size, told in ((1, 0), (N, 0), (GRADNIC.job.stop, 2), (200, 2)):
        run = programmed(model).run(
            {"i": model.pack_frames("i", [rng.bytes(size)], meta=0)}, reset=False
        )
        assert run.taken["foreign"][0] - run.taken["i"][told] == 13, size
